"""Structured output: a type, or a function -> a JSON Schema for the model; the model's text -> a value of the type.

Instead of text, a model may answer with a call of the tool `final_answer`, whose arguments are the value. The result of
that call is marked, which ends the run (`RunState.answer`).

Providers require an object at the root of a schema. Any other type (a list, a number, a union) is wrapped in an object
with the key ``value``. Reading is lenient, since a wrong answer costs another call: a number may be written as text,
and the wrapper may be missing.
"""

import inspect
import re
from collections.abc import Callable
from typing import Any

import msgspec

from bartack.formats.output_schemas import closed, is_closed
from bartack.nouns.errors import AgentError, ConfigError, ErrorCode, PartValidationError, ToolError, exception_text
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message
from bartack.nouns.parts import ToolCall
from bartack.session.run_state import ANSWERED
from bartack.stream.partial_json import PartialJson
from bartack.tools.definition import ToolDefinition, tool
from bartack.tools.foreign_types import convert, readable, schemas_of, unsupported
from bartack.tools.output import ToolOutput
from bartack.tools.tool_context import ToolContext

__all__ = ["OutputReader", "OutputType", "output_call", "output_text"]

_TOOL = "final_answer"

# A closing fence ends its line, which one inside a JSON string cannot do.
_FENCE = re.compile(r"```[\w-]*\s(.*?)(?:```[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)


class OutputType:
    """The output type of an agent."""

    def __init__(self, type: Any, schema: dict[str, Any] | None = None) -> None:
        """`schema` is used instead of that of the type.

        Raises `PartValidationError` with the code ``invalid_config`` if the type has no JSON Schema.
        """
        try:
            self._type = readable(type)
            schema = schema or _schema_of(self._type)
        except (TypeError, RuntimeError) as error:
            problem = unsupported(error) if isinstance(error, TypeError) else error
            raise ConfigError(f"Unsupported output type {type!r}: {problem}", path="$.output_type") from error
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
        self.schema: dict[str, Any] = closed(schema)
        self.is_enforceable = is_closed(self.schema)
        """Whether every provider that enforces schemas can enforce this one."""

    @property
    def instructions(self) -> str:
        """Instructions for a model whose provider does not enforce output schemas."""
        schema = msgspec.json.encode(self.schema, order="deterministic").decode()
        # DeepSeek requires the word "json" in a prompt (api-docs.deepseek.com/guides/json_mode).
        form = "a single JSON object (application/json) and nothing else"
        return f"Answer with {form}. It must match this JSON Schema:\n{schema}"

    @property
    def tool(self) -> ToolDefinition:
        """The tool that a model calls to answer, with the value as its arguments."""

        async def accept(arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
            return ToolOutput("Received.", metadata={ANSWERED: True})

        return ToolDefinition(
            name=_TOOL,
            description="Give the final answer. Call this tool once you have all that it needs, and do not write text.",
            parameter_schema=self.schema,
            execute=accept,
            read=lambda arguments: arguments,  # more lenient than its schema; a wrong value is corrected as text is
            idempotent=True,
            defer_loading=False,
        )

    def read(self, text: str) -> Any:
        """The value in a model's text; `PartValidationError` if it does not match the type."""
        return self._convert(self.plain(text))

    def plain(self, text: str) -> Any:
        """The value in a model's text as plain JSON, not checked; `PartValidationError` if there is none."""
        body = text.strip()
        faults: list[ValueError] = []
        for candidate in (body, *reversed(_fenced(body))):
            try:
                return self._unwrapped(msgspec.json.decode(candidate))
            except ValueError as error:
                faults.append(error)
        if not self._is_wrapped:
            raise PartValidationError(str(faults[0])) from faults[0]
        return (_fenced(body) or [body])[-1].strip()

    def partial(self, text: str) -> Any:
        """The part of the value received so far, as plain JSON; None before it begins."""
        body = text.lstrip()
        reader = PartialJson()
        reader.feed(body if body.startswith(("{", "[")) else (_fenced(body) or [body])[-1])
        value = reader.value
        return None if value is msgspec.UNSET else self._unwrapped(value)

    def _unwrapped(self, value: Any) -> Any:
        is_wrapper = self._is_wrapped and isinstance(value, dict) and value.keys() <= {"value"}
        return value.get("value") if is_wrapper else value

    def _convert(self, value: Any) -> Any:
        try:
            return convert(value, self._type)
        except ValueError as error:  # including those of msgspec and pydantic
            raise PartValidationError(str(error)) from None


class OutputReader:
    """How an agent's answers become its output: read as a type, passed to a function, checked by a validator.

    The model answers with the arguments of the function. The function may be called again when the last result of a
    session is read, so it should have no side effects.
    """

    def __init__(
        self, type: Any, function: Callable[..., Any] | None = None, validator: Callable[..., Any] | None = None
    ) -> None:
        """`type` may also be an `OutputType`, for one that has only a schema.

        Raises `PartValidationError` with the code ``invalid_config`` for both a type and a function, and if a model
        could not answer with the type or call the function.
        """
        self._function: ToolDefinition | None = None
        self._validator = validator
        self.type: OutputType | None = None
        """None: the text of the answer is the output."""
        if function is not None:
            if type is not str:
                raise _invalid_function_error("An agent has an output_type or an output_function, not both.")
            try:
                self._function = tool(function)
            except TypeError as error:
                raise _invalid_function_error(str(error)) from error
            self.type = OutputType(dict[str, Any], self._function.parameter_schema)
        elif isinstance(type, OutputType):
            self.type = type
        elif type is not str:
            self.type = OutputType(type)

    async def value(self, answer: Message, context: ToolContext[Any]) -> Any:
        """The output; `PartValidationError` or `ToolError` for an answer that the model should correct.

        Raises `AgentError` if the function or the validator fails.
        """
        value: Any = answer.text if self.type is None else self.type.read(output_text(answer))
        if self._function is not None:
            value = await _called("function", self._function.execute, self._function.read_arguments(value), context)
        if self._validator is not None:
            value = await _called("validator", self._validator, value)
        return value


def output_call(answer: Message) -> ToolCall | None:
    """The call with which a model answered; None if it answered with text."""
    return next((call for call in answer.tool_calls if call.tool_name == _TOOL), None)


def output_text(answer: Message) -> str:
    """The text of the value: the arguments of that call as JSON, or else the text of the answer."""
    call = output_call(answer)
    if call is None:
        return answer.text
    return json_text(call.arguments) if call.raw_args_text is None else call.raw_args_text


async def _called(role: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function returns; `AgentError` with the code ``invalid_output`` if it fails."""
    try:
        value = function(*arguments)
        return await value if inspect.isawaitable(value) else value
    except (PartValidationError, ToolError):  # the model may correct it
        raise
    except Exception as error:
        text = f"The output {role} raised {exception_text(error)}. It may raise TryAgain for a wrong answer."
        raise AgentError(text, code=ErrorCode.INVALID_OUTPUT, cause=error) from error


def _invalid_function_error(problem: str) -> PartValidationError:
    return ConfigError(problem, path="$.output_function")


def _schema_of(type: Any) -> dict[str, Any]:
    (schema,), components = schemas_of(type)
    name = schema.get("$ref", "").removeprefix("#/$defs/")
    if name in components:  # some providers refuse a reference at the root (not verified)
        root = components[name]
        definitions = {key: value for key, value in components.items() if key != name or _refers(components, name)}
        return {**root, **({"$defs": definitions} if definitions else {})}
    return {**schema, **({"$defs": components} if components else {})}


def _refers(components: dict[str, Any], name: str) -> bool:
    return f'"#/$defs/{name}"' in json_text(components)


def _fenced(text: str) -> list[str]:
    """What is in the Markdown fences of a text. The last one may still be open."""
    return _FENCE.findall(text)
