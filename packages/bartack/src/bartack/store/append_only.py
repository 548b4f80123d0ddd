"""The interface of a store, implemented once for all four.

A store runs work on its `Tables`: `Logs` in memory or in files, or the tables of a database. `AppendOnlyStore`
implements each method of `SessionStore` as such work. To append, `append` prepares the batch (bartack.store.append);
then, in one transaction, the tables look up what exists, `check_append` decides, and the tables insert the entries
durably. Followers are woken by appends in this process, and poll for those of other processes.
"""

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from bartack.environment import Environment
from bartack.events import LiveEvent
from bartack.nouns.entries import Entry, MessageDeltaBatch, SessionHeader
from bartack.nouns.errors import StoreError
from bartack.store.append import Batch, Clock, Existing, Permit, Row, check_append, check_drop, prepare
from bartack.store.entries import Entries
from bartack.store.errors import invalid_value_error
from bartack.store.leases import Moment, check_fence, held_lease, release_lease, renew_lease, take_lease, this_process
from bartack.store.live import LiveReader, Position
from bartack.store.session_store import (
    EMPTY_HEADER,
    Claim,
    Hit,
    Inspection,
    Lease,
    Page,
    SessionAppend,
    Tail,
    Totals,
    next_entries,
)

__all__ = ["AppendOnlyStore", "Appends", "ChangeLease", "L", "ReadableTables", "TableStore", "Tables", "append_to"]

_PAGE = 1000  # entries that a follower fetches at a time

T = TypeVar("T")
S = TypeVar("S", bound=Sequence[Any])
L = TypeVar("L", bound=Lease | None)
Appends = Callable[[], Iterable[SessionAppend]]
ChangeLease = Callable[[Clock, Lease | None], L]  # the current lease -> the new one; None changes nothing


class ReadableTables(Protocol):
    """What can be read in one transaction. A session or entry that does not exist is `NotFound`."""

    def tail(self, session_id: str) -> Tail: ...
    def load(self, session_id: str, head: str | None) -> Entries: ...
    def entries(self, session_id: str, after_seq: int, limit: int | None, *, hide: bool = False) -> Entries: ...
    def heads(self, session_id: str) -> tuple[str, ...]: ...
    def sessions(self, limit: int, cursor: str | None, query: str | None, *, prefix: str, reserved: bool) -> Page: ...
    def search(self, text: str, limit: int, *, prefix: str, best_first: bool) -> tuple[Hit, ...]: ...
    def totals(self, session_id: str | None) -> Totals: ...
    def inspect(self, session_id: str | None) -> Inspection: ...
    def journal(self, session_id: str, generation: int, after_number: int) -> Sequence[MessageDeltaBatch]: ...


class Tables(ReadableTables, Protocol):
    """What can be read and written in one transaction."""

    def existing(self, batch: Batch) -> Existing: ...
    def insert(self, batch: Batch, rows: tuple[Row, ...], existing: Existing) -> None: ...
    def lease(self, session_id: str) -> Lease | None: ...
    def set_lease(self, lease: Lease) -> None: ...
    def write_journal(self, session_id: str, batch: MessageDeltaBatch | None) -> None: ...
    def drop(self, session_id: str) -> None: ...
    def append_all(self, session_ids: Sequence[str], appends: Iterable[SessionAppend], clock: Clock) -> None: ...


