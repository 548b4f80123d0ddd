"""`ToolExecutor`: validation, recording, execution and results. Time-outs and stopping are in test_stopping.py."""

import asyncio
import contextvars
import threading
from typing import Any

import pytest

from bartack import ErrorCode, ToolCall, ToolError, ToolResult, TryAgain, assistant, tool_message
from bartack.environment import Environment
from bartack.nouns import wire
from bartack.nouns.entries import ToolProgress, ToolStarted
from bartack.nouns.messages import Message
from bartack.nouns.tool_states import Completed, Errored, Running
from bartack.session.run_state import OpenCall
from bartack.tools import ToolContext, ToolDefinition, ToolOutput, tool
from tests.sample_session import chain
from tests.tools.rounds import Bench, Log, call, open_calls

caller_value = contextvars.ContextVar("seen", default="nothing")


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
def thread_name() -> str:
    """Where it runs."""
    return f"{threading.current_thread().name} {threading.current_thread().daemon} {caller_value.get()}"


async def test_a_call_is_started_executed_and_answered() -> None:
    """000-7.3"""
    bench = Bench(add)
    result = await bench.one("add", a=1, b=2)
    assert result.content == "3"
    assert not result.is_error
    assert bench.log.kinds == ["tool_started", "message"]
    assert bench.log.facts[0] == ToolStarted(tool_call_id="c1", tool_name="add", arguments={"a": 1, "b": 2}, attempt=1)
    assert [type(state) for _, state in bench.log.states] == [Running, Completed]
    assert result.time is not None
    assert result.time.start is not None
    assert result.time.end is not None
    assert result.time.start < result.time.end


async def test_a_regular_function_runs_in_a_thread_with_the_callers_context() -> None:
    caller_value.set("the caller's")
    result = await Bench(thread_name).one("thread_name")
    assert result.content == "bartack-tool-thread_name True the caller's"


async def test_the_result_for_an_unknown_tool_lists_the_available_ones() -> None:
    bench = Bench(add)
    result = await bench.one("subtract", a=1)
    assert result.error_code is ErrorCode.TOOL_NOT_FOUND
    assert "'subtract'" in str(result.content)
    assert "add" in str(result.content)
    assert bench.log.kinds == ["message"]
    assert isinstance(bench.log.states[-1][1], Errored)


async def test_invalid_arguments_give_an_error_result_and_nothing_runs() -> None:
    """D-3.3.3"""
    ran = []

    @tool
    def touch(x: int) -> None:
        ran.append(x)

    bench = Bench(touch)
    result = await bench.one("touch", x="one")
    assert result.error_code is ErrorCode.TOOL_BAD_ARGUMENTS
    assert "$.x" in str(result.content)
    assert "`int`" in str(result.content)
    assert ran == []
    assert bench.log.kinds == ["message"]


async def test_arguments_of_a_hand_written_definition_are_checked_by_its_schema() -> None:
    async def execute(values: dict[str, Any], ctx: ToolContext) -> str:
        return f"{values['x']} {ctx.tool_call_id}"

    schema = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
    bench = Bench(ToolDefinition(name="echo", description="", parameter_schema=schema, execute=execute))
    assert (await bench.run(call("echo", x="hi"))).results[0].content == "hi c1"
    bad = (await bench.run(call("echo", "c2", x=1))).results[0]
    assert bad.error_code is ErrorCode.TOOL_BAD_ARGUMENTS
    assert "expected string, got integer - at `$.x`" in str(bad.content)


async def test_an_argument_reader_that_raises_refuses_the_call() -> None:
    def read(arguments: dict[str, Any]) -> dict[str, Any]:
        raise KeyError("gone")

    definition = ToolDefinition(name="x", description="", parameter_schema={}, read=read, execute=lambda v, c: "ran")
    result = await Bench(definition).one("x")
    assert result.error_code is ErrorCode.TOOL_BAD_ARGUMENTS
    assert "KeyError" in str(result.content)


async def test_an_exception_is_reported_with_its_type_and_a_tool_error_verbatim() -> None:
    @tool
    async def divide(a: int, b: int) -> float:
        return a / b

    @tool
    def refuse() -> None:
        raise ToolError("not on Sundays")

    @tool
    async def leave() -> None:
        raise SystemExit(3)

    bench = Bench(divide, refuse, leave)
    outcome = await bench.run(call("divide", "c1", a=1, b=0), call("refuse", "c2"), call("leave", "c3"))
    assert [result.error_code for result in outcome.results] == [ErrorCode.TOOL_FAILED] * 3
    assert [result.content for result in outcome.results] == [
        "ZeroDivisionError: division by zero",
        "not on Sundays",
        "SystemExit: 3",
    ]


