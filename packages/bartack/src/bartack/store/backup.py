"""Backups of whole stores: `backup`, `restore`, and `salvage` for what is left of a damaged one.

The backup of a SQLite or JSONL store is a store of the same kind, which can be opened as it is. The backup of any other
store is an export. Restoring closes open runs, because work that was open in the backup may have been done since.

Salvaging looks for the JSON of entries in the bytes of any file of a store, whatever is around them. In a SQLite file,
long entries are spread over several pages, which bartack.store.sqlite_pages puts together.
"""

import asyncio
import errno
import json
import os
import re
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol, runtime_checkable

from bartack.nouns.entries import Entry
from bartack.nouns.errors import Conflict, NotFound, StoreError
from bartack.store import StoreAddress, open_store
from bartack.store.blobs import restore_blobs
from bartack.store.checksums import split_checksum
from bartack.store.entries import envelope_of, read_entry
from bartack.store.errors import invalid_value_error
from bartack.store.files import Report, as_store_error, ignore_progress, make_folder, new_file, sync_folder
from bartack.store.foreign import mark_foreign
from bartack.store.open_work import close_session
from bartack.store.session_store import SessionStore, all_sessions
from bartack.store.sqlite_pages import SqlitePages
from bartack.store.transfer import export_session, import_lines, read_lines, whole_session

__all__ = ["BACKUP_LIMIT_S", "backup", "restore", "salvage"]

BACKUP_LIMIT_S = 3600.0
"""How long a backup may take: while a SQLite store is copied, its write-ahead log grows."""


@runtime_checkable
class Copyable(Protocol):
    """A store in files, which copies itself."""

    async def backup(self, target: Path, report: Report = ignore_progress) -> None:
        """Copy the store to a path that does not exist yet, or leave nothing there."""


async def backup(
    store: SessionStore,
    target: Path,
    *,
    on_progress: Callable[[float], None] = lambda share: None,
    limit_s: float = BACKUP_LIMIT_S,
) -> None:
    """Copy a snapshot of the store while others write to it. An export is a snapshot of each session.

    `on_progress` is called with the share that is done, in any thread.

    Raises:
        StoreError: `target` already exists or cannot be written, or the copy takes longer than `limit_s`. There is no
            backup then.
    """
    deadline = time.monotonic() + limit_s

    def report(done: int, total: int) -> None:
        if time.monotonic() > deadline:
            raise StoreError(f"The backup was not complete after {limit_s:g} s, and was removed.")
        on_progress(done / total if total else 1.0)

    if isinstance(store, Copyable):
        await store.backup(target, report)
        return
    with as_store_error(target), new_file(target, overwrite=False) as file:
        session_ids = [info.id async for info in all_sessions(store)]
        for done, session_id in enumerate(session_ids, 1):
            with suppress(NotFound):  # deleted since it was listed
                async for line in export_session(store, session_id):
                    file.write(line)
            report(done, len(session_ids))


async def restore(source: Path, address: str | Path | None) -> None:
    """Create a new store from a backup; an export can be restored to any kind of store.

    Open runs are closed, and the sessions are foreign until a person adopts them (bartack.store.foreign): a backup is a
    file like any other. A store in files is at its place only once it is complete.

    Raises:
        StoreError: A store already exists at the address, the backup is of another kind of store, or it contains no
            session.
    """
    where = StoreAddress.parse(address)
    kind = _kind_of(source)
    if await where.exists() and not (where.kind == "postgres" and await _is_empty(where)):
        raise StoreError(f"{where.display} already exists. Restore to a new store, or import an export into this one.")
    if kind != "export" and (where.kind != kind or where.path is None):
        raise invalid_value_error(f"{source} is the backup of a {kind} store, and can only be restored to one.")
    if where.path is None:
        await _restore_export(source, where.text)
        return
    make_folder(where.path.parent)
    with tempfile.TemporaryDirectory(dir=where.path.parent, prefix=".restoring-") as folder:
        place, complete = Path(folder) / "store", Path(folder) / "complete"
        if kind == "export":
            await _restore_export(source, f"{where.kind}:{place}")
        else:
            async with _opened(f"{kind}:{source}", read_only=True) as original:
                await backup(original, place)
        async with _opened(f"{where.kind}:{place}") as copy:
            await _quarantine(copy, source)
            await backup(copy, complete)
        with as_store_error(where.path):
            if where.kind == "sqlite":
                from bartack.store.sqlite.file import clear_leftovers  # noqa: PLC0415 - apsw is an extra

                clear_leftovers(where.path)
            complete.rename(where.path)
            sync_folder(where.path.parent)


