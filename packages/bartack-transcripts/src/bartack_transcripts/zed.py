"""Threads of Zed's agent: the table `threads` of its database, with one compressed JSON document for each thread.

A message is an object with one key, `User` or `Agent`. The results of an answer's calls are in the same message, and so
are not known before the answer has ended. Models are those of the thread when it was stored.
"""

from base64 import b64decode
from collections.abc import Iterator, Sequence
from functools import partial
from io import BytesIO
from typing import Any

import msgspec

from bartack.app.errors import with_hint
from bartack.app.extras import install_command
from bartack.nouns.errors import BartackError, ErrorCode
from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.nouns.parts import Image, Part, Text, Thinking, ToolCall, ToolResult
from bartack_transcripts.conversations import ChatMessage, ChatTree, RowsByKind, raw_members, read_trees
from bartack_transcripts.message_list import media_of, one_or_parts, result_of
from bartack_transcripts.transcript import START, Files, Rows, Transcript
from bartack_transcripts.values import Json, object_in, parse_object, text_in, time_from_text, value_in

__all__ = ["ZED_TABLES", "looks_like_zed", "read_zed"]

_AGENT = "zed"
_MAX_SIZE = 2**28  # bytes of a thread, decompressed
ZED_TABLES = {"thread": Rows("threads", "updated_at, id")}


def looks_like_zed(name: str, head: bytes) -> bool:
    """Whether a file is a database with threads of Zed on its first pages."""
    return head.startswith(b"SQLite format 3\0") and b"threads" in head and b"data_type" in head


def read_zed(files: Files) -> list[Transcript]:
    """The sessions in a database. Raises `BartackError` if they are compressed and zstandard is not installed."""
    models: dict[str, ModelRef] = {}
    return read_trees(_AGENT, files, partial(_threads, models), lambda: partial(_messages_of, models))


def _threads(models: dict[str, ModelRef], rows: RowsByKind) -> Iterator[ChatTree]:
    for id, row in rows.get("thread", {}).items():
        data = _document(row)
        document = parse_object(data)
        listed = [] if isinstance(document, str) else raw_members(_members(data), "messages")
        updated = time_from_text(row.get("created_at")) or time_from_text(row.get("updated_at"))
        model = text_in(document, "model", "model")
        if model is not None:
            models[id] = ModelRef(text_in(document, "model", "provider") or _AGENT, model)
        messages: list[ChatMessage] = []
        for place, message in enumerate(listed if isinstance(listed, list) else []):
            parent = messages[-1].id if messages else START
            messages.append(ChatMessage(f"{id}/{place}", bytes(message), updated, parent))
        outer = text_in(row, "parent_id")
        metadata = {
            "directory": (text_in(row, "folder_paths") or "").split("\n")[0] or None,
            "parentSession": None if outer is None else f"{_AGENT}:{outer}",
        }
        yield ChatTree(id, text_in(row, "summary"), updated, messages, metadata)


def _members(data: bytes) -> dict[str, msgspec.Raw]:
    try:
        return msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except ValueError:
        return {}


def _document(row: Json) -> bytes:
    """The document of a thread; empty if it cannot be read."""
    text = text_in(row, "data") or ""
    if row.get("data_type") != "zstd":
        return text.encode("utf-8", "replace") if text.lstrip().startswith("{") else _decoded(text)
    try:
        from zstandard import ZstdDecompressor, ZstdError  # noqa: PLC0415 - only for such databases
    except ModuleNotFoundError as error:
        hint = f"Run: {install_command('zstandard')}"
        problem = "The threads of Zed are compressed, and the library zstandard is not installed."
        raise with_hint(BartackError(problem, code=ErrorCode.INVALID_CONFIG, cause=error), hint) from error
    try:
        with ZstdDecompressor().stream_reader(BytesIO(_decoded(text))) as reader:
            return reader.read(_MAX_SIZE)
    except ZstdError:
        return b""


def _decoded(text: str) -> bytes:
    """The bytes of a column, which rows have in base64."""
    try:
        return b64decode(text)
    except ValueError:
        return b""


def _messages_of(models: dict[str, ModelRef], id: str, message: Json) -> tuple[str, Sequence[Message]]:
    kind = next(iter(message), "no kind")
    value = object_in(message, kind)
    parts = [part for place, item in enumerate(_items(value)) if (part := _part(kind, item, f"{id}-{place}"))]
    match kind:
        case "User" if parts:
            return kind, [Message("user", tuple(parts))]
        case "Agent":
            model = models.get(id.rpartition("/")[0])
            meta = None if model is None else Meta(model=model)
            answer = [Message("assistant", tuple(parts), meta=meta)] if parts else []
            results = object_in(value, "tool_results").items()
            return kind, [*answer, *(Message("tool", (_result(call, result),)) for call, result in results)]
    return kind, []


def _items(message: Json) -> list[Any]:
    content = message.get("content")
    return content if isinstance(content, list) else []


def _part(kind: str, item: Any, own_id: str) -> Part | None:
    text = text_in(item, "Text") or text_in(item, "Text", "text") or text_in(item, "Mention", "content")
    if text is not None:
        return Text(text)
    if kind == "Agent" and (thinking := text_in(item, "Thinking", "text")) is not None:
        return Thinking(thinking)
    call = object_in(item, "ToolUse")
    if kind == "Agent" and (name := text_in(call, "name")) is not None:
        return ToolCall(text_in(call, "id") or own_id, name, object_in(call, "input"))
    image = media_of("image/png", base64=text_in(item, "Image", "source"))
    return image if isinstance(image, Image) else None


def _result(call: str, result: Any) -> ToolResult:
    content = value_in(result, "content")
    items = content if isinstance(content, list) else [content]
    texts = [text for item in items if (text := item if isinstance(item, str) else text_in(item, "Text"))]
    is_error = value_in(result, "is_error") is True
    if texts:
        return ToolResult(call, one_or_parts([Text(text) for text in texts]), is_error=is_error)
    return result_of(call, value_in(result, "output"), is_error=is_error)
