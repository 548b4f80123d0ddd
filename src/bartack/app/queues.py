"""The queue of runs that belongs to a store, as the command line and the web server open it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from bartack.nouns.entries import Entry
from bartack.queues import Limit, RunQueue, StoreQueue, continue_run
from bartack.store import SessionStore
from bartack.store.address import StoreAddress

__all__ = ["QUEUE", "continue_queued", "opened_queue"]

QUEUE = "default"  # the name of the queue if none is given


@asynccontextmanager
async def opened_queue(
    address: StoreAddress, store: SessionStore, name: str = QUEUE, *, limits: Sequence[Limit] = ()
) -> AsyncIterator[RunQueue]:
    """The queue of this name in the store at this address."""
    del address
    queue = StoreQueue(store, name, limits=limits)
    try:
        yield queue
    finally:
        await queue.close()


async def continue_queued(address: StoreAddress, store: SessionStore, request: Entry) -> None:
    """Have a worker continue a run that has paused, after a request that lets it continue."""
    async with opened_queue(address, store) as queue:
        await continue_run(store, queue, request)
