"""The thread that commits groups."""

import asyncio
import gc
import weakref
from collections.abc import Sequence

from bartack.nouns.errors import StoreError
from bartack.store.writer_thread import WriteJob, WriterThread


class Work:
    """Work that can be referred to weakly."""

    def __call__(self) -> int:
        return 7


def run_all(jobs: Sequence[WriteJob]) -> None:
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
    def fail(jobs: Sequence[WriteJob]) -> None:
        raise StoreError("The disk is full.", retryable=True) from OSError("ENOSPC")

    thread = WriterThread(fail, name="test")
    first, second = await asyncio.gather(thread.submit(Work(), 10), thread.submit(Work(), 10), return_exceptions=True)
    await thread.close()
    assert isinstance(first, StoreError)
    assert isinstance(second, StoreError)
    assert first is not second
    assert first.__cause__ is second.__cause__
    assert (first.message, first.code, first.retryable) == (second.message, second.code, True)
