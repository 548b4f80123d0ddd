"""Stopping a run at any moment: the answer so far is kept, running tools end, and every call gets a result."""

import asyncio

import pytest

from bartack import ApprovalRequired, ErrorCode, ToolCall, assistant
from bartack.agent import ApprovalRequested, DeltaReceived, LiveApprover, ToolChanged
from bartack.nouns.entries import StreamFailed
from bartack.nouns.tables import AgentStatus
from bartack.store import SessionStore
from tests.agent.kit import (
    SESSION,
    PausingModel,
    Waiting,
    call,
    check_session,
    ended,
    facts,
    kinds,
    make,
    messages,
    results,
    transfer,
    within,
)


async def check_next_turn(store: SessionStore) -> None:
    """Check that the next turn works."""
    await check_session(store)
    agent, _, _ = make(["Fine."], store=store)
    assert (await within(agent.run("And now?", session=SESSION))).output == "Fine."
    await check_session(store)


async def test_an_abort_in_a_stream_keeps_the_partial_answer() -> None:
    model = PausingModel([assistant("The answer is long.")], after=3)
    agent, store, _ = make(model)
    async with agent.stream("Go", session=SESSION) as run:
        await within(model.reached.wait())
        run.abort()
        result = await within(run.wait())
    assert (result.status, result.reason) == (AgentStatus.ABORTED, "user")
    partial = (await messages(store))[-1]
    assert partial.text == "The answ"
    assert partial.meta is not None
    assert partial.meta.aborted
    assert (await ended(store)).status == "aborted"
    await check_next_turn(store)


async def test_an_abort_inside_a_call_drops_it_and_answers_the_complete_ones() -> None:
    model = PausingModel([assistant("Hm", call("c1"), call("c2"))], after=9)
    agent, store, _ = make(model)
    async with agent.stream("Go", session=SESSION) as run:
        await within(model.reached.wait())
        run.abort()
    partial = next(message for message in await messages(store) if message.role == "assistant")
    assert [call.tool_call_id for call in partial.tool_calls] == ["c1"]
    assert (await results(store))["c1"].error_code is ErrorCode.TOOL_ABORTED
    assert "tool_started" not in await kinds(store)
    await check_next_turn(store)


async def test_an_abort_before_any_text_records_the_failed_call() -> None:
    model = PausingModel(["x"], after=1)
    agent, store, _ = make(model)
    async with agent.stream("Go", session=SESSION) as run:
        await within(model.reached.wait())
        run.abort()
    failed = next(fact for fact in await facts(store) if isinstance(fact, StreamFailed))
    assert failed.error.error_code is ErrorCode.ABORTED
    await check_next_turn(store)


async def test_an_abort_ends_a_running_tool() -> None:
    waiting = Waiting()
    agent, store, _ = make([assistant(ToolCall("c1", "wait", {}), ToolCall("c2", "wait", {}))], waiting.tool)
    async with agent.stream("Go", session=SESSION) as run:
        await within(waiting.started.wait())
        run.abort("enough")
        result = await within(run.wait())
    assert (result.status, result.reason) == (AgentStatus.ABORTED, "enough")
    assert waiting.was_cancelled
    assert {result.error_code for result in (await results(store)).values()} == {ErrorCode.TOOL_ABORTED}
    await check_next_turn(store)


async def test_an_abort_while_waiting_for_approval() -> None:
    agent, store, _ = make([assistant(call("c1", "transfer", amount=5))], transfer, approver=LiveApprover())
    async with agent.stream("Go", session=SESSION) as run:
        async for event in run:
            if isinstance(event, ApprovalRequested):
                assert run.status is AgentStatus.AWAITING_HUMAN
                run.abort()
    assert run.result.status is AgentStatus.ABORTED
    assert (await results(store))["c1"].error_code is ErrorCode.TOOL_ABORTED
    await check_next_turn(store)


async def test_an_abort_during_a_retry_delay() -> None:
    from bartack import Failed
    from bartack.agent import Retrying, RetryPolicy

    busy = Failed(ErrorCode.OVERLOADED, "busy", retryable=True, retry_after_ms=60_000)
    agent, store, _ = make([busy, "never"], retry=RetryPolicy())
    async with agent.stream("Go", session=SESSION) as run:
        async for event in run:
            if isinstance(event, Retrying):
                run.abort()
    assert run.result.status is AgentStatus.ABORTED
    await check_next_turn(store)


