"""Tools that are ended: time-outs, stopping and cancellation, also of tools that do not cooperate."""

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from bartack import ErrorCode, assistant
from bartack.nouns.entries import ApprovalRequired, ToolProgress, ToolStarted
from bartack.nouns.tables import TOOL, ToolStatus
from bartack.nouns.tool_states import Errored
from bartack.session.tool_state import fold_tools
from bartack.tools import Decision, ToolContext, tool
from tests.sample_session import chain
from tests.tools.rounds import Bench, Log, call


@tool
async def sleep(ctx: ToolContext) -> None:
    """Sleep until cancelled."""
    await asyncio.sleep(30)


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    await asyncio.sleep(0)
    return a + b


class Uncooperative:
    """Tools that ignore their cancellation until the test releases them."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.late: list[str] = []

    def tools(self, **options: Any) -> Iterator[Any]:
        @tool(name="stubborn_task", **options)
        async def stubborn_task(ctx: ToolContext) -> str:
            while not self.free.is_set():
                try:
                    await asyncio.sleep(0.005)
                except asyncio.CancelledError:
                    pass
            try:
                await ctx.progress("still here")
            except Exception as error:  # noqa: BLE001 - noted for the test
                self.late.append(str(error))
            return "too late"

        @tool(name="stubborn_thread", **options)
        def stubborn_thread(ctx: ToolContext) -> str:
            self.free.wait(300)
            try:
                ctx.report("still here")
            except Exception as error:  # noqa: BLE001 - noted for the test
                self.late.append(str(error))
            return "too late"

        yield from (stubborn_task, stubborn_thread)


@pytest.mark.parametrize("declared", [True, False])
async def test_003_7_1_8_a_tool_that_runs_too_long_times_out(declared: bool) -> None:
    """003-7.1.8, D-4.6"""
    slow = tool(name="slow", timeout_ms=20 if declared else None)(sleep.function)
    bench = Bench(slow, timeout_ms=60_000 if declared else 20)
    result = await bench.one("slow")
    assert result.error_code is ErrorCode.TOOL_TIMEOUT
    assert result.content == "Timed out after 20 ms."
    assert isinstance(bench.log.states[-1][1], Errored)


@pytest.mark.parametrize("place", [0, 1], ids=["task", "thread"])
async def test_a_tool_that_ignores_its_cancellation_times_out_too(place: int) -> None:
    """D-4.6"""
    stubborn = Uncooperative()
    bench = Bench(list(stubborn.tools(timeout_ms=20))[place])
    started_at = time.monotonic()
    result = await bench.one("stubborn_task" if place == 0 else "stubborn_thread")
    assert time.monotonic() - started_at < 100
    assert result.error_code is ErrorCode.TOOL_TIMEOUT
    assert str(result.content).startswith("Timed out after 20 ms.")
    assert "still be running" in str(result.content)
    facts = list(bench.log.facts)
    stubborn.free.set()
    for _ in range(6000):
        await asyncio.sleep(0.005)
        if stubborn.late:
            break
    assert stubborn.late == ["The call has ended."]
    assert bench.log.facts == facts  # progress reported afterwards is not recorded


async def test_a_thread_can_check_whether_it_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    noticed = threading.Event()

    @tool(timeout_ms=20)
    def loop(ctx: ToolContext) -> None:
        while not ctx.cancelled:
            time.sleep(0.002)
        noticed.set()

    monkeypatch.setattr("bartack.tools.tool_round.GRACE_MS", 300_000)
    result = await Bench(loop).one("loop")
    assert result.error_code is ErrorCode.TOOL_TIMEOUT
    assert "still be running" not in str(result.content)
    assert noticed.is_set()


async def test_a_value_returned_after_the_time_limit_is_still_a_time_out() -> None:
    @tool(timeout_ms=10)
    async def slow() -> str:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            return "a value"
        return ""

    assert (await Bench(slow).one("slow")).error_code is ErrorCode.TOOL_TIMEOUT


@pytest.mark.parametrize(("idempotent", "starts"), [(True, 3), (False, 1)])
async def test_a_time_out_is_retried_only_for_an_idempotent_tool(idempotent: bool, starts: int) -> None:
    slow = tool(name="slow", timeout_ms=5, retries=2, idempotent=idempotent)(sleep.function)
    bench = Bench(slow)
    assert (await bench.one("slow")).error_code is ErrorCode.TOOL_TIMEOUT
    assert len(bench.log.of(ToolStarted)) == starts


async def test_a_tool_that_cancels_itself_has_failed_and_the_others_run() -> None:
    @tool
    async def give_up() -> None:
        raise asyncio.CancelledError

    outcome = await Bench(give_up, add).run(call("give_up", "c1"), call("add", "c2", a=1, b=1))
    assert [result.error_code for result in outcome.results] == [ErrorCode.TOOL_FAILED, None]


async def test_stopping_ends_what_runs_and_answers_every_call() -> None:
    reached = asyncio.Event()

    @tool
    async def reach() -> str:
        reached.set()
        await asyncio.sleep(30)
        return ""

    bench = Bench(sleep, reach, add, max_parallel=2)
    calls = [call("sleep", "c1"), call("reach", "c2"), call("add", "c3", a=1, b=1)]
    results = await bench.stopped(*calls, when=reached)
    assert [results[key].error_code for key in ("c1", "c2", "c3")] == [ErrorCode.TOOL_ABORTED] * 3
    assert [fact.tool_call_id for fact in bench.log.of(ToolStarted)] == ["c1", "c2"]
    assert results["c3"].content == "Aborted before the tool started."


async def test_a_call_stopped_before_its_start_does_not_run() -> None:
    at_once = asyncio.Event()
    at_once.set()
    bench = Bench(add)
    await bench.stopped(call("add", a=1, b=1), when=at_once)
    assert bench.log.of(ToolStarted) == []


async def test_a_tool_that_finishes_its_work_when_stopped_has_completed() -> None:
    @tool
    async def careful() -> str:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            return "the transfer went through"
        return ""

    results = await Bench(careful).stopped(call("careful"))
    assert results["c1"].content == "the transfer went through"


async def test_stopping_ends_the_delay_before_a_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bartack.tools.tool_round.RETRY_DELAY_MS", 60_000)

    @tool(retries=1)
    async def fail() -> None:
        raise OSError("busy")

    results = await Bench(fail).stopped(call("fail"))
    assert results["c1"].error_code is ErrorCode.TOOL_ABORTED


async def test_a_hook_that_hangs_does_not_delay_stopping() -> None:
    async def hang(*_: Any) -> Any:
        await asyncio.sleep(30)

    for bench in (Bench(add, before_tool=hang), Bench(add, after_tool=hang)):
        results = await bench.stopped(call("add", a=1, b=1))
        assert results["c1"].is_error


# -- cancellation at every await


@tool(requires_approval=True)
async def careful_work(ctx: ToolContext) -> str:
    """Work that reports progress."""
    await ctx.progress("half")
    await asyncio.sleep(0)
    return "done"


@tool(retries=1)
async def flaky(ctx: ToolContext) -> str:
    """Fails once."""
    await asyncio.sleep(0)
    if ctx.attempt == 1:
        raise OSError("busy")
    return "ok"


@tool
def in_a_thread() -> str:
    """A regular function."""
    return "threaded"


class Yes:
    async def decide(self, request: ApprovalRequired) -> Decision:
        await asyncio.sleep(0)
        return Decision("approve")


CALLS = (
    call("careful_work", "c1"),
    call("add", "c2", a=1, b=1),
    call("flaky", "c3"),
    call("in_a_thread", "c4"),
    call("nothing", "c5"),
    call("add", "c6", a="x", b=1),
)
TOOLS = (careful_work, add, flaky, in_a_thread)


def check_every_call_is_answered_once(log: Log) -> None:
    assert sorted(result.tool_call_id for result in log.results) == [call.tool_call_id for call in CALLS]
    for result in log.results:
        started = [fact for fact in log.of(ToolStarted) if fact.tool_call_id == result.tool_call_id]
        assert started or result.is_error
        later_facts = log.facts[
            next(n for n, fact in enumerate(log.facts) if getattr(fact, "tool_results", ()) == (result,)) :
        ]
        assert not [
            fact
            for fact in later_facts
            if isinstance(fact, ToolStarted | ToolProgress) and fact.tool_call_id == result.tool_call_id
        ]
    states = fold_tools(chain(assistant(*CALLS), *log.facts))
    assert {state.status for state in states.values()} <= {"completed", "error"}
    for tool_call in CALLS:
        status_before = ToolStatus.PENDING
        for status in [state.status for tool_call_id, state in log.states if tool_call_id == tool_call.tool_call_id]:
            assert status in TOOL[status_before].values()
            status_before = ToolStatus(status)
    last = {tool_call_id: state.status for tool_call_id, state in log.states}
    assert last == {tool_call_id: state.status for tool_call_id, state in states.items()}


async def steps_of_a_whole_run() -> int:
    """How many turns of the event loop the scripted run takes."""
    bench = Bench(*TOOLS, approver=Yes())
    running = asyncio.create_task(bench.run(*CALLS))
    steps = 0
    while not running.done():
        await asyncio.sleep(0)
        steps += 1
    check_every_call_is_answered_once(bench.log)
    assert [result.is_error for result in running.result().results] == [False, False, False, False, True, True]
    return min(steps, 200)  # a thread and a delay make the event loop spin


async def test_cancelled_at_any_moment_every_call_has_exactly_one_result() -> None:
    cancelled = 0
    for step in range(1, await steps_of_a_whole_run() + 1):
        for times in (1, 2):
            bench = Bench(*TOOLS, approver=Yes())
            running = asyncio.create_task(bench.run(*CALLS))
            for _ in range(step):
                await asyncio.sleep(0)
            for _ in range(times):  # the second comes while the first is being handled
                running.cancel()
                await asyncio.sleep(0)
            try:
                await running
            except asyncio.CancelledError:
                cancelled += 1
            check_every_call_is_answered_once(bench.log)
    assert cancelled > 20


async def test_a_cancellation_reaches_the_caller_under_a_time_limit() -> None:
    bench = Bench(sleep)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await bench.run(call("sleep"))
    assert [result.error_code for result in bench.log.results] == [ErrorCode.TOOL_ABORTED]


async def test_a_store_that_hangs_does_not_block_a_cancellation_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bartack.tools.executor._RECORDING_MS", 20)

    class Hanging(Log):
        async def record(self, fact: Any, **condition: Any) -> None:
            await asyncio.sleep(3600)

    bench = Bench(add, log=Hanging())
    running = asyncio.create_task(bench.run(call("add", a=1, b=1)))
    await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 300)


async def test_a_store_failure_during_a_cancellation_does_not_hide_it() -> None:
    bench = Bench(sleep, log=Log(fails=lambda fact: fact.kind == "message"))
    running = asyncio.create_task(bench.run(call("sleep")))
    await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
