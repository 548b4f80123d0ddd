"""Entries to JSON text and back in msgspec's own code, wherever that gives exactly what `bartack.nouns.wire` gives.

The converters of a `Dialect` run Python for every value. msgspec reads and writes structs several times as fast, but it
knows neither ``{"kind": ..., "payload": ...}``, nor `extra`, nor the limits for free-form JSON. So this module derives
structs from the annotations of the nouns:

- A noun whose annotations msgspec understands is read and written as it is (*native*). `Noun` sets its key names.
- A member of a union of kinds is the payload of a struct that is tagged with its kind.
- A noun that contains such a union, or has other key names, has a struct of its own with the same fields.

Where msgspec is more lenient than a dialect, or would drop something, the codec declines: unknown keys, times outside
UTC, subclasses of ``str``, numbers that are not finite, values of another type than their field declares, and anything
that msgspec rejects. The caller then uses the dialect, which keeps what is unknown and raises the error that names the
path. Declining is therefore always correct, only slower.
"""

import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache, partial, reduce
from operator import or_
from types import GenericAlias, NoneType, UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin

import msgspec
from msgspec import Struct, defstruct
from msgspec.structs import FieldInfo, fields

from bartack.nouns.errors import PartValidationError
from bartack.nouns.json_values import MAX_DEPTH, Convert, is_within, plain

__all__ = ["DECLINED", "NativeCodec"]


class _DeclinedError(Exception):
    """msgspec's reading or writing of this value might differ from the dialect's."""


# What a codec raises if it declines: also the errors of msgspec, of a noun, and of a value with an unexpected class.
DECLINED = (_DeclinedError, PartValidationError, ValueError, TypeError, KeyError, AttributeError, RecursionError)


class NativeCodec:
    """Reads and writes the JSON text of one noun; raises one of `DECLINED` to leave it to the dialect."""

    def __init__(self, noun: type[Struct]) -> None:
        wire_type, self._build = _readable(noun)
        self._parse = msgspec.json.Decoder(wire_type).decode
        self._prepare, _ = _writable(noun)
        self._to_text = msgspec.json.Encoder().encode

    def decode(self, text: bytes | str) -> Any:
        """The noun that this JSON text contains."""
        return self._build(self._parse(text))

    def encode(self, value: Any) -> bytes:
        """The noun as JSON text."""
        return self._to_text(self._prepare(value))


class _ByType(dict[Any, Convert]):
    """Converts a value by its class; a class that is not listed raises KeyError."""

    def __call__(self, value: Any) -> Any:
        return self[type(value)](value)


# The converters of structs are compiled from expressions such as ``make(id=value.id, meta=convert_meta(value.meta))``:
# loops over the fields take several times as long. A converter is not called for None if None is the default.


_TYPES = {"texts": frozenset({str, NoneType}), "integers": frozenset({int, NoneType})}


def _compile(expression: str, scope: Mapping[str, Any]) -> Convert:
    names = {"datetime": datetime, "utc": UTC, "decline": _decline, **_TYPES, **scope}
    convert: Convert = eval(f"lambda value: {expression}", names)  # all names in it are those of fields
    return convert


def _expression(name: str, convert: Convert, *, has_default: bool) -> str:
    """The value of a field, converted by ``convert_name`` unless it is ``default_name``."""
    if convert is _same:
        return f"value.{name}"
    is_default = f"(item := value.{name}) is default_{name}"
    if convert is _check_time:
        is_utc = f"(type(item := value.{name}) is datetime and item.tzinfo is utc)"
        return f"(item if {f'{is_default} or {is_utc}' if has_default else is_utc} else decline(item))"
    return f"(item if {is_default} else convert_{name}(item))" if has_default else f"convert_{name}(value.{name})"


def _with_checks(checks: list[str]) -> str:
    """The value itself, after these checks of its fields."""
    return f"({', '.join(checks)}, value)[-1]" if checks else "value"


# -- reading


@cache
def _readable(tp: Any) -> tuple[Any, Convert]:
    """The type that msgspec reads for `tp`, and the function that turns what was read into a value of `tp`."""
    origin, args = get_origin(tp), get_args(tp)
    if tp is datetime:
        return tp, _check_time
    if tp is float:
        return float | int, _check_number
    if origin in (Union, UnionType):
        return _readable_kinds(args) if _are_kinds(args) else _readable_union(args)
    if origin is tuple:
        item_type, build = _readable(args[0])
        return GenericAlias(tuple, (item_type, ...)), _same if build is _same else _sequence(build, tuple)
    if origin is dict:
        return tp, _check_depth if args[1] is Any else _same
    if isinstance(tp, type) and issubclass(tp, Struct):
        return _readable_struct(tp)
    return tp, _same


