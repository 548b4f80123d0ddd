"""Opening a SQLite file as a store, and what may be wrong with it.

Everything that could lose data silently is checked here and refused: a SQLite library with a known loss, a file system
whose locks do not work, settings that do not wait for the disk, a file that is somebody else's.
"""

import os
from pathlib import Path
from typing import Literal

import apsw

from bartack.nouns.errors import ErrorCode, StoreError
from bartack.store.blobs import digest, referenced
from bartack.store.files import make_folder, network_kind, sync_folder
from bartack.store.session_store import Finding
from bartack.store.sqlite import rows
from bartack.store.sqlite.schema import APPLICATION_ID

__all__ = [
    "Synchronous",
    "check_library",
    "connect",
    "inspect_session",
    "inspect_store",
    "make_file",
    "make_place",
    "refuse_foreign_file",
    "store_error",
]

# FULL waits for the disk at every commit. NORMAL loses acknowledged entries at a loss of power, and must be asked for.
Synchronous = Literal["FULL", "NORMAL"]

_OLDEST = (3, 51, 3)  # older ones may lose committed data when the write-ahead log starts over

_CODES: tuple[tuple[type[apsw.Error], ErrorCode, str], ...] = (
    (apsw.NotADBError, ErrorCode.STORAGE_UNSUPPORTED, "this file is not a SQLite database"),
    (apsw.CorruptError, ErrorCode.STORAGE_CORRUPT, "the database is damaged"),
    (apsw.BusyError, ErrorCode.STORAGE_FAILED, "another program has the database locked"),
    (apsw.LockedError, ErrorCode.STORAGE_FAILED, "another program has the database locked"),
    (apsw.FullError, ErrorCode.STORAGE_FAILED, "the disk is full"),
    (apsw.ReadOnlyError, ErrorCode.STORAGE_FAILED, "the database, or its folder, is read-only"),
    (apsw.CantOpenError, ErrorCode.STORAGE_FAILED, "the database cannot be opened"),
    (apsw.IOError, ErrorCode.STORAGE_FAILED, "the disk failed"),
)


def store_error(path: Path, error: apsw.Error) -> StoreError:
    """What SQLite said, as an error of the store."""
    code, sentence = next(
        ((code, sentence) for kind, code, sentence in _CODES if isinstance(error, kind)),
        (ErrorCode.STORAGE_FAILED, "SQLite failed"),
    )
    is_busy = isinstance(error, apsw.BusyError | apsw.LockedError)
    return StoreError(f"{path}: {sentence} ({error})", code=code, retryable=is_busy, cause=error)


def check_library(version: str) -> None:
    """Refuse a SQLite library that loses data."""
    if tuple(int(piece) for piece in version.split(".")[:3]) < _OLDEST:
        wanted = ".".join(map(str, _OLDEST))
        raise StoreError(
            f"apsw brings SQLite {version}, which can lose committed data; {wanted} or newer is needed",
            code=ErrorCode.INVALID_CONFIG,
        )


def make_place(path: Path) -> None:
    """Make the file's folder, unless a store must not be there; raises `OSError` too."""
    if path.exists() and not path.is_file():
        raise StoreError(f"{path}: not a file")
    make_folder(path.parent)
    kind = network_kind(path.parent.resolve())
    if kind is not None:
        raise StoreError(f"{path}: on a network file system ({kind}), where locks do not hold")


def refuse_foreign_file(path: Path) -> None:
    """Raises for a file that is not a store of Bartack, before anything about it is changed; it is looked at by SQLite
    alone (bartack.store.files says why)."""
    if path.exists() and path.stat().st_size:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            _refuse_foreign(connection, path)
        except (apsw.CantOpenError, apsw.ReadOnlyError):
            pass  # its folder cannot be written, or a journal waits to be rolled back: opening it for writing tells
        finally:
            connection.close()


def make_file(path: Path) -> None:
    """Make the file, for its owner alone; one that is there is not opened here (bartack.store.files says why)."""
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        sync_folder(path.parent)
    for file in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        if file.exists() and file.stat().st_mode & 0o077:
            file.chmod(0o600)


def connect(path: Path, *, synchronous: Synchronous, busy_ms: int, vfs: str | None) -> apsw.Connection:
    """A connection with every setting that a store relies on, each one verified; raises `apsw.Error`."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs)
    try:
        connection.set_busy_timeout(busy_ms)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        _refuse_foreign(connection, path)
        _set(connection, path, "journal_mode", "WAL", "wal")
        _set(connection, path, "synchronous", synchronous, {"FULL": 2, "NORMAL": 1}[synchronous])
        _set(connection, path, "fullfsync", "ON", 1)  # macOS: a plain fsync there does not reach the disk
        _set(connection, path, "foreign_keys", "ON", 1)
    except BaseException:
        connection.close()
        raise
    return connection


def _refuse_foreign(connection: apsw.Connection, path: Path) -> None:
    application = connection.pragma("application_id")
    is_empty = connection.execute("SELECT count(*) FROM sqlite_schema").get == 0
    if application != APPLICATION_ID and not (is_empty and application == 0):
        raise StoreError(f"{path}: a SQLite database, but not a store of Bartack", code=ErrorCode.STORAGE_UNSUPPORTED)


def _set(connection: apsw.Connection, path: Path, name: str, value: str, expected: str | int) -> None:
    connection.pragma(name, value)
    found = connection.pragma(name)
    if found != expected:
        raise StoreError(f"{path}: SQLite refuses {name}={value} (it says {found!r})", code=ErrorCode.STORAGE_FAILED)


def inspect_store(connection: apsw.Connection) -> tuple[Finding, ...]:
    """Broken pages and keys."""
    pages = [text for (text,) in rows.select(connection, "PRAGMA quick_check") if text != "ok"]
    keys = [f"{row[0]} row {row[1]} has no {row[2]}" for row in rows.select(connection, "PRAGMA foreign_key_check")]
    return tuple(Finding(session_id=None, fault="damaged", message=text) for text in [*pages, *keys])


def inspect_session(connection: apsw.Connection, session_id: str) -> tuple[Finding, ...]:
    """Lost or changed bodies, and a session's row that says otherwise than its entries."""
    number, tail, _ = rows.must_find(connection, session_id)
    found: list[Finding] = []
    last = connection.execute(
        "SELECT id, seq FROM entry WHERE session = ? ORDER BY seq DESC LIMIT 1", (number,)
    ).fetchone()
    if last != (tail.entry_id, tail.seq):
        text = f"its row names {tail.entry_id!r} (seq {tail.seq}) as the last entry, and that is {last!r}"
        found.append(Finding(session_id=session_id, seq=tail.seq, fault="damaged", message=text))
    cut = rows.select(
        connection, "SELECT seq, CAST(body AS BLOB) FROM entry WHERE session = ? AND is_cut ORDER BY seq", number
    )
    for seq, body in cut:
        for name in referenced(body):
            row = connection.execute("SELECT body FROM blob WHERE name = ?", (name,)).fetchone()
            if row is None or digest(row[0]) != name:
                fault = "lost" if row is None else "changed"
                message = f"the body {name} is {fault}"
                found.append(Finding(session_id=session_id, seq=seq, fault="damaged", message=message))
    return tuple(found)
