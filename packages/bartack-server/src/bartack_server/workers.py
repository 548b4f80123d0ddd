"""`Worker`: claims jobs from a queue (`bartack.queues`) and runs their sessions, many at once.

    worker = Worker(StoreQueue(store), {"support": agent}, store, slots=10)
    await worker.run()                      # until worker.stop()

The session itself determines what is left to do: `Agent.resume` delivers waiting messages or continues the open run.
Repeating a finished job therefore has no effect. When the worker stops, each live run completes its current step and is
handed over. If the process dies, the queue gives its jobs to other workers. If it was only suspended, the session's
lease keeps it from writing after it wakes up.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import msgspec

from bartack.agent import Agent, EntryAppended, Run, RunResult
from bartack.nouns.entries import Entry, MessageQueued, RunEnded
from bartack.nouns.errors import (
    BartackError,
    ErrorCode,
    LeaseLost,
    NotAdopted,
    NotFound,
    NothingToResume,
    SessionInUse,
    StoreError,
)
from bartack.nouns.messages import Message
from bartack.nouns.tables import AgentStatus
from bartack.queues.run_queue import JOB_KEY, WORKER_KEY, Job, Outcome, QueueStatus, RunQueue, WorkerInfo
from bartack.queues.submit import OLDEST_REQUEST, deliver_scheduled, enqueue_requested, submitted_job
from bartack.store.leases import this_process
from bartack.store.requests import load_state
from bartack.store.session_store import SessionStore
from bartack_server.supervisor import Supervisor, has_work, visible_limits
from bartack_server.watchdog import BLOCKED_S, Watchdog

__all__ = ["Worker", "WorkerMetrics", "missing_jobs"]

_CLAIM_S = 1.0  # how long a claim waits for a job, and so how long an idle worker takes to stop
_AGAIN_S = 1.0  # delay before a job is retried, and before a store that failed is tried again
_IN_USE_S = 5.0  # the longest delay before a session in use is tried again
_FOREIGN_S = 15.0  # delay before a session that nobody has adopted is tried again
_OBSERVE_S = 15.0  # how often the state of the queue is reported as metrics
_FIRST_LOOK = 1000  # sessions in which to look for missing jobs first, however long ago they changed

_log = logging.getLogger("bartack_server.workers")


class WorkerMetrics(Protocol):
    """What a worker reports about its jobs and its queue, which `bartack.telemetry.Telemetry` turns into metrics."""

    def job_claimed(self, job: Job, waited_s: float) -> None:
        """A worker begins with a job, so long after it was enqueued or due."""
        ...

    def job_ended(self, job: Job, outcome: Outcome, seconds: float, code: ErrorCode | None) -> None:
        """The worker has completed the job, so long after it began."""
        ...

    def queue_observed(self, status: QueueStatus, engine: str) -> None:
        """What the queue is doing at the moment."""
        ...


class _JobEnd(NamedTuple):
    outcome: Outcome
    delay_s: float = 0.0
    code: ErrorCode | None = None


class Worker:
    """A process that executes jobs."""

    def __init__(
        self,
        queue: RunQueue,
        agents: Mapping[str, Agent[Any, Any]],
        store: SessionStore,
        *,
        slots: int = 10,
        lease_s: float = 6.0,
        drain_s: float = 20.0,
        telemetry: WorkerMetrics | None = None,
        blocked_s: float = BLOCKED_S,
        exit_when_blocked_s: float | None = None,
    ) -> None:
        """`slots` is the maximum number of live runs. `lease_s` is how long the session of a run stays locked if this
        machine dies. `drain_s` is how long a step may take when the worker stops, before it is interrupted. `telemetry`
        receives metrics of the jobs and the queue. If the event loop is blocked for `blocked_s`, what blocks it is
        logged; after `exit_when_blocked_s`, the process ends (see `bartack_server.watchdog`).
        """
        self._queue = queue
        self._store = store
        self._agents = {name: agent.with_store(store, lease_s=lease_s) for name, agent in agents.items()}
        self._slots = slots
        self._drain_s = drain_s
        self._telemetry = telemetry
        self._watchdog = Watchdog(
            blocked_s=blocked_s,
            exit_s=exit_when_blocked_s,
            live=lambda: [run.session_id for run in self._live],
        )
        self._supervisor = missing_jobs(store, queue)
        self._live: set[Run[Any]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._is_overdue = False  # it must stop without waiting any longer
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
        """Claim no more jobs, and hand over each live run after its current step."""
        self._stopping.set()
        self._freed.set()
        for run in self._live:
            run.suspend(after_step=True)

    def interrupt(self) -> None:
        """Hand over the live runs immediately, without waiting for their current steps."""
        self.stop()
        self._is_overdue = True
        for run in self._live:
            run.suspend()

    async def run(self) -> None:
        """Execute jobs until `stop` is called. If the store is unavailable for a while, wait for it."""
        with self._watchdog:
            await self._execute_jobs()

    async def _execute_jobs(self) -> None:
        await self._beat()
        background = [asyncio.create_task(self._regularly(work)) for work in (self._beat, self._reap)]
        background.append(asyncio.create_task(self._supervisor.keep_looking()))
        if self._telemetry is not None:
            background.append(asyncio.create_task(self._keep_observing(self._telemetry)))
        try:
            job: Job | None = None
            while not self._stopping.is_set():
                if not self._is_full:
                    job = await self._claimed(_CLAIM_S)
                elif job is None and await self._is_freed():
                    continue
                else:
                    job = await self._claimed(0.0, begun_only=True) if self._has_reserve else None
                if job is not None:
                    self._start(job)
            await self._drain()
        finally:
            for task in background:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        for leave in (self._supervisor.leave(), self._queue.leave(self.info)):
            with suppress(StoreError):  # its lease expires
                await leave

    @property
    def _is_full(self) -> bool:
        return len(self._tasks) >= self._queue.live_limit(self._slots)

    @property
    def _has_reserve(self) -> bool:
        """The runs of a dead worker do not wait for a slot: a worker takes over as many again as it has slots."""
        return len(self._tasks) < 2 * self._slots

    async def _is_freed(self) -> bool:
        """Whether a slot is free, or it is time to look for runs of a dead worker."""
        self._freed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLAIM_S):
                await self._freed.wait()
        return self._freed.is_set()

    async def _claimed(self, wait_s: float, *, begun_only: bool = False) -> Job | None:
        try:
            return await self._queue.claim(self.info, wait_s, begun_only=begun_only)
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
        self.interrupt()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # -- signs of life

    async def _regularly(self, work: Callable[[], Awaitable[None]]) -> None:
        clock = asyncio.get_running_loop().time
        due = clock()
        while True:
            due = max(due + self._queue.beat_s, clock())  # a slow store must not make the signs of life rarer
            await asyncio.sleep(due - clock())
            await work()

    async def _reap(self) -> None:
        try:
            await self._queue.reap(self.info)
        except StoreError as error:
            _log.warning("Cannot check on other workers: %s", error)

    async def _beat(self) -> None:
        """Send heartbeats. A worker that was considered dead starts over: its jobs now belong to others."""
        while True:
            try:
                await self._queue.heartbeat(self.info)
            except LeaseLost:
                _log.warning("This worker was considered dead; its jobs were given to others.")
                self.info = self._new_info()
                continue
            except StoreError as error:
                _log.warning("Cannot send a heartbeat: %s", error)
                if self._stopping.is_set():
                    return
                await asyncio.sleep(_AGAIN_S)
                continue
            return

    async def _keep_observing(self, telemetry: WorkerMetrics) -> None:
        while True:
            with suppress(StoreError):  # the next heartbeat reports it
                telemetry.queue_observed(await self._queue.status(), self._queue.engine)
            await asyncio.sleep(_OBSERVE_S)

    # -- one job

    async def _work_on(self, job: Job, worker: WorkerInfo) -> None:
        claimed_at, mark_s = self._store.environment.now(), time.monotonic()
        if self._telemetry is not None:
            due = max(job.queued_at, job.not_before or job.queued_at)
            self._telemetry.job_claimed(job, max(0.0, (claimed_at - due).total_seconds()))
        _log.info("Claimed job %s of session %r.", job.id, job.session_id)
        done = await self._outcome(job, worker)
        if done.outcome in ("failed", "aborted"):  # a run that completes has delivered what was requested
            with suppress(BartackError):  # otherwise the supervisor does it
                await enqueue_requested(self._store, self._queue, job.session_id)
        _log.info("Job %s: %s.", job.id, done.outcome)
        while True:
            try:
                await self._queue.complete(worker, job, done.outcome, delay_s=done.delay_s, code=done.code)
            except StoreError as error:
                _log.warning("Cannot complete job %s: %s", job.id, error)
                if self._stopping.is_set() and (self._is_overdue or not error.retryable):
                    return  # others take it over
                await asyncio.sleep(_AGAIN_S)
                continue
            break
        self.done += done.outcome != "again"
        if self._telemetry is not None:
            self._telemetry.job_ended(job, done.outcome, time.monotonic() - mark_s, done.code)

    async def _outcome(self, job: Job, worker: WorkerInfo) -> _JobEnd:
        try:
            await deliver_scheduled(self._store, job)
            return await self._run(job, worker)
        except SessionInUse as error:  # the run is not a worker's, or its worker is gone
            return _JobEnd("again", min(max(error.expires_in_s, 0.1), _IN_USE_S))
        except NotAdopted as error:  # a restored session; what was requested in it waits until a person adopts it
            _log.warning("%s", error)
            return _JobEnd("again", _FOREIGN_S)
        except NotFound as error:  # the session was purged
            return _JobEnd("failed", code=error.code)
        except StoreError as error:  # the run is open, and continues when the store is back
            _log.warning("A run of session %r was interrupted: %s", job.session_id, error)
            if error.code in (ErrorCode.STORAGE_CORRUPT, ErrorCode.STORAGE_UNSUPPORTED):
                return _JobEnd("failed", code=error.code)
            return _JobEnd("again", _AGAIN_S)
        except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - user code may raise anything; the run has ended with it
            _log.exception("A run of session %r ended in an error.", job.session_id)
            return _JobEnd("failed", code=error.code if isinstance(error, BartackError) else ErrorCode.INTERNAL_ERROR)

    async def _run(self, job: Job, worker: WorkerInfo) -> _JobEnd:
        agent = self._agents[job.agent]
        process = {"id": worker.id, "host": worker.host, "pid": worker.pid}
        metadata = {JOB_KEY: msgspec.to_builtins(job), WORKER_KEY: process}
        run = agent.resume_stream(
            job.session_id,
            only_if=lambda state: has_work(state, self._store.environment.now()),
            limits=visible_limits(agent),
            metadata=metadata,
        )
        if self._stopping.is_set():
            return _JobEnd("again")
        self._live.add(run)
        try:
            async with run:
                with suppress(StoreError):  # a start that was not recorded counts until the job is completed
                    await self._queue.start(worker, job)
                if self._queue.records_steps:
                    await self._record_steps(job, run)
                result = await run.wait()
        except NothingToResume:  # the previous worker has ended the run, or it still waits
            return await self._waiting(job)
        finally:
            self._live.discard(run)
        return await self._done(job, result)

    async def _record_steps(self, job: Job, run: Run[Any]) -> None:
        number = 0
        async for event in run:
            fact = event.entry.fact if isinstance(event, EntryAppended) else None
            if isinstance(fact, Message) and fact.role in ("assistant", "tool"):
                number += 1
                self._queue.step(job, number)

    async def _done(self, job: Job, result: RunResult[Any]) -> _JobEnd:
        match result.status:
            case AgentStatus.AWAITING_HUMAN if result.reason == "suspended":
                return _JobEnd("again")
            case AgentStatus.AWAITING_HUMAN:
                return await self._waiting(job)
            case AgentStatus.FAILED:
                return _JobEnd("failed", code=None if result.error is None else result.error.error_code)
            case AgentStatus.ABORTED:
                return _JobEnd("aborted")
            case _:
                return _JobEnd("completed")

    async def _waiting(self, job: Job) -> _JobEnd:
        """The outcome for a run that waits, if it is open. When the first of its approvals expires, it continues."""
        _, state = await load_state(self._store, job.session_id)
        if state.run_id is None:
            return _JobEnd("completed")
        expiries = [question.expires_at for question in state.questions if question.expires_at is not None]
        if not expiries:
            return _JobEnd("paused")
        return _JobEnd("again", max(0.0, (min(expiries) - self._store.environment.now()).total_seconds()))


def missing_jobs(store: SessionStore, queue: RunQueue) -> Supervisor:
    """Enqueues what was requested in a session and has no job: because a process died in between, or because the run
    that was to deliver it has ended without it.
    """

    async def enqueue_requests(last: Entry) -> bool:
        is_old = last.timestamp < store.environment.now() - OLDEST_REQUEST
        submitted = submitted_job(last)
        if isinstance(last.fact, MessageQueued) and submitted is not None:
            # By far the most frequent case if many runs are waiting: a run for this prompt serves all requests.
            if not is_old and (submitted.queue, submitted.engine) == (queue.name, queue.engine):
                await queue.enqueue(submitted)
        elif isinstance(last.fact, RunEnded) and (is_old or await _has_delivered(store, last)):
            pass
        elif await store.lease_of(last.session_id) is not None:
            return False  # its run reads what was requested
        else:
            await enqueue_requested(store, queue, last.session_id)
        return True

    name = f"lookout:{queue.engine}:{queue.name}"
    return Supervisor(store, enqueue_requests, elected_as=name, first_look=_FIRST_LOOK)


async def _has_delivered(store: SessionStore, end: Entry) -> bool:
    """Whether this end of a run is that of one which answered, and so has delivered everything that was requested.

    Others leave requests open: a run that failed or was aborted, and one that only wrote a summary.
    """
    if not isinstance(end.fact, RunEnded) or end.fact.status != "completed":
        return False
    before = await store.entries(end.session_id, after_seq=end.seq - 2, limit=1)
    return any(isinstance(entry.fact, Message) for entry in before)
