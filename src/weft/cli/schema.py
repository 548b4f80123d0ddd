"""`weft schema`: the JSON Schema of every noun."""

import sys
from typing import Annotated

import msgspec
import typer

from weft.cli.command import new_app
from weft.errors import NotFound
from weft.schema import json_schema

app = new_app("Print the JSON Schema of Weft's canonical JSON.")


@app.command(no_args_is_help=False)
def schema(
    noun: Annotated[str | None, typer.Argument(help="One noun, such as Message; all of them without it.")] = None,
) -> None:
    """Print the JSON Schema of every noun, or of one of them."""
    whole = json_schema()
    if noun is not None:
        if noun not in whole["$defs"]:
            raise NotFound(f"there is no noun {noun!r}; there are {', '.join(whole['$defs'])}")
        whole = {"$ref": f"#/$defs/{noun}", **whole}
    text = msgspec.json.format(msgspec.json.encode(whole), indent=2)
    sys.stdout.write(text.decode() + "\n")
