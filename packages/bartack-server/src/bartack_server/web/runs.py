"""`ServerRuns`: the runs that belong to a server, not to the request that started them.

A run continues after every viewer has left. When the server stops, live runs get some time to end; those that do not
are suspended and stay open in the store. When a server starts, and regularly after that, it resumes runs that servers
left open: its own from before a restart or a crash, and those of other servers on the same store that are gone. A run
that waits for an approval is not live anywhere; the decision resumes it.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
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
    NotAdopted,
    NotFound,
    NothingToResume,
    SessionInUse,
)
from bartack.queues import Job
from bartack.session.run_state import RunState
from bartack.store.requests import load_state
from bartack.store.session_store import SessionStore
from bartack_server.supervisor import Supervisor, has_work, visible_limits
from bartack_server.web.session_rules import SessionRules

__all__ = ["AGENT_KEY", "ServerRuns"]

AGENT_KEY = "bartack_server.web.agent"  # metadata of a run of a server, and of a session: the name of its agent
_RELEASE_S = (0.02, 0.05, 0.1, 0.3, 0.6)  # between the end of a run and the release of its session
_LATE = 50  # entries that a session may get while a run ends
_REQUESTS = (MessageQueued, ApprovalDecided, ResultPosted, AbortRequested)

_log = logging.getLogger("bartack_server.web")


class ServerRuns:
    """The live runs of this process, at most one per session."""

    def __init__(self, agents: Mapping[str, Agent[Any, Any]], store: SessionStore) -> None:
        self._agents = agents
        self._store = store
        self._live: dict[str, Run[Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.rules = SessionRules()
        self._supervisor = Supervisor(store, self._attend)
        self._resumed = 0  # runs that others had left open
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
                limits=_limits(own),
                approver=self.rules.approver(session_id, own),
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
            only_if=lambda state: has_work(state, self._store.environment.now()),
            limits=_limits(own),
            approver=self.rules.approver(session_id, own),
            metadata={AGENT_KEY: agent},
            **settings,
        )
        try:
            await self._keep(run)
        except (NotAdopted, NothingToResume, SessionInUse):  # a process in which it is live reads what was requested
            return False
        return True

    async def agent_of(self, session_id: str, state: RunState | None = None) -> str | None:
        """The name of the agent that answers in a session; None if another program has a run open there."""
        branch = await self._store.load(session_id)
        if state is None:
            _, state = await load_state(self._store, session_id)
        if state.run_id is not None:
            started = _last_start(branch)
            name = ((started and started.metadata) or {}).get(AGENT_KEY)
            return name if isinstance(name, str) and name in self._agents else None
        header = branch[0].fact
        name = ((header.metadata if isinstance(header, SessionHeader) else None) or {}).get(AGENT_KEY)
        return name if isinstance(name, str) and name in self._agents else next(iter(self._agents))

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
        """Resume the runs that servers left open; how many."""
        before = self._resumed
        await self._supervisor.look()
        return self._resumed - before

    async def keep_resuming(self) -> None:
        """Resume the runs that servers leave open, until cancelled."""
        await self._supervisor.keep_looking()

    async def _attend(self, last: Entry) -> bool:
        """Resume the run of a session if it is this server's to resume; True if no run is open."""
        session_id = last.session_id
        if isinstance(last.fact, RunEnded):
            return True
        if self._is_draining or session_id in self._live:
            return False
        _, state = await load_state(self._store, session_id)
        if state.run_id is None:
            return True  # a message that waits for the next run is not a reason to start one
        if self._may_take_over(state):
            self._resumed += await self.resume(session_id)
        return False

    def _may_take_over(self, state: RunState) -> bool:
        """Whether this server resumes an open run that is not live."""
        return True


def _limits(agent: Agent[Any, Any]) -> LoopConfig:
    return replace(visible_limits(agent), keep_requests=True)


def _last_start(branch: Sequence[Entry]) -> RunStarted | None:
    for entry in reversed(branch):  # entries are decoded on access, and this one is usually near the end
        if isinstance(entry.fact, RunStarted):
            return entry.fact
    return None
