"""Output schemas as the providers that enforce them accept them: a part of JSON Schema.

- Claude (docs.claude.com, "Structured outputs"): objects must be closed, recursion is refused, and so are bounds of
  numbers, lengths of texts and of lists: "For 'integer' type, property 'minimum' is not supported"
  (github.com/agentjido/req_llm/issues/302), "'minItems' values other than 0 or 1 are not supported"
  (github.com/ghostlobster/memorize-everything/issues/93).
- OpenAI in strict mode (platform.openai.com/docs/guides/structured-outputs): objects must be closed and require all
  their properties, and only some keywords are accepted.

A keyword that is removed becomes part of the description, so that the model still sees it. The answer is checked
against the original schema.
"""

from collections.abc import Callable
from typing import Any

from bartack.formats.body_values import beyond
from bartack.nouns.json_values import json_text

__all__ = ["claude_schema", "closed", "fits_strict_mode", "is_closed", "strict_schema"]

Json = dict[str, Any]

_BY_NAME = ("properties", "$defs", "definitions")
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
_PLAIN = frozenset(
    ("type", "title", "description", "enum", "const", "$ref", "$defs", "definitions", "properties", "required", "items")
) | {"additionalProperties", "anyOf"}
_FORMATS = frozenset(("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"))
_BOUNDS = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"))
_STRICT = _PLAIN | _BOUNDS | {"pattern", "minItems", "maxItems"}
_SILENT = frozenset(("discriminator", "default", "title"))  # add nothing to the rest of a schema


def closed(schema: Json) -> Json:
    """The schema with every object closed whose properties are listed and that does not mention others."""

    def close(shape: Json) -> Json:
        is_open = isinstance(shape.get("properties"), dict) and "additionalProperties" not in shape
        return {**shape, "additionalProperties": False} if is_open else shape

    changed: Json = _changed(schema, close)
    return changed


def is_closed(schema: Json) -> bool:
    """Whether every provider that enforces schemas can enforce this one: no free keys, no recursion, no tuples."""
    shapes = _shapes(schema)
    objects = [shape for shape in shapes if shape.get("type") == "object" or "properties" in shape]
    is_free = any(shape.get("additionalProperties") is not False for shape in objects)
    return not is_free and not any("prefixItems" in shape for shape in shapes) and not _is_recursive(schema)


def claude_schema(schema: Json) -> Json | None:
    """The schema for Claude; None if Claude cannot enforce it."""
    schema = closed(schema)
    if not is_closed(schema):
        return None

    def takes(shape: Json, key: str) -> bool:
        return (
            key in _PLAIN
            or key in ("default", "allOf")
            or (key == "format" and shape[key] in _FORMATS | {"uri"})
            or (key == "minItems" and shape[key] in (0, 1))
        )

    changed: Json = _changed(schema, lambda shape: _without(shape, takes))
    return changed


def strict_schema(schema: Json) -> Json | None:
    """The schema for OpenAI's strict mode; None if that cannot enforce it.

    A property with a default is required there, and the default part of its description. One without a default stays
    optional, which strict mode cannot express.
    """

    def takes(shape: Json, key: str) -> bool:
        return key in _STRICT or (key == "format" and shape[key] in _FORMATS)

    def change(shape: Json) -> Json:
        properties = shape.get("properties")
        if isinstance(properties, dict) and isinstance(shape.get("required", []), list):
            defaulted = [name for name, inner in properties.items() if isinstance(inner, dict) and "default" in inner]
            needed = shape.get("required", [])
            described = {
                name: _noted(inner, {"default": inner["default"]})
                for name, inner in properties.items()
                if name in defaulted
            }
            shape = {**shape, "properties": {**properties, **described}}
            if defaulted:
                shape["required"] = [name for name in properties if name in defaulted or name in needed]
        return _without(shape, takes)

    if any("prefixItems" in shape or "allOf" in shape for shape in _shapes(schema)):
        return None
    strict = _changed(schema, change)
    return strict if fits_strict_mode(strict) else None


def _without(shape: Json, takes: Callable[[Json, str], bool]) -> Json:
    """The shape with the keywords that are accepted, the others in its description."""
    if "oneOf" in shape and "anyOf" not in shape:
        shape = {"anyOf" if key == "oneOf" else key: value for key, value in shape.items()}
    lost = {key: value for key, value in shape.items() if not takes(shape, key)}
    remaining = beyond(shape, *lost)
    return _noted(remaining, beyond(lost, *_SILENT))


def _noted(shape: Json, notes: Json) -> Json:
    if not notes:
        return shape
    note = ", ".join(f"{key}: {json_text(value)}" for key, value in notes.items())
    description = shape.get("description")
    return {**shape, "description": f"{description} ({note})" if description else note}


def _changed(shape: Any, change: Callable[[Json], Json]) -> Any:
    """The schema with every schema in it changed, from the outside inwards."""
    if not isinstance(shape, dict):
        return shape
    shape = change(shape)
    inner: Json = {}
    for key, value in shape.items():
        if key in _BY_NAME and isinstance(value, dict):
            inner[key] = {name: _changed(subschema, change) for name, subschema in value.items()}
        elif key in _LISTED and isinstance(value, list):
            inner[key] = [_changed(subschema, change) for subschema in value]
        elif key in ("items", "additionalProperties"):
            inner[key] = _changed(value, change)
    return {**shape, **inner}


def _shapes(schema: Any) -> list[Json]:
    shapes: list[Json] = []

    def note(shape: Json) -> Json:
        shapes.append(shape)
        return shape

    _changed(schema, note)
    return shapes


def _is_recursive(schema: Json) -> bool:
    definitions = {
        f"#/{group}/{name}": definition for group in _BY_NAME[1:] for name, definition in _items(schema.get(group))
    }

    def refers(shape: Any) -> set[str]:
        return (
            {str(definition["$ref"]) for definition in _shapes(shape) if "$ref" in definition}
            if isinstance(shape, dict)
            else set()
        )

    reached = {name: refers(definition) for name, definition in definitions.items()}
    for _ in definitions:
        reached = {
            name: targets.union(*(reached.get(definition, set()) for definition in targets))
            for name, targets in reached.items()
        }
    return any(name in targets for name, targets in reached.items())


def _items(group: Any) -> list[tuple[str, Any]]:
    return list(group.items()) if isinstance(group, dict) else []


def fits_strict_mode(schema: Any) -> bool:
    """Whether every object in a schema is closed and requires all its properties.

    Strict mode refuses other schemas (platform.openai.com/docs/guides/structured-outputs, "Supported schemas").
    """
    return all(map(_is_strict, _shapes(schema)))


def _is_strict(shape: Json) -> bool:
    properties = shape.get("properties")
    if shape.get("type") != "object" and not isinstance(properties, dict):
        return True
    required = shape.get("required")
    texts = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    return shape.get("additionalProperties") is False and texts == set(
        properties if isinstance(properties, dict) else ()
    )
