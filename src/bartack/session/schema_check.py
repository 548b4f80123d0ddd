"""Checks arguments against a JSON Schema, for tools whose schema was written by hand or received from elsewhere.

The keywords that tools commonly use are supported; others are ignored. The first fault is reported with its path, so
that a model can correct its call.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bartack.nouns.errors import ErrorCode, ToolError

__all__ = ["check_arguments"]

_MAX_DEPTH = 64


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "integer": lambda value: _is_number(value) and (isinstance(value, int) or value.is_integer()),
    "number": _is_number,
}
_RANGES: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "minimum": ("at least", lambda value, limit: value >= limit),
    "maximum": ("at most", lambda value, limit: value <= limit),
    "exclusiveMinimum": ("more than", lambda value, limit: value > limit),
    "exclusiveMaximum": ("less than", lambda value, limit: value < limit),
}


def check_arguments(arguments: dict[str, Any], schema: Mapping[str, Any]) -> None:
    """Raise `ToolError` with code ``tool_bad_arguments`` if the arguments do not match."""
    fault = next(_faults(arguments, schema, "$", schema, _MAX_DEPTH), None)
    if fault is not None:
        raise ToolError(fault, code=ErrorCode.TOOL_BAD_ARGUMENTS)


def _faults(value: Any, schema: Any, path: str, root: Mapping[str, Any], depth: int) -> Iterator[str]:
    """Each fault of the value, with its path."""

    def inner(value: Any, schema: Any, step: str = "") -> Iterator[str]:
        return _faults(value, schema, path + step, root, depth - 1)

    if schema is False or depth == 0:
        yield f"{'no value is allowed' if depth else 'nested too deeply'} - at `{path}`"
    elif isinstance(schema, Mapping):
        if "$ref" in schema:
            yield from inner(value, _target(root, schema["$ref"]))
        for fault in _value_faults(value, schema):
            yield f"{fault} - at `{path}`"
        if isinstance(value, dict):
            properties: Mapping[str, Any] = schema.get("properties") or {}
            others = schema.get("additionalProperties")
            for name, item in value.items():
                if name not in properties and others is False and "patternProperties" not in schema:
                    yield f"unknown field `{name}` (known: {', '.join(properties) or 'none'}) - at `{path}`"
                else:
                    yield from inner(item, properties.get(name, others or None), f".{name}")
        elif isinstance(value, list):
            for index, item in enumerate(value):
                yield from inner(item, schema.get("items"), f"[{index}]")
        for one in schema.get("allOf") or ():
            yield from inner(value, one)
        choices = schema.get("anyOf") or schema.get("oneOf") or ()
        faults = [next(inner(value, one), None) for one in choices]
        if faults and None not in faults:
            yield "; or ".join(dict.fromkeys(filter(None, faults)))


def _target(root: Mapping[str, Any], ref: Any) -> Any:
    here: Any = root
    for step in str(ref).removeprefix("#").strip("/").split("/"):
        if step:
            here = here.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(here, Mapping) else None
    return here


def _value_faults(value: Any, schema: Mapping[str, Any]) -> Iterator[str]:
    names = schema.get("type") or ()
    names = [names] if isinstance(names, str) else list(names)
    if names and not any(name not in _TYPES or _TYPES[name](value) for name in names):
        found = next((name for name in _TYPES if _TYPES[name](value)), type(value).__name__)
        yield f"expected {' or '.join(names)}, got {found}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{value!r} is not one of {list(schema['enum'])}"
    if "const" in schema and value != schema["const"]:
        yield f"expected {schema['const']!r}, got {value!r}"
    if isinstance(value, dict):
        for name in schema.get("required") or ():
            if name not in value:
                yield f"missing required field `{name}`"
    if isinstance(value, str | list):
        unit = "Length" if isinstance(value, str) else "Items"
        least, most = schema.get(f"min{unit}") or 0, schema.get(f"max{unit}")
        if len(value) < least or (most is not None and len(value) > most):
            yield f"length {len(value)} is out of range ({least} to {'any' if most is None else most})"
    if isinstance(value, str) and "pattern" in schema and re.search(schema["pattern"], value) is None:
        yield f"does not match the pattern {schema['pattern']!r}"
    for keyword, (words, holds) in _RANGES.items() if _is_number(value) else ():
        if keyword in schema and not holds(value, schema[keyword]):
            yield f"{value} must be {words} {schema[keyword]}"
