"""Backups of whole stores: `backup`, `restore`, and `salvage` for what is left of a damaged one.

The backup of a SQLite or JSONL store is a store of the same kind, which can be opened as it is. The backup of any other
store is an export. Restoring closes open runs, because work that was open in the backup may have been done since.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol, runtime_checkable

from bartack.nouns.entries import Entry
from bartack.nouns.errors import Conflict, StoreError
from bartack.store import StoreAddress, open_store
from bartack.store.closing import close_session
from bartack.store.entries import read_entry
from bartack.store.errors import invalid
from bartack.store.files import as_store_error, make_folder, new_file
from bartack.store.maintenance import all_sessions
from bartack.store.salvage import salvaged_sessions
from bartack.store.session_store import SessionStore
from bartack.store.transfer import export_session, import_lines, read_lines

__all__ = ["backup", "restore", "salvage"]


@runtime_checkable
class Copyable(Protocol):
    """A store in files, which copies itself."""

    async def backup(self, target: Path) -> None:
        """Copy the store to a path that does not exist yet."""


async def backup(store: SessionStore, target: Path) -> None:
    """Copy a snapshot of the store while others write to it. An export is a snapshot of each session.

    Raises:
        StoreError: `target` already exists or cannot be written.
    """
    if isinstance(store, Copyable):
        await store.backup(target)
        return
    with as_store_error(target), new_file(target, overwrite=False) as file:
        async for info in all_sessions(store):
            async for line in export_session(store, info.id):
                file.write(line)


async def restore(source: Path, address: str | Path | None) -> None:
    """Create a new store from a backup; an export can be restored to any kind of store. Open runs are closed.

    Raises:
        StoreError: A store already exists at the address, or the backup is of another kind of store.
    """
    where = StoreAddress.parse(address)
    kind = _kind_of(source)
    if await where.exists():
        raise StoreError(f"{where.display} already exists. Restore to a new store, or import an export into this one.")
    if kind == "export":
        async with _opened(where.text) as store:
            with as_store_error(source), source.open("rb") as file:
                await import_lines(store, read_lines(file))
        return
    if where.kind != kind or where.path is None:
        raise invalid(f"{source} is the backup of a {kind} store, and can only be restored to one.")
    make_folder(where.path.parent)
    with tempfile.TemporaryDirectory(dir=where.path.parent, prefix=".restoring-") as folder:
        place = Path(folder) / "store"
        async with _opened(f"{kind}:{source}", read_only=True) as original:
            await backup(original, place)
        async with _opened(f"{kind}:{place}") as copy:
            for info in [one async for one in all_sessions(copy)]:
                with suppress(Conflict):  # the session is damaged, which the check reports
                    await close_session(copy, info.id, "restored")
            await backup(copy, where.path)


@asynccontextmanager
async def _opened(address: str, *, read_only: bool = False) -> AsyncIterator[SessionStore]:
    store = await open_store(address, read_only=read_only)
    try:
        yield store
    finally:
        await store.close()


def _kind_of(source: Path) -> str:
    with as_store_error(source):
        if source.is_dir():
            return "jsonl"
        with source.open("rb") as file:
            return "sqlite" if file.read(16) == b"SQLite format 3\0" else "export"


async def salvage(path: Path) -> AsyncIterator[Entry]:
    """Whatever can be read of a damaged store or of one of its files, session by session, in order of `seq`.

    The sessions have no gaps: lost entries are replaced by entries that record the loss. Close the store first: reading
    a SQLite file releases the locks that this process holds on it.
    """

    def found() -> list[tuple[str, list[bytes]]]:
        with as_store_error(path):
            return list(salvaged_sessions(path))

    for session_id, texts in await asyncio.to_thread(found):
        for seq, text in enumerate(texts, 1):
            yield read_entry(session_id, seq, text)
