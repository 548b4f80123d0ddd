"""Messages as the JSON that the GenAI conventions define for them. Only used if content is asked for.

Inline images and files are described by their type and size; their bytes stay out of the telemetry.
"""

from collections.abc import Iterable, Sequence
from typing import Any, assert_never

import msgspec

from bartack.nouns.config import ToolSpec
from bartack.nouns.messages import Message
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall, ToolContent, ToolResult

__all__ = ["as_json", "instructions", "messages", "output_message", "tool_definitions", "tool_output"]


def as_json(value: object) -> str:
    """The value as the text of an attribute."""
    return msgspec.json.encode(value, enc_hook=str).decode()


def messages(history: Iterable[Message]) -> list[dict[str, Any]]:
    """The conversation, without its system prompt."""
    return [{"role": message.role, "parts": _parts(message.parts)} for message in history if message.role != "system"]


def instructions(history: Iterable[Message]) -> list[dict[str, Any]]:
    """The system prompt."""
    return [part for message in history if message.role == "system" for part in _parts(message.parts)]


def output_message(message: Message, finish_reason: str | None) -> list[dict[str, Any]]:
    """An answer, with the reason why it ended if there is one."""
    answer: dict[str, Any] = {"role": message.role, "parts": _parts(message.parts)}
    return [answer if finish_reason is None else {**answer, "finish_reason": finish_reason}]


def tool_definitions(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """The tools that a model may call."""
    return [
        {"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.parameter_schema}
        for tool in tools
    ]


def tool_output(content: ToolContent) -> Any:
    """What a tool returned: a text, an object, or a list of parts."""
    return _parts(content) if isinstance(content, tuple) else content


def _parts(parts: Iterable[Part]) -> list[dict[str, Any]]:
    return [described for part in parts for described in _part(part)]


def _part(part: Part) -> list[dict[str, Any]]:
    match part:
        case Text():
            return [{"type": "text", "content": part.text}]
        case Thinking():
            return [{"type": "reasoning", "content": part.text}] if part.text else []
        case ToolCall():
            call = {"type": "tool_call", "id": part.tool_call_id, "name": part.tool_name, "arguments": part.arguments}
            return [call] if part.result is None else [call, *_part(part.result)]
        case ToolResult():
            response = tool_output(part.content)
            return [{"type": "tool_call_response", "id": part.tool_call_id, "response": response}]
        case Image() | FileRef():
            return [_media(part)]
        case _:
            assert_never(part)


def _media(part: Image | FileRef) -> dict[str, Any]:
    modality = "image" if isinstance(part, Image) else "document"
    if part.url is not None:
        return {"type": "uri", "modality": modality, "mime_type": part.mime_type, "uri": part.url}
    size = None if part.data is None else len(part.data)
    return {"type": part.kind, "modality": modality, "mime_type": part.mime_type, "size": size}
