"""What happens at the same moment: claims, cancellations, schedules, stops, and submissions to a queue that is full."""

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from bartack import ScriptedModel
from bartack.agent import Agent
from bartack.app.queues import opened_queue
from bartack.nouns.entries import RunEnded, RunStarted
from bartack.queues import Job, StoreQueue, WorkerInfo, cancel_run
from bartack.queues.run_queue import JOB_KEY
from bartack.queues.submit import deliver_scheduled
from bartack.store import Lease, MemoryStore, open_store
from bartack.store.address import StoreAddress
from bartack.store.entries import Entries
from bartack.store.requests import load_state
from bartack_server.web.runs import AGENT_KEY, ServerRuns
from bartack_server.workers import Worker
from tests.agent.kit import SESSION, PausingModel, SlowStore, kinds, messages, within
from tests.queues.kit import worker as worker_info
from tests.store import postgres_server


def made(store: Any) -> Agent[Any, Any]:
    return Agent(ScriptedModel([lambda history: f"Answer to {history[-1].text}"] * 200), store=store, name="a")


async def started(stack: AsyncExitStack, store: Any, count: int) -> list[Worker]:
    """Workers with queues of their own, as if each were a process."""
    workers = [Worker(StoreQueue(store), {"a": made(store)}, store) for _ in range(count)]
    for worker in workers:
        task = asyncio.create_task(worker.run())
        stack.push_async_callback(within, task)
        stack.callback(worker.stop)
    return workers


async def until_idle(store: Any) -> None:
    queue = StoreQueue(store)
    async with asyncio.timeout(120):
        while (status := await queue.status()).waiting or status.running:  # noqa: ASYNC110 - it changes in the store
            await asyncio.sleep(0.01)


async def test_a_cancellation_at_any_moment_leaves_no_run_open_and_no_job_behind() -> None:
    store, chance = SlowStore(), random.Random(1)
    async with AsyncExitStack() as stack:
        agent = made(store)
        await started(stack, store, 2)

        async def submit_and_cancel(session: str) -> None:
            await agent.submit("Hi", session=session)
            await asyncio.sleep(chance.random() / 5)
            await cancel_run(store, StoreQueue(store), session)

        await within(asyncio.gather(*(submit_and_cancel(f"s{number}") for number in range(40))))
        await until_idle(store)
    outcomes = set()
    for number in range(40):
        entries = await store.load(f"s{number}")
        ends = [entry.fact.status for entry in entries if isinstance(entry.fact, RunEnded)]
        assert len(ends) == len({entry.run_id for entry in entries if isinstance(entry.fact, RunStarted)}) <= 1
        outcomes.add(ends[0] if ends else None)
    assert outcomes <= {None, "aborted", "completed"}


async def test_a_prompt_is_withdrawn_although_a_worker_has_just_claimed_its_job() -> None:
    store = SlowStore()
    queue, claimant = StoreQueue(store), worker_info("claimant")
    await queue.heartbeat(claimant)
    await made(store).submit("Hi", session=SESSION)
    assert await queue.claim(claimant, 0) is not None
    assert await cancel_run(store, queue, SESSION)
    await queue.leave(claimant)
    assert (await queue.status()).waiting == 0
    await made(store).resume(SESSION)
    assert await messages(store) == []


@pytest.mark.parametrize("is_delivering", [False, True])
async def test_a_scheduled_prompt_is_withdrawn_although_a_worker_has_claimed_its_job(is_delivering: bool) -> None:
    store = InterposingStore()
    queue, claimant = StoreQueue(store), worker_info("claimant")
    await queue.heartbeat(claimant)
    await made(store).submit("Hi", session=SESSION, at=store.environment.now())
    job = await queue.claim(claimant, 0)
    assert job is not None
    if is_delivering:  # the worker has read the message and is about to queue it
        store.after_reading = lambda: cancel_run(store, queue, SESSION)
    else:
        assert await cancel_run(store, queue, SESSION)
    await deliver_scheduled(store, job)
    assert store.after_reading is None
    assert not await cancel_run(store, queue, "unknown")
    _, state = await load_state(store, SESSION)
    assert state.is_finished


async def test_a_scheduled_prompt_is_delivered_on_the_branch_that_the_session_has_then() -> None:
    store = MemoryStore()
    agent = made(store)
    await agent.run("One", session=SESSION)
    first = (await store.load(SESSION))[0]
    job = await agent.submit("Later", session=SESSION, at=store.environment.now())
    await agent.run("One, in other words", session=SESSION, head=first.id)
    await deliver_scheduled(store, job)
    await deliver_scheduled(store, job)
    await agent.resume(SESSION)
    assert [message.text for message in await messages(store)][-2:] == ["Later", "Answer to Later"]


async def test_a_job_of_a_run_that_was_aborted_meanwhile_begins_no_other_run() -> None:
    store = SlowStore()
    queue, claimant = StoreQueue(store), worker_info("claimant")
    await queue.heartbeat(claimant)
    job = await made(store).submit("Hi", session=SESSION)
    assert await queue.claim(claimant, 0) is not None
    silent = PausingModel(["Never."], after=0)
    async with Agent(silent, store=store, name="a").resume_stream(SESSION, metadata={JOB_KEY: to_builtins(job)}) as run:
        await within(silent.reached.wait())
        await cancel_run(store, queue, SESSION)  # enqueues a job to end the run
        await within(run.wait())
    await queue.complete(claimant, job, "aborted")
    async with AsyncExitStack() as stack:
        await started(stack, store, 1)
        await until_idle(store)
    entries = await store.load(SESSION)
    assert [entry.fact.status for entry in entries if isinstance(entry.fact, RunEnded)] == ["aborted"]


