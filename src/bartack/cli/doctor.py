"""`bartack doctor`: what is installed and set, which models answer, and whether the store is whole."""

import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Annotated

import msgspec
import typer

from bartack.cli import suggestions
from bartack.cli.command import new_app
from bartack.cli.doctor_checks import Check, Probe, State, examine
from bartack.cli.doctor_models import model_probes
from bartack.cli.doctor_setup import setup_probes, terminal_probe
from bartack.cli.doctor_store import store_probe
from bartack.cli.store_access import JsonOption, StoreOption, print_json

app = new_app("Check the installation, keys, models and stores.")

_STYLES: dict[State, str] = {"ok": "green", "note": "yellow", "fault": "bold red"}

AskOption = Annotated[
    bool, typer.Option("--ask", help="Really ask each model one small question, at most 20 seconds long.")
]
ModelsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        "-m",
        metavar="VENDOR:MODEL",
        help="A model to ask; may be repeated. Without one, the configured one, that of every vendor whose key is set, "
        "and the local one.",
        autocompletion=suggestions.models,
    ),
]


@app.command(no_args_is_help=False)
def doctor(
    ask: AskOption = False, model: ModelsOption = None, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Check the installation, configuration, keys, models, the store and the terminal.

    Keys are never shown. Without --ask no model is asked, and nothing is ever changed. The exit status is 1 if there is
    a fault.
    """
    probes = [*setup_probes(), *model_probes(model or [], ask=ask), store_probe(store), terminal_probe()]
    if as_json:
        checks = [check for probe in probes for check in examine(probe)]
        print_json({"checks": [msgspec.structs.asdict(check) for check in checks]})
    elif sys.stdout.isatty():
        checks = list(_on_terminal(probes))
    else:
        checks = list(_in_lines(probes))
    raise typer.Exit(1 if any(check.state == "fault" for check in checks) else 0)


def _in_lines(probes: Iterable[Probe]) -> Iterator[Check]:
    """A line for each check as it is made, with tabs between section, name, state, text and hint."""
    for probe in probes:
        for check in examine(probe):
            print("\t".join((check.section, check.name, check.state, check.text, check.hint or "")), flush=True)
            yield check


def _on_terminal(probes: Iterable[Probe]) -> Iterator[Check]:
    """A table for each section as it is done, below its name."""
    from rich.console import Console  # noqa: PLC0415 - slow, and only a terminal needs it
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(highlight=False)
    for section, members in groupby(probes, key=lambda probe: probe.section):
        console.print(Text(section, "bold"))
        table = Table.grid(padding=(0, 2))
        table.add_column(min_width=5)
        table.add_column(min_width=min(20, console.width // 4), overflow="fold")
        table.add_column(overflow="fold")
        for probe in members:
            for check in examine(probe):
                told = Text(check.text)
                if check.hint is not None:
                    told.append(f"\n{check.hint}", "dim")
                table.add_row(Text(check.state, _STYLES[check.state]), Text(check.name), told)
                yield check
        console.print(table)
