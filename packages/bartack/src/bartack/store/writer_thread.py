"""`WriterThread`: group commit. One thread runs all pending work in groups and reports to each caller its own outcome.

Waiting for the disk takes milliseconds, and it takes as long for one entry as for a thousand. So appends are not
committed one by one: while one group is being committed the next one gathers, and the busier the store is, the larger
its groups are. A caller that is alone waits for nobody. There is no timer that holds a group back until it is full.

The parts. A `WriteJob` is the work of one caller and, once it has run, its outcome. A `_Round` is what one round of an
event loop hands over: the callers that one commit wakes up come back together, and waking the thread for each of them
would cost more than the work itself. A *group* is whatever the thread finds when it is free, from all rounds and all
event loops. The store supplies `commit`, which runs the jobs of a group and makes all of them durable at once. An
exception that it raises is the outcome of every job; an exception of one job is the outcome of that job alone.

Nothing is acknowledged before the whole group is durable, not even a refusal: it may be due to an append of the same
group, which must not be visible to anyone before it is stored. Work whose caller was cancelled before its group started
is not run. A round has one timer for all of its jobs: past it, each caller gets an error that says that the outcome is
unknown, while the thread may still be waiting for the disk or for the lock of another process.

PostgreSQL has the same machine in one task instead of a thread (bartack.store.postgres.group_commit).
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, TypeVar

from bartack.nouns.errors import StoreError
from bartack.store.errors import invalid_value_error, store_closed_error

__all__ = ["WriteJob", "WriterThread", "deliver", "own_error"]

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class _Round:
    """The work that one round of an event loop hands over."""

    wait_s: float
    jobs: list["WriteJob"] = field(default_factory=list)
    unfinished: int = 0
    timer: asyncio.TimerHandle | None = None


@dataclass(eq=False, slots=True)
class WriteJob:
    """The work of one caller and, once it has run, its outcome."""

    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[Any]"
    round: "_Round"
    must_sync: bool = True  # its changes must survive a power loss
    value: Any = None
    error: BaseException | None = None

    def run(self, group_error: type[Exception]) -> None:
        """Do the work. An exception is the outcome of this job, unless it is one that fails the whole group."""
        self.error = None  # an earlier attempt may have left one
        try:
            self.value = self.work()
        except group_error:
            raise
        except UnicodeEncodeError as error:  # an id with an unpaired surrogate
            self.error = invalid_value_error(f"Invalid text: {error}", error)
        except Exception as error:  # noqa: BLE001 - raised in the caller
            self.error = error


def deliver(future: "asyncio.Future[T]", value: T, error: BaseException | None) -> None:
    """Complete a future, unless its caller was cancelled."""
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


def own_error(error: BaseException) -> BaseException:
    """The error for one of several callers: each needs its own, because raising an error adds to its traceback."""
    if not isinstance(error, StoreError):
        return error
    own = copy(error)
    own.__cause__ = error.__cause__
    return own


class WriterThread:
    """The thread. `commit` runs a group and leaves an outcome in every job; an exception fails all of them."""

    def __init__(self, commit: Callable[[Sequence[WriteJob]], None], *, name: str, limit: int = 1024) -> None:
        self._commit = commit
        self._limit = limit
        self._queue: SimpleQueue[list[WriteJob] | None] = SimpleQueue()
        self._rounds: dict[asyncio.AbstractEventLoop, _Round] = {}  # rounds that are not handed over yet
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], T], wait_s: float, *, must_sync: bool = True) -> "asyncio.Future[T]":
        """The result of `work`, once its group is committed; `StoreError` if that takes longer than `wait_s`."""
        if self._closed:
            raise store_closed_error()
        loop = asyncio.get_running_loop()
        round = self._rounds.get(loop)
        if round is not None and round.wait_s != wait_s:
            self._hand_over(loop)
            round = None
        if round is None:
            round = self._rounds[loop] = _Round(wait_s)
            loop.call_soon(self._hand_over, loop)
        future: asyncio.Future[T] = loop.create_future()
        round.jobs.append(WriteJob(work, loop, future, round, must_sync))
        return future

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        round = self._rounds.pop(loop, None)
        if round is not None:
            round.unfinished = len(round.jobs)
            round.timer = loop.call_later(round.wait_s, _time_out, round)
            self._queue.put(round.jobs)

    async def close(self) -> None:
        """Finish pending work and stop the thread."""
        if not self._closed:
            self._closed = True
            self._hand_over(asyncio.get_running_loop())
            self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        is_open = True
        while is_open:
            jobs: list[WriteJob] = []
            while not jobs or not self._queue.empty():
                next_jobs = self._queue.get()
                if next_jobs is None:
                    is_open = False
                    break
                jobs += next_jobs
            for start in range(0, len(jobs), self._limit):
                self._run_group(jobs[start : start + self._limit])

    def _run_group(self, jobs: list[WriteJob]) -> None:
        group = [job for job in jobs if not job.future.done()]
        try:
            if group:
                self._commit(group)
        except BaseException as error:  # noqa: BLE001 - raised in every caller; the thread continues
            for job in group:
                job.error = own_error(error)
        loops: dict[asyncio.AbstractEventLoop, list[WriteJob]] = {}
        for job in jobs:
            loops.setdefault(job.loop, []).append(job)
        for loop, mine in loops.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(_deliver, mine)


def _deliver(jobs: list[WriteJob]) -> None:
    for job in jobs:
        deliver(job.future, job.value, job.error)
        job.round.unfinished -= 1
        if job.round.unfinished == 0 and job.round.timer is not None:
            job.round.timer.cancel()
            job.round.jobs.clear()  # they refer to the round; without this, they would wait for the garbage collector


def _time_out(round: _Round) -> None:
    for job in round.jobs:
        message = (
            f"The store did not respond within {round.wait_s} s: it is locked by another process, or the disk hangs. "
            "The outcome is unknown; append the same entries again."
        )
        deliver(job.future, None, StoreError(message, retryable=True))
