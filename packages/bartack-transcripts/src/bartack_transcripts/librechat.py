"""Exports of LibreChat: one conversation as JSON, with its messages as a tree or as a list.

A message of an agent contains its calls with their results. Tokens are counted without saying which were of the input.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.nouns.parts import Part, Text, Thinking, ToolCall, ToolResult
from bartack_transcripts.conversations import ChatMessage, ChatTree, Raw, read_conversations, without
from bartack_transcripts.transcript import START, Files, Transcript
from bartack_transcripts.values import Json, object_in, objects_in, parse_object, text_in, time_from_text

__all__ = ["looks_like_librechat", "read_librechat"]

_AGENT = "librechat"
_NO_PARENT = "00000000-0000-0000-0000-000000000000"


def looks_like_librechat(name: str, head: bytes) -> bool:
    """Whether a file begins with a conversation of LibreChat, before or after its first message."""
    is_object = name.endswith(".json") and head.lstrip().startswith(b"{")
    is_conversation = b'"conversationId"' in head and (b'"exportAt"' in head or b'"isCreatedByUser"' in head)
    return is_object and is_conversation and b'"messages' in head


def read_librechat(files: Files) -> list[Transcript]:
    """The session of an export."""
    return read_conversations(_AGENT, files, _conversation, lambda: _messages_of)


def _conversation(json: Json, raw: Raw) -> ChatTree | None:
    listed = raw.get("messagesTree") or raw.get("messages")
    try:
        messages = [] if listed is None else list(_flat(listed, None, 0))
    except (ValueError, RecursionError):
        return None
    if not messages:
        return None
    return ChatTree(text_in(json, "conversationId"), text_in(json, "title"), messages[0].time, messages)


_MAX_DEPTH = 400  # messages below each other; a list has no limit


def _flat(listed: msgspec.Raw, parent: str | None, depth: int) -> Iterator[ChatMessage]:
    """The messages of a tree, each after its parent; those of a list name it."""
    for raw in msgspec.json.decode(listed, type=list[msgspec.Raw]):
        message = parse_object(bytes(raw))
        id = text_in(message, "messageId")
        if isinstance(message, str) or id is None:
            continue
        named = text_in(message, "parentMessageId")
        place = START if named in (None, _NO_PARENT) else parent or named
        yield ChatMessage(id, without(raw, "children"), time_from_text(message.get("createdAt")), place)
        children = msgspec.json.decode(raw, type=dict[str, msgspec.Raw]).get("children")
        if children is not None and depth < _MAX_DEPTH:
            yield from _flat(children, id, depth + 1)


def _messages_of(id: str, message: Json) -> tuple[str, Sequence[Message]]:
    text = text_in(message, "text")
    if message.get("isCreatedByUser") is True:
        return "user", [Message("user", (Text(text),))] if text is not None else []
    endpoint, model = text_in(message, "endpoint"), text_in(message, "model")
    meta = None if model is None else Meta(model=ModelRef(endpoint or _AGENT, model))
    messages: list[Message] = []
    parts: list[Part] = []
    for place, part in enumerate(objects_in(message, "content")):
        call = object_in(part, "tool_call")
        if call:
            own_id = text_in(call, "id") or f"{id}-{place}"
            parts.append(ToolCall(own_id, text_in(call, "name") or "tool", _arguments(call.get("args"))))
            messages.append(Message("assistant", tuple(parts), meta=meta))
            parts = []
            if (output := text_in(call, "output")) is not None:
                messages.append(Message("tool", (ToolResult(own_id, output),)))
        elif (text := text_in(part, "text") or text_in(part, "text", "value")) is not None:
            parts.append(Text(text))
        elif (thought := text_in(part, "think") or text_in(part, "think", "value")) is not None:
            parts.append(Thinking(thought))
    if not messages and not parts and text is not None:
        parts.append(Text(text))
    return "assistant", [*messages, Message("assistant", tuple(parts), meta=meta)] if parts else messages


def _arguments(arguments: Any) -> Json:
    if isinstance(arguments, dict):
        return arguments
    text = arguments if isinstance(arguments, str) else "{}"
    parsed = parse_object((text or "{}").encode("utf-8", "replace"))
    return {"input": text} if isinstance(parsed, str) else parsed
