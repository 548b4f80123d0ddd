"""Types that msgspec does not read by itself: those of pydantic, and unions of several classes.

`readable` replaces them, wherever they are in a type, by classes that msgspec leaves to the hooks `foreign_schema` and
`foreign_value`. A type with models, dataclasses or constraints of pydantic is read by a `TypeAdapter` as a whole.
pydantic is not imported before a type needs it.
"""

import copy
import importlib
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import PurePath
from types import GenericAlias, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

__all__ = ["convert", "foreign_schema", "foreign_value", "readable", "schemas_of", "unsupported"]

Definitions = dict[str, Any]


class _AnyInstance(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return True  # msgspec checks what the hook returns


class _Foreign(metaclass=_AnyInstance):
    """A placeholder class for a type: its schema, and how to read a value of it."""

    schema_of: Callable[[Definitions], dict[str, Any]]
    value_of: Callable[[Any], Any]


def _class(schema_of: Callable[[Definitions], dict[str, Any]], value_of: Callable[[Any], Any]) -> Any:
    return _AnyInstance(
        "Foreign", (_Foreign,), {"schema_of": staticmethod(schema_of), "value_of": staticmethod(value_of)}
    )


def readable(hint: Any) -> Any:
    """The type in a form that msgspec reads with the hooks of this module.

    Raises `TypeError` for constraints of pydantic that would be ignored: those in a msgspec struct.
    """
    if hint is object:
        return Any
    if isinstance(hint, type) and issubclass(hint, PurePath):
        return _class(lambda _: {"type": "string", "format": "path"}, lambda value: hint(convert(value, str)))
    if is_dataclass(hint) and not isinstance(hint, type):
        raise TypeError(f"this is a value; pass the class {type(hint).__name__}")
    if _uses_pydantic(hint, ()):
        try:
            return _adapted(hint)
        except RuntimeError:  # there is a type in it that pydantic does not read, for example a struct
            pass
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return Annotated[(readable(arguments[0]), *arguments[1:])]
    if origin in (Union, UnionType):
        return hint if _is_known(hint) else _choice(tuple(map(readable, arguments)))
    if isinstance(origin, type) and origin in (list, tuple, set, frozenset, dict):
        return GenericAlias(
            origin, tuple(argument if argument is ... else readable(argument) for argument in arguments)
        )
    return hint if _is_known(hint) else _whole(hint)


def schemas_of(*hints: Any) -> tuple[list[dict[str, Any]], Definitions]:
    """The schema of each readable type, and their definitions, in which types of one name have different ones."""
    foreign: Definitions = {}
    schemas, components = msgspec.json.schema_components(
        hints, ref_template="#/$defs/{name}", schema_hook=lambda hint: foreign_schema(hint, foreign)
    )
    return list(schemas), {**components, **foreign}


def unsupported(error: TypeError) -> str:
    """What msgspec reports about a type, with advice for those who wrote the type instead of its own."""
    problem = str(error).rpartition("\n\n")[2]
    advice = "; use built-in types, enums, dataclasses, TypedDicts, msgspec structs or pydantic models"
    return f"{problem}{advice if problem.endswith('is not supported') else ''}"


def convert(value: Any, hint: Any) -> Any:
    """The value as the readable type; `ValueError` if it does not match."""
    return msgspec.convert(value, hint, strict=False, dec_hook=foreign_value)


# -- hooks for msgspec


def foreign_schema(hint: Any, definitions: Definitions) -> dict[str, Any]:
    """The schema of a type, whose own definitions are added to `definitions`."""
    schema: dict[str, Any] = _stand_in(hint).schema_of(definitions)
    return schema


def foreign_value(hint: Any, value: Any) -> Any:
    """The value as the type; `ValueError` if it does not match."""
    return _stand_in(hint).value_of(value)


def _stand_in(hint: Any) -> Any:
    if isinstance(hint, type) and issubclass(hint, _Foreign):
        return hint
    if not _is_of_pydantic(hint):
        raise NotImplementedError
    return _adapted(hint)


def _add_definitions(definitions: Definitions, additions: Definitions) -> None:
    for name, shape in additions.items():
        if definitions.setdefault(name, shape) != shape:
            raise TypeError(f"two different models are named {name!r}")


# -- pydantic


def _adapted(hint: Any) -> Any:
    """Raises `RuntimeError`, of which pydantic's errors are subclasses, for a type that pydantic does not describe."""
    adapter = importlib.import_module("pydantic").TypeAdapter(hint)
    shape: dict[str, Any] = adapter.json_schema(ref_template="#/$defs/{model}")

    def schema_of(definitions: Definitions) -> dict[str, Any]:
        schema = copy.deepcopy(shape)
        _add_definitions(definitions, schema.pop("$defs", {}))
        return schema

    def value_of(value: Any) -> Any:
        try:
            return adapter.validate_python(value)
        except ValueError as error:
            faults: list[Any] = error.errors(include_url=False) if hasattr(error, "errors") else []
            texts = [": ".join(filter(None, (".".join(map(str, fault["loc"])), fault["msg"]))) for fault in faults]
            raise ValueError("; ".join(texts) or str(error)) from None

    return _class(schema_of, value_of)


def _whole(hint: Any) -> Any:
    """A type that msgspec refuses, read by pydantic if that is installed and reads it."""
    try:
        return _adapted(hint)
    except (ImportError, RuntimeError):
        return hint  # msgspec reports what is wrong with it


def _is_of_pydantic(hint: Any) -> bool:
    return hasattr(hint, "__pydantic_core_schema__") or hasattr(hint, "__get_pydantic_core_schema__")


def _uses_pydantic(hint: Any, outer: tuple[Any, ...]) -> bool:
    """Whether there is a model, a dataclass or a constraint of pydantic in a type; `outer` are the types around it."""
    if _is_of_pydantic(hint):
        return True
    if get_origin(hint) is Annotated and any(map(_is_constraint, get_args(hint)[1:])):
        return True
    if hint in outer:
        return False
    inner = list(get_args(hint)) if get_origin(hint) is not None else _field_types(hint)
    return any(_uses_pydantic(argument, (*outer, hint)) for argument in inner)


def _is_constraint(metadata: Any) -> bool:
    return type(metadata).__module__.partition(".")[0] in ("pydantic", "annotated_types")


def _field_types(hint: Any) -> list[Any]:
    is_struct = isinstance(hint, type) and issubclass(hint, msgspec.Struct)
    if not (is_struct or is_typeddict(hint) or (isinstance(hint, type) and is_dataclass(hint))):
        return []
    try:
        types = get_type_hints(hint, include_extras=True)
    except NameError:  # msgspec reports it
        return []
    if is_struct:
        for name, field_type in types.items():
            if get_origin(field_type) is Annotated and any(map(_is_constraint, get_args(field_type)[1:])):
                raise TypeError(
                    f"{hint.__name__}.{name}: a msgspec struct takes msgspec.Meta, not pydantic constraints"
                )
    return list(types.values())


# -- unions


def _is_known(hint: Any) -> bool:
    try:
        schemas_of(hint)
    except TypeError:
        return False
    return True


def _choice(members: tuple[Any, ...]) -> Any:
    def schema_of(definitions: Definitions) -> dict[str, Any]:
        schemas, member_definitions = schemas_of(*members)
        _add_definitions(definitions, member_definitions)
        return {"anyOf": schemas}

    def value_of(value: Any) -> Any:
        """The value as the member that has most of its keys."""
        candidates: list[tuple[int, Any]] = []
        faults: list[str] = []
        for member in members:
            try:
                converted = convert(value, member)
            except ValueError as error:  # including those of msgspec and pydantic
                faults.append(str(error))
            else:
                candidates.append(
                    (len(value.keys() - _field_names(type(converted))) if isinstance(value, dict) else 0, converted)
                )
        if not candidates:
            raise ValueError("; or ".join(faults))
        return min(candidates, key=lambda candidate: candidate[0])[1]

    return _class(schema_of, value_of)


def _field_names(kind: Any) -> set[str]:
    if is_dataclass(kind):
        return {field.name for field in fields(kind)}
    return {*getattr(kind, "__struct_encode_fields__", ()), *getattr(kind, "model_fields", ())}
