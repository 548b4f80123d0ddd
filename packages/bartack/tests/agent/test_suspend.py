"""Suspending a run: it stops where it is and stays open, and another process continues it."""

from bartack import ErrorCode, ToolCall, assistant
from bartack.nouns.entries import StreamFailed
from bartack.nouns.tables import AgentStatus
from tests.agent.kit import SESSION, PausingModel, Waiting, check_session, facts, kinds, make, messages, results, within


async def test_a_run_suspended_in_a_stream_keeps_what_arrived_and_asks_again() -> None:
    model = PausingModel([assistant("The answer is long.")], after=3)
    agent, store, _ = make(model)
    async with agent.stream("Go", session=SESSION) as run:
        await within(model.reached.wait())
        run.suspend()
        result = await within(run.wait())
    assert (result.status, result.reason) == (AgentStatus.AWAITING_HUMAN, "suspended")
    (failed,) = [fact for fact in await facts(store) if isinstance(fact, StreamFailed)]
    assert failed.error.error_code is ErrorCode.STREAM_TRUNCATED
    assert "".join(getattr(part, "text", "") for part in failed.parts) == "The answ"
    assert "run_ended" not in await kinds(store)

    second_agent, _, _ = make(["The answer is long."], store=store)
    resumed = await within(second_agent.resume(SESSION))
    assert (resumed.output, resumed.run_id) == ("The answer is long.", result.run_id)
    assert [message.text for message in await messages(store)] == ["Go", "The answer is long."]
    await check_session(store)


async def test_a_run_suspended_before_its_first_step_is_resumed_from_there() -> None:
    agent, store, _ = make(["Fine."])
    async with agent.stream("Go", session=SESSION) as run:
        run.suspend()
    assert run.result.status is AgentStatus.AWAITING_HUMAN
    second_agent, _, _ = make(["Fine."], store=store)
    assert (await within(second_agent.resume(SESSION))).output == "Fine."


async def test_a_tool_that_is_stopped_by_a_suspension_gets_an_error_result_and_the_run_continues() -> None:
    waiting = Waiting()
    agent, store, _ = make([assistant(ToolCall("c1", "wait", {}))], waiting.tool)
    async with agent.stream("Go", session=SESSION) as run:
        await within(waiting.started.wait())
        run.suspend()
        await within(run.wait())
    assert waiting.was_cancelled
    second_agent, _, _ = make(["It did not finish."], waiting.tool, store=store)
    assert (await within(second_agent.resume(SESSION))).output == "It did not finish."
    assert (await results(store))["c1"].is_error
    assert waiting.runs == 1
    await check_session(store)


async def test_a_run_suspended_after_its_step_completes_the_tool_calls_first() -> None:
    waiting = Waiting()
    agent, store, _ = make([assistant(ToolCall("c1", "wait", {}))], waiting.tool)
    async with agent.stream("Go", session=SESSION) as run:
        await within(waiting.started.wait())
        run.suspend(after_step=True)
        waiting.proceed.set()
        result = await within(run.wait())
    assert (result.status, result.reason) == (AgentStatus.AWAITING_HUMAN, "suspended")
    assert (await results(store))["c1"].content == "proceeded"
    second_agent, _, _ = make(["Done."], waiting.tool, store=store)
    assert (await within(second_agent.resume(SESSION))).output == "Done."
    await check_session(store)


async def test_a_run_suspended_after_its_step_before_it_begins_takes_none() -> None:
    agent, store, model = make(["Fine."])
    run = agent.stream("Go", session=SESSION)
    run.suspend(after_step=True)
    async with run:
        await within(run.wait())
    assert (run.result.reason, len(model.calls)) == ("suspended", 0)
    assert "run_ended" not in await kinds(store)
