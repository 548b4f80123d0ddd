"""`bartack doctor`: check what is installed and configured, which models answer, and whether the store is intact."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Annotated

import msgspec
import typer

from bartack.app.extras import EXTRAS, LIBRARY_PACKAGES
from bartack.cli.options import JsonOption, StoreOption, complete_models, new_app
from bartack.cli.output import print_json
from bartack_code.doctor import checks
from bartack_code.doctor.checks import Check, Probe, State, examine, install_hint
from bartack_code.doctor.models import model_probes

app = new_app("Check the installation, keys, models and store.")

_STORE_HINT = "Choose another store with --store or BARTACK_STORE. 'bartack --debug sessions list' gives a traceback."
_STYLES: dict[State, str] = {"ok": "green", "note": "yellow", "error": "bold red"}

AskOption = Annotated[
    bool, typer.Option("--ask", help="Send each model a short prompt and wait up to 20 seconds for the answer.")
]
ModelsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        "-m",
        metavar="VENDOR:MODEL",
        help="Model to check; may be repeated. Default: the configured model, one per vendor whose key is set, and "
        "the local model.",
        autocompletion=complete_models,
    ),
]


@app.command(no_args_is_help=False)
def doctor(
    ask: AskOption = False, model: ModelsOption = None, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Check the installation, configuration, keys, models, store, MCP servers, telemetry and terminal.

    Nothing is changed, keys are never shown, and models are contacted only with --ask. The exit status is 1 if there is
    an error.
    """
    probes = _probes(model or [], ask=ask, store=store)
    if as_json:
        checks = [check for probe in probes for check in examine(probe)]
        print_json({"checks": [msgspec.structs.asdict(check) for check in checks]})
    else:
        checks = list(_print_tables(probes) if sys.stdout.isatty() else _print_lines(probes))
    raise typer.Exit(1 if any(check.state == "error" for check in checks) else 0)


def _probes(models: Sequence[str], *, ask: bool, store: str | None) -> list[Probe]:
    extras, packages = dict.fromkeys(EXTRAS.values()), dict.fromkeys(LIBRARY_PACKAGES.values())
    return [
        Probe("installation", "bartack", checks.versions, "Run: pip install --force-reinstall bartack"),
        *(
            Probe("installation", f"extra {name}", partial(checks.extra, name), install_hint(f"bartack[{name}]"))
            for name in extras
        ),
        *(Probe("installation", name, partial(checks.package, name), install_hint(name)) for name in packages),
        Probe("configuration", "file", checks.config_file, "Point BARTACK_CONFIG at another file."),
        Probe("configuration", "environment", checks.environment, "Unset the variable."),
        Probe("configuration", "default model", checks.default_model, "Choose another with --model."),
        Probe("commands", "sandbox", checks.sandbox, "Set sandbox in [commands] of the configuration."),
        Probe("keys", "keys", checks.keys, "Set the keys again."),
        *model_probes(models, ask=ask),
        Probe("store", "store", partial(checks.store, store), _STORE_HINT),
        Probe("mcp servers", "servers", checks.mcp_servers, "Fix the file, or move it elsewhere."),
        Probe("telemetry", "telemetry", checks.telemetry, "Check the OTEL_ variables."),
        Probe("terminal", "terminal", checks.terminal, "Check TERM and LANG."),
    ]


def _print_lines(probes: Iterable[Probe]) -> Iterator[Check]:
    """One line per check, as it is made: section, name, state, text and hint, separated by tabs."""
    for probe in probes:
        for check in examine(probe):
            print("\t".join((check.section, check.name, check.state, check.text, check.hint or "")), flush=True)
            yield check


def _print_tables(probes: Iterable[Probe]) -> Iterator[Check]:
    """One table per section, as it is done."""
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
                text = Text(check.text)
                if check.hint is not None:
                    text.append(f"\n{check.hint}", "dim")
                table.add_row(Text(check.state, _STYLES[check.state]), Text(check.name), text)
                yield check
        console.print(table)
