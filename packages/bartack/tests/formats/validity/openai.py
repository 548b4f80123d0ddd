"""What Chat Completions and the Responses API reject, for `tests.formats.validity.checks`.

Sources: OpenAI's and the vendors' API references, and their error messages where they are quoted. OpenAI accepts empty
text from a user; others do not ("must not be empty", Moonshot), so it is a fault here.
"""

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from tests.formats.validity.rules import NAME, Json, is_blank, missing, not_an_address, not_base64, not_matching, twice

# According to recordings, these accept results without calls, and calls without results or names.
LENIENT = frozenset(("cerebras", "groq", "openai-compat", "openrouter", "xai", "zai"))
_SPEAKERS = ("system", "developer", "user", "assistant", "tool", "function")
_TEXT_ONLY = frozenset(("deepseek", "cerebras"))
_FILES = frozenset(("application/pdf",))


def chat_faults(body: Json, provider: str) -> Iterator[str]:
    yield from missing(body, ("model", "messages"), "$")
    messages = body.get("messages") or []
    if not messages:
        yield "$.messages: empty array"
    for place, message in enumerate(messages):
        yield from _chat_message(message, f"$.messages[{place}]", provider)
    if provider not in LENIENT:
        yield from _chat_pairs(messages)
    if provider in ("mistral", "perplexity"):
        yield from _strict_order([message.get("role") for message in messages], messages[-1:], provider)
    if provider == "perplexity":
        yield from _alternation([message.get("role") for message in messages])
    if "tools" in body and not body["tools"] and provider not in LENIENT:
        yield "$.tools: empty array"
    if provider not in LENIENT and provider != "mistral" and "parallel_tool_calls" in body and "tools" not in body:
        yield "$.parallel_tool_calls is only allowed when tools are specified"


def _chat_message(message: Json, path: str, provider: str) -> Iterator[str]:
    role, content = message.get("role"), message.get("content")
    if role not in _SPEAKERS:
        yield f"{path}.role: {role!r}"
    if content == [] and not message.get("tool_calls"):
        yield f"{path}.content: empty array"
    if isinstance(content, list) and provider == "deepseek":
        yield f"{path}.content: expected a string"
    if role == "assistant":
        yield from _chat_answer(message, path, provider)
    elif role == "tool" and content is None:
        yield f"{path}.content: expected a string, got null"
    elif role not in ("tool", "function") and (content is None or (isinstance(content, str) and is_blank(content))):
        yield f"{path}.content must not be empty"
    for place, piece in enumerate(content if isinstance(content, list) else []):
        yield from _piece(piece, role, f"{path}.content[{place}]", provider)


def _chat_answer(message: Json, path: str, provider: str) -> Iterator[str]:
    alternatives = ("tool_calls", "function_call", "audio", "refusal")
    if not message.get("content") and not any(message.get(key) for key in alternatives):
        yield f"{path}: an assistant message must have either content or tool_calls"
    if message.get("tool_calls") == [] and provider not in LENIENT and provider != "mistral":
        yield f"{path}.tool_calls: empty array"
    if provider == "deepseek" and message.get("tool_calls") and "reasoning_content" not in message:
        yield f"{path}: reasoning_content must be passed back"
    for place, call in enumerate(message.get("tool_calls") or []):
        yield from _chat_call(call, f"{path}.tool_calls[{place}]", provider)


def _chat_call(call: Json, path: str, provider: str) -> Iterator[str]:
    if provider in LENIENT:
        return
    pattern = r"[a-zA-Z0-9]{9}" if provider == "mistral" else r"(?s).{1,40}"
    yield from not_matching(pattern, call.get("id"), f"{path}.id")
    kind = call.get("type") or "function"
    function = call.get(kind)
    yield from missing(function, ("name", "input" if kind == "custom" else "arguments"), f"{path}.{kind}")
    yield from not_matching(NAME, (function or {}).get("name"), f"{path}.{kind}.name")
    if kind == "function" and provider not in ("", "openai", "openai-chat", "azure"):
        yield from _not_an_object((function or {}).get("arguments"), f"{path}.function.arguments")


