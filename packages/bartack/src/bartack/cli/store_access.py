"""The store of a command: opened for one function, with a hint on every error."""

import asyncio
import os
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from bartack.app.errors import with_store_hint
from bartack.app.sessions import configured_store, find_session, opened_store
from bartack.app.settings import setting
from bartack.nouns.errors import ErrorCode, StoreError
from bartack.store import SessionStore
from bartack.store.address import StoreAddress

T = TypeVar("T")


def with_store(
    address_text: str | None,
    work: Callable[[SessionStore], Awaitable[T]],
    *,
    may_be_new: bool = False,
    for_reading: bool = False,
) -> T:
    """The result of `work` on the open store. A store that the user names must exist, unless `may_be_new`.

    Work that is only `for_reading` may be done on a store that cannot be written. Raises `StoreError` with a hint.
    """
    address = configured_store(address_text)
    try:
        if setting("store", address_text) is not None:
            _check(address, may_be_new=may_be_new)
        return asyncio.run(_with_open(address, work, for_reading=for_reading))
    except StoreError as error:
        with_store_hint(error, is_server=address.kind == "postgres")
        raise


def with_session(
    address_text: str | None,
    session: str,
    work: Callable[[SessionStore, str], Awaitable[T]],
    *,
    for_reading: bool = False,
) -> T:
    """The result of `work` on the open store and the id of the session, which may be given by its first characters."""

    async def found(store: SessionStore) -> T:
        return await work(store, await find_session(store, session))

    return with_store(address_text, found, for_reading=for_reading)


async def _with_open(address: StoreAddress, work: Callable[[SessionStore], Awaitable[T]], *, for_reading: bool) -> T:
    async with opened_store(address, for_reading=for_reading) as store:
        return await work(store)


def _check(address: StoreAddress, *, may_be_new: bool) -> None:
    """Refuse a mistyped path, so that reading creates no store and leaves the files of other programs alone."""
    path = address.path
    if path is None or (may_be_new and not path.exists()):
        return
    if not path.exists():
        raise StoreError(f"There is no store at {path}.", code=ErrorCode.INVALID_CONFIG)
    if address.kind == "sqlite" and not _may_be_sqlite(path):
        raise StoreError(f"{path} is not a SQLite database.", code=ErrorCode.INVALID_CONFIG)


def _may_be_sqlite(path: Path) -> bool:
    """Judged by the first bytes. This process has not opened the database yet, so closing the file drops no lock."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(16) in {b"", b"SQLite format 3\0"}


def store_flag(address: StoreAddress) -> str:
    """` --store URL` for a command that continues in this store; empty if the environment or the configuration file
    names it."""
    if address.text == configured_store(os.environ.get("BARTACK_STORE")).text:
        return ""
    # The address of a server may contain a password.
    return f" --store {'...' if address.kind == 'postgres' else shlex.quote(address.text)}"
