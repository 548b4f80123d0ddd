"""Values that the bodies and events of several formats have in common, written, read and checked."""

import hashlib
import re
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from bartack.formats.losses import Losses
from bartack.nouns.config import ToolSpec
from bartack.nouns.errors import MissingRequiredField, PartValidationError
from bartack.nouns.json_values import MAX_DEPTH, is_within, json_name, json_text
from bartack.nouns.messages import Message
from bartack.nouns.parts import ToolCall

__all__ = [
    "NO_OUTPUT",
    "bytes_at",
    "cache_key",
    "count_leading_system",
    "fits_strict_mode",
    "function_tools",
    "is_sendable_call",
    "list_at",
    "number_at",
    "object_at",
    "object_of",
    "own_fields",
    "parsed_object",
    "schema_name",
    "shown",
    "text_at",
    "text_of",
    "texts_at",
    "used_tools",
    "with_extra",
]

NO_OUTPUT = "(no output)"  # the result of a tool without output, where empty text is refused


def with_extra(body: dict[str, Any], extra: Mapping[str, Any] | None) -> dict[str, Any]:
    """The body with extra settings added. Objects under the same key are merged; the extra keys win."""
    for key, value in (extra or {}).items():
        ours = body.get(key)
        body[key] = {**ours, **value} if isinstance(ours, dict) and isinstance(value, dict) else value
    return body


def count_leading_system(messages: Sequence[Message]) -> int:
    """The number of system messages before the first other message."""
    return next((index for index, message in enumerate(messages) if message.role != "system"), len(messages))


# -- tools and calls of formats that have only functions


def function_tools(specs: Iterable[ToolSpec], format: str, losses: Losses) -> list[dict[str, Any]]:
    """The tools as OpenAI's chat API declares functions, `extra` fields under the format's name added.

    A tool that a provider executes is left out and added to `losses`.
    """
    tools = []
    for index, spec in enumerate(specs):
        if spec.native is not None:
            losses.add(f"tools[{index}]", "provider tool", "only the provider that offers it can execute it")
            continue
        described = {} if spec.description is None else {"description": spec.description}
        function = {"name": spec.name, **described, "parameters": spec.parameter_schema}
        tools.append({"type": "function", "function": {**function, **own_fields(spec, format)}})
    return tools


def is_sendable_call(call: ToolCall, where: str, losses: Losses) -> bool:
    """Whether a call can be sent as a function call; what is left out of it, or all of it, is added to `losses`."""
    losses.continuation(where, call.continuation)
    if call.executed_by == "provider":
        losses.add(where, f"call of {call.tool_name}", "another provider executed it")
        return False
    if call.raw_args_text is not None:
        losses.add(where, "invalid arguments", "arguments must be a JSON object; an empty one is sent")
    return True


def used_tools(message: Message) -> str:
    """The text of an answer whose only content is calls that another provider executed.

    An empty answer would be refused, and omitting it would put two turns of one role next to each other.
    """
    return f"[used {', '.join(call.tool_name for call in message.tool_calls)}]"


def text_of(value: Mapping[str, Any], key: str) -> str:
    """The string under a key of a provider's object; "" for anything else."""
    found = value.get(key)
    return found if isinstance(found, str) else ""


def object_of(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The object under a key of free-form JSON; an empty one for anything else."""
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def parsed_object(text: str) -> dict[str, Any] | None:
    """The JSON object in a text, such as the arguments of a call; None if it is not one, or could not be stored."""
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None
    if type(value) is not dict:
        return None
    is_flat = text.count("{") + text.count("[") <= MAX_DEPTH  # counting is much faster than descending
    return value if is_flat or is_within(value, MAX_DEPTH) else None


def own_fields(spec: ToolSpec, format: str) -> dict[str, Any]:
    """The fields of a tool that only this format has."""
    return object_of(spec.extra or {}, format)


def shown(value: Any) -> str:
    """A value of a provider's error as text: text as it is, anything else as JSON unless it is deeply nested."""
    if isinstance(value, str):
        return value
    return json_text(value) if is_within(value, MAX_DEPTH) else f"({json_name(value)})"


# -- OpenAI's two formats


def cache_key(beginning: Any) -> str:
    """A `prompt_cache_key` that requests with the same beginning share."""
    return hashlib.sha256(json_text(beginning).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def schema_name(schema: Mapping[str, Any]) -> str:
    """A name for an output schema, made from its title."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", str(schema.get("title") or "output"))[:64]


def _texts_in(value: Any) -> set[str]:
    return {item for item in value if isinstance(item, str)} if isinstance(value, list) else set()


def fits_strict_mode(schema: Any) -> bool:
    """Whether every object in a schema is closed and requires all its properties.

    Strict mode refuses other schemas (platform.openai.com/docs/guides/structured-outputs, "Supported schemas").
    """
    if not isinstance(schema, dict):
        return True
    properties = schema.get("properties")
    if schema.get("type") == "object" or isinstance(properties, dict):
        names = properties if isinstance(properties, dict) else {}
        if schema.get("additionalProperties") is not False or sorted(_texts_in(schema.get("required"))) != sorted(
            names
        ):
            return False
    by_name = [schema.get(key) for key in ("properties", "$defs", "definitions")]
    listed = [schema.get(key) for key in ("anyOf", "oneOf", "allOf", "prefixItems")]
    inner = [one for group in by_name if isinstance(group, dict) for one in group.values()]
    inner += [one for group in listed if isinstance(group, list) for one in group]
    return all(map(fits_strict_mode, [*inner, schema.get("items")]))


# -- values checked with their path


def object_at(value: Any, path: str) -> dict[str, Any]:
    """The value if it is an object; `PartValidationError` with the path if not."""
    if not isinstance(value, dict):
        raise _wrong(value, "an object", path)
    return value


def list_at(value: Any, path: str) -> list[Any]:
    """The value if it is a list; `PartValidationError` with the path if not."""
    if not isinstance(value, list):
        raise _wrong(value, "a list", path)
    return value


def text_at(value: Any, path: str) -> str:
    """The value if it is text; `PartValidationError` with the path if not."""
    if not isinstance(value, str):
        raise _wrong(value, "text", path)
    return value


def texts_at(value: Any, path: str) -> tuple[str, ...]:
    """The texts of a list; `PartValidationError` with the path for anything else."""
    return tuple(text_at(item, f"{path}[{index}]") for index, item in enumerate(list_at(value, path)))


def number_at(value: Any, path: str) -> Any:
    """The value if it is a number; `PartValidationError` with the path if not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(value, "a number", path)
    return value


def bytes_at(value: Any, path: str) -> bytes:
    """The bytes of a base64 text; `PartValidationError` with the path for anything else."""
    try:
        return b64decode(text_at(value, path), validate=True)
    except ValueError as error:  # not base64, or not even ASCII
        raise PartValidationError(f"not base64: {error}", path=path) from error


def _wrong(value: Any, expected: str, path: str) -> PartValidationError:
    if value is None:
        return MissingRequiredField(f"{expected} is missing", path=path)
    return PartValidationError(f"expected {expected}, got {type(value).__name__}", path=path)
