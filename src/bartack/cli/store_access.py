"""What every command on sessions has in common: which store, how it is opened, and what to hint at when it fails."""

import asyncio
import shlex
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from bartack.cli import suggestions
from bartack.cli.safe_json import json_bytes
from bartack.cli.settings import first_said
from bartack.cli.store_place import StorePlace, place_of_store
from bartack.nouns.errors import ErrorCode, StoreError
from bartack.store import SessionStore, open_store

__all__ = ["JsonOption", "SessionArgument", "StoreOption", "print_json", "store_hint", "store_words", "with_store"]

T = TypeVar("T")

_PLACES = "memory:, jsonl:DIR, sqlite:FILE, a path, or postgresql://USER@HOST/DATABASE"

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="BARTACK_STORE",
        metavar="URL",
        autocompletion=suggestions.stores,
        help=f"The store: {_PLACES}. Without one, that of the configuration file, or the SQLite file in the user's "
        "data folder.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
SessionArgument = Annotated[
    str, typer.Argument(metavar="SESSION", help="The session's id.", autocompletion=suggestions.sessions)
]

_HINTS = {
    ErrorCode.NOT_FOUND: "bartack sessions list shows what there is",
    ErrorCode.CONFLICT: "another program works on this session; try again when it is done",
    ErrorCode.STORAGE_CORRUPT: "if this is the right store, bartack sessions fsck says what is damaged",
    ErrorCode.STORAGE_UNSUPPORTED: "check --store and BARTACK_STORE, or upgrade Bartack",
    ErrorCode.MISSING_DEPENDENCY: f"--store and BARTACK_STORE take {_PLACES}",
    ErrorCode.INVALID_CONFIG: f"--store and BARTACK_STORE take {_PLACES}",
    ErrorCode.STORAGE_FAILED: "is there room, and may you write there? --store and BARTACK_STORE name another place",
}
_NO_SERVER = "is the server up, and may you use this database? --store and BARTACK_STORE name another place"


def store_hint(code: ErrorCode, place: str | None) -> str | None:
    """What to do about a `StoreError` with this code, of the store at `place`; None where there is nothing to say."""
    is_server = place is not None and place.startswith(("postgres:", "postgresql:"))
    return _NO_SERVER if is_server and code is ErrorCode.STORAGE_FAILED else _HINTS.get(code)


def with_store(store: str | None, work: Callable[[SessionStore], Awaitable[T]], *, may_be_new: bool = False) -> T:
    """What `work` gives, with the store open; a `StoreError` carries a hint as its note."""
    said = first_said(store, "store")
    try:
        place = place_of_store(said)
        if said is not None:
            _check_place(place, may_be_new=may_be_new)
        return asyncio.run(_opened(place.url, work))
    except StoreError as error:
        hint = store_hint(error.code, said)
        if hint is not None:
            error.add_note(hint)
        raise


async def _opened(place: str, work: Callable[[SessionStore], Awaitable[T]]) -> T:
    store = await open_store(place)
    try:
        return await work(store)
    finally:
        await store.close()


def _check_place(place: StorePlace, *, may_be_new: bool) -> None:
    """A mistyped path is an error: looking at a store makes none, and leaves other programs' files alone."""
    if place.kind in {"memory", "postgres"}:
        return
    path = Path(place.url.partition(":")[2])
    if not path.exists():
        if may_be_new:
            return
        raise StoreError(f"there is no store at {path}", code=ErrorCode.INVALID_CONFIG)
    if place.kind == "sqlite" and not _may_be_sqlite(path):
        raise StoreError(f"{path} is not a SQLite database", code=ErrorCode.INVALID_CONFIG)


def _may_be_sqlite(path: Path) -> bool:
    """By its first bytes. This process has not opened it yet, so that closing it here costs no lock."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(16) in {b"", b"SQLite format 3\0"}


def store_words(url: str) -> str:
    """The words that name this store in a command to come; none where it is the one that is taken without them."""
    place = place_of_store(url)
    if place.url == place_of_store(first_said(None, "store")).url:
        return ""
    return f" --store {'...' if place.kind == 'postgres' else shlex.quote(url)}"  # an address may hold a password


def print_json(value: Any) -> None:
    """One line of JSON."""
    sys.stdout.buffer.write(json_bytes(value) + b"\n")
    sys.stdout.buffer.flush()
