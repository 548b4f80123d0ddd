"""`DbosQueue` on a real server: jobs, limits, schedules, cancellation, and what dead processes leave behind."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import pytest

from bartack import Message, ScriptedModel, ToolCall, assistant
from bartack.agent import Agent
from bartack.nouns.errors import QueueFull, StoreError
from bartack.queues import Job, Limit, QueueStatus, cancel_run, continue_run
from bartack.queues.run_queue import MAX_DEATHS
from bartack.session.decisions import Decision
from bartack.store import SessionStore, open_store
from bartack.store.requests import decide
from bartack.store.session_store import RESERVED
from bartack_server.workers import Worker
from tests.agent.kit import SESSION, Waiting, check_session, messages, transfer, within
from tests.queues.kit import job, worker
from tests.store import postgres_server

pytest.importorskip("dbos")
from dbos import DBOS

from bartack.queues.dbos_queue import DbosQueue, _Seat

SECRET = "the eagle lands at noon"


class Engine:
    """A store with a queue."""

    def __init__(self, address: str, store: SessionStore) -> None:
        self.address = address
        self.store = store

    def queue(self, kind: type[DbosQueue] = DbosQueue, **options: Any) -> DbosQueue:
        return kind(self.store, self.address, **{"ttl_s": 1.5, **options})


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    address = postgres_server.address(str(tmp_path))
    store = await open_store(address)
    yield Engine(address, store)
    await store.close()


async def test_two_tasks_claim_two_jobs_and_launch_one_engine(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = engine.queue()
    launched: list[str] = []

    async def admit(_: object) -> bool:
        await asyncio.sleep(0.01)
        return True

    monkeypatch.setattr(queue, "_is_admitted", admit)
    monkeypatch.setattr(queue, "_launch", lambda executor, *_: launched.append(executor))
    first, second = worker("w"), worker("v")
    await asyncio.gather(queue.heartbeat(first), queue.heartbeat(second))
    assert {member.executor for member in (await queue._members.status()).workers} == set(launched) == {"w"}
    for name in ("1", "2"):
        queue._offer(_Seat(job(name), name, asyncio.get_running_loop(), asyncio.Queue()))
    claims = await asyncio.gather(queue.claim(first, 0), queue.claim(second, 0))
    assert [claim.id for claim in claims if claim is not None] == ["1", "2"]
    queue._executor = None  # nothing was launched
    await queue.close()


@asynccontextmanager
async def working(engine: Engine, agent: Agent[Any, Any], **options: Any) -> AsyncIterator[DbosQueue]:
    queue = engine.queue(**options)
    worker = Worker(queue, {"a": agent}, engine.store)
    task = asyncio.create_task(worker.run())
    try:
        yield queue
    finally:
        worker.stop()
        await within(task)
        await queue.close()


async def until(queue: DbosQueue, reached: Callable[[QueueStatus], bool]) -> QueueStatus:
    deadline = asyncio.get_running_loop().time() + 90
    while not reached(status := await queue.status()):
        assert asyncio.get_running_loop().time() < deadline, status
        await asyncio.sleep(0.05)
    return status


def answer(history: Any) -> Any:
    last: Message = history[-1]
    return "Paid." if last.role == "tool" else f"Answer to {last.text}"


async def test_jobs_are_worked_on_paused_continued_scheduled_and_cancelled(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker and one schema for all of it: starting the engine takes seconds."""
    waiting = Waiting()
    queues: list[DbosQueue] = []
    launches = _failing_once(monkeypatch, lambda: bool(queues[0]._offered))

    def respond(history: Any) -> Any:
        match history[-1].text if history[-1].role == "user" else "":
            case "Pay":
                return assistant(ToolCall("c1", "transfer", {"amount": 5}))
            case "Wait":
                return assistant(ToolCall("c2", "wait", {}))
            case _:
                return answer(history)

    agent = Agent(ScriptedModel([respond] * 20), tools=[transfer, waiting.tool], store=engine.store, name="a")
    submitting = engine.queue()
    first = await agent.submit(SECRET, session="plain", queue=submitting, key="k", user="u")
    assert await agent.submit(SECRET, session="plain", queue=submitting, key="k", user="u") == first
    await agent.submit("Pay", session=SESSION, queue=submitting, priority=5)
    due = engine.store.environment.now() + timedelta(hours=1)
    await agent.submit("Later", session="later", queue=submitting, at=due)
    status = await submitting.status()
    assert (status.waiting, status.scheduled, status.running) == (3, 1, ())
    async with working(engine, agent) as queue:
        queues.append(queue)
        await until(queue, lambda status: status.outcomes == {"completed": 1, "paused": 1})
        assert launches == [1, 2]
        entry = await decide(engine.store, SESSION, "c1", Decision("approve"))
        assert await continue_run(engine.store, queue, entry) is not None
        await until(queue, lambda status: status.outcomes == {"completed": 2, "paused": 1})
        await agent.submit("Wait", session="waits", queue=submitting)
        await within(waiting.started.wait())
        assert len((await queue.status()).workers) == 1
        assert await cancel_run(engine.store, queue, "waits")
        assert await cancel_run(engine.store, queue, "later")
        await until(queue, lambda status: not status.waiting and not status.running)
    assert [message.text for message in await messages(engine.store, "plain")] == [SECRET, f"Answer to {SECRET}"]
    assert [message.text for message in await messages(engine.store)][-1] == "Paid."
    assert await messages(engine.store, "later") == []
    await check_session(engine.store)
    assert (await submitting.status()).workers == ()
    await submitting.close()
    await check_tables(engine)


