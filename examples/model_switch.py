"""Another model in mid-session, and a fallback for the day on which a provider is down."""

import asyncio

from bartack import Continuation, ErrorCode, Failed, Thinking, assistant
from bartack.agent import Agent, ModelSwitched, RetryPolicy
from bartack.models import ScriptedModel
from bartack.store import MemoryStore


async def main() -> None:
    """Chosen by the user, then forced by a failure."""
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

    down = ScriptedModel([Failed(ErrorCode.OVERLOADED, "come back later", retryable=True)] * 2, model_id="down")
    spare = ScriptedModel(["Here I am."], model_id="spare")
    agent = Agent(down, fallback_models=[spare], retry=RetryPolicy(max_retries=1, base_ms=1))
    result = await agent.run("Is anybody there?")
    print(result.output, result.message and result.message.meta and result.message.meta.model)


if __name__ == "__main__":
    asyncio.run(main())
