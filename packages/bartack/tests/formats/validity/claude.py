"""What Anthropic's Messages API rejects, for `tests.formats.validity.checks`.

Sources: the API reference, the pages on extended and adaptive thinking, tool use, vision, PDF and prompt caching, and
the API's error messages where they are quoted.
"""

import re
from collections.abc import Iterator
from typing import Any

from tests.formats.validity.rules import (
    PICTURES,
    Json,
    is_blank,
    missing,
    not_base64,
    not_fetchable,
    not_matching,
    twice,
)

_THINKING = ("thinking", "redacted_thinking")
_ROLES = ("user", "assistant", "system")
_MAX_BREAKPOINTS = 4
_PROVIDER_CALLS = ("server_tool_use", "mcp_tool_use")


def faults(body: Json, model: str) -> Iterator[str]:
    yield from missing(body, ("max_tokens", "messages"), "$")
    if ("model" in body) == ("anthropic_version" in body):
        yield "$.model: exactly one of model and anthropic_version"
    system = body.get("system", [])
    for place, block in enumerate(system if isinstance(system, list) else [{"type": "text", "text": system}]):
        if block.get("type") != "text" or is_blank(block.get("text")):
            yield f"$.system[{place}] is not text"
    messages = _joined(body.get("messages") or [])
    yield from _order(messages, model)
    for place, message in enumerate(messages):
        yield from _message(message, f"$.messages[{place}]")
    yield from _pairs(messages)
    yield from _tools(body)
    yield from _thinking(body, messages)
    if _breakpoints(body) > _MAX_BREAKPOINTS:
        yield "a maximum of 4 blocks with cache_control may be provided"


def _blocks(message: Json) -> list[Json]:
    content = message.get("content")
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _joined(messages: list[Json]) -> list[Json]:
    """The messages as the API sees them: adjacent messages of one role are one turn."""
    joined: list[Json] = []
    for message in messages:
        if joined and joined[-1].get("role") == message.get("role"):
            joined[-1] = {**message, "content": [*_blocks(joined[-1]), *_blocks(message)]}
        else:
            joined.append(message)
    return joined


def continues_answers(model: str) -> bool:
    """Whether it is a Claude before 4.6: claude-sonnet-4-5, claude-opus-4-20250514, claude-3-5-haiku."""
    version = re.search(r"claude-(?:[a-z]+-)?(\d)(?:-(\d)\b)?", model)
    return version is not None and (int(version[1]), int(version[2] or 0)) < (4, 6)


def _order(messages: list[Json], model: str) -> Iterator[str]:
    if not messages:
        yield "$.messages: at least one message is required"
        return
    roles = [message.get("role") for message in messages]
    if roles[0] != "user":
        yield "$.messages: the first message must use the user role"
    for place, role in enumerate(roles):
        if role not in _ROLES:
            yield f"$.messages[{place}].role: {role!r}"
        if role == "system" and not (place and roles[place - 1] == "user" and roles[place + 1 :][:1] != ["user"]):
            yield f"$.messages[{place}]: a system message must follow the user and precede the assistant"
    last = _blocks(messages[-1])[-1:]
    if roles[-1] == "assistant":
        is_paused = any(block.get("type") in _PROVIDER_CALLS for block in _blocks(messages[-1]))
        if "claude" in model and not continues_answers(model) and not is_paused:
            yield "This model does not support assistant message prefill"
        if last and last[0].get("type") == "text" and str(last[0].get("text")) != str(last[0].get("text")).rstrip():
            yield "final assistant content cannot end with trailing whitespace"


def _message(message: Json, path: str) -> Iterator[str]:
    blocks = _blocks(message)
    if not blocks:
        yield f"{path}: all messages must have non-empty content"
    for place, block in enumerate(blocks):
        yield from _block(block, message.get("role"), f"{path}.content[{place}]")
    if message.get("role") == "assistant" and blocks and blocks[-1].get("type") in _THINKING:
        yield f"{path}: the final block in an assistant message cannot be thinking"
    results = [block.get("type") == "tool_result" for block in blocks]
    if results != sorted(results, reverse=True):
        yield f"{path}: tool results must come first in the content"


def _block(block: Json, role: Any, path: str) -> Iterator[str]:
    match block.get("type"):
        case "text":
            if is_blank(block.get("text")):
                yield f"{path}: text content blocks must contain non-whitespace text"
        case "image":
            yield from _source(block, path, PICTURES)
        case "document":
            yield from _source(block, path, frozenset(("application/pdf",)))
            if "title" in block and is_blank(block["title"]):
                yield f"{path}.title is blank"
        case "thinking":
            yield from missing(block, ("thinking", "signature"), path)
        case "redacted_thinking":
            yield from missing(block, ("data",), path)
        case "tool_use" | "server_tool_use" | "mcp_tool_use":
            yield from _call(block, path)
        case "tool_result":
            yield from _result(block, path)
        case None:
            yield f"{path}.type is missing"
    if (block.get("type") in (*_THINKING, "tool_use", *_PROVIDER_CALLS)) and role != "assistant":
        yield f"{path}: {block['type']} blocks are only permitted in assistant messages"
    if block.get("type") in ("image", "document", "tool_result") and role != "user":
        yield f"{path}: {block['type']} blocks are only permitted in user messages"
    if block.get("type") in _THINKING and "cache_control" in block:
        yield f"{path}: thinking cannot have cache_control"