def _readable_union(members: tuple[Any, ...]) -> tuple[Any, Convert]:
    readable = {member: _readable(member) for member in members}
    wire_type = reduce(or_, [wire_type for wire_type, _ in readable.values()])
    # A value that was read has the class that msgspec read it as.
    builders = {float if member is float else read: build for member, (read, build) in readable.items()}
    return wire_type, _by_member(builders)


def _readable_kinds(members: tuple[Any, ...]) -> tuple[Any, Convert]:
    builders = _ByType()
    for member in members:
        payload, build = _readable(member)
        wrapper = _wire_struct(member, [("payload", payload)], tag=member.kind)
        expression = _expression("payload", build, has_default=False)
        builders[wrapper] = _compile(expression, {"convert_payload": build})
    return reduce(or_, builders), builders


def _readable_struct(cls: type[Struct]) -> tuple[Any, Convert]:
    spliced = getattr(cls, "spliced", None)
    own = [field for field in _fields(cls) if field.name != spliced]
    readable = {field.name: _readable(field.type) for field in own}
    scope: dict[str, Any] = {"make": cls}
    for field in own:
        scope |= {f"convert_{field.name}": readable[field.name][1], f"default_{field.name}": field.default}
    values = {f.name: _expression(f.name, readable[f.name][1], has_default=not f.required) for f in own}
    if spliced is None and _is_native(cls) and all(readable[field.name][0] == field.type for field in own):
        checks = [value for name, value in values.items() if value != f"value.{name}"]
        return cls, _compile(_with_checks(checks), scope) if checks else _same
    wire_fields = [(field.name, readable[field.name][0], *([] if field.required else [field.default])) for field in own]
    arguments = ", ".join(f"{name}={value}" for name, value in values.items())
    if spliced is None:
        return _wire_struct(cls, wire_fields), _compile(f"make({arguments})", scope)
    stamps = _ByType()
    for member in get_args(_type_of(cls, spliced)):
        payload, build = _readable(member)
        stamp = _wire_struct(cls, [("payload", payload), *wire_fields], tag=member.kind)
        fact = _expression("payload", build, has_default=False)
        stamps[stamp] = _compile(f"make({spliced}={fact}, {arguments})", scope | {"convert_payload": build})
    return reduce(or_, stamps), stamps


def _wire_struct(cls: type[Struct], wire_fields: list[Any], *, tag: str | None = None) -> type[Struct]:
    tag_field = None if tag is None else "kind"
    return defstruct(
        cls.__name__,
        wire_fields,
        tag=tag,
        tag_field=tag_field,
        rename="camel",
        forbid_unknown_fields=True,
        kw_only=True,
    )


# -- writing


@cache
def _writable(tp: Any) -> tuple[Convert, bool]:
    """The function that turns a value of `tp` into one that msgspec writes, and whether that is the value itself."""
    origin, args = get_origin(tp), get_args(tp)
    if origin is dict:
        return _check_json, True
    if tp is datetime:
        return _check_time, True
    if tp is float:
        return _check_number, True
    if origin in (Union, UnionType):
        return _writable_kinds(args) if _are_kinds(args) else _writable_union(args)
    if origin is tuple:
        write, is_same = _writable(args[0])
        return _ByType({tuple: _sequence(write, list)}), is_same
    if isinstance(tp, type) and issubclass(tp, Struct):
        expression, scope, is_same = _writable_struct(tp)
        return _compile(expression, scope), is_same
    return _ByType({str if origin is Literal else tp: _same}), True


def _writable_union(members: tuple[Any, ...]) -> tuple[Convert, bool]:
    writable = {member: _writable(member) for member in members}
    is_same = all(is_same for _, is_same in writable.values())
    return _by_member({member: write for member, (write, _) in writable.items()}), is_same


def _writable_kinds(members: tuple[Any, ...]) -> tuple[Convert, bool]:
    writers = _ByType()
    for member in members:
        expression, scope, _ = _writable_struct(member)
        wrapper = defstruct(member.__name__, [("payload", Any)], tag_field="kind", tag=member.kind)
        writers[member] = _compile(f"wrapper({expression})", {"wrapper": wrapper, **scope})
    return writers, False


