"""The agent of a worker process that a test kills: its tool never returns."""

import asyncio

from bartack import ScriptedModel, ToolCall, assistant
from bartack.agent import Agent
from bartack.tools import tool


@tool
async def hang() -> str:
    """Wait until the process is killed."""
    await asyncio.Event().wait()
    return "never"


agents = [Agent(ScriptedModel([assistant(ToolCall("c1", "hang", {}))]), tools=[hang], name="a")]
