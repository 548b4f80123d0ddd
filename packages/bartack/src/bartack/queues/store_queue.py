"""`StoreQueue`: a queue on the session store alone, for any number of processes that share the store.

The queue is a log of events in a session that is hidden from lists. Every process folds the log (`QueueState`) and
appends with the expected tail: if others append first, it folds their events and decides again. At any moment, a job
is thus claimed by at most one process, without locks or a separate server.

A worker's heartbeat is the lease on a session of its own. The lease names host, boot and process, so a process that
died on this machine is detected immediately, and one on another machine when its lease expires. Each worker watches the
next ones in the order of their ids.

When the log has grown too long, the state is written to a new session as a snapshot, and the log continues there. A
small session with a fixed name points to the current log.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct

from bartack.nouns.entries import Custom, Entry, Fact, SessionHeader
from bartack.nouns.errors import Conflict, ErrorCode, LeaseLost, NotFound, SessionInUse, StoreError
from bartack.queues.run_queue import (
    MAX_DEATHS,
    PROTOCOL,
    Job,
    Limit,
    Outcome,
    QueueStatus,
    WorkerInfo,
    queue_full_error,
)
from bartack.queues.state import (
    JobClaimed,
    JobCompleted,
    JobEnqueued,
    JobsCancelled,
    JobsRetried,
    JobStarted,
    LogMoved,
    QueueEvent,
    QueueSnapshot,
    QueueState,
    WorkerJoined,
    WorkerLeft,
    dump_event,
    load_event,
)
from bartack.store.session_store import RESERVED, Lease, SessionStore, Tail, next_entries

__all__ = ["MAX_WAITING", "StoreQueue"]

MAX_WAITING = 100_000  # jobs; with more, a new process takes too long to read the log
_FACT = "bartack.queue"
_POINTER = "bartack.queue.log"
_ROTATE_AFTER = 2000  # events since the snapshot, or twice the jobs in it
_WATCHED = 2  # workers that each worker watches
_log = logging.getLogger("bartack.queues")
_RATE_S = 0.5  # how often a worker that a limit holds back looks again: starts are forgotten without an event


class StoreQueue:
    """A `RunQueue` on a `SessionStore`. One object serves all tasks of a process."""

    engine = "store"
    records_steps = False  # the session has them

    def __init__(
        self,
        store: SessionStore,
        name: str = "default",
        *,
        limits: Sequence[Limit] = (),
        max_waiting: int = MAX_WAITING,
        max_waiting_per_user: int | None = None,
        ttl_s: float = 6.0,
        max_deaths: int = MAX_DEATHS,
    ) -> None:
        """`limits` are applied when jobs are claimed, so all workers should have the same limits. `ttl_s` is how long
        the jobs of a worker that died on another machine wait until others may take them. A job that `max_deaths`
        workers died with is set aside.
        """
        self.name = name
        self._store = store
        self._limits = limits
        self._rated_s = max((limit.per_s for limit in limits if limit.starts is not None), default=None)
        self._max_waiting = max_waiting
        self._max_waiting_per_user = max_waiting_per_user
        self._ttl_s = ttl_s
        self._max_deaths = max_deaths
        self._root = f"{RESERVED}queue:{name}"
        self._log: str | None = None  # the session with the log
        self._previous: str | None = None  # the session whose log it continues
        self._tail = Tail("", 0)
        self._first = 0  # entries that the log began with
        self._state = QueueState()
        self._lock = asyncio.Lock()
        self._leases: dict[str, Lease] = {}  # signs of life, by worker
        self._last_beat: float | None = None  # the last heartbeat of any worker here, on the clock of the loop
        self._reap_after = 0.0
        self._handed_out: set[tuple[str, int]] = set()  # jobs and attempts that `claim` has returned

    @property
    def beat_s(self) -> float:
        """A quarter of the time that a heartbeat is valid: three in a row may be lost."""
        return self._ttl_s / 4

    # -- for everyone

    async def check_room(self, user: str | None = None) -> None:
        """Raise `QueueFull` if another job of this user would exceed a limit."""
        async with self._lock:
            await self._refresh()
        waiting, of_user = len(self._state.waiting), self._state.waiting_of(user)
        if waiting >= self._max_waiting:
            raise queue_full_error(waiting, self._max_waiting)
        limit = self._max_waiting_per_user
        if user is not None and limit is not None and of_user >= limit:
            raise queue_full_error(of_user, limit, user)

    async def enqueue(self, job: Job) -> None:
        """Add a job. Enqueueing a job id again has no effect."""
        await self._append(lambda state: None if state.knows(job.id) else JobEnqueued(job=job))

    async def cancel(self, session_id: str) -> tuple[Job, ...]:
        """Remove the jobs of a session, and return them."""
        removed: list[Job] = []

        def decide(state: QueueState) -> QueueEvent | None:
            removed[:] = state.of_session(session_id)
            return JobsCancelled(job_ids=tuple(job.id for job in removed), at=self._now()) if removed else None

        async with self._lock:
            await self._refresh()
        await self._append(decide)
        return tuple(removed)

    async def retry(self, session_id: str) -> tuple[Job, ...]:
        """Return the jobs of a session that were set aside to the queue."""
        stuck: list[Job] = []

        def decide(state: QueueState) -> QueueEvent | None:
            stuck[:] = [job for job in state.stuck.values() if job.session_id == session_id] or stuck
            is_open = any(job.id in state.stuck for job in stuck)
            return JobsRetried(job_ids=tuple(job.id for job in stuck)) if is_open else None

        async with self._lock:
            await self._refresh()
        await self._append(decide)
        return tuple(stuck)

    async def status(self) -> QueueStatus:
        """What the queue is doing. Does not create a queue that does not exist."""
        async with self._lock:
            await self._refresh(may_create=False)
        return self._state.status(self.name, self._now())

    async def close(self) -> None:
        """Do nothing: a store queue has nothing to close."""

    # -- for workers

    async def claim(self, worker: WorkerInfo, wait_s: float, *, begun_only: bool = False) -> Job | None:
        """The next job for this worker; None if there is none within `wait_s`."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + wait_s
        async with self._lock:
            await self._refresh()
        while True:
            job = await self._try_claim(worker, begun_only)
            left_s = deadline - clock()
            if job is not None or left_s <= 0:
                return job
            await self._wait_for_change(min(left_s, self._pause_s()))

    async def _try_claim(self, worker: WorkerInfo, begun_only: bool) -> Job | None:
        chosen: list[Job] = []

        def decide(state: QueueState) -> QueueEvent | None:
            current_time, job = self._now(), None
            if worker.id in state.workers:
                job = state.next_job(current_time, worker, self._limits, begun_only=begun_only)
            chosen[:] = [] if job is None else [job]
            return (
                None
                if job is None
                else JobClaimed(job_id=job.id, worker=worker.id, at=current_time, rated_s=self._rated_s)
            )

        # A claim whose outcome was unknown may have been stored.
        stored = [job for job in self._state.claims_of(worker.id) if (job.id, job.attempt) not in self._handed_out]
        if not stored:
            await self._append(decide)
            stored = [job for job in chosen if self._state.has_claim(job, worker.id)]
        for job in stored[:1]:
            self._handed_out.add((job.id, job.attempt))
            return job
        return None

    def _pause_s(self) -> float:
        """The longest time to wait: before it has passed, no job becomes claimable without an event."""
        due = self._state.next_due
        until_due = _RATE_S if due is None else (due - self._now()).total_seconds()
        is_rated = self._rated_s is not None
        return max(0.01, min(until_due, _RATE_S) if is_rated else until_due if due is not None else 60.0)

    async def _wait_for_change(self, seconds: float) -> None:
        """Wait until others have added an event, and fold it."""
        with suppress(TimeoutError, NotFound):
            async with asyncio.timeout(seconds):
                async with aclosing(self._store.follow(self._log or "", self._tail.seq)) as entries:  # type: ignore[type-var]
                    async for _ in entries:
                        break
        async with self._lock:
            await self._refresh()

    async def start(self, worker: WorkerInfo, job: Job) -> None:
        """Record that the run of a claimed job has started, if a limit counts starts."""

        def decide(state: QueueState) -> QueueEvent | None:
            if not (state.has_claim(job, worker.id) and state.running[job.id].is_starting):
                return None
            return JobStarted(job_id=job.id, worker=worker.id, attempt=job.attempt, at=self._now())

        if self._rated_s is not None:
            await self._append(decide)

    async def complete(
        self,
        worker: WorkerInfo,
        job: Job,
        outcome: Outcome,
        *,
        delay_s: float = 0.0,
        code: ErrorCode | None = None,
    ) -> None:
        """End the claim of a job. If the outcome is ``again``, the job returns to the queue, due after `delay_s`."""

        def decide(state: QueueState) -> QueueEvent | None:
            if not state.has_claim(job, worker.id):
                return None  # it is stored already, or the job belongs to another worker now
            current_time = self._now()
            return JobCompleted(
                job_id=job.id,
                worker=worker.id,
                attempt=job.attempt,
                at=current_time,
                outcome=outcome,
                not_before=current_time + timedelta(seconds=delay_s) if delay_s > 0 else None,
                code=None if code is None else str(code),
            )

        await self._append(decide)
        self._handed_out.discard((job.id, job.attempt))

    def step(self, job: Job, number: int) -> None:
        """Nothing to record."""

    def live_limit(self, slots: int) -> int:
        """The number of slots."""
        return slots

    # -- signs of life

    async def heartbeat(self, worker: WorkerInfo) -> None:
        """Renew the lease that serves as the worker's heartbeat."""
        lease = self._leases.get(worker.id)
        if lease is None:
            lease = await self._join(worker)
        else:
            try:
                lease = await self._store.renew_lease(lease, self._ttl_s)
            except NotFound as error:  # the worker was considered dead, and its session was removed
                raise LeaseLost(f"Worker {worker.id} was considered dead.") from error
        self._leases[worker.id] = lease
        self._note_beat()
        if worker.id not in self._state.workers:
            async with self._lock:
                await self._refresh()
            await self._append(lambda state: None if worker.id in state.workers else WorkerJoined(worker=worker))

    def _note_beat(self) -> None:
        """After an outage of the store, no heartbeat is valid: give all other workers time to renew theirs."""
        loop_time = asyncio.get_running_loop().time()
        if self._last_beat is not None and loop_time - self._last_beat > self._ttl_s - self.beat_s:
            self._reap_after = loop_time + 2 * self.beat_s
        self._last_beat = loop_time

    async def _join(self, worker: WorkerInfo) -> Lease:
        session_id = self._life_of(worker.id)
        (entry,) = next_entries(session_id, None, [SessionHeader()], self._store.environment)
        try:
            return await self._store.claim(session_id, [entry], None, worker.id, ttl=self._ttl_s)
        except Conflict:  # the first attempt had an unknown outcome
            return await self._store.acquire_lease(session_id, worker.id, self._ttl_s)

    async def leave(self, worker: WorkerInfo) -> None:
        """End the worker."""
        await self._append(
            lambda state: WorkerLeft(worker=worker.id, at=self._now()) if worker.id in state.workers else None
        )
        self._leases.pop(worker.id, None)
        with suppress(NotFound):
            await self._store.drop_session(self._life_of(worker.id))

    def _life_of(self, worker_id: str) -> str:
        return f"{RESERVED}worker:{worker_id}"

    async def reap(self, worker: WorkerInfo) -> None:
        """Check the next workers in the order of ids. If one is dead, check the one after it, too."""
        if asyncio.get_running_loop().time() < self._reap_after:
            return
        async with self._lock:
            await self._refresh()
        ids = sorted(self._state.workers)
        next_ids = [id for id in ids if id > worker.id] + [id for id in ids if id < worker.id]
        alive = 0
        for worker_id in next_ids:
            if alive == _WATCHED:
                break
            if await self._is_dead(worker_id, worker):
                _log.warning("Worker %s is dead; its jobs return to the queue.", worker_id)
                await self._append(
                    lambda state, worker_id=worker_id: (  # type: ignore[misc]
                        WorkerLeft(worker=worker_id, at=self._now(), is_lost=True, max_deaths=self._max_deaths)
                        if worker_id in state.workers
                        else None
                    )
                )
                with suppress(NotFound):
                    await self._store.drop_session(self._life_of(worker_id))
            else:
                alive += 1

    async def _is_dead(self, worker_id: str, worker: WorkerInfo) -> bool:
        """Whether the worker's lease can be taken. If so, the worker can no longer renew it."""
        try:
            await self._store.acquire_lease(self._life_of(worker_id), f"after {worker_id}: {worker.id}", self._ttl_s)
        except SessionInUse:
            return False
        except NotFound:
            return True
        return True

    # -- the log

    def _now(self) -> datetime:
        return self._store.environment.now()

    async def _append(self, decide: Callable[[QueueState], QueueEvent | None]) -> None:
        """Append the event computed from the state. If others append first, read the state again and repeat."""
        async with self._lock:
            if self._log is None:
                await self._refresh()
            while (event := decide(self._state)) is not None:
                if await self._is_appended(event):
                    break
                refused_at = self._log, self._tail
                await self._refresh()
                if refused_at == (self._log, self._tail):  # nobody was first: a part of the log is gone
                    text = f"The log of queue {self.name!r} ends before entry {self._tail.seq}, which was stored."
                    raise StoreError(text, code=ErrorCode.STORAGE_CORRUPT)
            has_grown = self._tail.seq - self._first > max(_ROTATE_AFTER, 2 * self._state.size)
            if has_grown and self._state.newest_protocol <= PROTOCOL:  # a newer job may have keys unknown here
                await self._rotate()

    async def _is_appended(self, event: QueueEvent) -> bool:
        assert self._log is not None
        (entry,) = next_entries(self._log, self._tail, [_fact(event)], self._store.environment)
        try:
            await self._store.append(self._log, [entry], self._tail.entry_id)
        except (Conflict, NotFound):  # others appended first; or the log was moved and is gone
            return False
        self._push(entry)
        return True

    def _push(self, entry: Entry) -> None:
        if isinstance(entry.fact, Custom) and entry.fact.name == _FACT:
            event = load_event(entry.fact.data)
            self._state.push(event)
            if isinstance(event, QueueSnapshot):
                self._first = entry.seq
        self._tail = Tail(entry.id, entry.seq)

    async def _refresh(self, *, may_create: bool = True) -> None:
        """Fold what others have added, following the log to where it was moved."""
        if self._log is None:
            await self._locate(may_create)
        while self._log is not None:
            try:
                for entry in await self._store.entries(self._log, after_seq=self._tail.seq):
                    self._push(entry)
            except NotFound:
                missing = self._log
                await self._locate(may_create)
                if self._log == missing:
                    text = f"The log of queue {self.name!r} is missing: session {missing!r} does not exist."
                    raise StoreError(text, code=ErrorCode.STORAGE_CORRUPT) from None
                continue
            if self._state.moved_to is None:
                break
            self._begin(self._state.moved_to, previous=self._log)

    def _begin(self, log: str, previous: str | None = None) -> None:
        self._log, self._previous = log, previous
        self._tail, self._first, self._state = Tail("", 0), 0, QueueState()

    async def _locate(self, may_create: bool) -> None:
        """Find the log by its pointer, or create both."""
        self._log = None
        while self._log is None:
            try:
                _, pointer = await self._pointer()
            except NotFound:
                if not may_create:
                    return
                await self._create()
                continue
            self._begin(pointer.log, pointer.previous)

    async def _pointer(self) -> "tuple[Tail, _Pointer]":
        tail = await self._store.tail_of(self._root)
        (entry,) = await self._store.entries(self._root, after_seq=tail.seq - 1, limit=1)
        try:
            return tail, msgspec.convert(entry.fact.data if isinstance(entry.fact, Custom) else None, _Pointer)
        except msgspec.ValidationError:
            text = f"Session {self._root!r} is not the pointer of a queue."
            raise StoreError(text, code=ErrorCode.STORAGE_CORRUPT) from None

    async def _create(self) -> None:
        log = await self._new_log(1, [])
        try:
            await self._new_session(self._root, [_Pointer(log).fact])
        except Conflict:  # another process was first
            await self._store.drop_session(log)

    async def _new_log(self, number: int, events: Sequence[QueueEvent]) -> str:
        log = f"{self._root}:{number}:{self._store.environment.new_id()}"
        await self._new_session(log, [_fact(event) for event in events])
        return log

    async def _new_session(self, session_id: str, facts: Sequence[Fact]) -> None:
        entries = next_entries(session_id, None, [SessionHeader(), *facts], self._store.environment)
        await self._store.append(session_id, entries, None)

    async def _rotate(self) -> None:
        """Continue the log in a new session, unless another process does it at the same time."""
        old_log, older_log = self._log, self._previous
        assert old_log is not None
        log = await self._new_log(_number(old_log) + 1, self._state.snapshot())
        if not await self._is_appended(LogMoved(to=log)):
            await self._store.drop_session(log)
            await self._refresh()
            return
        await self._point_to(_Pointer(log, old_log))
        await self._refresh()
        if older_log is not None:  # the one that processes may still be reading is kept until the next time
            with suppress(NotFound):
                await self._store.drop_session(older_log)

    async def _point_to(self, pointer: "_Pointer") -> None:
        """Point new processes to this log, unless it was moved again in the meantime."""
        tail, current = await self._pointer()
        while _number(current.log) < _number(pointer.log):
            entries = next_entries(self._root, tail, [pointer.fact], self._store.environment)
            with suppress(Conflict):
                await self._store.append(self._root, entries, tail.entry_id)
            tail, current = await self._pointer()


class _Pointer(Struct, frozen=True):
    """Where the log is, and where it was before."""

    log: str
    previous: str | None = None

    @property
    def fact(self) -> Custom:
        return Custom(name=_POINTER, data={"log": self.log, "previous": self.previous})


def _number(log: str) -> int:
    return int(log.rsplit(":", 2)[1])


def _fact(event: QueueEvent) -> Custom:
    return Custom(name=_FACT, data=dump_event(event))
