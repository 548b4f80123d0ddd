"""Store failures: a failed write stops the run, and a second writer gets a conflict before any model call."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bartack import Conflict, Entry, ErrorCode, ToolCall, assistant
from bartack.agent import Agent, RunFinished
from bartack.models import ScriptedModel
from bartack.nouns import wire
from bartack.nouns.errors import StoreError
from bartack.store import Lease, MemoryStore, open_store
from bartack.store.append import Batch, Permit
from bartack.tools import tool
from tests.agent.kit import SESSION, PausingModel, Waiting, call, check_session, kinds, make, messages, within


class Breaking(MemoryStore):
    """A store whose disk is full from the n-th append on."""

    def __init__(self, good: int, **options: Any) -> None:
        super().__init__(**options)
        self.good = good

    async def _append(self, batch: Batch, expected_tail: str | None, permit: Permit) -> Lease | None:
        self.good -= 1
        if self.good < 0:
            raise StoreError("the disk is full")
        return await super()._append(batch, expected_tail, permit)


@pytest.mark.parametrize("good", range(7))
async def test_a_failed_write_stops_the_run_at_once(good: int) -> None:
    """D-5.7"""
    ran: list[str] = []

    @tool
    async def note(city: str) -> str:
        """Notes."""
        ran.append(city)
        return city

    store = Breaking(good)
    agent, _, model = make([assistant(ToolCall("c1", "note", {"city": "a"})), "Done."], note, store=store)
    if good == 6:
        assert (await agent.run("Go", session=SESSION)).output == "Done."
        return
    with pytest.raises(StoreError) as caught:
        await within(agent.run("Go", session=SESSION))
    assert caught.value.code is ErrorCode.STORAGE_FAILED
    # 0: header, run_started and the prompt, 1: an answer, 2: a start, 3: its result, 4: an answer, 5: the end
    assert len(model.calls) == {0: 0, 1: 1, 2: 1, 3: 1, 4: 2, 5: 2}[good]
    assert len(ran) == (1 if good >= 3 else 0)
    store.good = 100
    if good >= 1:
        again, _, _ = make(["Done.", "Done."], note, store=store)
        assert (await again.resume(SESSION)).output == "Done."
        assert len(ran) == (1 if good >= 2 else 0)
        await check_session(store)


class Picky(MemoryStore):
    """Counts appends; a result for call c2 cannot be stored, whatever it is stored with."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.appended: list[list[str]] = []
        self.refuses: str | None = None

    async def _append(self, batch: Batch, expected_tail: str | None, permit: Permit) -> Lease | None:
        if self.refuses in batch.calls:
            raise StoreError("cannot store this")
        self.appended.append([type(wire.decode(Entry, row.text).fact).__name__ for row in batch.rows])
        return await super()._append(batch, expected_tail, permit)


async def test_calls_that_start_together_share_a_commit() -> None:
    """An append waits for the disk, and four in a row would delay the last call by three."""
    store = Picky()
    agent, _, _ = make([assistant(*[call(f"c{number}") for number in range(4)]), "Done."], store=store)
    assert (await agent.run("Go", session=SESSION)).output == "Done."
    assert ["ToolStarted"] * 4 in store.appended
    assert [name for names in store.appended for name in names].count("Message") == 7
    await check_session(store)


async def test_a_result_that_cannot_be_stored_takes_no_other_with_it() -> None:
    store = Picky()
    store.refuses = "c2"
    agent, _, _ = make([assistant(call("c1"), call("c2"), call("c3")), "Done."], store=store)
    with pytest.raises(StoreError, match="cannot store this"):
        await within(agent.run("Go", session=SESSION))
    stored = [part.tool_call_id for message in await messages(store) for part in message.tool_results]
    assert stored == ["c1"]
    store.refuses = None
    again, _, _ = make(["Done."], store=store)
    assert (await again.resume(SESSION)).output == "Done."
    await check_session(store)


async def test_a_failed_write_is_raised_to_the_reader_of_the_events() -> None:
    store = Breaking(1)
    agent, _, _ = make(["Done."], store=store)
    run = agent.stream("Go", session=SESSION)
    events = []

    async def read() -> None:
        async with run:
            async for event in run:
                events.append(event)

    with pytest.raises(StoreError):
        await within(read())
    assert isinstance(events[-1], RunFinished)
    assert events[-1].result.status == "failed"


# -- two runs at once


async def test_a_second_run_on_a_session_gets_a_conflict_before_any_model_call() -> None:
    model = PausingModel(["A long answer."])
    agent, store, _ = make(model)
    second_agent, _, other_model = make(["never"], store=store)
    async with agent.stream("First", session=SESSION) as run:
        await within(model.reached.wait())
        for second in (agent, second_agent):
            with pytest.raises(Conflict):
                await within(second.run("Second", session=SESSION))
        assert other_model.calls == []
        model.proceed.set()
        assert (await within(run.wait())).output == "A long answer."
    assert [message.text for message in await messages(store)] == ["First", "A long answer."]
    await check_session(store)
    assert (await within(second_agent.run("Third", session=SESSION))).message is not None


