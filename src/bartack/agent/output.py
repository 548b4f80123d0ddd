"""Structured output: a type -> a JSON Schema for the model; the model's text -> a value of the type.

Providers require an object at the root of a schema. Any other type (a list, a number, a union) is wrapped in an object
with the key ``value``.
"""

from typing import Any

import msgspec

from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.json_values import json_text

__all__ = ["OutputType"]


class OutputType:
    """The output type of an agent."""

    def __init__(self, type: Any) -> None:
        """Raises `PartValidationError` with the code ``invalid_config`` if the type has no JSON Schema."""
        self.type = type
        self._is_pydantic = hasattr(type, "model_validate_json") and hasattr(type, "model_json_schema")
        try:
            schema = type.model_json_schema() if self._is_pydantic else _schema(type)
        except (TypeError, RuntimeError) as error:
            raise PartValidationError(
                f"Unsupported output type {type!r}: {error}", path="$.output_type", code=ErrorCode.INVALID_CONFIG
            ) from error
        self._is_wrapped = schema.get("type") != "object"
        if self._is_wrapped:
            definitions = schema.pop("$defs", None)
            schema = {
                "type": "object",
                "properties": {"value": schema},
                "required": ["value"],
                "additionalProperties": False,
                **({} if definitions is None else {"$defs": definitions}),
            }
        self.schema: dict[str, Any] = schema

    @property
    def instructions(self) -> str:
        """Instructions for a model that does not support output schemas."""
        schema = msgspec.json.encode(self.schema, order="deterministic").decode()
        return f"Answer with a single JSON object and nothing else. It must match this JSON Schema:\n{schema}"

    def read(self, text: str) -> Any:
        """The value in a model's text; `PartValidationError` if it does not match the type."""
        body = _unfenced(text)
        try:
            if self._is_pydantic:
                return self.type.model_validate_json(body)
            if not self._is_wrapped:
                return msgspec.json.decode(body, type=self.type)
            outer = msgspec.json.decode(body)
            if not isinstance(outer, dict) or "value" not in outer:
                raise PartValidationError('expected an object with the key "value"')
            return msgspec.convert(outer["value"], self.type)
        except ValueError as error:  # including those of msgspec and pydantic
            raise PartValidationError(str(error)) from error


def _schema(type: Any) -> dict[str, Any]:
    (schema,), components = msgspec.json.schema_components([type], ref_template="#/$defs/{name}")
    name = schema.get("$ref", "").removeprefix("#/$defs/")
    if name in components:  # some providers refuse a reference at the root (not verified)
        root = components[name]
        others = {key: value for key, value in components.items() if key != name or _refers(components, name)}
        return {**root, **({"$defs": others} if others else {})}
    return {**schema, **({"$defs": components} if components else {})}


def _refers(components: dict[str, Any], name: str) -> bool:
    return f'"#/$defs/{name}"' in json_text(components)


def _unfenced(text: str) -> str:
    """The text without the Markdown fence that models often put around JSON."""
    body = text.strip()
    if body.startswith("```") and body.endswith("```"):
        _, _, body = body.partition("\n")
        body = body[:-3]
    return body
