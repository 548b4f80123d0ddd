"""`Writer`: the connection that writes, and the thread that commits everything pending at once.

A refused append does not affect the others: almost every refusal comes before anything was written, and where one comes
after, the transaction is rolled back and repeated with a savepoint around each append.

After a disk error it is unknown what reached the disk, and syncing again may report success falsely. So the writer
reconnects, moves everything from the write-ahead log into the database and syncs that before it accepts appends again.
Before anything is acknowledged, the writer makes sure that the files it has written to are still at their path and have
the content that it knows.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from math import inf
from pathlib import Path
from typing import TypeVar

import apsw

from bartack.nouns.errors import ErrorCode, StoreError
from bartack.store.append_only import Tables
from bartack.store.files import Guard, WriteLock
from bartack.store.sqlite.file import (
    ContentWatch,
    FileIdentity,
    Synchronous,
    as_store_error,
    create_file,
    is_up_to_date,
    set_synchronous,
    wait_while_busy,
)
from bartack.store.sqlite.schema import migrate, version_of
from bartack.store.sqlite.tables import SqliteTables
from bartack.store.sqlite.witness import Witness, clear_note, count_commit
from bartack.store.writer_thread import WriteJob, WriterThread

__all__ = ["Writer"]

T = TypeVar("T")


class Writer:
    """The writing half of a store. Creates the database if needed; raises `StoreError`."""

    def __init__(
        self,
        path: Path,
        connect: Callable[[], apsw.Connection],
        *,
        synchronous: Synchronous,
        wait_s: float,
        limit: int,
        guarded: bool,
    ) -> None:
        self._path = path
        self._connect = connect
        self._wait_s = wait_s
        self._synchronous: Synchronous = synchronous
        self._level: Synchronous = synchronous  # the current level of the connection
        self._is_suspect = False  # the disk failed, and the file has not been verified since
        with as_store_error(path), ExitStack() as undo:
            is_new = not is_up_to_date(path, wait_s)
            self._lock = WriteLock(path.with_name(path.name + "-lock"))
            undo.callback(self._lock.close)
            if is_new:
                with self._lock.held(wait_s=wait_s):
                    self._create()
            create_file(path)  # restricts the permissions of an existing one
            self._files = FileIdentity(path)
            self._tables = SqliteTables(wait_while_busy(connect, wait_s))
            undo.callback(self._tables.connection.close)
            self._files.connected()
            self._witness = Witness(path)
            undo.callback(self._witness.close)
            self._rolled_back = self._witness.damage(self._tables.connection)
            self._guard = Guard.of(path, wait_s) if guarded else None
            self._content: ContentWatch | None = None
            if self._guard is not None:
                undo.callback(self._guard.release)
                self._content = self._read_content(self._guard)
            undo.pop_all()
        self._thread = WriterThread(self._commit, name="bartack-sqlite-writer", limit=limit)

    def _read_content(self, guard: Guard) -> ContentWatch:
        connection = self._tables.connection
        content = ContentWatch(self._path, connection, guard.descriptor)
        if content.is_in_log:
            with self._lock.held(wait_s=self._wait_s):
                connection.execute("PRAGMA wal_checkpoint(FULL)")
        return content

    def _create(self) -> None:
        create_file(self._path)
        connection = wait_while_busy(self._connect, self._wait_s)
        try:
            if not version_of(connection):
                clear_note(self._path)
            migrate(connection)
        finally:
            connection.close()  # closing empties the log: if it is lost later, the store is still recognised

    async def accept(self) -> None:
        """Accept the current state of a database that was rolled back, and count from here."""
        self._rolled_back = None
        await self.run(lambda _: count_commit(self._tables.connection))

    async def rewrite(self) -> None:
        """Rewrite the file, so that nothing that was deleted stays in it or in its log.

        `secure_delete` overwrites what is deleted, but not the copies that SQLite left behind earlier, when it split or
        moved pages.
        """

        def request(_: Tables) -> None:
            self._tables.must_rewrite = True

        await self.run(request, is_long=True)

    def check_files(self) -> None:
        """Raise `StoreError` if the files are no longer the ones that were opened."""
        if self._guard is not None:
            self._files.check()

    def run(self, work: Callable[[Tables], T], *, is_long: bool = False, must_sync: bool = True) -> Awaitable[T]:
        """The result of `work`, once committed. SQLite times out after `wait_s`; past twice that, the disk hangs."""
        wait_s = inf if is_long else 2 * self._wait_s + 1
        return self._thread.submit(lambda: work(self._tables), wait_s, must_sync=must_sync)

    async def close(self, close_readers: Callable[[], None]) -> None:
        """Finish pending work, and close the readers and then the connection."""
        await self._thread.close()
        await asyncio.to_thread(self._release, close_readers)

    def _release(self, close_readers: Callable[[], None]) -> None:
        if self._guard is not None:
            self._guard.loosen()
        close_readers()
        self._tables.connection.close()
        if self._guard is not None:
            self._guard.release()
        self._witness.close()
        self._lock.close()

    # -- in the thread

    def _check_content(self) -> None:
        self.check_files()
        if self._content is not None:
            self._content.check(self._tables.connection)

    def _commit(self, jobs: Sequence[WriteJob]) -> None:
        with as_store_error(self._path), self._lock.held(wait_s=self._wait_s):
            if self._is_suspect:
                self._reconnect()
            if self._rolled_back is not None:
                raise StoreError(
                    f"{self._path}: {self._rolled_back}. Restore the right files, or accept the loss with 'bartack "
                    "sessions fsck --repair'; nothing is written before that.",
                    code=ErrorCode.STORAGE_CORRUPT,
                )
            connection = self._tables.connection
            self._check_content()
            must_sync = any(job.must_sync for job in jobs)
            self._set_level(self._synchronous if must_sync else "NORMAL")
            connection.execute("BEGIN IMMEDIATE")
            changes = connection.total_changes()
            try:
                self._tables.begin()
                if not self._run_all(jobs):
                    connection.execute("ROLLBACK")
                    self._tables.undo()
                    connection.execute("BEGIN IMMEDIATE")
                    for job in jobs:
                        self._run_alone(job)
                self._tables.flush()
                counted = None if connection.total_changes() == changes else count_commit(connection)
                connection.execute("COMMIT")
                self._check_content()
                if counted is not None and must_sync:  # otherwise the note would lead after a power loss
                    self._witness.write(*counted)
            except BaseException:
                self._is_suspect = True
                self._tables.undo()
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            if self._tables.must_rewrite:
                self._tables.must_rewrite = False
                connection.execute("VACUUM")
                self._empty_log()
            if self._tables.dropped:  # nothing of the session may stay in the write-ahead log
                self._tables.dropped = False
                connection.pragma("secure_delete", "OFF")
                self._empty_log()

    def _set_level(self, level: Synchronous) -> None:
        """Whether commits wait for the disk. SQLite syncs the write-ahead log as a whole: what is not synced with its
        own commit is synced with the next one that is."""
        if level != self._level:
            set_synchronous(self._tables.connection, self._path, level)
            self._level = level

    def _run_all(self, jobs: Sequence[WriteJob]) -> bool:
        """Run the jobs; False if one failed after it had written something."""
        connection = self._tables.connection
        for job in jobs:
            changes = connection.total_changes()
            job.run(apsw.Error)
            if job.error is not None and connection.total_changes() != changes:
                return False
        return True

    def _run_alone(self, job: WriteJob) -> None:
        connection = self._tables.connection
        connection.execute("SAVEPOINT job")
        job.run(apsw.Error)
        if job.error is None:
            self._tables.flush()
        else:
            connection.execute("ROLLBACK TO job")
            self._tables.undo()
        connection.execute("RELEASE job")

    def _reconnect(self) -> None:
        self.check_files()
        self._tables.connection.close()
        self._tables = SqliteTables(self._connect())
        self._level = self._synchronous
        self._files.connected()
        self._empty_log()
        self._is_suspect = False

    def _empty_log(self) -> None:
        """Move everything from the write-ahead log into the database and sync it; raises `apsw.Error`."""
        is_busy, _, _ = self._tables.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
        if is_busy:
            raise apsw.BusyError("a reader prevents the write-ahead log from being emptied")
