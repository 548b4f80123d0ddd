"""Opening a SQLite file as a store.

Everything that could lose data silently is refused here: a SQLite library with a known bug, a file system without
working locks, settings that do not wait for the disk, and files of other programs.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import apsw

from bartack.nouns.errors import ErrorCode, StoreError
from bartack.store import files
from bartack.store.errors import not_writable
from bartack.store.files import make_folder, network_kind, sync_folder
from bartack.store.sqlite.schema import APPLICATION_ID

__all__ = [
    "Synchronous",
    "as_store_error",
    "check_folder",
    "check_library",
    "connect",
    "create_file",
    "refuse_foreign_file",
]

# FULL waits for the disk at every commit. NORMAL may lose acknowledged entries in a power loss.
Synchronous = Literal["FULL", "NORMAL"]

# Older versions, from 3.7.0 on, may lose committed data when the write-ahead log is reset.
_OLDEST = (3, 51, 3)

_ERRORS: tuple[tuple[type[apsw.Error], ErrorCode, str], ...] = (
    (apsw.NotADBError, ErrorCode.STORAGE_UNSUPPORTED, "not a SQLite database"),
    (apsw.CorruptError, ErrorCode.STORAGE_CORRUPT, "the database is damaged"),
    (apsw.BusyError, ErrorCode.STORAGE_FAILED, "the database is locked by another process"),
    (apsw.LockedError, ErrorCode.STORAGE_FAILED, "the database is locked by another process"),
    (apsw.FullError, ErrorCode.STORAGE_FAILED, "the disk is full"),
    (apsw.CantOpenError, ErrorCode.STORAGE_FAILED, "the database cannot be opened"),
    (apsw.IOError, ErrorCode.STORAGE_FAILED, "the disk failed"),
)


@contextmanager
def as_store_error(path: Path) -> Iterator[None]:
    """Turn the errors of SQLite and of file operations into `StoreError`."""
    with files.as_store_error(path):
        try:
            yield
        except apsw.Error as error:
            raise _store_error(path, error) from error


def _store_error(path: Path, error: apsw.Error) -> StoreError:
    is_denied = isinstance(error, apsw.CantOpenError) and not os.access(path.parent, os.W_OK)
    if is_denied or isinstance(error, apsw.ReadOnlyError):
        return not_writable(path, error)
    code, reason = next(
        ((code, reason) for kind, code, reason in _ERRORS if isinstance(error, kind)),
        (ErrorCode.STORAGE_FAILED, "SQLite failed"),
    )
    is_busy = isinstance(error, apsw.BusyError | apsw.LockedError)
    return StoreError(f"{path}: {reason} ({error})", code=code, retryable=is_busy, cause=error)


def check_library(version: str) -> None:
    """Refuse a SQLite library that loses data."""
    if tuple(int(number) for number in version.split(".")[:3]) < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise StoreError(
            f"SQLite {version} can lose committed data; {oldest} or newer is required. Upgrade apsw.",
            code=ErrorCode.INVALID_CONFIG,
        )


def check_folder(path: Path) -> None:
    """Create the file's folder, unless a store cannot be there; raises `OSError` too."""
    if path.exists() and not path.is_file():
        raise StoreError(f"{path} is not a file.")
    make_folder(path.parent)
    kind = network_kind(path.parent.resolve())
    if kind is not None:
        raise StoreError(
            f"{path} is on a network file system ({kind}), where locks are unreliable. Use a local disk or PostgreSQL."
        )


def refuse_foreign_file(path: Path) -> None:
    """Raise `StoreError` for a file that is not a Bartack store, before anything about it changes.

    Only SQLite opens the file (see bartack.store.files).
    """
    if path.exists() and path.stat().st_size:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            _refuse_foreign(connection, path)
        except (apsw.CantOpenError, apsw.ReadOnlyError):
            pass  # the folder is read-only, or a journal must be rolled back: opening it for writing will show
        finally:
            connection.close()


def create_file(path: Path) -> None:
    """Create the file, accessible to the owner only. An existing one is not opened (see bartack.store.files)."""
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        sync_folder(path.parent)
    for file in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        if file.exists() and file.stat().st_mode & 0o077:
            file.chmod(0o600)


def connect(path: Path, *, synchronous: Synchronous, busy_ms: int, vfs: str | None) -> apsw.Connection:
    """A connection with the settings that the store relies on, each one verified; raises `apsw.Error`."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs)
    try:
        connection.set_busy_timeout(busy_ms)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        _refuse_foreign(connection, path)
        _set(connection, path, "journal_mode", "WAL", "wal")
        _set(connection, path, "synchronous", synchronous, {"FULL": 2, "NORMAL": 1}[synchronous])
        _set(connection, path, "fullfsync", "ON", 1)  # on macOS a plain fsync does not reach the disk
        _set(connection, path, "foreign_keys", "ON", 1)
    except BaseException:
        connection.close()
        raise
    return connection


def _refuse_foreign(connection: apsw.Connection, path: Path) -> None:
    application = connection.pragma("application_id")
    is_empty = connection.execute("SELECT count(*) FROM sqlite_schema").get == 0
    if application != APPLICATION_ID and not (is_empty and application == 0):
        raise StoreError(
            f"{path} is a SQLite database of another program, not a Bartack store.", code=ErrorCode.STORAGE_UNSUPPORTED
        )


def _set(connection: apsw.Connection, path: Path, name: str, value: str, expected: str | int) -> None:
    connection.pragma(name, value)
    actual = connection.pragma(name)
    if actual != expected:
        raise StoreError(f"{path}: SQLite did not accept {name}={value} (it is {actual!r}).")
