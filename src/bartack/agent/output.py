"""Structured output: a type -> the JSON Schema a model is given, and its text -> a value of the type.

A provider's schema has an object at its root. A type whose JSON is none (a list, a number, a union) is put into one,
under the key ``value``, and taken out again.
"""

from typing import Any

import msgspec

from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.json_values import json_text

__all__ = ["OutputType"]


class OutputType:
    """How values of one type are asked for and read."""

    def __init__(self, type: Any) -> None:
        """Raises `PartValidationError` with the code ``invalid_config`` for a type that has no JSON Schema."""
        self.type = type
        self._is_pydantic = hasattr(type, "model_validate_json") and hasattr(type, "model_json_schema")
        try:
            schema = type.model_json_schema() if self._is_pydantic else _schema(type)
        except (TypeError, RuntimeError) as error:
            raise PartValidationError(
                f"{type!r} cannot be an output type: {error}", path="$.output_type", code=ErrorCode.INVALID_CONFIG
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
        """What to tell a model that takes no schema."""
        schema = msgspec.json.encode(self.schema, order="deterministic").decode()
        return f"Answer with one JSON object and nothing else. It matches this JSON Schema:\n{schema}"

    def read(self, text: str) -> Any:
        """The value that a model's text says; `PartValidationError` says what is wrong with it."""
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
        except ValueError as error:  # msgspec's and pydantic's own are among them
            raise PartValidationError(str(error), rule=None) from error


def _schema(type: Any) -> dict[str, Any]:
    (schema,), components = msgspec.json.schema_components([type], ref_template="#/$defs/{name}")
    name = schema.get("$ref", "").removeprefix("#/$defs/")
    if name in components:  # a root that is a reference is refused by some providers
        root = components[name]
        others = {key: value for key, value in components.items() if key != name or _refers(components, name)}
        return {**root, **({"$defs": others} if others else {})}
    return {**schema, **({"$defs": components} if components else {})}


def _refers(components: dict[str, Any], name: str) -> bool:
    return f'"#/$defs/{name}"' in json_text(components)


def _unfenced(text: str) -> str:
    """The text inside a Markdown fence, which models like to put around JSON."""
    body = text.strip()
    if body.startswith("```") and body.endswith("```"):
        _, _, body = body.partition("\n")
        body = body[:-3]
    return body
