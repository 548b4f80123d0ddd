"""Entries to JSON text and back in msgspec's own code, wherever that gives exactly what `bartack.nouns.wire` gives.

The converters of a `Dialect` run Python for every value. msgspec reads and writes structs several times as fast, but it
knows neither ``{"kind": ..., "payload": ...}``, nor `extra`, nor the limits for free-form JSON. So this module derives
code from the annotations of the nouns:

- A noun whose annotations msgspec understands is read and written as it is. `Noun` sets its key names.
- A member of a union of kinds is the payload of a struct that is tagged with its kind (*wrapper*).
- A noun that contains such a union is read as a subclass with the same fields, of which those have other types. Once
  msgspec has read one, the subclass's `__post_init__` takes the payloads out of their wrappers, and turns the value
  into the noun itself: structs with the same fields may exchange their ``__class__``. Nothing is copied.
- Such a noun is written as a struct of its own (*mirror*), whose fields have the wrapped values.

What msgspec does not check itself is checked by Python expressions, compiled from the annotations, such as
``(value.run_id is None or type(value.run_id) is str)``. There is one function per kind of fact, because calls would
take longer than the checks.

Where msgspec is more lenient than a dialect, or would drop something, the codec declines: unknown keys, times outside
UTC, subclasses of ``str``, numbers that are not finite, values of another type than their field declares, and anything
that msgspec rejects. The caller then uses the dialect, which keeps what is unknown and raises the error that names the
path. Declining is therefore always correct, only slower.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, cached_property, reduce
from itertools import count
from operator import attrgetter, or_
from types import GenericAlias, NoneType, UnionType
from typing import Any, Literal, NamedTuple, NoReturn, Union, get_args, get_origin

import msgspec
from msgspec import Struct, defstruct
from msgspec.structs import FieldInfo, fields, force_setattr

from bartack.nouns.errors import PartValidationError
from bartack.nouns.json_values import MAX_DEPTH, is_within, plain
from bartack.nouns.noun import Extra

__all__ = ["DECLINED", "NativeCodec", "wire_type_of"]


class _DeclinedError(Exception):
    """msgspec's reading or writing of this value might differ from the dialect's."""


# What a codec raises if it declines: also the errors of msgspec, of a noun, and of a value with an unexpected class.
DECLINED = (_DeclinedError, PartValidationError, ValueError, TypeError, KeyError, AttributeError, RecursionError)


class NativeCodec:
    """Reads and writes the JSON text of one noun; raises one of `DECLINED` to leave it to the dialect.

    Its code is made when it is first needed, which takes milliseconds.
    """

    decode: Callable[[bytes | str], Any]  # the noun that a JSON text contains

    def __init__(self, noun: Any) -> None:
        self._noun = noun
        self.decode = self._first_decode
        # Writes a noun that contains a spliced value, by the class of that: this saves the call that looks it up.
        self.encode_by_kind: Mapping[type[Any], Callable[[Any], bytes]] = (
            _spliced_writers(noun, "to_text({})") if hasattr(noun, "spliced") else {}
        )

    def _first_decode(self, text: bytes | str) -> Any:
        from bartack.nouns.entry_decoders import DECODERS  # noqa: PLC0415 - the import makes them, in one thread

        self.decode = DECODERS[self._noun]
        return self.decode(text)

    @cached_property
    def encode(self) -> Callable[[Any], bytes]:
        """The noun as JSON text."""
        return _function("value", *_return(_writing(self._noun), "value", "to_text({})"))


# -- generated code: a name for every object that it uses, in one scope

_numbers = count()


def _decline(_: Any = None) -> NoReturn:
    raise _DeclinedError


def _is_json(value: Any) -> bool:
    """Whether free-form JSON can be written as it is; raises `PartValidationError` if it is not JSON."""
    if type(value) is not dict:
        return False
    for key, item in value.items():
        if type(key) is not str or type(item) not in _SCALARS:
            plain(value)
            break
    return True


def _is_shallow(value: dict[str, Any]) -> bool:
    """Whether free-form JSON that was read is nested no deeper than allowed."""
    return all(type(item) not in (dict, list) or is_within(item, MAX_DEPTH - 1) for item in value.values())


_SCALARS = frozenset({str, int, bool, NoneType})  # msgspec itself rejects unpaired surrogates
_scope: dict[str, Any] = {
    "datetime": datetime,
    "utc": UTC,
    "decline": _decline,
    "is_json": _is_json,
    "is_shallow": _is_shallow,
    "max_float": sys.float_info.max,
    "set_field": force_setattr,
    "to_text": msgspec.json.Encoder().encode,
}


def _named(value: Any) -> str:
    """The name of an object in the generated code."""
    name = f"_{next(_numbers)}"
    _scope[name] = value
    return name


def _function(argument: str, *lines: str) -> Callable[..., Any]:
    body = "\n ".join(lines)
    made: dict[str, Callable[..., Any]] = {}  # not in the scope, where another thread may be making one
    exec(f"def function({argument}):\n {body}", _scope, made)  # all names in it are those of fields, or made here
    return made["function"]


def _all(conditions: Sequence[str]) -> str:
    return f"({' and '.join(conditions)})" if conditions else ""


def _unless_none(condition: str, path: str) -> str:
    return f"({path} is None or {condition})" if condition else ""


# -- reading


class _Reading(NamedTuple):
    """How values of one type are read."""

    wire_type: Any  # what msgspec reads
    check: Callable[[str], str] = lambda _: ""  # a path -> the condition for keeping what was read; empty: none
    build: Callable[[str], str] | None = None  # a path -> the value itself; None: what was read is the value


def wire_type_of(noun: Any) -> Any:
    """The type as which msgspec reads a noun. To be called in one thread (see `bartack.nouns.entry_decoders`)."""
    return _reading(noun).wire_type


@cache
def _reading(tp: Any) -> _Reading:
    origin, args = get_origin(tp), get_args(tp)
    if tp is datetime:
        return _Reading(tp, lambda path: f"{path}.tzinfo is utc")
    if tp is float:
        return _Reading(float | int, lambda path: f"abs({path}) <= max_float")
    if origin in (Union, UnionType):
        return _reading_kinds(args) if _are_kinds(args) else _reading_union(args)
    if origin is tuple:
        item = _reading(args[0])
        wire_type = GenericAlias(tuple, (item.wire_type, ...))
        build = item.build
        if build is None:
            each = item.check("item")
            return _Reading(wire_type, lambda path: f"all([{each} for item in {path}])" if each else "")
        return _Reading(wire_type, build=lambda path: f"tuple([{build('item')} for item in {path}])")
    if origin is dict:
        return _Reading(tp, lambda path: f"is_shallow({path})" if args[1] is Any else "")
    if isinstance(tp, type) and issubclass(tp, Struct):
        return _reading_struct(tp)
    return _Reading(tp)


def _reading_union(members: Sequence[Any]) -> _Reading:
    """The types of a union have different classes in Python, as in JSON."""
    readings = {member: _reading(member) for member in members if member is not NoneType}
    wire_type = reduce(
        or_, [NoneType] * (len(readings) < len(members)) + [read.wire_type for read in readings.values()]
    )
    if len(readings) == 1 or float in readings:
        check = readings[float if float in readings else next(iter(readings))].check
        return _Reading(wire_type, lambda path: _unless_none(check(path), path))
    converted = {_class_of(member): read for member, read in readings.items() if read.build or read.check("x")}
    if not converted:
        return _Reading(wire_type)
    functions = {cls: _function("value", *_keep(read, "value")) for cls, read in converted.items()}
    name = _named(functions)
    return _Reading(
        wire_type, build=lambda path: f"({name}[type({path})]({path}) if type({path}) in {name} else {path})"
    )


def _reading_kinds(members: Sequence[Any]) -> _Reading:
    unwrap: dict[type[Struct], Callable[[Any], Any]] = {}
    for member in members:
        read = _reading(member)
        wrapper = defstruct(
            member.__name__,
            [("payload", read.wire_type)],
            tag=member.kind,
            tag_field="kind",
            forbid_unknown_fields=True,
            gc=False,
        )
        is_kept = read.check("value")
        unwrap[wrapper] = (
            _function("wrapper", "value = wrapper.payload", *_keep(read, "value")) if is_kept else attrgetter("payload")
        )
    name = _named(unwrap)
    return _Reading(reduce(or_, unwrap), build=lambda path: f"{name}[type({path})]({path})")


def _keep(read: _Reading, path: str) -> tuple[str, ...]:
    check = read.check(path)
    return (f"if not {check}: decline()" if check else "", f"return {read.build(path) if read.build else path}")


def _reading_struct(cls: type[Struct]) -> _Reading:
    own = _fields(cls)
    spliced = getattr(cls, "spliced", None)
    if spliced is not None:
        facts = [(member, _reading(member)) for member in get_args(next(f.type for f in own if f.name == spliced))]
        rest = {field.name: _reading(field.type) for field in own if field.name != spliced}
        stamps = [_substitute(cls, {**rest, spliced: read}, (spliced, member.kind)) for member, read in facts]
        return _Reading(reduce(or_, stamps))
    readings = {field.name: _reading(field.type) for field in own}
    if not _is_native(cls) or any(readings[field.name].wire_type != field.type for field in own):
        return _Reading(_substitute(cls, readings))
    return _Reading(
        cls, lambda path: _all([c for name, read in readings.items() if (c := read.check(f"{path}.{name}"))])
    )


def _substitute(
    cls: type[Struct], readings: dict[str, _Reading], spliced: tuple[str, str] | None = None
) -> type[Struct]:
    """A subclass that msgspec reads, and whose values become those of `cls`; with the spliced field and its kind."""
    substituted: list[Any] = [("extra", Extra, None)]
    lines: list[str] = []
    for field in _fields(cls):
        read, path = readings[field.name], f"self.{field.name}"
        if read.wire_type != field.type or not _is_native(cls):  # a field that is inherited keeps its key
            substituted.append((field.name, read.wire_type, *([] if field.required else [field.default])))
        if check := read.check(path):
            lines.append(f"if not {check}: decline()")
        if read.build is not None:
            lines.append(f"set_field(self, {field.name!r}, {read.build(path)})")
    lines.append(f"set_field(self, '__class__', {_named(cls)})")
    if hasattr(cls, "__post_init__"):
        lines.append(f"{_named(cls.__post_init__)}(self)")
    tag: dict[str, Any] = {}
    rename: Any = "camel"
    if spliced is not None:
        name, kind = spliced
        tag, rename = {"tag": kind, "tag_field": "kind"}, {name: "payload"}
    return defstruct(
        cls.__name__,
        substituted,
        bases=(cls,),
        namespace={"__post_init__": _function("self", *lines)},
        rename=rename,
        forbid_unknown_fields=True,
        kw_only=True,
        **tag,
    )


# -- writing


class _Writing(NamedTuple):
    """How values of one type are written."""

    check: Callable[[str], str]  # a path -> the condition for writing the value; empty: none
    build: Callable[[str], str] | None = None  # a path -> what msgspec writes, after the check; None: the value itself
    of_class: type[Any] | None = None  # the check is only that the value has this class


@cache
def _writing(tp: Any) -> _Writing:
    origin, args = get_origin(tp), get_args(tp)
    if tp is NoneType:
        return _Writing(lambda path: f"{path} is None")
    if origin is dict:
        return _Writing(lambda path: f"is_json({path})")
    if tp is datetime:
        return _Writing(lambda path: f"(type({path}) is datetime and {path}.tzinfo is utc)")
    if tp is float:
        return _Writing(lambda path: f"(type({path}) in (int, float) and abs({path}) <= max_float)")
    if origin in (Union, UnionType):
        return _writing_kinds(args) if _are_kinds(args) else _writing_union(args)
    if origin is tuple:
        return _writing_sequence(_writing(args[0]))
    if isinstance(tp, type) and issubclass(tp, Struct):
        return _writing_struct(tp)
    cls = _class_of(tp)
    name = cls.__name__ if cls in (str, int, bool) else _named(cls)
    return _Writing(lambda path: f"type({path}) is {name}", of_class=cls)


def _writing_union(members: Sequence[Any]) -> _Writing:
    """None comes first: it is the value of most fields."""
    writings = {member: _writing(member) for member in sorted(members, key=lambda member: member is not NoneType)}

    def check(path: str) -> str:
        return f"({' or '.join([write.check(path) for write in writings.values()])})"

    if all(write.build is None for write in writings.values()):
        return _Writing(check)

    def build(path: str) -> str:
        built = path
        for member, write in writings.items():
            if write.build is not None:
                built = f"({write.build(path)} if type({path}) is {_named(_class_of(member))} else {built})"
        return built

    return _Writing(check, build)


def _writing_sequence(item: _Writing) -> _Writing:
    if item.build is not None:
        build = item.build

        def build_list(path: str) -> str:
            """Most sequences have one item, and a comprehension is a call."""
            several = f"[{build('item')} for item in {path}]"
            return f"({several} if len({path}) > 1 else {path} and [{build(f'{path}[0]')}])"

        return _Writing(lambda path: f"type({path}) is tuple", build_list)
    if item.of_class is not None:
        name = _named(frozenset({item.of_class}))
        return _Writing(lambda path: f"(type({path}) is tuple and {name}.issuperset(map(type, {path})))")
    name = _named(_function("item", f"return {item.check('item')}"))
    return _Writing(lambda path: f"(type({path}) is tuple and all(map({name}, {path})))")


class _Writers(dict[type[Struct], Callable[[Any], Any]]):
    """The functions that write the members of a union, each made when it is first needed: few are in one process."""

    def __init__(self, members: Sequence[type[Struct]], make: Callable[[type[Struct]], Callable[[Any], Any]]) -> None:
        self._members, self._make = members, make

    def __missing__(self, cls: type[Struct]) -> Callable[[Any], Any]:
        if cls not in self._members:
            raise _DeclinedError
        self[cls] = write = self._make(cls)
        return write


def _writing_kinds(members: Sequence[type[Struct]]) -> _Writing:
    def writer(member: type[Struct]) -> Callable[[Any], Any]:
        wrapper = defstruct(member.__name__, [("payload", Any)], tag_field="kind", tag=member.kind, gc=False)  # type: ignore[attr-defined]
        return _function("value", *_return(_writing(member), "value", f"{_named(wrapper)}({{}})"))

    name = _named(_Writers(members, writer))
    return _Writing(lambda _: "", lambda path: f"{name}[type({path})]({path})")


def _return(write: _Writing, path: str, result: str) -> tuple[str, ...]:
    check = write.check(path)
    written = result.format(path if write.build is None else write.build(path))
    return (f"if not {check}: decline()" if check else "", f"return {written}")


def _writing_struct(cls: type[Struct]) -> _Writing:
    spliced = getattr(cls, "spliced", None)
    if spliced is None:
        return _writing_fields(cls)
    name = _named(_spliced_writers(cls, "{}"))
    return _Writing(lambda _: "", lambda path: f"{name}[type({path}.{spliced})]({path})")


def _spliced_writers(cls: Any, result: str) -> _Writers:
    members = get_args(next(field.type for field in _fields(cls) if field.name == cls.spliced))
    return _Writers(
        members, lambda member: _function("value", *_return(_writing_fields(cls, cls.spliced, member), "value", result))
    )


def _writing_fields(cls: type[Struct], spliced: str | None = None, member: Any = None) -> _Writing:
    """A noun with all of its fields; for one that contains a spliced value, with a certain kind of it."""
    always_written = getattr(cls, "always_written", ())
    writings: list[tuple[FieldInfo, _Writing]] = []
    mirrored: list[tuple[str, Any, Any]] = []
    for field in _fields(cls):
        if field.name == spliced:
            mirrored += [("kind", Any, _NO_DEFAULT), ("payload", Any, _NO_DEFAULT)]
            writings.append((field, _writing_struct(member)))
        else:
            default = _NO_DEFAULT if field.required or field.name in always_written else field.default
            mirrored.append((field.name, Any, default))
            writings.append((field, _writing_default(_writing(field.type), default)))
    class_name = _named(cls)

    # The value is a local variable in the code that follows its check.
    def check(path: str) -> str:
        value = _local(path)
        conditions = [f"type({value} := {path}) is {class_name}", f"{value}.extra is None"]
        checks = [write.check(f"{value}.{field.name}") for field, write in writings]
        return _all([*conditions, *filter(None, checks)])

    if _is_native(cls) and spliced is None and not always_written and all(write.build is None for _, write in writings):
        return _Writing(check)
    mirror = _named(defstruct(cls.__name__, mirrored, rename="camel", omit_defaults=True, gc=False))

    def build(path: str) -> str:
        value = _local(path)
        arguments: list[str] = []
        for field, write in writings:
            field_path = f"{value}.{field.name}"
            if field.name == spliced:
                arguments.append(repr(member.kind))
            arguments.append(field_path if write.build is None else write.build(field_path))
        return f"{mirror}({', '.join(arguments)})"

    return _Writing(check, build)


def _local(path: str) -> str:
    return f"{path.replace('.', '_')}_"


_NO_DEFAULT = object()


def _writing_default(write: _Writing, default: Any) -> _Writing:
    """Text that equals its default is declined: a dialect omits it, but msgspec compares by identity."""
    if type(default) is not str:
        return write
    name = _named(default)
    return _Writing(lambda path: f"({path} is {name} or ({write.check(path)} and {path} != {name}))", write.build)


# -- nouns


def _are_kinds(members: Sequence[Any]) -> bool:
    return all(isinstance(getattr(member, "kind", None), str) for member in members)


def _is_native(cls: type[Struct]) -> bool:
    """Whether msgspec uses the names of the canonical JSON for this noun, and refuses other keys."""
    return cls.__struct_config__.forbid_unknown_fields


def _class_of(tp: Any) -> Any:
    origin = get_origin(tp)
    return str if origin is Literal else origin or tp


def _fields(cls: type[Struct]) -> list[FieldInfo]:
    return [field for field in fields(cls) if field.name != "extra"]
