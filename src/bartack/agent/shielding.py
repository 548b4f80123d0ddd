"""Work that is carried to its end although the task that waits for it is being cancelled."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from bartack.nouns.errors import StoreError

__all__ = ["CLEANUP_S", "begun", "carried_out"]

CLEANUP_S = 10.0  # for writing down how a run ended; a store that takes longer has failed
T = TypeVar("T")


def begun(work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """The work as a task. If nobody waits for it any more, its failure is not reported as lost."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(_look)
    return task


def _look(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled():
        task.exception()


async def carried_out(task: "asyncio.Task[T]") -> T:
    """What the task comes to, or raises. Cancelling does not stop this, and is not lost either: the current task still
    counts it (`Task.cancelling`). `StoreError` where it takes too long."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + CLEANUP_S
    while not task.done() and clock() < deadline:
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task}, timeout=deadline - clock())
    if not task.done():
        task.cancel()
        raise StoreError(f"the store did not answer within {CLEANUP_S} s")
    return task.result()
