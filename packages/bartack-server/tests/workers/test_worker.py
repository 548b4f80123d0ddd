"""`Worker`, `Agent.submit` and the requests that continue or cancel a queued run, in one process."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bartack import ErrorCode, Failed, Message, ScriptedModel, ToolCall, assistant
from bartack.agent import Agent
from bartack.models.scripted import ScriptedResponse
from bartack.nouns.entries import RunStarted
from bartack.nouns.errors import KeyReused, NotAdopted, QueueFull, StoreError
from bartack.nouns.tables import AgentStatus
from bartack.queues import Job, QueueStatus, StoreQueue, cancel_run
from bartack.queues.run_queue import JOB_KEY
from bartack.store import MemoryStore, SessionStore, open_store
from bartack.store.append import Batch, Permit
from bartack.store.backup import backup, restore
from bartack.store.foreign import adopt
from bartack.store.requests import redact
from bartack.store.session_store import Lease
from bartack.store.transfer import export_session, import_lines
from bartack.tools import ToolDefinition, tool
from bartack_server.workers import Worker
from tests.agent.kit import SESSION, PausingModel, Waiting, check_session, kinds, messages, transfer, within
from tests.queues.kit import worker as worker_info

Answer = ScriptedResponse | Callable[[Sequence[Message]], ScriptedResponse]


def made(answers: Sequence[Answer] | ScriptedModel, *tools: ToolDefinition, store: MemoryStore) -> Agent[Any, Any]:
    model = answers if isinstance(answers, ScriptedModel) else ScriptedModel(answers)
    return Agent(model, tools=tools, store=store, name="a")


@asynccontextmanager
async def working(agent: Agent[Any, Any], store: SessionStore, **options: Any) -> AsyncIterator[Worker]:
    worker = Worker(StoreQueue(store), {"a": agent}, store, **options)
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await within(task)


async def until(store: SessionStore, reached: Callable[[QueueStatus], bool]) -> QueueStatus:
    """The status of the queue once it is as expected."""
    queue = StoreQueue(store)
    async with asyncio.timeout(60):
        while not reached(status := await queue.status()):  # noqa: ASYNC110 - it changes in the store
            await asyncio.sleep(0.01)
    return status


def ended(count: int) -> Callable[[QueueStatus], bool]:
    return lambda status: sum(status.outcomes.values()) == count


async def test_a_worker_does_not_touch_what_was_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with a queued message that names a job, also if its import fails; and a job for a foreign session."""
    monkeypatch.setattr("bartack_server.workers._FOREIGN_S", 0.1)
    forged, store = MemoryStore(), MemoryStore()
    await made([], store=forged).submit("Do it", session=SESSION)
    lines = [line async for line in export_session(forged, SESSION)]
    agent = made(["Fine."], store=store)
    async with working(agent, store):
        with pytest.raises(StoreError):
            await import_lines(store, [*lines, b"broken"])
        await import_lines(store, lines)
        with pytest.raises(NotAdopted):
            await agent.submit("Do it", session=SESSION)
        environment = store.environment
        job = Job(id="j", session_id=SESSION, agent="a", queued_at=environment.now(), queue="default", engine="store")
        await StoreQueue(store).enqueue(job)
        status = await until(store, lambda status: status.waiting == 1 and status.scheduled == 1)
    assert status.outcomes == {}
    assert await messages(store) == []
    await adopt(store, SESSION)
    await agent.submit("Go on", session=SESSION)
    async with working(agent, store):
        await until(store, ended(2))
    assert [message.text for message in await messages(store)] == ["Go on", "Fine."]


async def test_a_prompt_in_a_restored_session_is_answered_once_the_session_is_adopted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bartack_server.workers._FOREIGN_S", 0.1)
    store = await open_store(f"jsonl:{tmp_path / 'store'}")
    await Agent(ScriptedModel([]), store=store, name="a").submit("How are you?", session=SESSION)
    await backup(store, tmp_path / "backup")
    await store.close()
    await restore(tmp_path / "backup", f"jsonl:{tmp_path / 'restored'}")
    store = await open_store(f"jsonl:{tmp_path / 'restored'}")
    async with working(Agent(ScriptedModel(["Fine."]), store=store, name="a"), store):
        await until(store, lambda status: status.scheduled == 1)  # the worker has tried
        assert await messages(store) == []
        await adopt(store, SESSION)
        status = await until(store, ended(1))
    assert status.outcomes == {"completed": 1}
    assert [message.text for message in await messages(store)] == ["How are you?", "Fine."]
    await store.close()