class AppendOnlyStore(ABC):
    """A `SessionStore` on top of transactions."""

    path: Path | None = None
    poll_s: float | None = None  # how often a follower checks for entries from other processes; None: never

    def __init__(self, environment: Environment | None) -> None:
        self.environment: Environment = environment or Environment()
        self._process = os.getpid()
        self._followers = Followers()

    @abstractmethod
    async def _read(self, work: Callable[[ReadableTables], T]) -> T:
        """The result of `work`, which sees one state of the store."""

    async def _scan(self, work: Callable[[ReadableTables], T]) -> T:
        """Like `_read`, for what may read every session. A store may keep other readers from waiting for it."""
        return await self._read(work)

    @abstractmethod
    def _append(self, batch: Batch, expected_tail: str | None, permit: Permit) -> Awaitable[Lease | None]:
        """Check the batch and store it durably, with the lease that a claim takes, in one transaction."""

    @abstractmethod
    def _append_all(self, session_ids: Sequence[str], appends: Appends) -> Awaitable[None]:
        """Check the appends and store them durably, in one transaction."""

    @abstractmethod
    async def _write_journal(self, lease: Lease, batch: MessageDeltaBatch | None) -> None:
        """Add a batch to the session's journal after removing those of other generations; None removes all."""

    @abstractmethod
    async def _change_lease(self, session_id: str, change: ChangeLease[L]) -> L:
        """Replace the session's lease by what `change` returns, durably and in one transaction."""

    def check_usable(self) -> None:
        """Raise `StoreError` in a process that was forked from the one that opened the store.

        Threads, locks and connections do not survive a fork: a call would wait forever, or write to a connection that
        the parent uses too.
        """
        if os.getpid() != self._process:
            raise StoreError("The store was opened before this process was forked. Open it again in this process.")

    async def _reading(self, work: Callable[[ReadableTables], T]) -> T:
        self.check_usable()
        return await self._read(work)

    async def _scanning(self, work: Callable[[ReadableTables], T]) -> T:
        self.check_usable()
        return await self._scan(work)

    async def _changing_lease(self, session_id: str, change: ChangeLease[L]) -> L:
        self.check_usable()
        return await self._change_lease(session_id, change)

    async def create_session(self, session_id: str | None = None, header: SessionHeader = EMPTY_HEADER) -> Entry:
        (entry,) = next_entries(session_id or self.environment.new_id(), None, [header], self.environment)
        await self.append(entry.session_id, [entry], None)
        return entry

    async def append(
        self, session_id: str, entries: Sequence[Entry], expected_tail: str | None, *, lease: Lease | None = None
    ) -> Tail:
        self.check_usable()
        batch = prepare(session_id, entries)
        await self._append(batch, expected_tail, lease)
        self._followers.wake(session_id)
        return batch.tail

    async def append_all(self, session_ids: Sequence[str], appends: Appends) -> None:
        self.check_usable()
        await self._append_all(session_ids, appends)
        for session_id in session_ids:
            self._followers.wake(session_id)

    async def claim(
        self,
        session_id: str,
        entries: Sequence[Entry],
        expected_tail: str | None,
        owner: str,
        *,
        ttl: float = 30.0,
        takeover: bool = False,
    ) -> Lease:
        self.check_usable()
        batch = prepare(session_id, entries)
        lease = await self._append(batch, expected_tail, Claim(owner, ttl, this_process(), takeover))
        assert lease is not None  # a claim takes one
        self._followers.wake(session_id)
        return lease

    async def load(self, session_id: str, *, head: str | None = None) -> Entries:
        return await self._reading(lambda tables: tables.load(session_id, head))

    async def entries(self, session_id: str, after_seq: int = 0, limit: int | None = None) -> Entries:
        return await self._reading(lambda tables: tables.entries(session_id, after_seq, limit))

    async def heads(self, session_id: str) -> tuple[str, ...]:
        return await self._reading(lambda tables: tables.heads(session_id))

    async def tail_of(self, session_id: str) -> Tail:
        return await self._reading(lambda tables: tables.tail(session_id))

    async def sessions(
        self,
        limit: int = 50,
        cursor: str | None = None,
        query: str | None = None,
        *,
        prefix: str = "",
        reserved: bool = False,
    ) -> Page:
        return await self._scanning(
            lambda tables: tables.sessions(limit, cursor, query, prefix=prefix, reserved=reserved)
        )

    async def search(
        self, text: str, limit: int = 50, *, prefix: str = "", best_first: bool = False
    ) -> tuple[Hit, ...]:
        return await self._scanning(lambda tables: tables.search(text, limit, prefix=prefix, best_first=best_first))

    async def totals(self, session_id: str | None = None) -> Totals:
        return await self._scanning(lambda tables: tables.totals(session_id))

    async def inspect(self, session_id: str | None = None, *, repair: bool = False) -> Inspection:
        del repair  # transactions leave nothing half-written
        return await self._scanning(lambda tables: tables.inspect(session_id))

    async def acquire_lease(self, session_id: str, owner: str, ttl: float = 30.0, *, takeover: bool = False) -> Lease:
        claim = Claim(owner, ttl, this_process(), takeover)
        return await self._changing_lease(
            session_id, lambda clock, current: take_lease(session_id, claim, clock(), current)
        )

    async def lease_of(self, session_id: str) -> Lease | None:
        leases: list[Lease | None] = []

        def look(clock: Clock, lease: Lease | None) -> None:
            leases.append(held_lease(lease, clock()))

        await self._changing_lease(session_id, look)
        return leases[-1]

    async def renew_lease(self, lease: Lease, ttl: float = 30.0) -> Lease:
        return await self._changing_lease(
            lease.session_id, lambda clock, current: renew_lease(lease, clock(), ttl, current)
        )

    async def release_lease(self, lease: Lease) -> None:
        await self._changing_lease(lease.session_id, lambda _, current: release_lease(lease, current))

    async def write_journal(self, lease: Lease, batch: MessageDeltaBatch) -> None:
        if not batch.deltas:
            raise invalid_value_error("A batch of the journal needs at least one delta.")
        self.check_usable()
        await self._write_journal(lease, batch)
        self._followers.wake(lease.session_id, only_live=True)

    async def clear_journal(self, lease: Lease) -> None:
        self.check_usable()
        await self._write_journal(lease, None)

    async def read_journal(
        self, session_id: str, generation: int = 0, after_number: int = -1
    ) -> tuple[MessageDeltaBatch, ...]:
        return tuple(await self._reading(lambda tables: tables.journal(session_id, generation, after_number)))

    async def follow_live(self, session_id: str, position: str = "") -> AsyncIterator[LiveEvent]:
        reader = LiveReader(_SharedReads(self), session_id, Position.parse(position))
        async with aclosing(self._rounds(session_id, reader.read, is_live=True)) as rounds:
            async for events in rounds:
                for event in events:
                    yield event

    async def follow(self, session_id: str, after_seq: int = 0) -> AsyncIterator[Entry]:
        reads = _SharedReads(self)

        async def read() -> Entries:
            return await reads.read_after(session_id, after_seq)

        async with aclosing(self._rounds(session_id, read)) as rounds:
            async for entries in rounds:
                for entry in entries:
                    yield entry
                    after_seq = entry.seq

    async def _rounds(
        self, session_id: str, read: Callable[[], Awaitable[S]], *, is_live: bool = False
    ) -> AsyncGenerator[S, None]:
        """Yield what `read` returns, repeatedly: at once if there may be more, otherwise after a wake-up or a poll."""
        with self._followers.registered(session_id, is_live=is_live) as woken:
            while not self._followers.closed:
                woken.clear()  # before reading: an append during the read sets it again
                items = await read()
                if items:
                    yield items
                if len(items) >= _PAGE or woken.is_set():
                    continue
                if self.poll_s is not None:
                    self._followers.poll(session_id, self.poll_s)
                await woken.wait()

    async def read_after(self, session_id: str, after_seq: int) -> Entries:
        """The next entries for a follower, with redacted content removed."""
        return await self._reading(lambda tables: tables.entries(session_id, after_seq, _PAGE, hide=True))


