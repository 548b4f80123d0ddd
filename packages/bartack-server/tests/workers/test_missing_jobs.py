"""What was requested by a process that died before it could enqueue a job: a worker finds it and acts on it, once."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from bartack import Message, ScriptedModel, ToolCall, assistant, user
from bartack.agent import Agent
from bartack.nouns.entries import RunEnded
from bartack.queues import Job, QueueStatus, StoreQueue, cancel_run, submit
from bartack.session.decisions import Decision
from bartack.store import MemoryStore
from bartack.store.requests import decide, note, post_result, queue, request_abort
from bartack.store.transfer import export_session, import_lines
from bartack.tools import tool
from bartack_server.web.queued_runs import QueuedRuns
from bartack_server.workers import Worker, missing_jobs
from tests.agent.kit import SESSION, messages, transfer, within
from tests.queues.kit import Clock


class DyingQueue(StoreQueue):
    """The process dies before it has enqueued the job."""

    async def enqueue(self, job: Job) -> None:
        raise ConnectionAbortedError


@tool(deferred=True)
async def print_page(page: int) -> None:
    """Print a page, some time later."""


def respond(history: Sequence[Message]) -> Any:
    match history[-1].text if history[-1].role == "user" else "":
        case "Pay":
            return assistant(ToolCall("c1", "transfer", {"amount": 5}))
        case "Print":
            return assistant(ToolCall("c2", "print_page", {"page": 1}))
        case _:
            return "Done."


def made(store: MemoryStore) -> Agent[Any, Any]:
    return Agent(ScriptedModel([respond] * 20), tools=[transfer, print_page], store=store, name="a")


async def served(store: MemoryStore) -> None:
    await store.create_session(SESSION)
    await QueuedRuns({"a": made(store)}, store, DyingQueue(store)).start("a", SESSION, "Hi")


async def submitted(store: MemoryStore, **options: Any) -> None:
    await made(store).submit("Hi", session=SESSION, queue=DyingQueue(store), **options)


PROMPTS: dict[str, Callable[[MemoryStore], Coroutine[Any, Any, None]]] = {
    "submitted": submitted,
    "scheduled": lambda store: submitted(store, at=store.environment.now() + timedelta(milliseconds=50)),
    "served": served,
}


async def until(store: MemoryStore, reached: Callable[[QueueStatus], bool]) -> None:
    async with asyncio.timeout(120):
        while not reached(await StoreQueue(store).status()):  # noqa: ASYNC110 - it changes in the store
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("how", PROMPTS)
async def test_a_prompt_without_a_job_is_answered(how: str) -> None:
    store = MemoryStore()
    with suppress(ConnectionAbortedError):
        await PROMPTS[how](store)
    workers = [Worker(StoreQueue(store), {"a": made(store)}, store) for _ in range(2)]
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    await until(store, lambda status: status.outcomes == {"completed": 1})
    for worker in workers:
        worker.stop()
    await within(asyncio.gather(*tasks))
    assert [message.text for message in await messages(store)] == ["Hi", "Done."]


@pytest.mark.parametrize(
    ("prompt", "request_", "status"),
    [
        ("Pay", lambda store: decide(store, SESSION, "c1", Decision("approve")), "completed"),
        ("Print", lambda store: post_result(store, SESSION, "c2", "Printed."), "completed"),
        ("Pay", lambda store: request_abort(store, SESSION), "aborted"),
    ],
)
async def test_a_request_without_a_job_continues_the_run(prompt: str, request_: Any, status: str) -> None:
    store = MemoryStore()
    await made(store).submit(prompt, session=SESSION)
    worker = Worker(StoreQueue(store), {"a": made(store)}, store)
    task = asyncio.create_task(worker.run())
    await until(store, lambda status: status.outcomes == {"paused": 1})
    supervisor = missing_jobs(store, worker._queue)
    await worker._supervisor.leave()
    await supervisor.look()
    assert (await StoreQueue(store).status()).outcomes == {"paused": 1}  # nothing has happened
    await request_(store)
    await supervisor.look()
    async for entry in store.follow(SESSION):
        if isinstance(entry.fact, RunEnded):
            assert entry.fact.status == status
            break
    worker.stop()
    await within(task)


@pytest.mark.parametrize("how", ["submitted", "scheduled"])
async def test_what_an_imported_file_requests_is_not_done(how: str) -> None:
    store, imported = MemoryStore(), MemoryStore()
    with suppress(ConnectionAbortedError):
        await PROMPTS[how](store)
    await import_lines(imported, [line async for line in export_session(store, SESSION)])
    jobs = StoreQueue(imported)
    await missing_jobs(imported, jobs).look()
    assert (await jobs.status()).waiting == 0


async def test_only_what_was_submitted_to_this_queue_and_is_still_open_is_enqueued() -> None:
    clock = Clock()
    store = MemoryStore(environment=clock.environment)
    jobs = StoreQueue(store)
    supervisor, second = missing_jobs(store, jobs), missing_jobs(store, StoreQueue(store))

    async def waiting() -> set[str]:
        await supervisor.look()
        return {job.session_id for job in jobs._state.waiting.values()}

    async def ask(session: str, name: str = "default", **options: Any) -> None:
        with suppress(ConnectionAbortedError):
            await submit(store, DyingQueue(store, name), user("Hi"), session_id=session, agent="a", **options)

    await ask("old", at=clock.now)
    clock.advance(25 * 60 * 60)
    await store.create_session("note")
    await queue(store, "note", "For the next run")
    await ask("elsewhere", "elsewhere")
    for name in ("withdrawn", "later withdrawn"):
        await ask(name, at=clock.now if name.startswith("later") else None)
        assert await cancel_run(store, jobs, name)
        assert not await cancel_run(store, jobs, name)
    assert await waiting() == set()
    await ask("forgotten")
    await second.look()  # not its turn
    assert await waiting() == {"forgotten"}
    await jobs.cancel("forgotten")
    assert await waiting() == set()  # it is known
    await supervisor.leave()
    await second.look()


async def test_a_session_in_use_is_looked_at_until_it_is_released_however_long_nothing_is_added() -> None:
    clock = Clock()
    store = MemoryStore(environment=clock.environment)
    jobs = StoreQueue(store)
    supervisor = missing_jobs(store, jobs)
    with suppress(ConnectionAbortedError):
        await submitted(store)
    await note(store, SESSION, "app.note", {})
    lease = await store.acquire_lease(SESSION, "another", ttl=100_000)
    for _ in range(3):
        await supervisor.look()
        assert (await jobs.status()).waiting == 0
        clock.advance(3600)
    await store.release_lease(lease)
    await supervisor.look()
    assert (await jobs.status()).waiting == 1


async def test_a_job_for_a_run_that_still_waits_adds_nothing_to_its_session() -> None:
    store = MemoryStore()
    job = await made(store).submit("Pay", session=SESSION)
    worker = Worker(StoreQueue(store), {"a": made(store)}, store)
    task = asyncio.create_task(worker.run())
    await until(store, lambda status: status.outcomes == {"paused": 1})
    entries = len(await store.entries(SESSION))
    await StoreQueue(store).enqueue(replace(job, id="again"))
    await until(store, lambda status: status.outcomes == {"paused": 2})
    assert len(await store.entries(SESSION)) == entries
    worker.stop()
    await within(task)
