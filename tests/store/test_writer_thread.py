"""The thread that commits groups."""

import gc
import weakref
from collections.abc import Sequence

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