async def test_a_very_long_exception_is_truncated() -> None:
    @tool
    def shout() -> None:
        raise ValueError("x" * 100_000)

    assert len(str((await Bench(shout).one("shout")).content)) < 5_000


# -- several calls


async def test_calls_run_in_parallel_and_results_are_in_call_order() -> None:
    barrier = asyncio.Barrier(2)

    @tool
    async def meet(name: str, naps: int) -> str:
        await asyncio.wait_for(barrier.wait(), 2)  # passes only if the other call runs too
        for _ in range(naps):
            await asyncio.sleep(0)
        return name

    bench = Bench(meet)
    outcome = await bench.run(call("meet", "c1", name="slow", naps=20), call("meet", "c2", name="fast", naps=0))
    assert [result.content for result in outcome.results] == ["slow", "fast"]
    assert [result.content for result in bench.log.results] == ["fast", "slow"]  # recorded in the order of completion


@pytest.mark.parametrize(("limit", "peak_allowed"), [(1, 1), (2, 2), (None, 5)])
async def test_max_parallel_limits_how_many_run_at_once(limit: int | None, peak_allowed: int) -> None:
    running, peak = 0, 0

    @tool
    async def work() -> None:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0.01)
        running -= 1

    await Bench(work, max_parallel=limit).run(*(call("work", f"c{n}") for n in range(5)))
    assert peak == peak_allowed


async def test_a_sequential_tool_runs_alone_and_in_order() -> None:
    events: list[str] = []

    async def work(name: str) -> None:
        events.append(f"+{name}")
        await asyncio.sleep(0.005)
        events.append(f"-{name}")

    free, alone = tool(name="free")(work), tool(name="alone", sequential=True)(work)
    calls = [
        call(kind, name, name=name) for kind, name in [("free", "a"), ("free", "b"), ("alone", "c"), ("free", "d")]
    ]
    await Bench(free, alone).run(*calls)
    assert events[:2] == ["+a", "+b"]
    assert events[4:] == ["+c", "-c", "+d", "-d"]


async def test_003_7_1_9_a_failing_call_does_not_affect_its_siblings() -> None:
    @tool
    async def fail() -> None:
        failed.set()
        raise RuntimeError("boom")

    @tool
    async def outlast() -> str:
        await failed.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        return "completed"

    failed = asyncio.Event()
    bench = Bench(add, fail, thread_name, outlast)
    calls = [call("add", "c1", a=1, b=1), call("fail", "c2"), call("thread_name", "c3"), call("add", "c4", a="x", b=1)]
    outcome = await bench.run(*calls, call("outlast", "c5"))
    assert [result.tool_call_id for result in outcome.results] == ["c1", "c2", "c3", "c4", "c5"]
    assert [result.is_error for result in outcome.results] == [False, True, False, True, False]
    assert outcome.waiting == ()
    assert not outcome.aborted


async def test_a_round_without_calls_is_empty() -> None:
    assert (await Bench().run()).results == ()


# -- write-ahead


async def test_a_start_is_recorded_before_the_tool_runs() -> None:
    order: list[str] = []

    @tool
    async def act() -> str:
        order.append("ran")
        return "ok"

    class Slow(Log):
        async def record(self, fact: Any, **condition: Any) -> None:
            order.append(f"recording {fact.kind}")
            await asyncio.sleep(0.01)
            await super().record(fact, **condition)
            order.append(f"recorded {fact.kind}")

    await Bench(act, log=Slow()).one("act")
    assert order == [
        "recording tool_started",
        "recorded tool_started",
        "ran",
        "recording message",
        "recorded message",
    ]


async def test_d_5_7_nothing_runs_if_its_start_cannot_be_recorded() -> None:
    ran: list[str] = []

    @tool
    async def act(name: str) -> None:
        ran.append(name)

    log = Log(fails=lambda fact: isinstance(fact, ToolStarted))
    with pytest.raises(OSError, match="disk full"):
        await Bench(act, log=log, max_parallel=1).run(call("act", "c1", name="a"), call("act", "c2", name="b"))
    assert ran == []
    assert log.facts == []
    working = Bench(act)
    await working.run(call("act", name="a"))
    assert ran == ["a"]  # the control: it runs if its start is recorded


