"""Nouns to JSON and back, in any dialect; the ledger's dialect is the canonical JSON (000 §3-4).

A `Dialect` is compiled from the type annotations of the nouns, so a noun and its JSON cannot diverge. Dialects differ
in one naming rule and in how they write times. Everything else is the same for all of them:

- A union of kinds is written as ``{"kind": ..., "payload": {...}}``. In a stamped value (`MessageDelta`, `Entry`),
  these two keys are merged with the keys of the stamp. A class with its own ``type``, ``status`` or ``role`` writes it
  as a key of its object instead.
- Unknown keys are kept in `extra` and written back after the known ones. An unknown kind is an error, because its
  meaning is unknown.
- Fields equal to their default are omitted, unless the class lists them in ``always_written``.
- Text must not contain unpaired surrogates, numbers must be finite, and nothing may be nested deeper than `MAX_DEPTH`.

Invalid data raises `PartValidationError` with the path of the value. The path is built while the error propagates, so
reading valid data does not pay for it.
"""

from collections.abc import Callable
from datetime import datetime
from enum import Enum
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, overload

import msgspec
from msgspec import NODEFAULT, Struct
from msgspec.structs import FieldInfo, fields

from bartack.nouns.deltas import Delta
from bartack.nouns.entries import Entry, MessageDeltaBatch
from bartack.nouns.errors import MissingRequiredField, PartValidationError
from bartack.nouns.json_values import (
    MAX_DEPTH,
    SCALARS,
    Convert,
    checked_reader,
    inside,
    json_name,
    json_type_reader,
    mapping_reader,
    mapping_writer,
    misplaced_error,
    object_key,
    plain,
    read_object,
    read_time_ms,
    read_time_text,
    sequence_reader,
    sequence_writer,
    tagged_reader,
    wrapped_reader,
    write_bytes,
    write_time_ms,
    write_time_text,
)
from bartack.nouns.logs import logger
from bartack.nouns.native import DECLINED, NativeCodec
from bartack.nouns.parts import Part

__all__ = ["LEDGER", "MAX_DEPTH", "Dialect", "camel", "decode", "dump", "encode", "load", "none_if_invalid", "try_load"]

T = TypeVar("T")
_log = logger("views")
_INLINE_TAGS = ("type", "status", "role")


def camel(name: str) -> str:
    """``tool_call_id`` -> ``toolCallId``."""
    first, *words = name.split("_")
    return first + "".join(map(str.capitalize, words))


