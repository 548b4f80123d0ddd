"""`SqliteStore`: appends of all tasks go to one thread, which commits everything pending at once.

A refused append does not affect the others: almost every refusal comes before anything was written, and where one comes
after, the transaction is rolled back and repeated with a savepoint around each append. Readers have connections of
their own and never wait for the writer.

After a disk error it is unknown what reached the disk, and syncing again may report success falsely. So the writer
reconnects, moves everything from the write-ahead log into the database and syncs that before it accepts appends again.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TypeVar

import apsw

from bartack.environment import Environment
from bartack.store.append_only import Tables, TableStore
from bartack.store.errors import closed
from bartack.store.files import Guard, WriteLock
from bartack.store.sqlite.file import (
    Synchronous,
    as_store_error,
    check_folder,
    check_library,
    connect,
    create_file,
    refuse_foreign_file,
)
from bartack.store.sqlite.schema import migrate
from bartack.store.sqlite.tables import SqliteTables
from bartack.store.writer_thread import Job, WriterThread

__all__ = ["SqliteStore"]

T = TypeVar("T")

READERS = 4


class SqliteStore(TableStore):
    """A store in a SQLite file, opened with `SqliteStore.open`."""

    poll_s = 0.05
    group_limit = 1024  # appends per commit
    vfs: str | None = None  # the name of a SQLite VFS (default: that of the system)
    guarded = True  # see bartack.store.files

    def __init__(self, path: Path, environment: Environment | None, *, synchronous: Synchronous, wait_s: float) -> None:
        super().__init__(environment)
        self.path = path
        self._wait_s = wait_s
        self._connect = partial(connect, path, synchronous=synchronous, busy_ms=int(wait_s * 1000), vfs=self.vfs)
        self._is_suspect = False  # the disk failed, and the file has not been verified since
        self._is_closed = False
        self._local = threading.local()
        self._readers: list[SqliteTables] = []
        with as_store_error(path), ExitStack() as undo:
            check_library(apsw.sqlite_lib_version())
            check_folder(path)
            refuse_foreign_file(path)
            self._lock = WriteLock(path.with_name(path.name + "-lock"))
            undo.callback(self._lock.close)
            with self._lock.held():
                create_file(path)
                self._tables = SqliteTables(self._connect())
                undo.callback(self._tables.connection.close)
                migrate(self._tables.connection)
            self._guard = Guard.of(path) if self.guarded else None
            undo.pop_all()
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="bartack-sqlite-reader")
        self._writer = WriterThread(self._commit, name="bartack-sqlite-writer", limit=self.group_limit)

    @classmethod
    async def open(
        cls,
        path: Path | str,
        *,
        environment: Environment | None = None,
        synchronous: Synchronous = "FULL",
        wait_s: float = 30.0,
    ) -> "SqliteStore":
        """Open the store in this file, creating it if needed.

        ``synchronous="NORMAL"`` may lose acknowledged entries in a power loss. `wait_s` is how long an append waits for
        other processes.
        """
        return await asyncio.to_thread(cls, Path(path), environment, synchronous=synchronous, wait_s=wait_s)

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._followers.close()
        await self._writer.close()
        await asyncio.to_thread(self._release)

    def _release(self) -> None:
        self._pool.shutdown()
        if self._guard is not None:
            self._guard.loosen()
        for tables in (*self._readers, self._tables):
            tables.connection.close()
        if self._guard is not None:
            self._guard.release()
        self._lock.close()

    # -- readers

    async def _read(self, work: Callable[[Tables], T]) -> T:
        """The result of `work`, which sees one state of the database."""

        def run() -> T:
            with as_store_error(self.path):
                tables = self._reader()
                tables.connection.execute("BEGIN")
                try:
                    return work(tables)
                finally:
                    tables.connection.execute("ROLLBACK")

        if self._is_closed:
            raise closed()
        return await asyncio.get_running_loop().run_in_executor(self._pool, run)

    def _reader(self) -> SqliteTables:
        tables: SqliteTables | None = getattr(self._local, "tables", None)
        if tables is None:
            tables = self._local.tables = SqliteTables(self._connect())
            tables.connection.pragma("query_only", "ON")
            self._readers.append(tables)
        return tables

    # -- the writer thread

    async def _write(self, work: Callable[[Tables], T]) -> T:
        """The result of `work`, once committed. SQLite times out after `wait_s`; past twice that, the disk hangs."""
        return await self._writer.submit(lambda: work(self._tables), 2 * self._wait_s + 1)

    def _commit(self, jobs: Sequence[Job]) -> None:
        with as_store_error(self.path), self._lock.held():
            if self._is_suspect:
                self._reconnect()
            connection = self._tables.connection
            connection.execute("BEGIN IMMEDIATE")
            try:
                if not self._run_all(jobs):
                    connection.execute("ROLLBACK")
                    self._tables.forget_changes()
                    connection.execute("BEGIN IMMEDIATE")
                    for job in jobs:
                        self._run_alone(job)
                self._tables.update_search()
                connection.execute("COMMIT")
            except BaseException:
                self._is_suspect = True
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            finally:
                self._tables.forget_changes()
            if self._tables.dropped:  # nothing of the session may stay in the write-ahead log
                self._tables.dropped = False
                connection.pragma("secure_delete", "OFF")
                self._empty_log()

    def _run_all(self, jobs: Sequence[Job]) -> bool:
        """Run the jobs; False if one failed after it had written something."""
        connection = self._tables.connection
        for job in jobs:
            changes = connection.total_changes()
            job.run(apsw.Error)
            if job.error is not None and connection.total_changes() != changes:
                return False
        return True

    def _run_alone(self, job: Job) -> None:
        connection = self._tables.connection
        connection.execute("SAVEPOINT job")
        job.run(apsw.Error)
        if job.error is not None:
            connection.execute("ROLLBACK TO job")
        connection.execute("RELEASE job")

    def _reconnect(self) -> None:
        self._tables.connection.close()
        self._tables = SqliteTables(self._connect())
        self._empty_log()
        self._is_suspect = False

    def _empty_log(self) -> None:
        """Move everything from the write-ahead log into the database and sync it; raises `apsw.Error`."""
        is_busy, _, _ = self._tables.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
        if is_busy:
            raise apsw.BusyError("a reader prevents the write-ahead log from being emptied")
