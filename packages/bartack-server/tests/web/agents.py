"""The agent that the servers of these tests run. Its model's answers depend only on the last message, so that a
process which takes over from another one gives the same answers.

`slow` stops in the middle of the answer until the gate is open, that is until a file of this name exists.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bartack import (
    Agent,
    Image,
    MemoryStore,
    Message,
    ScriptedModel,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    assistant,
    tool,
)
from bartack.agent import DeltaReceived
from bartack.models.scripted import ScriptedResponse
from bartack.nouns.deltas import Delta, TextDelta
from bartack.nouns.messages import Meta
from bartack.tools import Approver

GATE = "⏸"
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360f8cf500f0003860180a2d5fd5e0000000049454e44ae426082"
)
MARKDOWN = """# Rain

It will **rain** in `Paris`:

```python
def rain(days: int) -> str:
    return "wet" * days
```

| day | rain |
|---|---|
| Mon | yes |

- one
- two
"""


class Gate(NamedTuple):
    """Closed until its file exists, so that it can be opened from another process."""

    path: Path

    @property
    def is_open(self) -> bool:
        return self.path.exists()

    def open(self) -> None:
        self.path.touch()


class GatedModel(ScriptedModel):
    """Answers every message, and stops at each gate until it is open."""

    def __init__(self, gate: Gate, script: Sequence[Any] | None = None) -> None:
        super().__init__([answer] * 10_000 if script is None else script, chunk_chars=6)
        self._gate = gate

    async def _batches(self, response: ScriptedResponse) -> AsyncGenerator[Sequence[Delta], None]:
        async for batch in super()._batches(response):
            for delta in batch:
                if isinstance(delta, TextDelta) and GATE in delta.text_delta:
                    while not self._gate.is_open:  # noqa: ASYNC110 - another process opens it
                        await asyncio.sleep(0.01)
            yield batch


def answer(messages: Sequence[Message]) -> ScriptedResponse:
    """The answer to the last message."""
    last = messages[-1]
    if last.role == "tool":
        result = last.tool_results[0]
        return _said(f"The tool {'failed' if result.is_error else 'returned'}: {str(result.content)[:80]}")
    words = last.text.split()
    match words:
        case ["slow", *rest]:
            return _said(f"Slowly: {' '.join(rest)} {GATE} and the rest of the answer.")
        case ["think", *rest]:
            return _said(f"Thought about {' '.join(rest)}.", Thinking("First one thing, then **another**."))
        case [name, *rest] if name in (*TOOLS, "helper"):
            return assistant(ToolCall(f"call_{len(messages)}", name, _arguments(name, rest)), meta=_META)
        case ["call", *_]:
            return assistant(ToolCall(f"call_{len(messages)}", last.text.partition(" ")[2], {}), meta=_META)
        case ["markdown"]:
            return _said(MARKDOWN)
        case ["raw", *_]:
            return _said(last.text.partition(" ")[2])
        case _:
            return _said(f"You said: {last.text}")


_META = Meta(usage=Usage(input_tokens=120, output_tokens=30))


def _said(text: str, *before: Thinking) -> Message:
    return assistant(*before, Text(text), meta=_META)


def _arguments(name: str, words: list[str]) -> dict[str, Any]:
    if name == "helper":
        return {"prompt": " ".join(words)}
    if name == "pay":
        return {"amount": int(words[0]), "to": " ".join(words[1:]) or "Ann"}
    return {"city": " ".join(words)}


@tool(requires_approval=True)
def pay(amount: int, to: str, urgent: bool = False) -> str:
    """Pay an amount.

    Args:
        amount: In euros.
        to: Who gets it.
    """
    return f"paid {amount} to {to}{' at once' if urgent else ''}"


@tool
def weather(city: str) -> str:
    """Weather forecast for a city."""
    return f"Rain in {city}."


@tool(deferred=True)
def ask_expert(city: str) -> None:
    """Ask an expert, who answers later."""


@tool
def picture(city: str) -> ToolResult:
    """A picture of a city."""
    return ToolResult("any", (Text(f"A picture of {city}"), Image("image/png", data=PNG)))


TOOLS: dict[str, Callable[..., Any]] = {"pay": pay, "weather": weather, "picture": picture, "ask_expert": ask_expert}


async def abandoned_session(gate: Gate) -> MemoryStore:
    """A store with a session whose run was begun by another program, which has died since."""
    store = MemoryStore()
    agent = Agent(GatedModel(gate), store=store, lease_s=0.05)
    async with agent.stream("slow walk", session="s") as run:
        async for event in run:
            if isinstance(event, DeltaReceived):
                break
        run.suspend()
    return store


def new_agent(gate: Gate, name: str | None = None, approver: Approver | None = None) -> Agent:
    """An agent with the model and the tools of this module."""
    helper = Agent(GatedModel(gate), tools=[pay, ask_expert]).as_tool("helper", "Another agent.")
    tools: list[Any] = [pay, weather, picture, ask_expert, helper]
    return Agent(GatedModel(gate), tools=tools, name=name, lease_s=2.0, approver=approver)
