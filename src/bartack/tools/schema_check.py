"""Checks arguments against a JSON Schema, for tools whose schema was written by hand or received from elsewhere.

The keywords that tools commonly use are supported; others are ignored. The first error is reported with its path, so
that a model can correct its call.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from bartack.nouns.errors import ErrorCode, ToolError

__all__ = ["check_arguments"]

_MAX_DEPTH = 64

_IS: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: (
        not isinstance(value, bool) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
    ),
}


def check_arguments(arguments: dict[str, Any], schema: Mapping[str, Any]) -> None:
    """Raise `ToolError` with code ``tool_bad_arguments`` if the arguments do not match."""
    fault = _Check(schema).fault(arguments, schema, "$", _MAX_DEPTH)
    if fault is not None:
        raise ToolError(fault, code=ErrorCode.TOOL_BAD_ARGUMENTS)


class _Check:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def fault(self, value: Any, schema: Any, path: str, depth: int) -> str | None:
        """What is wrong with the value, or None."""
        if schema is False:
            return f"no value is allowed - at `{path}`"
        if not isinstance(schema, Mapping):
            return None
        if depth == 0:
            return f"nested too deeply - at `{path}`"
        if "$ref" in schema:
            found = self.fault(value, self._target(schema["$ref"]), path, depth - 1)
            if found is not None:
                return found
        return (
            _type_fault(value, schema, path)
            or _value_fault(value, schema, path)
            or self._object_fault(value, schema, path, depth)
            or self._array_fault(value, schema, path, depth)
            or self._choice_fault(value, schema, path, depth)
        )

    def _target(self, ref: Any) -> Any:
        here: Any = self._root
        for step in str(ref).removeprefix("#").strip("/").split("/"):
            if step:
                here = here.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(here, Mapping) else None
        return here

    def _object_fault(self, value: Any, schema: Mapping[str, Any], path: str, depth: int) -> str | None:
        if not isinstance(value, dict):
            return None
        properties: Mapping[str, Any] = schema.get("properties") or {}
        for name in schema.get("required") or ():
            if name not in value:
                return f"missing required field `{name}` - at `{path}`"
        for name, item in value.items():
            if name in properties:
                found = self.fault(item, properties[name], f"{path}.{name}", depth - 1)
            elif schema.get("additionalProperties") is False and "patternProperties" not in schema:
                known = ", ".join(properties) or "none"
                found = f"unknown field `{name}` (known: {known}) - at `{path}`"
            else:
                found = self.fault(item, schema.get("additionalProperties"), f"{path}.{name}", depth - 1)
            if found is not None:
                return found
        return None

    def _array_fault(self, value: Any, schema: Mapping[str, Any], path: str, depth: int) -> str | None:
        if not isinstance(value, list):
            return None
        for index, item in enumerate(value):
            found = self.fault(item, schema.get("items"), f"{path}[{index}]", depth - 1)
            if found is not None:
                return found
        return None

    def _choice_fault(self, value: Any, schema: Mapping[str, Any], path: str, depth: int) -> str | None:
        for one in schema.get("allOf") or ():
            found = self.fault(value, one, path, depth - 1)
            if found is not None:
                return found
        choices = schema.get("anyOf") or schema.get("oneOf")
        if not choices:
            return None
        faults = [self.fault(value, one, path, depth - 1) for one in choices]
        return None if None in faults else "; or ".join(dict.fromkeys(filter(None, faults)))


def _type_fault(value: Any, schema: Mapping[str, Any], path: str) -> str | None:
    expected = schema.get("type")
    if expected is None:
        return None
    names = [expected] if isinstance(expected, str) else list(expected)
    if any(name not in _IS or _IS[name](value) for name in names):
        return None
    return f"expected {' or '.join(names)}, got {_name_of(value)} - at `{path}`"


def _name_of(value: Any) -> str:
    return next((name for name in ("integer", *_IS) if _IS[name](value)), type(value).__name__)


def _value_fault(value: Any, schema: Mapping[str, Any], path: str) -> str | None:
    if "enum" in schema and value not in schema["enum"]:
        return f"{value!r} is not one of {list(schema['enum'])} - at `{path}`"
    if "const" in schema and value != schema["const"]:
        return f"expected {schema['const']!r}, got {value!r} - at `{path}`"
    if isinstance(value, str | list):
        size = len(value)
        least, most = (
            (schema.get("minLength"), schema.get("maxLength"))
            if isinstance(value, str)
            else (schema.get("minItems"), schema.get("maxItems"))
        )
        if (least is not None and size < least) or (most is not None and size > most):
            return f"length {size} is out of range ({least or 0} to {'any' if most is None else most}) - at `{path}`"
    if isinstance(value, str) and "pattern" in schema and re.search(schema["pattern"], value) is None:
        return f"does not match the pattern {schema['pattern']!r} - at `{path}`"
    return _range_fault(value, schema, path) if _IS["number"](value) else None


_RANGES: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "minimum": ("at least", lambda value, limit: value >= limit),
    "maximum": ("at most", lambda value, limit: value <= limit),
    "exclusiveMinimum": ("more than", lambda value, limit: value > limit),
    "exclusiveMaximum": ("less than", lambda value, limit: value < limit),
}


def _range_fault(value: Any, schema: Mapping[str, Any], path: str) -> str | None:
    for keyword, (words, holds) in _RANGES.items():
        if keyword in schema and not holds(value, schema[keyword]):
            return f"{value} must be {words} {schema[keyword]} - at `{path}`"
    return None
