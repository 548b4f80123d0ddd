"""Tools are typed functions. Arguments are validated before a tool runs, and several tools run in parallel."""

import asyncio

from bartack import ToolCall, assistant
from bartack.agent import Agent
from bartack.models import ScriptedModel
from bartack.tools import tool


@tool(timeout_ms=5_000)
async def weather(city: str, days: int = 1) -> str:
    """Weather forecast for a city.

    Args:
        city: City name.
        days: Number of days to forecast.
    """
    await asyncio.sleep(0.01)
    return f"{city}: rain for {days} day(s)"


@tool
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


async def main() -> None:
    # One of the three calls has invalid arguments; its result describes the error to the model.
    model = ScriptedModel(
        [
            assistant(
                "Let me look.",
                ToolCall("1", "weather", {"city": "Paris", "days": 2}),
                ToolCall("2", "weather", {"town": "Rome"}),
                ToolCall("3", "add", {"a": 1, "b": 2}),
            ),
            "It rains in Paris, and 1 + 2 = 3.",
        ]
    )
    agent = Agent(model, tools=[weather, add])
    result = await agent.run("Does it rain in Paris and Rome? And what is 1 + 2?")
    for message in result.messages:
        for part in message.tool_results:
            print(f"{part.tool_call_id}: {'error: ' if part.is_error else ''}{part.content}")
    print(result.output)


if __name__ == "__main__":
    asyncio.run(main())