class Dialect:
    """A JSON format for nouns."""

    def __init__(self, *, rename: Callable[[str], str], time: Literal["text", "ms"] = "text") -> None:
        self.rename = rename
        self.time = time
        self._readers: dict[Any, Convert] = {}
        self._writers: dict[Any, Convert] = {}

    @overload
    def load(self, noun: type[T], data: Any) -> T: ...
    @overload
    def load(self, noun: Any, data: Any) -> Any: ...
    def load(self, noun: Any, data: Any) -> Any:
        """Read a noun from JSON as Python values; raises `PartValidationError`."""
        return self.reader(noun)(data)

    def dump(self, value: Any) -> Any:
        """Return `value` as JSON in Python values; parts and deltas include their kind.

        Raises `PartValidationError` for a value that is neither a noun, nor JSON, nor a list of such values.
        """
        cls: Any = type(value)
        if cls in (list, tuple):
            return sequence_writer(self.dump)(value)
        return self.writer(_outer_type(cls))(value)

    def reader(self, tp: Any) -> Convert:
        """The function that reads values of type `tp`."""
        convert = self._readers.get(tp)
        if convert is None:
            self._readers[tp] = convert = self._make_reader(tp)
        return convert

    def writer(self, tp: Any) -> Convert:
        """The function that writes values of type `tp`."""
        convert = self._writers.get(tp)
        if convert is None:
            self._writers[tp] = convert = self._make_writer(tp)
        return convert

    # -- one type

    def _make_reader(self, tp: Any) -> Convert:
        origin, args = get_origin(tp), get_args(tp)
        if tp in SCALARS:
            return SCALARS[tp]
        if tp is datetime:
            return read_time_text if self.time == "text" else read_time_ms
        if origin in (Union, UnionType):
            return self._union_reader(args)
        if origin is tuple:
            return sequence_reader(self.reader(args[0]))
        if origin is dict:
            return read_object if args[1] is Any else mapping_reader(self.reader(args[1]))
        if isinstance(tp, type) and issubclass(tp, Struct):
            return self._struct_reader(tp)
        return checked_reader(tp)  # literals, enums, bytes

    def _make_writer(self, tp: Any) -> Convert:
        origin, args = get_origin(tp), get_args(tp)
        if isinstance(tp, TypeVar):  # a generic class has one, such as the output of a run
            return self.dump
        if tp is datetime:
            return write_time_text if self.time == "text" else write_time_ms
        if tp is bytes:
            return write_bytes
        if origin in (Union, UnionType):
            return self._union_writer(args)
        if origin is tuple:
            return sequence_writer(self.writer(args[0]))
        if origin is dict and args[1] is not Any:
            return mapping_writer(self.writer(args[1]))
        cls = tp if origin is None else origin  # a generic class may be given with its argument
        if isinstance(cls, type) and issubclass(cls, Struct):
            return self._struct_writer(cls)
        return plain

    # -- unions

    def _union_reader(self, members: tuple[Any, ...]) -> Convert:
        kinds = _by_tag(members, "kind")
        if kinds is not None:
            return wrapped_reader({kind: self.reader(cls) for kind, cls in kinds.items()})
        for tag in _INLINE_TAGS:
            inline = _by_tag(tuple(member for member in members if member is not NoneType), tag)
            if inline is not None and len(inline) > 1:
                read = tagged_reader(tag, {name: self.reader(cls) for name, cls in inline.items()})
                return read if len(inline) == len(members) else _or_none(read)
        return json_type_reader([(_json_types(member), self.reader(member)) for member in members])

    def _union_writer(self, members: tuple[Any, ...]) -> Convert:
        kinds = _by_tag(members, "kind")
        if kinds is not None:
            by_class = {cls: self.writer(cls) for cls in kinds.values()}

            def wrap(value: Any) -> Any:
                writer = by_class.get(type(value))
                if writer is None:
                    raise misplaced_error(value)
                try:
                    return {"kind": value.kind, "payload": writer(value)}
                except PartValidationError as error:
                    raise error.under(".payload") from None

            return wrap
        choices = [(_python_types(member), self.writer(member)) for member in members]
        chosen: dict[type[Any], Convert] = {}

        def write(value: Any) -> Any:
            writer = chosen.get(type(value))
            if writer is None:
                writer = next((writer for types, writer in choices if isinstance(value, types)), None)
                if writer is None:
                    raise misplaced_error(value)
                chosen[type(value)] = writer
            return writer(value)

        return write

    # -- structs

    def _struct_reader(self, cls: type[Struct]) -> Convert:
        spliced, tag = _spliced(cls), _inline_tag(cls)
        fields_by_key: dict[str, tuple[str, Convert]] = {}
        required: list[tuple[str, str]] = []
        for field in _fields(cls):
            if field.name == spliced:
                fields_by_key["kind"] = fields_by_key["payload"] = ("", checked_reader(Any))
                continue
            key = self.rename(field.name)
            fields_by_key[key] = (field.name, self.reader(field.type))
            if field.required:
                required.append((field.name, key))
        if tag is not None:
            fields_by_key[tag] = ("", checked_reader(Any))
        read_spliced = self.reader(_field(cls, spliced).type) if spliced else plain

        def read(data: Any) -> Any:
            if type(data) is not dict:
                raise PartValidationError(f"expected an object for {cls.__name__}, got {json_name(data)}")
            values: dict[str, Any] = {}
            extra: dict[str, Any] = {}
            for key, value in data.items():
                field = fields_by_key.get(key)
                if field is None:
                    extra[object_key(key)] = inside(f".{key}", plain, value)
                elif field[0]:
                    try:
                        values[field[0]] = field[1](value)
                    except PartValidationError as error:
                        raise error.under(f".{key}") from None
            if spliced is not None:
                values[spliced] = read_spliced({key: data[key] for key in ("kind", "payload") if key in data})
            for name, key in required:
                if name not in values:
                    raise MissingRequiredField(f"{cls.__name__} requires {key}", path=f"$.{key}")
            if extra:
                values["extra"] = extra
            return cls(**values)

        return read

    def _struct_writer(self, cls: type[Struct]) -> Convert:
        spliced, tag = _spliced(cls), _inline_tag(cls)
        own = _fields(cls)
        defaults = [_default(cls, field) for field in own]
        plan = [
            (f.name == spliced, self.rename(f.name), self.writer(f.type), default not in (None, _NO_DEFAULT))
            for f, default in zip(own, defaults, strict=True)
        ]
        items_of = _items_getter([field.name for field in own])
        head = {} if tag is None else {tag: getattr(cls, tag)}
        defined_keys = {key for is_spliced, key, *_ in plan if not is_spliced} | head.keys()
        defined_keys |= {"kind", "payload"} if spliced else set()

        def write(value: Any) -> dict[str, Any]:
            out = dict(head)
            for item, default, field in zip(items_of(value), defaults, plan, strict=True):
                if item is default:  # true of most fields
                    continue
                is_spliced, key, writer, has_equals = field
                if has_equals and item == default:
                    continue
                try:
                    if is_spliced:
                        out.update(writer(item))
                    else:
                        out[key] = writer(item)
                except PartValidationError as error:
                    raise error if is_spliced else error.under(f".{key}") from None
            extra = getattr(value, "extra", None)
            if extra:
                for key, item in extra.items():
                    if key not in defined_keys:  # a key that this dialect defines is not extra
                        out[object_key(key)] = inside(f".{key}", plain, item)
            return out

        return write


