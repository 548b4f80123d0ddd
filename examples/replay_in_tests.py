"""A session that happened becomes a test: its model and its tools give the same answers again, without a network."""

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
    """Asks the real world."""
    CALLS.append(city)
    return f"rain in {city}"


async def record(store: MemoryStore) -> None:
    """What happened once. The model would be a real one."""
    model = ScriptedModel([assistant("Looking.", ToolCall("1", "weather", {"city": "Paris"})), "It rains in Paris."])
    await Agent(model, tools=[weather], store=store).run("Rain in Paris?", session="recorded")


async def test_it_still_says_so(store: MemoryStore) -> None:
    """A test as you would write it."""
    entries = await store.load("recorded")
    agent = Agent(replayed_model(entries), tools=replayed_tools(entries))
    result = await agent.run("Rain in Paris?")
    assert result.output == "It rains in Paris."
    recorded = [entry.fact.text for entry in entries if isinstance(entry.fact, Message)]
    assert [message.text for message in result.messages] == recorded
    assert CALLS == ["Paris"], "the real tool ran once, when it was recorded"


async def main() -> None:
    """Record, then test."""
    store = MemoryStore()
    await record(store)
    await test_it_still_says_so(store)
    print(f"replayed; the real tool was called {len(CALLS)} time(s)")


if __name__ == "__main__":
    asyncio.run(main())
