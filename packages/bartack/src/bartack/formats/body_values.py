"""Values that the bodies and events of several formats have in common, written, read and checked."""

import hashlib
import re
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from bartack.formats.extra_fields import labelled, own_fields
from bartack.formats.hosted_declarations import HostedRows
from bartack.formats.losses import Losses
from bartack.nouns.config import CacheConfig, ModelConfig, ToolSpec
from bartack.nouns.errors import MissingRequiredField, PartValidationError
from bartack.nouns.json_values import MAX_DEPTH, is_within, json_name, json_text
from bartack.nouns.messages import Message
from bartack.nouns.parts import ToolCall

__all__ = [
    "INVALID_JSON",
    "NO_OUTPUT",
    "breakpoint_for",
    "bytes_at",
    "cache_key",
    "count_leading_system",
    "fits_strict_mode",
    "function_tools",
    "is_sendable_call",
    "list_at",
    "note_settings",
    "note_tool_options",
    "number_at",
    "object_at",
    "object_of",
    "parameters_of",
    "parsed_object",
    "read_function",
    "retention",
    "schema_name",
    "shown",
    "text_at",
    "text_of",
    "texts_at",
    "used_tools",
]

# Where arguments must be an object, those that are not valid JSON are wrapped in one. The key is the one proposed in
# docs.claude.com, "Fine-grained tool streaming".
INVALID_JSON = "INVALID_JSON"
NO_OUTPUT = "(no output)"  # the result of a tool without output, where empty text is refused


def count_leading_system(messages: Sequence[Message]) -> int:
    """The number of system messages before the first other message."""
    return next((index for index, message in enumerate(messages) if message.role != "system"), len(messages))


# -- tools and calls of formats that have only functions


def function_tools(specs: Iterable[ToolSpec], format: str, model_id: str, losses: Losses) -> list[dict[str, Any]]:
    """The tools as OpenAI's chat API declares functions, `extra` fields under the format's name added."""
    tools = []
    for index, spec in enumerate(specs):
        if not spec.is_function:
            declared = HostedRows(format, {}).declared(spec, f"tools[{index}]", model_id, losses)
            tools += [] if declared is None else [declared]
            continue
        note_tool_options(spec, f"tools[{index}]", losses)
        described = {} if spec.description is None else {"description": spec.description}
        function = {"name": spec.name, **described, "parameters": parameters_of(spec)}
        tools.append({"type": "function", "function": {**function, **own_fields(spec, format)}})
    return tools


def note_tool_options(spec: ToolSpec, where: str, losses: Losses, *, defers: bool = False) -> None:
    """Add the options of a function that only some providers have to `losses`."""
    if spec.defer_loading and not defers:
        losses.add(f"{where}.deferLoading", "deferred loading", "not supported by the provider; the tool is declared")
    if spec.input_examples:
        losses.add(f"{where}.inputExamples", "input examples", "not supported by the provider")


def note_settings(config: ModelConfig, losses: Losses, *supported: str) -> None:
    """Add the settings that only some providers have to `losses`, except for those that are supported here."""
    settings = {
        "service_tier": ("config.serviceTier", config.service_tier),
        "verbosity": ("config.verbosity", config.verbosity),
        "ttl": ("config.cacheConfig.ttl", None if config.cache_config is None else config.cache_config.ttl),
    }
    for name, (where, value) in settings.items():
        if value is not None and name not in supported:
            losses.add(where, f"{name} {value!r}", "not supported by the provider")


def read_function(tool: Any, format: str, path: str, *, strict: bool | None = None) -> ToolSpec:
    """A function as `function_tools` declares it. Raises `PartValidationError` for anything else."""
    function = dict(object_at(object_at(tool, path).get("function"), f"{path}.function"))
    name = text_at(function.pop("name", None), f"{path}.function.name")
    schema = object_at(function.pop("parameters", None) or {}, f"{path}.function.parameters")
    description = function.pop("description", None)
    return ToolSpec(
        name,
        schema,
        description=None if description is None else text_at(description, f"{path}.function.description"),
        strict=strict,
        extra=labelled(format, function),
    )


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
    field = value.get(key)
    return field if isinstance(field, str) else ""


