"""`GroupCommit`: one task stores all pending appends with one statement, and each caller gets its own outcome.

While one group is being stored the next one gathers. An append is checked against what is known of its session: from
the last append of this store, or looked up. The statement stores it only if the session is still as known; otherwise it
is looked up and checked again. So an ordinary append is one round trip, and no lock outlives a statement.

A refused append (`Conflict`, ...) writes nothing and does not affect the others. If the database refuses the statement,
each append of the group is repeated alone, with a fresh look. Outcomes are reported when the whole group is stored,
also conflicts: they may be with an append of the same group.

If the connection is lost the outcome is unknown. Then everything is looked up again: entries that are stored already
are skipped, so that repeating an append does no harm.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import asyncpg  # type: ignore[import-untyped]
from msgspec.structs import replace

from bartack.nouns.errors import Conflict, StoreError
from bartack.store.append import Batch, Clock, Existing, Permit, Row, check_append, prepare
from bartack.store.errors import store_closed_error
from bartack.store.leases import Moment
from bartack.store.postgres.connection import SERVER_ERRORS, Database, PostgresConnection, is_retryable, server_error
from bartack.store.postgres.rows import KnownSession, StorableAppend, fence_of, insert, look_up
from bartack.store.session_store import Lease, SessionAppend, Tail
from bartack.store.writer_thread import deliver, own_error

__all__ = ["GroupCommit", "append_in_transaction"]

_GROUP_LIMIT = 256  # appends
_GROUP_BYTES = 8 * 1024 * 1024
_ATTEMPTS = 3
_ROUNDS = 20  # how often sessions may have changed between the look and the statement
_KNOWN = 10_000  # sessions


@dataclass(eq=False)
class PendingAppend:
    """An append that waits for its commit. `error` is reported after it."""

    batch: Batch
    expected_tail: str | None
    permit: Permit
    future: "asyncio.Future[Lease | None]"
    lease: Lease | None = None  # the lease that a claim has taken
    error: BaseException | None = field(default_factory=lambda: StoreError("The append was not attempted."))

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
    _connection: PostgresConnection | None = None
    _task: "asyncio.Task[None] | None" = None
    _closed: bool = False
    _known: dict[str, KnownSession] = field(default_factory=dict)  # sessions as the last append left them, newest last

    async def append(self, batch: Batch, expected_tail: str | None, permit: Permit) -> Lease | None:
        """Store the batch durably; returns the lease that a claim has taken."""
        if self._closed:
            raise store_closed_error()
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
                    pending.error = own_error(error)
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

    def lease_changed(self, lease: Lease) -> None:
        """Call when the session has another lease."""
        session = self._known.get(lease.session_id)
        if session is not None:
            self._known[lease.session_id] = session.with_lease(lease)

    async def _commit(self, group: list[PendingAppend]) -> None:
        for attempts_left in reversed(range(_ATTEMPTS)):
            try:
                changed = await self._write(await self._connected(), group)
            except SERVER_ERRORS as error:
                await self._disconnect()
                self._known.clear()
                if attempts_left and is_retryable(error):
                    continue
                doing = "appending (the outcome is unknown; append the same entries again)"
                raise server_error(error, doing) from error
            self.committed(changed)
            return

    async def _connected(self) -> PostgresConnection:
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

    async def _write(self, connection: PostgresConnection, group: Sequence[PendingAppend]) -> set[str]:
        """Store the group; returns the sessions that have new entries."""
        changed: set[str] = set()
        for _ in range(_ROUNDS):
            checked, sessions = await self._check(connection, group)
            if not checked:
                return changed
            try:
                stored = await insert(connection, checked, sessions)
            except asyncpg.PostgresError as error:
                if is_retryable(error):
                    raise
                return changed.union(*[await self._write_alone(connection, pending, error) for pending in group])
            self._remember(stored)
            changed |= stored.keys()
            stale = sessions.keys() - stored.keys()
            group = [pending for pending in group if pending.batch.session_id in stale]
            for session_id in stale:
                self._known.pop(session_id, None)
        for pending in group:
            pending.error = StoreError(
                "The session changes faster than it can be appended to. Try again.", retryable=True
            )
        return changed

    async def _write_alone(
        self, connection: PostgresConnection, pending: PendingAppend, refusal: Exception
    ) -> set[str]:
        """Store one append separately, after the database refused its group."""
        self._known.pop(pending.batch.session_id, None)
        checked, sessions = await self._check(connection, [pending])
        try:
            stored = await insert(connection, checked, sessions) if checked else {}
        except asyncpg.PostgresError as error:
            if is_retryable(error):
                raise
            message = f"The database refused the append: {error}"
            is_taken = isinstance(error, asyncpg.UniqueViolationError)
            pending.error = Conflict(message) if is_taken else StoreError(message, cause=error)
            return set()
        if checked and not stored:
            message = f"The session changed while the append was repeated. Append the same entries again. ({refusal})"
            pending.error = StoreError(message, retryable=True)
        return set(stored)

    async def _check(
        self, connection: PostgresConnection, group: Sequence[PendingAppend]
    ) -> tuple[list[StorableAppend], dict[str, KnownSession]]:
        """The appends to insert, and what is known of their sessions; sets the outcome of all."""
        alone: dict[str, PendingAppend | None] = {}  # the only append to a session; None: there are several
        for pending in group:
            session_id = pending.batch.session_id
            alone[session_id] = None if session_id in alone else pending
        sessions: dict[str, KnownSession] = {}
        for session_id, only in alone.items():
            cached = self._known.get(session_id)
            if only is not None and cached is not None and _follows(only, cached):
                sessions[session_id] = cached
        unknown = [pending for pending in group if pending.batch.session_id not in sessions]
        looked_up: dict[int, Existing] = {}
        clock: Clock = _no_time
        if unknown:
            found_all, clock = await look_up(connection, [pending.batch for pending in unknown])
            for pending, (session, existing) in zip(unknown, found_all, strict=True):
                sessions[pending.batch.session_id] = session
                looked_up[id(pending)] = existing
        checked = _Checking(sessions, clock).run(group, looked_up)
        return checked, {append.batch.session_id: sessions[append.batch.session_id] for append in checked}

    def _remember(self, stored: dict[str, KnownSession]) -> None:
        for session_id, session in stored.items():
            self._known.pop(session_id, None)
            self._known[session_id] = session
        while len(self._known) > _KNOWN:
            del self._known[next(iter(self._known))]


async def append_in_transaction(connection: PostgresConnection, append: SessionAppend) -> None:
    """Store an append in the transaction that the caller has begun, and will roll back if this raises."""
    batch = prepare(append.session_id, append.entries)
    ((session, existing),), clock = await look_up(connection, [batch])
    rows, _ = check_append(batch, existing, append.expected_tail, None, clock)
    if not rows:
        return
    storable = StorableAppend(batch, rows, existing, None, is_exact=False)
    try:
        stored = await insert(connection, [storable], {batch.session_id: session})
    except asyncpg.UniqueViolationError as error:
        raise Conflict(f"The database refused the append: {error}") from error
    if not stored:
        raise Conflict(f"Session {batch.session_id!r} changed meanwhile.")


def _no_time() -> Moment:
    """The time for appends that do not depend on it."""
    return Moment(datetime.min.replace(tzinfo=UTC))


def _follows(pending: PendingAppend, session: KnownSession) -> bool:
    """Whether the append can be checked with what is known: it follows the tail, and needs nothing else.

    If the ids or results in it are taken, the database refuses it, and it is looked up.
    """
    tail, batch = session.tail, pending.batch
    if tail is None or (tail.entry_id, tail.seq + 1) != (pending.expected_tail, batch.rows[0].seq):
        return False
    if not batch.references <= {tail.entry_id}:
        return False
    if isinstance(pending.permit, Lease):
        return fence_of(pending.permit) == session.fence
    return pending.permit is None and (session.lease is None or not session.lease.owner)


@dataclass
class _Checking:
    """Checks appends, each as if those before it were stored."""

    sessions: dict[str, KnownSession]
    clock: Clock

    def run(self, group: Sequence[PendingAppend], looked_up: dict[int, Existing]) -> list[StorableAppend]:
        checked: list[StorableAppend] = []
        earlier: dict[str, dict[str, Row]] = {}  # rows of this group, by session and id, in order
        leases: dict[str, Lease] = {}  # taken by claims of this group
        for pending in group:
            batch, session = pending.batch, self.sessions[pending.batch.session_id]
            rows = earlier.setdefault(batch.session_id, {})
            existing = looked_up.get(id(pending)) or _at_tail(session)
            existing = _with_rows(existing, rows, batch) if rows else existing
            if batch.session_id in leases:
                existing = replace(existing, lease=leases[batch.session_id])
            pending.error, pending.lease = None, None
            try:
                new_rows, lease = check_append(batch, existing, pending.expected_tail, pending.permit, self.clock)
            except StoreError as error:
                pending.error = error
                continue
            if new_rows or lease:
                is_held = session.lease is not None and bool(session.lease.owner)
                is_exact = is_held and not isinstance(pending.permit, Lease)
                checked.append(StorableAppend(batch, new_rows, existing, lease, is_exact))
                rows.update({row.id: row for row in new_rows})
            if lease is not None:
                pending.lease = leases[batch.session_id] = lease
        return checked


def _at_tail(session: KnownSession) -> Existing:
    """What exists, as far as an append that `_follows` is concerned."""
    assert session.tail is not None
    lease = session.lease if session.lease is not None and session.lease.owner else None
    return Existing(
        session.tail, seqs={session.tail.entry_id: session.tail.seq}, lease=lease, checksum=session.checksum
    )


def _with_rows(existing: Existing, rows: dict[str, Row], batch: Batch) -> Existing:
    """What exists once these rows are stored too."""
    last = next(reversed(rows.values()))
    return replace(
        existing,
        tail=Tail(last.id, last.seq),
        texts={**existing.texts, **{id: rows[id].text for id in batch.ids if id in rows}},
        seqs={**existing.seqs, **{id: rows[id].seq for id in batch.references if id in rows}},
        results={*existing.results, *(call for row in rows.values() for call in row.results)},
        checksum=last.checksum,
    )
