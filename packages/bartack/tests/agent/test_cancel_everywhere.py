"""Cancellation at every await of a run: nothing acknowledged is lost, nothing runs twice, the session stays usable.

The run is cancelled at its n-th suspension and after n steps of the event loop, for every possible n. Store, model and
tools yield to other tasks as often as they can, so that there are many suspensions.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from contextlib import aclosing
from typing import Any

import pytest

from bartack import ApprovalRequired, Message, MessageDelta, NotFound, ToolCall, assistant
from bartack.agent import Agent, RunResult
from bartack.models import ScriptedModel
from bartack.models.guard import GuardedStream
from bartack.nouns.entries import RunEnded
from bartack.nouns.requests import ModelRequest
from bartack.tools import Decision, ToolContext, tool
from tests.agent.kit import SESSION, SlowStore, check_session, make, starts, within


class SlowModel(ScriptedModel):
    def respond(self, request: ModelRequest) -> GuardedStream:
        stream = super().respond(request)
        return GuardedStream(self._slowed(stream), stream.run_id)

    async def _slowed(self, stream: GuardedStream) -> AsyncIterator[MessageDelta]:
        async with aclosing(stream):
            async for delta in stream:
                await asyncio.sleep(0)
                yield delta


class SlowApprover:
    async def decide(self, request: ApprovalRequired) -> Decision:
        await asyncio.sleep(0)
        return Decision("approve")


class CancelledAt:
    """A coroutine whose task is cancelled at its n-th suspension."""

    def __init__(self, work: Coroutine[Any, Any, Any], place: int) -> None:
        self._work = work
        self._left = place
        self.was_cancelled = False

    def __await__(self) -> Generator[Any, Any, Any]:
        inner = self._work.__await__()
        value: Any = None
        error: BaseException | None = None
        while True:
            try:
                waiting = inner.send(value) if error is None else inner.throw(error)
            except StopIteration as stop:
                return stop.value
            self._left -= 1
            if self._left == 0:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                self.was_cancelled = True
            value, error = None, None
            try:
                value = yield waiting
            except BaseException as thrown:  # noqa: BLE001 - passed on to the coroutine inside
                error = thrown


def scene() -> tuple[Agent, SlowStore, Counter[str]]:
    ran: Counter[str] = Counter()

    @tool
    async def pay(amount: int, context: ToolContext) -> str:
        """Transfer money."""
        ran[context.tool_call_id] += 1
        await asyncio.sleep(0)
        await context.progress("half")
        await asyncio.sleep(0)
        return f"paid {amount}"

    @tool(requires_approval=True)
    async def ask(amount: int, context: ToolContext) -> str:
        """Transfer a large sum."""
        ran[context.tool_call_id] += 1
        await asyncio.sleep(0)
        return f"paid {amount}"

    answers: list[Message | str] = [
        assistant("Paying.", ToolCall("c1", "pay", {"amount": 1}), ToolCall("c2", "pay", {"amount": 2})),
        assistant(ToolCall("c3", "ask", {"amount": 3})),
        "Done.",
    ]
    store = SlowStore()
    agent, _, _ = make(SlowModel(answers, chunk_chars=30), pay, ask, store=store, approver=SlowApprover())
    return agent, store, ran


async def check(agent: Agent, store: SlowStore, ran: Counter[str], *, resumed: bool) -> None:
    """Check what must hold after a cancellation anywhere."""
    await proceed(store, resumed=resumed)
    entries = await check_session(store)
    assert set(store.acknowledged) == {entry.id for entry in entries}
    assert max(starts(entries).values(), default=0) <= 1
    assert max(ran.values(), default=0) <= 1
    assert set(ran) <= set(starts(entries))
    assert isinstance(entries[-1].fact, RunEnded)


async def cancelled_at_await(place: int, *, resumed: bool) -> bool:
    """Cancel the run at its n-th suspension; False if it has fewer."""
    agent, store, ran = scene()
    work = CancelledAt(agent.run("Pay", session=SESSION), place)

    async def drive() -> Any:
        return await work

    task = asyncio.create_task(drive())
    await within(asyncio.wait({task}))
    if not work.was_cancelled:
        assert task.result().output == "Done."
        return False
    assert task.cancelled()
    await check(agent, store, ran, resumed=resumed)
    return True


async def streamed(agent: Agent) -> RunResult:
    """The result of a run whose events are read."""
    async with agent.stream("Pay", session=SESSION) as run:
        async for _ in run:
            pass
    return run.result


async def cancelled_while_streaming(place: int, *, resumed: bool) -> bool:
    """Cancel the reader of a run after n steps of the event loop."""
    return await cancelled_at_step(place, resumed=resumed, start=streamed)


async def cancelled_at_step(
    place: int,
    *,
    resumed: bool,
    start: Callable[[Agent], Coroutine[Any, Any, RunResult]] = lambda agent: agent.run("Pay", session=SESSION),
) -> bool:
    """Cancel the run after n steps of the event loop."""
    agent, store, ran = scene()
    task = asyncio.create_task(start(agent))
    for _ in range(place):
        await asyncio.sleep(0)
    if task.done():
        assert task.result().output == "Done."
        return False
    task.cancel()
    await within(asyncio.wait({task}))
    assert task.cancelled()
    await check(agent, store, ran, resumed=resumed)
    return True


async def proceed(store: SlowStore, *, resumed: bool) -> None:
    second_agent, _, _ = make(["Fine."], store=store)
    try:
        await store.tail_of(SESSION)
    except NotFound:  # cancelled before the session existed
        resumed = False
    if resumed:
        assert (await second_agent.resume(SESSION)).status in ("aborted", "completed")
    else:
        assert (await second_agent.run("And now?", session=SESSION)).output == "Fine."


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize(
    ("cancelled", "least"), [(cancelled_at_await, 20), (cancelled_at_step, 100), (cancelled_while_streaming, 100)]
)
async def test_a_session_survives_a_cancellation_anywhere(cancelled: Any, least: int, resumed: bool) -> None:
    place = 1
    while await cancelled(place, resumed=resumed):
        place += 1
    assert place > least


async def test_a_second_cancellation_does_not_interrupt_the_end_of_a_run() -> None:
    for place in range(5, 60, 3):
        agent, store, ran = scene()
        task = asyncio.create_task(agent.run("Pay", session=SESSION))
        for _ in range(place):
            await asyncio.sleep(0)
        task.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await within(task)
        entries = await check_session(store)
        assert isinstance(entries[-1].fact, RunEnded)
        assert max(ran.values(), default=0) <= 1