# -- types in Python and in JSON


@cache
def _outer_type(cls: type[Any]) -> Any:
    return next((union for union in (Part, Delta) if issubclass(cls, union)), cls)


def _fields(cls: type[Struct]) -> list[FieldInfo]:
    return [field for field in fields(cls) if field.name != "extra"]


def _field(cls: type[Struct], name: str) -> FieldInfo:
    return next(field for field in fields(cls) if field.name == name)


def _spliced(cls: type[Struct]) -> str | None:
    return getattr(cls, "spliced", None)


def _or_none(read: Convert) -> Convert:
    return lambda value: None if value is None else read(value)


def _items_getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)  # attrgetter of one name returns no tuple


def _default(cls: type[Struct], field: FieldInfo) -> Any:
    always_written = getattr(cls, "always_written", ())
    return _NO_DEFAULT if field.default is NODEFAULT or field.name in always_written else field.default


_NO_DEFAULT = object()


def _by_tag(members: tuple[Any, ...], tag: str) -> dict[str, type[Struct]] | None:
    if all(isinstance(member, type) and isinstance(getattr(member, tag, None), str) for member in members):
        return {getattr(member, tag): member for member in members}
    return None


def _inline_tag(cls: type[Struct]) -> str | None:
    names = {field.name for field in fields(cls)}
    return next((tag for tag in _INLINE_TAGS if hasattr(cls, tag) and tag not in names), None)


def _python_types(tp: Any) -> type[Any] | tuple[type[Any], ...]:
    origin = get_origin(tp)
    if origin is Literal:
        return str
    if isinstance(tp, TypeVar):
        return object
    if tp is float:
        return (int, float)
    return tp if origin is None else origin  # type: ignore[no-any-return]


def _json_types(tp: Any) -> tuple[type[Any], ...]:
    origin = get_origin(tp)
    if origin is Literal or tp in (bytes, datetime) or (isinstance(tp, type) and issubclass(tp, Enum)):
        return (str, int)
    if origin is tuple:
        return (list, tuple)
    if origin is dict or (isinstance(tp, type) and issubclass(tp, Struct)):
        return (dict,)
    return (int, float) if tp is float else (tp,)


# -- the canonical JSON

LEDGER = Dialect(rename=camel)
dump = LEDGER.dump
load = LEDGER.load
_to_text = msgspec.json.Encoder().encode


# What is stored and read by the thousand.
_ENTRIES, _BATCHES = NativeCodec(Entry), NativeCodec(MessageDeltaBatch)


def encode(value: Any) -> bytes:
    """Return `value` as canonical JSON text in UTF-8; raises `PartValidationError` if it is not JSON."""
    cls: Any = type(value)
    try:
        if cls is Entry:
            return _ENTRIES.encode_by_kind[type(value.fact)](value)
        if cls is MessageDeltaBatch:
            return _BATCHES.encode(value)
    except DECLINED:
        pass
    try:
        return _to_text(LEDGER.dump(value))
    except ValueError as error:  # an integer with more digits than Python converts
        raise PartValidationError(f"not JSON: {error}") from None


@overload
def decode(noun: type[T], text: bytes | str) -> T: ...
@overload
def decode(noun: Any, text: bytes | str) -> Any: ...
def decode(noun: Any, text: bytes | str) -> Any:
    """Read a noun from canonical JSON text; raises `PartValidationError`."""
    try:
        if noun is Entry:
            return _ENTRIES.decode(text)
        if noun is MessageDeltaBatch:
            return _BATCHES.decode(text)
    except DECLINED:
        pass
    return LEDGER.load(noun, parse(text))


def parse(text: bytes | str) -> Any:
    """Parse JSON text; raises `PartValidationError`."""
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        raise PartValidationError(f"nested more than {MAX_DEPTH} levels deep") from None
    except ValueError as error:  # msgspec's errors and UnicodeError
        raise PartValidationError(f"not JSON: {error}") from None


def try_load(noun: type[T], data: Any, dialect: Dialect = LEDGER) -> T | None:
    """As `Dialect.load`, but if a field is missing or invalid, log it and return None (003 §6.1, D-7.5)."""
    return none_if_invalid(getattr(noun, "__name__", str(noun)), lambda: dialect.load(noun, data))


def none_if_invalid(name: str, read: Callable[[], T]) -> T | None:
    """What `read` returns; None if a field is missing or invalid. The log names the place, not the value."""
    try:
        return read()
    except MissingRequiredField as error:
        _log.warning("%s is incomplete: nothing at %s.", name, error.path)
    except PartValidationError as error:
        _log.warning("%s is invalid at %s.", name, error.path)
    return None
