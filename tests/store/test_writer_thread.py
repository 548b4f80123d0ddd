"""The thread that commits groups."""

import asyncio
import gc
import weakref
from collections.abc import Sequence

from bartack.nouns.errors import StoreError
from bartack.store.writer_thread import Job, WriterThread


class Work:
    """Work that can be referred to weakly."""

    def __call__(self) -> int:
        return 7


def run_all(jobs: Sequence[Job]) -> None:
    for job in jobs:
        job.run(OSError)


async def test_finished_work_is_freed_without_the_garbage_collector() -> None:
    thread = WriterThread(run_all, name="test")
    work = Work()
    freed = weakref.ref(work)
    gc.disable()
    try:
        assert await thread.submit(work, 10) == 7
        del work
        await thread.close()
        assert freed() is None
    finally:
        gc.enable()


async def test_each_caller_of_a_failed_group_gets_its_own_error() -> None:
    def fail(jobs: Sequence[Job]) -> None:
        raise StoreError("The disk is full.", retryable=True) from OSError("ENOSPC")

    thread = WriterThread(fail, name="test")
    one, two = await asyncio.gather(thread.submit(Work(), 10), thread.submit(Work(), 10), return_exceptions=True)
    await thread.close()
    assert isinstance(one, StoreError)
    assert isinstance(two, StoreError)
    assert one is not two
    assert one.__cause__ is two.__cause__
    assert (one.message, one.code, one.retryable) == (two.message, two.code, True)
