"""Chats in Cursor's editor: keys of the database `state.vscdb`.

`composerData:ID` is a chat, and names its messages in order; `bubbleId:ID:MESSAGE` is a message. In earlier versions
the messages are in the chat itself. A call and its result are one message. Texts have no model of their own in most
versions; then the model is that of the chat.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial

import msgspec

from bartack.formats.usage import token_count
from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.nouns.parts import Part, Text, Thinking, ToolCall
from bartack_transcripts.conversations import ChatMessage, ChatTree, RowsByKind, read_trees
from bartack_transcripts.message_list import result_of
from bartack_transcripts.transcript import START, Files, Rows, Transcript
from bartack_transcripts.values import (
    Json,
    object_in,
    objects_in,
    parse_object,
    text_in,
    time_from_ms,
    time_from_text,
    usage_of,
)

__all__ = ["CURSOR_TABLES", "looks_like_cursor_editor", "read_cursor_editor"]

_AGENT = "cursor-editor"
_PROVIDER = "cursor"
_DEFAULT = "default"  # in place of a model that Cursor chooses


def _keys(prefix: str) -> Rows:
    columns = f"substr(t.key, {len(prefix) + 1}) AS id, CAST(t.value AS TEXT) AS value"
    return Rows("cursorDiskKV", "t.key", columns, f"JOIN (SELECT 1) ON t.key GLOB '{prefix}*'")


CURSOR_TABLES = {"chat": _keys("composerData:"), "message": _keys("bubbleId:")}


def looks_like_cursor_editor(name: str, head: bytes) -> bool:
    """Whether a file is the database of an editor with the table of Cursor."""
    return head.startswith(b"SQLite format 3\0") and b"cursorDiskKV" in head


def read_cursor_editor(files: Files) -> list[Transcript]:
    """The sessions in a database."""
    models: dict[str, str] = {}
    return read_trees(_AGENT, files, partial(_chats, models), lambda: partial(_messages_of, models))


def _chats(models: dict[str, str], rows: RowsByKind) -> Iterator[ChatTree]:
    bubbles = {id: _value(row) for id, row in rows.get("message", {}).items()}
    for id, row in rows.get("chat", {}).items():
        chat = _value(row)
        headers = objects_in(chat, "fullConversationHeadersOnly")
        ids = [text_in(header, "bubbleId") or "" for header in headers]
        messages_by_id = [(bubble, bubbles.get(f"{id}:{bubble}", {})) for bubble in ids]
        if not headers:
            inside = objects_in(chat, "conversation")
            messages_by_id = [
                (text_in(bubble, "bubbleId") or f"{place}", bubble) for place, bubble in enumerate(inside)
            ]
        model = text_in(chat, "modelConfig", "modelName")
        if model is not None and model != _DEFAULT:
            models |= {bubble_id: model for bubble_id, _ in messages_by_id}
        messages: list[ChatMessage] = []
        for bubble_id, bubble in messages_by_id:
            if bubble:
                parent = messages[-1].id if messages else START
                messages.append(ChatMessage(bubble_id, msgspec.json.encode(bubble), _time(bubble), parent))
        directory = next(
            (text for _, bubble in messages_by_id if (text := text_in(bubble, "workspaceProjectDir"))), None
        )
        created = time_from_ms(chat.get("createdAt"))
        yield ChatTree(id, text_in(chat, "name"), created, messages, {"directory": directory})


def _value(row: Json) -> Json:
    value = parse_object((text_in(row, "value") or "").encode("utf-8", "replace"))
    return {} if isinstance(value, str) else value


def _time(bubble: Json) -> datetime | None:
    return time_from_text(bubble.get("createdAt")) or time_from_ms(bubble.get("timestamp"))


def _messages_of(models: dict[str, str], id: str, bubble: Json) -> tuple[str, Sequence[Message]]:
    text = text_in(bubble, "text") or text_in(bubble, "rawText")
    match bubble.get("type"):  # numbers
        case 1:
            return "user", [Message("user", (Text(text),))] if text is not None else []
        case 2:
            return "assistant", _answer(id, bubble, text, models.get(id))
    return "no type", []


def _answer(id: str, bubble: Json, text: str | None, chat_model: str | None) -> list[Message]:
    thinking = text_in(bubble, "thinking", "text") or text_in(bubble, "thinking")
    parts: list[Part] = [] if thinking is None else [Thinking(thinking)]
    parts += [] if text is None else [Text(text)]
    tool = object_in(bubble, "toolFormerData")
    name = text_in(tool, "name")
    messages: list[Message] = []
    if name is not None:
        call = text_in(tool, "toolCallId") or id
        parts.append(ToolCall(call, name, _arguments(tool)))
        if (output := tool.get("result")) is not None or tool.get("status") in ("error", "cancelled"):
            is_error = tool.get("status") in ("error", "cancelled")
            messages.append(Message("tool", (result_of(call, output, is_error=is_error),)))
    counts = object_in(bubble, "tokenCount")
    used = usage_of(counts.get("inputTokens"), counts.get("outputTokens"))
    usage = used if used is not None and any(map(token_count, counts.values())) else None  # zeros: not known
    model = text_in(bubble, "modelInfo", "modelName") or text_in(bubble, "modelType") or chat_model
    meta = Meta(model=None if model is None else ModelRef(_PROVIDER, model), usage=usage)
    return [Message("assistant", tuple(parts), meta=meta), *messages] if parts else []


def _arguments(tool: Json) -> Json:
    for key in ("rawArgs", "params"):
        text = text_in(tool, key)
        if text is not None:
            parsed = parse_object(text.encode("utf-8", "replace"))
            return {"input": text} if isinstance(parsed, str) else parsed
    return object_in(tool, "params")
