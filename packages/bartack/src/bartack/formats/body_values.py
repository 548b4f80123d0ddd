"""Values of free-form JSON, in the bodies and events of all formats, read and checked.

Two kinds of functions read a value that may have any type. Those that end in ``_at`` belong to readers of requests:
they raise `PartValidationError` with the path of the value in the body. The others belong to decoders, which never
raise: they return an empty value for what has another type.
"""

from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from bartack.nouns.errors import MissingRequiredField, PartValidationError
from bartack.nouns.json_values import MAX_DEPTH, is_within, json_name, json_text
from bartack.nouns.messages import Message, Role
from bartack.nouns.parts import Continuation, Part

__all__ = [
    "INVALID_JSON",
    "NO_OUTPUT",
    "HistoryReader",
    "Json",
    "beyond",
    "bytes_at",
    "count_leading_system",
    "fields_at",
    "items_at",
    "list_at",
    "message_at",
    "number_at",
    "object_at",
    "object_of",
    "objects_at",
    "optional_text_at",
    "parsed_object",
    "present",
    "shown",
    "text_at",
    "text_of",
    "texts_at",
]

Json = dict[str, Any]

# Where arguments must be an object, those that are not valid JSON are wrapped in one. The key is the one proposed in
# docs.claude.com, "Fine-grained tool streaming".
INVALID_JSON = "INVALID_JSON"
NO_OUTPUT = "(no output)"  # the result of a tool without output, where empty text is refused


def count_leading_system(messages: Sequence[Message]) -> int:
    """The number of system messages before the first other message."""
    return next((index for index, message in enumerate(messages) if message.role != "system"), len(messages))


def present(**fields: Any) -> Json:
    """The fields that have a value, with tuples as lists."""
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in fields.items() if value is not None
    }


def beyond(fields: Mapping[str, Any], *handled: str) -> Json:
    """The fields other than these, which a part or a setting already has."""
    return {name: value for name, value in fields.items() if name not in handled}


def text_of(value: Mapping[str, Any], key: str) -> str:
    """The string under a key of a provider's object; "" for anything else."""
    field = value.get(key)
    return field if isinstance(field, str) else ""


def object_of(value: Mapping[str, Any], key: str) -> Json:
    """The object under a key of free-form JSON; an empty one for anything else."""
    field = value.get(key)
    return field if isinstance(field, dict) else {}


def parsed_object(text: str) -> Json | None:
    """The JSON object in a text, such as the arguments of a call; None if it is not one, or could not be stored."""
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None
    if type(value) is not dict:
        return None
    is_flat = text.count("{") + text.count("[") <= MAX_DEPTH  # counting is much faster than descending
    return value if is_flat or is_within(value, MAX_DEPTH) else None


def shown(value: Any) -> str:
    """A value of a provider's error as text: text as it is, anything else as JSON unless it is deeply nested."""
    if isinstance(value, str):
        return value
    return json_text(value) if is_within(value, MAX_DEPTH) else f"({json_name(value)})"


# -- readers of requests


class HistoryReader:
    """What readers of all formats have: where the continuation data of a part comes from."""

    def __init__(self, provider: str, model_id: str) -> None:
        self.provider = provider
        self.model_id = model_id

    def kept(self, data: Json) -> Continuation | None:
        """The data as continuation data of a part; None if there is none."""
        return Continuation(self.provider, self.model_id, data) if data else None

    def kept_on(self, part: Any, data: Json) -> Any:
        """The part with more continuation data."""
        earlier = {} if part.continuation is None else part.continuation.data
        return replace(part, continuation=self.kept({**earlier, **data}))


def message_at(role: Role, parts: Iterable[Part], path: str) -> Message:
    """A message; `PartValidationError` with the path for a part that its role may not have."""
    try:
        return Message(role, tuple(parts))
    except PartValidationError as error:
        raise error.under(path[1:]) from None


# -- values checked with their path


def object_at(value: Any, path: str) -> Json:
    """The value if it is an object; `PartValidationError` with the path if not."""
    if not isinstance(value, dict):
        raise _wrong_value_error(value, "an object", path)
    return value


def fields_at(value: Any, path: str) -> Json:
    """The fields that an object has; null is the absence of a field. `PartValidationError` for anything else."""
    return {name: field for name, field in object_at(value, path).items() if field is not None}


def list_at(value: Any, path: str) -> list[Any]:
    """The value if it is a list; `PartValidationError` with the path if not."""
    if not isinstance(value, list):
        raise _wrong_value_error(value, "a list", path)
    return value


def items_at(value: Any, path: str) -> Iterator[tuple[Any, str]]:
    """The items of a list, each with its path; `PartValidationError` for anything else."""
    return ((item, f"{path}[{index}]") for index, item in enumerate(list_at(value, path)))


def objects_at(value: Any, path: str) -> Iterator[tuple[Json, str]]:
    """The objects of a list, each with its path; `PartValidationError` for anything else."""
    return ((object_at(item, where), where) for item, where in items_at(value, path))


def text_at(value: Any, path: str) -> str:
    """The value if it is text; `PartValidationError` with the path if not."""
    if not isinstance(value, str):
        raise _wrong_value_error(value, "text", path)
    return value


def optional_text_at(value: Any, path: str) -> str | None:
    """The value if it is text or null; `PartValidationError` with the path if not."""
    return None if value is None else text_at(value, path)


def texts_at(value: Any, path: str) -> tuple[str, ...]:
    """The texts of a list; `PartValidationError` with the path for anything else."""
    return tuple(text_at(item, where) for item, where in items_at(value, path))


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
