"""Switch models within a session, and fall back to another model when a provider is down."""

import asyncio

from bartack import Continuation, ErrorCode, Failed, Thinking, assistant
from bartack.agent import Agent, ModelSwitched, RetryPolicy
from bartack.models import ScriptedModel
from bartack.store import MemoryStore


async def main() -> None:
    signed = Thinking("Hm.", continuation=Continuation("scripted", "small", {"signature": "c2lnbmVk"}))
    small = ScriptedModel([assistant(signed, "Four.")], model_id="small")
    large = ScriptedModel(["It is four, because two and two make four."], model_id="large")
    agent = Agent(small, store=MemoryStore())
    print((await agent.run("What is 2 + 2?", session="sums")).output)
    async with agent.stream("Why?", session="sums", model=large) as run:
        async for event in run:
            if isinstance(event, ModelSwitched):
                print(f"{event.previous.model if event.previous else None} -> {event.model.model} ({event.reason})")
    print(run.result.output)

    down = ScriptedModel([Failed(ErrorCode.OVERLOADED, "overloaded", retryable=True)] * 2, model_id="down")
    spare = ScriptedModel(["Hello from the fallback."], model_id="spare")
    agent = Agent(down, fallback_models=[spare], retry=RetryPolicy(max_retries=1, base_ms=1))
    result = await agent.run("Hello?")
    print(result.output, result.message and result.message.meta and result.message.meta.model)


if __name__ == "__main__":
    asyncio.run(main())
