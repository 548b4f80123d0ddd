"""Nouns to JSON and back, in any dialect; the ledger's dialect is the canonical JSON (000 §3-4).

A `Dialect` is compiled from the nouns' own type annotations, so a noun and its JSON cannot drift apart. What
differs between dialects is one naming rule and how a time is written. The rest holds for all of them:

- A union of kinds is written ``{"kind": ..., "payload": {...}}``. Where a stamp surrounds it (`MessageDelta`,
  `Entry`), kind and payload stand among the stamp's own keys. Classes with a ``type``, ``status`` or
  ``role`` of their own carry it inside.
- Keys that are not known are kept in `extra` and written back after the known ones. A kind that is not known is
  refused: nobody could say what it means.
- Fields that hold their default are left out, except those that a class lists as ``always_written``.
- Text must be Unicode that can be stored (no lone surrogates), numbers must be finite, and nothing may be nested
  deeper than `MAX_DEPTH`.

Every refusal is a `PartValidationError` whose path names the place, built up while the error travels outwards, so
that reading good data costs nothing for it.
"""

import math
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, overload

import msgspec
from msgspec import NODEFAULT, Struct
from msgspec.structs import FieldInfo, fields

from weft.deltas import Delta
from weft.errors import ErrorCode, MissingRequiredField, PartValidationError
from weft.parts import Part

__all__ = ["LEDGER", "MAX_DEPTH", "Dialect", "camel", "decode", "dump", "encode", "load"]

MAX_DEPTH = 64  # of free-form JSON (tool arguments and the like): deeper is a bomb, not data

