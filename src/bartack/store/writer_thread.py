"""`GroupWriter`: one thread that does whatever is waiting, in groups, and tells each caller its own outcome.

A commit costs a wait for the disk, whether it holds one entry or a thousand. While one group is on its way to the
disk the next one gathers. A caller that stops waiting before its turn came has asked for nothing.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, TypeVar, cast

from bartack.nouns.errors import StoreError
from bartack.store.append import invalid

__all__ = ["GroupWriter", "Job"]

T = TypeVar("T")


class Job:
    """One caller's wish, and once it is done, its outcome."""

    __slots__ = ("error", "future", "is_read", "loop", "value", "work")

    def __init__(self, work: Callable[[], Any], *, is_read: bool = False) -> None:
        self.work = work
        self.is_read = is_read
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.value: Any = None
        self.error: BaseException | None = None

    def run(self, everybodys: type[Exception]) -> None:
        """Do the work. What it raises is this job's own outcome; only a failure of the disk is everybody's."""
        self.error = None  # of an earlier try
        try:
            self.value = self.work()
        except everybodys:
            raise
        except UnicodeEncodeError as error:  # an id with half a surrogate pair
            self.error = invalid(f"not text: {error}", error)
        except Exception as error:  # noqa: BLE001 - it reaches the caller whose work it is
            self.error = error

    def deliver(self) -> None:
        if self.future.done():  # its caller is gone
            return
        if self.error is None:
            self.future.set_result(self.value)
        else:
            self.future.set_exception(self.error)


class GroupWriter:
    """The thread. `commit` gets each group and leaves an outcome in every job; what it raises is everybody's."""

    def __init__(self, commit: Callable[[Sequence[Job]], None], *, name: str, limit: int = 1024) -> None:
        self._commit = commit
        self._limit = limit
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def submit(self, work: Callable[[], T], wait_s: float, *, is_read: bool = False) -> T:
        """What `work` gives, once its group is committed; `StoreError` if that takes longer than `wait_s`."""
        if self._closed:
            raise StoreError("the store is closed")
        job = Job(work, is_read=is_read)
        self._queue.put(job)
        handle = job.loop.call_later(wait_s, _give_up, job, wait_s)
        try:
            return cast(T, await job.future)
        finally:
            handle.cancel()

    async def close(self) -> None:
        """Finish what was asked for; then the thread is gone."""
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
                self._do(group)

    def _do(self, group: list[Job]) -> None:
        try:
            self._commit(group)
        except BaseException as error:  # noqa: BLE001 - every caller hears of it; the thread goes on
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
        job.deliver()


def _give_up(job: Job, wait_s: float) -> None:
    if not job.future.done():
        job.future.set_exception(
            StoreError(
                f"the store did not answer within {wait_s} s: another program holds it, or the disk hangs; "
                "the outcome is unknown until the same entries are appended again",
                retryable=True,
            )
        )
