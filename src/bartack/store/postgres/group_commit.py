"""`GroupCommit`: one task commits all pending appends in one transaction, and each caller gets its own outcome.

While one group is being committed the next one gathers. Locks on the sessions are taken first, in the same order by
every store, and held until the commit: what was looked up still holds when it is written.

A refused append (`Conflict`, ...) writes nothing and does not affect the others. The rest is inserted under one
savepoint; if the database refuses that, each append of the group is repeated under its own savepoint. All outcomes
are reported after the commit, also conflicts: they may be with an append of the same group.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import asyncpg  # type: ignore[import-untyped]
from msgspec.structs import replace

from bartack.nouns.errors import Conflict, StoreError
from bartack.store.append import Batch, Existing, Permit, Row, check_append
from bartack.store.errors import closed
from bartack.store.postgres.connection import SERVER_ERRORS, Connection, Database, is_retryable, server_error
from bartack.store.postgres.rows import Checked, existing, insert
from bartack.store.postgres.schema import lock_blobs, lock_sessions
from bartack.store.session_store import Lease, Tail
from bartack.store.writer_thread import deliver

__all__ = ["GroupCommit"]

_GROUP_LIMIT = 256  # appends; each takes one of the server's locks
_GROUP_BYTES = 8 * 1024 * 1024
_ATTEMPTS = 3


@dataclass(eq=False)
class PendingAppend:
    """An append that waits for its commit. `error` is reported after it."""

    batch: Batch
    expected_tail: str | None
    permit: Permit
    future: "asyncio.Future[Lease | None]"
    lease: Lease | None = None  # that a claim has taken
    error: Exception | None = field(default_factory=lambda: StoreError("The append was not attempted."))

    @property
    def size(self) -> int:
        return sum(len(row.text) for row in self.batch.rows) + sum(map(len, self.batch.blobs.values()))


@dataclass
class GroupCommit:
    """The task and its connection. `committed` is called with the sessions that have new entries."""

    database: Database
    committed: Callable[[Collection[str]], None]
    _pending: deque[PendingAppend] = field(default_factory=deque)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _connection: Connection | None = None
    _task: "asyncio.Task[None] | None" = None
    _closed: bool = False

    async def append(self, batch: Batch, expected_tail: str | None, permit: Permit) -> Lease | None:
        """Store the batch durably; returns the lease that a claim has taken."""
        if self._closed:
            raise closed()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="bartack-postgres-writer")
        future: asyncio.Future[Lease | None] = asyncio.get_running_loop().create_future()
        self._pending.append(PendingAppend(batch, expected_tail, permit, future))
        self._wake.set()
        return await future

    async def close(self) -> None:
        """Commit what is pending, then close the connection."""
        self._closed = True
        self._wake.set()
        if self._task is not None:
            await self._task
        await self._disconnect()

    async def _run(self) -> None:
        while self._pending or not self._closed:
            if not self._pending:
                self._wake.clear()
                await self._wake.wait()
                continue
            group = self._take()
            try:
                await self._commit(group)
            except Exception as error:  # noqa: BLE001 - raised in every caller of the group; the task continues
                for pending in group:
                    pending.error = error
                await self._disconnect()
            for pending in group:
                deliver(pending.future, pending.lease, pending.error)

    def _take(self) -> list[PendingAppend]:
        group: list[PendingAppend] = []
        size = 0
        while self._pending and len(group) < _GROUP_LIMIT and size < _GROUP_BYTES:
            pending = self._pending.popleft()
            if not pending.future.done():
                group.append(pending)
                size += pending.size
        return group

    async def _commit(self, group: list[PendingAppend]) -> None:
        for attempts_left in reversed(range(_ATTEMPTS)):
            connection = await self._connected()
            transaction = connection.transaction()
            try:
                await transaction.start()
                changed = await _write(connection, self.database.schema, group)
            except SERVER_ERRORS as error:  # nothing was committed
                await self._disconnect()
                if attempts_left and is_retryable(error):
                    continue
                raise server_error(error, "appending") from error
            try:
                await transaction.commit()
            except SERVER_ERRORS as error:
                doing = "committing (the outcome is unknown; append the same entries again)"
                raise server_error(error, doing) from error
            self.committed(changed)
            return

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self.database.connect()
        return self._connection

    async def _disconnect(self) -> None:
        """Close the connection, and with it the transaction that a failure left open."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            await connection.close(timeout=1)
        except SERVER_ERRORS:
            connection.terminate()


async def _write(connection: Connection, schema: str, group: list[PendingAppend]) -> set[str]:
    """Write the group inside the open transaction; returns the sessions that have new entries."""
    await lock_sessions(connection, schema, {pending.batch.session_id for pending in group})
    if any(pending.batch.blobs for pending in group):
        await lock_blobs(connection, schema, shared=True)
    checked = await _check(connection, group)
    try:
        await _insert(connection, checked)
    except asyncpg.PostgresError as error:
        if is_retryable(error):
            raise
        checked = [one for pending in group for one in await _write_alone(connection, pending)]
    return {one.batch.session_id for one in checked}


async def _insert(connection: Connection, checked: list[Checked]) -> None:
    if checked:
        async with connection.transaction():
            await insert(connection, checked)


async def _write_alone(connection: Connection, pending: PendingAppend) -> list[Checked]:
    """Write one append separately, after the database refused its group."""
    checked = await _check(connection, [pending])
    try:
        await _insert(connection, checked)
    except asyncpg.PostgresError as error:
        if is_retryable(error):
            raise
        message = f"The database refused the append: {error}"
        is_taken = isinstance(error, asyncpg.UniqueViolationError)
        pending.error = Conflict(message) if is_taken else StoreError(message, cause=error)
        return []
    return checked


async def _check(connection: Connection, group: list[PendingAppend]) -> list[Checked]:
    """The appends to insert, each checked as if those before it were stored; sets the error of the others."""
    checked: list[Checked] = []
    earlier: dict[str, dict[str, Row]] = {}  # rows of this group, by session and id, in order
    leases: dict[str, Lease] = {}  # taken by claims of this group
    found, now = await existing(connection, [pending.batch for pending in group])
    for pending, known in zip(group, found, strict=True):
        batch = pending.batch
        rows = earlier.setdefault(batch.session_id, {})
        known = _with_rows(known, rows, batch) if rows else known
        known = replace(known, lease=leases.get(batch.session_id, known.lease))
        pending.error, pending.lease = None, None
        try:
            new, lease = check_append(batch, known, pending.expected_tail, pending.permit, lambda: now)
        except StoreError as error:
            pending.error = error
            continue
        if new or lease:
            checked.append(Checked(batch, new, known, lease))
            rows.update({row.id: row for row in new})
        if lease is not None:
            pending.lease = leases[batch.session_id] = lease
    return checked


def _with_rows(found: Existing, rows: dict[str, Row], batch: Batch) -> Existing:
    """What exists once these rows are stored too."""
    last = next(reversed(rows.values()))
    return replace(
        found,
        tail=Tail(last.id, last.seq),
        texts={**found.texts, **{id: rows[id].text for id in batch.ids if id in rows}},
        seqs={**found.seqs, **{id: rows[id].seq for id in batch.references if id in rows}},
        results={*found.results, *(call for row in rows.values() for call in row.results)},
    )
