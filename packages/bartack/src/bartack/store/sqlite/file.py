"""Opening a SQLite file as a store.

Everything that could lose data silently is refused here: a SQLite library with a known bug, a file system without
working locks, settings that do not wait for the disk, files of other programs, and a file that was moved or deleted
while it was open.

Reading needs no lock of ours, and opening a store whose tables are up to date needs none either: a process that was
stopped while it held the write lock blocks only other writers.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, TypeVar

import apsw

from bartack.nouns.errors import ErrorCode, StoreError
from bartack.store import files
from bartack.store.errors import not_writable_error
from bartack.store.files import sync_folder
from bartack.store.sqlite.schema import APPLICATION_ID, MIGRATIONS, version_of
from bartack.store.sqlite.witness import clear_note

__all__ = [
    "ContentWatch",
    "FileIdentity",
    "Synchronous",
    "as_store_error",
    "check_library",
    "clear_leftovers",
    "connect",
    "connect_read_only",
    "create_file",
    "is_up_to_date",
    "set_synchronous",
    "wait_while_busy",
]

T = TypeVar("T")

# FULL waits for the disk at every commit. NORMAL may lose acknowledged entries in a power loss.
Synchronous = Literal["FULL", "NORMAL"]

# Older versions, from 3.7.0 on, may lose committed data when the write-ahead log is reset.
_OLDEST = (3, 51, 3)

_ERRORS: tuple[tuple[type[apsw.Error], ErrorCode, str], ...] = (
    (apsw.NotADBError, ErrorCode.STORAGE_UNSUPPORTED, "not a SQLite database"),
    (apsw.CorruptError, ErrorCode.STORAGE_CORRUPT, "the database is damaged"),
    (apsw.BusyError, ErrorCode.STORAGE_FAILED, "the database is locked by another process"),
    (apsw.LockedError, ErrorCode.STORAGE_FAILED, "the database is locked by another process"),
    (apsw.ProtocolError, ErrorCode.STORAGE_FAILED, "the database is locked by another process"),
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
        except UnicodeDecodeError as error:
            raise StoreError(
                f"{path}: the database is damaged ({error})", code=ErrorCode.STORAGE_CORRUPT, cause=error
            ) from error


def _store_error(path: Path, error: apsw.Error) -> StoreError:
    is_denied = isinstance(error, apsw.CantOpenError) and not os.access(path.parent, os.W_OK)
    if is_denied or isinstance(error, apsw.ReadOnlyError):
        return not_writable_error(path, error)
    code, reason = next(
        ((code, reason) for kind, code, reason in _ERRORS if isinstance(error, kind)),
        (ErrorCode.STORAGE_FAILED, "SQLite failed"),
    )
    return StoreError(f"{path}: {reason} ({error})", code=code, retryable=isinstance(error, _BUSY), cause=error)


# While one process recovers the write-ahead log after a crash, SQLite does not always wait for it itself.
_BUSY = (apsw.BusyError, apsw.LockedError, apsw.ProtocolError)


def wait_while_busy(work: Callable[[], T], wait_s: float) -> T:
    """The result of `work`, repeated for up to `wait_s` while another process has the database locked."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return work()
        except _BUSY:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def check_library(version: str) -> None:
    """Refuse a SQLite library that loses data."""
    if tuple(int(number) for number in version.split(".")[:3]) < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise StoreError(
            f"SQLite {version} can lose committed data; {oldest} or newer is required. Upgrade apsw.",
            code=ErrorCode.INVALID_CONFIG,
        )


def is_up_to_date(path: Path, wait_s: float) -> bool:
    """Whether the file is a store with the newest tables; raises `StoreError` if it is not a Bartack store.

    Nothing about the file changes, and only SQLite opens it (see bartack.store.files).
    """
    try:
        if not path.stat().st_size:
            return False
    except FileNotFoundError:
        return False
    return wait_while_busy(lambda: _is_up_to_date(path, wait_s), wait_s)


def _is_up_to_date(path: Path, wait_s: float) -> bool:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        connection.set_busy_timeout(int(wait_s * 1000))
        _refuse_foreign(connection, path)
        return version_of(connection) == len(MIGRATIONS)
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        return False  # the folder is read-only, or a journal must be rolled back: opening it for writing will show
    finally:
        connection.close()


def create_file(path: Path) -> None:
    """Create the file, accessible to the owner only. An existing one is not opened (see bartack.store.files)."""
    if not path.exists():
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            sync_folder(path.parent)
    for file in (path, log_of(path), path.with_name(f"{path.name}-shm")):
        with suppress(FileNotFoundError):  # the last process that closes the store deletes the log
            if file.stat().st_mode & 0o077:
                file.chmod(0o600)


def log_of(path: Path) -> Path:
    """The write-ahead log of a database."""
    return path.with_name(f"{path.name}-wal")


