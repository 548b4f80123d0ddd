"""A process that submits runs until the queue is full, and prints how many it has submitted.

python -m tests.workers.submitter ADDRESS ENGINE LIMIT NAME
"""

import asyncio
import sys

from bartack import ScriptedModel
from bartack.agent import Agent
from bartack.nouns.errors import QueueFull
from bartack.queues import RunQueue, StoreQueue
from bartack.store import open_store


async def main(address: str, engine: str, limit: str, name: str) -> None:
    store = await open_store(address)
    queue: RunQueue = StoreQueue(store, max_waiting=int(limit))
    if engine == "dbos":
        from bartack.queues.dbos_queue import DbosQueue

        queue = DbosQueue(store, address, max_waiting=int(limit))
    agent = Agent(ScriptedModel([]), store=store, name="a")
    count = 0
    try:
        while True:
            await agent.submit("Hi", session=f"{name}-{count}", queue=queue)
            count += 1
    except QueueFull as error:
        print(error.limit, end=" ")
    print(count)
    await queue.close()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
