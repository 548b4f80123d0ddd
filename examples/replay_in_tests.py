"""Turn a stored session into a test: replay its model answers and tool results without a network."""

import asyncio

from bartack import Message, ToolCall, assistant
from bartack.agent import Agent
from bartack.agent.replay import replayed_model, replayed_tools
from bartack.models import ScriptedModel
from bartack.store import MemoryStore
from bartack.tools import tool

CALLS: list[str] = []


@tool
async def weather(city: str) -> str:
    """Fetch a forecast from a real service."""
    CALLS.append(city)
    return f"rain in {city}"


async def record(store: MemoryStore) -> None:
    """Record a session. In practice this would use a real model."""
    model = ScriptedModel([assistant("Looking.", ToolCall("1", "weather", {"city": "Paris"})), "It rains in Paris."])
    await Agent(model, tools=[weather], store=store).run("Rain in Paris?", session="recorded")


async def test_recorded_session_gives_the_same_answer(store: MemoryStore) -> None:
    """A test as you would write it."""
    entries = await store.load("recorded")
    agent = Agent(replayed_model(entries), tools=replayed_tools(entries))
    result = await agent.run("Rain in Paris?")
    assert result.output == "It rains in Paris."
    recorded = [entry.fact.text for entry in entries if isinstance(entry.fact, Message)]
    assert [message.text for message in result.messages] == recorded
    assert CALLS == ["Paris"], "the real tool must run only during recording"


async def main() -> None:
    store = MemoryStore()
    await record(store)
    await test_recorded_session_gives_the_same_answer(store)
    print(f"replayed; calls to the real tool: {len(CALLS)}")


if __name__ == "__main__":
    asyncio.run(main())