async def test_an_abort_before_the_run_does_anything() -> None:
    agent, store, model = make(["never"])
    async with agent.stream("Go", session=SESSION) as run:
        run.abort()
    assert run.result.status is AgentStatus.ABORTED
    assert model.calls == []
    await check_next_turn(store)


async def test_an_abort_after_the_end_changes_nothing() -> None:
    agent, store, _ = make(["Done."])
    async with agent.stream("Go", session=SESSION) as run:
        result = await run.wait()
        run.abort()
    assert result.output == "Done."
    await check_next_turn(store)


@pytest.mark.parametrize("in_own_task", [True, False])
async def test_cancelling_the_task_aborts_the_run_and_is_not_swallowed(in_own_task: bool) -> None:
    waiting = Waiting()
    agent, store, _ = make([assistant(ToolCall("c1", "wait", {}))], waiting.tool)

    async def streamed() -> None:
        async with agent.stream("Go", session=SESSION) as run:
            async for _ in run:
                pass

    task = asyncio.create_task(agent.run("Go", session=SESSION) if in_own_task else streamed())
    await within(waiting.started.wait())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await within(task)
    assert task.cancelled()
    assert waiting.was_cancelled
    assert (await ended(store)).status == "aborted"
    await check_next_turn(store)


async def test_a_timeout_of_the_caller_aborts_the_run() -> None:
    waiting = Waiting()
    agent, store, _ = make([assistant(ToolCall("c1", "wait", {}))], waiting.tool)
    limit = asyncio.timeout(None)

    async def expire() -> None:
        await waiting.started.wait()
        limit.reschedule(asyncio.get_running_loop().time())

    expiry = asyncio.create_task(expire())
    with pytest.raises(TimeoutError):
        async with limit:
            await agent.run("Go", session=SESSION)
    await expiry
    await check_next_turn(store)


async def test_leaving_a_stream_early_aborts_the_run() -> None:
    model = PausingModel(["A long answer."], after=2)
    agent, store, _ = make(model)
    async with agent.stream("Go", session=SESSION) as run:
        async for event in run:
            if isinstance(event, DeltaReceived):
                break
    assert (run.result.status, run.result.reason) == (AgentStatus.ABORTED, "left")
    await check_next_turn(store)


async def test_an_exception_in_the_reader_aborts_the_run_and_propagates() -> None:
    model = PausingModel(["A long answer."], after=2)
    agent, store, _ = make(model)
    run = agent.stream("Go", session=SESSION)

    async def read() -> None:
        async with run:
            async for event in run:
                if isinstance(event, DeltaReceived):
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await read()
    assert run.result.status is AgentStatus.ABORTED
    await check_next_turn(store)


async def test_a_slow_reader_slows_the_model_and_can_still_abort() -> None:
    agent, store, _ = make(["word " * 2000])
    async with agent.stream("Go", session=SESSION) as run:
        while run.status is not AgentStatus.MODEL_RUNNING:  # noqa: ASYNC110 - the reader takes no events
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        assert run.status is AgentStatus.MODEL_RUNNING
        run.abort()
    assert run.result.status is AgentStatus.ABORTED
    await check_next_turn(store)


async def test_finished_tools_keep_their_results_after_an_abort() -> None:
    from tests.agent.kit import weather

    waiting = Waiting()
    agent, store, _ = make([assistant(call("c1"), ToolCall("c2", "wait", {}))], waiting.tool, weather)
    async with agent.stream("Go", session=SESSION) as run:
        async for event in run:
            if isinstance(event, ToolChanged) and event.state.status == "completed":
                run.abort()
    results_by_id = await results(store)
    assert (results_by_id["c1"].content, results_by_id["c2"].error_code) == ("rain in Paris", ErrorCode.TOOL_ABORTED)
    assert not [fact for fact in await facts(store) if isinstance(fact, ApprovalRequired)]
    await check_next_turn(store)