def connect(path: Path, *, synchronous: Synchronous, wait_s: float, vfs: str | None) -> apsw.Connection:
    """A connection with the settings that the store relies on, each one verified; raises `apsw.Error`."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs)
    try:
        _make_safe(connection, path, wait_s)
        _set(connection, path, "journal_mode", "WAL", "wal")
        set_synchronous(connection, path, synchronous)
        _set(connection, path, "fullfsync", "ON", 1)  # a plain fsync does not reach the disk on macOS
        _set(connection, path, "foreign_keys", "ON", 1)
        connection.pragma("schema_version")  # the first read in this mode opens the write-ahead log
    except BaseException:
        connection.close()
        raise
    return connection


def set_synchronous(connection: apsw.Connection, path: Path, level: Synchronous) -> None:
    """Whether each commit waits for the disk (FULL) or not; raises `apsw.Error` and `StoreError`."""
    _set(connection, path, "synchronous", level, {"FULL": 2, "NORMAL": 1}[level])


def connect_read_only(path: Path, *, wait_s: float) -> apsw.Connection:
    """A connection that does not write, not even files next to the database if these cannot be written.

    SQLite keeps an index of the write-ahead log in a file. If it can neither open nor create that file, no process has
    the store open for writing here: then the log is read without an index file and without locks, and a database
    without a log as a file that does not change.
    """
    try:
        return _read_only(str(path), path, wait_s)
    except (apsw.CantOpenError, apsw.ReadOnlyError):  # the latter if only this user may not write to the folder
        if log_of(path).exists():
            return _read_only(str(path), path, wait_s, vfs="unix-none")
        return _read_only(f"{path.absolute().as_uri()}?immutable=1", path, wait_s)


def _read_only(name: str, path: Path, wait_s: float, vfs: str | None = None) -> apsw.Connection:
    connection = apsw.Connection(name, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI, vfs=vfs)
    try:
        if vfs is not None:
            connection.pragma("locking_mode", "EXCLUSIVE")  # keeps the index of the log in memory
        _make_safe(connection, path, wait_s)
    except BaseException:
        connection.close()
        raise
    return connection


def _make_safe(connection: apsw.Connection, path: Path, wait_s: float) -> None:
    connection.set_busy_timeout(int(wait_s * 1000))
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    _refuse_foreign(connection, path)


class FileIdentity:
    """Notices when the files that a connection writes to are no longer the ones at their path."""

    def __init__(self, path: Path) -> None:
        """Create this before the connection is opened, and call `connected` after."""
        self._path = path
        self._log = log_of(path)
        self._keys: tuple[tuple[int, int] | None, ...] = (_key(path),)

    def connected(self) -> None:
        """Call after opening a connection; raises `StoreError` if it may have opened another file."""
        self._keys = (self._keys[0], _key(self._log))
        self.check()

    def check(self) -> None:
        """Raise `StoreError` if the database or its write-ahead log was renamed, replaced or deleted."""
        for path, key in zip((self._path, self._log), self._keys, strict=True):
            if _key(path) != key:
                raise StoreError(
                    f"{path} was renamed, replaced or deleted while the store was open. What was appended since may "
                    "be lost. Put the file back if you can, and open the store again."
                )


_LOG_HEADER, _FRAME_HEADER = 32, 24  # bytes of a write-ahead log


class ContentWatch:
    """Notices when another program has truncated or overwritten the database or its log, in place.

    SQLite would not: it has the pages it needs in memory, and keeps adding to the log of a database that is gone. So
    the writer looks at the bytes on the disk, through the descriptor of the guard. The database must be as long as its
    header says, unless it was shorter before: a process may have died while it moved pages from the log. Its page with
    the id of the store must contain that id, and the log must be as long as its index says. An id that differs also
    means that the log beside the file belongs to another database, whose pages it would replace.

    The page is always the same one: `store` is among the first tables, in the order of which a rewritten file has them.
    """

    def __init__(self, path: Path, connection: apsw.Connection, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._page_size: int = connection.pragma("page_size")
        self._size = os.fstat(descriptor).st_size  # when it was last looked at
        root = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'store'").get
        self._offset = (root - 1) * self._page_size
        ids = connection.execute("SELECT id FROM store").fetchall()
        self._id = ids[0][0] if ids and isinstance(ids[0][0], bytes) else b""  # lost ones are the witness's business

    @property
    def is_in_log(self) -> bool:
        """Whether the page has not been moved from the log to the file yet, as when the creation was interrupted."""
        return not self._id_page().strip(b"\0")

    def check(self, connection: apsw.Connection) -> None:
        """Raise `StoreError` if the content is not what was written. The caller holds the write lock."""
        header = self._read(100, 0)
        expected_size = min(self._size, int.from_bytes(header[28:32]) * self._page_size)
        size = os.fstat(self._descriptor).st_size
        frames, _ = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
        log_size = _LOG_HEADER + frames * (_FRAME_HEADER + self._page_size) if frames > 0 else 0
        if (
            not header.startswith(b"SQLite format 3\0")
            or size < expected_size
            or self._id not in self._id_page()
            or (log_size and log_of(self._path).stat().st_size < log_size)
        ):
            raise StoreError(
                f"{self._path} or its write-ahead log was truncated or overwritten by another program. Nothing is "
                "written to it any more. Close the store, then restore a backup, or export what is left with "
                "'bartack sessions salvage'.",
                code=ErrorCode.STORAGE_CORRUPT,
            )
        self._size = size

    def _id_page(self) -> bytes:
        return self._read(self._page_size, self._offset)

    def _read(self, size: int, offset: int) -> bytes:
        os.lseek(self._descriptor, offset, os.SEEK_SET)  # Windows has no pread; only the writer reads
        return os.read(self._descriptor, size)


def clear_leftovers(path: Path) -> None:
    """Remove what a deleted database has left beside its place: a log, and the note of the witness."""
    for file in (log_of(path), path.with_name(f"{path.name}-shm")):
        file.unlink(missing_ok=True)
    clear_note(path)


def _key(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - half the time, at every commit
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


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
