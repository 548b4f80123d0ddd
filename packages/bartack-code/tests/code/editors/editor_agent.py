"""The process that an editor starts in these tests: the agent of `bartack acp` with a scripted model.

    python editor_agent.py STORE SCRIPT

SCRIPT is a JSON list: a text, or ``{"call": [id, tool, arguments]}``, or ``{"error": text}``, or
``{"cut": text}`` for an answer that is cut off and made again, or ``{"inside": item}`` for what a sub-agent answers.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any

from bartack import (
    Agent,
    ErrorCode,
    Failed,
    RetryPolicy,
    Start,
    TextDelta,
    Thinking,
    ToolCall,
    assistant,
    open_store,
)
from bartack.tools import Approver, file_tools, tool
from bartack.tools.mcp import McpServer
from bartack_code.editors.acp_server import EditorAgent
from bartack_code.editors.editor_connection import serve_editor
from bartack_code.editors.editor_runtime import EditorRuntime
from tests.clients.ui.scripted import HeldModel


@tool
async def shout() -> str:
    """Prints to stdout, which belongs to the protocol."""
    print("NOT THE PROTOCOL")
    return "printed"


def answer(item: Any) -> Any:
    if isinstance(item, str):
        return item
    if "cut" in item:
        busy = Failed(ErrorCode.OVERLOADED, "busy", retryable=True)
        return [Start("m", "r"), TextDelta(item["cut"]), busy]
    if "error" in item:
        return Failed(ErrorCode.REFUSED, item["error"])
    return assistant(Thinking("Hm."), ToolCall(*item["call"]))


async def main(store_at: str, script: str) -> None:
    items = json.loads(script)
    inside = [item["inside"] for item in items if "inside" in item]
    model = HeldModel([answer(item) for item in items if "inside" not in item])  # it is never released
    inner = HeldModel([answer(item) for item in inside])
    store = await open_store(store_at)

    def make_agent(runtime: EditorRuntime, approver: Approver, servers: Sequence[McpServer]) -> Agent:
        researcher = Agent(inner, tools=file_tools(), runtime=runtime, name="researcher")
        return Agent(
            model,
            tools=[*file_tools(), shout, researcher.as_tool("research", "Researches."), *servers],
            store=store,
            runtime=runtime,
            approver=approver,
            retry=RetryPolicy(base_ms=1, max_ms=1),
        )

    await serve_editor(EditorAgent(make_agent, store))
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
