"""`bartack schema`: the JSON Schema of the canonical JSON."""

import re
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any

import msgspec
import typer

from bartack.app.errors import with_hint
from bartack.cli.options import UsageError, new_app
from bartack.nouns.errors import ErrorCode
from bartack.nouns.json_values import json_text
from bartack.nouns.schema import json_schema

app = new_app("Print the JSON Schema of the canonical JSON.")

_REFERENCE = re.compile(r'"#/\$defs/(\w+)"')


@app.command(no_args_is_help=False)
def schema(
    type_name: Annotated[
        str | None, typer.Argument(metavar="TYPE", help="A single type, such as Message (default: all).")
    ] = None,
) -> None:
    """Print the JSON Schema of every type in the canonical JSON, or of one."""
    schema = json_schema()
    if type_name is not None:
        if type_name not in schema["$defs"]:
            close = get_close_matches(type_name, schema["$defs"], n=1)
            likely = f"Did you mean {close[0]}? " if close else ""
            error = UsageError(f"Unknown type {type_name!r}.", code=ErrorCode.NOT_FOUND)
            raise with_hint(error, f"{likely}The types are {', '.join(schema['$defs'])}.")
        needed = _reachable(schema["$defs"], type_name)
        definitions = {name: value for name, value in schema["$defs"].items() if name in needed}
        schema = {"$ref": f"#/$defs/{type_name}", **schema, "$defs": definitions}
    text = msgspec.json.format(msgspec.json.encode(schema), indent=2)
    sys.stdout.write(text.decode() + "\n")


def _reachable(definitions: Mapping[str, Any], type_name: str) -> set[str]:
    """The type and every other one that its schema refers to, directly or not."""
    reached: set[str] = set()
    pending = [type_name]
    while pending:
        name = pending.pop()
        if name not in reached:
            reached.add(name)
            pending += _REFERENCE.findall(json_text(definitions[name]))
    return reached