async def test_a_result_that_cannot_be_recorded_stops_the_siblings_and_raises() -> None:
    ended = asyncio.Event()

    @tool
    async def quick() -> None: ...

    @tool
    async def slow() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            ended.set()

    log = Log(fails=lambda fact: isinstance(fact, Message))
    with pytest.raises(OSError, match="disk full"):
        await Bench(quick, slow, log=log).run(call("quick", "c1"), call("slow", "c2"))
    assert ended.is_set()
    assert log.results == []


async def test_progress_that_cannot_be_recorded_stops_the_round_even_if_the_tool_hides_it() -> None:
    @tool
    async def stubborn(ctx: ToolContext) -> str:
        try:
            await ctx.progress("half")
        except Exception:  # noqa: BLE001 - what a careless tool does
            pass
        return "done"

    log = Log(fails=lambda fact: isinstance(fact, ToolProgress))
    with pytest.raises(OSError, match="disk full"):
        await Bench(stubborn, log=log).run(call("stubborn"))
    assert log.kinds == ["tool_started"]


# -- tool context


async def test_004_tool_definition_2_agent_and_runtime_are_available_if_declared() -> None:
    @tool(requires_agent=True, requires_runtime=True)
    async def both(ctx: ToolContext) -> str:
        return (
            f"{ctx.agent} {ctx.runtime} {ctx.run_id} {ctx.session_id} {ctx.tool_call_id} {ctx.tool_name} {ctx.attempt}"
        )

    @tool
    async def no_runtime(any_name: ToolContext) -> Any:
        return any_name.runtime

    @tool
    async def no_agent(any_name: ToolContext) -> Any:
        return any_name.agent

    bench = Bench(both, no_runtime, no_agent, agent="an agent", runtime="a runtime")
    outcome = await bench.run(call("both", "c1"), call("no_runtime", "c2"), call("no_agent", "c3"))
    assert outcome.results[0].content == "an agent a runtime r s c1 both 1"
    for result, missing in zip(outcome.results[1:], ("requires_runtime", "requires_agent"), strict=True):
        assert result.is_error
        assert missing in str(result.content)
    without = Bench(both)
    assert (await without.one("both")).error_code is ErrorCode.TOOL_NOT_RUN
    assert without.log.kinds == ["message"]


async def test_progress_is_recorded_and_changes_the_state() -> None:
    @tool
    async def dig(ctx: ToolContext) -> str:
        await ctx.progress("half", title="Digging", percent=50)
        await ctx.progress("more", depth=3)
        return "done"

    @tool
    def dig_in_a_thread(ctx: ToolContext) -> str:
        ctx.report("half", title="Digging", percent=50)
        ctx.report("more", depth=3)
        return "done"

    for digger in (dig, dig_in_a_thread):
        bench = Bench(digger)
        await bench.one(digger.name)
        assert bench.log.of(ToolProgress) == [
            ToolProgress(tool_call_id="c1", content="half", title="Digging", metadata={"percent": 50}),
            ToolProgress(tool_call_id="c1", content="more", metadata={"depth": 3}),
        ]
        final = bench.log.states[-1][1]
        assert isinstance(final, Completed)
        assert final.title == "Digging"
        assert final.metadata == {"percent": 50, "depth": 3}


async def test_concurrent_progress_reports_add_up() -> None:
    @tool
    async def dig(ctx: ToolContext) -> None:
        await asyncio.gather(ctx.progress("left", left=1), ctx.progress("right", right=2))

    bench = Bench(dig)
    await bench.one("dig")
    final = bench.log.states[-1][1]
    assert isinstance(final, Completed)
    assert final.metadata == {"left": 1, "right": 2}


async def test_a_report_that_the_tool_cancels_does_not_end_the_run() -> None:
    """A command that ends while its last output is being reported."""

    @tool
    async def dig(ctx: ToolContext) -> str:
        reporting = asyncio.create_task(ctx.progress("half"))
        await asyncio.sleep(0)
        reporting.cancel()
        await asyncio.gather(reporting, return_exceptions=True)
        return "done"

    assert (await Bench(dig).one("dig")).content == "done"


async def test_progress_that_is_not_json_fails_the_tool() -> None:
    @tool
    async def odd(ctx: ToolContext) -> None:
        await ctx.progress("half", thing=object())

    @tool
    async def waits_for_itself(ctx: ToolContext) -> None:
        ctx.report("half")

    bench = Bench(odd, waits_for_itself)
    outcome = await bench.run(call("odd", "c1"), call("waits_for_itself", "c2"))
    assert "must be JSON" in str(outcome.results[0].content)
    assert "await ctx.progress" in str(outcome.results[1].content)


# -- retries


