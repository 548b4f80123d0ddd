"""A server that hands its runs to workers."""

import asyncio

from bartack import MemoryStore
from bartack.nouns.entries import ApprovalRequired
from bartack.queues import StoreQueue
from bartack.session.decisions import Decision
from bartack.store.requests import decide
from bartack_server.web import app
from bartack_server.web.queued_runs import QueuedRuns
from bartack_server.workers import Worker
from tests.web.agents import Gate, new_agent
from tests.web.serving import is_entry, served
from tests.web.test_api import answers, settled


async def test_runs_are_handed_to_workers_and_followed_here(gate: Gate) -> None:
    store = MemoryStore()
    agent = new_agent(gate, "a")
    worker = Worker(StoreQueue(store), {"a": agent}, store)
    async with served(app(agent, store=store, queue=StoreQueue)) as client:
        started = await client.post("/sessions/s/runs", text="pay 5")
        assert (started["runId"], bool(started["jobId"])) == (None, True)
        status = await client.get("/workers")
        assert (status["waiting"], status["workers"], status["isUsed"]) == (1, [], True)
        working = asyncio.create_task(worker.run())
        await settled(client, "s", started["position"])
        async with client.events("s", started["position"]) as stream:
            await stream.until(is_entry("approval_required"))
            pending = (await client.get("/sessions/s/requests"))["items"]
            named = {name: pending[0][name] for name in ("toolCallId", "questionDigest")}
            await client.post("/sessions/s/requests", type="decide", decision="approve", **named)
            await stream.until(is_entry("run_ended"))
        assert (await answers(client, "s"))[-1] == "The tool returned: paid 5 to Ann"
        assert len((await client.get("/workers"))["workers"]) == 1
        status_code, error, _ = await client.send("GET", "/api/sessions/bartack:queue:default/entries")
        assert (status_code, error["error"]["code"]) == (404, "not_found")
        worker.stop()
        await working


async def test_the_runs_of_workers_are_left_to_workers(gate: Gate) -> None:
    store = MemoryStore()
    agent, queue = new_agent(gate, "a"), StoreQueue(store)
    runs = QueuedRuns({"a": agent}, store, queue)
    worker = Worker(StoreQueue(store), {"a": agent}, store)
    working = asyncio.create_task(worker.run())
    await agent.with_store(store).submit("pay 5", session="s")
    async for entry in store.follow("s"):
        if isinstance(entry.fact, ApprovalRequired):
            question = entry.fact
            break
    while (await queue.status()).running:  # noqa: ASYNC110 - it changes in the store
        await asyncio.sleep(0.01)
    worker.stop()
    await working
    await decide(store, "s", question.tool_call_id, Decision("approve"))
    assert await runs.resume_open_runs() == 0
    assert not runs.live


async def test_a_full_queue_is_a_503_with_numbers(gate: Gate) -> None:
    store = MemoryStore()

    def queue(opened: object) -> StoreQueue:
        return StoreQueue(store, max_waiting=1)

    async with served(app(new_agent(gate, "a"), store=store, queue=queue)) as client:
        await client.post("/sessions/s/runs", text="one")
        status, value, headers = await client.send("POST", "/api/sessions/t/runs", json={"text": "two"})
        assert (status, value["error"]["queued"], value["error"]["limit"]) == (503, 1, 1)
        assert headers["retry-after"] == "2"
