"""Readers and writers of single JSON values, from which `bartack.nouns.wire` composes its dialects.

A converter maps one value to another, or raises `PartValidationError` with the path ``$``. A caller that converts a
member of a container prepends the member's path (`inside`). An error ends up with its full path this way, at no cost
for valid data.
"""

import json
import math
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from itertools import chain
from types import NoneType
from typing import Any

import msgspec

from bartack.nouns.errors import ErrorCode, MissingRequiredField, PartValidationError

__all__ = [
    "MAX_DEPTH",
    "SCALARS",
    "Convert",
    "checked_reader",
    "inside",
    "is_within",
    "json_name",
    "json_text",
    "json_type_reader",
    "mapping_reader",
    "mapping_writer",
    "misplaced_error",
    "object_key",
    "plain",
    "read_object",
    "read_time_ms",
    "read_time_text",
    "sequence_reader",
    "sequence_writer",
    "tagged_reader",
    "wrapped_reader",
    "write_bytes",
    "write_time_ms",
    "write_time_text",
]

MAX_DEPTH = 64  # the limit for free-form JSON such as tool arguments; legitimate data is never this deep

Convert = Callable[[Any], Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

_JSON_NAMES: dict[type[Any], str] = {
    str: "text",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    list: "a list",
    tuple: "a list",
    dict: "an object",
    NoneType: "null",
}


def json_name(value: Any) -> str:
    return _JSON_NAMES.get(type(value), type(value).__name__)


def inside(step: str, convert: Convert, value: Any) -> Any:
    try:
        return convert(value)
    except PartValidationError as error:
        raise error.under(step) from None


# -- readers


def _expect(name: str, *types: type[Any]) -> Convert:
    def read(value: Any) -> Any:
        if type(value) not in types:
            raise PartValidationError(f"expected {name}, got {json_name(value)}")
        return value

    return read


def _read_str(value: Any) -> Any:
    if type(value) is not str:
        raise PartValidationError(f"expected text, got {json_name(value)}")
    return _storable(value)


def read_object(value: Any) -> Any:
    if type(value) is not dict:
        raise PartValidationError(f"expected an object, got {json_name(value)}")
    return plain(value)


def _read_float(value: Any) -> Any:
    if type(value) not in (int, float):
        raise PartValidationError(f"expected a number, got {json_name(value)}")
    return _finite(value)


def checked_reader(tp: Any) -> Convert:
    if tp is Any:
        return plain

    def read(value: Any) -> Any:
        try:
            return msgspec.convert(value, tp)
        except ValueError as error:  # msgspec's errors and UnicodeError
            raise PartValidationError(str(error)) from None

    return read


def sequence_reader(read_item: Convert) -> Convert:
    def read(value: Any) -> Any:
        if type(value) not in (list, tuple):
            raise PartValidationError(f"expected a list, got {json_name(value)}")
        items = []
        for item in value:
            try:
                items.append(read_item(item))
            except PartValidationError as error:
                raise error.under(f"[{len(items)}]") from None
        return tuple(items)

    return read


def mapping_reader(read_item: Convert) -> Convert:
    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise PartValidationError(f"expected an object, got {json_name(value)}")
        return {object_key(key): inside(f".{key}", read_item, item) for key, item in value.items()}

    return read


def wrapped_reader(readers: Mapping[str, Convert]) -> Convert:
    def read(data: Any) -> Any:
        if type(data) is not dict:
            raise PartValidationError(f"expected an object with kind and payload, got {json_name(data)}")
        for key in ("kind", "payload"):
            if key not in data:
                raise MissingRequiredField(f"{key} is missing", path=f"$.{key}")
        reader = readers.get(data["kind"]) if type(data["kind"]) is str else None
        if reader is None:
            raise _unknown_name_error("kind", data["kind"], readers)
        if len(data) > 2:  # it could not be kept, and dropping it would be a silent loss
            unexpected = next(key for key in data if key not in ("kind", "payload"))
            raise PartValidationError(f"unexpected key {unexpected!r} beside kind and payload", path=f"$.{unexpected}")
        return inside(".payload", reader, data["payload"])

    return read


def tagged_reader(tag: str, readers: Mapping[str, Convert]) -> Convert:
    def read(data: Any) -> Any:
        if type(data) is not dict:
            raise PartValidationError(f"expected an object with {tag}, got {json_name(data)}")
        if tag not in data:
            raise MissingRequiredField(f"{tag} is missing", path=f"$.{tag}")
        reader = readers.get(data[tag]) if type(data[tag]) is str else None
        if reader is None:
            raise _unknown_name_error(tag, data[tag], readers)
        return reader(data)

    return read


def _unknown_name_error(tag: str, value: Any, readers: Mapping[str, Convert]) -> PartValidationError:
    name = json_name(value) if isinstance(value, dict | list) else repr(value)  # it may be nested without limit
    return PartValidationError(
        f"unknown {tag} {name} (known: {', '.join(readers)})", path=f"$.{tag}", code=ErrorCode.UNKNOWN_KIND
    )


def misplaced_error(value: Any) -> PartValidationError:
    return PartValidationError(f"a value of type {type(value).__name__} is not allowed here")


def json_type_reader(choices: list[tuple[tuple[type[Any], ...], Convert]]) -> Convert:
    by_type = {tp: reader for types, reader in reversed(choices) for tp in types}

    def read(value: Any) -> Any:
        reader = by_type.get(type(value))
        if reader is None:
            names = sorted({_JSON_NAMES[tp] for tp in by_type})
            raise PartValidationError(f"expected {' or '.join(names)}, got {json_name(value)}")
        return reader(value)

    return read


def read_time_text(value: Any) -> Any:
    if type(value) is not str:
        raise PartValidationError(f"expected a time as RFC 3339 text, got {json_name(value)}")
    try:
        time: datetime = msgspec.convert(value, datetime)
    except ValueError:
        raise PartValidationError(f"{value!r} is not an RFC 3339 time") from None
    return _utc(time)


def read_time_ms(value: Any) -> Any:
    if type(value) is not int:
        raise PartValidationError(f"expected a time in whole milliseconds, got {json_name(value)}")
    try:
        return _EPOCH + value * _MILLISECOND
    except OverflowError:
        raise PartValidationError(f"{value} ms is out of range for a time") from None


# -- writers


def sequence_writer(write_item: Convert) -> Convert:
    def write(value: Any) -> Any:
        items: list[Any] = []
        for item in value:
            try:
                items.append(write_item(item))
            except PartValidationError as error:
                raise error.under(f"[{len(items)}]") from None
        return items

    return write


def mapping_writer(write_item: Convert) -> Convert:
    def write(value: Any) -> Any:
        return {object_key(key): inside(f".{key}", write_item, item) for key, item in value.items()}

    return write


def write_bytes(value: Any) -> Any:
    if not isinstance(value, bytes):
        raise misplaced_error(value)
    return b64encode(value).decode()


def write_time_text(value: Any) -> Any:
    return msgspec.to_builtins(_utc(value))


def write_time_ms(value: Any) -> Any:
    return (_utc(value) - _EPOCH) // _MILLISECOND


def json_text(value: Any, *, default: Callable[[Any], Any] | None = None) -> str:
    """Compact JSON text. The same value gives the same text; `default` converts what JSON has no type for.

    Text is written as it is, lone surrogates included: a decoder joins the halves of a character later.
    """
    if default is None:
        return _compact_text(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=default)


_compact_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # `dumps` makes one per call


# -- rules for all JSON


def plain(value: Any, depth: int = MAX_DEPTH) -> Any:
    """A copy of free-form JSON; raises `PartValidationError` for what is not JSON or nested too deeply."""
    kind = type(value)
    if kind is str:  # the most common case by far
        return value if value.isascii() else _storable(value)
    if value is None or kind is int or kind is bool:
        return value
    if (kind is dict or kind is list) and depth > 0:
        return _plain_container(value, depth - 1)
    match value:
        case Enum():
            return value.value
        case str():
            return _storable(str(value))  # a subclass, which the encoder rejects
        case int():
            return int(value)
        case float():
            return _finite(value)
        case dict() | list() | tuple():
            if depth == 0:
                raise PartValidationError(f"nested more than {MAX_DEPTH} levels deep")
            return _plain_container(value, depth - 1)
        case _:
            raise PartValidationError(f"a value of type {kind.__name__} cannot be written as JSON")


def is_within(value: Any, depth: int) -> bool:
    """Whether parsed JSON is nested at most this many levels deep."""
    level = [value] if isinstance(value, _CONTAINERS) else []
    while level:
        if depth <= 0:
            return False
        depth -= 1
        items = chain.from_iterable(outer.values() if isinstance(outer, dict) else outer for outer in level)
        level = [item for item in items if isinstance(item, _CONTAINERS)]
    return True


_CONTAINERS = (dict, list)  # a union of both would be made for every value


def _plain_container(value: Any, depth: int) -> Any:
    """Most values in JSON are ASCII text: without a call for each key and text, a request takes a third of the time."""
    if isinstance(value, dict):
        fields: dict[str, Any] = {}
        for key, item in value.items():
            name = key if type(key) is str and key.isascii() else object_key(key)
            if type(item) is str and item.isascii():
                fields[name] = item
                continue
            try:
                fields[name] = plain(item, depth)
            except PartValidationError as error:
                raise error.under(f".{key}") from None
        return fields
    items: list[Any] = []
    for index, item in enumerate(value):
        if type(item) is str and item.isascii():
            items.append(item)
            continue
        try:
            items.append(plain(item, depth))
        except PartValidationError as error:
            raise error.under(f"[{index}]") from None
    return items


def object_key(key: Any) -> str:
    if type(key) is not str:
        raise PartValidationError(f"object keys must be text, got {json_name(key)}")
    return _storable(key)


def _storable(text: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise PartValidationError(f"unpaired surrogate at character {error.start}") from None
    return text


def _finite(number: float) -> float:
    try:
        finite = math.isfinite(number)
    except OverflowError:
        raise PartValidationError("the number is too large for a float") from None
    if not finite:
        raise PartValidationError(f"{number} is not a JSON number")
    return number


def _utc(time: datetime) -> datetime:
    if not isinstance(time, datetime):
        raise misplaced_error(time)
    if time.tzinfo is None:
        raise PartValidationError(f"{time.isoformat()} has no time zone")
    if time.tzinfo is UTC:
        return time
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise PartValidationError(f"{time.isoformat()} is out of range in UTC") from None


SCALARS: dict[Any, Convert] = {
    Any: plain,
    str: _read_str,
    int: _expect("a whole number", int),
    bool: _expect("a boolean", bool),
    float: _read_float,
    NoneType: _expect("null", NoneType),
}