class Flaky:
    def __init__(self, failures: int, error: Exception | None = None) -> None:
        self.left, self.error, self.attempts = failures, error or OSError("busy"), list[int]()

    def tool(self, **options: Any) -> ToolDefinition:
        @tool(name="flaky", **options)
        async def flaky(ctx: ToolContext) -> str:
            self.attempts.append(ctx.attempt)
            if self.left:
                self.left -= 1
                raise self.error
            return "ok"

        return flaky


async def test_a_failure_is_retried_if_declared_and_each_start_is_recorded() -> None:
    flaky = Flaky(2)
    bench = Bench(flaky.tool(retries=2))
    assert (await bench.one("flaky")).content == "ok"
    assert [started.attempt for started in bench.log.of(ToolStarted)] == flaky.attempts == [1, 2, 3]
    assert [type(state) for _, state in bench.log.states] == [Running, Completed]


async def test_the_last_failure_is_the_result() -> None:
    for retries in (0, 1):
        flaky = Flaky(5)
        result = await Bench(flaky.tool(retries=retries)).one("flaky")
        assert result.error_code is ErrorCode.TOOL_FAILED
        assert len(flaky.attempts) == retries + 1


@pytest.mark.parametrize(("retryable", "attempts"), [(False, 1), (True, 2)])
async def test_a_tool_error_is_retried_only_if_marked_retryable(retryable: bool, attempts: int) -> None:
    flaky = Flaky(1, ToolError("no", retryable=retryable))
    await Bench(flaky.tool(retries=3)).one("flaky")
    assert len(flaky.attempts) == attempts


# -- after a restart


async def test_d_5_9_a_call_with_a_stored_result_is_not_executed_again() -> None:
    bench = Bench(add)
    tool_call = call("add", a=1, b=1)
    started = ToolStarted(tool_call_id="c1", tool_name="add", arguments=tool_call.arguments)
    outcome = await bench.resume(open_calls(chain(assistant(tool_call), started, tool_message(ToolResult("c1", "2")))))
    assert outcome.results == ()
    assert bench.log.facts == []
    outcome = await bench.resume(open_calls(chain(assistant(tool_call))))
    assert [result.content for result in outcome.results] == ["2"]  # the control: without a result it is


async def test_d_5_8_1_a_started_call_is_not_executed_again_unless_idempotent() -> None:
    again = tool(name="again", idempotent=True)(lambda: "ran")
    bench = Bench(add, again)
    calls = call("add", "c1", a=1, b=1), call("again", "c2")
    starts = (
        ToolStarted(tool_call_id="c1", tool_name="add", arguments={"a": 1, "b": 1}),
        ToolStarted(tool_call_id="c2", tool_name="again", arguments={}, idempotent=True),
        ToolStarted(tool_call_id="c2", tool_name="again", arguments={}, idempotent=True, attempt=2),
    )
    outcome = await bench.resume(open_calls(chain(assistant(*calls), *starts)))
    assert [result.error_code for result in outcome.results] == [ErrorCode.TOOL_INTERRUPTED, None]
    assert [(fact.tool_call_id, fact.attempt) for fact in bench.log.of(ToolStarted)] == [("c2", 3)]


async def test_a_refused_call_gets_an_error_and_its_siblings_run() -> None:
    """D-3.3.3, D-3.6"""
    bench = Bench(add)
    calls = [call("add", f"c{number}", a=1, b=1) for number in range(3)]
    outcome = await bench.resume(
        [OpenCall(calls[0], truncated=True), OpenCall(calls[1], bad_args="unexpected end"), OpenCall(calls[2])]
    )
    assert [result.error_code for result in outcome.results] == [
        ErrorCode.TOOL_NOT_RUN,
        ErrorCode.TOOL_BAD_ARGUMENTS,
        None,
    ]
    assert "unexpected end" in str(outcome.results[1].content)
    assert [fact.tool_call_id for fact in bench.log.of(ToolStarted)] == ["c2"]


async def test_d_3_10_1_a_call_executed_by_the_provider_is_ignored() -> None:
    bench = Bench(add)
    outcome = await bench.run(ToolCall("c1", "add", {"a": 1, "b": 1}, executed_by="provider"))
    assert outcome.results == ()
    assert bench.log.facts == []


# -- hooks


