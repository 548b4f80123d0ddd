"""Shared by the tests of MCP: a fault server, and an agent that calls one tool."""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bartack import Agent, ScriptedModel, ToolCall, ToolResult, assistant
from bartack.store import MemoryStore
from bartack.tools.mcp import McpServer, mcp

FAULT_SERVER = Path(__file__).with_name("fault_server.py")
PACKAGES = Path(__file__).parents[2] / "clients" / "mcp" / "node_modules"  # from npm; `.ci/run` installs them
NODE = next(PACKAGES.glob("node-*/bin/node"), None)


def fault_server(tmp_path: Path, *words: str, **options: Any) -> McpServer:
    """The fault server under the name ``f``. What it is known by is kept in a file of the test."""
    command = [sys.executable, "-I", str(FAULT_SERVER), *words]
    return mcp(command, **{"name": "f", "known_tools": tmp_path / "known.json", **options})


def calls(*scripted: tuple[str, dict[str, Any]]) -> list[Any]:
    """A script: each call in an answer of its own, and then a text."""
    return [*(assistant(ToolCall(f"c{n}", name, arguments)) for n, (name, arguments) in enumerate(scripted)), "done"]


def agent_with(server: Any, *scripted: str | tuple[str, dict[str, Any]], **settings: Any) -> Agent:
    """An agent whose model makes these calls and then answers. No call needs approval unless the test requires it."""
    script = calls(*((call, {}) if isinstance(call, str) else call for call in scripted))
    options = {"store": MemoryStore(), "approval": lambda call, definition: False, **settings}
    return Agent(ScriptedModel(script), tools=[server], **options)


async def results_of(server: Any, *scripted: str | tuple[str, dict[str, Any]], **settings: Any) -> list[ToolResult]:
    """The results of these calls, each in a turn of its own. The run must complete, whatever the server does."""
    async with agent_with(server, *scripted, **settings) as agent:
        result = await agent.run("go")
        assert result.output == "done"
        return [tool_result for message in result.messages for tool_result in message.tool_results]


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a state of another process."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - nothing here reports it
            await asyncio.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether a process exists and has not exited."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
