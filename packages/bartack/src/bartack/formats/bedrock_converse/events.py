"""The events of Bedrock's ConverseStream as typed structs, and what their pieces mean once put together.

All fields are optional, and unknown ones are ignored. The name of an event is in its frame; recordings without frames,
and Nova behind InvokeModel, write ``{"contentBlockDelta": {...}}`` instead, so an event may hold events.
"""

from base64 import b64decode, b64encode
from itertools import groupby
from typing import Any, TypedDict

from msgspec import Struct

from bartack.formats.usage import token_count
from bartack.nouns.deltas import Usage
from bartack.nouns.json_values import json_text
from bartack.nouns.parts import Text, ToolContent

__all__ = [
    "SERVER_TOOL",
    "ConverseBlockDelta",
    "ConverseContinuation",
    "ConverseEvent",
    "Reasoning",
    "ToolUse",
    "Wrapped",
    "joined_base64",
    "joined_texts",
    "readable_result",
    "usage_of",
]

SERVER_TOOL = "server_tool_use"


class _KeptCall(TypedDict, total=False):
    name: str


class _KeptBlock(TypedDict, total=False):
    text: str
    toolUse: _KeptCall
    toolResult: dict[str, Any]


class ConverseContinuation(TypedDict, total=False):
    """What a part keeps of its block: the decoder and the reader write it, the encoder reads it."""

    block: _KeptBlock  # a whole block that no part can represent
    cachePoint: Any  # a cache point that follows the part
    callId: str
    citations: Any
    reasoningText: dict[str, Any]  # the fields of reasoning besides its text: the signature, if there is one
    redactedContent: str
    role: str  # "system": a system message between the others
    toolResult: dict[str, Any]  # the raw result of a provider call
    toolUse: dict[str, Any]  # the fields of a call that no part has
    type: str  # the type of a provider call


class _Struct(Struct, rename="camel", gc=False):
    pass


class ToolUse(_Struct):
    tool_use_id: str | None = None
    name: str | None = None
    type: str | None = None
    input: str | None = None


class Reasoning(_Struct):
    text: str | None = None
    signature: str | None = None
    redacted_content: str | None = None  # bytes, in base64


class ConverseBlockDelta(_Struct):
    text: str | None = None
    tool_use: ToolUse | None = None
    reasoning_content: Reasoning | None = None
    citation: dict[str, Any] | None = None
    tool_result: list[dict[str, Any]] | None = None
    image: dict[str, Any] | None = None


class ImageStart(_Struct):
    format: str | None = None


class BlockStart(_Struct):
    tool_use: ToolUse | None = None
    tool_result: dict[str, Any] | None = None
    image: ImageStart | None = None


class ConverseCounts(_Struct):
    input_tokens: float | None = None
    output_tokens: float | None = None
    cache_read_input_tokens: float | None = None
    cache_write_input_tokens: float | None = None
    cache_read_input_token_count: float | None = None  # Nova's name for it behind InvokeModel
    cache_write_input_token_count: float | None = None


class Wrapped(_Struct):
    """An event inside an object that has its name as the only key."""

    message_start: "ConverseEvent | None" = None
    content_block_start: "ConverseEvent | None" = None
    content_block_delta: "ConverseEvent | None" = None
    content_block_stop: "ConverseEvent | None" = None
    message_stop: "ConverseEvent | None" = None
    metadata: "ConverseEvent | None" = None
    internal_server_exception: "ConverseEvent | None" = None
    model_stream_error_exception: "ConverseEvent | None" = None
    model_timeout_exception: "ConverseEvent | None" = None
    service_unavailable_exception: "ConverseEvent | None" = None
    throttling_exception: "ConverseEvent | None" = None
    validation_exception: "ConverseEvent | None" = None


class ConverseEvent(Wrapped):
    content_block_index: int | None = None
    delta: ConverseBlockDelta | None = None
    start: BlockStart | None = None
    stop_reason: str | None = None
    usage: ConverseCounts | None = None
    message: str | None = None
    original_status_code: int | None = None
    original_message: str | None = None


def usage_of(counts: ConverseCounts) -> Usage:
    """The usage in our terms: Bedrock counts cache reads and writes apart from `inputTokens`."""
    cache_read = token_count(counts.cache_read_input_tokens, counts.cache_read_input_token_count)
    cache_write = token_count(counts.cache_write_input_tokens, counts.cache_write_input_token_count)
    return Usage(
        (token_count(counts.input_tokens) or 0) + (cache_read or 0) + (cache_write or 0),
        token_count(counts.output_tokens) or 0,
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
    )


def joined_base64(pieces: list[str]) -> str:
    """The base64 of all the pieces' bytes; a single piece is kept as it is."""
    if len(pieces) == 1:
        return pieces[0]
    try:
        return b64encode(b"".join(b64decode(piece, validate=True) for piece in pieces)).decode()
    except ValueError:  # not base64, or not ASCII
        return "".join(pieces)


def joined_texts(pieces: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The content of a result, consecutive texts joined."""
    content: list[dict[str, Any]] = []
    for is_text, group in groupby(pieces, lambda piece: isinstance(piece.get("text"), str)):
        run = list(group)
        content += [{"text": "".join(piece["text"] for piece in run)}] if is_text else run
    return content


def readable_result(content: list[dict[str, Any]]) -> ToolContent:
    """The content of a provider tool's result: a single object or text as it is, anything else as texts."""
    if len(content) == 1 and isinstance(content[0].get("json"), dict):
        value: dict[str, Any] = content[0]["json"]
        return value
    texts = [_readable(piece) for piece in content]
    return texts[0] if len(texts) == 1 else tuple(Text(text) for text in texts)


def _readable(piece: dict[str, Any]) -> str:
    text = piece.get("text")
    return text if isinstance(text, str) else json_text(piece.get("json", piece))
