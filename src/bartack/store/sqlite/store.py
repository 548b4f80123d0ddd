"""`SqliteStore`: all sessions in one file. The default.

Appends of all tasks go to one thread, which commits whatever is waiting (bartack.store.writer_thread); a refused append disturbs
nobody. Almost every refusal comes before anything was written; where one comes after, the group is undone and done
again with a savepoint around each append. Readers have connections of their own and never wait for the writer.

After a failure of the disk nobody knows what reached it, and asking the system to sync again may get a false yes. So
the writer starts anew: it opens the database again, moves everything out of the write-ahead log into the database and
syncs that. Only then are appends taken again; until then each is refused.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import apsw
from msgspec.structs import replace

from bartack.environment import Environment
from bartack.nouns.entries import Entry, SessionHeader
from bartack.nouns.errors import StoreError
from bartack.store.append import admit, check_drop, invalid, make_draft, renewed_lease, taken_lease
from bartack.store.entries import Entries
from bartack.store.files import Guard, TurnLock
from bartack.store.follow import Watch, follow
from bartack.store.session_store import EMPTY_HEADER, Finding, Hit, Lease, Page, Place, Tail, Totals, next_entries
from bartack.store.sqlite import rows
from bartack.store.sqlite.file import (
    Synchronous,
    check_library,
    connect,
    inspect_session,
    inspect_store,
    make_file,
    make_place,
    refuse_foreign_file,
    store_error,
)
from bartack.store.sqlite.schema import migrate
from bartack.store.writer_thread import GroupWriter, Job

__all__ = ["SqliteStore"]

P = ParamSpec("P")
T = TypeVar("T")

READERS = 4


class SqliteStore:
    """A store in a SQLite file. `SqliteStore.open` makes one."""

    poll_s = 0.05  # how often a follower looks for what other processes wrote

    def __init__(
        self,
        path: Path,
        environment: Environment,
        *,
        synchronous: Synchronous,
        wait_s: float,
        vfs: str | None,
        group_limit: int,
        guarded: bool,
    ) -> None:
        self.environment = environment
        self.path = path
        self._wait_s = wait_s
        self._connect = partial(connect, path, synchronous=synchronous, busy_ms=int(wait_s * 1000), vfs=vfs)
        self._watch = Watch()
        self._index: rows.Index = []
        self._is_suspect = False  # the disk failed, and nobody has made sure of the file since
        self._must_clean = False  # a session was dropped: nothing of it may stay in the write-ahead log
        self._is_closed = False
        self._local = threading.local()
        self._readers: list[apsw.Connection] = []
        with _as_store_error(path), ExitStack() as undo:
            check_library(apsw.sqlite_lib_version())
            make_place(path)
            refuse_foreign_file(path)
            self._turn = TurnLock(_turn_path(path))
            undo.callback(self._turn.close)
            with self._turn.held():
                make_file(path)
                self._connection = self._connect()
                undo.callback(self._connection.close)
                migrate(self._connection)
            self._guard = Guard.of(path) if guarded else None
            undo.pop_all()
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="bartack-sqlite-reader")
        self._writer = GroupWriter(self._commit, name="bartack-sqlite-writer", limit=group_limit)

    @classmethod
    async def open(
        cls,
        path: Path | str,
        *,
        environment: Environment | None = None,
        synchronous: Synchronous = "FULL",
        wait_s: float = 30.0,
        vfs: str | None = None,
        group_limit: int = 1024,
        guarded: bool = True,
    ) -> "SqliteStore":
        """The store in this file, made if it is not there.

        `synchronous="NORMAL"` gives up what was acknowledged at a loss of power. `wait_s` is how long an append waits
        for other programs; `vfs` names a VFS of SQLite; `group_limit` is the most appends in one commit. Without
        `guarded` a program that opens and closes the file by itself loses data (bartack.store.files).
        """
        return await asyncio.to_thread(
            cls,
            Path(path),
            environment or Environment(),
            synchronous=synchronous,
            wait_s=wait_s,
            vfs=vfs,
            group_limit=group_limit,
            guarded=guarded,
        )

    async def create_session(self, session_id: str | None = None, header: SessionHeader = EMPTY_HEADER) -> Entry:
        (entry,) = next_entries(session_id or self.environment.new_id(), None, [header], self.environment)
        await self.append(entry.session_id, [entry], None)
        return entry

    async def append(
        self, session_id: str, entries: Sequence[Entry], expected_tail: str | None, *, lease: Lease | None = None
    ) -> Tail:
        draft = make_draft(session_id, entries)

        def work() -> None:
            found = rows.find(self._connection, session_id)
            known = rows.present(self._connection, draft, found)
            new = admit(draft, known, expected_tail, lease)
            if new:
                self._index += rows.insert(self._connection, draft, new, found, known)

        await self._write(work)
        self._watch.wake(session_id)
        return Tail(draft.rows[-1].id, draft.rows[-1].seq)

    async def load(self, session_id: str, *, head: str | None = None) -> Entries:
        return await self._read(rows.load, session_id, head)

    async def entries(self, session_id: str, after_seq: int = 0, limit: int | None = None) -> Entries:
        return await self._read(rows.entries, session_id, after_seq, limit)

    async def branch(self, session_id: str, entry_id: str) -> Place:
        def work(connection: apsw.Connection) -> Place:
            number, tail, _ = rows.must_find(connection, session_id)
            rows.must_seq(connection, session_id, number, entry_id)
            return Place(entry_id, tail)

        return await self._read(work)

    async def heads(self, session_id: str) -> tuple[str, ...]:
        return await self._read(rows.heads, session_id)

    async def tail_of(self, session_id: str) -> Tail:
        return (await self._read(rows.must_find, session_id)).tail

    async def sessions(self, limit: int = 50, cursor: str | None = None, query: str | None = None) -> Page:
        return await self._read(rows.sessions, limit, cursor, query)

    async def search(self, text: str, limit: int = 50) -> tuple[Hit, ...]:
        return await self._read(rows.search, text, limit)

    async def totals(self, session_id: str | None = None) -> Totals:
        def work(connection: apsw.Connection) -> Totals:
            number = None if session_id is None else rows.must_find(connection, session_id).number
            return rows.totals(connection, number)

        return await self._read(work)

    def tail(self, session_id: str, after: int = 0) -> AsyncIterator[Entry]:
        async def read(after: int, limit: int) -> Entries:
            return await self._read(partial(rows.entries, hide=True), session_id, after, limit)

        return follow(self._watch, session_id, after, read, self.poll_s)

    async def acquire_lease(self, session_id: str, owner: str, ttl: float = 30.0) -> Lease:
        def work() -> Lease:
            held = rows.must_find(self._connection, session_id).held
            lease = taken_lease(session_id, owner, self.environment.now(), ttl, held)
            rows.hold(self._connection, lease)
            return lease

        return await self._write(work)

    async def renew_lease(self, lease: Lease, ttl: float = 30.0) -> Lease:
        def work() -> Lease:
            held = rows.must_find(self._connection, lease.session_id).held
            renewed = renewed_lease(lease, self.environment.now(), ttl, held)
            rows.hold(self._connection, renewed)
            return renewed

        return await self._write(work)

    async def release_lease(self, lease: Lease) -> None:
        def work() -> None:
            held = rows.must_find(self._connection, lease.session_id).held
            if held is not None and (held.epoch, held.owner) == (lease.epoch, lease.owner):
                rows.hold(self._connection, replace(held, owner=""))

        await self._write(work)

    async def inspect(self, session_id: str | None = None, *, mend: bool = False) -> tuple[Finding, ...]:
        del mend  # a transaction leaves nothing half-written
        if session_id is None:
            return await self._read(inspect_store)
        return await self._read(inspect_session, session_id)

    async def drop_session(self, session_id: str, *, expected_tail: str | None = None) -> None:
        def work() -> None:
            number, tail, _ = rows.must_find(self._connection, session_id)
            check_drop(tail, expected_tail)
            self._connection.pragma("secure_delete", "ON")
            self._must_clean = True
            rows.drop(self._connection, number)

        await self._write(work)

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._watch.close()
        await self._writer.close()
        await asyncio.to_thread(self._let_go)

    def _let_go(self) -> None:
        self._pool.shutdown()
        if self._guard is not None:
            self._guard.loosen()
        for connection in (*self._readers, self._connection):
            connection.close()
        if self._guard is not None:
            self._guard.release()
        self._turn.close()

    # -- readers

    async def _read(self, work: Callable[Concatenate[apsw.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `work` finds, in one view of the database."""

        def run() -> T:
            with _as_store_error(self.path):
                connection = self._reader()
                connection.execute("BEGIN")
                try:
                    return work(connection, *args, **kwargs)
                finally:
                    connection.execute("ROLLBACK")

        if self._is_closed:
            raise StoreError("the store is closed")
        return await asyncio.get_running_loop().run_in_executor(self._pool, run)

    def _reader(self) -> apsw.Connection:
        connection: apsw.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._connect()
            connection.pragma("query_only", "ON")
            self._readers.append(connection)
        return connection

    # -- the writer's thread

    async def _write(self, work: Callable[[], T]) -> T:
        """What `work` gives, committed. SQLite itself says when it waited too long; beyond that the disk hangs."""
        return await self._writer.submit(work, 2 * self._wait_s + 1)

    def _commit(self, jobs: Sequence[Job]) -> None:
        with _as_store_error(self.path), self._turn.held():
            if self._is_suspect:
                self._start_anew()
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                if not self._do_all(jobs):
                    self._connection.execute("ROLLBACK")
                    self._index.clear()
                    self._connection.execute("BEGIN IMMEDIATE")
                    for job in jobs:
                        self._do_apart(job)
                rows.write_index(self._connection, self._index)
                self._connection.execute("COMMIT")
            except BaseException:
                self._is_suspect = True
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            finally:
                self._index.clear()
            if self._must_clean:
                self._clean()

    def _do_all(self, jobs: Sequence[Job]) -> bool:
        """False where a refused job left something behind."""
        for job in jobs:
            changes = self._connection.total_changes()
            job.run(apsw.Error)
            if job.error is not None and self._connection.total_changes() != changes:
                return False
        return True

    def _do_apart(self, job: Job) -> None:
        self._connection.execute("SAVEPOINT job")
        job.run(apsw.Error)
        if job.error is not None:
            self._connection.execute("ROLLBACK TO job")
        self._connection.execute("RELEASE job")

    def _start_anew(self) -> None:
        self._connection.close()
        self._connection = self._connect()
        self._empty_log()
        self._is_suspect = False

    def _empty_log(self) -> None:
        """Everything out of the write-ahead log into the database, synced; or `apsw.Error`."""
        is_busy, _, _ = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
        if is_busy:
            raise apsw.BusyError("a reader keeps the write-ahead log from being emptied")

    def _clean(self) -> None:
        self._must_clean = False
        self._connection.pragma("secure_delete", "OFF")
        self._empty_log()


def _turn_path(path: Path) -> Path:
    return path.with_name(path.name + "-turn")


@contextmanager
def _as_store_error(path: Path) -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        raise store_error(path, error) from error
    except UnicodeEncodeError as error:  # an id with half a surrogate pair
        raise invalid(f"not text: {error}", error) from error
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}", cause=error) from error
