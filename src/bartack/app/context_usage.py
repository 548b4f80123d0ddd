"""What fills the context window: a request in, its size by kind of content out."""

from typing import NamedTuple

from bartack.nouns.messages import Message
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest
from bartack.session.context.tokens import message_tokens, tool_tokens

_ORDER = ("instructions", "tools", "your messages", "attachments", "answers", "thinking", "tool calls", "tool results")


class ContextRow(NamedTuple):
    """A kind of content, and its tokens."""

    name: str
    tokens: int


def context_rows(request: ModelRequest, reported: int | None = None) -> list[ContextRow]:
    """The tokens of each kind of content in a request. They are estimates, scaled to the count that the provider has
    reported, if there is one."""
    sizes = dict.fromkeys(_ORDER, 0)
    sizes["tools"] = tool_tokens(request.tools)
    for message in request.messages:
        for part in message.parts:
            single = Message(message.role, (part,))
            sizes[_name(message.role, part)] += message_tokens(single)
    total = sum(sizes.values())
    scale = reported / total if reported and total else 1.0
    return [ContextRow(name, round(size * scale)) for name, size in sizes.items() if size]


def _name(role: str, part: Part) -> str:
    match part:
        case ToolResult():
            return "tool results"
        case ToolCall():
            return "tool calls"
        case Thinking():
            return "thinking"
        case Image() | FileRef():
            return "attachments"
        case Text():
            return {"system": "instructions", "user": "your messages"}.get(role, "answers")
