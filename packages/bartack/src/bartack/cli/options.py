"""What the commands share: how a command is made and run, the options they have in common, and what Tab completes for
those.

Completion functions run only while a shell completes a line, so they import what they need themselves. They offer
nothing where there is nothing to find, and never fail.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from bartack.app.errors import error_hint, with_hint
from bartack.app.settings import Mode, setting
from bartack.cli.output import note
from bartack.nouns.errors import BartackError, ErrorCode

_SESSIONS = 50  # more do not fit on a screen
_TIMEOUT_S = 2.0  # limit for a database server; pressing Tab should not block
_STORES = [  # anything else is a path, which the shell completes
    ("memory:", "until the program ends"),
    ("jsonl:", "a folder"),
    ("sqlite:", "a file"),
    ("postgresql://", "a server"),
]
_TYPE = re.compile(r" <[^|>]*>$")  # typer's type of an argument; one with choices stays


class _Coercion:
    """typer's coercion of a parameter's value. It loads pydantic, so a value that is right already does without it."""

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build = build

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value in the parameter's type."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        described = param.type_descriptor
        if described.parameter_info.parser is None and _is_right(value, described.annotation):
            return value
        return self._build().coerce(value, param=param, ctx=ctx)


# Text comes from the command line, a number of these types only from a default.
_UNCOERCED: dict[type[Any], tuple[Any, ...]] = {str: (str, str | None), int: (int, int | None)}


def _is_right(value: Any, annotation: Any) -> bool:
    is_choice = get_origin(annotation) is Literal and value in get_args(annotation)
    return is_choice or annotation in _UNCOERCED.get(type(value), ())


def _coerce_lazily(parameters: Iterable[Any]) -> None:
    for parameter in parameters:
        parameter.get_runtime_param = partial(_Coercion, parameter.get_runtime_param)


class _Group(TyperGroup):
    """A group of commands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line up to the command."""
        _coerce_lazily(self.get_params(ctx))
        return super().parse_args(ctx, args)


class PlainCommand(TyperCommand):
    """A command whose help page names arguments without the type that they have in Python: `SESSION` where typer writes
    `SESSION <str>`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line."""
        _coerce_lazily(self.get_params(ctx))
        return super().parse_args(ctx, args)

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


def new_app(summary: str) -> typer.Typer:
    """An empty typer app for one command module, with plain help pages; errors are left to `bartack.cli.entry`."""
    return App(
        cls=_Group,
        help=summary,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,  # rich help pages take three times as long
        pretty_exceptions_enable=False,
    )


class UsageError(BartackError):
    """The arguments or settings are wrong; the command exits with status 2."""

    exit_status = 2

    @classmethod
    def of(cls, error: BartackError) -> "UsageError":
        """The same message and hint as a usage error."""
        return with_hint(cls(error.message, code=error.code), error_hint(error))


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn each `BartackError` raised inside into a `UsageError`."""
    try:
        yield
    except BartackError as error:
        raise UsageError.of(error) from error


# -- completion


def complete_models() -> Iterator[tuple[str, str]]:
    """The local models by name, and the prefix of every vendor."""
    from bartack.models.vendors import VENDORS  # noqa: PLC0415
    from bartack.models.weights import known_models  # noqa: PLC0415

    yield "local", "the local model"
    for name, model in known_models().items():
        yield f"local:{name}", model.summary
    for vendor in sorted(VENDORS):
        yield f"{vendor}:", VENDORS[vendor].format


def complete_sessions(ctx: typer.Context) -> Iterator[tuple[str, str]]:
    """The ids and titles of the sessions that changed last, in the store named on the line."""
    import asyncio  # noqa: PLC0415

    try:
        yield from asyncio.run(_latest_sessions(ctx.params.get("store")))
    except (BartackError, OSError, ImportError):  # no store, an unreadable one, or an extra is missing
        return


async def _latest_sessions(store: str | None) -> list[tuple[str, str]]:
    import asyncio  # noqa: PLC0415

    from bartack.app.sessions import configured_store, opened_store, short_ids  # noqa: PLC0415

    address = configured_store(store)
    async with asyncio.timeout(_TIMEOUT_S):
        if not await address.exists():
            return []
        async with opened_store(address) as opened:
            page = await opened.sessions(_SESSIONS)
    return list(
        zip(short_ids([info.id for info in page.items]), [info.title or "" for info in page.items], strict=True)
    )


