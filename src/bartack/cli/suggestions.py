"""What the Tab key offers as the value of an option or argument: words, each with its meaning.

Each function is the `autocompletion` of a typer option; typer picks the words that fit what is typed so far. They run
only while a shell completes a line, so what they need is imported inside. Whoever presses Tab wants no errors: where
nothing can be found out, nothing is offered.
"""

from collections.abc import Iterator

import typer

__all__ = ["models", "sessions", "stores"]

_MOST = 50  # sessions: more than fit on a screen help nobody
_PATIENCE_S = 2.0  # for a database server: whoever pressed Tab is waiting

_STORES = (
    ("memory:", "until the program ends"),
    ("jsonl:", "a folder"),
    ("sqlite:", "a file"),
    ("postgresql://", "a server"),
)


def models() -> Iterator[tuple[str, str]]:
    """Local models by their names, and the beginnings of all others."""
    from bartack.models.vendors import VENDORS  # noqa: PLC0415
    from bartack.models.weights import known_models  # noqa: PLC0415

    yield "local", "the local model"
    for name, model in known_models().items():
        yield f"local:{name}", model.summary
    for vendor in sorted(VENDORS):
        yield f"{vendor}:", VENDORS[vendor].format


def stores() -> Iterator[tuple[str, str]]:
    """The kinds of stores. Anything else is a path, which the shell completes."""
    yield from _STORES


def sessions(ctx: typer.Context) -> Iterator[tuple[str, str]]:
    """The ids and titles of the sessions that changed last, in the store that the line names; none where there is no
    store."""
    import asyncio  # noqa: PLC0415

    from bartack.nouns.errors import BartackError  # noqa: PLC0415

    try:
        yield from asyncio.run(_newest(ctx.params.get("store")))
    except (
        BartackError,
        OSError,
        ImportError,
    ):  # no store, none that can be read, or none for which a library is there
        return


async def _newest(store: str | None) -> list[tuple[str, str]]:
    import asyncio  # noqa: PLC0415

    from bartack.cli.settings import first_said  # noqa: PLC0415
    from bartack.cli.store_place import is_there, place_of_store  # noqa: PLC0415
    from bartack.store import open_store  # noqa: PLC0415

    place = place_of_store(first_said(store, "store"))
    async with asyncio.timeout(_PATIENCE_S):
        if not await is_there(place):
            return []
        opened = await open_store(place.url)
        try:
            page = await opened.sessions(_MOST)
        finally:
            await opened.close()
    return [(info.id, info.title or "") for info in page.items]
