"""What an agent opens on first use: one of each, whoever comes first, and all of it is closed."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from bartack import ScriptedModel
from bartack.agent import Agent, resources
from bartack.nouns.errors import StoreError
from bartack.store import MemoryStore, SessionStore, open_store
from bartack.tools import LocalRuntime, ToolDefinition, tool
from tests.agent.kit import within


@tool
async def echo(text: str) -> str:
    """Return the text."""
    return text


class Opened:
    """Counts the stores that are opened through it, which takes until the gate is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stores: list[SessionStore] = []
        self.closed: list[SessionStore] = []
        self.is_closing = asyncio.Event()
        self.has_begun = asyncio.Event()
        self.gate = asyncio.Event()
        self.failures = 0
        monkeypatch.setattr(resources, "open_store", self.open)

    async def open(self, address: Any, **options: Any) -> SessionStore:
        self.has_begun.set()
        await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise StoreError("The disk is full.")
        store = await open_store(address, **options)
        close = store.close

        async def close_and_note() -> None:
            self.closed.append(store)
            self.is_closing.set()
            await close()

        store.close = close_and_note  # type: ignore[method-assign]
        self.stores.append(store)
        return store


@pytest.fixture
async def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    return Opened(monkeypatch)


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def echoing(runs: int = 1) -> ScriptedModel:
    return ScriptedModel(["Done."] * runs)


async def test_runs_that_start_together_share_one_store(tmp_path: Path) -> None:
    threads, descriptors = threading.active_count(), open_descriptors()
    agent = Agent(echoing(50), store=f"sqlite:{tmp_path / 's.db'}")
    outcomes = await asyncio.gather(*(agent.run("Go", session=f"s{number}") for number in range(50)))
    assert {result.output for result in outcomes} == {"Done."}
    assert threading.active_count() - threads < 20  # one store, and the event loop's own workers
    assert open_descriptors() - descriptors < 30
    await agent.close()
    assert open_descriptors() - descriptors < 3


async def test_a_cancelled_run_does_not_take_the_store_from_the_others(tmp_path: Path, opened: Opened) -> None:
    async with Agent(echoing(2), store=tmp_path / "s.db") as agent:
        first, second = (asyncio.create_task(agent.run("Go", session=name)) for name in "ab")
        await opened.has_begun.wait()
        first.cancel()
        await asyncio.sleep(0)
        opened.gate.set()
        assert (await within(second)).output == "Done."
        with pytest.raises(asyncio.CancelledError):
            await first
    assert len(opened.stores) == len(opened.closed) == 1


async def test_a_store_that_cannot_be_opened_is_an_error_for_all_and_then_tried_again(
    tmp_path: Path, opened: Opened
) -> None:
    opened.failures = 1
    opened.gate.set()
    async with Agent(echoing(), store=tmp_path / "s.db") as agent:
        errors = await asyncio.gather(*(agent.run("Go", session=name) for name in "abc"), return_exceptions=True)
        assert [str(error) for error in errors] == ["The disk is full."] * 3
        assert (await agent.run("Go", session="a")).output == "Done."


async def test_closing_waits_for_a_store_that_is_being_opened(tmp_path: Path, opened: Opened) -> None:
    agent = Agent(echoing(), store=tmp_path / "s.db")
    opening = asyncio.create_task(agent._store.open("s"))
    await opened.has_begun.wait()
    closing = asyncio.create_task(agent.close())
    await asyncio.sleep(0)
    opened.gate.set()
    await within(closing)
    await opening
    assert opened.closed == opened.stores != []


async def test_a_store_that_is_opened_during_the_close_is_closed_by_the_next(tmp_path: Path, opened: Opened) -> None:
    opened.gate.set()
    agent = Agent(echoing(2), store=tmp_path / "s.db")
    await agent.run("Go", session="a")
    closing = asyncio.create_task(agent.close())
    await opened.is_closing.wait()
    assert (await agent.run("Go", session="b")).output == "Done."
    await closing
    await agent.close()
    assert len(opened.stores) == 2
    assert opened.closed == opened.stores


class Door:
    """A toolset and a runtime alike that opens a new connection whenever it has none, without regard for others."""

    name = "door"
    hints = None

    def __init__(self) -> None:
        self.connection: object | None = None
        self.opened = self.closed = 0

    @property
    def tools(self) -> tuple[ToolDefinition, ...]:
        return (echo,) if self.connection else ()

    async def open(self) -> None:
        if self.connection is None:
            await asyncio.sleep(0.01)
            self.opened += 1
            self.connection = object()

    async def close(self) -> None:
        self.connection = None
        self.closed += 1

    def problem(self, tool_name: str) -> str | None:
        return None


class SlowRuntime(LocalRuntime):
    """A runtime that takes time to connect."""

    connected = 0

    async def connect(self) -> None:
        await asyncio.sleep(0.01)
        self.connected += 1
        await super().connect()


async def test_runs_that_start_together_open_a_toolset_and_connect_a_runtime_once(tmp_path: Path) -> None:
    door, runtime = Door(), SlowRuntime(tmp_path)
    agent = Agent(echoing(20), tools=[door], runtime=runtime, store=MemoryStore())
    await asyncio.gather(*(agent.run("Go") for _ in range(20)))
    assert (door.opened, runtime.connected) == (1, 1)
    await agent.close()
    assert (door.closed, runtime.status) == (1, "closed")


async def test_runs_that_name_the_same_model_share_it_until_the_agent_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connected: list[ScriptedModel] = []
    closed: list[str] = []

    def connect(name: str, **options: Any) -> ScriptedModel:
        model = ScriptedModel(["Done."] * 3, model_id=name)

        async def close() -> None:
            closed.append(name)

        model.aclose = close  # type: ignore[method-assign]
        connected.append(model)
        return model

    monkeypatch.setattr(resources, "connect", connect)
    agent = Agent("test:own", store=MemoryStore())
    await asyncio.gather(*(agent.run("Go", model="test:other") for _ in range(3)))
    assert [model.config.model_id for model in connected] == ["test:own", "test:other"]
    await agent.close()
    assert sorted(closed) == ["test:other", "test:own"]
    await agent.run("Go", model="test:other")  # with a new one
    assert len(connected) == 3


async def test_everything_is_closed_even_if_something_fails_to_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stuck(Door):
        name = "stuck"

        async def close(self) -> None:
            raise OSError("stuck")

    door, runtime = Door(), LocalRuntime(tmp_path)
    store = await open_store(tmp_path / "s.db")
    agent = Agent(echoing(), tools=[Stuck(), door], runtime=runtime, store=tmp_path / "s.db")
    await agent.run("Go", session="s")
    with pytest.raises(OSError, match="stuck"):
        await agent.close()
    assert (door.closed, runtime.status, agent._store._opened) == (1, "closed", None)
    await store.close()