def _failing_once(monkeypatch: pytest.MonkeyPatch, has_begun: Callable[[], bool]) -> list[int]:
    """Let the first launch of the engine fail after it has begun to work, as it does if the server fails then."""
    launches: list[int] = []
    register = DBOS.register_queue

    def registering(*args: Any, **options: Any) -> None:
        register(*args, **options)
        if options.get("worker_concurrency") == 20:  # the last one
            launches.append(len(launches) + 1)
            deadline = time.monotonic() + 60
            while launches == [1] and not has_begun():
                assert time.monotonic() < deadline
                time.sleep(0.01)
            if launches == [1]:
                raise OSError("the server is away")

    monkeypatch.setattr(DBOS, "register_queue", registering)
    return launches


async def check_tables(engine: Engine) -> None:
    """The tables of the engine contain JSON, and no content of conversations."""
    schema = f"{postgres_server.schema_of(engine.address)}_dbos"
    connection = await asyncpg.connect(postgres_server.SERVER)
    rows = await connection.fetch(f'SELECT * FROM "{schema}".workflow_status')
    tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", schema)
    everything = [
        str(row) for table in tables for row in await connection.fetch(f'SELECT * FROM "{schema}"."{table[0]}"')
    ]
    assert len(rows) >= 4
    steps = await connection.fetch(f'SELECT function_name, output FROM "{schema}".operation_outputs')
    await connection.close()
    assert {(row["function_name"], row["output"]) for row in steps} >= {("step", "1"), ("step", "2")}
    assert {row["serialization"] for row in rows} == {"portable_json"}
    assert any('"sessionId":"plain"' in text for text in everything)
    assert [text for text in everything if SECRET in text or "Paid" in text or "gASV" in text] == []  # gASV: a pickle


class StoppedQueue(DbosQueue):
    """The process is stopped once while it looks at the limits, for so long that another one does so meanwhile."""

    was_stopped = False

    async def _has_room(self, limit: Limit, value: str, workflow_id: str) -> bool:
        if not self.was_stopped:
            self.was_stopped = True
            await self._store.acquire_lease(f"{RESERVED}limits:{self.name}", "another", 0.1, takeover=True)
        return await super()._has_room(limit, value, workflow_id)