def object_of(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The object under a key of free-form JSON; an empty one for anything else."""
    field = value.get(key)
    return field if isinstance(field, dict) else {}


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


def parameters_of(spec: ToolSpec) -> dict[str, Any]:
    """The schema of a tool's arguments, which are an object: "tools.0.custom.input_schema.type: Field required"."""
    schema = spec.parameter_schema
    return schema if "type" in schema else {"type": "object", **(schema or {"properties": {}})}


def shown(value: Any) -> str:
    """A value of a provider's error as text: text as it is, anything else as JSON unless it is deeply nested."""
    if isinstance(value, str):
        return value
    return json_text(value) if is_within(value, MAX_DEPTH) else f"({json_name(value)})"


# -- OpenAI's two formats


def cache_key(beginning: Any) -> str:
    """A `prompt_cache_key` that requests with the same beginning share."""
    return hashlib.sha256(json_text(beginning).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def breakpoint_for(cache: CacheConfig, losses: Losses) -> dict[str, Any]:
    """A breakpoint of the cache as Anthropic marks it."""
    if cache.ttl == "24h":
        losses.add("config.cacheConfig.ttl", "ttl '24h'", "the longest is an hour, which is sent")
    return {"type": "ephemeral", **({} if cache.ttl is None else {"ttl": "5m" if cache.ttl == "5m" else "1h"})}


def retention(cache: CacheConfig, losses: Losses) -> dict[str, Any]:
    """The setting for how long a prompt is cached; some minutes are the default, and a day the only other choice
    (developers.openai.com/api/docs/guides/prompt-caching)."""
    if cache.ttl == "1h":
        losses.add("config.cacheConfig.ttl", "ttl '1h'", "the provider has minutes, which is sent, or a day")
    return {"prompt_cache_retention": "24h"} if cache.ttl == "24h" else {}


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
    inner = [subschema for group in by_name if isinstance(group, dict) for subschema in group.values()]
    inner += [subschema for group in listed if isinstance(group, list) for subschema in group]
    return all(map(fits_strict_mode, [*inner, schema.get("items")]))


# -- values checked with their path


def object_at(value: Any, path: str) -> dict[str, Any]:
    """The value if it is an object; `PartValidationError` with the path if not."""
    if not isinstance(value, dict):
        raise _wrong_value_error(value, "an object", path)
    return value


def list_at(value: Any, path: str) -> list[Any]:
    """The value if it is a list; `PartValidationError` with the path if not."""
    if not isinstance(value, list):
        raise _wrong_value_error(value, "a list", path)
    return value


def text_at(value: Any, path: str) -> str:
    """The value if it is text; `PartValidationError` with the path if not."""
    if not isinstance(value, str):
        raise _wrong_value_error(value, "text", path)
    return value


def texts_at(value: Any, path: str) -> tuple[str, ...]:
    """The texts of a list; `PartValidationError` with the path for anything else."""
    return tuple(text_at(item, f"{path}[{index}]") for index, item in enumerate(list_at(value, path)))


def number_at(value: Any, path: str) -> Any:
    """The value if it is a number; `PartValidationError` with the path if not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong_value_error(value, "a number", path)
    return value


def bytes_at(value: Any, path: str) -> bytes:
    """The bytes of a base64 text; `PartValidationError` with the path for anything else."""
    try:
        return b64decode(text_at(value, path), validate=True)
    except ValueError as error:  # not base64, or not even ASCII
        raise PartValidationError(f"not base64: {error}", path=path) from error


def _wrong_value_error(value: Any, expected: str, path: str) -> PartValidationError:
    if value is None:
        return MissingRequiredField(f"{expected} is missing", path=path)
    return PartValidationError(f"expected {expected}, got {type(value).__name__}", path=path)
