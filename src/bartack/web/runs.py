"""`ServerRuns`: the runs that belong to a server, not to the request that started them.

A run continues after every viewer has left. When the server stops, live runs get some time to end; those that do not
are suspended and stay open in the store. When a server starts, and regularly after that, it resumes runs that servers
left open: its own from before a restart or a crash, and those of other servers on the same store that are gone. A run
that waits for an approval is not live anywhere; the decision resumes it.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any

from msgspec.structs import replace

from bartack.agent import Agent, Run
from bartack.agent.run import Prompt
from bartack.nouns.config import LoopConfig
from bartack.nouns.entries import (
    AbortRequested,
    ApprovalDecided,
    Entry,
    MessageQueued,
    ResultPosted,
    RunEnded,
    RunStarted,
    SessionHeader,
)
from bartack.nouns.errors import (
    AgentError,
    BartackError,
    ErrorCode,
    NotFound,
    NothingToResume,
    SessionInUse,
    StoreError,
)
from bartack.queues import Job
from bartack.session.run_state import OpenCall, RunState
from bartack.store.maintenance import all_sessions
from bartack.store.requests import load_state
from bartack.store.session_store import SessionStore
from bartack.web.session_rules import SessionRules

__all__ = ["AGENT_KEY", "ServerRuns", "has_work"]

AGENT_KEY = "bartack.web.agent"  # metadata of a run of a server, and of a session: the name of its agent
_RELEASE_S = (0.02, 0.05, 0.1, 0.3, 0.6)  # between the end of a run and the release of its session
_LATE = 50  # entries that a session may get while a run ends
_REQUESTS = (MessageQueued, ApprovalDecided, ResultPosted, AbortRequested)
_JOURNAL_MS = 120  # how often an answer that is arriving becomes visible to viewers
_CLOCKS = timedelta(minutes=10)  # tolerated difference between the clocks of machines that add entries

_log = logging.getLogger("bartack.web")


class ServerRuns:
    """The live runs of this process, at most one per session."""

    def __init__(self, agents: Mapping[str, Agent[Any, Any]], store: SessionStore) -> None:
        self._agents = agents
        self._store = store
        self._live: dict[str, Run[Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.rules = SessionRules()
        self._open: set[str] = set()  # sessions in which a run may be open
        self._closed: dict[str, str] = {}  # session -> its last entry when none was, of those that changed last
        self._looked_at: datetime | None = None  # all that changed before this time
        self._is_draining = False

    @property
    def obeys_rules(self) -> bool:
        """Whether the runs are live in this process, which has the rules of their sessions."""
        return True

    @property
    def live(self) -> frozenset[str]:
        """The sessions with a live run in this process."""
        return frozenset(self._live)

    async def start(
        self,
        agent: str,
        session_id: str,
        *prompt: Prompt,
        head: str | None = None,
        model: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Run[Any] | Job:
        """A new run, which has started when this returns. `settings` are those of `RunSettings`.

        Raises `SessionInUse` before anything is stored.
        """
        self._check_open()
        own = self._agents[agent]
        for delay in (*_RELEASE_S, None):
            run = own.stream(
                *prompt,
                session=session_id,
                head=head,
                model=model,
                limits=_observed(own),
                approver=self.rules.approver(session_id, own.approver),
                metadata={**(metadata or {}), AGENT_KEY: agent},
                **settings,
            )
            try:
                await self._keep(run)
                break
            except SessionInUse:
                _, state = await load_state(self._store, session_id)
                if delay is None or state.run_id is not None:
                    raise
                await asyncio.sleep(delay)  # its last run has ended, and is about to release the session
        return run

    async def resume(self, session_id: str, **settings: Any) -> bool:
        """Continue open work in a session; False if there is none, or another process does it.

        Runs that a program other than a server has started are left to that program.
        """
        self._check_open()
        if session_id in self._live:
            return False
        _, state = await load_state(self._store, session_id)
        agent = await self.agent_of(session_id, state)
        if agent is None:
            return False
        own = self._agents[agent]
        run = own.resume_stream(
            session_id,
            only_if=lambda state: has_work(state, self._store),
            limits=_observed(own),
            approver=self.rules.approver(session_id, own.approver),
            metadata={AGENT_KEY: agent},
            **settings,
        )
        try:
            await self._keep(run)
        except (NothingToResume, SessionInUse):  # or it is live in another process, which reads what was requested
            return False
        return True

    async def agent_of(self, session_id: str, state: RunState | None = None) -> str | None:
        """The name of the agent that answers in a session; None if another program has a run open there."""
        branch = await self._store.load(session_id)
        if state is None:
            _, state = await load_state(self._store, session_id)
        if state.run_id is not None:
            started = _last_start(branch)
            named = ((started and started.metadata) or {}).get(AGENT_KEY)
            return named if isinstance(named, str) and named in self._agents else None
        header = branch[0].fact
        named = ((header.metadata if isinstance(header, SessionHeader) else None) or {}).get(AGENT_KEY)
        return named if isinstance(named, str) and named in self._agents else next(iter(self._agents))

    def _check_open(self) -> None:
        if self._is_draining:
            raise AgentError("The server is shutting down.", code=ErrorCode.OVERLOADED, retryable=True)

    async def _keep(self, run: Run[Any]) -> None:
        """Enter the run, and keep it until it ends."""
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._drive(run, started))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.shield(started)

    async def _drive(self, run: Run[Any], started: "asyncio.Future[None]") -> None:
        """In a task of its own: the request that started the run may be cancelled."""
        try:
            async with run:
                self._live[run.session_id] = run
                started.set_result(None)
                await run.wait()
        except Exception as error:  # noqa: BLE001 - user code may raise anything; the request gets it, or the log
            if not started.done():
                started.set_exception(error)
            else:
                _log.exception("A run of session %r ended in an error.", run.session_id)
        finally:
            if self._live.get(run.session_id) is run:
                del self._live[run.session_id]
            if not started.done():
                started.cancel()
            started.cancelled() or started.exception()  # the request may be gone
        await self._take_up(run.session_id)

    async def _take_up(self, session_id: str) -> None:
        """Act on requests posted between a run's last look at its session and its release of the lease: to those who
        posted them, the session was still in use."""
        try:
            tail = await self._store.tail_of(session_id)
            last = await self._store.entries(session_id, after_seq=max(0, tail.seq - _LATE))
            late = takewhile(lambda entry: entry.run_id is None, reversed(last))  # entries that no run has written
            if any(isinstance(entry.fact, _REQUESTS) for entry in late) and not self._is_draining:
                await self.resume(session_id)
        except NotFound:  # purged in the meantime
            pass
        except BartackError as error:
            _log.warning("Cannot resume session %r: %s", session_id, error)

    # -- when servers stop and start

    async def drain(self, seconds: float) -> None:
        """Start no more runs, wait for the live ones, and suspend those that take longer."""
        self._is_draining = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        self.suspend()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def suspend(self) -> None:
        """Stop every live run where it is, and leave it open for the next server."""
        for run in list(self._live.values()):
            run.suspend()

    async def resume_open_runs(self) -> int:
        """Resume the runs that servers left open; how many. All sessions are looked at the first time, and then those
        that have changed or have an open run."""
        await self._look_for_open_runs()
        resumed = 0
        for session_id in self._open - self._live.keys():
            if self._is_draining:
                break
            try:
                tail, state = await load_state(self._store, session_id)
                if state.run_id is None:
                    self._open.discard(session_id)
                    self._closed[session_id] = tail.entry_id
                elif await self._resumed(session_id):
                    resumed += 1
            except NotFound:  # purged in the meantime
                self._open.discard(session_id)
        return resumed

    async def _look_for_open_runs(self) -> None:
        """Find the sessions in which a run may be open, among those that have changed."""
        looked_at: datetime | None = None
        closed: dict[str, str] = {}
        async for info in all_sessions(self._store):  # those that changed last are first
            looked_at = looked_at or info.updated - _CLOCKS
            if self._is_draining or (self._looked_at is not None and info.updated < self._looked_at):
                break
            tail = info.tail
            is_closed = self._closed.get(info.id) == tail.entry_id or await self._is_closed(info.id, tail.seq)
            if not is_closed:
                self._open.add(info.id)
            elif info.updated >= looked_at:
                closed[info.id] = tail.entry_id
        if not self._is_draining:
            self._looked_at, self._closed = looked_at, closed

    async def _is_closed(self, session_id: str, tail_seq: int) -> bool:
        """Whether the last entry alone shows that nothing is open, as it does in most sessions."""
        try:
            last: Iterable[Entry] = await self._store.entries(session_id, after_seq=tail_seq - 1, limit=1)
        except NotFound:  # purged in the meantime
            return True
        return all(isinstance(entry.fact, RunEnded | SessionHeader) for entry in last)

    async def _resumed(self, session_id: str) -> bool:
        _, state = await load_state(self._store, session_id)
        if state.run_id is None:
            return False  # a message that waits for the next run is not a reason to start one
        try:
            return await self.resume(session_id)
        except BartackError as error:
            _log.warning("Cannot resume session %r: %s", session_id, error)
            return False

    async def keep_resuming(self, every_s: float) -> None:
        """Look for open runs regularly."""
        while True:
            try:
                await self.resume_open_runs()
            except StoreError as error:
                _log.warning("Cannot look for runs to resume: %s", error)
            await asyncio.sleep(every_s)


def _observed(agent: Agent[Any, Any]) -> LoopConfig:
    limits = agent.config.loop
    return replace(limits, journal_ms=limits.journal_ms or _JOURNAL_MS, keep_requests=True)


def has_work(state: RunState, store: SessionStore) -> bool:
    """Whether resuming has any effect. A run whose calls all await a decision or a result would only pause again."""
    if state.run_id is None:
        return bool(state.inbox)
    if state.abort is not None or not state.open_calls:
        return True
    return any(not _is_waiting(one, store.environment.now()) for one in state.open_calls.values())


def _is_waiting(call: OpenCall, now: datetime) -> bool:
    """Whether a call can only continue once it is decided, or its result is posted."""
    if call.is_deferred:
        return call.posted is None
    if call.is_paused:
        return all(_is_waiting(one, now) for one in call.nested.values())
    if call.question is None or call.verdict is not None:
        return False
    return call.question.expires_at is None or call.question.expires_at > now


def _last_start(branch: Sequence[Entry]) -> RunStarted | None:
    for entry in reversed(branch):  # entries are decoded on access, and this one is usually near the end
        if isinstance(entry.fact, RunStarted):
            return entry.fact
    return None
