"""`AgentStore`: where an agent keeps its sessions: in the store it was given, or in one that it opens on first use."""

from pathlib import Path

from bartack.environment import Environment
from bartack.nouns.errors import NotFound
from bartack.queues import RunQueue, StoreQueue
from bartack.store import MemoryStore, SessionStore, open_store

__all__ = ["AgentStore"]


class AgentStore:
    """The store of one agent. Without one of its own, an agent keeps sessions without a name in memory."""

    def __init__(self, at: SessionStore | str | Path | None, environment: Environment) -> None:
        self.at = at
        self._environment = environment
        self._opened: SessionStore | None = None  # here, and so closed here
        self._memory: MemoryStore | None = None
        self._given_queue: RunQueue | None = None
        self._queue: tuple[SessionStore, StoreQueue] | None = None

    async def open(self, session: str, *, is_named: bool = True) -> SessionStore:
        """The store of a session."""
        at = self.at
        if at is None and (not is_named or await self._is_in_memory(session)):
            self._memory = self._memory or MemoryStore(environment=self._environment)
            return self._memory
        if at is not None and not isinstance(at, str | Path):
            return at
        if self._opened is None:
            self._opened = await open_store(at, environment=self._environment)
        return self._opened

    def queue_on(self, store: SessionStore, given: RunQueue | None = None) -> RunQueue:
        """The queue for runs in this store: the last one that was given, or else that of the store."""
        self._given_queue = given or self._given_queue
        if self._given_queue is not None:
            return self._given_queue
        if self._queue is None or self._queue[0] is not store:
            self._queue = store, StoreQueue(store)
        return self._queue[1]

    async def _is_in_memory(self, session: str) -> bool:
        if self._memory is None:
            return False
        try:
            await self._memory.tail_of(session)
        except NotFound:
            return False
        return True

    async def close(self) -> None:
        """Close the store if it was opened here. Sessions in memory stay."""
        if self._opened is not None and not isinstance(self._opened, MemoryStore):
            await self._opened.close()
            self._opened = self._queue = None
