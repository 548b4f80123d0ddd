"""`Worker`: claims jobs from a queue and works on their sessions, many at once.

    worker = Worker(StoreQueue(store), {"support": agent}, store, slots=10)
    await worker.run()                      # until worker.stop()

What is to be done in a session is decided by the session: `Agent.resume` delivers the messages that wait there, or
continues the run that is open. So a job that was done already is done again without effect. When the worker stops, each
live run completes its current step and is handed over. If the process dies, the queue gives its jobs to others, and the
lease of the session keeps a process that was only stopped for a while from writing to it afterwards.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from bartack.agent import Agent, EntryAppended, Run, RunResult
from bartack.nouns.config import LoopConfig
from bartack.nouns.errors import BartackError, ErrorCode, LeaseLost, NotFound, SessionInUse, StoreError
from bartack.nouns.messages import Message
from bartack.nouns.tables import AgentStatus
from bartack.queues.job import JOB_KEY, Job, Outcome, WorkerInfo
from bartack.queues.run_queue import RunQueue
from bartack.queues.submit import deliver_scheduled
from bartack.store.holder import this_process
from bartack.store.requests import load_state
from bartack.store.session_store import SessionStore

__all__ = ["JOURNAL_MS", "Worker"]

JOURNAL_MS = 120  # how often an answer that is arriving becomes visible to viewers in other processes
_CLAIM_S = 1.0  # how long a claim waits for a job, and so how long an idle worker takes to stop
_AGAIN_S = 1.0  # before a job is tried again, and before a store that failed is asked again
_IN_USE_S = 5.0  # the longest time before a session that is in use is tried again

_log = logging.getLogger("bartack.workers")


class _Done(NamedTuple):
    outcome: Outcome
    delay_s: float = 0.0
    code: ErrorCode | None = None


class Worker:
    """One process that works on jobs."""

    def __init__(
        self,
        queue: RunQueue,
        agents: Mapping[str, Agent[Any, Any]],
        store: SessionStore,
        *,
        slots: int = 10,
        lease_s: float = 6.0,
        drain_s: float = 20.0,
    ) -> None:
        """`slots` is how many runs are live at once. `lease_s` is how long the session of a run stays locked if this
        machine dies. `drain_s` is how long a step may take to end when the worker stops; then it is interrupted."""
        self._queue = queue
        self._store = store
        self._agents = {name: agent.with_store(store, lease_s=lease_s) for name, agent in agents.items()}
        self._slots = slots
        self._drain_s = drain_s
        self._live: dict[str, Run[Any]] = {}  # by job
        self._tasks: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()
        self._stopping = asyncio.Event()
        self.info: WorkerInfo = self._new_info()
        self.done: int = 0  # jobs that have ended here

    def _new_info(self) -> WorkerInfo:
        process = this_process()
        return WorkerInfo(
            id=self._store.environment.new_id(),
            host=process.host,
            pid=process.pid,
            started_at=self._store.environment.now(),
            agents=tuple(self._agents),
            slots=self._slots,
        )

    def stop(self) -> None:
        """Claim nothing more, and hand the live runs over when their current step is done."""
        self._stopping.set()
        self._freed.set()
        for run in self._live.values():
            run.suspend(after_step=True)

    def interrupt(self) -> None:
        """Hand the live runs over at once, without waiting for their current steps."""
        self.stop()
        for run in self._live.values():
            run.suspend()

    async def run(self) -> None:
        """Work until `stop` is called. A store that is away for a while is waited for."""
        await self._beat()
        beats = asyncio.create_task(self._keep_beating())
        try:
            while not self._stopping.is_set():
                if len(self._tasks) >= self._slots:
                    self._freed.clear()
                    await self._freed.wait()
                    continue
                job = await self._claimed()
                if job is not None:
                    self._start(job)
            await self._drain()
        finally:
            beats.cancel()
            with suppress(asyncio.CancelledError):
                await beats
        with suppress(StoreError):  # its lease expires
            await self._queue.leave(self.info)

    async def _claimed(self) -> Job | None:
        try:
            return await self._queue.claim(self.info, _CLAIM_S)
        except StoreError as error:
            _log.warning("Cannot claim a job: %s", error)
            await asyncio.sleep(_AGAIN_S)
            return None

    def _start(self, job: Job) -> None:
        task = asyncio.create_task(self._work_on(job, self.info))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._freed.set()

    async def _drain(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._drain_s)
        for run in self._live.values():
            run.suspend()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # -- signs of life

    async def _keep_beating(self) -> None:
        while True:
            await asyncio.sleep(self._queue.beat_s)
            await self._beat()

    async def _beat(self) -> None:
        """Show that this worker is alive. One that was taken for dead begins anew: its jobs belong to others now."""
        while True:
            try:
                await self._queue.heartbeat(self.info)
            except LeaseLost:
                _log.warning("This worker was taken for dead; its jobs were given to others.")
                self.info = self._new_info()
                continue
            except StoreError as error:
                _log.warning("Cannot show that this worker is alive: %s", error)
                if self._stopping.is_set():
                    return
                await asyncio.sleep(_AGAIN_S)
                continue
            return

    # -- one job

    async def _work_on(self, job: Job, worker: WorkerInfo) -> None:
        done = await self._outcome(job)
        while True:
            try:
                await self._queue.complete(worker, job, done.outcome, delay_s=done.delay_s, code=done.code)
            except StoreError as error:
                _log.warning("Cannot complete job %s: %s", job.id, error)
                if self._stopping.is_set() and not error.retryable:
                    return  # others take it over
                await asyncio.sleep(_AGAIN_S)
                continue
            break
        self.done += done.outcome != "again"

    async def _outcome(self, job: Job) -> _Done:
        try:
            await deliver_scheduled(self._store, job)
            return await self._run(job)
        except SessionInUse as error:  # by a run that is not a worker's, or by a worker that is gone
            return _Done("again", min(max(error.expires_in_s, 0.1), _IN_USE_S))
        except NotFound as error:  # the session was purged
            return _Done("failed", code=error.code)
        except StoreError as error:  # the run is open, and continues when the store is back
            _log.warning("A run of session %r was interrupted: %s", job.session_id, error)
            if error.code in (ErrorCode.STORAGE_CORRUPT, ErrorCode.STORAGE_UNSUPPORTED):
                return _Done("failed", code=error.code)
            return _Done("again", _AGAIN_S)
        except Exception as error:  # noqa: BLE001 - user code may raise anything; the run has ended with it
            _log.exception("A run of session %r ended in an error.", job.session_id)
            return _Done("failed", code=error.code if isinstance(error, BartackError) else ErrorCode.INTERNAL_ERROR)

    async def _run(self, job: Job) -> _Done:
        agent = self._agents[job.agent]
        metadata = {JOB_KEY: msgspec.to_builtins(job)}
        run = agent.resume_stream(job.session_id, limits=_journalled(agent), metadata=metadata)
        if self._stopping.is_set():
            return _Done("again")
        self._live[job.id] = run
        try:
            async with run:
                if self._queue.records_steps:
                    await self._record_steps(job, run)
                result = await run.wait()
        finally:
            del self._live[job.id]
        return await self._done(job, result)

    async def _record_steps(self, job: Job, run: Run[Any]) -> None:
        number = 0
        async for event in run:
            fact = event.entry.fact if isinstance(event, EntryAppended) else None
            if isinstance(fact, Message) and fact.role in ("assistant", "tool"):
                number += 1
                self._queue.step(job, number)

    async def _done(self, job: Job, result: RunResult[Any]) -> _Done:
        match result.status:
            case AgentStatus.AWAITING_HUMAN if result.reason == "suspended":
                return _Done("again")
            case AgentStatus.AWAITING_HUMAN:
                expires_at = await self._expiry(job)
                if expires_at is None:
                    return _Done("paused")
                return _Done("again", max(0.0, (expires_at - self._store.environment.now()).total_seconds()))
            case AgentStatus.FAILED:
                return _Done("failed", code=None if result.error is None else result.error.error_code)
            case AgentStatus.ABORTED:
                return _Done("aborted")
            case _:
                return _Done("completed")

    async def _expiry(self, job: Job) -> datetime | None:
        """When the first of the approvals that the run waits for expires, and the run continues without it."""
        _, state = await load_state(self._store, job.session_id)
        return min((one.expires_at for one in state.questions if one.expires_at is not None), default=None)


def _journalled(agent: Agent[Any, Any]) -> LoopConfig:
    limits = agent.config.loop
    return limits if limits.journal_ms is not None else replace(limits, journal_ms=JOURNAL_MS)