@cache
def _writable_struct(cls: type[Struct]) -> tuple[str, dict[str, Any], bool]:
    """The expression for a noun, the names in it, and whether its value is the noun itself."""
    spliced = getattr(cls, "spliced", None)
    always_written = getattr(cls, "always_written", ())
    is_same = spliced is None and not always_written and _is_native(cls)
    conditions = ["type(value) is cls", "value.extra is None"]
    values: dict[str, str] = {}
    defaults: dict[str, Any] = {}
    scope: dict[str, Any] = {"cls": cls}
    for field in _fields(cls):
        name = field.name
        default = _NO_DEFAULT if field.required or name in always_written else field.default
        if name == spliced:
            scope["convert_payload"] = _ByType({member: _writable(member)[0] for member in get_args(field.type)})
            values |= {"kind": f"value.{name}.kind", "payload": f"convert_payload(value.{name})"}
            defaults |= {"kind": _NO_DEFAULT, "payload": _NO_DEFAULT}
            continue
        write, is_field_same = _writable(field.type)
        is_same = is_same and is_field_same
        if field.type in _SIMPLE and (default is None or default is _NO_DEFAULT):
            conditions.append(f"type(value.{name}) {_SIMPLE[field.type]}")
            write = _same
        scope |= {f"convert_{name}": _unless_equal(default, write), f"default_{name}": default}
        values[name] = _expression(name, write, has_default=default is not _NO_DEFAULT)
        defaults[name] = default
    if is_same:
        result = _with_checks([value for name, value in values.items() if value != f"value.{name}"])
    else:
        result = f"mirror({', '.join(values.values())})"
        mirror_fields = [(name, Any, default) for name, default in defaults.items()]
        scope["mirror"] = defstruct(cls.__name__, mirror_fields, rename="camel", omit_defaults=True)
    return f"{result} if {' and '.join(conditions)} else decline(value)", scope, is_same


_NO_DEFAULT = object()
# The types of most fields, and the condition for a value that msgspec writes as a dialect does.
_SIMPLE = {str: "is str", str | None: "in texts", int: "is int", int | None: "in integers"}


def _unless_equal(default: Any, write: Convert) -> Convert:
    """Declines text that equals its default: a dialect omits it, but msgspec compares by identity."""
    if type(default) is not str:
        return write
    return lambda text: _decline(text) if text == default else write(text)


# -- values


def _same(value: Any) -> Any:
    return value


def _decline(_: Any) -> NoReturn:
    raise _DeclinedError


# Only in UTC. `_expression` writes the check in line, because every message has several times.
_check_time: Convert = partial(_decline)


def _sequence(convert: Convert, make: Callable[[list[Any]], Any]) -> Convert:
    if isinstance(convert, _ByType):  # without the call
        return lambda items: make([convert[type(item)](item) for item in items])
    return lambda items: make([convert(item) for item in items])


def _by_member(converters: Mapping[Any, Convert]) -> Convert:
    """The converter of a union's values. None needs none, so neither does a union of one type and None."""
    present = {member: convert for member, convert in converters.items() if member is not NoneType}
    if all(convert is _same for convert in present.values()):
        return _same
    if len(present) == 1:
        return next(iter(present.values()))
    by_class = _ByType()
    for member, convert in converters.items():
        for cls in (int, float) if member is float else (_class_of(member),):
            by_class.setdefault(cls, convert)
    return by_class


def _class_of(tp: Any) -> Any:
    origin = get_origin(tp)
    return str if origin is Literal else origin or tp


_SCALARS = frozenset({str, int, bool, NoneType})  # msgspec itself rejects unpaired surrogates


def _check_json(value: Any) -> Any:
    if type(value) is not dict:
        raise _DeclinedError
    for key, item in value.items():
        if type(key) is not str or type(item) not in _SCALARS:
            plain(value)
            break
    return value


def _check_depth(value: Any) -> Any:
    for item in value.values():
        if type(item) in (dict, list) and not is_within(item, MAX_DEPTH - 1):
            raise _DeclinedError
    return value


def _check_number(value: Any) -> Any:
    if type(value) not in (int, float) or not abs(value) <= sys.float_info.max:
        raise _DeclinedError
    return value


# -- nouns


def _are_kinds(members: tuple[Any, ...]) -> bool:
    return all(isinstance(getattr(member, "kind", None), str) for member in members)


def _is_native(cls: type[Struct]) -> bool:
    """Whether msgspec uses the names of the canonical JSON for this noun, and refuses other keys."""
    return cls.__struct_config__.forbid_unknown_fields


def _fields(cls: type[Struct]) -> list[FieldInfo]:
    return [field for field in fields(cls) if field.name != "extra"]


def _type_of(cls: type[Struct], name: str) -> Any:
    return next(field.type for field in fields(cls) if field.name == name)
