"""`Hooks`: a user's own code before and after model calls and tools.

Each is a coroutine function and may change what it is given by returning another value; None changes nothing. What a
hook raises ends the run as failed and reaches the caller.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from msgspec import Struct

from bartack.nouns.config import ToolSpec
from bartack.nouns.messages import Message
from bartack.nouns.parts import ToolCall, ToolResult

__all__ = ["Hooks", "ModelRequest", "Summarise"]

# Gets the messages that will no longer be shown and gives the text that stands for them.
Summarise = Callable[[tuple[Message, ...]], Awaitable[str]]


class ModelRequest(Struct, frozen=True, kw_only=True):
    """What a model is about to be asked."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    system_prompt: str | None = None
    params: dict[str, Any] = {}  # settings for this call alone
    model_call_index: int
    attempt: int


class Hooks(Struct, frozen=True, kw_only=True):
    """Any of the four."""

    before_model: Callable[[ModelRequest], Awaitable[ModelRequest | None]] | None = None
    after_model: Callable[[Message], Awaitable[Message | None]] | None = None  # before the answer becomes a fact
    # what it gives as a result stands for the call, which is not run
    before_tool: Callable[[ToolCall], Coroutine[Any, Any, ToolCall | ToolResult | None]] | None = None
    after_tool: Callable[[ToolCall, ToolResult], Coroutine[Any, Any, ToolResult]] | None = None
