"""The queue of runs that belongs to a store, as the command line and the web server open it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from bartack.nouns.entries import Entry
from bartack.nouns.errors import ErrorCode, StoreError
from bartack.queues import Limit, RunQueue, StoreQueue, continue_run
from bartack.queues.job import job_of
from bartack.store import SessionStore
from bartack.store.address import StoreAddress
from bartack.store.requests import load_state

__all__ = ["QUEUE", "continue_queued", "new_queue", "opened_queue"]

QUEUE = "default"  # the name of the queue if none is given


@asynccontextmanager
async def opened_queue(
    address: StoreAddress,
    store: SessionStore,
    name: str = QUEUE,
    *,
    engine: str = "store",
    limits: Sequence[Limit] = (),
) -> AsyncIterator[RunQueue]:
    """The queue of this name in the store at this address.

    Raises `StoreError` if the engine does not support the store, and `ModuleNotFoundError` if an extra is missing.
    """
    queue = new_queue(address, store, name, engine=engine, limits=limits)
    try:
        yield queue
    finally:
        await queue.close()


def new_queue(
    address: StoreAddress,
    store: SessionStore,
    name: str = QUEUE,
    *,
    engine: str = "store",
    limits: Sequence[Limit] = (),
) -> RunQueue:
    """The same, to be closed by the caller."""
    if engine == "store":
        return StoreQueue(store, name, limits=limits)
    if address.kind != "postgres":
        text = f"The engine {engine} needs a PostgreSQL store, not {address.display}."
        raise StoreError(text, code=ErrorCode.INVALID_CONFIG)
    from bartack.queues.dbos_queue import DbosQueue  # noqa: PLC0415 - an extra, and slow to import

    return DbosQueue(store, address.text, name, limits=limits)


async def continue_queued(address: StoreAddress, store: SessionStore, request: Entry) -> None:
    """Have a worker continue a run that has paused, after a request that lets it continue."""
    _, state = await load_state(store, request.session_id)
    job = job_of(state.metadata)
    if state.run_id is not None and job is not None:
        async with opened_queue(address, store, job.queue, engine=job.engine) as queue:
            await continue_run(store, queue, request)
