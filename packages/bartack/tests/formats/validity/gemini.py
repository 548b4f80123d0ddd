"""What Gemini's two APIs reject, for `tests.formats.validity.checks`.

Sources: the references of generateContent and of Interactions, the pages on function calling, thought signatures and
file input, and the API's error messages where they are quoted.
"""

import re
from collections.abc import Iterator
from typing import Any

from tests.formats.validity.rules import Json, is_blank, missing, not_base64, not_fetchable, not_matching, twice

_NAME = r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}"
_DATA = ("text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode")
_KINDS = (*_DATA, "codeExecutionResult", "toolCall", "toolResponse")
_TYPES = re.compile(
    r"image/(png|jpeg|webp|heic|heif)|(audio|video)/[^*]+|text/[^*]+"
    r"|application/(pdf|json|rtf|x-javascript|x-typescript|x-python-code)"
)
_FETCHED = ("https://", "http://", "gs://")


def generate_faults(body: Json, model: str) -> Iterator[str]:
    contents = body.get("contents") or []
    if not contents:
        yield "$.contents is not specified"
        return
    if "systemInstruction" in body and not body["systemInstruction"].get("parts"):
        yield "$.systemInstruction has no parts"
    for place, content in enumerate(contents):
        path = f"$.contents[{place}]"
        if content.get("role", "user") not in ("user", "model", "function"):
            yield f"{path}.role: {content.get('role')!r}"
        if not content.get("parts"):
            yield f"{path}.parts must not be empty"
        for number, part in enumerate(content.get("parts") or []):
            yield from _part(part, content.get("role", "user"), f"{path}.parts[{number}]")
    if all(part.keys() == {"text"} and is_blank(part["text"]) for part in contents[-1].get("parts") or []):
        yield "Model input cannot be empty"
    yield from _turns(_joined(contents))
    if re.search(r"gemini-3", model):
        yield from _signatures(contents)
    if "tools" in body and not body["tools"]:
        yield "$.tools is empty"


def _part(part: Json, role: Any, path: str) -> Iterator[str]:
    kinds = [kind for kind in _KINDS if kind in part]
    if len(kinds) != 1:
        yield f"{path}: exactly one of {_KINDS}, got {kinds}"
        return
    value = part[kinds[0]]
    match kinds[0]:
        case "text":
            if not value and "thoughtSignature" not in part:
                yield f"{path}.text is empty"
        case "inlineData":
            yield from not_base64(value.get("data"), f"{path}.data")
            yield from _type(value.get("mimeType"), path)
        case "fileData":
            yield from not_fetchable(value.get("fileUri"), f"{path}.fileUri", _FETCHED)
            if value.get("mimeType") is not None:
                yield from _type(value["mimeType"], path)
        case "functionCall":
            yield from not_matching(_NAME, value.get("name"), f"{path}.name")
            if not isinstance(value.get("args", {}), dict) or role != "model":
                yield f"{path}: a call belongs to the model and its arguments are an object"
        case "functionResponse":
            yield from not_matching(_NAME, value.get("name"), f"{path}.name")
            if not isinstance(value.get("response"), dict) or role == "model":
                yield f"{path}: a response belongs to the user and is an object"
            for number, inner in enumerate(value.get("parts", [])):
                yield from _part(_in_camel_case(inner), role, f"{path}.parts[{number}]")
    if kinds[0] in ("executableCode", "toolCall") and role != "model":
        yield f"{path}: {kinds[0]} is only permitted in model contents"


def _in_camel_case(value: Any) -> Any:
    """The JSON form of protocol buffers may use either case."""
    if not isinstance(value, dict):
        return value
    return {re.sub(r"_(\w)", lambda item: item[1].upper(), key): _in_camel_case(item) for key, item in value.items()}


def _type(mime_type: Any, path: str) -> Iterator[str]:
    if not isinstance(mime_type, str) or _TYPES.fullmatch(mime_type) is None:
        yield f"{path}: Unsupported MIME type: {mime_type}"


def _joined(contents: list[Json]) -> list[Json]:
    """The contents as turns: adjacent contents of the model are one."""
    joined: list[Json] = []
    for content in contents:
        if joined and joined[-1].get("role") == content.get("role") == "model":
            joined[-1] = {"role": "model", "parts": [*joined[-1]["parts"], *content["parts"]]}
        else:
            joined.append(content)
    return joined


