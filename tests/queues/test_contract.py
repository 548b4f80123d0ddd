"""What every `RunQueue` promises, on both of them: one worker, in the order of the calls that a worker makes."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bartack.nouns.errors import QueueFull
from bartack.queues import Job, RunQueue, StoreQueue, WorkerInfo
from bartack.queues.job import PROTOCOL
from bartack.store import MemoryStore, SessionStore, open_store
from tests.store import postgres_server

QUIET_S = 1.5  # for what must not come: DBOS looks for work twice a second


class Place:
    """A store, and the queues on it."""

    def __init__(self, engine: str, store: SessionStore, address: str) -> None:
        self.engine, self.store, self._address = engine, store, address
        self._opened: list[RunQueue] = []

    def queue(self, **options: Any) -> RunQueue:
        if self.engine == "store":
            made: RunQueue = StoreQueue(self.store, **options)
        else:
            from bartack.queues.dbos_queue import DbosQueue

            made = DbosQueue(self.store, self._address, **options)
        self._opened.append(made)
        return made

    async def close(self) -> None:
        for queue in self._opened:
            await queue.close()
        await self.store.close()

    def job(self, id: str, session: str = "", **more: Any) -> Job:
        now = self.store.environment.now()
        return Job(id=id, session_id=session or f"s-{id}", **{"agent": "a", "queued_at": now, **more})

    def worker(self) -> WorkerInfo:
        environment = self.store.environment
        return WorkerInfo(
            id=environment.new_id(), host="h", pid=1, started_at=environment.now(), agents=("a",), slots=1
        )


@pytest.fixture(params=["store", "dbos"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    if request.param == "store":
        opened = Place("store", MemoryStore(), "memory:")
    else:
        pytest.importorskip("dbos")
        address = postgres_server.address(str(tmp_path))
        opened = Place("dbos", await open_store(address), address)
    yield opened
    await opened.close()


async def claimed(queue: RunQueue, worker: WorkerInfo) -> Job:
    """The next job. A claim may return without one before its time is over."""
    async with asyncio.timeout(90):
        while (found := await queue.claim(worker, 1.0)) is None:
            await queue.heartbeat(worker)
    return found


async def test_a_queue_keeps_its_promises(place: Place) -> None:
    everyone, queue, own = place.queue(), place.queue(), place.worker()
    later = place.store.environment.now() + timedelta(hours=1)
    low, high, scheduled = place.job("low"), place.job("high", priority=5), place.job("later", not_before=later)
    for one in (low, high, high, scheduled, place.job("other", agent="b", priority=-1)):
        await everyone.enqueue(one)
    await everyone.enqueue(place.job("newer", protocol=PROTOCOL + 1, priority=9))
    status = await everyone.status()
    assert (status.scheduled, status.running, status.workers) == (1, (), ())

    # By priority, and once.
    await queue.heartbeat(own)
    assert [one.id for one in (await everyone.status()).workers] == [own.id]
    assert await claimed(queue, own) == high
    assert [(one.job, one.worker) for one in (await everyone.status()).running] == [(high, own.id)]
    await queue.complete(own, high, "completed")
    await everyone.enqueue(high)
    assert await claimed(queue, own) == low

    # A job that must be repeated does not wait behind those that have not begun.
    urgent = place.job("urgent", priority=9)
    await everyone.enqueue(urgent)
    await queue.complete(own, low, "again")
    found = {one.id: one for one in [await claimed(queue, own) for _ in range(2)]}
    begun = found["low"]
    assert (begun.has_begun, found["urgent"]) == (True, urgent)

    # Cancelling returns what it removes. A claimed job is not repeated.
    assert [one.id for one in await everyone.cancel("s-low")] == ["low"]
    await queue.complete(own, begun, "again")
    assert await everyone.cancel("s-later") == (scheduled,)
    assert await everyone.cancel("s-later") == ()
    await queue.complete(own, urgent, "failed")
    assert await queue.claim(own, QUIET_S) is None  # the others are for another agent, and for a newer version

    await until_ended(everyone, 2)
    status = await everyone.status()
    assert {one.job.id for one in status.running} <= {"other"}  # DBOS takes it, and puts it back
    assert status.stuck == ()
    assert {outcome: status.outcomes[outcome] for outcome in ("completed", "failed")} == {"completed": 1, "failed": 1}
    await queue.leave(own)
    assert (await everyone.status()).workers == ()


async def until_ended(queue: RunQueue, count: int) -> None:
    """Wait until the outcomes of this many jobs are recorded, which DBOS does in the background."""
    async with asyncio.timeout(90):
        while sum((await queue.status()).outcomes.values()) < count:  # noqa: ASYNC110 - it changes in the store
            await asyncio.sleep(0.05)


async def test_a_full_queue_refuses_with_numbers(place: Place) -> None:
    queue = place.queue(max_waiting=3, max_waiting_per_user=2)
    for name in ("1", "2"):
        await queue.check_room("u")
        await queue.enqueue(place.job(name, user="u"))
    with pytest.raises(QueueFull) as caught:
        await queue.check_room("u")
    assert (caught.value.queued, caught.value.limit, caught.value.user) == (2, 2, "u")
    await queue.check_room("v")
    await queue.enqueue(place.job("3", user="v"))
    with pytest.raises(QueueFull, match="3 runs are waiting, and the limit is 3") as caught:
        await queue.check_room("w")
    assert (caught.value.queued, caught.value.limit, caught.value.user) == (3, 3, None)
