"""`conversations.json` of a data export of ChatGPT, and single conversations in the same form.

A conversation is a `mapping` of nodes, each with a message, its parent and its children; `current_node` is the end of
the branch that ChatGPT shows. An assistant's message to another recipient than `all` is a call of that tool, and the
next message of the author `tool` on its branch is the result.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.nouns.parts import FileRef, Part, Text, Thinking, ToolCall, ToolResult
from bartack_transcripts.conversations import (
    ChatMessage,
    ChatTree,
    Convert,
    Raw,
    raw_members,
    read_conversations,
    tree_order,
)
from bartack_transcripts.transcript import START, Files, Transcript
from bartack_transcripts.values import Json, object_in, objects_in, parse_object, text_in, texts_in, time_from_ms

__all__ = ["looks_like_chatgpt", "read_chatgpt"]

_AGENT = "chatgpt"
_PROVIDER = "openai"
_EVERYONE = "all"  # the recipient of what is said to the user
_PARTS = ("text", "multimodal_text")


def looks_like_chatgpt(name: str, head: bytes) -> bool:
    """Whether a file begins with a conversation that is a tree of nodes."""
    is_json = name.endswith(".json") and head.lstrip()[:1] in (b"[", b"{")
    return is_json and b'"mapping"' in head and b'"children"' in head and b'"parent"' in head


def read_chatgpt(files: Files) -> list[Transcript]:
    """The sessions of an export."""
    return read_conversations(_AGENT, files, _conversation, _converter)


def _conversation(json: Json, raw: Raw) -> ChatTree | None:
    nodes = object_in(json, "mapping")
    raw_nodes = raw_members(raw, "mapping")
    if not nodes or not isinstance(raw_nodes, dict):
        return None
    messages = []
    for id in tree_order({id: text_in(node, "parent") for id, node in nodes.items()}, text_in(json, "current_node")):
        message = object_in(nodes[id], "message")
        if message:
            data = bytes(raw_members(raw_nodes, id)["message"])
            messages.append(ChatMessage(id, data, _time(message.get("create_time")), _parent(nodes, id)))
    own_id = text_in(json, "conversation_id") or text_in(json, "id")
    return ChatTree(own_id, text_in(json, "title"), _time(json.get("create_time")), messages)


def _parent(nodes: Json, id: str) -> str | int:
    """The nearest node before this one that has a message."""
    visited = {id}
    parent = text_in(nodes[id], "parent")
    while parent in nodes and parent not in visited:
        if object_in(nodes[parent], "message"):
            return parent
        visited.add(parent)
        parent = text_in(nodes[parent], "parent")
    return START


def _time(value: Any) -> datetime | None:
    """A time in seconds since 1970."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e11
    return time_from_ms(int(value * 1000)) if is_number else None


def _converter() -> Convert:
    return _Converter().messages_of


class _Converter:
    def __init__(self) -> None:
        self._calls: list[tuple[str, str]] = []  # the ids and tools of calls without a result

    def messages_of(self, id: str, message: Json) -> tuple[str, Sequence[Message]]:
        role = text_in(message, "author", "role") or "no role"
        content = object_in(message, "content")
        kind = f"{role} {text_in(content, 'content_type') or 'no content'}"
        match role:
            case "user" if content.get("content_type") in _PARTS:
                return kind, _message("user", _parts(content))
            case "assistant":
                return kind, self._answer(id, message, content)
            case "tool":
                return kind, self._result(text_in(message, "author", "name"), content)
        return kind, []

    def _answer(self, id: str, message: Json, content: Json) -> Sequence[Message]:
        recipient = text_in(message, "recipient") or _EVERYONE
        name = text_in(message, "metadata", "model_slug")
        meta = None if name is None else Meta(model=ModelRef(_PROVIDER, name))
        if recipient != _EVERYONE:
            self._calls.append((id, recipient))
            text = text_in(content, "text") or "".join(texts_in(content, "parts"))
            arguments = parse_object(text.encode("utf-8", "replace"))
            call = ToolCall(id, recipient, {"input": text} if isinstance(arguments, str) else arguments)
            return _message("assistant", [call], meta)
        return _message("assistant", _parts(content), meta)

    def _result(self, name: str | None, content: Json) -> Sequence[Message]:
        """The result of the last call of a tool; tools may have names of several parts, such as `dalle.text2im`."""
        call = next(
            (call for call in reversed(self._calls) if name in (None, call[1], call[1].partition(".")[0])), None
        )
        if call is None:
            return []
        self._calls.remove(call)
        parts = [part for part in _parts(content) if isinstance(part, Text | FileRef)]
        is_error = content.get("content_type") == "system_error"
        return _message("tool", [ToolResult(call[0], tuple(parts), is_error=is_error)])


def _message(role: Any, parts: Sequence[Part], meta: Meta | None = None) -> Sequence[Message]:
    return [Message(role, tuple(parts), meta=meta)] if parts else []


def _parts(content: Json) -> list[Part]:
    """What a message says: its text, the files in it by their addresses, and its thoughts."""
    if content.get("content_type") == "thoughts":
        thoughts = (
            text_in(thought, "content") or text_in(thought, "summary") for thought in objects_in(content, "thoughts")
        )
        return [Thinking(text) for text in thoughts if text is not None]
    items = content.get("parts")
    if not isinstance(items, list):
        text = text_in(content, "text") or text_in(content, "result")
        return [] if text is None else [Text(text)]
    parts: list[Part] = []
    for item in items:
        pointer = text_in(item, "asset_pointer")
        text = item if isinstance(item, str) else text_in(item, "text")
        if pointer is not None:
            parts.append(FileRef(pointer))
        elif text:
            parts.append(Text(text))
    return parts
