"""`GroupCommit`: one task that commits whatever waits, in one transaction, and tells each caller its own outcome.

While one group is on its way the next one gathers. A group is done in rounds, each with one append per session, since
an append must see what the one before it left. Locks on the sessions come first, in one order for all stores, and keep
other stores out until the commit: what was looked up still holds when it is written.

A refused append (`Conflict`, ...) writes nothing and leaves the others alone. The rows of a round are inserted together
under a savepoint; if the database refuses them, each append of the round is tried under a savepoint of its own.
Nobody hears of anything before the commit, not even of a conflict: it may be one with an append of the same group.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import asyncpg  # type: ignore[import-untyped]

from weft.errors import Conflict, StoreError
from weft.store.admission import Draft, admit
from weft.store.postgres_link import TROUBLE, Connection, Link, failure, is_lost, is_retried
from weft.store.postgres_rows import Admitted, insert, look_up
from weft.store.postgres_schema import lock_number
from weft.store.session_store import Lease, Tail

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
    outcome: Tail | StoreError | None = None

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
            self._task = asyncio.create_task(self._run(), name="weft-postgres-writer")
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
                    wish.outcome = error if isinstance(error, StoreError) else failure(error, "appending")
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
    changed: set[str] = set()
    rest = group
    while rest:
        by_session: dict[str, Wish] = {}
        later = [wish for wish in rest if by_session.setdefault(wish.draft.session_id, wish) is not wish]
        changed |= await _round(connection, list(by_session.values()))
        rest = later
    return changed


async def _round(connection: Connection, wishes: list[Wish]) -> set[str]:
    presents = await look_up(connection, [wish.draft for wish in wishes])
    admitted: dict[Wish, Admitted] = {}
    for wish, present in zip(wishes, presents, strict=True):
        last = wish.draft.rows[-1]
        wish.outcome = Tail(last.id, last.seq)
        try:
            rows = admit(wish.draft, present, wish.expected_tail, wish.lease)
        except StoreError as error:
            wish.outcome = error
            continue
        if rows:
            admitted[wish] = Admitted(wish.draft, rows, present)
    if admitted and not await _inserted(connection, list(admitted.values())):
        for wish, one in list(admitted.items()):
            refusal = await _refusal(connection, one)
            if refusal is not None:
                wish.outcome = refusal
                del admitted[wish]
    return {wish.draft.session_id for wish in admitted}


async def _inserted(connection: Connection, admitted: list[Admitted]) -> bool:
    """Whether the database took them all; if not, it holds none of them."""
    try:
        async with connection.transaction():
            await insert(connection, admitted)
    except asyncpg.PostgresError as error:
        if is_retried(error):
            raise
        return False
    return True


async def _refusal(connection: Connection, admitted: Admitted) -> StoreError | None:
    """Store one append, or say why the database does not take it."""
    try:
        async with connection.transaction():
            await insert(connection, [admitted])
    except asyncpg.UniqueViolationError as error:
        return Conflict(f"the database holds it otherwise: {error}")
    except asyncpg.PostgresError as error:
        if is_lost(error) or is_retried(error):
            raise
        return failure(error, "storing an append")
    return None