def _not_an_object(text: Any, path: str) -> Iterator[str]:
    try:
        if not isinstance(json.loads(text), dict):
            yield f"{path} is not a JSON object"
    except (TypeError, ValueError):
        yield f"{path} is not JSON"


def _piece(piece: Json, role: Any, path: str, provider: str) -> Iterator[str]:
    kind = piece.get("type")
    if kind == "text":
        if not isinstance(piece.get("text"), str):
            yield f"{path}.text is missing"
    elif role not in ("user", "assistant") or (role == "assistant" and kind not in ("refusal", "thinking")):
        yield f"{path}: {kind!r} is not allowed in a message of role {role}"
    elif kind == "image_url":
        if provider in _TEXT_ONLY:
            yield f"{path}: the provider does not accept images"
        picture = piece.get("image_url")
        yield from not_an_address(picture.get("url") if isinstance(picture, dict) else picture, path)
    elif kind == "input_audio":
        sound = piece.get("input_audio") or {}
        yield from not_base64(sound.get("data"), f"{path}.data")
        yield from not_matching("wav|mp3", sound.get("format"), f"{path}.format")
    elif kind == "file":
        file = piece.get("file") or {}
        if "file_id" not in file:
            yield from missing(file, ("filename", "file_data"), path)
            yield from not_an_address(file.get("file_data"), f"{path}.file_data", _FILES)
    elif kind == "thinking":
        yield from missing(piece, ("thinking",), path)
    elif kind not in ("video_url", "document_url", "file_url", "refusal"):
        yield f"{path}.type: {kind!r}"


def _chat_pairs(messages: list[Json]) -> Iterator[str]:
    due: list[Any] = []
    call_ids: list[Any] = []
    for place, message in enumerate(messages):
        if message.get("role") == "tool":
            if message.get("tool_call_id") not in due:
                yield f"$.messages[{place}]: a tool message must respond to a preceding message with tool_calls"
            else:
                due.remove(message["tool_call_id"])
            continue
        if due:
            yield f"$.messages[{place}]: tool_call_ids did not have response messages: {due}"
        due = [call.get("id") for call in message.get("tool_calls") or []]
        call_ids += due
    if due:
        yield f"tool_call_ids did not have response messages: {due}"
    yield from twice(call_ids, "tool call ids")


def _strict_order(roles: list[Any], last: list[Json], provider: str) -> Iterator[str]:
    for before, role in pairwise(roles):
        if before == "tool" and role == "user" and provider != "mistral":
            yield f"Unexpected role {role!r} after role 'tool'"
        if role == "system" and before != "system":
            yield f"Unexpected role 'system' after role {before!r}"
    if roles[-1:] not in (["user"], ["tool"]) and not (last and last[0].get("prefix")):
        yield f"Expected last role User or Tool, but got {roles[-1:]}"


def _alternation(roles: list[Any]) -> Iterator[str]:
    turns = [role for role in roles if role != "system"]
    sides = [(before == "assistant", role == "assistant") for before, role in pairwise(turns) if role != "tool"]
    if any(before == role for before, role in sides) or turns[:1] != ["user"]:
        yield f"user or tool message(s) should alternate with assistant message(s): {roles}"


# -- Responses

_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}
_INPUTS = {
    "user": ("input_text", "input_image", "input_file"),
    "system": ("input_text",),
    "developer": ("input_text",),
    "assistant": ("output_text", "refusal"),
}
_ANSWERS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "computer_call": "computer_call_output",
}
_KNOWN_ELSEWHERE = ("previous_response_id", "conversation", "prompt")


def responses_faults(body: Json, provider: str) -> Iterator[str]:
    yield from missing(body, ("model", "input"), "$")
    items = body.get("input")
    is_elsewhere = any(body.get(key) for key in _KNOWN_ELSEWHERE)
    if not items and not is_elsewhere:
        yield "$.input: one of input, previous_response_id, prompt or conversation must be provided"
    if not isinstance(items, list):
        return
    for place, item in enumerate(items):
        yield from _item(item, f"$.input[{place}]", is_stored=body.get("store") is not False)
        prefix = _PREFIXES.get(_kind(item), "") if provider not in LENIENT else ""
        if item.get("id") is not None:
            yield from not_matching(rf"(?s){prefix}.{{0,{64 - len(prefix)}}}", item["id"], f"$.input[{place}].id")
    yield from twice([item["id"] for item in items if item.get("id")], "Duplicate item found with id")
    if not is_elsewhere:
        yield from _answers(items)
    yield from _after_reasoning(items)
    if "tools" in body and not body["tools"]:
        yield "$.tools: empty array"


