"""`--output-schema FILE`: a JSON Schema in a file -> the output of an agent, and the check of its answers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bartack.agent.output import OutputType
from bartack.app.errors import with_hint
from bartack.nouns.errors import BartackError, ErrorCode
from bartack.session.schema_check import argument_check


class SchemaOutput(NamedTuple):
    """The output type of an agent, and the validator that an answer has to pass."""

    type: OutputType
    validate: Callable[[Any], Any]


def load_output_schema(path: Path) -> SchemaOutput:
    """The output that the schema in this file describes. Raises `BartackError` with a hint."""
    try:
        schema = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise _invalid(path, f"cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _invalid(path, f"is not valid JSON: {error}") from error
    if not isinstance(schema, dict):
        raise _invalid(path, "must contain a JSON object")
    is_object = schema.get("type") == "object"
    output = OutputType(Any, schema)
    try:
        check = argument_check(output.schema)
    except BartackError as error:
        raise _invalid(path, f"is not a usable JSON Schema: {error.message}") from error

    def validate(value: Any) -> Any:
        check(value if is_object else {"value": value})
        return value

    return SchemaOutput(output, validate)


def _invalid(path: Path, problem: str) -> BartackError:
    error = BartackError(f"The output schema {path} {problem.rstrip('.')}.", code=ErrorCode.INVALID_CONFIG)
    return with_hint(
        error, 'Example: {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}'
    )