def _named(content: Json, kind: str) -> list[tuple[Any, Any]]:
    items = [part[kind] for part in content.get("parts") or [] if kind in part]
    return [(item.get("name"), item.get("id")) for item in items]


def _turns(contents: list[Json]) -> Iterator[str]:
    if contents[0].get("role", "user") != "user":
        yield "the first content should be with role 'user'"
    if contents[-1].get("role") == "model":
        yield "Requests ending with a model turn are not supported"
    for place, (before, content) in enumerate(zip([{}, *contents], contents, strict=False)):
        calls, call_ids = _named(content, "functionCall"), _named(before, "functionCall")
        if calls and before.get("role", "user") == "model":
            yield f"$.contents[{place}]: a function call turn must follow a user turn or a function response turn"
        if _named(content, "functionResponse") != call_ids:
            yield f"$.contents[{place}]: function responses {_named(content, 'functionResponse')} to calls {call_ids}"
        if call_ids and any("functionResponse" not in part for part in content.get("parts") or []):
            yield f"$.contents[{place}]: function responses must be in a separate content"
    if _named(contents[-1], "functionCall"):
        yield "the last function calls have no responses"


def _signatures(contents: list[Json]) -> Iterator[str]:
    """The first call of each step of the current turn has a signature."""
    for place, content in enumerate(contents):
        calls = [part for part in content.get("parts") or [] if "functionCall" in part]
        if calls and not calls[0].get("thoughtSignature"):
            yield f"$.contents[{place}]: Function call is missing a thought_signature"


# -- Interactions


def interactions_faults(body: Json) -> Iterator[str]:
    if ("model" in body) == ("agent" in body):
        yield "$: exactly one of model and agent"
    steps = body.get("input")
    if not steps:
        yield "$.input is empty"
    if not isinstance(steps, list) or any(step.get("type") in ("text", "image") for step in steps):
        return
    for place, step in enumerate(steps):
        yield from _step(step, f"$.input[{place}]")
    calls = [step.get("id") for step in steps if step.get("type") == "function_call"]
    results = [step.get("call_id") for step in steps if step.get("type") == "function_result"]
    yield from twice(calls, "function_call ids")
    if sorted(map(str, calls)) != sorted(map(str, results)) and not body.get("previous_interaction_id"):
        yield f"calls {calls} have results {results}"
    if steps[-1:] and steps[-1].get("type") not in ("user_input", "function_result"):
        yield f"$.input ends with a step of type {steps[-1].get('type')}"
    if steps and steps[0].get("type") not in ("user_input", "function_result"):
        yield f"$.input starts with a step of type {steps[0].get('type')}"


def _step(step: Json, path: str) -> Iterator[str]:
    match step.get("type"):
        case "user_input" | "model_output":
            if not step.get("content"):
                yield f"{path}.content is empty"
            for place, item in enumerate(step.get("content") or []):
                yield from _item(item, f"{path}.content[{place}]")
        case "thought":
            if not step.get("signature") and not step.get("summary"):
                yield f"{path} is empty"
        case "function_call":
            yield from missing(step, ("id", "name", "arguments"), path)
            yield from not_matching(_NAME, step.get("name"), f"{path}.name")
            if not isinstance(step.get("arguments"), dict):
                yield f"{path}.arguments is not an object"
        case "function_result":
            yield from missing(step, ("call_id", "result"), path)
            if "name" in step:
                yield from not_matching(_NAME, step["name"], f"{path}.name")
            for place, item in enumerate(step["result"] if isinstance(step.get("result"), list) else []):
                yield from _item(item, f"{path}.result[{place}]")
        case None:
            yield f"{path}.type is missing"


def _item(item: Json, path: str) -> Iterator[str]:
    if item.get("type") == "text":
        if not item.get("text"):
            yield f"{path}.text is empty"
        return
    if item.get("type") not in ("image", "audio", "video", "document"):
        yield f"{path}.type: {item.get('type')!r}"
    if "mime_type" in item:
        yield from _type(item["mime_type"], path)
    if "data" in item:
        yield from not_base64(item["data"], f"{path}.data")
    else:
        yield from not_fetchable(item.get("uri"), f"{path}.uri", _FETCHED)