class InterposingStore(MemoryStore):
    """Lets another process do something once: before a run is claimed, or after the entries of a session were read."""

    def __init__(self) -> None:
        super().__init__()
        self.before_claim: Callable[[], Awaitable[Any]] | None = None
        self.after_reading: Callable[[], Awaitable[Any]] | None = None

    async def claim(self, session_id: str, *args: Any, **options: Any) -> Lease:
        meanwhile = self.before_claim
        if session_id == SESSION and meanwhile is not None:
            self.before_claim = None
            await meanwhile()
        return await super().claim(session_id, *args, **options)

    async def entries(self, session_id: str, after_seq: int = 0, limit: int | None = None) -> Entries:
        loaded = await super().entries(session_id, after_seq, limit)
        meanwhile = self.after_reading
        if session_id == SESSION and meanwhile is not None:
            self.after_reading = None
            await meanwhile()
        return loaded


@pytest.mark.parametrize("process", ["worker", "server"])
async def test_a_run_that_another_process_ends_at_this_moment_is_not_begun_again(process: str) -> None:
    store = InterposingStore()
    agent = made(store)
    silent = PausingModel(["Never."], after=0)
    async with Agent(silent, store=store, name="a").stream("Hi", session=SESSION, metadata={AGENT_KEY: "a"}) as run:
        await within(silent.reached.wait())
        run.suspend()  # its prompt has no answer
        await within(run.wait())
    store.before_claim = lambda: agent.abort(SESSION)
    if process == "server":
        assert not await ServerRuns({"a": agent}, store).resume(SESSION)
    else:
        queued_at = store.environment.now()
        await StoreQueue(store).enqueue(Job(id="1", session_id=SESSION, agent="a", queued_at=queued_at))
        async with AsyncExitStack() as stack:
            await started(stack, store, 1)
            await until_idle(store)
    assert store.before_claim is None
    assert (await kinds(store))[-1] == "run_ended"
    assert [message.role for message in await messages(store)] == ["user"]


async def test_a_time_without_a_zone_is_local_and_does_no_harm_to_others() -> None:
    store = MemoryStore()
    agent, time = made(store), store.environment.now()
    local = (time - timedelta(minutes=1)).astimezone().replace(tzinfo=None)
    assert (await agent.submit("Local", session="local", at=local)).not_before == time - timedelta(minutes=1)
    await agent.submit("Zoned", session="zoned", at=time.astimezone(timezone(timedelta(hours=5))))
    async with AsyncExitStack() as stack:
        await started(stack, store, 1)
        await until_idle(store)
    for name in ("local", "zoned"):
        assert (await messages(store, name))[-1].text == f"Answer to {name.capitalize()}"
    with pytest.raises(ValueError, match="time zone"):
        Job(id="1", session_id="s", agent="a", queued_at=local)


async def test_a_schedule_fires_once_however_many_workers_look() -> None:
    store = SlowStore()
    async with AsyncExitStack() as stack:
        await started(stack, store, 4)
        due = store.environment.now() + timedelta(seconds=0.2)
        for number in range(12):
            await made(store).submit("Now?", session=f"s{number}", at=due)
        await until_idle(store)
    for number in range(12):
        assert [message.text for message in await messages(store, f"s{number}")] == ["Now?", "Answer to Now?"]


class StoppingQueue(StoreQueue):
    """The worker is stopped while a claim is under way, which succeeds."""

    worker: Worker

    async def claim(self, worker: WorkerInfo, wait_s: float, *, begun_only: bool = False) -> Job | None:
        job = await super().claim(worker, wait_s, begun_only=begun_only)
        if job is not None:
            self.worker.stop()
        return job


async def test_a_job_that_is_claimed_while_the_worker_stops_is_handed_over() -> None:
    store = SlowStore()
    queue = StoppingQueue(store)
    queue.worker = Worker(queue, {"a": made(store)}, store)
    await made(store).submit("Hi", session=SESSION)
    await within(queue.worker.run())
    status = await StoreQueue(store).status()
    assert (status.waiting, status.workers, status.outcomes) == (1, (), {})
    async with AsyncExitStack() as stack:
        await started(stack, store, 1)
        await until_idle(store)
    assert [message.text for message in await messages(store)] == ["Hi", "Answer to Hi"]


@pytest.mark.parametrize("engine", ["store", "dbos"])
async def test_several_processes_fill_a_queue_and_are_refused(engine: str, tmp_path: Path) -> None:
    """Each may have looked before the others have added theirs, and so exceed the limit by one."""
    address, limit, processes = postgres_server.address(str(tmp_path)), 12, 3
    store = await open_store(address)
    async with opened_queue(StoreAddress.parse(address), store, engine=engine) as queue:
        await queue.status()  # creates the tables of the engine
        words = ("-m", "tests.workers.submitter", address, engine, str(limit))
        submitters = [
            await asyncio.create_subprocess_exec(sys.executable, *words, f"p{number}", stdout=-1)
            for number in range(processes)
        ]
        outputs = [(await within(process.communicate()))[0].split() for process in submitters]
        assert {int(limit_read) for limit_read, _ in outputs} == {limit}
        counts = [int(count) for _, count in outputs]
        status = await queue.status()
    assert sum(counts) == status.waiting == len((await store.sessions(limit=50)).items)  # what was refused left nothing
    assert limit <= status.waiting < limit + processes
    await store.close()
