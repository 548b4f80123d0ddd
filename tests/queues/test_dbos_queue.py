"""`DbosQueue` on a real server: jobs, limits, schedules and cancellation; `make chaos` kills its processes."""

import asyncio
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
from bartack.queues import Limit, QueueStatus, cancel_run, continue_run
from bartack.session.decisions import Decision
from bartack.store import SessionStore, open_store
from bartack.store.requests import decide
from bartack.workers import Worker
from tests.agent.kit import SESSION, Waiting, check_session, messages, transfer, within
from tests.queues.kit import job
from tests.store import postgres_server

pytest.importorskip("dbos")
from bartack.queues.dbos_queue import DbosQueue

SECRET = "the eagle lands at noon"


class Engine:
    """A store with a queue."""

    def __init__(self, address: str, store: SessionStore) -> None:
        self.address = address
        self.store = store

    def queue(self, **options: Any) -> DbosQueue:
        return DbosQueue(self.store, self.address, **{"ttl_s": 1.5, **options})


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    address = postgres_server.address(str(tmp_path))
    store = await open_store(address)
    yield Engine(address, store)
    await store.close()
    connection = await asyncpg.connect(postgres_server.SERVER)
    await connection.execute(f'DROP SCHEMA IF EXISTS "{postgres_server.schema_of(address)}_dbos" CASCADE')
    await connection.close()


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
    async with asyncio.timeout(90):
        while not reached(status := await queue.status()):  # noqa: ASYNC110 - it changes in the database
            await asyncio.sleep(0.05)
    return status


def answer(history: Any) -> Any:
    last: Message = history[-1]
    return "Paid." if last.role == "tool" else f"Answer to {last.text}"


async def test_jobs_are_worked_on_paused_continued_scheduled_and_cancelled(engine: Engine) -> None:
    """One worker and one schema for all of it: starting the engine takes seconds."""
    waiting = Waiting()

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
    at = engine.store.environment.now() + timedelta(hours=1)
    await agent.submit("Later", session="later", queue=submitting, at=at)
    status = await submitting.status()
    assert (status.waiting, status.scheduled, status.running) == (3, 1, ())
    async with working(engine, agent) as queue:
        await until(queue, lambda status: status.outcomes == {"completed": 1, "paused": 1})
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


async def check_tables(engine: Engine) -> None:
    """The tables of the engine contain JSON, and nothing of what was said."""
    schema = f"{postgres_server.schema_of(engine.address)}_dbos"
    connection = await asyncpg.connect(postgres_server.SERVER)
    rows = await connection.fetch(f'SELECT * FROM "{schema}".workflow_status')
    tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", schema)
    everything = [str(row) for one in tables for row in await connection.fetch(f'SELECT * FROM "{schema}"."{one[0]}"')]
    assert len(rows) >= 4
    steps = await connection.fetch(f'SELECT function_name, output FROM "{schema}".operation_outputs')
    await connection.close()
    assert {(row["function_name"], row["output"]) for row in steps} >= {("step", "1"), ("step", "2")}
    assert {row["serialization"] for row in rows} == {"portable_json"}
    assert any('"sessionId":"plain"' in text for text in everything)
    assert [text for text in everything if SECRET in text or "Paid" in text or "gASV" in text] == []  # gASV: a pickle


async def test_a_full_queue_and_limits(engine: Engine) -> None:
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
    async with working(engine, agent, limits=limits) as queue:
        await within(waiting.started.wait())
        await agent.submit("5", session="5", queue=queue, user="u")
        await until(queue, lambda status: status.scheduled == 1)
        waiting.proceed.set()
        await until(queue, lambda status: status.outcomes == {"completed": 2})
    await submitting.close()


async def test_a_server_that_is_away_is_a_retryable_store_error(engine: Engine) -> None:
    queue = DbosQueue(engine.store, "postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(StoreError) as caught:
        await queue.enqueue(job("1"))
    assert caught.value.retryable
    await queue.close()
