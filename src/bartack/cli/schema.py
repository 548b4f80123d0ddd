"""`bartack schema`: the JSON Schema of every noun."""

import re
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import typer

from bartack.cli.command import new_app
from bartack.nouns.errors import NotFound
from bartack.nouns.json_values import json_text
from bartack.nouns.schema import json_schema

app = new_app("Print the JSON Schema of Bartack's canonical JSON.")

_REFERENCE = re.compile(r'"#/\$defs/(\w+)"')


@app.command(no_args_is_help=False)
def schema(
    noun: Annotated[str | None, typer.Argument(help="One noun, such as Message; all of them without it.")] = None,
) -> None:
    """Print the JSON Schema of every noun, or of one of them."""
    whole = json_schema()
    if noun is not None:
        if noun not in whole["$defs"]:
            raise NotFound(f"there is no noun {noun!r}; there are {', '.join(whole['$defs'])}")
        needed = _reached(whole["$defs"], noun)
        definitions = {name: value for name, value in whole["$defs"].items() if name in needed}
        whole = {"$ref": f"#/$defs/{noun}", **whole, "$defs": definitions}
    text = msgspec.json.format(msgspec.json.encode(whole), indent=2)
    sys.stdout.write(text.decode() + "\n")


def _reached(definitions: Mapping[str, Any], noun: str) -> set[str]:
    """The noun and every other one that its schema refers to, directly or not."""
    reached: set[str] = set()
    waiting = [noun]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += _REFERENCE.findall(json_text(definitions[name]))
    return reached
