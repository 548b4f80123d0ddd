"""Checks arguments against a JSON Schema, for tools whose schema was written by hand or received from elsewhere.

`argument_check` turns a schema into a function. The keywords in `_SHAPES` are implemented here, exactly as drafts
2020-12 and 7 define them; the schemas of typed functions need few others. A schema with any other keyword is compiled
by jsonschema-rs (extra ``http``). Without that package, such a schema is refused: nothing is ever left unchecked.

A schema may come from a server that we do not control. It is refused if it refers to another document, since nothing
is fetched, or if `allOf`, `$ref` and the like unfold to very many schemas for one value. jsonschema-rs matches patterns
in linear time, or with a limit on backtracking if they have look-around or back references; Python's `re` has neither,
and its dialect differs, so that `pattern` is not checked here. A fault is reported with its path, so that a model can
correct its call.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bartack.nouns.errors import ErrorCode, ToolError
from bartack.nouns.json_values import MAX_DEPTH, is_within

__all__ = ["ArgumentCheck", "argument_check"]

ArgumentCheck = Callable[[dict[str, Any]], None]  # raises `ToolError` with code ``tool_bad_arguments``

_DRAFT_7 = "http://json-schema.org/draft-07/schema"
_DIALECTS = frozenset({"https://json-schema.org/draft/2020-12/schema", _DRAFT_7})
_MAX_SCHEMA_DEPTH = 200  # each level takes up to two of Python's 1,000 frames
_MAX_STEPS = 300_000  # about a second; arguments that a model writes need far fewer
_MAX_UNFOLDED = 10_000  # schemas that apply to one value
_MAX_DETAILED_DEPTH = 5  # jsonschema-rs collects the faults of all choices at all levels: exponential in the depth


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


# -- which schemas are checked here


def _is_limit(value: Any) -> bool:
    return _is_number(value) and (isinstance(value, int) or math.isfinite(value))


def _is_size(value: Any) -> bool:
    return _TYPES["integer"](value) and value >= 0


def _is_schema(value: Any) -> bool:
    return isinstance(value, Mapping | bool)


def _are_schemas(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_schema, value))


def _are_named_schemas(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(_is_schema, value.values()))


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _are_types(value: Any) -> bool:
    names = [value] if isinstance(value, str) else value
    return _are_names(names) and bool(names) and set(names) <= set(_TYPES)


def _anything(_: Any) -> bool:
    return True


_ONE_SCHEMA = ("additionalProperties", "items", "not")
_SCHEMAS = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED_SCHEMAS = ("properties", "$defs", "definitions")
_SHAPES: dict[str, Callable[[Any], bool]] = {
    "type": _are_types,
    "enum": lambda value: isinstance(value, list),
    "const": _anything,
    "required": _are_names,
    "$ref": lambda value: isinstance(value, str) and (value == "#" or value.startswith("#/")) and "%" not in value,
    "$schema": lambda value: isinstance(value, str) and value.removesuffix("#") in _DIALECTS,
    **dict.fromkeys(_RANGES, _is_limit),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _is_size),
    **dict.fromkeys(_ONE_SCHEMA, _is_schema),
    **dict.fromkeys(_SCHEMAS, _are_schemas),
    **dict.fromkeys(_NAMED_SCHEMAS, _are_named_schemas),
    # these describe values and forbid none
    **dict.fromkeys(("title", "description", "default", "examples", "$comment", "format"), _anything),
    **dict.fromkeys(("deprecated", "readOnly", "writeOnly", "discriminator"), _anything),
    **dict.fromkeys(("contentEncoding", "contentMediaType"), _anything),
}


def _is_exact(root: Mapping[str, Any]) -> bool:
    """Whether the checks of this module are all that the schema asks for."""
    is_draft_7 = str(root.get("$schema", "")).removesuffix("#") == _DRAFT_7
    todo: list[Any] = [root]
    visited: set[int] = set()
    while todo:
        schema = todo.pop()
        if isinstance(schema, bool) or id(schema) in visited:
            continue
        if not isinstance(schema, Mapping) or not all(
            keyword in _SHAPES and _SHAPES[keyword](value) for keyword, value in schema.items()
        ):
            return False
        if is_draft_7 and ("prefixItems" in schema or ("$ref" in schema and len(schema) > 1)):
            return False  # draft 7 has no prefixItems, and ignores what is beside a $ref
        visited.add(id(schema))
        todo += (schema[keyword] for keyword in _ONE_SCHEMA if keyword in schema)
        todo += (inner for keyword in _SCHEMAS for inner in schema.get(keyword, ()))
        todo += (inner for keyword in _NAMED_SCHEMAS for inner in schema.get(keyword, {}).values())
        if "$ref" in schema:
            todo.append(_target(root, schema["$ref"]))
    return True


def _target(root: Mapping[str, Any], ref: str) -> Any:
    """What the reference points to; None if there is nothing."""
    target: Any = root
    for step in ref.split("/")[1:]:
        target = target.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(target, Mapping) else None
    return target


def _unfolded(schema: Any, anchors: Mapping[str, Any], root: Mapping[str, Any], sizes: dict[int, int]) -> int:
    """How many schemas apply to a value that this one applies to."""
    if not isinstance(schema, Mapping):
        return 1
    if id(schema) not in sizes:
        sizes[id(schema)] = 0  # while it is counted: a loop adds nothing
        inner: list[Any] = [schema.get(keyword) for keyword in ("not", "if", "then", "else")]
        for keyword in ("allOf", "anyOf", "oneOf"):
            choices = schema.get(keyword)
            inner += choices if isinstance(choices, list) else ()
        dependent = schema.get("dependentSchemas")
        inner += dependent.values() if isinstance(dependent, Mapping) else ()
        for ref in (schema.get("$ref"), schema.get("$dynamicRef")):
            if isinstance(ref, str):
                inner.append(anchors.get(ref) or _target(root, ref))
        sizes[id(schema)] = 1 + sum(
            _unfolded(subschema, anchors, root, sizes) for subschema in inner if subschema is not None
        )
    return sizes[id(schema)]


def _refuse_explosive(root: Mapping[str, Any]) -> None:
    objects: dict[int, Mapping[str, Any]] = {}
    todo: list[Any] = [root]
    while todo:
        value = todo.pop()
        if isinstance(value, Mapping) and id(value) not in objects:
            objects[id(value)] = value
            todo += value.values()
        elif isinstance(value, list):
            todo += value
    anchors = {
        f"#{schema[word]}": schema
        for schema in objects.values()
        for word in ("$anchor", "$dynamicAnchor")
        if word in schema
    }
    anchors |= {schema["$id"]: schema for schema in objects.values() if isinstance(schema.get("$id"), str)}
    sizes: dict[int, int] = {}
    try:
        is_too_large = any(_unfolded(schema, anchors, root, sizes) > _MAX_UNFOLDED for schema in objects.values())
    except RecursionError:
        is_too_large = True
    if is_too_large:
        raise _invalid_schema_error("it is too complex")


def _invalid_schema_error(problem: str) -> ToolError:
    return ToolError(f"Invalid JSON Schema: {problem}", code=ErrorCode.INVALID_CONFIG)


# -- the check


def argument_check(schema: Mapping[str, Any]) -> ArgumentCheck:
    """The check of arguments against this schema.

    Raises `ToolError`: ``invalid_config`` if the schema is invalid, ``missing_dependency`` if it takes jsonschema-rs.
    """
    if not isinstance(schema, Mapping):
        raise _invalid_schema_error(f"expected an object, got {type(schema).__name__}")
    _refuse_explosive(schema)
    return _own_check(schema) if _is_exact(schema) else _compiled_check(schema)


def _compiled_check(schema: Mapping[str, Any]) -> ArgumentCheck:
    try:
        import jsonschema_rs  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise ToolError(
            "The schema has keywords that require the package jsonschema-rs: pip install 'bartack[http]'.",
            code=ErrorCode.MISSING_DEPENDENCY,
            cause=error,
        ) from error
    try:
        validator = jsonschema_rs.validator_for(dict(schema), offline=True)
    except ValueError as error:  # also its own ValidationError
        raise _invalid_schema_error(_first_line(error)) from None

    def check(arguments: dict[str, Any]) -> None:
        if not is_within(arguments, MAX_DEPTH):
            raise _bad_arguments_error("nested too deeply")
        try:
            if validator.is_valid(arguments):
                return
            if not is_within(arguments, _MAX_DETAILED_DEPTH):
                raise _bad_arguments_error("they do not match the schema")
            validator.validate(arguments)
        except jsonschema_rs.ValidationError as error:
            steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path)
            raise _bad_arguments_error(f"{error.message} - at `${''.join(steps)}`") from None
        except ValueError as error:
            raise _bad_arguments_error(str(error)) from None

    return check


def _first_line(error: ValueError) -> str:
    return str(error).partition("\n")[0]


def _bad_arguments_error(fault: str) -> ToolError:
    return ToolError(fault, code=ErrorCode.TOOL_BAD_ARGUMENTS)


def _own_check(schema: Mapping[str, Any]) -> ArgumentCheck:
    def check(arguments: dict[str, Any]) -> None:
        fault = next(_Faults(schema).of(arguments, schema, "$", _MAX_SCHEMA_DEPTH), None)
        if fault is not None:
            raise _bad_arguments_error(fault)

    return check


class _Faults:
    """The faults of one value, each with its path."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._steps = 0

    def of(self, value: Any, schema: Any, path: str, depth: int) -> Iterator[str]:
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise _bad_arguments_error("too complex to check")
        if schema is False or depth == 0:
            yield f"{'no value is allowed' if depth else 'nested too deeply'} - at `{path}`"
        elif schema is not True:
            if "$ref" in schema:
                yield from self.of(value, _target(self._root, schema["$ref"]), path, depth - 1)
            for fault in _value_faults(value, schema):
                yield f"{fault} - at `{path}`"
            if isinstance(value, dict):
                yield from self._of_object(value, schema, path, depth - 1)
            elif isinstance(value, list):
                first = schema.get("prefixItems", ())
                for index, item in enumerate(value):
                    inner = first[index] if index < len(first) else schema.get("items", True)
                    yield from self.of(item, inner, f"{path}[{index}]", depth - 1)
            yield from self._of_choices(value, schema, path, depth - 1)

    def _of_object(self, value: dict[str, Any], schema: Mapping[str, Any], path: str, depth: int) -> Iterator[str]:
        properties: Mapping[str, Any] = schema.get("properties", {})
        additional = schema.get("additionalProperties", True)
        for name, item in value.items():
            if name not in properties and additional is False:
                yield f"unknown field `{name}` (known: {', '.join(properties) or 'none'}) - at `{path}`"
            else:
                yield from self.of(item, properties.get(name, additional), f"{path}.{name}", depth)

    def _of_choices(self, value: Any, schema: Mapping[str, Any], path: str, depth: int) -> Iterator[str]:
        for choice in schema.get("allOf", ()):
            yield from self.of(value, choice, path, depth)
        for keyword in ("anyOf", "oneOf"):
            faults = [next(self.of(value, choice, path, depth), None) for choice in schema.get(keyword, ())]
            if faults and None not in faults:
                yield "; or ".join(dict.fromkeys(filter(None, faults)))
            elif keyword == "oneOf" and faults.count(None) > 1:
                yield f"matches {faults.count(None)} of the choices, and must match one - at `{path}`"
        if "not" in schema and next(self.of(value, schema["not"], path, depth), None) is None:
            yield f"matches what is not allowed - at `{path}`"


