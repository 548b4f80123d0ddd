"""Chats in VS Code: files in `chatSessions`, one for each session.

A file is an object with a list of requests, or, in newer versions, lines that change such an object: its first state,
values that are set or removed, and items that are added to lists. A request is a prompt with its answer: texts, calls
by what was shown of them, and thinking. The record of a request is its JSON at the end.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.nouns.parts import FileRef, Part, Text, Thinking, ToolCall, ToolResult
from bartack_transcripts.conversations import ChatMessage, ChatTree, Raw, raw_members, read_conversations
from bartack_transcripts.transcript import START, Files, Transcript
from bartack_transcripts.values import (
    Json,
    first_objects,
    object_in,
    objects_in,
    parse_object,
    text_in,
    texts_in,
    time_from_ms,
    usage_of,
)

__all__ = ["looks_like_vscode", "read_vscode"]

_AGENT = "vscode"
_PROVIDER = "github-copilot"
_INITIAL, _SET, _PUSH, _DELETE = range(4)  # kinds of lines
_MAX_ITEMS = 1_000_000  # of a list


def looks_like_vscode(name: str, head: bytes) -> bool:
    """Whether a file is a chat, or begins with the first state of one."""
    if name.endswith(".jsonl"):
        first = next(first_objects(head), {})
        return first.get("kind") == _INITIAL and text_in(first, "v", "sessionId") is not None
    is_object = name.endswith(".json") and head.lstrip().startswith(b"{")
    return is_object and b'"requests"' in head and (b'"requesterUsername"' in head or b'"responderUsername"' in head)


def read_vscode(files: Files) -> list[Transcript]:
    """The session in a file."""
    name = next(iter(files), None)
    if name is None:
        return []
    data = files[name]
    if name.endswith(".jsonl"):
        data = msgspec.json.encode(_replayed(data))
    return read_conversations(_AGENT, {name: data}, _conversation, lambda: _messages_of)


def _replayed(data: bytes) -> Json:
    """The object that these lines result in. A line that does not fit is skipped."""
    state: Json = {}
    for line in data.split(b"\n"):
        change = parse_object(line)
        if isinstance(change, str):
            continue
        value, path = change.get("v"), change.get("k")
        if change.get("kind") == _INITIAL:
            state = value if isinstance(value, dict) else state
        elif isinstance(path, list) and path:
            _apply(change.get("kind"), _at(state, path[:-1]), path[-1], value, change.get("i"))
    return state


def _at(value: Any, path: Sequence[Any]) -> Any:
    for key in path:
        is_place = isinstance(value, list) and type(key) is int and 0 <= key < len(value)
        value = value[key] if is_place else value.get(key) if isinstance(value, dict) and isinstance(key, str) else None
    return value


def _apply(kind: Any, parent: Any, key: Any, value: Any, start: Any) -> None:
    if isinstance(parent, dict) and isinstance(key, str):
        if kind == _SET:
            parent[key] = value
        elif kind == _DELETE:
            parent.pop(key, None)
        elif kind == _PUSH:
            _push(parent.setdefault(key, []), value, start)
    elif isinstance(parent, list) and type(key) is int and 0 <= key <= min(len(parent), _MAX_ITEMS):
        if kind == _SET:
            parent[key : key + 1] = [value]
        elif kind == _DELETE:
            del parent[key : key + 1]
        elif kind == _PUSH and key < len(parent):
            _push(parent[key], value, start)


def _push(items: Any, added: Any, start: Any) -> None:
    """Add to a list, after cutting it off at `start`."""
    if isinstance(items, list) and isinstance(added, list):
        if type(start) is int and 0 <= start < len(items):
            del items[start:]
        items += added
    elif isinstance(items, list) and type(start) is int and start >= 0:
        del items[start:]


def _conversation(json: Json, raw: Raw) -> ChatTree | None:
    listed, requests = raw_members(raw, "requests"), json.get("requests")
    if not isinstance(requests, list) or not isinstance(listed, list):
        return None
    messages: list[ChatMessage] = []
    for place, (request, data) in enumerate(zip(requests, listed, strict=True)):
        if isinstance(request, dict):
            id = text_in(request, "requestId") or f"{place}"
            parent = messages[-1].id if messages else START
            messages.append(ChatMessage(id, bytes(data), time_from_ms(request.get("timestamp")), parent))
    created = time_from_ms(json.get("creationDate"))
    return ChatTree(text_in(json, "sessionId"), text_in(json, "customTitle"), created, messages)


def _messages_of(id: str, request: Json) -> tuple[str, Sequence[Message]]:
    prompt = text_in(request, "message", "text") or text_in(request, "message")
    messages = [] if prompt is None else [Message("user", (Text(prompt), *_files(request)))]
    name = text_in(request, "result", "metadata", "resolvedModel") or text_in(request, "modelId")
    model = None if name is None else ModelRef(_PROVIDER, name.removeprefix("copilot/"))
    counts = object_in(request, "result", "metadata")
    meta = Meta(
        model=model, usage=usage_of(counts.get("promptTokens"), counts.get("outputTokens"), includes_cache=True)
    )
    parts: list[Part] = []
    for place, item in enumerate(objects_in(request, "response")):
        if item.get("kind") == "toolInvocationSerialized":
            call = text_in(item, "toolCallId") or f"{id}-{place}"
            parts.append(ToolCall(call, text_in(item, "toolId") or "tool", _arguments(item)))
            messages.append(Message("assistant", tuple(parts), meta=Meta(model=model)))
            parts = []
            output = "\n".join(_output(item))
            if output:
                messages.append(Message("tool", (ToolResult(call, output),)))
        elif (part := _part(item)) is not None:
            last = parts[-1] if parts else None
            if isinstance(part, Text) and isinstance(last, Text):  # an answer has several pieces of text in a row
                parts[-1] = Text(last.text + part.text)
            else:
                parts.append(part)
    return "request", [*messages, Message("assistant", tuple(parts), meta=meta)] if parts else messages


def _files(request: Json) -> Iterator[FileRef]:
    for variable in objects_in(request, "variableData", "variables"):
        if (path := text_in(variable, "value", "fsPath") or text_in(variable, "value", "path")) is not None:
            yield FileRef(path)


def _part(item: Json) -> Part | None:
    value = text_in(item, "value") or text_in(item, "content", "value")
    match item.get("kind"):
        case None | "markdownContent" if value is not None:
            return Text(value)
        case "thinking" if thinking := value or "".join(texts_in(item, "value")):
            return Thinking(thinking)
        case "inlineReference":
            reference = object_in(item, "inlineReference")
            path = text_in(reference, "fsPath") or text_in(reference, "path") or text_in(reference, "name")
            return None if path is None else Text(f"`{path}`")
    return None


def _arguments(item: Json) -> Json:
    """What is known of a call: its input, its command, or what was shown of it."""
    data = object_in(item, "toolSpecificData")
    raw_input = data.get("rawInput") or object_in(item, "resultDetails").get("input")
    if isinstance(raw_input, dict):
        return raw_input
    command = text_in(data, "command") or text_in(data, "commandLine", "original")
    message = _shown(item, "pastTenseMessage") or _shown(item, "invocationMessage")
    inputs = {"command": command, "input": raw_input if isinstance(raw_input, str) else None, "message": message}
    return {key: value for key, value in inputs.items() if value}


def _shown(item: Json, key: str) -> str | None:
    return text_in(item, key) or text_in(item, key, "value")


def _output(item: Json) -> list[str]:
    outputs = objects_in(item, "resultDetails", "output")
    return [text for output in outputs if (text := text_in(output, "value")) and output.get("isText") is not False]
