"""`GroupCommit`: one task that commits whatever waits, in one transaction, and tells each caller its own outcome.

While one group is on its way the next one gathers. Locks on the sessions come first, in one order for all stores, and
keep other stores out until the commit: what was looked up still holds when it is written.

A refused append (`Conflict`, ...) writes nothing and leaves the others alone. All others are inserted together under a
savepoint; if the database refuses them, each append of the group is done again under a savepoint of its own.
Nobody hears of anything before the commit, not even of a conflict: it may be one with an append of the same group.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import asyncpg  # type: ignore[import-untyped]
from msgspec.structs import replace

from bartack.nouns.errors import Conflict, StoreError
from bartack.store.append import Draft, Present, Row, admit
from bartack.store.postgres.connection import TROUBLE, Connection, Link, failure, is_retried
from bartack.store.postgres.rows import Admitted, insert, look_up
from bartack.store.postgres.schema import lock_number
from bartack.store.session_store import Lease, Tail

__all__ = ["BODIES_LOCK", "GroupCommit", "session_lock"]

_GROUP_LIMIT = 256  # appends; each holds one of the server's locks
_GROUP_BYTES = 8 * 1024 * 1024
_TRIES = 3
BODIES_LOCK = "bodies"  # shared by appends that use bodies, exclusive where unused ones are deleted


@dataclass(eq=False)
class Wish:
    """One append that waits; `outcome` is for after the commit."""

    draft: Draft
    expected_tail: str | None
    lease: Lease | None
    future: "asyncio.Future[Tail]"
    outcome: Tail | Exception | None = None

    @property
    def size(self) -> int:
        return sum(len(row.text) for row in self.draft.rows) + sum(map(len, self.draft.bodies.values()))

    def deliver(self) -> None:
        if self.future.done():  # its caller is gone
            return
        if isinstance(self.outcome, Tail):
            self.future.set_result(self.outcome)
        else:
            self.future.set_exception(self.outcome or StoreError("the append was not tried"))


@dataclass
class GroupCommit:
    """The task and its connection. `landed` hears which sessions have news, after each commit."""

    link: Link
    landed: Callable[[Collection[str]], None]
    _waiting: deque[Wish] = field(default_factory=deque)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _connection: Connection | None = None
    _task: "asyncio.Task[None] | None" = None
    _closed: bool = False

    async def append(self, draft: Draft, expected_tail: str | None, lease: Lease | None) -> Tail:
        """The place of the last entry, once it is durable."""
        if self._closed:
            raise StoreError("the store is closed")
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="bartack-postgres-writer")
        future: asyncio.Future[Tail] = asyncio.get_running_loop().create_future()
        self._waiting.append(Wish(draft, expected_tail, lease, future))
        self._news.set()
        return await future

    async def close(self) -> None:
        """Finish what waits, then let go of the connection."""
        self._closed = True
        self._news.set()
        if self._task is not None:
            await self._task
        await self._drop_connection()

    async def _run(self) -> None:
        while self._waiting or not self._closed:
            if not self._waiting:
                self._news.clear()
                await self._news.wait()
                continue
            group = self._take()
            try:
                await self._commit(group)
            except Exception as error:  # noqa: BLE001 - every caller of the group hears of it; the task goes on
                for wish in group:
                    wish.outcome = error
                await self._drop_connection()
            for wish in group:
                wish.deliver()

    def _take(self) -> list[Wish]:
        group: list[Wish] = []
        size = 0
        while self._waiting and len(group) < _GROUP_LIMIT and size < _GROUP_BYTES:
            wish = self._waiting.popleft()
            if not wish.future.done():
                group.append(wish)
                size += wish.size
        return group

    async def _commit(self, group: list[Wish]) -> None:
        for tries_left in reversed(range(_TRIES)):
            connection = await self._connected()
            transaction = connection.transaction()
            try:
                await transaction.start()
                changed = await _write(connection, self.link.schema, group)
            except TROUBLE as error:  # before the commit nothing has happened
                await self._drop_connection()
                if tries_left and is_retried(error):
                    continue
                raise failure(error, "appending") from error
            try:
                await transaction.commit()
            except TROUBLE as error:
                raise failure(error, "committing (append the same entries again to know the outcome)") from error
            self.landed(changed)
            return

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self.link.connect()
        return self._connection

    async def _drop_connection(self) -> None:
        """What a failed transaction left open goes with its connection."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            await connection.close(timeout=1)
        except TROUBLE:
            connection.terminate()


