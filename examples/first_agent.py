"""A minimal agent. To use a real model, set its API key and pass its name instead of the scripted model:

agent = Agent("anthropic:claude-sonnet-4-6", instructions="Be brief.")
"""

import asyncio

from bartack.agent import Agent
from bartack.models import ScriptedModel


async def main() -> None:
    model = ScriptedModel(["Hello! What can I do for you?", "You said hello."])
    agent = Agent(model, instructions="Be brief.", store="memory:")
    result = await agent.run("Hello", session="greeting")
    print(result.output)
    result = await agent.run("What did I say?", session="greeting")
    print(result.output)
    print(f"status {result.status}, {len(model.calls[1].messages)} messages sent")


if __name__ == "__main__":
    asyncio.run(main())
