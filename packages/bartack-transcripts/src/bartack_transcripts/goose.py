"""Sessions of Goose: the tables `sessions` and `messages` of its database.

The content of a message is a list of blocks in JSON. Results are in messages of the user. What only the user sees, such
as notices, is not part of the conversation. Usage is in a ledger of requests that names no message, and is not read.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import msgspec

from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.nouns.parts import Image, Part, Text, Thinking, ToolCall, ToolResult
from bartack_transcripts.conversations import ChatMessage, ChatTree, RowsByKind, read_trees
from bartack_transcripts.message_list import media_of, one_or_parts, result_of
from bartack_transcripts.transcript import Files, Rows, Transcript
from bartack_transcripts.values import (
    Json,
    object_in,
    objects_in,
    parse_object,
    text_in,
    time_from_ms,
    time_from_text,
    value_in,
)

__all__ = ["GOOSE_TABLES", "looks_like_goose", "read_goose"]

_AGENT = "goose"
GOOSE_TABLES = {"session": Rows("sessions"), "message": Rows("messages", "created_timestamp, id")}


def looks_like_goose(name: str, head: bytes) -> bool:
    """Whether a file is a database with the messages of Goose on its first pages."""
    return head.startswith(b"SQLite format 3\0") and b"content_json" in head and b"working_dir" in head


def read_goose(files: Files) -> list[Transcript]:
    """The sessions in a database."""
    models: dict[str, ModelRef] = {}  # of sessions: what a message was answered by is not stored with it
    return read_trees(_AGENT, files, partial(_sessions, models), lambda: partial(_messages_of, models))


def _sessions(models: dict[str, ModelRef], rows: RowsByKind) -> Iterator[ChatTree]:
    messages: dict[str, list[ChatMessage]] = {}
    for id, row in rows.get("message", {}).items():
        session_id = text_in(row, "session_id") or ""
        created = row.get("created_timestamp")  # seconds; newer versions store milliseconds
        time = time_from_ms(created * 1000 if isinstance(created, int) and created < 10**11 else created)
        parent = messages[session_id][-1].id if messages.get(session_id) else None
        messages.setdefault(session_id, []).append(ChatMessage(id, msgspec.json.encode(row), time, parent))
    for id, session in rows.get("session", {}).items():
        outer = text_in(session, "parent_session_id")
        metadata = {
            "directory": text_in(session, "working_dir"),
            "parentSession": None if outer is None else f"{_AGENT}:{outer}",
        }
        config = parse_object((text_in(session, "model_config_json") or "").encode("utf-8", "replace"))
        if (name := text_in(config, "model_name")) is not None:
            models[id] = ModelRef(text_in(session, "provider_name") or _AGENT, name)
        yield ChatTree(
            id,
            text_in(session, "description") or text_in(session, "name"),
            time_from_text(session.get("created_at")),
            messages.get(id, []),
            metadata,
        )


def _messages_of(models: dict[str, ModelRef], id: str, row: Json) -> tuple[str, Sequence[Message]]:
    role = text_in(row, "role") or "no role"
    content = parse_object(f'{{"blocks":{text_in(row, "content_json") or "[]"}}}'.encode("utf-8", "replace"))
    metadata = parse_object((text_in(row, "metadata_json") or "").encode("utf-8", "replace"))
    if value_in(metadata, "agentVisible") is False:
        return f"{role}, shown only", []
    parts: list[Part] = []
    results: list[ToolResult] = []
    for place, block in enumerate(objects_in(content, "blocks")):
        if block.get("type") == "toolResponse":
            results.append(_result(text_in(block, "id") or f"{id}-{place}", object_in(block, "toolResult")))
        elif (part := _part(role, block, f"{id}-{place}")) is not None:
            parts.append(part)
    messages = [Message("tool", (result,)) for result in results]
    if parts and role in ("user", "assistant"):
        model = models.get(text_in(row, "session_id") or "") if role == "assistant" else None
        meta = None if model is None else Meta(model=model)
        messages.append(Message("user" if role == "user" else "assistant", tuple(parts), meta=meta))
    return role, messages


def _part(role: str, block: Json, own_id: str) -> Part | None:
    text = text_in(block, "text")
    match block.get("type"):
        case "text" if text is not None:
            return Text(text)
        case "thinking" if role == "assistant" and (thinking := text_in(block, "thinking")) is not None:
            return Thinking(thinking)
        case "toolRequest" if role == "assistant":
            call = object_in(block, "toolCall")
            name = text_in(call, "value", "name")
            arguments = object_in(call, "value", "arguments")
            return None if name is None else ToolCall(text_in(block, "id") or own_id, name, arguments)
        case "image":
            image = media_of(text_in(block, "mimeType"), base64=text_in(block, "data"))
            return image if isinstance(image, Image) else None
    return None


def _result(call: str, result: Json) -> ToolResult:
    if (error := text_in(result, "error")) is not None:
        return ToolResult(call, error, is_error=True)
    value = result.get("value")
    listed = object_in(value).get("content", value) if isinstance(value, dict) else value
    texts = [text_in(item, "text") for item in listed] if isinstance(listed, list) else []
    if not texts:
        return result_of(call, listed)
    is_error = value_in(value, "isError") is True or value_in(value, "is_error") is True
    return ToolResult(call, one_or_parts([Text(text) for text in texts if text is not None]), is_error=is_error)
