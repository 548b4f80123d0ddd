"""What Cohere and Ollama reject, for `tests.formats.validity.checks`.

Sources: Cohere's reference of `/v2/chat` and its list of errors; Ollama's reference, and its server, which parses a
request into typed structs and refuses what does not fit.
"""

import json
from collections.abc import Iterator
from typing import Any

from tests.formats.validity.rules import Json, is_blank, missing, not_an_address, not_base64, twice

_ROLES = ("system", "user", "assistant", "tool")
_KNOWN = {"role", "content", "tool_calls", "tool_plan", "tool_call_id", "citations"}


def cohere_faults(body: Json) -> Iterator[str]:
    yield from missing(body, ("model", "messages"), "$")
    messages = body.get("messages") or []
    if not messages or messages[-1].get("role") not in ("user", "tool"):
        yield "message must be at least 1 token long or tool results must be specified"
    for place, message in enumerate(messages):
        path = f"$.messages[{place}]"
        if message.get("role") not in _ROLES:
            yield f"{path}.role: {message.get('role')!r}"
        if message.get("role") == "system" and any(earlier.get("role") != "system" for earlier in messages[:place]):
            yield f"{path}: system turn must be the first in the list"
        yield from _cohere_content(message, path)
        for number, call in enumerate(message.get("tool_calls") or []):
            yield from _cohere_call(call, f"{path}.tool_calls[{number}]")
        yield from (f"{path}: unknown key {key!r}" for key in sorted(message.keys() - _KNOWN))
    yield from _pairs(messages, by_id=True)


def _cohere_content(message: Json, path: str) -> Iterator[str]:
    content, calls = message.get("content"), message.get("tool_calls")
    blocks = content if isinstance(content, list) else [{"type": "text"}] if content else []
    if calls and any(block.get("type") == "text" for block in blocks):
        yield f"{path}: text content is not allowed when tool_calls are provided"
    if message.get("role") == "assistant":
        if not content and not calls:
            yield f"{path}: message must not be empty in a turn"
    elif message.get("role") == "tool":
        yield from missing(message, ("tool_call_id", "content"), path)
    elif not content or (isinstance(content, str) and is_blank(content)):
        yield f"{path}: message must not be empty in a turn"
    for place, block in enumerate(content if isinstance(content, list) else []):
        spot = f"{path}.content[{place}]"
        match block.get("type"):
            case "text" | "thinking" as kind:
                if not block.get(kind):
                    yield f"{spot} is empty"
                if kind == "thinking" and message.get("role") != "assistant":
                    yield f"{spot}: thinking is only permitted in assistant messages"
            case "image_url":
                yield from not_an_address((block.get("image_url") or {}).get("url"), spot)
                if message.get("role") != "user":
                    yield f"{spot}: images are only permitted in user messages"
            case "document":
                yield from missing(block, ("document",), spot)
            case kind:
                yield f"{spot}.type: {kind!r}"


def _cohere_call(call: Json, path: str) -> Iterator[str]:
    function = call.get("function")
    yield from missing(call, ("id",), path)
    yield from missing(function, ("name", "arguments"), path)
    if isinstance(function, dict):
        try:
            is_object = isinstance(json.loads(function.get("arguments", "")), dict)
        except ValueError:
            is_object = False
        if not is_object or not function.get("name"):
            yield f"{path}: a function needs a name and JSON arguments"


def _pairs(messages: list[Json], *, by_id: bool) -> Iterator[str]:
    due: list[Any] = []
    call_ids: list[Any] = []
    for place, message in enumerate(messages):
        if message.get("role") == "tool":
            call_id = message.get("tool_call_id") if by_id else (due or [None])[0]
            if call_id not in due:
                yield f"$.messages[{place}]: result without a call"
            else:
                due.remove(call_id)
            continue
        if due:
            yield f"$.messages[{place}]: tool_call_ids did not have response messages: {due}"
        due = [call.get("id") or f"{place}.{number}" for number, call in enumerate(message.get("tool_calls") or [])]
        call_ids += due
    if due:
        yield f"tool_call_ids did not have response messages: {due}"
    yield from twice(call_ids, "tool call ids")


def ollama_faults(body: Json) -> Iterator[str]:
    yield from missing(body, ("model", "messages"), "$")
    messages = body.get("messages") or []
    if not messages:
        yield "$.messages is empty: the model would only be loaded"
    for place, message in enumerate(messages):
        path = f"$.messages[{place}]"
        if message.get("role") not in _ROLES:
            yield f"{path}.role: {message.get('role')!r}"
        if not isinstance(message.get("content", ""), str):
            yield f"{path}.content is not text"
        is_empty = is_blank(message.get("content")) and not message.get("images") and not message.get("tool_calls")
        if is_empty and message.get("role") != "tool":
            yield f"{path} is empty"
        for number, image in enumerate(message.get("images") or []):
            yield from not_base64(image, f"{path}.images[{number}]")
        for number, call in enumerate(message.get("tool_calls") or []):
            function = call.get("function")
            yield from missing(function, ("name", "arguments"), f"{path}.tool_calls[{number}]")
            if not isinstance((function or {}).get("arguments"), dict) or not function.get("name"):
                yield f"{path}.tool_calls[{number}]: a function needs a name and an object of arguments"
    yield from _pairs(messages, by_id=False)
