"""Every open request of a session that nobody holds has a job: on each store, and with each engine."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from bartack import Message, ScriptedModel, ToolCall, assistant
from bartack.agent import Agent
from bartack.app.queues import opened_queue
from bartack.nouns.entries import RunEnded
from bartack.nouns.errors import ErrorCode, ModelError
from bartack.queues import RunQueue, StoreQueue, continue_run
from bartack.store import MemoryStore, SessionStore, open_store
from bartack.store.address import StoreAddress
from bartack.store.requests import request_abort
from bartack_server import supervisor
from bartack_server.workers import Worker, missing_jobs
from tests.agent.kit import SESSION, messages, transfer, within
from tests.store import postgres_server


def respond(history: Sequence[Message]) -> Any:
    last = history[-1]
    if last.role == "user" and last.text == "Pay":
        return assistant(ToolCall("c1", "transfer", {"amount": 5}))
    if last.role == "tool":
        raise ModelError("The account is closed.", code=ErrorCode.PERMISSION_DENIED)
    return f"Answer to {last.text}"


def made(store: SessionStore) -> Agent[Any, Any]:
    return Agent(ScriptedModel([respond] * 50), tools=[transfer], store=store, name="a")


@asynccontextmanager
async def place(kind: str, folder: Path) -> AsyncIterator[tuple[SessionStore, RunQueue]]:
    if kind == "dbos":
        pytest.importorskip("dbos")
    address = f"sqlite:{folder / 'sessions.db'}" if kind == "sqlite" else postgres_server.address(str(folder))
    store = await open_store(address)
    engine = "dbos" if kind == "dbos" else "store"
    async with opened_queue(StoreAddress.parse(address), store, engine=engine) as queue:
        yield store, queue
    await store.close()


@asynccontextmanager
async def working(store: SessionStore, queue: RunQueue) -> AsyncIterator[Worker]:
    worker = Worker(queue, {"a": made(store)}, store)
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await within(task, 60)


async def until_done(worker: Worker, count: int) -> None:
    async with asyncio.timeout(60):
        while worker.done < count:  # noqa: ASYNC110 - the jobs of a worker end at any time
            await asyncio.sleep(0.02)


async def until_answered(store: SessionStore, text: str) -> None:
    async with asyncio.timeout(60):
        while text not in [message.text for message in await messages(store)]:  # noqa: ASYNC110 - it changes in the store
            await asyncio.sleep(0.05)


async def end_run(how: str, agent: Agent[Any, Any], store: SessionStore, queue: RunQueue) -> None:
    match how:
        case "aborted here":
            await agent.abort(SESSION)
        case "aborted by a worker":
            await continue_run(store, queue, await request_abort(store, SESSION))
        case "failed":
            await agent.approve(SESSION, "c1")


@pytest.mark.parametrize("how", ["aborted here", "aborted by a worker", "failed"])
@pytest.mark.parametrize("kind", ["sqlite", "postgres", "dbos"])
async def test_a_prompt_behind_a_run_that_waited_is_answered_when_that_ends(
    kind: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_LOOK_S", 600.0)  # it must not take a supervisor
    async with place(kind, tmp_path) as (store, queue), working(store, queue) as worker:
        agent = made(store)
        await agent.submit("Pay", session=SESSION, queue=queue)
        await until_done(worker, 1)
        await agent.submit("Second", session=SESSION, queue=queue)
        await until_done(worker, 2)
        await end_run(how, agent, store, queue)
        await until_answered(store, "Answer to Second")


@pytest.mark.parametrize("prompt", ["submitted", "scheduled"])
async def test_a_supervisor_finds_the_requests_that_a_run_left_behind_once(
    prompt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    queue, agent = StoreQueue(store), made(store)
    async with working(store, queue) as worker:
        await agent.submit("Pay", session=SESSION)
        await until_done(worker, 1)
        at = None if prompt == "submitted" else store.environment.now() + timedelta(milliseconds=10)
        await agent.submit("Second", session=SESSION, at=at)
        await until_done(worker, 2)
    monkeypatch.setattr("bartack.agent.agent.enqueue_requested", AsyncMock())  # a program without this queue
    await agent.abort(SESSION)
    assert isinstance((await store.load(SESSION))[-1].fact, RunEnded)
    assert (await queue.status()).waiting == 0
    for _ in range(2):
        looking = missing_jobs(store, queue)
        await looking.look()
        await looking.look()
        await looking.leave()
    assert (await queue.status()).waiting == 1
    async with working(store, StoreQueue(store)):
        await until_answered(store, "Answer to Second")
