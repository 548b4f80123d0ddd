"""`MemoryStore`: sessions that end with the process. For tests and for runs that nobody wants to keep."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from bartack.environment import Environment
from bartack.store.admission import Draft, Row
from bartack.store.log import Log
from bartack.store.log_store import LogStore
from bartack.store.session_store import Lease

__all__ = ["MemoryStore"]

T = TypeVar("T")


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
