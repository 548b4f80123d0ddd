"""`WriterThread`: group commit. One thread runs all pending work in groups and reports to each caller its own outcome.

A commit waits for the disk once, whether it contains one entry or a thousand. While one group is being committed the
next one gathers. Work whose caller was cancelled before its group started is not run.

Work is handed to the thread once per round of the event loop: the callers that one commit wakes up come back together,
and waking the thread for each of them would cost more than the work itself.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, TypeVar

from bartack.nouns.errors import StoreError
from bartack.store.errors import closed, invalid

__all__ = ["Job", "WriterThread", "deliver", "own_error"]

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class _Round:
    """The work that one round of an event loop hands over."""

    wait_s: float
    jobs: list["Job"] = field(default_factory=list)
    left: int = 0  # without an outcome
    timer: asyncio.TimerHandle | None = None


@dataclass(eq=False, slots=True)
class Job:
    """The work of one caller and, once it has run, its outcome."""

    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[Any]"
    round: "_Round"
    value: Any = None
    error: BaseException | None = None

    def run(self, group_error: type[Exception]) -> None:
        """Do the work. An exception is the outcome of this job, unless it is one that fails the whole group."""
        self.error = None  # of an earlier attempt
        try:
            self.value = self.work()
        except group_error:
            raise
        except UnicodeEncodeError as error:  # an id with an unpaired surrogate
            self.error = invalid(f"Invalid text: {error}", error)
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

    def __init__(self, commit: Callable[[Sequence[Job]], None], *, name: str, limit: int = 1024) -> None:
        self._commit = commit
        self._limit = limit
        self._queue: SimpleQueue[list[Job] | None] = SimpleQueue()
        self._rounds: dict[asyncio.AbstractEventLoop, _Round] = {}  # those that are not handed over yet
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], T], wait_s: float) -> "asyncio.Future[T]":
        """The result of `work`, once its group is committed; `StoreError` if that takes longer than `wait_s`."""
        if self._closed:
            raise closed()
        loop = asyncio.get_running_loop()
        round = self._rounds.get(loop)
        if round is None:
            round = self._rounds[loop] = _Round(wait_s)
            loop.call_soon(self._hand_over, loop)
        future: asyncio.Future[T] = loop.create_future()
        round.jobs.append(Job(work, loop, future, round))
        return future

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        round = self._rounds.pop(loop, None)
        if round is not None:
            round.left = len(round.jobs)
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
            jobs: list[Job] = []
            while not jobs or not self._queue.empty():
                more = self._queue.get()
                if more is None:
                    is_open = False
                    break
                jobs += more
            for start in range(0, len(jobs), self._limit):
                self._run_group(jobs[start : start + self._limit])

    def _run_group(self, jobs: list[Job]) -> None:
        group = [job for job in jobs if not job.future.done()]
        try:
            if group:
                self._commit(group)
        except BaseException as error:  # noqa: BLE001 - raised in every caller; the thread continues
            for job in group:
                job.error = own_error(error)
        loops: dict[asyncio.AbstractEventLoop, list[Job]] = {}
        for job in jobs:
            loops.setdefault(job.loop, []).append(job)
        for loop, mine in loops.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(_deliver, mine)


def _deliver(jobs: list[Job]) -> None:
    for job in jobs:
        deliver(job.future, job.value, job.error)
        job.round.left -= 1
        if job.round.left == 0 and job.round.timer is not None:
            job.round.timer.cancel()
            job.round.jobs.clear()  # they refer to the round; without this, they would wait for the garbage collector


def _time_out(round: _Round) -> None:
    for job in round.jobs:
        message = (
            f"The store did not respond within {round.wait_s} s: it is locked by another process, or the disk hangs. "
            "The outcome is unknown; append the same entries again."
        )
        deliver(job.future, None, StoreError(message, retryable=True))
