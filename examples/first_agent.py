"""A first agent. With a key in the environment the model's name is all that changes.

agent = Agent("anthropic:claude-sonnet-4-5", instructions="Be brief.")
"""

import asyncio

from bartack.agent import Agent
from bartack.models import ScriptedModel


async def main() -> None:
    """Two turns of one session, kept in memory."""
    model = ScriptedModel(["Hello! What can I do for you?", "You said hello."])
    agent = Agent(model, instructions="Be brief.", store="memory:")
    result = await agent.run("Hello", session="greeting")
    print(result.output)
    result = await agent.run("What did I say?", session="greeting")
    print(result.output)
    print(f"status {result.status}, {len(model.calls[1].messages)} messages were sent")


if __name__ == "__main__":
    asyncio.run(main())
