"""`Logs`: the tables of a store without a database; and `MemoryStore`, which has nothing else."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from operator import attrgetter
from typing import TypeVar

from bartack.environment import Environment
from bartack.nouns.entries import MessageDeltaBatch
from bartack.store.append import Batch, Existing, Row
from bartack.store.append_only import Tables, TableStore
from bartack.store.entries import Entries
from bartack.store.errors import no_session
from bartack.store.index import totals_of
from bartack.store.search import newest_first, page_of
from bartack.store.session_log import SessionLog
from bartack.store.session_store import RESERVED, Finding, Hit, Lease, Page, SessionInfo, Tail, Totals

__all__ = ["Logs", "MemoryStore"]

T = TypeVar("T")


class Logs:
    """`Tables` made of `SessionLog`s. A store on disk overrides where logs come from and go to."""

    def __init__(self) -> None:
        self._logs: dict[str, SessionLog] = {}
        self._blobs: dict[str, bytes] = {}
        self._journals: dict[str, list[MessageDeltaBatch]] = {}

    def find(self, session_id: str) -> SessionLog | None:
        return self._logs.get(session_id)

    def all(self) -> Iterable[SessionLog]:
        return self._logs.values()

    def infos(self) -> Iterable[SessionInfo]:
        """All sessions, as they are listed."""
        return [log.info() for log in self.all()]

    def hits(self, session_id: str, query: str) -> Sequence[Hit]:
        """The entries of a session that match the query."""
        return self._log(session_id).search(query)

    def insert(self, batch: Batch, rows: tuple[Row, ...], existing: Existing) -> None:
        log = self._logs.setdefault(batch.session_id, SessionLog(batch.session_id, self._blobs.get))
        self._blobs.update(batch.blobs)
        log.add(rows)

    def set_lease(self, lease: Lease) -> None:
        self._logs[lease.session_id].lease = lease

    def drop(self, session_id: str) -> None:
        del self._logs[session_id]
        self._journals.pop(session_id, None)

    def write_journal(self, session_id: str, batch: MessageDeltaBatch | None) -> None:
        batches = self._journals.setdefault(session_id, [])  # all of one generation, in the order of their numbers
        if batch is None or (batches and batches[0].generation != batch.generation):
            batches.clear()
        if batch is not None:
            batches.append(batch)

    def journal(self, session_id: str, generation: int, after: int) -> Sequence[MessageDeltaBatch]:
        batches = self._journals.get(session_id, [])
        is_known = bool(batches) and batches[0].generation == generation
        return batches[bisect_right(batches, after, key=attrgetter("number")) if is_known else 0 :]

    def inspect(self, session_id: str | None) -> tuple[Finding, ...]:
        if session_id is not None:
            self._log(session_id)
        return ()

    # -- the same everywhere

    def _log(self, session_id: str) -> SessionLog:
        log = self.find(session_id)
        if log is None:
            raise no_session(session_id)
        return log

    def existing(self, batch: Batch) -> Existing:
        log = self.find(batch.session_id)
        return Existing(None) if log is None else log.existing(batch)

    def lease(self, session_id: str) -> Lease | None:
        return self._log(session_id).lease

    def tail(self, session_id: str) -> Tail:
        return self._log(session_id).tail

    def load(self, session_id: str, head: str | None) -> Entries:
        return self._log(session_id).load(head)

    def entries(self, session_id: str, after_seq: int, limit: int | None, *, hide: bool = False) -> Entries:
        return self._log(session_id).entries(after_seq, limit, hide=hide)

    def heads(self, session_id: str) -> tuple[str, ...]:
        return self._log(session_id).heads()

    def sessions(self, limit: int, cursor: str | None, query: str | None, *, prefix: str, reserved: bool) -> Page:
        def matches(info: SessionInfo) -> bool:
            is_listed = info.id.startswith(prefix) and info.id.startswith(RESERVED) is reserved
            return is_listed and (query is None or bool(self.hits(info.id, query)))

        return page_of(self.infos(), limit, cursor, matches)

    def search(self, text: str, limit: int, *, prefix: str) -> tuple[Hit, ...]:
        searched = (info.id for info in newest_first(self.infos()) if info.id.startswith(prefix))
        found = (hit for session_id in searched for hit in self.hits(session_id, text))
        return tuple(islice(found, limit))

    def totals(self, session_id: str | None) -> Totals:
        logs = self.all() if session_id is None else [self._log(session_id)]
        return totals_of(item for log in logs for item in log.spends().items())


class MemoryStore(TableStore):
    """Sessions that do not outlive the process, for tests and for runs that need not be kept.

    Each piece of work runs without an await, so nothing can interleave with it.
    """

    def __init__(self, *, environment: Environment | None = None) -> None:
        super().__init__(environment)
        self._logs = Logs()

    def check_usable(self) -> None:
        """Never raises: a forked process has a copy of the sessions, as of everything in memory."""

    async def _read(self, work: Callable[[Tables], T]) -> T:
        return work(self._logs)

    async def _write(self, work: Callable[[Tables], T]) -> T:
        return work(self._logs)

    async def close(self) -> None:
        self._followers.close()
