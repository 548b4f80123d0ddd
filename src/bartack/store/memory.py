"""`Logs`: the tables of a store without a database; and `MemoryStore`, which has nothing else."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TypeVar

from bartack.environment import Environment
from bartack.nouns import wire
from bartack.nouns.entries import MessageDeltaBatch
from bartack.store.append import Batch, Existing, Row
from bartack.store.append_only import Tables, TableStore
from bartack.store.entries import Entries
from bartack.store.errors import no_session
from bartack.store.index import totals_of
from bartack.store.search import newest_first, page_of
from bartack.store.session_log import SessionLog
from bartack.store.session_store import Finding, Hit, Lease, Page, SessionInfo, Tail, Totals

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
        kept = [] if batch is None else self._journals.get(session_id, [])
        self._journals[session_id] = [one for one in kept if batch is not None and one.generation == batch.generation]
        if batch is not None:
            self._journals[session_id].append(batch)

    def journal(self, session_id: str, generation: int, after: int) -> list[bytes]:
        batches = self._journals.get(session_id, ())
        return [wire.encode(one) for one in batches if one.generation != generation or one.number > after]

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

    def sessions(self, limit: int, cursor: str | None, query: str | None) -> Page:
        def matches(info: SessionInfo) -> bool:
            return query is None or bool(self.hits(info.id, query))

        return page_of(self.infos(), limit, cursor, matches)

    def search(self, text: str, limit: int) -> tuple[Hit, ...]:
        found = (hit for info in newest_first(self.infos()) for hit in self.hits(info.id, text))
        return tuple(islice(found, limit))

    def totals(self, session_id: str | None) -> Totals:
        logs = self.all() if session_id is None else [self._log(session_id)]
        return totals_of(item for log in logs for item in log.spends().items())


class MemoryStore(TableStore):
    """Sessions that end with the process, for tests and for runs that need not be kept.

    All work runs at once, between two awaits, so nothing can interleave with it.
    """

    def __init__(self, *, environment: Environment | None = None) -> None:
        super().__init__(environment)
        self._logs = Logs()

    async def _read(self, work: Callable[[Tables], T]) -> T:
        return work(self._logs)

    async def _write(self, work: Callable[[Tables], T]) -> T:
        return work(self._logs)

    async def close(self) -> None:
        self._followers.close()