def _value_faults(value: Any, schema: Mapping[str, Any]) -> Iterator[str]:
    names = schema.get("type", ())
    names = [names] if isinstance(names, str) else names
    if names and not any(_TYPES[name](value) for name in names):
        actual = next((name for name in _TYPES if _TYPES[name](value)), type(value).__name__)
        yield f"expected {' or '.join(names)}, got {actual}"
    if "enum" in schema and not any(_are_equal(value, allowed) for allowed in schema["enum"]):
        yield f"{value!r} is not one of {schema['enum']}"
    if "const" in schema and not _are_equal(value, schema["const"]):
        yield f"expected {schema['const']!r}, got {value!r}"
    if isinstance(value, dict):
        for name in schema.get("required", ()):
            if name not in value:
                yield f"missing required field `{name}`"
    if isinstance(value, str | list):
        unit = "Length" if isinstance(value, str) else "Items"
        least, limit = schema.get(f"min{unit}", 0), schema.get(f"max{unit}")
        if len(value) < least or (limit is not None and len(value) > limit):
            yield f"length {len(value)} is out of range ({least} to {'any' if limit is None else limit})"
    for keyword, (words, holds) in _RANGES.items() if _is_number(value) else ():
        if keyword in schema and not holds(value, schema[keyword]):
            yield f"{value} must be {words} {schema[keyword]}"


def _are_equal(first: Any, second: Any) -> bool:
    """As JSON: 1 is 1.0, but not true."""
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(_are_equal(first[name], second[name]) for name in first)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_are_equal, first, second))
    return isinstance(first, bool) is isinstance(second, bool) and bool(first == second)