def session_lock(schema: str, session_id: str) -> int:
    """The number of the lock that whoever writes to a session holds."""
    return lock_number("session", schema, session_id)


async def _write(connection: Connection, schema: str, group: list[Wish]) -> set[str]:
    """Do the group inside the open transaction; gives the sessions that have new entries."""
    await connection.execute(
        "SELECT pg_advisory_xact_lock(n) FROM unnest($1::bigint[]) n",
        sorted({session_lock(schema, wish.draft.session_id) for wish in group}),
    )
    if any(wish.draft.bodies for wish in group):
        await connection.execute("SELECT pg_advisory_xact_lock_shared($1)", lock_number(BODIES_LOCK, schema))
    presents = await look_up(connection, [wish.draft for wish in group])
    admitted = _judged(group, presents)
    try:
        await _insert(connection, admitted)
    except asyncpg.PostgresError as error:
        if is_retried(error):
            raise
        admitted = [one for wish in group for one in await _alone(connection, wish)]
    return {one.draft.session_id for one in admitted}


async def _insert(connection: Connection, admitted: list[Admitted]) -> None:
    if admitted:
        async with connection.transaction():
            await insert(connection, admitted)


async def _alone(connection: Connection, wish: Wish) -> list[Admitted]:
    """Do one append by itself, after the database refused the group it was in."""
    admitted = _judged([wish], await look_up(connection, [wish.draft]))
    try:
        await _insert(connection, admitted)
    except asyncpg.PostgresError as error:
        if is_retried(error):
            raise
        is_taken = isinstance(error, asyncpg.UniqueViolationError)
        refusal = f"the database refuses the append: {error}"
        wish.outcome = Conflict(refusal) if is_taken else StoreError(refusal, cause=error)
        return []
    return admitted


def _judged(group: list[Wish], presents: list[Present]) -> list[Admitted]:
    """The appends that may land, as if each saw what those before it leave; every wish gets its outcome."""
    admitted: list[Admitted] = []
    left: dict[str, _Left] = {}
    for wish, present in zip(group, presents, strict=True):
        session_id, last = wish.draft.session_id, wish.draft.rows[-1]
        if session_id in left:
            present = left[session_id].seen(wish.draft, present)
        wish.outcome = Tail(last.id, last.seq)
        try:
            rows = admit(wish.draft, present, wish.expected_tail, wish.lease)
        except StoreError as refusal:
            wish.outcome = refusal
            continue
        if rows:
            admitted.append(Admitted(wish.draft, rows, present))
            left.setdefault(session_id, _Left()).rows.update({row.id: row for row in rows})
    return admitted


@dataclass
class _Left:
    """The rows that earlier appends of a group leave in a session, in order."""

    rows: dict[str, Row] = field(default_factory=dict)

    def seen(self, draft: Draft, present: Present) -> Present:
        """What is there, with these rows."""
        last = next(reversed(self.rows.values()))
        texts = {id: self.rows[id].text for id in draft.ids if id in self.rows}
        seqs = {id: self.rows[id].seq for id in draft.named if id in self.rows}
        ended = [call for row in self.rows.values() for call in row.results]
        return replace(
            present,
            tail=Tail(last.id, last.seq),
            texts={**present.texts, **texts},
            seqs={**present.seqs, **seqs},
            results={*present.results, *ended},
        )
