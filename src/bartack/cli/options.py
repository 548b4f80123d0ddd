"""What the commands share: how a command is made, the options they have in common, and what Tab completes for those.

Completion functions run only while a shell completes a line, so they import what they need themselves. They offer
nothing where there is nothing to find, and never fail.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

import typer

from bartack.app.errors import error_hint, with_hint
from bartack.cli.plain_help import App
from bartack.nouns.errors import BartackError

_SESSIONS = 50  # more do not fit on a screen
_TIMEOUT_S = 2.0  # for a database server; pressing Tab should not block
_STORES = [  # anything else is a path, which the shell completes
    ("memory:", "until the program ends"),
    ("jsonl:", "a folder"),
    ("sqlite:", "a file"),
    ("postgresql://", "a server"),
]


def new_app(summary: str) -> typer.Typer:
    """An empty typer app for one command module, with plain help pages; errors are left to `bartack.cli.entry`."""
    return App(
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
