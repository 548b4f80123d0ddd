"""Shows a scripted run on a screen, also as a program: python scripted_run.py CASE PAUSE [thinking]."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rich.console import Console

from bartack import Agent, Failed, Text, Thinking, ToolCall, assistant, tool
from bartack.agent import LiveApprover
from bartack.events import ApprovalRequested
from bartack.models import ScriptedModel
from bartack.models.scripted import ScriptedResponse
from bartack.nouns.errors import ErrorCode
from bartack.tools import ToolContext
from bartack_code.terminal.messages import show_request
from bartack_code.terminal.screen import Screen, new_screen

PIECE = 7  # characters of a delta
MANY = 300  # lines of the long code

MARKDOWN = """# A tour of the house

This is the *first* paragraph, long enough to be wrapped in a window of sixty columns, with `inline code` in it.

## What is inside

- one short item
- a longer item that has to be wrapped because it says more than one line can hold
  - nested below it
- the last one

1. first
2. second

| name | size | note |
|------|-----:|------|
| README.md | 120 | read first |
| setup.py | 8 | old |

```python
def greet(name: str) -> str:
    \"\"\"A greeting.\"\"\"
    return f"Hello {name}"  # said once
```

> A quote, also long enough to be wrapped when the window is narrow as here.

That is all, see [the docs](https://example.org/docs).
"""
LONG_CODE = (
    "Here it is:\n\n```python\n" + "".join(f"line_{n:03} = {n}\n" for n in range(MANY)) + "```\n\nDone with it.\n"
)
LONG_TEXT = "\n\n".join(f"Paragraph {n:03} says something and ends." for n in range(60))


@tool
async def read_file(path: str) -> str:
    """Read."""
    await asyncio.sleep(0.1)
    return "\n".join(f"{n} of {path}" for n in range(120))


@tool
async def run_command(command: str, ctx: ToolContext) -> str:
    """Run."""
    await ctx.progress("collecting", title="tests", done=3)
    await asyncio.sleep(0.4)
    return "ok"


@tool
async def fails(reason: str) -> str:
    """Fail."""
    raise ValueError(reason)


@tool(requires_approval=True)
async def write_file(path: str, text: str) -> str:
    """Write."""
    return f"created {path}"


TOOLS_TURN = assistant(
    Thinking("First I look at the files.\n" * 8),
    Text("Let me look at **both**."),
    ToolCall("c1", "read_file", {"path": "README.md"}),
    ToolCall("c2", "run_command", {"command": "pytest -x tests/cli"}),
    ToolCall("c3", "fails", {"reason": "no such table: things"}),
    ToolCall("c4", "write_file", {"path": "src/new.py", "text": "import os\n\nprint(os.name)\n"}),
)

CASES: dict[str, list[ScriptedResponse]] = {
    "markdown": [MARKDOWN],
    "code": [LONG_CODE],
    "text": [LONG_TEXT],
    "tools": [
        TOOLS_TURN,
        Failed(ErrorCode.RATE_LIMITED, "too many requests", retryable=True, retry_after_ms=500),
        "All **done**.",
    ],
    "hostile": ["one \x1b]52;c;aGk=\x07 two \x1b[2J three &#x202e;\x9b31m four\n\n```\n\x1b[31mcode\x1b[0m\n```\n"],
}


@asynccontextmanager
async def ticking(screen: Screen) -> AsyncIterator[None]:
    async def tick() -> None:
        while True:
            await asyncio.sleep(0.12)
            screen.tick()

    task = asyncio.create_task(tick())
    try:
        yield
    finally:
        task.cancel()


async def play(case: str, console: Console, *, thinking: bool = False, pause: float = 0.0) -> None:
    model = ScriptedModel(CASES[case], chunk_chars=PIECE)
    agent = Agent(
        model,
        tools=[read_file, run_command, fails, write_file],
        store="memory:",
        approver=LiveApprover(),
    )
    screen = new_screen(console, thinking=thinking)
    async with ticking(screen), agent.stream("go") as run:
        async for event in run:
            screen.show(event)
            await asyncio.sleep(pause)
            if isinstance(event, ApprovalRequested):
                screen.suspend()
                show_request(console, event.request)
                screen.resume()
                run.deny(event.request.tool_call_id, reason="not today")
    screen.close()


if __name__ == "__main__":
    asyncio.run(play(sys.argv[1], Console(), thinking="thinking" in sys.argv, pause=float(sys.argv[2])))
    print("END OF RUN")