async def test_before_tool_may_change_arguments_give_a_result_or_do_nothing() -> None:
    async def before(requested: ToolCall) -> ToolCall | ToolResult | None:
        match requested.tool_call_id:
            case "c1":
                return call("add", "c1", a=10, b=10)
            case "c2":
                return ToolResult("whatever", "from a cache")
            case "c3":
                raise RuntimeError("hook broke")
            case _:
                return None

    bench = Bench(add, before_tool=before)
    outcome = await bench.run(*(call("add", f"c{n}", a=1, b=1) for n in range(1, 5)))
    assert [result.content for result in outcome.results] == [
        "20",
        "from a cache",
        "The before_tool hook failed: RuntimeError: hook broke",
        "2",
    ]
    assert [result.tool_call_id for result in outcome.results] == ["c1", "c2", "c3", "c4"]
    assert bench.log.of(ToolStarted)[0].arguments == {"a": 10, "b": 10}


async def test_after_tool_may_change_the_result_which_is_hidden_if_the_hook_fails() -> None:
    async def after(call: ToolCall, result: ToolResult) -> ToolResult | None:
        if call.tool_call_id == "c2":
            raise RuntimeError("hook broke")
        if call.tool_call_id == "c3":
            return None
        return ToolResult("whatever", f"<{result.content}>")

    bench = Bench(add, after_tool=after)
    outcome = await bench.run(*(call("add", f"c{n}", a=1, b=1) for n in range(1, 4)))
    assert [result.content for result in outcome.results] == [
        "<2>",
        "The after_tool hook failed: RuntimeError: hook broke",
        "2",
    ]
    assert outcome.results[1].error_code is ErrorCode.TOOL_FAILED


@pytest.mark.parametrize("answer", ["text", {"a": 1}, False, 0])
async def test_a_hook_that_returns_something_else_is_reported_in_the_result(answer: Any) -> None:
    async def wrong(*_: Any) -> Any:
        return answer

    def not_async(*_: Any) -> Any:
        return None

    kind = type(answer).__name__
    result = await Bench(add, after_tool=wrong).one("add", a=1, b=1)
    assert result.content == f"The after_tool hook returned a value of type {kind} instead of a ToolResult or None."
    assert result.error_code is ErrorCode.TOOL_FAILED
    bench = Bench(add, before_tool=wrong)
    before = await bench.one("add", a=1, b=1)
    assert str(before.content).startswith(f"The before_tool hook returned a value of type {kind} instead of a ToolCall")
    assert before.error_code is ErrorCode.TOOL_NOT_RUN
    assert bench.log.of(ToolStarted) == []
    for bench in (Bench(add, after_tool=not_async), Bench(add, before_tool=not_async)):
        assert "hook failed: a hook must be a coroutine function (async def)" in str(
            (await bench.one("add", a=1, b=1)).content
        )


async def test_a_hook_may_return_a_result_that_cannot_be_stored_as_it_is() -> None:
    async def after(call: ToolCall, result: ToolResult) -> ToolResult:
        return ToolResult("whatever", {"n": float("nan")})

    result = await Bench(add, after_tool=after).one("add", a=1, b=1)
    assert result.is_error is False
    wire.encode(result)


async def test_a_tool_may_return_a_result_of_its_own() -> None:
    @tool(max_output_chars=10)
    async def report() -> ToolResult:
        return ToolResult("another call", "x" * 20, title="Report")

    result = await Bench(report).one("report")
    assert (result.tool_call_id, result.title, result.is_error) == ("c1", "Report", False)
    assert "10 of 20 characters omitted" in str(result.content)


async def test_a_tool_may_ask_the_model_to_try_again() -> None:
    @tool(retries=3)
    async def find(city: str) -> str:
        raise TryAgain(f"There is no {city}. Use the English name.")

    bench = Bench(find)
    result = await bench.one("find", city="Pariz")
    assert (result.content, result.is_error) == ("There is no Pariz. Use the English name.", True)
    assert result.error_code is ErrorCode.TOOL_FAILED
    assert len(bench.log.of(ToolStarted)) == 1  # the model tries again, not the tool


async def test_an_output_may_have_a_title_and_metadata_and_be_an_error() -> None:
    @tool
    async def report() -> ToolOutput:
        return ToolOutput("half done", title="Report", metadata={"n": 1}, is_error=True)

    bench = Bench(report)
    result = await bench.one("report")
    assert (result.content, result.title, result.metadata, result.is_error) == ("half done", "Report", {"n": 1}, True)
    assert isinstance(bench.log.states[-1][1], Errored)


async def test_an_unexpected_exception_is_raised_and_does_not_hang_the_other_calls() -> None:
    def broken() -> Any:
        raise LookupError("no clock")

    @tool
    async def sleep() -> None:
        await asyncio.sleep(30)

    bench = Bench(add, sleep, environment=Environment(now=broken))
    with pytest.raises(LookupError, match="no clock"):
        await asyncio.wait_for(bench.run(call("add", "c1", a=1, b=1), call("sleep", "c2")), 5)
