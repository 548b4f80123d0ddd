"""`WriterThread`: group commit. One thread runs all pending work in groups and reports to each caller its own outcome.

A commit waits for the disk once, whether it contains one entry or a thousand. While one group is being committed the
next one gathers. Work whose caller was cancelled before its group started is not run.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar, cast

from bartack.nouns.errors import StoreError
from bartack.store.errors import closed, invalid

__all__ = ["Job", "WriterThread", "deliver"]

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class Job:
    """The work of one caller and, once it has run, its outcome."""

    work: Callable[[], Any]
    is_read: bool
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[Any]"
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


class WriterThread:
    """The thread. `commit` runs a group and leaves an outcome in every job; an exception fails all of them."""

    def __init__(self, commit: Callable[[Sequence[Job]], None], *, name: str, limit: int = 1024) -> None:
        self._commit = commit
        self._limit = limit
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def submit(self, work: Callable[[], T], wait_s: float, *, is_read: bool = False) -> T:
        """The result of `work`, once its group is committed; `StoreError` if that takes longer than `wait_s`."""
        if self._closed:
            raise closed()
        loop = asyncio.get_running_loop()
        job = Job(work, is_read, loop, loop.create_future())
        self._queue.put(job)
        handle = loop.call_later(wait_s, _time_out, job, wait_s)
        try:
            return cast(T, await job.future)
        finally:
            handle.cancel()

    async def close(self) -> None:
        """Finish pending work and stop the thread."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        is_open = True
        while is_open:
            jobs = [self._queue.get()]
            while len(jobs) < self._limit and not self._queue.empty():
                jobs.append(self._queue.get())
            is_open = None not in jobs
            group = [job for job in jobs if job is not None and not job.future.done()]
            if group:
                self._run_group(group)

    def _run_group(self, group: list[Job]) -> None:
        try:
            self._commit(group)
        except BaseException as error:  # noqa: BLE001 - raised in every caller; the thread continues
            for job in group:
                job.error = error
        loops: dict[asyncio.AbstractEventLoop, list[Job]] = {}
        for job in group:
            loops.setdefault(job.loop, []).append(job)
        for loop, jobs in loops.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(_deliver, jobs)


def _deliver(jobs: list[Job]) -> None:
    for job in jobs:
        deliver(job.future, job.value, job.error)


def _time_out(job: Job, wait_s: float) -> None:
    message = (
        f"The store did not respond within {wait_s} s: it is locked by another process, or the disk hangs. "
        "The outcome is unknown; append the same entries again."
    )
    deliver(job.future, None, StoreError(message, retryable=True))
