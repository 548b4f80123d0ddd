"""`Supervisor`: finds sessions with work that nobody does, and has it done.

Work is abandoned when a process dies between two steps: a worker's client stores a prompt and dies before it enqueues
the job, or a web server dies in the middle of a run. Nothing is written at that moment, so it can only be noticed by
looking. Every supervisor looks through the store at regular intervals, in two passes:

1. *Scan.* Sessions are listed most recently changed first. The listing ends at the first session that had not changed
   since the previous look, so a look costs as much as has happened, not as much as is stored. Entries carry the clock
   of the machine that added them, so the boundary is moved back by `CLOCK_TOLERANCE`. Sessions inside this margin are
   listed again and again; the last entry of each settled one is remembered, and it is not read again until that
   changes.
2. *Attend.* `attend` takes up the work, if it is the supervisor's to take, and returns whether the session is settled.
   The last entry alone settles most sessions: after a header nothing is open, and after `run_ended` at most requests.
   One that is not (its run is live somewhere, or the store failed) is attended to in every look, however long nothing
   is added to it: the death of a process adds nothing.

Workers enqueue the jobs that are missing, so that every open request of a session that nobody holds has a job, and a
web server resumes the runs that servers left open. Taking up work twice must do no harm: jobs have ids derived from the
request, and a run holds the lease of its session. A queue has many workers, so they elect one of them to look
(`elected_as`); a web server knows only its own agents and looks for itself.

`has_work` is the one answer to whether continuing a session would have an effect, and `visible_limits` makes every
run that is started here visible to viewers in other processes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from bartack.agent import Agent
from bartack.nouns.config import LoopConfig
from bartack.nouns.entries import Entry, SessionHeader
from bartack.nouns.errors import BartackError, Conflict, NotFound, SessionInUse, StoreError
from bartack.session.run_state import OpenCall, RunState
from bartack.store.session_store import RESERVED, Lease, SessionStore, Tail, all_sessions

__all__ = ["Supervisor", "has_work", "visible_limits"]

_LOOK_S = 15.0
"""How often to look; half the time of a lease."""
_ELECTION_S = 3 * _LOOK_S
"""How long nobody looks if the elected process dies on another machine."""
CLOCK_TOLERANCE = timedelta(minutes=10)
"""How far the clocks of two machines that add entries may differ."""
_JOURNAL_MS = 120
"""How often an answer that is arriving becomes visible to viewers."""

_log = logging.getLogger("bartack_server.supervisor")


class Supervisor:
    """Looks for abandoned work in the sessions of a store."""

    def __init__(
        self,
        store: SessionStore,
        attend: Callable[[Entry], Awaitable[bool]],
        *,
        elected_as: str | None = None,
        first_look: int | None = None,
    ) -> None:
        """`attend` takes the last entry of a session and returns whether the session is settled. Of all processes with
        the same `elected_as`, only one looks. `first_look` limits the first scan to this many sessions, and those that
        changed within the tolerance; by default, it covers all.
        """
        self._store = store
        self._attend = attend
        self._election = None if elected_as is None else f"{RESERVED}{elected_as}"
        self._first_look = first_look
        self._owner = store.environment.new_id()
        self._lease: Lease | None = None
        self._looked_at: datetime | None = None
        self._settled: dict[str, str] = {}  # session -> its last entry, if it changed recently
        self._unsettled: set[str] = set()

    async def keep_looking(self) -> None:
        """Look regularly, until cancelled."""
        while True:
            try:
                await self.look()
            except StoreError as error:
                _log.warning("Cannot look for abandoned work: %s", error)
            await asyncio.sleep(_LOOK_S)

    async def look(self) -> None:
        """Take up abandoned work, unless another process does."""
        if not await self._is_elected():
            return
        time = self._store.environment.now()
        changed = await self._scan(time)
        for session_id in dict.fromkeys([*self._unsettled, *changed]):
            if await self._is_settled(session_id, changed.get(session_id)):
                self._unsettled.discard(session_id)
            else:
                self._unsettled.add(session_id)
        self._looked_at = time

    async def leave(self) -> None:
        """Let another process look."""
        if self._lease is not None:
            await self._store.release_lease(self._lease)

    async def _is_elected(self) -> bool:
        if self._election is None:
            return True
        try:
            self._lease = await self._store.acquire_lease(self._election, self._owner, _ELECTION_S)
        except SessionInUse:
            return False
        except NotFound:
            with suppress(Conflict):  # another process was faster
                await self._store.create_session(self._election)
            return await self._is_elected()
        return True

    async def _scan(self, time: datetime) -> dict[str, Tail]:
        """The sessions that have changed and are not settled as they are, with their last entries."""
        changed: dict[str, Tail] = {}
        settled: dict[str, str] = {}
        count = 0
        async for info in all_sessions(self._store):  # most recently changed first
            is_first = self._looked_at is None and (self._first_look is None or count < self._first_look)
            if not is_first and info.updated < (self._looked_at or time) - CLOCK_TOLERANCE:
                break
            count += 1
            if self._settled.get(info.id) == info.tail.entry_id:
                settled[info.id] = info.tail.entry_id
            else:
                changed[info.id] = info.tail
        self._settled = settled
        return changed

    async def _is_settled(self, session_id: str, tail: Tail | None) -> bool:
        """Attend to a session, whose last entry is `tail` if it has changed since the previous look."""
        try:
            tail = tail or await self._store.tail_of(session_id)
            for last in await self._store.entries(session_id, after_seq=tail.seq - 1, limit=1):
                if isinstance(last.fact, SessionHeader) or await self._attend(last):
                    self._settled[session_id] = tail.entry_id
                    return True
        except NotFound:  # purged in the meantime
            return True
        except BartackError as error:
            _log.warning("Cannot take up the work in session %r: %s", session_id, error)
        return False


def has_work(state: RunState, time: datetime) -> bool:
    """Whether continuing a session has any effect at this time.

    A prompt that was aborted has no answer, and is not run again. A run whose calls all await a decision or a result
    would only pause again.
    """
    if state.run_id is None:
        return bool(state.inbox)
    if state.abort is not None or not state.open_calls:
        return True
    return any(not _is_waiting(call, time) for call in state.open_calls.values())


def _is_waiting(call: OpenCall, time: datetime) -> bool:
    """Whether a call can only continue once it is decided, or its result is posted."""
    if call.is_deferred:
        return call.posted is None
    if call.is_paused:
        return all(_is_waiting(inner, time) for inner in call.nested.values())
    if call.question is None or call.verdict is not None:
        return False
    return call.question.expires_at is None or call.question.expires_at > time


def visible_limits(agent: Agent[Any, Any]) -> LoopConfig:
    """The agent's limits for a run that viewers in other processes can follow."""
    limits = agent.config.loop
    return limits if limits.journal_ms is not None else replace(limits, journal_ms=_JOURNAL_MS)