T = TypeVar("T")
Convert = Callable[[Any], Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_INLINE_TAGS = ("type", "status", "role")


def camel(name: str) -> str:
    """``tool_call_id`` -> ``toolCallId``."""
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


class Dialect:
    """One way to write nouns as JSON."""

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
        """The noun that `data` (JSON as Python values) stands for; raises `PartValidationError`."""
        return self.reader(noun)(data)

    def dump(self, value: Any) -> Any:
        """`value` as JSON in Python values. A part or delta is written with its kind around it."""
        return self.writer(_outer_type(value))(value)

    def reader(self, tp: Any) -> Convert:
        """The function that reads a value of type `tp`."""
        found = self._readers.get(tp)
        if found is None:
            self._readers[tp] = found = self._make_reader(tp)
        return found

    def writer(self, tp: Any) -> Convert:
        """The function that writes a value of type `tp`."""
        found = self._writers.get(tp)
        if found is None:
            self._writers[tp] = found = self._make_writer(tp)
        return found

    # -- one type

    def _make_reader(self, tp: Any) -> Convert:
        origin, args = get_origin(tp), get_args(tp)
        if tp in _SCALARS:
            return _SCALARS[tp]
        if tp is datetime:
            return _read_time_text if self.time == "text" else _read_time_ms
        if origin in (Union, UnionType):
            return self._union_reader(args)
        if origin is tuple:
            return _sequence_reader(self.reader(args[0]))
        if origin is dict:
            return _read_object if args[1] is Any else _mapping_reader(self.reader(args[1]))
        if isinstance(tp, type) and issubclass(tp, Struct):
            return self._struct_reader(tp)
        return _checked(tp)  # literals, enums, bytes

    def _make_writer(self, tp: Any) -> Convert:
        origin, args = get_origin(tp), get_args(tp)
        if tp is datetime:
            return _write_time_text if self.time == "text" else _write_time_ms
        if tp is bytes:
            return _write_bytes
        if origin in (Union, UnionType):
            return self._union_writer(args)
        if origin is tuple:
            return _sequence_writer(self.writer(args[0]))
        if origin is dict and args[1] is not Any:
            return _mapping_writer(self.writer(args[1]))
        if isinstance(tp, type) and issubclass(tp, Struct):
            return self._struct_writer(tp)
        return _plain

    # -- unions

    def _union_reader(self, members: tuple[Any, ...]) -> Convert:
        kinds = _by_tag(members, "kind")
        if kinds is not None:
            return _wrapped_reader({kind: self.reader(cls) for kind, cls in kinds.items()})
        for tag in _INLINE_TAGS:
            inline = _by_tag(members, tag)
            if inline is not None:
                return _tagged_reader(tag, {name: self.reader(cls) for name, cls in inline.items()})
        return _json_type_reader([(_json_types(member), self.reader(member)) for member in members])

    def _union_writer(self, members: tuple[Any, ...]) -> Convert:
        kinds = _by_tag(members, "kind")
        if kinds is not None:
            by_class = {cls: self.writer(cls) for cls in kinds.values()}

            def wrap(value: Any) -> Any:
                writer = by_class.get(type(value))
                if writer is None:
                    raise _misplaced(value)
                return {"kind": value.kind, "payload": _inside(".payload", writer, value)}

            return wrap
        choices = [(_python_types(member), self.writer(member)) for member in members]

        def write(value: Any) -> Any:
            for types, writer in choices:
                if isinstance(value, types):
                    return writer(value)
            raise _misplaced(value)

        return write

    # -- structs

    def _struct_reader(self, cls: type[Struct]) -> Convert:
        spliced, tag = _spliced(cls), _inline_tag(cls)
        known: dict[str, tuple[str, Convert]] = {}
        required: list[tuple[str, str]] = []
        for field in _fields(cls):
            if field.name == spliced:
                known["kind"] = known["payload"] = ("", _checked(Any))
                continue
            key = self.rename(field.name)
            known[key] = (field.name, self.reader(field.type))
            if field.required:
                required.append((field.name, key))
        if tag is not None:
            known[tag] = ("", _checked(Any))
        read_spliced = self.reader(_field(cls, spliced).type) if spliced else _plain

        def read(data: Any) -> Any:
            if type(data) is not dict:
                raise PartValidationError(f"expected an object for {cls.__name__}, got {_json_name(data)}")
            values: dict[str, Any] = {}
            extra: dict[str, Any] = {}
            for key, value in data.items():
                field = known.get(key)
                if field is None:
                    extra[_key(key)] = _inside(f".{key}", _plain, value)
                elif field[0]:
                    try:
                        values[field[0]] = field[1](value)
                    except PartValidationError as error:
                        raise error.under(f".{key}") from None
            if spliced is not None:
                values[spliced] = read_spliced({key: data[key] for key in ("kind", "payload") if key in data})
            for name, key in required:
                if name not in values:
                    raise MissingRequiredField(f"{cls.__name__} needs {key}", path=f"$.{key}")
            if extra:
                values["extra"] = extra
            return cls(**values)

        return read

    def _struct_writer(self, cls: type[Struct]) -> Convert:
        spliced, tag = _spliced(cls), _inline_tag(cls)
        plan = [(f.name, self.rename(f.name), self.writer(f.type), _default(cls, f)) for f in _fields(cls)]
        head = {} if tag is None else {tag: getattr(cls, tag)}
        taken = {key for name, key, _, _ in plan if name != spliced} | head.keys()
        taken |= {"kind", "payload"} if spliced else set()

        def write(value: Any) -> dict[str, Any]:
            out = dict(head)
            for name, key, writer, default in plan:
                item = getattr(value, name)
                if item is default or item == default:
                    continue
                try:
                    if name == spliced:
                        out.update(writer(item))
                    else:
                        out[key] = writer(item)
                except PartValidationError as error:
                    raise error if name == spliced else error.under(f".{key}") from None
            extra = getattr(value, "extra", None)
            if extra:
                for key, item in extra.items():
                    if key not in taken:  # a key that this dialect knows is not an extra one
                        out[_key(key)] = _inside(f".{key}", _plain, item)
            return out

        return write


# -- how a type looks in Python and in JSON


def _outer_type(value: Any) -> Any:
    for union in (Part, Delta):
        if isinstance(value, union):
            return union
    return type(value)


def _fields(cls: type[Struct]) -> list[FieldInfo]:
    return [field for field in fields(cls) if field.name != "extra"]


def _field(cls: type[Struct], name: str) -> FieldInfo:
    return next(field for field in fields(cls) if field.name == name)


def _spliced(cls: type[Struct]) -> str | None:
    return getattr(cls, "spliced", None)


def _default(cls: type[Struct], field: FieldInfo) -> Any:
    written = getattr(cls, "always_written", ())
    return _NO_DEFAULT if field.default is NODEFAULT or field.name in written else field.default


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


def _json_name(value: Any) -> str:
    return _JSON_NAMES.get(type(value), type(value).__name__)


def _inside(step: str, convert: Convert, value: Any) -> Any:
    try:
        return convert(value)
    except PartValidationError as error:
        raise error.under(step) from None


# -- readers


def _expect(name: str, *types: type[Any]) -> Convert:
    def read(value: Any) -> Any:
        if type(value) not in types:
            raise PartValidationError(f"expected {name}, got {_json_name(value)}")
        return value

    return read


def _read_str(value: Any) -> Any:
    if type(value) is not str:
        raise PartValidationError(f"expected text, got {_json_name(value)}")
    return _storable(value)


def _read_object(value: Any) -> Any:
    if type(value) is not dict:
        raise PartValidationError(f"expected an object, got {_json_name(value)}")
    return _plain(value)


def _read_float(value: Any) -> Any:
    if type(value) not in (int, float):
        raise PartValidationError(f"expected a number, got {_json_name(value)}")
    return _finite(value)


def _checked(tp: Any) -> Convert:
    if tp is Any:
        return _plain

    def read(value: Any) -> Any:
        try:
            return msgspec.convert(value, tp)
        except ValueError as error:  # msgspec's errors and Unicode's alike
            raise PartValidationError(str(error)) from None

    return read


def _sequence_reader(read_item: Convert) -> Convert:
    def read(value: Any) -> Any:
        if type(value) not in (list, tuple):
            raise PartValidationError(f"expected a list, got {_json_name(value)}")
        items = []
        for item in value:
            try:
                items.append(read_item(item))
            except PartValidationError as error:
                raise error.under(f"[{len(items)}]") from None
        return tuple(items)

    return read


def _mapping_reader(read_item: Convert) -> Convert:
    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise PartValidationError(f"expected an object, got {_json_name(value)}")
        return {_key(key): _inside(f".{key}", read_item, item) for key, item in value.items()}

    return read


def _wrapped_reader(readers: Mapping[str, Convert]) -> Convert:
    def read(data: Any) -> Any:
        if type(data) is not dict:
            raise PartValidationError(f"expected an object with kind and payload, got {_json_name(data)}")
        for key in ("kind", "payload"):
            if key not in data:
                raise MissingRequiredField(f"{key} is missing", path=f"$.{key}")
        reader = readers.get(data["kind"]) if type(data["kind"]) is str else None
        if reader is None:
            raise _unknown("kind", data["kind"], readers)
        if len(data) > 2:  # there is no place to keep it, and dropping it would be a loss that nobody sees
            other = next(key for key in data if key not in ("kind", "payload"))
            raise PartValidationError(f"nothing but kind and payload stands here, not {other!r}", path=f"$.{other}")
        return _inside(".payload", reader, data["payload"])

    return read


def _tagged_reader(tag: str, readers: Mapping[str, Convert]) -> Convert:
    def read(data: Any) -> Any:
        if type(data) is not dict:
            raise PartValidationError(f"expected an object with {tag}, got {_json_name(data)}")
        if tag not in data:
            raise MissingRequiredField(f"{tag} is missing", path=f"$.{tag}")
        reader = readers.get(data[tag]) if type(data[tag]) is str else None
        if reader is None:
            raise _unknown(tag, data[tag], readers)
        return reader(data)

    return read


def _unknown(tag: str, value: Any, readers: Mapping[str, Convert]) -> PartValidationError:
    return PartValidationError(
        f"{value!r} is not a known {tag} ({', '.join(readers)})", path=f"$.{tag}", code=ErrorCode.UNKNOWN_KIND
    )


def _misplaced(value: Any) -> PartValidationError:
    return PartValidationError(f"a {type(value).__name__} may not stand here")


def _json_type_reader(choices: list[tuple[tuple[type[Any], ...], Convert]]) -> Convert:
    by_type = {tp: reader for types, reader in reversed(choices) for tp in types}

    def read(value: Any) -> Any:
        reader = by_type.get(type(value))
        if reader is None:
            names = sorted({_JSON_NAMES[tp] for tp in by_type})
            raise PartValidationError(f"expected {' or '.join(names)}, got {_json_name(value)}")
        return reader(value)

    return read


def _read_time_text(value: Any) -> Any:
    if type(value) is not str:
        raise PartValidationError(f"expected a time as RFC 3339 text, got {_json_name(value)}")
    try:
        time: datetime = msgspec.convert(value, datetime)
    except ValueError:
        raise PartValidationError(f"{value!r} is not a time in RFC 3339") from None
    return _utc(time)


def _read_time_ms(value: Any) -> Any:
    if type(value) is not int:
        raise PartValidationError(f"expected a time in whole milliseconds, got {_json_name(value)}")
    try:
        return _EPOCH + value * _MILLISECOND
    except OverflowError:
        raise PartValidationError(f"{value} ms is not a time") from None


# -- writers


def _sequence_writer(write_item: Convert) -> Convert:
    def write(value: Any) -> Any:
        return [_inside(f"[{index}]", write_item, item) for index, item in enumerate(value)]

    return write


def _mapping_writer(write_item: Convert) -> Convert:
    def write(value: Any) -> Any:
        return {_key(key): _inside(f".{key}", write_item, item) for key, item in value.items()}

    return write


def _write_bytes(value: Any) -> Any:
    if not isinstance(value, bytes):
        raise _misplaced(value)
    return b64encode(value).decode()


def _write_time_text(value: Any) -> Any:
    return _utc(value).isoformat().replace("+00:00", "Z")


def _write_time_ms(value: Any) -> Any:
    return (_utc(value) - _EPOCH) // _MILLISECOND


# -- what any JSON must keep to


def _plain(value: Any, depth: int = MAX_DEPTH) -> Any:
    """Free-form JSON, copied, with the rules that hold for all JSON checked."""
    match value:
        case Enum():
            return value.value
        case str():
            return _storable(value)
        case None | bool() | int():
            return value
        case float():
            return _finite(value)
        case dict() | list() | tuple():
            if depth == 0:
                raise PartValidationError(f"nested deeper than {MAX_DEPTH}")
            return _plain_container(value, lambda item: _plain(item, depth - 1))
        case _:
            raise PartValidationError(f"a {type(value).__name__} is not JSON")


def _plain_container(value: Any, convert: Convert) -> Any:
    if isinstance(value, dict):
        return {_key(key): _inside(f".{key}", convert, item) for key, item in value.items()}
    return [_inside(f"[{index}]", convert, item) for index, item in enumerate(value)]


def _key(key: Any) -> str:
    if type(key) is not str:
        raise PartValidationError(f"a key of an object is text, not {_json_name(key)}")
    return _storable(key)


def _storable(text: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise PartValidationError(f"half a surrogate pair (character {error.start}) is not text") from None
    return text


def _finite(number: float) -> float:
    try:
        finite = math.isfinite(number)
    except OverflowError:
        raise PartValidationError("a whole number beyond every float") from None
    if not finite:
        raise PartValidationError(f"{number} is not a JSON number")
    return number


def _utc(time: datetime) -> datetime:
    if not isinstance(time, datetime):
        raise _misplaced(time)
    if time.tzinfo is None:
        raise PartValidationError(f"{time.isoformat()} has no time zone")
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise PartValidationError(f"{time.isoformat()} has no date in UTC") from None


_SCALARS: dict[Any, Convert] = {
    Any: _plain,
    str: _read_str,
    int: _expect("a whole number", int),
    bool: _expect("a boolean", bool),
    float: _read_float,
    NoneType: _expect("null", NoneType),
}


# -- the canonical JSON

LEDGER = Dialect(rename=camel)
dump = LEDGER.dump
load = LEDGER.load


def encode(value: Any) -> bytes:
    """`value` as canonical JSON text in UTF-8; raises `PartValidationError` for what is not JSON."""
    try:
        return msgspec.json.encode(LEDGER.dump(value))
    except ValueError as error:  # a whole number with more digits than Python writes
        raise PartValidationError(f"not JSON: {error}") from None


@overload
def decode(noun: type[T], text: bytes | str) -> T: ...
@overload
def decode(noun: Any, text: bytes | str) -> Any: ...
def decode(noun: Any, text: bytes | str) -> Any:
    """The noun that canonical JSON text stands for; raises `PartValidationError`, also for text that is not JSON."""
    return LEDGER.load(noun, parse(text))


def parse(text: bytes | str) -> Any:
    """JSON text as Python values; raises `PartValidationError` for text that is not JSON."""
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        raise PartValidationError(f"nested deeper than {MAX_DEPTH}") from None
    except ValueError as error:  # msgspec's errors and Unicode's alike
        raise PartValidationError(f"not JSON: {error}") from None
