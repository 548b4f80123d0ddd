"""What every `RunQueue` promises, on both of them: one worker, in the order of the calls that a worker makes."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bartack.nouns.errors import QueueFull
from bartack.queues import Job, Limit, RunQueue, StoreQueue, WorkerInfo
from bartack.queues.run_queue import PROTOCOL
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
            queue: RunQueue = StoreQueue(self.store, **options)
        else:
            from bartack.queues.dbos_queue import DbosQueue

            queue = DbosQueue(self.store, self._address, **options)
        self._opened.append(queue)
        return queue

    async def close(self) -> None:
        for queue in self._opened:
            await queue.close()
        await self.store.close()

    def job(self, id: str, session: str = "", **fields: Any) -> Job:
        queued_at = self.store.environment.now()
        return Job(id=id, session_id=session or f"s-{id}", **{"agent": "a", "queued_at": queued_at, **fields})

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
        while (job := await queue.claim(worker, 1.0)) is None:
            await queue.heartbeat(worker)
    return job


async def stays_quiet(queue: RunQueue, worker: WorkerInfo, seconds: float) -> None:
    """Check that there is no job for so long."""
    deadline = asyncio.get_running_loop().time() + seconds
    while (left_s := deadline - asyncio.get_running_loop().time()) > 0:
        await queue.heartbeat(worker)
        assert await queue.claim(worker, min(left_s, 1.0)) is None


async def test_a_queue_keeps_its_promises(place: Place) -> None:
    everyone, queue, own = place.queue(), place.queue(), place.worker()
    later = place.store.environment.now() + timedelta(hours=1)
    low, high, scheduled = place.job("low"), place.job("high", priority=5), place.job("later", not_before=later)
    for job in (low, high, high, scheduled, place.job("other", agent="b", priority=-1)):
        await everyone.enqueue(job)
    await everyone.enqueue(place.job("newer", protocol=PROTOCOL + 1, priority=9))
    status = await everyone.status()
    assert (status.scheduled, status.running, status.workers) == (1, (), ())

    # By priority, and once.
    await queue.heartbeat(own)
    assert [member.id for member in (await everyone.status()).workers] == [own.id]
    assert await claimed(queue, own) == high
    assert [(running.job, running.worker) for running in (await everyone.status()).running] == [(high, own.id)]
    await queue.complete(own, high, "completed")
    await everyone.enqueue(high)
    assert await claimed(queue, own) == low

    # A job that must be repeated does not wait behind those that have not begun.
    urgent = place.job("urgent", priority=9)
    await everyone.enqueue(urgent)
    await queue.complete(own, low, "again")
    jobs = {job.id: job for job in [await claimed(queue, own) for _ in range(2)]}
    repeated = jobs["low"]
    assert (repeated.has_begun, jobs["urgent"]) == (True, urgent)

    # Cancelling returns what it removes. A claimed job is not repeated.
    assert [job.id for job in await everyone.cancel("s-low")] == ["low"]
    await queue.complete(own, repeated, "again")
    assert await everyone.cancel("s-later") == (scheduled,)
    assert await everyone.cancel("s-later") == ()
    await queue.complete(own, urgent, "failed")
    assert await queue.claim(own, QUIET_S) is None  # the others are for another agent, and for a newer version

    await until_ended(everyone, 2)
    status = await everyone.status()
    assert {running.job.id for running in status.running} <= {"other"}  # DBOS takes it, and puts it back
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


async def test_users_take_turns(place: Place) -> None:
    queue, own = place.queue(), place.worker()
    for number in range(12):
        await queue.enqueue(place.job(f"a{number}", user="a"))
    for job in (place.job("b0", user="b"), place.job("b1", user="b"), place.job("urgent", user="a", priority=1)):
        await queue.enqueue(job)
    await queue.heartbeat(own)
    order = []
    for _ in range(8):
        job = await claimed(queue, own)
        order.append(job.id)
        await queue.complete(own, job, "completed")
    assert order[0] == "urgent"
    assert order.index("b0") <= 3  # after "urgent", and with DBOS after one more job of the other user than here
    assert order.index("b1") <= order.index("b0") + 2
    assert [name for name in order if name.startswith("a")] == [f"a{number}" for number in range(5)]


async def test_no_interval_has_more_starts_than_the_limit_whatever_comes_between_a_claim_and_its_start(
    place: Place,
) -> None:
    limit = Limit(by="user", starts=1, per_s=2.0)
    queue, own = place.queue(limits=[limit]), replace(place.worker(), slots=4)
    for name in ("1", "2", "3"):
        await queue.enqueue(place.job(name, user="u"))
    await queue.heartbeat(own)
    previous = await claimed(queue, own)
    for _ in range(2):
        await stays_quiet(queue, own, limit.per_s + QUIET_S)  # the run may start at any moment
        started_at = asyncio.get_running_loop().time()
        await queue.start(own, previous)
        job = await claimed(queue, own)
        assert asyncio.get_running_loop().time() - started_at >= limit.per_s
        await queue.complete(own, previous, "completed")
        previous = job
    await queue.complete(own, previous, "completed")
