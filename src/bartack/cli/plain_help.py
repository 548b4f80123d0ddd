"""Help pages without the types of Python: typer writes `SESSION <str>` where this writes `SESSION`."""

import re
from typing import Any

import typer
from typer.core import TyperCommand

_TYPE = re.compile(r" <[^|>]*>$")  # of an argument; a type with choices is kept, because it lists them


class PlainCommand(TyperCommand):
    """A command whose help page names arguments without the type that they have in Python."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the sections about arguments and options."""
        sections: dict[str, list[tuple[str, str]]] = {"argument": [], "option": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                sections[parameter.param_type_name].append((_TYPE.sub("", record[0]), record[1]))
        for kind, records in sections.items():
            if records:
                with formatter.section(f"{kind.capitalize()}s"):
                    formatter.write_dl(records)


class App(typer.Typer):
    """A typer app whose commands have plain help pages."""

    def command(self, name: str | None = None, **settings: Any) -> Any:
        """See `typer.Typer.command`."""
        return super().command(name, **{"cls": PlainCommand, **settings})