# -- options

ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        envvar="BARTACK_MODEL",
        metavar="VENDOR:MODEL",
        autocompletion=complete_models,
        help="Model to use; 'local' or 'local:NAME' runs on this machine. "
        "Default: a model from the vendor whose API key is set, else the local model.",
    ),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="BARTACK_STORE",
        metavar="URL",
        autocompletion=lambda: _STORES,
        help="Store to use: memory:, jsonl:DIR, sqlite:FILE, a path, or postgresql://USER@HOST/DATABASE. "
        "Default: from the configuration file, else a SQLite file in the user's data folder.",
    ),
]
ToolOption = Annotated[
    list[str] | None,
    typer.Option("--tool", metavar="MODULE:NAME", help="Python function to offer as a tool. May be repeated."),
]
ModeOption = Annotated[
    Mode | None,
    typer.Option(
        metavar="ask|plan|edit|sandbox|yes",
        help="What runs without asking: nothing (ask), nothing, with changes refused (plan), changes to files (edit), "
        "also commands in the sandbox (sandbox), everything (yes).",
    ),
]
McpOption = Annotated[
    list[str] | None,
    typer.Option(
        "--mcp",
        metavar="FILE | NAME",
        help="MCP servers to use: a JSON file with mcpServers, or a name from 'bartack mcp list'. May be repeated.",
    ),
]
ContinueOption = Annotated[
    bool, typer.Option("--continue", "-c", help="Continue the latest session of this directory.")
]
InstructionsOption = Annotated[
    str | None,
    typer.Option(
        "--instructions", envvar="BARTACK_INSTRUCTIONS", metavar="TEXT", help="System instructions for the model."
    ),
]
OtelOption = Annotated[
    bool | None,
    typer.Option(
        "--otel/--no-otel",
        envvar="BARTACK_OTEL",
        help="Send spans and metrics to an OpenTelemetry collector; OTEL_ variables configure it.",
    ),
]
QueueOption = Annotated[str, typer.Option("--queue", metavar="NAME", help="Name of the queue in the store.")]
EngineOption = Annotated[
    Literal["store", "dbos"],
    typer.Option(
        "--engine",
        envvar="BARTACK_ENGINE",
        help="Queue engine: the store itself, or DBOS in the same PostgreSQL database, for many workers.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
SessionArgument = Annotated[
    str,
    typer.Argument(metavar="SESSION", help="Session id, or its first characters.", autocompletion=complete_sessions),
]


# -- running a command
#
# typer reports a wrong command line with a usage line, in its own terms. Here it becomes one sentence and a hint.

_EXTRA = re.compile(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", re.DOTALL)
_PLAIN = [  # pydantic's messages in plain words
    (re.compile(r"Value error, "), ""),
    (re.compile(r"does not match the formats? .*"), "is not a valid time"),
    (re.compile(r"Input should be a valid integer.*"), "it must be an integer"),
    (re.compile(r"Input should be greater than or equal to "), "it must be at least "),
    (re.compile(r"Input should be less than or equal to "), "it must be at most "),
]
_NO_COMMAND = re.compile(r"No such command '(.*?)'", re.DOTALL)


def run_app(app: typer.Typer, words: Sequence[str], name: str) -> int:
    """Run a command and return its exit status. Raises `UsageError` with a hint, and what the command raises."""
    try:
        status = app(list(words), prog_name=name, standalone_mode=False)
    except typer.Abort:  # Ctrl-C or the end of the input at a question
        print("Stopped.", file=sys.stderr)
        return 1
    except typer.TyperException as error:
        if error.format_message().startswith("Usage: "):  # a group without a command: the message is its help page
            print(error.format_message(), file=sys.stderr)
            return 2
        report = usage_report(error, name)
        raise with_hint(UsageError(report.text, code=ErrorCode.INVALID_CONFIG), report.hint) from error
    return status if isinstance(status, int) else 0


class UsageReport(NamedTuple):
    """What is wrong with a command line, and what to do."""

    text: str
    hint: str


def usage_report(error: typer.TyperException, name: str) -> UsageReport:
    """The error of the command with this name in one sentence, and a hint."""
    context = getattr(error, "ctx", None)
    path = name if context is None else context.command_path
    help_hint = f"'{path} --help' explains the arguments."
    message = " ".join(error.format_message().split())
    option = getattr(error, "option_name", None)
    if option is not None and message.startswith("No such option"):
        params = context.command.get_params(context) if context else []
        option_names = [
            name for parameter in params for name in parameter.opts if name.startswith("-")
        ]  # not those of arguments
        close = get_close_matches(option, option_names, n=1, cutoff=0.7)
        return UsageReport(f"Unknown option {option!r}.", f"Did you mean {close[0]!r}?" if close else help_hint)
    if match := _EXTRA.match(message):
        return UsageReport(f"Unexpected argument {match[1]!r}.", f"Quote an argument with spaces. {help_hint}")
    if match := _NO_COMMAND.match(message):
        close = get_close_matches(match[1], context.command.commands if context else (), n=1)
        hint = f"Did you mean '{path} {close[0]}'?" if close else f"'{path} --help' lists the commands."
        return UsageReport(f"Unknown command {match[1]!r} of {path}.", hint)
    text = message.removeprefix("Invalid value: ")
    for pattern, plain in _PLAIN:
        text = pattern.sub(plain, text)
    text = f"{text[:1].upper()}{text[1:]}" if not text.startswith("--") else text
    return UsageReport(text if text.endswith((".", "?")) else f"{text}.", help_hint)


# -- telemetry
#
# What `--otel` asks for: the spans and metrics of a command, from its start to its end.

if TYPE_CHECKING:
    from bartack.app.telemetry_export import TelemetryExport


def export_for(flag: bool | None) -> "TelemetryExport | None":
    """The export that --otel or the settings ask for; None without. Errors carry a hint.

    Raises `BartackError` for wrong variables, and `ModuleNotFoundError` if an extra is missing.
    """
    if not setting("otel", flag):
        return None
    from bartack.app.telemetry_export import TelemetryExport  # noqa: PLC0415 - slow, and needs an extra

    return TelemetryExport()


@contextmanager
def exporting(export: "TelemetryExport | None") -> Iterator[None]:
    """Deliver what is left when the block ends, and print a warning if that fails."""
    if export is None:
        yield
        return
    try:
        with export:
            yield
    finally:
        if export.problem is not None:
            note(f"warning: {export.problem}")