async def _is_empty(where: StoreAddress) -> bool:
    """Whether a database has only the tables of a store, such as an interrupted restore leaves."""
    async with _opened(where.text, read_only=True) as store:
        return not any([(await store.sessions(1, reserved=kind)).items for kind in (False, True)])


async def _restore_export(source: Path, address: str) -> None:
    with as_store_error(source), source.open("rb") as file:
        if not any(line.strip() for line in read_lines(file)):
            raise _no_session_error(source)
        file.seek(0)
        async with _opened(address) as store:
            await import_lines(store, read_lines(file))


async def _quarantine(copy: SessionStore, source: Path) -> None:
    """Close what the sessions leave open, and mark them as foreign."""
    session_ids = [info.id async for info in all_sessions(copy)]
    if not session_ids:
        raise _no_session_error(source)
    for session_id in session_ids:
        await mark_foreign(copy, session_id)
        with suppress(Conflict):  # the session is damaged, which the check reports
            await close_session(copy, session_id, "restored")


def _no_session_error(source: Path) -> StoreError:
    return invalid_value_error(f"{source} contains no session. Nothing was restored.")


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


# -- what is left in the files of a damaged store


_START = re.compile(rb'\{"id":"')


def salvaged_sessions(path: Path) -> Iterator[tuple[str, list[bytes]]]:
    """The sessions in a folder or file, each as the canonical JSON of its entries; raises `OSError`."""
    sessions: dict[str, dict[int, bytes]] = {}
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    for file in sorted(path.glob("*.jsonl")) if path.is_dir() else [path]:
        data = _content_of(file)
        find_blob = _blobs_beside(file)
        texts = list(_texts_in(data))
        if file.suffix != ".jsonl":
            log = _content_of(file.with_name(f"{file.name}-wal"))
            pages = SqlitePages(data, log)
            texts += [*_texts_in(log), *pages.texts()]
            blobs = pages.blobs()
            find_blob = blobs.get if blobs else find_blob
        for text in texts:
            envelope = envelope_of(text)
            if envelope is not None and envelope.seq > 0:
                sessions.setdefault(envelope.session_id, {})[envelope.seq] = restore_blobs(text, find_blob)
    for session_id, entries in sessions.items():
        seqs = sorted(entries)
        yield session_id, list(whole_session(session_id, seqs, [entries[seq] for seq in seqs]))


def _content_of(file: Path) -> bytes:
    """The bytes of a file; none if another process has deleted it."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""


def _texts_in(data: bytes) -> Iterator[bytes]:
    """Whatever looks like an entry, without its checksum."""
    text = data.decode("latin-1")  # one character for each byte
    decoder = json.JSONDecoder()
    end = 0
    for match in _START.finditer(data):
        if match.start() >= end:
            with suppress(ValueError, RecursionError):
                _, end = decoder.raw_decode(text, match.start())
                yield split_checksum(data[match.start() : end])[0]


def _blobs_beside(file: Path) -> Callable[[str], bytes | None]:
    def find_blob(name: str) -> bytes | None:
        with suppress(OSError):
            return (file.parent / "blobs" / name).read_bytes()
        return None

    return find_blob