async def test_a_full_queue_and_limits(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    waiting = Waiting()
    agent = Agent(
        ScriptedModel([assistant(ToolCall("c1", "wait", {})), "Done.", "Done."]),
        tools=[waiting.tool],
        store=engine.store,
        name="a",
    )
    submitting = engine.queue(max_waiting=2, max_waiting_per_user=1)
    await agent.submit("1", session="1", queue=submitting, user="u")
    with pytest.raises(QueueFull) as caught:
        await agent.submit("2", session="2", queue=submitting, user="u")
    assert (caught.value.queued, caught.value.limit, caught.value.user) == (1, 1, "u")
    await agent.submit("3", session="3", queue=submitting)
    with pytest.raises(QueueFull) as caught:
        await agent.submit("4", session="4", queue=submitting, user="v")
    assert (caught.value.limit, caught.value.user) == (2, None)
    await submitting.cancel("3")
    limits = [Limit(by="user", running=1), Limit(by="model", starts=10, per_s=60)]
    async with working(engine, agent, kind=StoppedQueue, limits=limits) as queue:
        await within(waiting.started.wait())
        assert "Cannot claim a job: The lease" in caplog.text  # it has looked again
        await agent.submit("5", session="5", queue=queue, user="u")
        await until(queue, lambda status: status.scheduled == 1)
        waiting.proceed.set()
        await until(queue, lambda status: status.outcomes == {"completed": 2})
    await submitting.close()


class CountingQueue(DbosQueue):
    """Counts what it reads."""

    lists = 0
    selects = 0

    async def _list(self, **options: Any) -> list[Any]:
        self.lists += 1
        return await super()._list(**options)

    async def _fetch(self, query: str, *values: object) -> Any:
        self.selects += 1
        return await super()._fetch(query, *values)


async def test_a_limit_is_checked_with_one_query_and_reads_no_workflow(engine: Engine) -> None:
    limits = [Limit(by="user", running=5), Limit(by="user", starts=5), Limit(by="provider", running=5)]
    queue = engine.queue(CountingQueue, limits=limits)
    for number in range(20):
        await queue.enqueue(job(str(number), user=f"u{number}"))
    assert isinstance(queue, CountingQueue)
    queue.lists = queue.selects = 0
    seat = _Seat(job("0", user="u0"), "0", asyncio.get_running_loop(), asyncio.Queue())
    assert await queue._is_admitted(seat)
    assert (queue.lists, queue.selects) == (0, 2)  # there is no provider
    await queue.close()


async def test_submissions_at_the_same_moment_share_one_count(engine: Engine) -> None:
    queue = engine.queue(CountingQueue, max_waiting=10_000)
    assert isinstance(queue, CountingQueue)
    await queue.status()
    queue.selects = 0
    await asyncio.gather(*(queue.check_room() for _ in range(50)))
    assert (queue.selects, queue._room) == (1, 100 - 49)
    await queue.close()


async def test_a_server_that_is_away_is_a_retryable_store_error(engine: Engine) -> None:
    queue = DbosQueue(engine.store, "postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(StoreError) as caught:
        await queue.enqueue(job("1"))
    assert caught.value.retryable
    await queue.close()


# -- abandoned workflows


class Rows:
    """The workflows of the engine, changed behind its back."""

    def __init__(self, engine: Engine) -> None:
        self._schema = f"{postgres_server.schema_of(engine.address)}_dbos"

    async def run(self, query: str, *args: object) -> list[Any]:
        connection = await asyncpg.connect(postgres_server.SERVER)
        try:
            records: list[Any] = await connection.fetch(query.format(f'"{self._schema}".workflow_status'), *args)
        finally:
            await connection.close()
        return records

    async def until(self, query: str, *args: object) -> None:
        async with asyncio.timeout(90):
            while not await self.run(query, *args):  # noqa: ASYNC110 - it changes in the database
                await asyncio.sleep(0.05)

    async def assign(self, workflow_id: str, executor: str, attributes: str = "{{}}") -> None:
        """As if the engine had given the workflow to a process, which never started it."""
        query = f"UPDATE {{}} SET status = 'PENDING', executor_id = $2, attributes = attributes || '{attributes}'"
        await self.run(f"{query} WHERE workflow_uuid = $1", workflow_id, executor)


async def test_abandoned_workflows_are_resumed_set_aside_or_deleted(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker for all of it: starting the engine takes seconds."""
    waiting, rows = Waiting(), Rows(engine)

    def respond(history: Any) -> Any:
        return assistant(ToolCall("c1", "wait", {})) if history[-1].text == "Wait" else answer(history)

    agent = Agent(ScriptedModel([respond] * 20), tools=[waiting.tool], store=engine.store, name="a")
    async with working(engine, agent) as queue:
        (own,) = (await until(queue, lambda status: len(status.workers) == 1)).workers
        assert own.executor is not None
        due = engine.store.environment.now() + timedelta(hours=1)
        jobs = [await agent.submit("Hi", session=f"s{number}", queue=queue, at=due) for number in range(3)]
        await rows.assign(jobs[0].id, own.executor)  # the database failed before the process could start it
        await rows.assign(jobs[1].id, "dead")
        await rows.assign(jobs[2].id, "dead", f'{{{{"resumed": {MAX_DEATHS - 1}}}}}')
        status = await until(queue, lambda status: status.outcomes == {"completed": 2} and len(status.stuck) == 1)
        assert [stuck.session_id for stuck in status.stuck] == ["s2"]
        assert status.stuck[0].problem == f"{MAX_DEATHS} workers died while running it, the last one was executor dead"

        # The process is taken for dead while it works, and gets its own workflow again.
        job = await agent.submit("Wait", session="waits", queue=queue)
        await within(waiting.started.wait())
        (before,) = await rows.run("SELECT owner_xid FROM {} WHERE workflow_uuid = $1", job.id)
        await queue._resume([job.id], 1)
        await rows.until(
            "SELECT 1 FROM {} WHERE workflow_uuid = $1 AND status = 'PENDING' AND owner_xid <> $2", job.id, before[0]
        )
        waiting.proceed.set()
        await until(queue, lambda status: status.outcomes == {"completed": 3} and not status.running)
        assert waiting.runs == 1

        # A job that has to be done again does not wait behind those that have not begun.
        await engine.store.create_session("busy")
        lease = await engine.store.acquire_lease("busy", "another", ttl=600)
        job = await agent.submit("Hi", session="busy", queue=queue)
        await rows.until("SELECT 1 FROM {} WHERE workflow_uuid = $1 AND queue_name LIKE '%-begun'", f"{job.id}+1")
        await engine.store.release_lease(lease)
        await until(queue, lambda status: status.outcomes == {"completed": 4} and not status.running)

        monkeypatch.setattr("bartack.queues.dbos_queue._CLEAN_EVERY", 1)
        monkeypatch.setattr("bartack.queues.dbos_queue._CLEANED", 2)
        day_ms = 24 * 60 * 60 * 1000
        await rows.run("UPDATE {} SET completed_at = completed_at - $1", 2 * day_ms)
        await until(queue, lambda status: status.outcomes == {})
        await rows.until("SELECT 1 WHERE (SELECT count(*) FROM {}) = 1")
        assert [stuck.session_id for stuck in (await queue.status()).stuck] == ["s2"]  # a person has to look at it
        assert await cancel_run(engine.store, queue, "s2")
        assert not await cancel_run(engine.store, queue, "s2")
        assert (await queue.status()).stuck == ()

        job = await agent.submit("Hi", session="s3", queue=queue, at=due)
        await rows.assign(job.id, "dead", f'{{{{"resumed": {MAX_DEATHS - 1}}}}}')
        await until(queue, lambda status: len(status.stuck) == 1)
        assert [retried.session_id for retried in await queue.retry("s3")] == ["s3"]
        assert await queue.retry("s3") == ()
        await until(queue, lambda status: status.stuck == () and status.outcomes.get("completed") == 1)
    await check_session(engine.store, "waits")


class EarlyQueue(DbosQueue):
    """The engine starts the workflow that continues a job here before the call that enqueued it has returned."""

    async def _enqueue(self, job: Job, workflow_id: str, *, place: int | None = None) -> None:
        await super()._enqueue(job, workflow_id, place=place)
        if workflow_id.endswith("+1"):
            async with asyncio.timeout(90):
                while workflow_id not in self._begun or self._offered:  # noqa: ASYNC110 - other tasks change it
                    await asyncio.sleep(0.01)


async def test_a_workflow_that_starts_before_the_one_it_continues_has_ended_is_not_forgotten(engine: Engine) -> None:
    agent = Agent(ScriptedModel(["Done."]), store=engine.store, name="a")
    await engine.store.create_session(SESSION)
    lease = await engine.store.acquire_lease(SESSION, "another", ttl=600)
    async with working(engine, agent, kind=EarlyQueue) as queue:
        job = await agent.submit("Hi", session=SESSION, queue=queue)
        await Rows(engine).until("SELECT 1 FROM {} WHERE workflow_uuid = $1", f"{job.id}+1")
        await engine.store.release_lease(lease)
        await until(queue, lambda status: status.outcomes == {"completed": 1} and not status.running)


async def test_a_run_of_a_killed_process_is_taken_over(engine: Engine, tmp_path: Path) -> None:
    """A real worker process is killed while its tool runs, and this process continues the run."""
    agent = Agent(ScriptedModel(["Done."]), store=engine.store, name="a")
    submitting = engine.queue()
    await agent.submit("Go", session=SESSION, queue=submitting)
    words = ("worker", "--agents", "tests.queues.killed_agent:agents", "--engine", "dbos", "--store", engine.address)
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "bartack.cli", *words, stderr=-3, stdout=-3)
    try:
        async for entry in engine.store.follow(SESSION):
            if entry.fact.kind == "tool_started":
                break
    finally:
        process.kill()
        await process.wait()
    async with working(engine, agent) as queue:
        await until(queue, lambda status: status.outcomes == {"completed": 1} and len(status.workers) == 1)
    transcript = await messages(engine.store)
    assert "outcome of this call is unknown" in str(transcript[-2].parts[0])
    assert transcript[-1].text == "Done."
    await submitting.close()
    await check_session(engine.store)
