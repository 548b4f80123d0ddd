"""Whatever user code raises, also what is no `Exception`, the run records its end and releases the session."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from bartack import Message, MessageDelta, ToolCall
from bartack.agent import Agent, Hooks, RunResult
from bartack.environment import Environment
from bartack.models.scripted import ScriptedModel
from bartack.nouns.deltas import Start
from bartack.nouns.entries import ApprovalRequired
from bartack.nouns.errors import ErrorCode
from bartack.nouns.requests import ModelRequest
from bartack.nouns.tables import AgentStatus
from bartack.session.decisions import Decision
from bartack.store import MemoryStore, SessionStore
from bartack.tools import ToolDefinition, always, tool
from tests.agent.kit import SESSION, call, check_session, ended, kinds, make, results, within


class Panic(BaseException):
    """What an extension written in Rust raises when it panics."""


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


async def is_free(store: SessionStore) -> bool:
    """Whether nobody holds the session."""
    await store.release_lease(await store.acquire_lease(SESSION, "test", 1.0))
    return True


def failing_tool(error: BaseException, *, is_async: bool) -> ToolDefinition:
    if is_async:

        @tool(name="break")
        async def broken() -> str:
            """Break."""
            raise error

        return broken

    @tool(name="break")
    def broken_too() -> str:
        """Break."""
        raise error

    return broken_too


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("error", [Panic("index"), GeneratorExit("odd"), SystemExit(3), Unprintable()])
async def test_a_tool_that_raises_anything_has_an_error_result_and_the_run_continues(
    error: BaseException, is_async: bool
) -> None:
    agent, store, _ = make(
        [Message("assistant", (ToolCall("c1", "break", {}),)), "Done."], failing_tool(error, is_async=is_async)
    )
    result: RunResult[Any] = await within(agent.run("Go", session=SESSION), 10)
    assert result.status is AgentStatus.COMPLETED
    content = (await results(store))["c1"].content
    assert isinstance(content, str)
    assert type(error).__name__ in content
    assert await is_free(store)
    await check_session(store)


class PanickingModel(ScriptedModel):
    def __init__(self, error: BaseException, *, after: int) -> None:
        super().__init__([])
        self._error, self._after = error, after

    async def _panicking(self, request: ModelRequest) -> AsyncIterator[MessageDelta]:
        for _ in range(self._after):
            yield MessageDelta(request.metadata.run_id or "", 0, Start("m", "r"), Environment().now())
        raise self._error

    def respond(self, request: ModelRequest) -> Any:
        return self._panicking(request)


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("error", [Panic("index"), SystemExit(3), Unprintable()])
async def test_a_model_that_raises_anything_fails_the_run(error: BaseException, after: int) -> None:
    agent, store, _ = make(PanickingModel(error, after=after))
    result = await within(agent.run("Go", session=SESSION), 10)
    assert result.error is not None
    assert result.error.error_code is ErrorCode.PROVIDER_ERROR
    assert (await ended(store)).status == "failed"
    assert await is_free(store)


async def _panic(*_: Any) -> Any:
    raise Panic("hook")


@pytest.mark.parametrize("hook", ["before_model", "after_model", "output_validator"])
async def test_a_panic_in_a_hook_is_raised_after_the_end_was_recorded(hook: str) -> None:
    options: dict[str, Any] = {hook: _panic}
    if hook != "output_validator":
        options = {"hooks": Hooks(**options)}
    agent, store, _ = make(["Hello."], **options)
    with pytest.raises(Panic):
        await within(agent.run("Go", session=SESSION), 10)
    assert (await ended(store)).status == "failed"
    assert await is_free(store)


@pytest.mark.parametrize("error", [Panic("index"), SystemExit(3), Unprintable()])
@pytest.mark.parametrize("place", ["before_tool", "after_tool", "approver"])
async def test_a_panic_around_a_tool_call_is_its_error_result(place: str, error: BaseException) -> None:
    class Broken:
        async def decide(self, request: ApprovalRequired) -> Decision | None:
            raise error

    async def broken(*_: Any) -> Any:
        raise error

    options: dict[str, Any] = {place: broken}
    options = {"approver": Broken(), "approval": always} if place == "approver" else {"hooks": Hooks(**options)}
    agent, store, _ = make([Message("assistant", (call("c1"),)), "Done."], **options)
    result = await within(agent.run("Go", session=SESSION), 10)
    assert result.status is AgentStatus.COMPLETED
    assert (await results(store))["c1"].is_error
    assert await is_free(store)


def test_a_keyboard_interrupt_in_a_model_ends_the_program_and_the_run() -> None:
    store = MemoryStore()

    async def main() -> None:
        await Agent(PanickingModel(KeyboardInterrupt(), after=1), store=store).run("Go", session=SESSION)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())

    async def check() -> None:
        assert (await ended(store)).status == "aborted"
        assert await is_free(store)

    asyncio.run(check())


async def test_a_fault_of_the_run_itself_does_not_keep_the_lease_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, store, _ = make(["Hello."], store=MemoryStore())

    def fail(*_: Any) -> Callable[..., Any]:
        raise Panic("inside")

    monkeypatch.setattr("bartack.agent.loop.stopped_results", fail)
    before = asyncio.all_tasks()
    with pytest.raises(Panic):
        await within(agent.run("Go", session=SESSION), 10)
    async with asyncio.timeout(60):
        while asyncio.all_tasks() != before:  # noqa: ASYNC110 - the last renewal is ending
            await asyncio.sleep(0.01)
    assert "run_ended" not in await kinds(store)
