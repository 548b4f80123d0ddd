"""`StoreQueue` on every store: claims, signs of life, rotation, and what happens when others append first."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bartack import ToolCall, assistant
from bartack.nouns.entries import Entry
from bartack.nouns.errors import Conflict, ErrorCode, LeaseLost, StoreError
from bartack.queues import Job, Limit, StoreQueue, WorkerInfo, store_queue
from bartack.queues.run_queue import PROTOCOL
from bartack.store import MemoryStore, SessionStore
from bartack.store.maintenance import check_all
from bartack.store.session_store import RESERVED, Lease, Tail, all_sessions, next_entries
from tests.queues.kit import Clock, job, worker
from tests.store.stores import KINDS, opener

W, V = worker("w"), worker("v")


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SessionStore]:
    opened = await opener(request.param, tmp_path)()
    yield opened
    await opened.close()


async def test_a_job_is_claimed_by_one_worker_and_completed(store: SessionStore) -> None:
    first, second = StoreQueue(store), StoreQueue(store)
    await first.heartbeat(W)
    await second.heartbeat(V)
    await first.enqueue(job("1"))
    await second.enqueue(job("1"))
    claims = await asyncio.gather(first.claim(W, 0), second.claim(V, 0))
    assert sorted(claim.id for claim in claims if claim is not None) == ["1"]
    winner, own = (first, W) if claims[0] is not None else (second, V)
    assert [(running.job.id, running.worker) for running in (await second.status()).running] == [("1", own.id)]
    await winner.complete(own, job("1"), "completed")
    status = await StoreQueue(store).status()
    assert (status.waiting, status.running, status.outcomes) == (0, (), {"completed": 1})
    assert {member.id for member in status.workers} == {"w", "v"}
    await first.leave(W)
    assert [member.id for member in (await second.status()).workers] == ["v"]


async def test_a_waiting_claim_gets_a_job_that_another_process_enqueues(store: SessionStore) -> None:
    queue = StoreQueue(store)
    await queue.heartbeat(W)
    waiting = asyncio.create_task(queue.claim(W, 60))
    await asyncio.sleep(0)
    await StoreQueue(store).enqueue(job("1"))
    async with asyncio.timeout(30):
        claimed = await waiting
    assert claimed == job("1")


async def test_nothing_of_a_queue_is_listed_found_or_counted(store: SessionStore) -> None:
    queue = StoreQueue(store)
    await queue.heartbeat(W)
    await queue.enqueue(job("1", user="Ada"))
    assert (await store.sessions()).items == ()
    assert await store.search("Ada") == ()
    assert (await store.totals()).models == ()


async def test_the_status_of_a_store_without_a_queue_creates_none() -> None:
    store = MemoryStore()
    assert (await StoreQueue(store).status()).waiting == 0
    queue = StoreQueue(store)
    await queue.enqueue(job("1"))
    assert (await StoreQueue(store).status()).waiting == 1
    assert (await StoreQueue(store, "other").status()).waiting == 0


async def test_the_jobs_of_a_worker_that_shows_no_sign_of_life_are_given_to_another() -> None:
    clock = Clock()
    store = MemoryStore(environment=clock.environment)
    first, second = StoreQueue(store, ttl_s=6), StoreQueue(store, ttl_s=6)
    await first.heartbeat(W)
    await second.heartbeat(V)
    await first.enqueue(job("1"))
    assert await first.claim(W, 0) == job("1")
    clock.advance(5)
    await second.heartbeat(V)
    await second.reap(V)
    assert await second.claim(V, 0) is None
    clock.advance(2)
    await second.heartbeat(V)
    await second.reap(V)
    again = await second.claim(V, 0)
    assert again is not None
    assert (again.id, again.attempt) == ("1", 2)
    with pytest.raises(LeaseLost):
        await first.heartbeat(W)
    await first.complete(W, job("1"), "completed")  # too late: it belongs to the other one
    assert [running.worker for running in (await first.status()).running] == ["v"]
    renamed = worker("w2")
    await first.heartbeat(renamed)
    assert await first.claim(renamed, 0) is None


async def test_a_worker_that_was_without_the_store_lets_others_show_a_sign_of_life_before_it_judges_them() -> None:
    clock = Clock()
    store = MemoryStore(environment=clock.environment)
    first, second = StoreQueue(store, ttl_s=6), StoreQueue(store, ttl_s=6)
    await first.heartbeat(W)
    await second.heartbeat(V)
    assert second._last_beat is not None
    second._last_beat -= 7
    clock.advance(7)  # the store was away for all of them
    await second.heartbeat(V)
    await second.reap(V)
    await first.heartbeat(W)
    assert {member.id for member in (await second.status()).workers} == {"v", "w"}
    clock.advance(7)
    await second.heartbeat(V)
    second._reap_after = 0.0
    await second.reap(V)
    assert {member.id for member in (await second.status()).workers} == {"v"}


async def test_cancelling_removes_the_jobs_of_a_session() -> None:
    queue = StoreQueue(MemoryStore())
    await queue.heartbeat(W)
    for queued in (job("1", "s"), job("2", "s"), job("3")):
        await queue.enqueue(queued)
    assert await queue.claim(W, 0) == job("1", "s")
    assert await queue.cancel("s") == (job("2", "s"), job("1", "s"))
    assert await queue.cancel("unknown") == ()
    assert await queue.claim(W, 0) == job("3")


async def test_limits_are_shared_by_all_workers() -> None:
    store, limits = MemoryStore(), [Limit(by="user", running=1)]
    first, second = StoreQueue(store, limits=limits), StoreQueue(store, limits=limits)
    await first.heartbeat(W)
    await second.heartbeat(V)
    for number in range(2):
        await first.enqueue(job(str(number), user="u"))
    assert await first.claim(W, 0) == job("0", user="u")
    assert await second.claim(V, 0) is None
    await first.complete(W, job("0"), "completed")
    assert await second.claim(V, 0) == job("1", user="u")


async def test_a_log_that_has_grown_continues_in_a_new_session(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_queue, "_ROTATE_AFTER", 6)
    first, second = StoreQueue(store), StoreQueue(store)
    await second.enqueue(job("waits", after_s=99))
    await first.heartbeat(W)
    done = []
    for number in range(12):
        await first.enqueue(job(str(number), after_s=number))
        claimed = await first.claim(W, 0)
        assert claimed is not None
        done.append(claimed.id)
        await first.complete(W, claimed, "completed")
    assert done == [str(number) for number in range(12)]
    await second.enqueue(job("late", after_s=100))
    status = await StoreQueue(store).status()
    assert (status.waiting, status.outcomes) == (2, {"completed": 12})
    assert (await second.status()).outcomes == {"completed": 12}
    assert first._tail.seq < 20


async def test_a_log_with_newer_jobs_is_not_rewritten_by_an_older_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_queue, "_ROTATE_AFTER", 3)
    store = MemoryStore()
    queue = StoreQueue(store)
    await queue.enqueue(job("newer", protocol=PROTOCOL + 1))
    for number in range(9):
        await queue.enqueue(job(str(number)))
        await queue.cancel(f"s-{number}")
    logs = [info.id async for info in all_sessions(store, reserved=True)]
    assert len(logs) == 2  # the pointer, and one log with all events


async def test_a_claim_with_an_unknown_outcome_is_handed_out_once() -> None:
    queue = StoreQueue(MemoryStore())
    await queue.heartbeat(W)
    await queue.enqueue(job("1"))
    assert await queue.claim(W, 0) == job("1")
    queue._handed_out.clear()  # as if the store had failed after it stored the claim
    assert await queue.claim(W, 0) == job("1")
    assert await queue.claim(W, 0) is None


class TruncatedStore(MemoryStore):
    """A store that has lost the end of the logs which it refuses."""

    is_truncated = False

    async def append(
        self, session_id: str, entries: Sequence[Entry], expected_tail: str | None, *, lease: Lease | None = None
    ) -> Tail:
        if self.is_truncated:
            raise Conflict("The tail is another one.", tail="an older one")
        return await super().append(session_id, entries, expected_tail, lease=lease)


async def test_a_log_that_has_lost_its_end_is_an_error_and_not_an_endless_loop() -> None:
    store = TruncatedStore()
    queue = StoreQueue(store)
    await queue.enqueue(job("1"))
    store.is_truncated = True
    async with asyncio.timeout(30):
        with pytest.raises(StoreError, match="ends before entry 2") as caught:
            await queue.enqueue(job("2"))
    assert caught.value.code is ErrorCode.STORAGE_CORRUPT


async def test_a_log_that_is_gone_is_an_error_and_not_an_endless_loop(store: SessionStore) -> None:
    await StoreQueue(store).enqueue(job("1"))
    (log,) = [info.id async for info in all_sessions(store, reserved=True) if info.id.count(":") > 2]
    await store.drop_session(log)
    async with asyncio.timeout(60):
        with pytest.raises(StoreError, match="is missing") as caught:
            await StoreQueue(store).status()
    assert caught.value.code is ErrorCode.STORAGE_CORRUPT


# -- the law of a queue

Step = tuple[str, int]
steps = st.lists(
    st.tuples(st.sampled_from(["enqueue", "claim", "complete", "again", "die", "beat"]), st.integers(0, 5))
)


@given(steps)
@settings(deadline=None, max_examples=60)
def test_whatever_the_order_no_session_has_two_workers_and_every_job_ends(order: list[Step]) -> None:
    asyncio.run(_in_order(order))


async def _in_order(order: list[Step]) -> None:
    clock = Clock()
    store = MemoryStore(environment=clock.environment)
    queues = [StoreQueue(store, ttl_s=6) for _ in range(3)]
    workers = [worker(f"w{number}") for number in range(3)]
    claims: dict[str, tuple[WorkerInfo, Job]] = {}  # session -> its worker and job
    enqueued = 0
    for queue, owner in zip(queues, workers, strict=True):
        await queue.heartbeat(owner)
    for step, number in order:
        index = number % 3
        own = [pair for pair in claims.values() if pair[0] is workers[index]]
        clock.advance(0.1)
        match step:
            case "enqueue":
                await queues[index].enqueue(job(str(enqueued), f"s{number}", after_s=enqueued))
                enqueued += 1
            case "claim":
                claimed = await queues[index].claim(workers[index], 0)
                if claimed is not None:
                    assert claimed.session_id not in claims
                    claims[claimed.session_id] = (workers[index], claimed)
            case "complete" | "again" if own:
                del claims[own[0][1].session_id]
                await queues[index].complete(workers[index], own[0][1], "completed" if step == "complete" else "again")
            case "die":
                claims = {session: pair for session, pair in claims.items() if pair[0] is not workers[index]}
                queues[index], workers[index] = StoreQueue(store, ttl_s=6), worker(f"{workers[index].id}+")
                clock.advance(7)
                for queue, owner in zip(queues, workers, strict=True):
                    if owner is not workers[index]:
                        await store_alive(queue, owner)
                for queue, owner in zip(queues, workers, strict=True):
                    await queue.heartbeat(owner)
                    await queue.reap(owner)
            case "beat":
                await queues[index].heartbeat(workers[index])
                await queues[index].reap(workers[index])
            case _:
                pass
    for owner, claimed in claims.values():
        await queues[workers.index(owner)].complete(owner, claimed, "completed")
    while (claimed := await queues[0].claim(workers[0], 0)) is not None:
        await queues[0].complete(workers[0], claimed, "completed")
    status = await queues[1].status()
    assert (status.waiting, len(status.stuck), status.outcomes.get("completed", 0)) == (0, 0, enqueued)


async def store_alive(queue: StoreQueue, info: WorkerInfo) -> None:
    """Renew the sign of life before others look: the clock of the test has jumped."""
    queue._leases[info.id] = await queue._store.renew_lease(queue._leases[info.id], 6)


async def test_the_check_of_a_store_includes_its_queues(store: SessionStore) -> None:
    queue = StoreQueue(store)
    await queue.heartbeat(W)
    await queue.enqueue(job("1"))
    checked = await check_all(store)
    assert (checked.sessions, checked.findings) == (3, ())  # the pointer, the log, and the sign of life


async def test_damage_in_the_records_of_a_queue_is_found_and_not_repaired() -> None:
    store = MemoryStore()
    header = await store.create_session(f"{RESERVED}queue:default:1:x")
    facts = [assistant(ToolCall("c1", "lost", {}))]
    entries = next_entries(header.session_id, Tail(header.id, 1), facts, store.environment)
    await store.append(header.session_id, entries, header.id)
    checked = await check_all(store, do_repair=True)
    assert [(finding.session_id, finding.fault) for finding in checked.findings] == [
        (header.session_id, "dangling_call")
    ]
    assert checked.repaired == ()


async def test_a_limit_per_day_counts_the_starts_of_a_day() -> None:
    clock = Clock()
    store = MemoryStore(environment=clock.environment)
    queue = StoreQueue(store, limits=[Limit(by="user", starts=2, per_s=86_400)])
    await queue.heartbeat(worker("w"))
    for number in range(3):
        await queue.enqueue(job(str(number), user="u"))
    for _ in range(2):
        claimed = await queue.claim(worker("w"), 0)
        assert claimed is not None
        await queue.complete(worker("w"), claimed, "completed")
        clock.advance(2 * 60 * 60)
    assert await queue.claim(worker("w"), 0) is None
    clock.advance(20 * 60 * 60)
    assert await queue.claim(worker("w"), 0) is not None