class _SharedReads:
    """What followers read. All that are at the same place get the result of one read.

    Two hundred followers of a session wake up together, and without this each would read and decode every new entry. A
    follower joins a read that has begun only if nothing was appended since: otherwise it might miss that.
    """

    def __init__(self, store: AppendOnlyStore) -> None:
        self._store = store

    async def read_after(self, session_id: str, after_seq: int) -> Entries:
        return await self._shared(session_id, after_seq, lambda: self._store.read_after(session_id, after_seq))

    async def read_journal(
        self, session_id: str, generation: int = 0, after_number: int = -1
    ) -> tuple[MessageDeltaBatch, ...]:
        return await self._shared(
            session_id,
            (generation, after_number),
            lambda: self._store.read_journal(session_id, generation, after_number),
        )

    async def _shared(self, session_id: str, place: object, read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        followers = self._store._followers
        key = (session_id, place, followers.news, id(asyncio.get_running_loop()))
        task = followers.reads.get(key)
        if task is None:
            task = followers.reads[key] = asyncio.ensure_future(read())
            task.add_done_callback(lambda task: followers.forget_read(key, task))
        return cast(T, await asyncio.shield(task))  # a follower that is cancelled does not take it from the others


class TableStore(AppendOnlyStore):
    """The common half of the stores that run their work in this process: all but PostgreSQL."""

    @abstractmethod
    def _write(self, work: Callable[[Tables], T], *, is_long: bool = False) -> Awaitable[T]:
        """The result of `work`; when this returns, what it stored is durable. Long work has no time limit."""

    def _write_lease(self, work: Callable[[Tables], T]) -> Awaitable[T]:
        """The same for a lease, which a power loss may undo: it ends every process that could hold one."""
        return self._write(work)

    def _moment(self) -> Moment:
        return Moment(self.environment.now(), self.environment.boot_s())

    def _append(self, batch: Batch, expected_tail: str | None, permit: Permit) -> Awaitable[Lease | None]:
        return self._write(partial(append_to, self._moment, batch, expected_tail, permit))

    def _append_all(self, session_ids: Sequence[str], appends: Appends) -> Awaitable[None]:
        return self._write(lambda tables: tables.append_all(session_ids, appends(), self._moment), is_long=True)

    async def _change_lease(self, session_id: str, change: ChangeLease[L]) -> L:
        def work(tables: Tables) -> L:
            lease = change(self._moment, tables.lease(session_id))
            if lease is not None:
                tables.set_lease(lease)
            return lease

        return await self._write_lease(work)

    async def inspect(self, session_id: str | None = None, *, repair: bool = False) -> Inspection:
        inspection = await super().inspect(session_id, repair=repair)
        return inspection._replace(lease=held_lease(inspection.lease, self._moment()))

    async def _write_journal(self, lease: Lease, batch: MessageDeltaBatch | None) -> None:
        def work(tables: Tables) -> None:
            check_fence(lease.session_id, lease, tables.lease(lease.session_id))
            tables.write_journal(lease.session_id, batch)

        await self._write(work)

    async def drop_session(self, session_id: str, *, expected_tail: str | None = None) -> None:
        self.check_usable()

        def work(tables: Tables) -> None:
            check_drop(session_id, tables.tail(session_id), expected_tail)
            tables.drop(session_id)

        await self._write(work)
        self._followers.wake(session_id)


def append_to(clock: Clock, batch: Batch, expected_tail: str | None, permit: Permit, tables: Tables) -> Lease | None:
    """Check the batch and insert it."""
    existing = tables.existing(batch)
    rows, lease = check_append(batch, existing, expected_tail, permit, clock)
    if rows:
        tables.insert(batch, rows, existing)
    if lease is not None:
        tables.set_lease(lease)
    return lease


class Followers:
    """The followers of a store's sessions, which may be in different event loops."""

    def __init__(self) -> None:
        self.closed: bool = False
        self.news = 0  # how often followers were woken because of news
        self.reads: dict[tuple[object, ...], asyncio.Future[Any]] = {}  # reads in progress
        self._polls: set[tuple[str, asyncio.AbstractEventLoop]] = set()
        self._waiting: dict[str, dict[asyncio.Event, tuple[asyncio.AbstractEventLoop, bool]]] = {}

    @contextmanager
    def registered(self, session_id: str, *, is_live: bool = False) -> Iterator[asyncio.Event]:
        """An event that `wake` sets. It may be set without a new entry, so a follower relies on seq.

        A follower that `is_live` also reads the journal.
        """
        event = asyncio.Event()
        waiting = self._waiting.setdefault(session_id, {})
        waiting[event] = (asyncio.get_running_loop(), is_live)
        try:
            yield event
        finally:
            waiting.pop(event)
            if not waiting:
                self._waiting.pop(session_id, None)

    def followed(self) -> list[str]:
        """The sessions that have followers."""
        return list(self._waiting)

    def wake(self, session_id: str, *, only_live: bool = False) -> None:
        """Have the followers of this session look for new entries, or only those that read the journal."""
        current_loop = asyncio.get_running_loop()
        self.news += 1
        for event, (loop, is_live) in list(self._waiting.get(session_id, {}).items()):
            if only_live and not is_live:
                continue
            if loop is current_loop:
                event.set()
            elif not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    def poll(self, session_id: str, poll_s: float) -> None:
        """Have all followers of this session in this event loop look at the same time, unless that is due already."""
        loop = asyncio.get_running_loop()
        key = session_id, loop

        def look() -> None:
            self._polls.discard(key)
            for event, (event_loop, _) in list(self._waiting.get(session_id, {}).items()):
                if event_loop is loop:
                    event.set()

        if key not in self._polls:
            self._polls.add(key)
            loop.call_later(poll_s, look)

    def forget_read(self, key: tuple[object, ...], read: "asyncio.Future[Any]") -> None:
        """Call when a shared read has ended, also if nobody waits for it any more."""
        self.reads.pop(key, None)
        if not read.cancelled():
            read.exception()

    def close(self) -> None:
        """End all followers."""
        self.closed = True
        for session_id in list(self._waiting):
            self.wake(session_id)