def _source(block: Json, path: str, inline: frozenset[str]) -> Iterator[str]:
    source = block.get("source")
    if not isinstance(source, dict):
        yield f"{path}.source is missing"
        return
    match source.get("type"):
        case "base64":
            if source.get("media_type") not in inline:
                yield f"{path}.source.media_type: {source.get('media_type')!r}"
            yield from not_base64(source.get("data"), f"{path}.source.data")
        case "url":
            yield from not_fetchable(source.get("url"), f"{path}.source.url")
        case "text":
            if source.get("media_type") != "text/plain" or is_blank(source.get("data")):
                yield f"{path}.source is not plain text"
        case "content" | "file":
            pass
        case kind:
            yield f"{path}.source.type: {kind!r}"


def _call(block: Json, path: str) -> Iterator[str]:
    yield from missing(block, ("id", "name", "input"), path)
    yield from not_matching(r"[a-zA-Z0-9_-]+", block.get("id"), f"{path}.id")
    yield from not_matching(r"[a-zA-Z0-9_-]{1,128}", block.get("name"), f"{path}.name")
    if not isinstance(block.get("input"), dict):
        yield f"{path}.input: Input should be a valid dictionary"


def _result(block: Json, path: str) -> Iterator[str]:
    yield from missing(block, ("tool_use_id",), path)
    content = block.get("content", [])
    if isinstance(content, str) and is_blank(content):
        yield f"{path}.content is blank"
    if isinstance(content, list):
        for place, piece in enumerate(content):
            yield from _block(piece, "user", f"{path}.content[{place}]")
            if block.get("is_error") and piece.get("type") != "text":
                yield f"{path}.content[{place}]: all content must be type text if is_error is true"


def _ids(message: Json, kind: str, key: str) -> list[Any]:
    return [block.get(key) for block in _blocks(message) if block.get("type") == kind]


def _pairs(messages: list[Json]) -> Iterator[str]:
    """Client calls are answered in the next message, provider calls in the same message or later."""
    turns = [message for message in messages if message.get("role") != "system"]
    uses = [use for message in turns for use in _ids(message, "tool_use", "id")]
    yield from twice(uses, "tool_use ids must be unique")
    for before, following in zip([{}, *turns], [*turns, {}], strict=True):
        due = _ids(before, "tool_use", "id") if before.get("role") == "assistant" else []
        answered = _ids(following, "tool_result", "tool_use_id") if following.get("role") == "user" else []
        if sorted(map(str, due)) != sorted(map(str, answered)):
            yield f"tool_use ids {due} are answered by {answered}"
    call_ids: list[Any] = []
    answered = []
    for message in turns:
        for block in _blocks(message):
            if block.get("type") in _PROVIDER_CALLS:
                call_ids.append(block.get("id"))
            elif block.get("type") == "tool_use" and (block.get("caller") or {}).get("tool_id", None) not in (
                None,
                *call_ids,
            ):
                yield f"tool_use {block.get('id')!r} has a caller that does not exist"
            elif str(block.get("type")).endswith("_tool_result"):
                if block.get("tool_use_id") not in call_ids:
                    yield f"{block['type']} of {block.get('tool_use_id')!r} has no call before it"
                answered.append(block.get("tool_use_id"))
    yield from twice(call_ids, "server_tool_use ids must be unique")
    last = set(_ids(turns[-1], "server_tool_use", "id") + _ids(turns[-1], "mcp_tool_use", "id")) if turns else set()
    waiting = bool(turns) and bool(_ids(turns[-1], "tool_result", "tool_use_id"))
    open_calls = set(call_ids) - set(answered) - last
    if open_calls and not waiting:
        yield f"server tool uses without a result: {sorted(map(str, open_calls))}"


def _tools(body: Json) -> Iterator[str]:
    tools = body.get("tools", [])
    if "tools" in body and not tools:
        yield "$.tools is empty"
    yield from twice([tool["name"] for tool in tools if "name" in tool], "tools: Tool names must be unique")
    if "tool_choice" in body and not tools and not body.get("mcp_servers"):
        yield "$.tool_choice may only be specified while providing tools"


def _thinking(body: Json, messages: list[Json]) -> Iterator[str]:
    thinking = body.get("thinking") or {}
    if thinking.get("type") == "enabled":
        if not 1024 <= thinking.get("budget_tokens", 0) < body.get("max_tokens", 0):
            yield "$.thinking.budget_tokens must be between 1024 and max_tokens"
        if body.get("tool_choice", {}).get("type") in ("any", "tool"):
            yield "Thinking may not be enabled when tool_choice forces tool use"
        first = first_block_of_turn(messages)
        if first is not None and first.get("type") not in _THINKING:
            yield f"Expected thinking or redacted_thinking, but found {first.get('type')}"
    last = _blocks(messages[-1]) if messages and messages[-1].get("role") == "assistant" else []
    if thinking.get("type") == "disabled" and any(block.get("type") in _THINKING for block in last):
        yield "When thinking is disabled, an assistant message in the final position cannot contain thinking"


def first_block_of_turn(messages: list[Json]) -> Json | None:
    """The first block of the answer to which trailing tool results belong; None if there are none.

    "When thinking is enabled, a final assistant message must start with a thinking block (preceding the lastmost set
    of tool_use and tool_result blocks)." Without interleaved thinking only the first of several calls has one.
    """
    first: Json | None = None
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        kinds = {block.get("type") for block in _blocks(message)}
        if message.get("role") == "assistant" and place + 1 < len(messages):
            first = _blocks(message)[0]
        elif message.get("role") != "user" or "tool_result" not in kinds:
            return first
    return first


def _breakpoints(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(_breakpoints, value))
    if isinstance(value, dict):
        own = "cache_control" in value and "type" in value
        return int(own) + sum(_breakpoints(inner) for key, inner in value.items() if key != "input")
    return 0