async def test_a_submitted_prompt_is_answered_by_a_worker() -> None:
    store = MemoryStore()
    agent = made(["Fine."], store=store)
    job = await agent.submit("How are you?", session=SESSION, user="u", priority=3)
    assert (job.session_id, job.agent, job.provider, job.model) == (SESSION, "a", "scripted", "scripted")
    assert await kinds(store) == ["session_header", "message_queued"]
    async with working(agent, store) as worker:
        status = await until(store, ended(1))
        assert [info.id for info in status.workers] == [worker.info.id]
    assert status.outcomes == {"completed": 1}
    assert [message.text for message in await messages(store)] == ["How are you?", "Fine."]
    (started,) = [entry.fact for entry in await store.load(SESSION) if isinstance(entry.fact, RunStarted)]
    assert started.metadata is not None
    assert started.metadata[JOB_KEY]["id"] == job.id
    assert (await StoreQueue(store).status()).workers == ()


async def test_submitting_again_with_the_same_key_has_no_effect() -> None:
    store = MemoryStore()
    agent = made(["Fine."], store=store)
    first = await agent.submit("Hi", session=SESSION, key="request-1")
    assert await agent.submit("Hi", session=SESSION, key="request-1") == first
    async with working(agent, store):
        await until(store, ended(1))
        assert await agent.submit("Hi", session=SESSION, key="request-1") == first
    assert [message.text for message in await messages(store)] == ["Hi", "Fine."]


@pytest.mark.parametrize("at", [None, timedelta(hours=1)])
async def test_the_same_key_with_another_text_is_refused(at: timedelta | None) -> None:
    store = MemoryStore()
    agent = made(["Fine."], store=store)
    due = None if at is None else store.environment.now() + at
    first = await agent.submit("Hi", session=SESSION, key="request-1", at=due)
    for other_due in (due, None, store.environment.now()):
        with pytest.raises(KeyReused, match="request-1") as refused:
            await agent.submit("Bye", session=SESSION, key="request-1", at=other_due)
        assert (refused.value.key, refused.value.code) == ("request-1", ErrorCode.CONFLICT)
    assert await agent.submit("Hi", session=SESSION, key="request-1", at=due) == first
    assert len(await store.load(SESSION)) == 2
    await agent.submit("Bye", session="another", key="request-1")
    await redact(store, SESSION, first.id)
    assert await agent.submit("Now erased", session=SESSION, key="request-1") == first
    assert (await StoreQueue(store).status()).waiting == 2


async def test_the_prompts_of_one_session_are_answered_in_order_and_sessions_at_once() -> None:
    store, waiting = MemoryStore(), Waiting()

    def answer(history: Sequence[Message]) -> ScriptedResponse:
        return f"Answer to {history[-1].text}"

    agent = made([answer] * 8, waiting.tool, store=store)
    for number in range(4):
        await agent.submit(f"{number}", session=f"s{number % 2}")
    async with working(agent, store):
        await until(store, ended(4))
    for session in ("s0", "s1"):
        texts = [message.text for message in await messages(store, session)]
        assert [text for text in texts if not text.startswith("Answer")] == [session[1], str(int(session[1]) + 2)]


async def test_a_full_queue_stores_nothing() -> None:
    store = MemoryStore()
    agent = made([], store=store)
    queue = StoreQueue(store, max_waiting=1)
    await agent.submit("1", session="first", queue=queue)
    with pytest.raises(QueueFull, match="limit is 1"):
        await agent.submit("2", session="second", queue=queue)
    assert [info.id for info in (await store.sessions()).items] == ["first"]


async def test_a_run_that_pauses_for_an_approval_continues_after_the_decision() -> None:
    store = MemoryStore()
    agent = made([assistant(ToolCall("c1", "transfer", {"amount": 5})), "Done."], transfer, store=store)
    async with working(agent, store):
        await agent.submit("Pay", session=SESSION)
        assert (await until(store, ended(1))).outcomes == {"paused": 1}
        await agent.approve(SESSION, "c1")
        assert (await until(store, ended(2))).outcomes == {"paused": 1, "completed": 1}
    assert [message.text for message in await messages(store)][-1] == "Done."
    await check_session(store)


