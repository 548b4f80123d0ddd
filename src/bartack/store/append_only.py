"""The interface of a store, implemented once for all four.

A store runs work on its `Tables`: `Logs` in memory or in files, or the tables of a database. `AppendOnlyStore`
implements each method of `SessionStore` as such work. To append, `append` prepares the batch (bartack.store.append);
then, in one transaction, the tables look up what exists, `check_append` decides, and the tables insert the entries
durably. Followers are woken by appends in this process, and poll for those of other processes.
"""

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from bartack.environment import Environment
from bartack.nouns.entries import Entry, MessageDeltaBatch, SessionHeader
from bartack.nouns.errors import StoreError
from bartack.store.append import (
    Batch,
    Clock,
    Existing,
    Permit,
    Row,
    check_append,
    check_drop,
    check_fence,
    held_lease,
    prepare,
    release_lease,
    renew_lease,
    take_lease,
)
from bartack.store.entries import Entries
from bartack.store.errors import invalid
from bartack.store.holder import this_process
from bartack.store.live import LiveEvent, LiveReader, Position
from bartack.store.session_store import EMPTY_HEADER, Claim, Finding, Hit, Lease, Page, Tail, Totals, next_entries

__all__ = ["AppendOnlyStore", "ChangeLease", "L", "Readable", "TableStore", "Tables"]

_PAGE = 1000  # entries that a follower fetches at a time

T = TypeVar("T")
S = TypeVar("S", bound=Sequence[Any])
L = TypeVar("L", bound=Lease | None)
ChangeLease = Callable[[Clock, Lease | None], L]  # the current lease -> the new one; None changes nothing


class Readable(Protocol):
    """What can be read in one transaction. A session or entry that does not exist is `NotFound`."""

    def tail(self, session_id: str) -> Tail: ...
    def load(self, session_id: str, head: str | None) -> Entries: ...
    def entries(self, session_id: str, after_seq: int, limit: int | None, *, hide: bool = False) -> Entries: ...
    def heads(self, session_id: str) -> tuple[str, ...]: ...
    def sessions(self, limit: int, cursor: str | None, query: str | None, *, prefix: str, reserved: bool) -> Page: ...
    def search(self, text: str, limit: int, *, prefix: str) -> tuple[Hit, ...]: ...
    def totals(self, session_id: str | None) -> Totals: ...
    def inspect(self, session_id: str | None) -> tuple[Finding, ...]: ...
    def journal(self, session_id: str, generation: int, after: int) -> Sequence[MessageDeltaBatch]: ...


class Tables(Readable, Protocol):
    """What can be read and written in one transaction."""

    def existing(self, batch: Batch) -> Existing: ...
    def insert(self, batch: Batch, rows: tuple[Row, ...], existing: Existing) -> None: ...
    def lease(self, session_id: str) -> Lease | None: ...
    def set_lease(self, lease: Lease) -> None: ...
    def write_journal(self, session_id: str, batch: MessageDeltaBatch | None) -> None: ...
    def drop(self, session_id: str) -> None: ...


