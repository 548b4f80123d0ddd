"""`MemoryStore`: sessions that end with the process. `JsonlStore` adds files to it."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from bartack.environment import Environment
from bartack.store.append import Batch, Existing, Row, check_append, check_drop
from bartack.store.append_only import AppendOnlyStore, ChangeLease, L
from bartack.store.entries import Entries
from bartack.store.errors import no_session
from bartack.store.index import totals_of
from bartack.store.search import page_of
from bartack.store.session_log import SessionLog
from bartack.store.session_store import BranchPoint, Finding, Hit, Lease, Page, SessionInfo, Tail, Totals

__all__ = ["MemoryStore"]

T = TypeVar("T")


class MemoryStore(AppendOnlyStore):
    """Sessions in memory, for tests and for runs that need not be kept.

    All work runs at once, between two awaits, so nothing can interleave with it.
    """

    def __init__(self, *, environment: Environment | None = None) -> None:
        super().__init__(environment)
        self._logs: dict[str, SessionLog] = {}
        self._blobs: dict[str, bytes] = {}

    async def _append(self, batch: Batch, expected_tail: str | None, lease: Lease | None) -> None:
        def work() -> None:
            log = self._find(batch.session_id)
            existing = Existing(None) if log is None else log.existing(batch)
            rows = check_append(batch, existing, expected_tail, lease)
            if rows:
                self._insert(batch, rows)

        await self._write(work)

    async def _change_lease(self, session_id: str, change: ChangeLease[L]) -> L:
        def work() -> L:
            lease = change(self.environment.now, self._log(session_id).lease)
            if lease is not None:
                self._set_lease(lease)
            return lease

        return await self._write(work)

    async def load(self, session_id: str, *, head: str | None = None) -> Entries:
        return await self._read(lambda: self._log(session_id).load(head))

    async def entries(self, session_id: str, after_seq: int = 0, limit: int | None = None) -> Entries:
        return await self._read(lambda: self._log(session_id).entries(after_seq, limit))

    async def _read_after(self, session_id: str, after_seq: int, limit: int) -> Entries:
        return await self._read(lambda: self._log(session_id).entries(after_seq, limit, hide=True))

    async def branch(self, session_id: str, entry_id: str) -> BranchPoint:
        def work() -> BranchPoint:
            log = self._log(session_id)
            log.seq_of(entry_id)
            return BranchPoint(entry_id, log.tail)

        return await self._read(work)

    async def heads(self, session_id: str) -> tuple[str, ...]:
        return await self._read(lambda: self._log(session_id).heads())

    async def tail_of(self, session_id: str) -> Tail:
        return await self._read(lambda: self._log(session_id).tail)

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
            return totals_of(item for log in logs for item in log.spends().items())

        return await self._read(work)

    async def inspect(self, session_id: str | None = None, *, repair: bool = False) -> tuple[Finding, ...]:
        del repair
        if session_id is not None:
            await self.tail_of(session_id)
        return ()

    async def drop_session(self, session_id: str, *, expected_tail: str | None = None) -> None:
        def work() -> None:
            check_drop(session_id, self._log(session_id).tail, expected_tail)
            self._drop(session_id)

        await self._write(work)

    async def close(self) -> None:
        self._followers.close()

    def _log(self, session_id: str) -> SessionLog:
        log = self._find(session_id)
        if log is None:
            raise no_session(session_id)
        return log

    # -- what a store on disk does differently

    async def _read(self, work: Callable[[], T]) -> T:
        """Run `work`, which changes nothing, with exclusive access."""
        return work()

    async def _write(self, work: Callable[[], T]) -> T:
        """Run `work` with exclusive access; when this returns, what it stored is durable."""
        return work()

    def _find(self, session_id: str) -> SessionLog | None:
        return self._logs.get(session_id)

    def _all(self) -> Iterable[SessionLog]:
        return self._logs.values()

    def _insert(self, batch: Batch, rows: Sequence[Row]) -> None:
        log = self._logs.setdefault(batch.session_id, SessionLog(batch.session_id, self._blobs.__getitem__))
        self._blobs.update(batch.blobs)
        log.add(rows)

    def _set_lease(self, lease: Lease) -> None:
        self._logs[lease.session_id].lease = lease

    def _drop(self, session_id: str) -> None:
        del self._logs[session_id]
