"""`SqliteStore`: appends of all tasks go to one thread (`writer`); readers have connections of their own.

Readers never wait for a writer. A store that is opened read-only has no writer.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import apsw

from bartack.environment import Environment
from bartack.nouns.errors import StoreError
from bartack.store.append_only import Tables, TableStore
from bartack.store.errors import store_closed_error
from bartack.store.files import Report, ignore_progress, make_folder, new_file, refuse_network
from bartack.store.session_store import Inspection
from bartack.store.sqlite.file import (
    Synchronous,
    as_store_error,
    check_library,
    connect,
    connect_read_only,
    wait_while_busy,
)
from bartack.store.sqlite.schema import check_version
from bartack.store.sqlite.tables import SqliteTables
from bartack.store.sqlite.writer import Writer

__all__ = ["SqliteStore"]

T = TypeVar("T")

READERS = 4
_COPIED = 1000  # pages that a backup copies at a time


class SqliteStore(TableStore):
    """A store in a SQLite file, opened with `SqliteStore.open`."""

    poll_s = 0.05
    group_limit = 1024  # appends per commit
    vfs: str | None = None  # the name of a SQLite VFS (default: that of the system)
    guarded = True  # see bartack.store.files

    def __init__(
        self,
        path: Path,
        environment: Environment | None,
        *,
        synchronous: Synchronous,
        wait_s: float,
        read_only: bool,
    ) -> None:
        super().__init__(environment)
        self.path: Path = path
        self._wait_s = wait_s
        self._connect = partial(connect, path, synchronous=synchronous, wait_s=wait_s, vfs=self.vfs)
        self._is_closed = False
        self._local = threading.local()
        self._readers: list[apsw.Connection] = []
        self._writer: Writer | None = None
        with as_store_error(path):
            check_library(apsw.sqlite_lib_version())
            if path.exists() and not path.is_file():
                raise StoreError(f"{path} is not a file.")
            if read_only:
                self._connect = partial(connect_read_only, path, wait_s=wait_s)
                self._check_readable()
            else:
                make_folder(path.parent)
                refuse_network(path, path.parent)
                self._writer = Writer(
                    path,
                    self._connect,
                    synchronous=synchronous,
                    wait_s=wait_s,
                    limit=self.group_limit,
                    guarded=self.guarded,
                )
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="bartack-sqlite-reader")

    @classmethod
    async def open(
        cls,
        path: Path | str,
        *,
        environment: Environment | None = None,
        synchronous: Synchronous = "FULL",
        wait_s: float = 30.0,
        read_only: bool = False,
    ) -> "SqliteStore":
        """Open the store in this file, creating it if needed.

        ``synchronous="NORMAL"`` may lose acknowledged entries in a power loss. `wait_s` is how long an append waits for
        other processes. A `read_only` store must exist, and may be on a read-only file system.
        """
        return await asyncio.to_thread(
            cls, Path(path), environment, synchronous=synchronous, wait_s=wait_s, read_only=read_only
        )

    def _check_readable(self) -> None:
        connection = wait_while_busy(self._connect, self._wait_s)
        try:
            check_version(connection)
        finally:
            connection.close()

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._followers.close()
        if self._writer is not None:
            await self._writer.close(self._close_readers)
        else:
            await asyncio.to_thread(self._close_readers)

    def _close_readers(self) -> None:
        self._pool.shutdown()
        for connection in self._readers:
            connection.close()

    async def _read(self, work: Callable[[Tables], T]) -> T:
        """The result of `work`, which sees one state of the database."""

        def run(connection: apsw.Connection) -> T:
            with _in_transaction(connection):
                return work(SqliteTables(connection))

        return await self._with_reader(run)

    async def _with_reader(self, work: Callable[[apsw.Connection], T]) -> T:
        return await self._in_pool(lambda: work(self._reader()))

    async def _in_pool(self, work: Callable[[], T]) -> T:
        def run() -> T:
            with as_store_error(self.path):
                return work()

        if self._is_closed:
            raise store_closed_error()
        return await asyncio.get_running_loop().run_in_executor(self._pool, run)

    def _reader(self) -> apsw.Connection:
        connection: apsw.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._new_reader()
            self._readers.append(connection)
        return connection

    def _new_reader(self) -> apsw.Connection:
        if self._writer is not None:
            self._writer.check_files()
        connection = wait_while_busy(self._connect, self._wait_s)
        connection.pragma("query_only", "ON")
        return connection

    def _write(self, work: Callable[[Tables], T], *, is_long: bool = False) -> Awaitable[T]:
        return self._open_writer().run(work, is_long=is_long)

    def _write_lease(self, work: Callable[[Tables], T]) -> Awaitable[T]:
        return self._open_writer().run(work, must_sync=False)

    def _open_writer(self) -> Writer:
        if self._writer is None:
            raise StoreError(f"{self.path} was opened read-only.")
        return self._writer

    async def inspect(self, session_id: str | None = None, *, repair: bool = False) -> Inspection:
        """As in every store. With `repair`, a database that was rolled back is accepted as it is."""
        if repair and session_id is None and self._writer is not None:
            await self._writer.accept()
        if session_id is not None:
            return await super().inspect(session_id)

        def inspect() -> Inspection:
            # A connection that has used FTS5 before reports corruption that is not there while others write.
            connection = self._new_reader()
            try:
                with _in_transaction(connection):
                    return SqliteTables(connection).inspect(None)
            finally:
                connection.close()

        self.check_usable()
        return await self._in_pool(inspect)

    async def erase_deleted(self) -> None:
        """Rewrite the file without the remains of what was deleted. This takes as long as the store is large."""
        self.check_usable()
        await self._open_writer().rewrite()

    async def backup(self, target: Path, report: Report = ignore_progress) -> None:
        """Copy the store to a new file, as it is at one moment, without blocking appends; raises `StoreError`.

        The copy is made in one read transaction: SQLite would start again whenever another connection commits, and not
        finish while one does so all the time. Until it is complete, the write-ahead log cannot be reused, and grows.
        """

        def copy(connection: apsw.Connection) -> None:
            make_folder(target.parent)
            with new_file(target, overwrite=False) as file, _in_transaction(connection):
                connection.pragma("schema_version")  # the first read determines the moment
                copied = apsw.Connection(file.name)
                try:
                    with copied.backup("main", connection, "main") as backup:
                        while not backup.done:
                            backup.step(_COPIED)
                            report(backup.page_count - backup.remaining, backup.page_count)
                    copied.pragma("journal_mode", "DELETE")  # one complete file, without a log beside it
                    copied.execute("UPDATE store SET id = randomblob (16)")  # a copy is older than the store it is of
                finally:
                    copied.close()

        await self._with_reader(copy)


@contextmanager
def _in_transaction(connection: apsw.Connection) -> Iterator[None]:
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:  # after some errors SQLite has ended it
            connection.execute("ROLLBACK")