class AppendOnlyStore(ABC):
    """A `SessionStore` on top of transactions."""

    path: Path | None = None
    poll_s: float | None = None  # how often a follower checks for entries from other processes; None: never

    def __init__(self, environment: Environment | None) -> None:
        self.environment: Environment = environment or Environment()
        self._process = os.getpid()
        self._followers = Followers()

    @abstractmethod
    async def _read(self, work: Callable[[Readable], T]) -> T:
        """The result of `work`, which sees one state of the store."""

    @abstractmethod
    def _append(self, batch: Batch, expected_tail: str | None, permit: Permit) -> Awaitable[Lease | None]:
        """Check the batch and store it durably, with the lease that a claim takes, in one transaction."""

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

    async def _reading(self, work: Callable[[Readable], T]) -> T:
        self.check_usable()
        return await self._read(work)

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
        return await self._reading(
            lambda tables: tables.sessions(limit, cursor, query, prefix=prefix, reserved=reserved)
        )

    async def search(self, text: str, limit: int = 50, *, prefix: str = "") -> tuple[Hit, ...]:
        return await self._reading(lambda tables: tables.search(text, limit, prefix=prefix))

    async def totals(self, session_id: str | None = None) -> Totals:
        return await self._reading(lambda tables: tables.totals(session_id))

    async def inspect(self, session_id: str | None = None, *, repair: bool = False) -> tuple[Finding, ...]:
        del repair  # transactions leave nothing half-written
        return await self._reading(lambda tables: tables.inspect(session_id))

    async def acquire_lease(self, session_id: str, owner: str, ttl: float = 30.0, *, takeover: bool = False) -> Lease:
        claim = Claim(owner, ttl, this_process(), takeover)
        return await self._changing_lease(session_id, lambda now, held: take_lease(session_id, claim, now(), held))

    async def lease_of(self, session_id: str) -> Lease | None:
        found: list[Lease | None] = []

        def look(now: Clock, lease: Lease | None) -> None:
            found.append(held_lease(lease, now()))

        await self._changing_lease(session_id, look)
        return found[-1]

    async def renew_lease(self, lease: Lease, ttl: float = 30.0) -> Lease:
        return await self._changing_lease(lease.session_id, lambda now, held: renew_lease(lease, now(), ttl, held))

    async def release_lease(self, lease: Lease) -> None:
        await self._changing_lease(lease.session_id, lambda _, held: release_lease(lease, held))

    async def write_journal(self, lease: Lease, batch: MessageDeltaBatch) -> None:
        if not batch.deltas:
            raise invalid("A batch of the journal needs at least one delta.")
        self.check_usable()
        await self._write_journal(lease, batch)
        self._followers.wake(lease.session_id, only_live=True)

    async def clear_journal(self, lease: Lease) -> None:
        self.check_usable()
        await self._write_journal(lease, None)

    async def read_journal(
        self, session_id: str, generation: int = 0, after: int = -1
    ) -> tuple[MessageDeltaBatch, ...]:
        return tuple(await self._reading(lambda tables: tables.journal(session_id, generation, after)))

    async def follow_live(self, session_id: str, position: str = "") -> AsyncIterator[LiveEvent]:
        reader = LiveReader(self, session_id, Position.parse(position))
        async with aclosing(self._rounds(session_id, reader.read, is_live=True)) as rounds:
            async for events in rounds:
                for event in events:
                    yield event

    async def follow(self, session_id: str, after: int = 0) -> AsyncIterator[Entry]:
        async def read() -> Entries:
            return await self.read_after(session_id, after)

        async with aclosing(self._rounds(session_id, read)) as rounds:
            async for entries in rounds:
                for entry in entries:
                    yield entry
                    after = entry.seq

    async def _rounds(
        self, session_id: str, read: Callable[[], Awaitable[S]], *, is_live: bool = False
    ) -> AsyncGenerator[S, None]:
        """Yield what `read` returns, repeatedly: at once if there may be more, otherwise after a wake-up or a poll."""
        with self._followers.registered(session_id, is_live=is_live) as woken:
            while not self._followers.closed:
                woken.clear()  # before reading: an append during the read sets it again
                found = await read()
                if found:
                    yield found
                if len(found) >= _PAGE or woken.is_set():
                    continue
                poll = None if self.poll_s is None else asyncio.get_running_loop().call_later(self.poll_s, woken.set)
                try:
                    await woken.wait()
                finally:
                    if poll is not None:
                        poll.cancel()

    async def read_after(self, session_id: str, after: int) -> Entries:
        """The next entries for a follower, with redacted content removed."""
        return await self._reading(lambda tables: tables.entries(session_id, after, _PAGE, hide=True))


class TableStore(AppendOnlyStore):
    """The common half of the stores that run their work in this process: all but PostgreSQL."""

    @abstractmethod
    def _write(self, work: Callable[[Tables], T]) -> Awaitable[T]:
        """The result of `work`; when this returns, what it stored is durable."""

    def _append(self, batch: Batch, expected_tail: str | None, permit: Permit) -> Awaitable[Lease | None]:
        return self._write(partial(_append_to, self.environment.now, batch, expected_tail, permit))

    async def _change_lease(self, session_id: str, change: ChangeLease[L]) -> L:
        def work(tables: Tables) -> L:
            lease = change(self.environment.now, tables.lease(session_id))
            if lease is not None:
                tables.set_lease(lease)
            return lease

        return await self._write(work)

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


def _append_to(now: Clock, batch: Batch, expected_tail: str | None, permit: Permit, tables: Tables) -> Lease | None:
    existing = tables.existing(batch)
    rows, lease = check_append(batch, existing, expected_tail, permit, now)
    if rows:
        tables.insert(batch, rows, existing)
    if lease is not None:
        tables.set_lease(lease)
    return lease


class Followers:
    """The followers of a store's sessions, which may be in different event loops."""

    def __init__(self) -> None:
        self.closed: bool = False
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
        here = asyncio.get_running_loop()
        for event, (loop, is_live) in list(self._waiting.get(session_id, {}).items()):
            if only_live and not is_live:
                continue
            if loop is here:
                event.set()
            elif not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    def close(self) -> None:
        """End all followers."""
        self.closed = True
        for session_id in list(self._waiting):
            self.wake(session_id)
