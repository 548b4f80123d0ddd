"""`PostgresStore`: sessions that programs on many machines share.

Appends of all tasks go to one task, which commits whatever is waiting (bartack.store.postgres.group_commit). Readers take
connections from a pool. Who follows a session is told to look when something landed, and looks now and then anyway.

The time of a lease is the server's: the clocks of machines differ. A server that goes away fails what was under way;
the next call connects anew.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from datetime import datetime
from typing import TypeVar

from msgspec.structs import replace

from bartack.environment import Environment
from bartack.nouns.entries import Entry, SessionHeader
from bartack.nouns.errors import ErrorCode, StoreError
from bartack.store.append import check_drop, make_draft, renewed_lease, taken_lease
from bartack.store.entries import Entries
from bartack.store.follow import Watch, follow
from bartack.store.postgres import queries as reader
from bartack.store.postgres.connection import TROUBLE, Connection, Link, failure
from bartack.store.postgres.group_commit import BODIES_LOCK, GroupCommit, session_lock
from bartack.store.postgres.notifications import News
from bartack.store.postgres.rows import lease_of
from bartack.store.postgres.schema import escaped, lock_number, migrate
from bartack.store.session_store import EMPTY_HEADER, Finding, Hit, Lease, Page, Place, Tail, Totals, next_entries

__all__ = ["PostgresStore"]

T = TypeVar("T")

_TABLES = ("words", "redactions", "jumps", "results", "entries", "spend", "leases", "body_uses", "sessions")


class PostgresStore:
    """A store on a PostgreSQL server. `PostgresStore.open` makes one."""

    poll_s = 1.0  # how often a follower looks without having been told to
    patience_s = 30.0  # how long a follower waits for a server that is away

    def __init__(self, link: Link, environment: Environment) -> None:
        self.environment = environment
        self._link = link
        self._watch = Watch()
        self._news = News(link, self._watch.wake)
        self._writer = GroupCommit(link, self._landed)
        self._closed = False

    @classmethod
    async def open(
        cls, url: str, *, environment: Environment | None = None, allow: Collection[str] = ()
    ) -> "PostgresStore":
        """The store at this address; its tables are made if they are not there.

        A server that may lose what it acknowledged is refused, unless `allow` names the setting, such as
        ``synchronous_commit=off``.
        """
        link = Link(url, allow)
        connection = await link.connect()
        try:
            await migrate(connection, link.schema)
        except TROUBLE as error:
            raise failure(error, "making the tables") from error
        finally:
            connection.terminate()
        await link.open_pool()
        return cls(link, environment or Environment())

    async def create_session(self, session_id: str | None = None, header: SessionHeader = EMPTY_HEADER) -> Entry:
        (entry,) = next_entries(session_id or self.environment.new_id(), None, [header], self.environment)
        await self.append(entry.session_id, [entry], None)
        return entry

    async def append(
        self, session_id: str, entries: Sequence[Entry], expected_tail: str | None, *, lease: Lease | None = None
    ) -> Tail:
        return await self._writer.append(make_draft(session_id, entries), expected_tail, lease)

    def _landed(self, session_ids: Collection[str]) -> None:
        for session_id in session_ids:
            self._watch.wake(session_id)
        self._news.tell(session_ids)

    async def load(self, session_id: str, *, head: str | None = None) -> Entries:
        return await self._view(lambda connection: reader.load(connection, session_id, head))

    async def entries(self, session_id: str, after_seq: int = 0, limit: int | None = None) -> Entries:
        return await self._view(lambda connection: reader.entries(connection, session_id, after_seq, limit))

    async def branch(self, session_id: str, entry_id: str) -> Place:
        async def work(connection: Connection) -> Place:
            tail = await reader.find(connection, session_id)
            await reader.must_seq(connection, session_id, entry_id)
            return Place(entry_id, tail)

        return await self._view(work)

    async def heads(self, session_id: str) -> tuple[str, ...]:
        return await self._view(lambda connection: reader.heads(connection, session_id))

    async def tail_of(self, session_id: str) -> Tail:
        return await self._link.read(lambda connection: reader.find(connection, session_id), "reading")

    async def sessions(self, limit: int = 50, cursor: str | None = None, query: str | None = None) -> Page:
        return await self._view(lambda connection: reader.sessions(connection, limit, cursor, query))

    async def search(self, text: str, limit: int = 50) -> tuple[Hit, ...]:
        return await self._view(lambda connection: reader.search(connection, text, limit))

    async def totals(self, session_id: str | None = None) -> Totals:
        return await self._view(lambda connection: reader.totals(connection, session_id))

    async def tail(self, session_id: str, after: int = 0) -> AsyncIterator[Entry]:
        async def read(after: int, limit: int) -> Entries:
            return await self._patiently(
                lambda: self._view(lambda c: reader.entries(c, session_id, after, limit, hide=True))
            )

        await self._news.listen()
        async for entry in follow(self._watch, session_id, after, read, self.poll_s):
            yield entry

    async def acquire_lease(self, session_id: str, owner: str, ttl: float = 30.0) -> Lease:
        return await self._hold(session_id, lambda now, held: taken_lease(session_id, owner, now, ttl, held))

    async def renew_lease(self, lease: Lease, ttl: float = 30.0) -> Lease:
        return await self._hold(lease.session_id, lambda now, held: renewed_lease(lease, now, ttl, held))

    async def release_lease(self, lease: Lease) -> None:
        def given_back(_: datetime, held: Lease | None) -> Lease:
            is_mine = held is not None and (held.epoch, held.owner) == (lease.epoch, lease.owner)
            return replace(lease, owner="") if is_mine else held or replace(lease, epoch=0, owner="")

        await self._hold(lease.session_id, given_back)

    async def inspect(self, session_id: str | None = None, *, mend: bool = False) -> tuple[Finding, ...]:
        del mend  # a transaction leaves nothing half-written
        return await self._view(lambda connection: reader.inspect(connection, session_id))

    async def drop_session(self, session_id: str, *, expected_tail: str | None = None) -> None:
        async def work(connection: Connection) -> None:
            await self._lock(connection, session_id)
            await connection.execute("SELECT pg_advisory_xact_lock($1)", lock_number(BODIES_LOCK, self._link.schema))
            check_drop(await reader.find(connection, session_id), expected_tail)
            name = escaped(session_id)
            await connection.execute("SELECT set_config('bartack.purge', $1, true)", name)
            for table in _TABLES:
                await connection.execute(f"DELETE FROM {table} WHERE session_id = $1", name)
            await connection.execute("DELETE FROM bodies WHERE sha256 NOT IN (SELECT sha256 FROM body_uses)")

        await self._link.write(work, "dropping a session")
        self._landed([session_id])

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._watch.close()
        await self._writer.close()
        await self._news.close()
        await self._link.close()

    # -- ways to the server

    async def _view(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """What `work` finds, in one view of the database."""

        async def whole(connection: Connection) -> T:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                return await work(connection)

        return await self._link.read(whole, "reading")

    async def _lock(self, connection: Connection, session_id: str) -> None:
        await connection.execute("SELECT pg_advisory_xact_lock($1)", session_lock(self._link.schema, session_id))

    async def _hold(self, session_id: str, choose: Callable[[datetime, Lease | None], Lease]) -> Lease:
        """Replace the session's lease by the one that `choose` gives for the server's time and the current one."""

        async def work(connection: Connection) -> Lease:
            await self._lock(connection, session_id)
            await reader.find(connection, session_id)
            record = await connection.fetchrow("SELECT * FROM leases WHERE session_id = $1", escaped(session_id))
            held = None if record is None else lease_of(session_id, record)
            lease = choose(await connection.fetchval("SELECT clock_timestamp()"), held)
            await connection.execute(
                "INSERT INTO leases (session_id, owner, epoch, expires_at) VALUES ($1, $2, $3, $4) "
                "ON CONFLICT (session_id) DO UPDATE "
                "SET owner = excluded.owner, epoch = excluded.epoch, expires_at = excluded.expires_at",
                escaped(session_id),
                escaped(lease.owner),
                lease.epoch,
                lease.expires_at,
            )
            return lease

        return await self._link.write(work, "changing a lease")

    async def _patiently(self, read: Callable[[], Awaitable[Entries]]) -> Entries:
        """What a follower reads; a server that is away is waited for."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.patience_s
        while True:
            try:
                return await read()
            except StoreError as error:
                if self._closed:
                    return Entries("", (), ())
                if error.code is not ErrorCode.STORAGE_FAILED or loop.time() > end:
                    raise
            await asyncio.sleep(self.poll_s)