async def test_a_run_whose_approval_expires_continues_by_itself() -> None:
    store = MemoryStore()
    model = ScriptedModel([assistant(ToolCall("c1", "transfer", {"amount": 5})), "Too late."])
    agent = Agent(model, tools=[transfer], store=store, name="a", approval_timeout_ms=50)
    async with working(agent, store):
        await agent.submit("Pay", session=SESSION)
        assert (await until(store, ended(1))).outcomes == {"completed": 1}
    assert [message.text for message in await messages(store)][-1] == "Too late."


async def test_a_scheduled_prompt_is_not_delivered_before_its_time() -> None:
    store = MemoryStore()
    agent = made(["Now.", "Later."], store=store)
    due = store.environment.now() + timedelta(seconds=0.3)
    job = await agent.submit("Later?", session=SESSION, at=due)
    assert (await agent.run("Now?", session=SESSION)).output == "Now."
    async with working(agent, store):
        await until(store, ended(1))
    texts = [message.text for message in await messages(store)]
    assert texts == ["Now?", "Now.", "Later?", "Later."]
    assert job.not_before == due


async def test_a_stopping_worker_completes_the_step_and_hands_the_run_over() -> None:
    store, waiting = MemoryStore(), Waiting()
    agent = made([assistant(ToolCall("c1", "wait", {})), "Done."], waiting.tool, store=store)
    await agent.submit("Go", session=SESSION)
    async with working(agent, store) as first:
        await within(waiting.started.wait())
        first.stop()
        waiting.proceed.set()
    status = await StoreQueue(store).status()
    assert (status.waiting, status.running, status.outcomes) == (1, (), {})
    assert "run_ended" not in await kinds(store)
    async with working(made(["Done."], waiting.tool, store=store), store):
        await until(store, ended(1))
    assert [message.text for message in await messages(store)][-1] == "Done."
    assert waiting.runs == 1
    await check_session(store)


async def test_a_step_that_takes_too_long_is_interrupted_when_the_worker_stops() -> None:
    store = MemoryStore()
    model = PausingModel([assistant("The answer is long.")], after=3)
    agent = made(model, store=store)
    await agent.submit("Go", session=SESSION)
    async with working(agent, store, drain_s=0.05):
        await within(model.reached.wait())
    assert (await StoreQueue(store).status()).waiting == 1
    async with working(made(["The answer is long."], store=store), store):
        await until(store, ended(1))
    assert [message.text for message in await messages(store)] == ["Go", "The answer is long."]


async def test_a_session_that_is_in_use_is_tried_again() -> None:
    store = MemoryStore()
    model = PausingModel(["First.", "Second."], after=1)
    agent = made(model, store=store)
    async with agent.stream("One", session=SESSION) as run:
        await within(model.reached.wait())
        await agent.submit("Two", session=SESSION)
        async with working(agent, store):
            await until(store, lambda status: status.scheduled == 1)
            model.proceed.set()
            await within(run.wait())
            await until(store, ended(1))
    assert [message.text for message in await messages(store)] == ["One", "First.", "Two", "Second."]


async def test_cancelling_withdraws_what_waits_and_ends_what_runs() -> None:
    store, waiting = MemoryStore(), Waiting()
    agent = made([assistant(ToolCall("c1", "wait", {}))], waiting.tool, store=store)
    queue = StoreQueue(store)
    await agent.submit("Never mind", session="waits")
    assert await cancel_run(store, queue, "waits")
    assert not await cancel_run(store, queue, "waits")
    await agent.submit("Go", session=SESSION)
    async with working(agent, store):
        await within(waiting.started.wait())
        assert await cancel_run(store, queue, SESSION, reason="changed my mind")
        status = await until(store, lambda status: not status.running and not status.waiting)
    assert status.outcomes["aborted"] >= 2
    assert (await kinds(store))[-1] == "run_ended"
    assert await messages(store, "waits") == []
    assert (await agent.resume(SESSION)).status is AgentStatus.ABORTED


