"""Anthropic's events as they stand on the wire, typed, and what can be said of one block alone.

Every field may be missing or null: servers that imitate the format leave out what they do not know.
"""

from typing import Any

import msgspec

from bartack.nouns.parts import Text, ToolContent

__all__ = [
    "BlockDelta",
    "Counts",
    "ErrorBody",
    "Event",
    "Kind",
    "MessageBody",
    "OutputDetails",
    "priced_apart",
    "readable_result",
    "text_of",
]


class ErrorBody(msgspec.Struct, gc=False):
    type: str | None = None
    message: str | None = None


class OutputDetails(msgspec.Struct, gc=False):
    thinking_tokens: int | None = None


class Counts(msgspec.Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens_details: OutputDetails | None = None
    cache_creation: dict[str, Any] | None = None
    server_tool_use: dict[str, Any] | None = None


class MessageBody(msgspec.Struct, gc=False):
    id: str | None = None
    model: str | None = None
    content: list[dict[str, Any]] | None = None
    stop_reason: str | None = None
    usage: Counts | None = None
    container: dict[str, Any] | None = None


class BlockDelta(msgspec.Struct, gc=False):
    type: str | None = None
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    citation: dict[str, Any] | None = None
    content: str | None = None
    encrypted_content: str | None = None
    stop_reason: str | None = None
    container: dict[str, Any] | None = None


class Event(msgspec.Struct, gc=False):
    type: str | None = None
    index: int | None = None
    delta: BlockDelta | None = None
    content_block: dict[str, Any] | None = None
    message: MessageBody | str | None = None
    usage: Counts | None = None
    error: ErrorBody | str | None = None


class Kind(msgspec.Struct, gc=False):
    type: str | None = None


def text_of(block: dict[str, Any], key: str) -> str:
    value = block.get(key)
    return value if isinstance(value, str) else ""


def priced_apart(counts: Counts) -> dict[str, Any] | None:
    """The counts that have prices of their own: cache writes by their lifetime, requests of the provider's tools."""
    groups = {"cacheCreation": counts.cache_creation, "serverToolUse": counts.server_tool_use}
    kept = {
        name: {key: count for key, count in (group or {}).items() if isinstance(count, int) and count > 0}
        for name, group in groups.items()
    }
    return {name: group for name, group in kept.items() if group} or None


def readable_result(block: dict[str, Any]) -> tuple[ToolContent, bool]:
    """What a result block says to people, and whether it is an error. Strings that only the provider can read are
    left out: they are long, and the raw block has them."""
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
