"""`PostgresStore`: one task commits the appends, readers take connections from a pool.

The time of a lease is the server's, because the clocks of machines differ. When the server goes away, calls in progress
fail; the next call reconnects.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar, cast

from bartack.environment import Environment
from bartack.events import LiveEvent
from bartack.nouns import wire
from bartack.nouns.entries import Entry, MessageDeltaBatch
from bartack.nouns.errors import ErrorCode, StoreError
from bartack.store.append import Batch, Permit, check_drop
from bartack.store.append_only import AppendOnlyStore, Appends, ChangeLease, L, ReadableTables
from bartack.store.checksums import seal
from bartack.store.entries import Entries
from bartack.store.errors import session_not_found_error
from bartack.store.leases import Moment, check_fence
from bartack.store.postgres.connection import SERVER_ERRORS, Database, PostgresConnection, server_error
from bartack.store.postgres.group_commit import GroupCommit, append_in_transaction
from bartack.store.postgres.notifications import Notifications
from bartack.store.postgres.queries import Queries
from bartack.store.postgres.rows import fence_of, lease_of, lease_text, tail_of
from bartack.store.postgres.schema import check_version, escape, migrate
from bartack.store.session_store import Lease, Tail

__all__ = ["PostgresStore"]

T = TypeVar("T")


class PostgresStore(AppendOnlyStore):
    """A store on a PostgreSQL server, opened with `PostgresStore.open`."""

    poll_s = 1.0  # a notification may be lost
    patience_s = 30.0  # how long a follower waits for a server that is away

    def __init__(self, database: Database, environment: Environment | None, *, read_only: bool) -> None:
        super().__init__(environment)
        self._is_read_only = read_only
        self._database = database
        self._notifications = Notifications(database, self._notified)
        self._writer = GroupCommit(database, self._notifications.send)
        self._closed = False
        self._loop = asyncio.get_running_loop()

    def check_usable(self) -> None:
        """Refuse other event loops too: connections belong to the loop that opened them."""
        super().check_usable()
        if asyncio.get_running_loop() is not self._loop:
            raise StoreError("The store was opened in another event loop. Open it again in this one.")

    def _notified(self, name: str) -> None:
        for session_id in self._followers.followed():
            if self._notifications.name_of(session_id) == name:
                self._followers.wake(session_id)

    @classmethod
    async def open(
        cls, url: str, *, environment: Environment | None = None, read_only: bool = False
    ) -> "PostgresStore":
        """Open the store at this address, creating its tables if needed. A `read_only` store must have them already.

        A server that may lose acknowledged entries is refused, unless the address names the setting, as in
        ``?synchronous_commit=off``.
        """
        database = Database(url)
        connection = await database.connect()
        try:
            await (check_version if read_only else migrate)(connection, database.schema)
        except SERVER_ERRORS as error:
            raise server_error(error, "creating the tables") from error
        finally:
            connection.terminate()
        await database.open_pool()
        return cls(database, environment, read_only=read_only)

    def _check_writable(self) -> None:
        if self._is_read_only:
            raise StoreError(f"Schema {self._database.schema!r} was opened read-only.")

    async def _append(self, batch: Batch, expected_tail: str | None, permit: Permit) -> Lease | None:
        self._check_writable()
        return await self._writer.append(batch, expected_tail, permit)

    async def _append_all(self, session_ids: Sequence[str], appends: Appends) -> None:
        self._check_writable()

        async def work(connection: PostgresConnection) -> None:
            async with connection.transaction():
                for append in appends():
                    await append_in_transaction(connection, append)

        await self._database.write(work, "storing an import")
        self._notifications.send(session_ids)

    async def _change_lease(self, session_id: str, change: ChangeLease[L]) -> L:
        """Look at the lease and replace it if it is still the same: no lock is held while this process decides."""
        self._check_writable()

        async def work(connection: PostgresConnection) -> L:
            while True:
                sql = "SELECT lease, clock_timestamp() AS now FROM sessions WHERE id = $1"
                record = await connection.fetchrow(sql, escape(session_id))
                if record is None:
                    raise session_not_found_error(session_id)
                moment = Moment(record["now"])
                lease = change(lambda moment=moment: moment, lease_of(record["lease"]))  # type: ignore[misc]
                if lease is None:
                    return lease
                sql = "UPDATE sessions SET lease = $2, fence = $3 WHERE id = $1 AND lease IS NOT DISTINCT FROM $4"
                values = (lease_text(lease), fence_of(lease), record["lease"])
                if await connection.execute(sql, escape(session_id), *values) == "UPDATE 1":
                    self._writer.lease_changed(lease)
                    return lease

        return await self._database.write(work, "changing a lease")

    async def _write_journal(self, lease: Lease, batch: MessageDeltaBatch | None) -> None:
        self._check_writable()
        name = escape(lease.session_id)
        text = None if batch is None else escape(seal(wire.encode(batch)).decode())
        values = (None, None, None) if batch is None else (batch.generation, batch.number, text)

        async def work(connection: PostgresConnection) -> None:
            sql = "SELECT bartack_journal($1, $2, $3, $4, $5)"
            if not await connection.fetchval(sql, name, fence_of(lease), *values):
                lease_text = await connection.fetchval("SELECT lease FROM sessions WHERE id = $1", name)
                check_fence(lease.session_id, lease, lease_of(lease_text))
                raise StoreError("The lease changed while the journal was written. Try again.", retryable=True)

        await self._database.write(work, "writing the journal")
        self._notifications.send([lease.session_id])

    async def tail_of(self, session_id: str) -> Tail:  # one statement needs no transaction
        self.check_usable()
        return await self._database.read(lambda connection: Queries(connection).tail(session_id), "reading")

    async def drop_session(self, session_id: str, *, expected_tail: str | None = None) -> None:
        self.check_usable()
        self._check_writable()

        async def work(connection: PostgresConnection) -> None:
            while True:
                record = await connection.fetchrow("SELECT * FROM sessions WHERE id = $1", escape(session_id))
                if record is None:
                    raise session_not_found_error(session_id)
                check_drop(session_id, tail_of(record), expected_tail)
                sql = "SELECT bartack_drop($1, $2)"
                if await connection.fetchval(sql, record["number"], record["checksum"]):
                    return

        await self._database.write(work, "dropping a session")
        self._followers.wake(session_id)
        self._notifications.send([session_id])

    async def erase_deleted(self) -> None:
        """Rewrite the tables without the remains of what was deleted. Each is locked while it is rewritten."""
        self.check_usable()
        self._check_writable()
        await self._database.rewrite()

    async def follow_live(self, session_id: str, position: str = "") -> AsyncIterator[LiveEvent]:
        if not self._closed:
            await self._notifications.listen()
        async for event in super().follow_live(session_id, position):
            yield event

    async def follow(self, session_id: str, after_seq: int = 0) -> AsyncIterator[Entry]:
        if not self._closed:
            await self._notifications.listen()
        async for entry in super().follow(session_id, after_seq):
            yield entry

    async def read_after(self, session_id: str, after_seq: int) -> Entries:
        """Waits for a server that is away."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.patience_s
        while True:
            try:
                return await super().read_after(session_id, after_seq)
            except StoreError as error:
                if self._closed:
                    return Entries(session_id, (), ())
                if error.code is not ErrorCode.STORAGE_FAILED or loop.time() > deadline:
                    raise
            await asyncio.sleep(self.poll_s)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._followers.close()
        await self._writer.close()
        await self._notifications.close()
        await self._database.close()

    async def _read(self, work: Callable[[ReadableTables], T]) -> T:
        async def whole(connection: PostgresConnection) -> T:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                # `Queries` has the methods of `ReadableTables` as coroutines: test_postgres.py compares them.
                return await cast(Awaitable[T], work(cast(ReadableTables, Queries(connection))))

        return await self._database.read(whole, "reading")
