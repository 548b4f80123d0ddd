"""Structured output: a type, or a function -> a JSON Schema for the model; the model's text -> a value of the type.

Providers require an object at the root of a schema. Any other type (a list, a number, a union) is wrapped in an object
with the key ``value``. Reading is lenient, since a wrong answer costs another call: a number may be written as text,
and the wrapper may be missing.
"""

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.json_values import json_text
from bartack.stream.partial_json import PartialJson
from bartack.tools.foreign_types import foreign_schema, foreign_value
from bartack.tools.signature import Signature
from bartack.tools.tool_context import ToolContext

__all__ = ["OutputFunction", "OutputReader", "OutputType"]


class OutputType:
    """The output type of an agent."""

    def __init__(self, type: Any) -> None:
        """Raises `PartValidationError` with the code ``invalid_config`` if the type has no JSON Schema."""
        self._members: tuple[Any, ...] = (type,)
        try:
            schema = self._schema(type)
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

    def _schema(self, type: Any) -> dict[str, Any]:
        try:
            return _schema_of(type)
        except TypeError:
            if get_origin(type) not in (Union, UnionType):
                raise
        self._members = get_args(type)  # msgspec reads unions of classes only if they are tagged
        schemas = [_schema_of(member) for member in self._members]
        definitions: dict[str, Any] = {}
        for schema in schemas:
            definitions |= schema.pop("$defs", {})
        return {"anyOf": schemas, **({"$defs": definitions} if definitions else {})}

    @property
    def instructions(self) -> str:
        """Instructions for a model that does not support output schemas."""
        schema = msgspec.json.encode(self.schema, order="deterministic").decode()
        return f"Answer with a single JSON object and nothing else. It must match this JSON Schema:\n{schema}"

    def read(self, text: str) -> Any:
        """The value in a model's text; `PartValidationError` if it does not match the type."""
        body = _unfenced(text)
        try:
            value = msgspec.json.decode(body)
        except ValueError as error:
            if not self._is_wrapped:
                raise PartValidationError(str(error)) from error
            value = body
        return self._convert(self._unwrapped(value))

    def partial(self, text: str) -> Any:
        """What has arrived of the value, as plain JSON; None before it begins."""
        reader = PartialJson()
        reader.feed(text.lstrip().removeprefix("```json").removeprefix("```"))
        value = reader.value
        return None if value is msgspec.UNSET else self._unwrapped(value)

    def _unwrapped(self, value: Any) -> Any:
        is_wrapper = self._is_wrapped and isinstance(value, dict) and value.keys() <= {"value"}
        return value.get("value") if is_wrapper else value

    def _convert(self, value: Any) -> Any:
        """The value as the member of the union that knows most of its keys."""
        found: list[tuple[int, Any]] = []
        faults: list[str] = []
        for member in self._members:
            try:
                made = msgspec.convert(value, member, strict=False, dec_hook=foreign_value)
            except ValueError as error:  # including those of msgspec and pydantic
                faults.append(str(error))
            else:
                found.append((len(value.keys() - _field_names(member)) if isinstance(value, dict) else 0, made))
        if not found:
            raise PartValidationError("; or ".join(faults))
        return min(found, key=lambda one: one[0])[1]


class OutputFunction:
    """A function whose arguments the model answers with, and which returns the output.

    It may be called again when the last result of a session is read, so it should have no effects of its own.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        """Raises `PartValidationError` with the code ``invalid_config`` if a model could not call it."""
        try:
            self._signature = Signature(function)
        except TypeError as error:
            raise PartValidationError(str(error), path="$.output_function", code=ErrorCode.INVALID_CONFIG) from error
        self._function = function
        self.type = OutputType(dict[str, Any])
        self.type.schema = self._signature.schema

    async def call(self, arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        """What the function returns; `ToolError` if the arguments are invalid."""
        values = self._signature.read(arguments)
        made = self._function(**values, **dict.fromkeys(self._signature.context_names, context))
        return await made if inspect.isawaitable(made) else made


class OutputReader:
    """How an agent's answers become its output: read as a type, passed to a function, checked by a validator."""

    def __init__(
        self, type: Any, function: Callable[..., Any] | None = None, validator: Callable[..., Any] | None = None
    ) -> None:
        if function is not None and type is not str:
            text = "An agent has an output_type or an output_function, not both."
            raise PartValidationError(text, path="$.output_function", code=ErrorCode.INVALID_CONFIG)
        self._function = None if function is None else OutputFunction(function)
        self._validator = validator
        self.type: OutputType | None = None
        """None: the text of the answer is the output."""
        if self._function is not None:
            self.type = self._function.type
        elif type is not str:
            self.type = OutputType(type)

    async def value(self, text: str, context: ToolContext[Any]) -> Any:
        """The output; `PartValidationError` or `ToolError` for an answer that the model should correct."""
        value: Any = text if self.type is None else self.type.read(text)
        if self._function is not None:
            value = await self._function.call(value, context)
        if self._validator is not None:
            checked = self._validator(value)
            value = await checked if inspect.isawaitable(checked) else checked
        return value


def _schema_of(type: Any) -> dict[str, Any]:
    foreign: dict[str, Any] = {}
    (schema,), components = msgspec.json.schema_components(
        [type], ref_template="#/$defs/{name}", schema_hook=lambda hint: foreign_schema(hint, foreign)
    )
    components = {**components, **foreign}
    name = schema.get("$ref", "").removeprefix("#/$defs/")
    if name in components:  # some providers refuse a reference at the root (not verified)
        root = components[name]
        others = {key: value for key, value in components.items() if key != name or _refers(components, name)}
        return {**root, **({"$defs": others} if others else {})}
    return {**schema, **({"$defs": components} if components else {})}


def _refers(components: dict[str, Any], name: str) -> bool:
    return f'"#/$defs/{name}"' in json_text(components)


def _field_names(type: Any) -> set[str]:
    if is_dataclass(type):
        return {field.name for field in fields(type)}
    if is_typeddict(type):
        return set(get_type_hints(type))
    return {*getattr(type, "__struct_encode_fields__", ()), *getattr(type, "model_fields", ())}


def _unfenced(text: str) -> str:
    """The text without the Markdown fence that models often put around JSON."""
    body = text.strip()
    if body.startswith("```") and body.endswith("```"):
        _, _, body = body.partition("\n")
        body = body[:-3]
    return body