async def test_of_many_runs_that_start_together_one_proceeds() -> None:
    environment_store = MemoryStore()
    agents = [make(["Mine."], store=environment_store) for _ in range(8)]
    outcomes = await asyncio.gather(
        *(agent.run(f"by {number}", session=SESSION) for number, (agent, _, _) in enumerate(agents)),
        return_exceptions=True,
    )
    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 7
    assert sum(len(model.calls) for _, _, model in agents) == 1
    assert (await kinds(environment_store)).count("run_started") == 1


@pytest.mark.parametrize("kind", ["sqlite:", "jsonl:"])
async def test_two_programs_can_use_one_session_in_turn(kind: str, tmp_path: Path) -> None:
    mine, theirs = [await open_store(f"{kind}{tmp_path / 'sessions'}") for _ in range(2)]
    model = PausingModel(["A long answer."])
    agent = Agent(model, store=mine)
    other_model = ScriptedModel(["Next."])
    second_agent = Agent(other_model, store=theirs)
    async with agent.stream("First", session=SESSION) as run:
        await within(model.reached.wait())
        with pytest.raises(Conflict):
            await within(second_agent.run("Second", session=SESSION))
        assert other_model.calls == []
        model.proceed.set()
        assert (await within(run.wait())).output == "A long answer."
    assert (await within(second_agent.run("Third", session=SESSION))).output == "Next."
    assert [message.text for message in await messages(mine)] == ["First", "A long answer.", "Third", "Next."]
    await check_session(mine)
    await mine.close()
    await theirs.close()


async def test_a_lease_is_renewed_while_a_tool_runs() -> None:
    store = MemoryStore()
    waiting = Waiting()
    agent, _, _ = make([assistant(ToolCall("c1", "wait", {})), "Done."], waiting.tool, store=store, lease_s=3)
    second_agent, _, _ = make(["never"], store=store)
    task = asyncio.create_task(agent.run("Go", session=SESSION))
    await within(waiting.started.wait())
    first = await store.lease_of(SESSION)
    assert first is not None
    await within(_renewed(store, first))
    with pytest.raises(Conflict):
        await second_agent.run("Now?", session=SESSION)
    waiting.proceed.set()
    assert (await within(task)).output == "Done."


async def _renewed(store: MemoryStore, first: Lease) -> None:
    """Returns when the lease would have expired if it had not been renewed."""
    while (lease := await store.lease_of(SESSION)) is not None and first.expires_at > datetime.now(UTC):
        assert lease.epoch == first.epoch
        await asyncio.sleep(0.05)
    assert lease is not None
    assert lease.expires_at > first.expires_at


async def test_the_lease_is_released_however_a_run_ends() -> None:
    agent, store, _ = make(["x", assistant(call("c1", "transfer", amount=1))])
    await agent.run("a", session=SESSION)
    await store.release_lease(await store.acquire_lease(SESSION, "me"))
    await agent.run("b", session=SESSION)
    await store.release_lease(await store.acquire_lease(SESSION, "me"))
    await agent.resume(SESSION)
    await store.acquire_lease(SESSION, "me")


async def test_a_run_ends_when_its_file_was_truncated_from_outside(tmp_path: Path) -> None:
    store = await open_store(f"jsonl:{tmp_path}")
    waiting = Waiting()
    agent, _, _ = make([assistant(ToolCall("c1", "wait", {})), "Done."], waiting.tool, store=store)
    run = asyncio.create_task(agent.run("Go", session=SESSION))
    await within(waiting.started.wait())
    path = tmp_path / f"{SESSION}.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-2]))
    waiting.proceed.set()
    with pytest.raises(StoreError, match="is lost") as caught:
        await within(run)
    assert caught.value.code is ErrorCode.STORAGE_CORRUPT
    await store.close()


class Forgetful(MemoryStore):
    """A store that loses the entries after the third one when it is told to."""

    forgets = False

    async def _append(self, batch: Batch, expected_tail: str | None, permit: Permit) -> Lease | None:
        if self.forgets:
            raise Conflict("The last entry is another one.", tail=(await self.entries(SESSION))[2].id)
        return await super()._append(batch, expected_tail, permit)


async def test_a_conflict_that_reading_again_does_not_explain_ends_the_run() -> None:
    store = Forgetful()
    waiting = Waiting()
    agent, _, _ = make([assistant(ToolCall("c1", "wait", {})), "Done."], waiting.tool, store=store)
    run = asyncio.create_task(agent.run("Go", session=SESSION))
    await within(waiting.started.wait())
    store.forgets = True
    waiting.proceed.set()
    with pytest.raises(StoreError, match="has lost entries") as caught:
        await within(run)
    assert caught.value.code is ErrorCode.STORAGE_CORRUPT
