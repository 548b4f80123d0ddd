"""Two real worker processes with different versions of the step protocol, side by side."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bartack import user
from bartack.app.queues import opened_queue
from bartack.nouns.entries import RunEnded, RunStarted
from bartack.queues import RunQueue, submit
from bartack.queues.run_queue import PROTOCOL, WORKER_KEY
from bartack.queues.submit import continuation_of
from bartack.store import SessionStore, open_store
from bartack.store.address import StoreAddress
from tests.agent.kit import within
from tests.store import postgres_server

Process = asyncio.subprocess.Process


@asynccontextmanager
async def worker(module: str, address: str, engine: str) -> AsyncIterator[Process]:
    words = ("worker", "--agents", "tests.workers.plain_agent:agents", "--store", address, "--engine", engine)
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", module, *words, stdout=-3, stderr=-3)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):  # the test has stopped it
            process.terminate()
        await process.wait()


async def enqueue(store: SessionStore, queue: RunQueue, session: str, protocol: int) -> None:
    """Enqueue a job as a program with this version of the protocol does."""
    job = await submit(store, _Silent(queue), user("Hi"), session_id=session, agent="a")
    await queue.enqueue(replace(continuation_of(job, job.id, job.queued_at), protocol=protocol))


class _Silent:
    """The queue of a program whose jobs are enqueued separately."""

    def __init__(self, queue: RunQueue) -> None:
        self._queue = queue

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    async def enqueue(self, job: Any) -> None:
        pass


async def worked_on(store: SessionStore, session: str) -> int:
    """The process that completes the run of the session."""
    pid = 0
    async for entry in store.follow(session):
        if isinstance(entry.fact, RunStarted) and entry.fact.metadata is not None:
            pid = entry.fact.metadata[WORKER_KEY]["pid"]
        if isinstance(entry.fact, RunEnded):
            break
    return pid


@pytest.mark.parametrize("engine", ["store", "dbos"])
async def test_a_worker_leaves_newer_jobs_to_newer_workers_which_take_older_ones_too(
    engine: str, tmp_path: Path
) -> None:
    address = f"sqlite:{tmp_path / 'store'}" if engine == "store" else postgres_server.address(str(tmp_path))
    store = await open_store(address)
    async with opened_queue(StoreAddress.parse(address), store, engine=engine) as queue:
        await enqueue(store, queue, "newer", PROTOCOL + 1)
        await enqueue(store, queue, "older", PROTOCOL)
        async with worker("bartack.cli", address, engine) as older:
            assert await within(worked_on(store, "older")) == older.pid
            await enqueue(store, queue, "older still", PROTOCOL)
            assert await within(worked_on(store, "older still")) == older.pid
            assert RunStarted not in {type(entry.fact) for entry in await store.load("newer")}
            async with worker("tests.workers.next_version", address, engine) as newer:
                assert await within(worked_on(store, "newer")) == newer.pid
                older.terminate()
                await older.wait()
                await enqueue(store, queue, "last", PROTOCOL)
                assert await within(worked_on(store, "last")) == newer.pid
    await store.close()
