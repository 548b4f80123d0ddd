"""What the commands share: how a command is made, the options they have in common, and what Tab completes for those.

Completion functions run only while a shell completes a line, so they import what they need themselves. They offer
nothing where there is nothing to find, and never fail.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from bartack.app.errors import error_hint, with_hint
from bartack.app.settings import Mode
from bartack.nouns.errors import BartackError

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
