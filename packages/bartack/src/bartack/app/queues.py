"""The queue of runs that belongs to a store, as the command line and the web server open it."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from bartack.app.errors import with_hint
from bartack.nouns.entries import Entry
from bartack.nouns.errors import ErrorCode, StoreError
from bartack.queues import Limit, RunQueue, StoreQueue, continue_run
from bartack.queues.run_queue import MAX_DEATHS, job_of
from bartack.store import SessionStore
from bartack.store.address import StoreAddress
from bartack.store.requests import load_state

__all__ = ["QUEUE", "continue_queued", "opened_queue", "queue_opener"]

QUEUE = "default"  # the name of the queue if none is given


@asynccontextmanager
async def opened_queue(
    address: StoreAddress,
    store: SessionStore,
    name: str = QUEUE,
    *,
    engine: str = "store",
    limits: Sequence[Limit] = (),
    max_deaths: int = MAX_DEATHS,
) -> AsyncIterator[RunQueue]:
    """The queue of this name in the store at this address.

    Raises `StoreError` if no worker can share the store or the engine does not support it, and `ModuleNotFoundError` if
    an extra is missing.
    """
    queue = queue_opener(address, name, engine=engine, limits=limits, max_deaths=max_deaths)(store)
    try:
        yield queue
    finally:
        await queue.close()


def queue_opener(
    address: StoreAddress,
    name: str = QUEUE,
    *,
    engine: str = "store",
    limits: Sequence[Limit] = (),
    max_deaths: int = MAX_DEATHS,
) -> Callable[[SessionStore], RunQueue]:
    """The same for a store that is opened later, and by a caller that closes the queue. Raises the same, but now."""
    if address.kind == "memory":
        error = StoreError("A store in memory cannot be shared with a worker.", code=ErrorCode.INVALID_CONFIG)
        raise with_hint(error, "Choose another store with --store or BARTACK_STORE.")
    if engine == "store":
        return lambda store: StoreQueue(store, name, limits=limits, max_deaths=max_deaths)
    if address.kind != "postgres":
        text = f"The engine {engine} needs a PostgreSQL store, not {address.display}."
        raise StoreError(text, code=ErrorCode.INVALID_CONFIG)
    from bartack.queues.dbos_queue import DbosQueue  # noqa: PLC0415 - an extra, and slow to import

    return lambda store: DbosQueue(store, address.text, name, limits=limits, max_deaths=max_deaths)


async def continue_queued(address: StoreAddress, store: SessionStore, request: Entry) -> None:
    """Have a worker continue a run that has paused, after a request that lets it continue."""
    _, state = await load_state(store, request.session_id)
    job = job_of(state.metadata)
    if state.run_id is not None and job is not None:
        async with opened_queue(address, store, job.queue, engine=job.engine) as queue:
            await continue_run(store, queue, request)
