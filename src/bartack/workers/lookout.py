"""`Lookout`: enqueues what was requested in a session but never enqueued, because a process died in between.

A prompt, a decision or a result is stored in its session, and after that the job for it is enqueued. One worker of each
queue looks through the sessions that have changed and enqueues the jobs of all open requests. Jobs that the queue knows
are not added again, so this has an effect only for those that are missing.
"""

import logging
from contextlib import suppress
from datetime import datetime, timedelta

from bartack.nouns.entries import MessageQueued, RunEnded, SessionHeader
from bartack.nouns.errors import Conflict, NotFound, SessionInUse, StoreError
from bartack.queues.run_queue import RunQueue
from bartack.queues.submit import requested_jobs, submitted_job
from bartack.store.maintenance import all_sessions
from bartack.store.session_store import RESERVED, Lease, SessionInfo, SessionStore

__all__ = ["LOOK_S", "Lookout"]

LOOK_S = 15.0  # how often to call `look`
_TTL_S = 3 * LOOK_S  # how long no worker looks if the one that does dies on another machine
_CLOCKS = timedelta(minutes=2)  # by which the clocks of the machines may differ that add entries
_FIRST = 1000  # sessions that a worker looks at first, however long ago they changed
_OLDEST = timedelta(days=1)  # older requests, as in a restored backup, do not start anything

_log = logging.getLogger("bartack.workers")


class Lookout:
    """Of all processes with the same queue, only one looks: the one with the lease on a session without content."""

    def __init__(self, store: SessionStore, queue: RunQueue) -> None:
        self._store = store
        self._queue = queue
        self._owner = store.environment.new_id()
        self._lease: Lease | None = None
        self._looked_at: datetime | None = None
        self._seen: dict[str, str] = {}  # session -> its last entry when it was looked at

    async def look(self) -> None:
        """Look through the sessions that have changed since the last time, unless another process does."""
        if not await self._is_elected():
            return
        now, last = self._store.environment.now(), self._looked_at
        since = (last or now) - _CLOCKS
        seen: dict[str, str] = {}
        async for info in all_sessions(self._store):  # those that changed last are first
            if info.updated < since and (last is not None or len(seen) >= _FIRST):
                break
            tail = info.tail.entry_id
            if self._seen.get(info.id) == tail or await self._is_settled(info, now - _OLDEST):
                seen[info.id] = tail
        self._looked_at, self._seen = now, seen

    async def _is_elected(self) -> bool:
        session_id = f"{RESERVED}lookout:{self._queue.engine}:{self._queue.name}"
        try:
            self._lease = await self._store.acquire_lease(session_id, self._owner, _TTL_S)
        except SessionInUse:
            return False
        except NotFound:
            with suppress(Conflict):  # another process was faster
                await self._store.create_session(session_id)
            return await self._is_elected()
        return True

    async def _is_settled(self, info: SessionInfo, oldest: datetime) -> bool:
        """Enqueue the jobs of a session. False if it must be looked at again, although nothing is added to it."""
        try:
            found = await self._store.entries(info.id, after_seq=info.tail.seq - 1, limit=1)
            if not found:
                return False  # it was purged, and another one has its id
            last = found[0]
            if isinstance(last.fact, RunEnded | SessionHeader):
                return True
            submitted = submitted_job(last)
            if isinstance(last.fact, MessageQueued) and submitted is not None:
                # By far the most frequent case if many runs are waiting: a run for this prompt serves all requests.
                jobs = [submitted] if last.timestamp >= oldest else []
            elif await self._store.lease_of(info.id) is not None:
                return False  # its run reads what was requested
            else:
                jobs = await requested_jobs(self._store, info.id, oldest)
            for job in jobs:
                if (job.queue, job.engine) == (self._queue.name, self._queue.engine):
                    await self._queue.enqueue(job)
        except NotFound:  # purged in the meantime
            return True
        except StoreError as error:
            _log.warning("Cannot look for requests in session %r: %s", info.id, error)
            return False
        return True

    async def leave(self) -> None:
        """Let another process look."""
        if self._lease is not None:
            await self._store.release_lease(self._lease)
