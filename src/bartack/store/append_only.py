"""`AppendOnlyStore`: appending, leases and following, the same in all four stores.

The path of an append: `append` prepares the batch (bartack.store.append); then the store's `_append` looks up what
exists, has `check_append` decide, inserts the rows, and returns once they are durable.

Followers of a session are woken by appends of this process, and poll for those of other processes.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TypeVar

from bartack.environment import Environment
from bartack.nouns.entries import Entry, SessionHeader
from bartack.store.append import Batch, prepare, release_lease, renew_lease, take_lease
from bartack.store.entries import Entries
from bartack.store.session_store import EMPTY_HEADER, Lease, Tail, next_entries

__all__ = ["AppendOnlyStore", "ChangeLease", "L"]

_PAGE = 1000  # entries that a follower fetches at a time

L = TypeVar("L", bound=Lease | None)
Clock = Callable[[], datetime]
ChangeLease = Callable[[Clock, Lease | None], L]  # the current lease -> the new one; None changes nothing


class AppendOnlyStore(ABC):
    """The common half of a `SessionStore`."""

    poll_s: float | None = None  # how often a follower checks for entries from other processes; None: never

    def __init__(self, environment: Environment | None) -> None:
        self.environment = environment or Environment()
        self._followers = Followers()

    @abstractmethod
    async def _append(self, batch: Batch, expected_tail: str | None, lease: Lease | None) -> None:
        """Check the batch and store it durably, in one transaction."""

    @abstractmethod
    async def _change_lease(self, session_id: str, change: ChangeLease[L]) -> L:
        """Replace the session's lease by what `change` returns, durably and in one transaction."""

    @abstractmethod
    async def _read_after(self, session_id: str, after_seq: int, limit: int) -> Entries:
        """The next entries for a follower, with redacted content removed."""

    async def create_session(self, session_id: str | None = None, header: SessionHeader = EMPTY_HEADER) -> Entry:
        (entry,) = next_entries(session_id or self.environment.new_id(), None, [header], self.environment)
        await self.append(entry.session_id, [entry], None)
        return entry

    async def append(
        self, session_id: str, entries: Sequence[Entry], expected_tail: str | None, *, lease: Lease | None = None
    ) -> Tail:
        batch = prepare(session_id, entries)
        await self._append(batch, expected_tail, lease)
        self._followers.wake(session_id)
        return batch.tail

    async def acquire_lease(self, session_id: str, owner: str, ttl: float = 30.0) -> Lease:
        return await self._change_lease(session_id, lambda now, held: take_lease(session_id, owner, now(), ttl, held))

    async def renew_lease(self, lease: Lease, ttl: float = 30.0) -> Lease:
        return await self._change_lease(lease.session_id, lambda now, held: renew_lease(lease, now(), ttl, held))

    async def release_lease(self, lease: Lease) -> None:
        await self._change_lease(lease.session_id, lambda _, held: release_lease(lease, held))

    def follow(self, session_id: str, after: int = 0) -> AsyncIterator[Entry]:
        return self._followers.follow(
            session_id, after, lambda after, limit: self._read_after(session_id, after, limit), self.poll_s
        )


class Followers:
    """The followers of a store's sessions. `wake` may be called from any thread."""

    def __init__(self) -> None:
        self.closed = False
        self._waiting: dict[str, dict[asyncio.Event, asyncio.AbstractEventLoop]] = {}

    async def follow(
        self, session_id: str, after: int, read: Callable[[int, int], Awaitable[Entries]], poll_s: float | None
    ) -> AsyncIterator[Entry]:
        """Every entry after this seq, each once and in order; `read(after, limit)` fetches some.

        Progress depends on seq alone, so a wake-up may be lost or repeated without an entry being so.
        """
        with self._registered(session_id) as woken:
            while not self.closed:
                woken.clear()  # before reading: an append during the read sets it again
                entries = await read(after, _PAGE)
                for entry in entries:
                    yield entry
                    after = entry.seq
                if not entries:
                    try:
                        await asyncio.wait_for(woken.wait(), poll_s)
                    except TimeoutError:
                        pass

    @contextmanager
    def _registered(self, session_id: str) -> Iterator[asyncio.Event]:
        event = asyncio.Event()
        waiting = self._waiting.setdefault(session_id, {})
        waiting[event] = asyncio.get_running_loop()
        try:
            yield event
        finally:
            waiting.pop(event)
            if not waiting:
                self._waiting.pop(session_id, None)

    def wake(self, session_id: str) -> None:
        """Have the followers of this session look for new entries."""
        for event, loop in list(self._waiting.get(session_id, {}).items()):
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    def close(self) -> None:
        """End all followers."""
        self.closed = True
        for session_id in list(self._waiting):
            self.wake(session_id)
