"""What bodies of several formats are made of: JSON as text, extra settings, tools as functions, keys of messages that
we have no word for; and for readers values that are checked where they stand.
"""

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from bartack.formats.losses import Losses
from bartack.nouns.config import ToolSpec
from bartack.nouns.errors import MissingRequiredField, PartValidationError
from bartack.nouns.messages import Message
from bartack.nouns.parts import Continuation, Part

__all__ = [
    "NO_OUTPUT",
    "bytes_at",
    "carrying",
    "function_tool",
    "json_text",
    "list_at",
    "number_at",
    "object_at",
    "objects_at",
    "own_fields",
    "read_function_tool",
    "read_message",
    "text_at",
    "texts_at",
    "used_tools",
    "with_extra",
]

NO_OUTPUT = "(no output)"  # the result of a tool that gave none, where empty text is refused


def json_text(value: Any) -> str:
    """Compact JSON, the same text for the same value."""
    return msgspec.json.encode(value).decode()


def with_extra(body: dict[str, Any], extra: Mapping[str, Any] | None) -> dict[str, Any]:
    """The body with a provider's own settings in it; an object that both have is joined, and the extra key wins."""
    for key, value in (extra or {}).items():
        ours = body.get(key)
        body[key] = {**ours, **value} if isinstance(ours, dict) and isinstance(value, dict) else value
    return body


# -- tools


def function_tool(spec: ToolSpec, format: str) -> dict[str, Any]:
    """A tool in the form that OpenAI's chat API began; `extra` may add to it, under the format's name."""
    function: dict[str, Any] = {"name": spec.name, "description": spec.description, "parameters": spec.parameter_schema}
    if spec.description is None:
        del function["description"]
    return {"type": "function", "function": {**function, **(spec.extra or {}).get(format, {})}}


def read_function_tool(tool: dict[str, Any], path: str, format: str, strict: bool | None = None) -> ToolSpec:
    """The inverse of `function_tool`."""
    function = dict(object_at(tool.get("function"), f"{path}.function"))
    return ToolSpec(
        text_at(function.pop("name", None), f"{path}.function.name"),
        object_at(function.pop("parameters", {}), f"{path}.function.parameters"),
        description=function.pop("description", None),
        strict=strict,
        extra={format: function} if function else None,
    )


# -- keys of a message that we have no word for: they travel in the continuation data of its first part


def own_fields(message: Message, losses: Losses) -> dict[str, Any]:
    """Keys of a message that only its provider knows, if that is the one who is asked."""
    carried = message.parts[0].continuation if message.parts else None
    if carried is None or carried.provider != losses.provider:
        return {}
    fields: dict[str, Any] = carried.data.get("fields", {})
    return fields


def used_tools(message: Message) -> str:
    """What stands for an answer of which nothing can be told: it made calls that another provider executed.

    An empty answer is refused, and one that is left out puts turns side by side that may not be.
    """
    return f"[used {', '.join(call.tool_name for call in message.tool_calls)}]"


def read_message(
    role: str, parts: tuple[Part, ...], fields: dict[str, Any], origin: Continuation, path: str
) -> Message:
    """A message of these parts, the first of which carries the fields; `origin` names the provider and the model."""
    if fields:
        parts = (carrying(parts[0], origin, {"fields": fields}), *parts[1:])
    try:
        return Message(role, parts)  # type: ignore[arg-type]  # it checks the role itself
    except PartValidationError as error:
        raise error.under(path[1:]) from None


def carrying(part: Part, origin: Continuation, data: dict[str, Any]) -> Part:
    """The part with more continuation data."""
    known = {} if part.continuation is None else part.continuation.data
    return replace(part, continuation=replace(origin, data={**known, **data}))


# -- values that are checked where they stand


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


def objects_at(value: Any, path: str) -> list[tuple[dict[str, Any], str]]:
    """The objects of a list, each with its path; `PartValidationError` if it is none, or holds something else."""
    return [(object_at(item, f"{path}[{at}]"), f"{path}[{at}]") for at, item in enumerate(list_at(value, path))]


def text_at(value: Any, path: str) -> str:
    """The value if it is text; `PartValidationError` with the path if not."""
    if not isinstance(value, str):
        raise _wrong(value, "text", path)
    return value


def texts_at(value: Any, path: str) -> tuple[str, ...]:
    """The texts of a list; `PartValidationError` with the path if it is none, or holds something else."""
    return tuple(text_at(item, f"{path}[{index}]") for index, item in enumerate(list_at(value, path)))


def number_at(value: Any, path: str) -> Any:
    """The value if it is a number; `PartValidationError` with the path if not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(value, "a number", path)
    return value


def bytes_at(value: Any, path: str) -> bytes:
    """The bytes that the value holds in base64; `PartValidationError` with the path if it does not."""
    try:
        return b64decode(text_at(value, path), validate=True)
    except ValueError as error:  # no base64, or not even ASCII
        raise PartValidationError(f"not base64: {error}", path=path) from error


def _wrong(value: Any, expected: str, path: str) -> PartValidationError:
    if value is None:
        return MissingRequiredField(f"{expected} is missing", path=path)
    return PartValidationError(f"expected {expected}, got {type(value).__name__}", path=path)
