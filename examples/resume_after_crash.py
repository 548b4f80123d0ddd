"""A process is killed in the middle of a tool; another one goes on, and the tool does not run twice."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bartack import Message, ToolCall, assistant
from bartack.agent import Agent
from bartack.models import ScriptedModel
from bartack.models.scripted import Answer
from bartack.tools import tool


@tool
async def pay(amount: int) -> str:
    """Moves money, and then the power fails."""
    print(f"paying {amount}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    return f"paid {amount}"


def answer(messages: Sequence[Message]) -> Answer:
    """Pay first; after the result, report."""
    results = [result for message in messages for result in message.tool_results]
    return f"The tool said: {results[0].content}" if results else assistant(ToolCall("1", "pay", {"amount": 7}))


def agent(database: str) -> Agent:
    """The same agent in both processes."""
    return Agent(ScriptedModel([answer, answer]), tools=[pay], store=database)


async def first(database: str) -> None:
    """The process that will not see the end."""
    await agent(database).run("Pay the bill", session="bill")


async def second(database: str) -> None:
    """The process that goes on. The lease of the dead one has not run out, so it says that it takes over."""
    async with agent(database) as resumed:
        result = await resumed.resume("bill", takeover=True)
        print(result.output)


def main() -> None:
    """Both, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        database = str(Path(folder) / "sessions.db")
        killed = subprocess.run([sys.executable, __file__, database], check=False, capture_output=True, text=True)
        print(killed.stdout.strip(), "- killed:", killed.returncode == -signal.SIGKILL)
        asyncio.run(second(database))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(first(sys.argv[1]))
    else:
        main()
