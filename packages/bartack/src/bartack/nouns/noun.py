"""`Noun`: the base of all of Bartack's values.

Nouns are immutable and compare by value. `extra` keeps the keys of a JSON object that this version does not define, so
that reading and writing data from a newer version loses nothing.

msgspec reads and writes most nouns itself (`bartack.nouns.native`), so they have the key names of the canonical JSON.
It refuses unknown keys, which `bartack.nouns.wire` then reads. A key named ``extra`` is unknown too: at run time, the
field has a type that no JSON value has.
"""

from collections.abc import Callable, Iterator
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin

from msgspec import Struct
from msgspec.structs import fields

from bartack.nouns.errors import PartValidationError

__all__ = ["Extra", "Noun", "check_types", "wrong_types"]

if TYPE_CHECKING:
    Extra = dict[str, Any] | None
else:

    class Extra:
        """The type of `Noun.extra` for msgspec: no value of it can be read."""


class Noun(
    Struct,
    frozen=True,
    kw_only=True,
    repr_omit_defaults=True,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """An immutable value that keeps unknown keys."""

    extra: Extra = None


# -- types at run time
#
# Python does not check types when a value is created by hand, and checking every noun would slow down those that are
# created by the thousand. Configurations and parts of documents are checked here, where they are created or used.

S = TypeVar("S", bound=Struct)
Check = Callable[[Any], bool]

# The classes that count as a scalar: a whole number is a valid float, and a boolean is not a number.
_EXACT: dict[Any, frozenset[type[Any]]] = {
    str: frozenset({str}),
    bool: frozenset({bool}),
    int: frozenset({int}),
    float: frozenset({int, float}),
    NoneType: frozenset({NoneType}),
}


def check_types(noun: S, rule: str) -> S:
    """The noun; raises `PartValidationError` if one of its values has another type than its field."""
    for path, problem in wrong_types(noun):
        raise PartValidationError(problem, path=path, rule=rule)
    return noun


def wrong_types(noun: Struct, path: str = "$") -> Iterator[tuple[str, str]]:
    """The path of each wrong value, such as ``$.state.time``, and what is wrong with it."""
    for name, tp, check, default in _declared(type(noun)):
        value = getattr(noun, name)
        if value is default:  # true of most fields
            continue
        if not check(value):
            yield f"{path}.{name}", f"expected {_name(tp)}, got {_name(type(value))}"
        elif isinstance(value, Struct):
            yield from wrong_types(value, f"{path}.{name}")
        elif isinstance(value, tuple):
            for index, item in enumerate(value):
                if isinstance(item, Struct):
                    yield from wrong_types(item, f"{path}.{name}[{index}]")


@cache
def _declared(cls: type[Struct]) -> tuple[tuple[str, Any, Check, Any], ...]:
    """The name, type, check and default of each field."""
    own = {field.name: (dict[str, Any] | None if field.name == "extra" else field.type, field) for field in fields(cls)}
    return tuple((name, tp, _check(tp), field.default) for name, (tp, field) in own.items())


@cache
def _check(tp: Any) -> Check:
    """A function that returns whether a value has this type."""
    origin, args = get_origin(tp), get_args(tp)
    if tp is Any:
        return lambda value: True
    if origin in (Union, UnionType) or tp in _EXACT:
        members = args or (tp,)
        exact = frozenset().union(*(_EXACT[member] for member in members if member in _EXACT))
        checks = tuple(_check(member) for member in members if member not in _EXACT)
        return lambda value: type(value) in exact or any(check(value) for check in checks)
    if origin is Literal:
        return lambda value: type(value) is str and value in args
    if origin in (tuple, frozenset):
        item_check = _check(args[0])
        return lambda value: isinstance(value, origin) and all(map(item_check, value))
    if origin is dict:
        value_check = _check(args[1])
        return lambda value: (
            isinstance(value, dict) and all(type(key) is str for key in value) and all(map(value_check, value.values()))
        )
    return lambda value: isinstance(value, tp)


def _name(tp: Any) -> str:
    """A type as an error message names it."""
    origin, args = get_origin(tp), get_args(tp)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_name(arg) for arg in args if arg is not NoneType))
    if origin is Literal:
        return " or ".join(map(repr, args))
    names = {str: "text", bool: "a boolean", int: "an integer", float: "a number", NoneType: "nothing"}
    plain = origin or tp
    return names.get(plain) or f"{'an' if plain.__name__[0] in 'AEIOUaeiou' else 'a'} {plain.__name__}"
