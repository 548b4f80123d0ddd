"""What the stores without a database share: every question is answered from logs in memory."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from bartack.environment import Environment
from bartack.nouns.entries import Entry, SessionHeader
from bartack.store.append import Draft, Row, admit, check_drop, make_draft, no_session, renewed_lease, taken_lease
from bartack.store.entries import Entries
from bartack.store.follow import Watch, follow
from bartack.store.search import page_of
from bartack.store.session_log import Log, totals_of
from bartack.store.session_store import (
    EMPTY_HEADER,
    Finding,
    Hit,
    Lease,
    Page,
    Place,
    SessionInfo,
    Tail,
    Totals,
    next_entries,
)

__all__ = ["LogStore", "MemoryStore"]

T = TypeVar("T")


class LogStore(ABC):
    """A store whose sessions are `Log`s. What runs inside `_read` and `_write` has them to itself."""

    poll_s: float | None = None  # how often a follower looks for what other processes wrote

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self._watch = Watch()

    # -- what a store does in its own way

    @abstractmethod
    async def _read(self, work: Callable[[], T]) -> T:
        """Run `work`, which changes nothing."""

    @abstractmethod
    async def _write(self, work: Callable[[], T]) -> T:
        """Run `work`; when this returns, what it stored is durable."""

    @abstractmethod
    def _find(self, session_id: str) -> Log | None:
        """The session as it is now."""

    @abstractmethod
    def _all(self) -> Iterable[Log]:
        """Every session."""

    @abstractmethod
    def _store(self, session_id: str, draft: Draft, rows: Sequence[Row]) -> None:
        """Keep rows that were admitted."""

    @abstractmethod
    def _hold(self, lease: Lease) -> None:
        """Keep the session's current lease."""

    @abstractmethod
    def _drop(self, session_id: str) -> None:
        """Forget the session."""

    # -- the interface

    async def create_session(self, session_id: str | None = None, header: SessionHeader = EMPTY_HEADER) -> Entry:
        (entry,) = next_entries(session_id or self.environment.new_id(), None, [header], self.environment)
        await self.append(entry.session_id, [entry], None)
        return entry

    async def append(
        self, session_id: str, entries: Sequence[Entry], expected_tail: str | None, *, lease: Lease | None = None
    ) -> Tail:
        draft = make_draft(session_id, entries)

        def work() -> None:
            log = self._find(session_id)
            present = Log(session_id, _no_body).present(draft) if log is None else log.present(draft)
            rows = admit(draft, present, expected_tail, lease)
            if rows:
                self._store(session_id, draft, rows)

        await self._write(work)
        self._watch.wake(session_id)
        return Tail(draft.rows[-1].id, draft.rows[-1].seq)

    async def load(self, session_id: str, *, head: str | None = None) -> Entries:
        return await self._read(lambda: self._log(session_id).load(head))

    async def entries(self, session_id: str, after_seq: int = 0, limit: int | None = None) -> Entries:
        return await self._read(lambda: self._log(session_id).entries(after_seq, limit))

    async def branch(self, session_id: str, entry_id: str) -> Place:
        def work() -> Place:
            log = self._log(session_id)
            log.seq_of(entry_id)
            return Place(entry_id, _tail(log))

        return await self._read(work)

    async def heads(self, session_id: str) -> tuple[str, ...]:
        return await self._read(lambda: self._log(session_id).heads())

    async def tail_of(self, session_id: str) -> Tail:
        return await self._read(lambda: _tail(self._log(session_id)))

    async def sessions(self, limit: int = 50, cursor: str | None = None, query: str | None = None) -> Page:
        def work() -> list[SessionInfo]:
            return [log.info() for log in self._all() if query is None or log.search(query)]

        return page_of(await self._read(work), limit, cursor)

    async def search(self, text: str, limit: int = 50) -> tuple[Hit, ...]:
        def work() -> tuple[Hit, ...]:
            logs = sorted(self._all(), key=lambda log: (log.updated, log.session_id), reverse=True)
            return tuple(hit for log in logs for hit in log.search(text))[:limit]

        return await self._read(work)

    async def totals(self, session_id: str | None = None) -> Totals:
        def work() -> Totals:
            logs = self._all() if session_id is None else [self._log(session_id)]
            return totals_of(spent for log in logs for spent in log.spends().items())

        return await self._read(work)

    def tail(self, session_id: str, after: int = 0) -> AsyncIterator[Entry]:
        def work(after: int, limit: int) -> Entries:
            return self._log(session_id).entries(after, limit, hide=True)

        async def read(after: int, limit: int) -> Entries:
            return await self._read(partial(work, after, limit))

        return follow(self._watch, session_id, after, read, self.poll_s)

    async def acquire_lease(self, session_id: str, owner: str, ttl: float = 30.0) -> Lease:
        def work() -> Lease:
            held = self._log(session_id).held
            lease = taken_lease(session_id, owner, self.environment.now(), ttl, held)
            self._hold(lease)
            return lease

        return await self._write(work)

    async def renew_lease(self, lease: Lease, ttl: float = 30.0) -> Lease:
        def work() -> Lease:
            renewed = renewed_lease(lease, self.environment.now(), ttl, self._log(lease.session_id).held)
            self._hold(renewed)
            return renewed

        return await self._write(work)

    async def release_lease(self, lease: Lease) -> None:
        def work() -> None:
            held = self._log(lease.session_id).held
            if held is not None and (held.epoch, held.owner) == (lease.epoch, lease.owner):
                self._hold(replace(held, owner=""))

        await self._write(work)

    async def inspect(self, session_id: str | None = None, *, mend: bool = False) -> tuple[Finding, ...]:
        del mend
        if session_id is not None:
            await self.tail_of(session_id)
        return ()

    async def drop_session(self, session_id: str, *, expected_tail: str | None = None) -> None:
        def work() -> None:
            check_drop(_tail(self._log(session_id)), expected_tail)
            self._drop(session_id)

        await self._write(work)

    async def close(self) -> None:
        self._watch.close()

    def _log(self, session_id: str) -> Log:
        log = self._find(session_id)
        if log is None:
            raise no_session(session_id)
        return log


def _tail(log: Log) -> Tail:
    assert log.tail is not None  # a session has its header
    return log.tail


def _no_body(name: str) -> bytes:
    raise AssertionError(f"an empty log has no body {name}")


class MemoryStore(LogStore):
    """Every piece of work runs at once, between two awaits: nothing can come in between."""

    def __init__(self, *, environment: Environment | None = None) -> None:
        super().__init__(environment or Environment())
        self._logs: dict[str, Log] = {}
        self._bodies: dict[str, bytes] = {}

    async def _read(self, work: Callable[[], T]) -> T:
        return work()

    async def _write(self, work: Callable[[], T]) -> T:
        return work()

    def _find(self, session_id: str) -> Log | None:
        return self._logs.get(session_id)

    def _all(self) -> Iterable[Log]:
        return self._logs.values()

    def _store(self, session_id: str, draft: Draft, rows: Sequence[Row]) -> None:
        log = self._logs.setdefault(session_id, Log(session_id, self._bodies.__getitem__))
        self._bodies.update(draft.bodies)
        for row in rows:
            log.add(row)

    def _hold(self, lease: Lease) -> None:
        self._logs[lease.session_id].held = lease

    def _drop(self, session_id: str) -> None:
        del self._logs[session_id]
