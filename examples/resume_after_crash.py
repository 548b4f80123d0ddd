"""A process is killed inside a tool. Another process resumes the run without repeating the tool."""

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
from bartack.models.scripted import ScriptedResponse
from bartack.tools import tool


@tool
async def pay(amount: int) -> str:
    """Transfer money, then crash."""
    print(f"paying {amount}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    return f"paid {amount}"


def answer(messages: Sequence[Message]) -> ScriptedResponse:
    """Call the tool first, then report its result."""
    results = [result for message in messages for result in message.tool_results]
    return f"The tool returned: {results[0].content}" if results else assistant(ToolCall("1", "pay", {"amount": 7}))


def agent(database: str) -> Agent:
    """Create the agent; both processes use the same one."""
    return Agent(ScriptedModel([answer, answer]), tools=[pay], store=database)


async def first(database: str) -> None:
    """The process that gets killed."""
    await agent(database).run("Pay the bill", session="bill")


async def second(database: str) -> None:
    """The process that resumes. The first one is dead, so its session is free."""
    async with agent(database) as resumed:
        result = await resumed.resume("bill")
        print(result.output)


def main() -> None:
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
