"""Exports of Open WebUI: a list of chats, each a tree of messages.

Newer versions store what an answer consists of in `output`, in the form of OpenAI's Responses API. Older ones have it
in the text, in `<details>` elements, which stay there.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.nouns.parts import FileRef, Part, Text, Thinking, ToolCall, ToolResult
from bartack_transcripts.conversations import (
    ChatMessage,
    ChatTree,
    Raw,
    raw_members,
    read_conversations,
    tree_order,
    without,
)
from bartack_transcripts.message_list import one_or_parts
from bartack_transcripts.transcript import START, Files, Transcript
from bartack_transcripts.values import (
    Json,
    object_in,
    objects_in,
    parse_object,
    text_in,
    time_from_ms,
    usage_of,
)

__all__ = ["looks_like_open_webui", "read_open_webui"]

_AGENT = "open-webui"


def looks_like_open_webui(name: str, head: bytes) -> bool:
    """Whether a file begins with a chat that has a history of messages with parents."""
    is_json = name.endswith(".json") and head.lstrip()[:1] in (b"[", b"{")
    return is_json and all(key in head for key in (b'"chat"', b'"history"', b'"childrenIds"', b'"parentId"'))


def read_open_webui(files: Files) -> list[Transcript]:
    """The sessions of an export."""
    return read_conversations(_AGENT, files, _conversation, lambda: _messages_of)


def _conversation(json: Json, raw: Raw) -> ChatTree | None:
    history = object_in(json, "chat", "history")
    messages = object_in(history, "messages")
    listed = raw_members(raw_members(raw_members(raw, "chat"), "history"), "messages")
    if not messages or not isinstance(listed, dict):
        return None
    parents = {id: text_in(message, "parentId") for id, message in messages.items()}
    tree = []
    for id in tree_order(parents, text_in(history, "currentId")):
        if isinstance(messages[id], dict):
            data = without(listed[id], "childrenIds")
            tree.append(ChatMessage(id, data, _time(messages[id].get("timestamp")), parents[id] or START))
    title = text_in(json, "title") or text_in(json, "chat", "title")
    return ChatTree(text_in(json, "id"), title, _time(json.get("created_at")), tree)


def _time(value: Any) -> datetime | None:
    """A time in seconds, or in milliseconds in some versions."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e14
    return time_from_ms(int(value if value > 1e11 else value * 1000)) if is_number else None


def _messages_of(id: str, message: Json) -> tuple[str, Sequence[Message]]:
    role, text = text_in(message, "role") or "no role", text_in(message, "content")
    names = [text_in(file, "name") or text_in(file, "url") for file in objects_in(message, "files")]
    parts: list[Part] = [] if text is None else [Text(text)]
    match role:
        case "user":
            parts += [FileRef(name) for name in names if name is not None]
            return role, [Message("user", tuple(parts))] if parts else []
        case "assistant":
            return role, _answer(id, message, parts)
    return role, []


def _answer(id: str, message: Json, text_parts: list[Part]) -> list[Message]:
    model, usage = text_in(message, "model"), object_in(message, "usage")
    counts = usage_of(
        usage.get("prompt_tokens", usage.get("input_tokens")),
        usage.get("completion_tokens", usage.get("output_tokens")),
        includes_cache=True,
    )
    meta = Meta(model=None if model is None else ModelRef(_AGENT, model), usage=counts)
    messages: list[Message] = []
    parts: list[Part] = []
    for place, item in enumerate(objects_in(message, "output")):
        call = text_in(item, "call_id") or text_in(item, "id") or f"{id}-{place}"
        match item.get("type"):
            case "function_call_output":
                if parts:
                    messages.append(Message("assistant", tuple(parts)))
                    parts = []
                result = ToolResult(call, text_in(item, "output") or one_or_parts(_texts(item, "output")))
                messages.append(Message("tool", (result,)))
            case "function_call":
                parts.append(ToolCall(call, text_in(item, "name") or "tool", _arguments(item)))
            case "reasoning":
                parts += [Thinking(text.text) for text in _texts(item, "content") or _texts(item, "summary")]
            case _:
                parts += _texts(item, "content")
    if parts or not messages:
        parts = parts or text_parts
        messages += [Message("assistant", tuple(parts), meta=meta)] if parts else []
    return messages


def _texts(item: Json, key: str) -> list[Text]:
    return [Text(text) for block in objects_in(item, key) if (text := text_in(block, "text")) is not None]


def _arguments(item: Json) -> Json:
    text = text_in(item, "arguments") or "{}"
    parsed = parse_object(text.encode("utf-8", "replace"))
    return {"input": text} if isinstance(parsed, str) else parsed
