"""Anthropic's stream events as typed structs, and the parts of their meaning that need only one block.

Every field may be missing or null: servers that imitate the format omit what they do not have.
"""

from typing import Any, NotRequired, TypedDict

import msgspec

from bartack.formats.body_values import text_of
from bartack.formats.usage import token_count
from bartack.nouns.deltas import Usage
from bartack.nouns.parts import Text, ToolContent

__all__ = [
    "AnthropicContinuation",
    "AnthropicCounts",
    "AnthropicEvent",
    "BlockDelta",
    "ErrorBody",
    "MessageBody",
    "readable_result",
    "usage_of",
]


class _Block(TypedDict):
    type: str
    text: NotRequired[str]
    tool_use_id: NotRequired[str]


class _Caller(TypedDict, total=False):
    tool_id: str


class _Container(TypedDict, total=False):
    id: str


class AnthropicContinuation(TypedDict, total=False):
    """What a part keeps of its block: the decoder and the reader write it, the encoder and the writer read it.

    Other fields of a block (cache_control, title, ...) are kept under Anthropic's names.
    """

    block: _Block  # a whole block that no part can represent
    callId: str
    caller: _Caller | str  # Anthropic's field: the code that made a client call
    citations: Any
    container: _Container  # where the provider ran its tools; on the last part of a message
    data: str  # the content of redacted thinking
    result: _Block  # the raw result block of a provider call
    resultOf: str  # on a placeholder part: the id of the provider call whose result block was here
    signature: str
    turn: dict[str, Any]  # the fields of a turn besides its role and content; on its first part
    type: str  # the block's type, where the part alone does not imply it


class ErrorBody(msgspec.Struct, gc=False):
    type: str | None = None
    message: str | None = None


class _OutputDetails(msgspec.Struct, gc=False):
    thinking_tokens: int | None = None


class AnthropicCounts(msgspec.Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens_details: _OutputDetails | None = None
    cache_creation: dict[str, Any] | None = None
    server_tool_use: dict[str, Any] | None = None


class MessageBody(msgspec.Struct, gc=False):
    id: str | None = None
    model: str | None = None
    content: list[dict[str, Any]] | None = None
    stop_reason: str | None = None
    usage: AnthropicCounts | None = None
    container: dict[str, Any] | None = None


class BlockDelta(msgspec.Struct, gc=False):
    type: str | None = None
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    citation: dict[str, Any] | None = None
    stop_reason: str | None = None
    container: dict[str, Any] | None = None


class AnthropicEvent(msgspec.Struct, gc=False):
    type: str | None = None
    index: int | None = None
    delta: BlockDelta | None = None
    content_block: dict[str, Any] | None = None
    message: MessageBody | str | None = None
    usage: AnthropicCounts | None = None
    error: ErrorBody | str | None = None


def usage_of(counts: AnthropicCounts) -> Usage:
    """The usage in our terms: Anthropic counts cache reads and writes apart from `input_tokens`."""
    cache_read, cache_write = (
        token_count(counts.cache_read_input_tokens),
        token_count(counts.cache_creation_input_tokens),
    )
    details = counts.output_tokens_details
    return Usage(
        (token_count(counts.input_tokens) or 0) + (cache_read or 0) + (cache_write or 0),
        token_count(counts.output_tokens) or 0,
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
        reasoning_tokens=None if details is None else token_count(details.thinking_tokens),
        extra=_separately_priced(counts),
    )


def _separately_priced(counts: AnthropicCounts) -> dict[str, Any] | None:
    """Counts with prices of their own: cache writes by lifetime, requests made by the provider's tools."""
    reported = {"cacheCreation": counts.cache_creation, "serverToolUse": counts.server_tool_use}
    groups = {
        name: {key: count for key, count in (group or {}).items() if isinstance(count, int) and count > 0}
        for name, group in reported.items()
    }
    return {name: group for name, group in groups.items() if group} or None


def readable_result(block: dict[str, Any]) -> tuple[ToolContent, bool]:
    """The content of a result block, and whether it is an error.

    Strings that only the provider can decrypt are omitted: they are long, and the raw block is kept beside the result.
    """
    content = _readable(block.get("content"))
    if isinstance(content, dict):
        return content, block.get("is_error") is True or text_of(content, "type").endswith("_error")
    is_error = block.get("is_error") is True
    if isinstance(content, str):
        return content, is_error
    items = content if isinstance(content, list) else []
    if items and all(isinstance(item, dict) and isinstance(item.get("text"), str) for item in items):
        return tuple(Text(item["text"]) for item in items), is_error
    return {"content": items}, is_error


def _readable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _readable(item) for key, item in value.items() if not key.startswith("encrypted_")}
    return [_readable(item) for item in value] if isinstance(value, list) else value