def _kind(item: Json) -> str:
    return str(item.get("type") or "message")


def _item(item: Json, path: str, *, is_stored: bool) -> Iterator[str]:
    kind = _kind(item)
    if kind == "message":
        yield from _responses_message(item, path)
    elif kind == "reasoning":
        yield from missing(item, ("summary",), path)
        texts = [entry.get("text") for entry in item.get("content") or []]
        if not is_stored and not item.get("encrypted_content") and not any(texts):
            yield f"{path}: items are not persisted when store is set to false"
    elif kind in ("function_call", "custom_tool_call"):
        yield from missing(item, ("call_id", "name", "input" if kind == "custom_tool_call" else "arguments"), path)
        yield from not_matching(r"(?s).{1,64}", item.get("call_id"), f"{path}.call_id")
        yield from not_matching(NAME, item.get("name"), f"{path}.name")
    elif kind.endswith("_call_output"):
        yield from missing(item, ("call_id", "output"), path)
        output = item.get("output")
        for place, entry in enumerate(output if isinstance(output, list) and kind == "function_call_output" else []):
            yield from _entry(entry, "user", f"{path}.output[{place}]")
        if output == []:
            yield f"{path}.output: empty array"


def _responses_message(item: Json, path: str) -> Iterator[str]:
    role, content = item.get("role"), item.get("content")
    if role not in _INPUTS:
        yield f"{path}.role: {role!r}"
    elif isinstance(content, list):
        if not content:
            yield f"{path}.content: empty array"
        for place, entry in enumerate(content):
            yield from _entry(entry, role, f"{path}.content[{place}]")
    elif is_blank(content):
        yield f"{path}.content must not be empty"


def _entry(entry: Json, role: str, path: str) -> Iterator[str]:
    kind = entry.get("type")
    if kind not in _INPUTS[role]:
        yield f"{path}.type: {kind!r} in a message of role {role}"
    elif kind in ("input_text", "output_text") and not isinstance(entry.get("text"), str):
        yield f"{path}.text is missing"
    elif kind == "input_image" and "file_id" not in entry:
        yield from not_an_address(entry.get("image_url"), f"{path}.image_url")
    elif kind == "input_file":
        if "file_data" in entry:
            yield from missing(entry, ("filename",), path)
            if not str(entry["file_data"]).startswith("data:"):
                yield from not_base64(entry["file_data"], f"{path}.file_data")
            elif str(entry["file_data"]).startswith("data:;") or str(entry["file_data"]).endswith(","):
                yield f"{path}.file_data has no type or no content"
        elif "file_id" not in entry:
            yield from not_an_address(entry.get("file_url"), f"{path}.file_url", frozenset())


def _answers(items: list[Json]) -> Iterator[str]:
    for call, answer in _ANSWERS.items():
        called = [item.get("call_id") for item in items if _kind(item) == call]
        answered = [item.get("call_id") for item in items if _kind(item) == answer]
        yield from twice(called, f"call_id of {call}")
        yield from twice(answered, f"call_id of {answer}")
        if set(called) - set(answered):
            yield f"No tool output found for {call} {sorted(map(str, set(called) - set(answered)))}"
        if set(answered) - set(called):
            yield f"No tool call found for {answer} with call_id {sorted(map(str, set(answered) - set(called)))}"


def _after_reasoning(items: list[Json]) -> Iterator[str]:
    for place, item in enumerate(items):
        following = items[place + 1] if place + 1 < len(items) else {}
        if _kind(item) == "reasoning":
            role = following.get("role", "assistant")
            if not following or role != "assistant" or _kind(following).endswith("_output"):
                yield f"$.input[{place}]: reasoning was provided without its required following item"