async def test_runs_that_fail_and_user_code_that_raises_end_the_job() -> None:
    store = MemoryStore()

    def broken(_: Sequence[Message]) -> ScriptedResponse:
        return Failed(ErrorCode.AUTHENTICATION, "no key")

    agent = made([broken], store=store)

    def instructions(_: Any) -> str:
        raise RuntimeError("bug")

    buggy = Agent(ScriptedModel(["never"]), instructions=instructions, store=store, name="b")
    await agent.submit("Hi", session=SESSION)
    await buggy.submit("Hi", session="buggy")
    worker = Worker(StoreQueue(store), {"a": agent, "b": buggy}, store)
    task = asyncio.create_task(worker.run())
    status = await until(store, ended(2))
    worker.stop()
    await within(task)
    assert status.outcomes == {"failed": 2}


async def test_a_job_of_a_purged_session_fails() -> None:
    store = MemoryStore()
    agent = made([], store=store)
    await StoreQueue(store).enqueue(Job(id="1", session_id="gone", agent="a", queued_at=store.environment.now()))
    async with working(agent, store):
        assert (await until(store, ended(1))).outcomes == {"failed": 1}


class AwayStore(MemoryStore):
    """A store whose appends fail while it is away."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = False
        self.refused = asyncio.Event()

    async def _append(self, batch: Batch, expected_tail: str | None, permit: Permit) -> Lease | None:
        if self.is_away:
            self.refused.set()
            raise StoreError("away", retryable=True)
        return await super()._append(batch, expected_tail, permit)


async def test_a_store_that_is_away_for_a_while_is_survived(caplog: pytest.LogCaptureFixture) -> None:
    store = AwayStore()

    @tool
    async def leave() -> str:
        """Take the store away for a moment."""
        store.is_away = True
        asyncio.get_running_loop().call_later(0.2, setattr, store, "is_away", False)
        return "away"

    agent = made([assistant(ToolCall("c1", "leave", {})), "Back."], leave, store=store)
    await agent.submit("Go", session=SESSION)
    async with working(agent, store):
        await until(store, ended(1))
    assert [message.text for message in await messages(store)][-1] == "Back."
    assert store.refused.is_set()


async def test_a_worker_stops_although_the_store_is_away() -> None:
    store, waiting = AwayStore(), Waiting()
    agent = made([assistant(ToolCall("c1", "wait", {})), "Done."], waiting.tool, store=store)
    await agent.submit("Go", session=SESSION)
    async with working(agent, store, drain_s=0.1):
        await within(waiting.started.wait())
        store.is_away = True
    store.is_away = False
    assert [run.job.session_id for run in (await StoreQueue(store).status()).running] == [SESSION]  # until it is reaped


async def test_a_worker_that_was_taken_for_dead_begins_anew() -> None:
    store = MemoryStore()
    agent = made(["Fine."], store=store)
    queue = StoreQueue(store, ttl_s=0.3)
    worker = Worker(queue, {"a": agent}, store)
    task = asyncio.create_task(worker.run())
    await until(store, lambda status: len(status.workers) == 1)
    first = worker.info.id
    await store.acquire_lease(f"bartack:worker:{first}", "another", ttl=5.0, takeover=True)
    await until(store, lambda status: first in {info.id for info in status.workers} and len(status.workers) == 2)
    await agent.submit("Hi", session=SESSION)
    await until(store, ended(1))
    worker.stop()
    await within(task)
    assert worker.info.id != first


async def test_a_worker_whose_slots_are_taken_continues_the_runs_of_a_dead_one() -> None:
    store, waiting = MemoryStore(), Waiting()
    queue = StoreQueue(store)
    dead = worker_info("dead")
    agent = made([assistant(ToolCall("c1", "wait", {})), "Continued.", "New."], waiting.tool, store=store)
    await queue.heartbeat(dead)
    await agent.submit("Go", session="left behind")
    assert await queue.claim(dead, 0) is not None
    async with working(agent, store, slots=1):
        await agent.submit("Go", session="long")
        await within(waiting.started.wait())
        await agent.submit("Go", session="new")
        await queue.leave(dead)
        status = await until(store, ended(1))
        assert [run.job.session_id for run in status.running] == ["long"]
        assert status.waiting == 1
        waiting.proceed.set()
        await until(store, ended(3))
    assert [message.text for message in await messages(store, "left behind")] == ["Go", "Continued."]
