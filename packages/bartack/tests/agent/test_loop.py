"""The loop: what a run does with each kind of answer, and when it ends."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

from bartack import (
    AgentConfig,
    AgentError,
    Conflict,
    Delta,
    ErrorCode,
    Failed,
    LoopConfig,
    Message,
    Meta,
    Start,
    TextDelta,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    assistant,
)
from bartack.agent import (
    Agent,
    DeltaReceived,
    EntryAppended,
    RetryPolicy,
    RunFinished,
    Snapshot,
    StatusChanged,
    ToolChanged,
)
from bartack.environment import Environment
from bartack.models import ScriptedModel
from bartack.nouns.config import ToolsConfig
from bartack.nouns.entries import RunStarted, ToolStarted
from bartack.nouns.errors import PartValidationError
from bartack.nouns.tables import AGENT, AgentStatus
from bartack.store import MemoryStore
from tests.agent.kit import (
    SESSION,
    Waiting,
    call,
    check_session,
    collected,
    counting_environment,
    ended,
    facts,
    kinds,
    make,
    messages,
    results,
    transfer,
    weather,
    within,
)


async def test_an_answer_without_tools_completes_the_run() -> None:
    agent, store, model = make(["It rains."], instructions="Be brief.")
    result = await agent.run("Rain?", session=SESSION)
    assert (result.output, result.status, result.reason) == ("It rains.", AgentStatus.COMPLETED, None)
    assert await kinds(store) == ["session_header", "run_started", "user", "assistant", "run_ended"]
    assert [message.role for message in model.calls[0].messages] == ["system", "user"]
    assert [message.role for message in result.messages] == ["user", "assistant"]
    await check_session(store)


async def test_each_result_is_a_message_and_the_model_sees_them_in_call_order() -> None:
    """000-7.3, 001-7.6"""
    agent, store, model = make([assistant(call("c1"), call("c2", city="Rome")), "Rain."])
    assert (await agent.run("Rain?", session=SESSION)).output == "Rain."
    assert [part.content for part in (await results(store)).values()] == ["rain in Paris", "rain in Rome"]
    resent = [result for message in model.calls[1].messages for result in message.tool_results]
    assert [result.tool_call_id for result in resent] == ["c1", "c2"]
    entries = await check_session(store)
    run_ids = {entry.run_id for entry in entries[1:]}
    assert len(run_ids) == 1


async def test_a_second_turn_sees_the_first() -> None:
    agent, store, model = make(["One.", "Two."])
    await agent.run("First", session=SESSION)
    await agent.run("Second", session=SESSION)
    assert [message.text for message in model.calls[1].messages] == ["First", "One.", "Second"]
    starts = [fact for fact in await facts(store) if isinstance(fact, RunStarted)]
    assert len(starts) == 2
    second_agent, _, other_model = make(["Three."], store=store)
    await second_agent.run("Third", session=SESSION)
    assert [message.text for message in other_model.calls[0].messages] == ["First", "One.", "Second", "Two.", "Third"]


async def test_every_status_change_is_an_edge_of_the_table() -> None:
    """004-agent-state.1"""
    agent, _, _ = make([assistant("Looking.", call("c1")), "Rain."])
    events = await collected(agent.stream("Rain?", session=SESSION))
    changes = [event for event in events if isinstance(event, StatusChanged)]
    assert [change.status for change in changes] == [
        AgentStatus.PREPARING,
        AgentStatus.MODEL_RUNNING,
        AgentStatus.TOOL_RUNNING,
        AgentStatus.MODEL_RUNNING,
        AgentStatus.COMPLETED,
    ]
    for change in changes:
        assert change.status in AGENT[change.previous].values()


async def test_events_have_deltas_facts_and_tool_states_in_order() -> None:
    agent, store, _ = make([assistant("Looking.", call("c1")), "Rain."])
    run = agent.stream("Rain?", session=SESSION)
    events = await collected(run)
    assert isinstance(events[-1], RunFinished)
    assert events[-1].result is run.result
    appended = [event.entry for event in events if isinstance(event, EntryAppended)]
    assert appended == list(await store.load(SESSION))
    assert [event.state.status for event in events if isinstance(event, ToolChanged)] == [
        "pending",
        "running",
        "completed",
    ]
    text = "".join(getattr(event.delta.delta, "text_delta", "") for event in events if isinstance(event, DeltaReceived))
    assert text == "Looking.Rain."


async def test_snapshots_grow_and_are_published_only_on_request() -> None:
    from tests.agent.kit import PausingModel

    model = PausingModel(["It rains in Paris."], after=3)
    agent, _, _ = make(model)
    texts = []
    async with agent.stream("Rain?", session=SESSION, snapshots=True) as run:
        async for event in run:
            if isinstance(event, Snapshot):
                texts.append(event.message.text)
                model.proceed.set()
    assert texts[:3] == ["", "It r", "It rains"]
    assert "It rains in Paris.".startswith(texts[-1])
    assert not [event for event in await collected(make(["x"])[0].stream("Hi")) if isinstance(event, Snapshot)]


async def test_a_run_that_was_not_entered_has_neither_events_nor_a_result() -> None:
    run = make(["never"])[0].stream("Rain?")
    with pytest.raises(AgentError, match="Enter it first"):
        async for _ in run:
            pass
    with pytest.raises(AgentError, match="Enter it first"):
        await run.wait()
    with pytest.raises(AgentError, match="Enter it first"):
        run.run_id


async def test_the_id_of_a_run_is_known_as_soon_as_it_is_entered() -> None:
    agent, _, model = make(["Rain.", "never"])
    async with agent.stream("Rain?", session=SESSION) as run:
        run_id = run.run_id
        assert (await run.wait()).run_id == run_id == run.run_id
    async with agent.resume_stream(SESSION) as again:
        assert again.run_id == run_id
    assert len(model.calls) == 1


async def test_a_run_that_two_tasks_enter_at_once_starts_once() -> None:
    agent, _, model = make(["Hello.", "never"])
    run = agent.stream("Hi", session=SESSION)
    outcomes = await asyncio.gather(run.__aenter__(), run.__aenter__(), return_exceptions=True)
    assert outcomes[0] is run
    assert isinstance(outcomes[1], AgentError)
    assert ((await run.wait()).output, len(model.calls)) == ("Hello.", 1)
    await run.__aexit__(None, None, None)


async def test_a_run_can_be_entered_only_once() -> None:
    agent, store, model = make(["Rain.", "never"])
    run = agent.stream("Rain?", session=SESSION)
    await collected(run)
    before = await store.load(SESSION)
    with pytest.raises(AgentError, match="only once"):
        await run.__aenter__()
    assert await store.load(SESSION) == before
    assert len(model.calls) == 1


async def test_the_text_of_the_deltas_is_the_text_of_the_answers() -> None:
    script = [assistant(Thinking("Where?"), "Looking. ", call("a")), assistant(Thinking("Hm."), "It rains.")]
    events = await collected(make(script)[0].stream("Rain?"))
    assert "".join(event.text for event in events if isinstance(event, DeltaReceived)) == "Looking. It rains."


@pytest.mark.parametrize("arguments", [{"city": "Pa"}, {}])
async def test_calls_of_an_answer_cut_at_its_length_limit_are_not_executed(arguments: dict[str, Any]) -> None:
    """D-3.6"""
    ran: list[str] = []
    cut = assistant("Let", ToolCall("c1", "weather", arguments), meta=Meta(finish_reason="length"))
    agent, store, _ = make([cut, "Sorry."], hooks=_noting(ran))
    assert (await agent.run("Rain?", session=SESSION)).output == "Sorry."
    assert ran == []
    result = (await results(store))["c1"]
    assert (result.is_error, result.error_code) == (True, ErrorCode.TOOL_NOT_RUN)
    await check_session(store)


async def test_a_call_whose_arguments_are_not_json_is_not_executed() -> None:
    """D-3.3.3"""
    ran: list[str] = []
    bad = assistant(ToolCall("c1", "weather", {}, raw_args_text='{"city":'), call("c2"))
    agent, store, _ = make([bad, "Sorry."], hooks=_noting(ran))
    assert (await agent.run("Rain?", session=SESSION)).output == "Sorry."
    assert ran == ["c2"]
    assert (await results(store))["c1"].error_code is ErrorCode.TOOL_BAD_ARGUMENTS
    await check_session(store)


def _noting(ran: list[str]) -> Any:
    from bartack.agent import Hooks

    async def note(call: ToolCall) -> None:
        ran.append(call.tool_call_id)

    return Hooks(before_tool=note)


async def test_a_call_executed_by_the_provider_is_not_executed_again() -> None:
    """D-3.10.1"""
    searched = ToolCall("p1", "weather", {"city": "x"}, executed_by="provider", result=ToolResult("p1", "found"))
    agent, store, _ = make([assistant(searched, "Found it.")])
    assert (await agent.run("Find", session=SESSION)).output == "Found it."
    assert "tool_started" not in await kinds(store)


async def test_a_paused_answer_leads_to_another_call() -> None:
    paused = assistant("Still", meta=Meta(finish_reason="pause"))
    agent, _, model = make([paused, " here."])
    assert (await agent.run("Go", session=SESSION)).output == " here."
    assert len(model.calls) == 2


@pytest.mark.parametrize("output_type", [str, int])
@pytest.mark.parametrize(
    ("answer", "reason", "code"),
    [
        (assistant("No.", meta=Meta(finish_reason="refusal")), "refusal", ErrorCode.REFUSED),
        (assistant("4", meta=Meta(finish_reason="content_filter")), "content_filter", ErrorCode.CONTENT_FILTER),
        (assistant("4", meta=Meta(finish_reason="length")), "length", ErrorCode.ANSWER_TRUNCATED),
        (assistant(Thinking("Hm."), "\n"), "empty", ErrorCode.ANSWER_EMPTY),
    ],
)
async def test_an_answer_that_is_not_whole_is_no_output(
    answer: Message, reason: str, code: ErrorCode, output_type: Any
) -> None:
    agent, store, model = make([answer], output_type=output_type)
    result = await agent.run("Go", session=SESSION)
    assert (result.status, result.reason, len(model.calls)) == (AgentStatus.FAILED, reason, 1)
    with pytest.raises(AgentError) as caught:
        _ = result.output
    assert caught.value.code is code
    assert result.message is not None
    assert result.message.text.strip() == answer.text.strip()
    assert (await ended(store)).reason == reason


async def test_a_queued_message_is_answered_after_an_answer_that_is_not_whole() -> None:
    agent, store, _ = make([assistant("No", meta=Meta(finish_reason="length")), "Yes."])
    async with agent.stream("Go", session=SESSION) as run:
        run.queue("Go on.")
        assert (await run.wait()).output == "Yes."
    assert [message.text for message in await messages(store)] == ["Go", "No", "Go on.", "Yes."]


async def test_the_message_of_a_failed_run_has_what_had_arrived() -> None:
    cut: list[Delta] = [Start("m", "r"), TextDelta("Half an ans"), Failed(ErrorCode.STREAM_TRUNCATED)]
    agent, _, _ = make([cut], retry=RetryPolicy(max_retries=0))
    result = await agent.run("Go", session=SESSION)
    assert result.status is AgentStatus.FAILED
    assert result.message is not None
    assert (result.message.text, result.message.meta) == ("Half an ans", Meta(aborted=True))
    assert [message.role for message in result.messages] == ["user"]


async def test_a_reused_call_id_is_replaced() -> None:
    """000-6.1, D-3.8"""
    agent, store, _ = make([assistant(call("c1")), assistant(call("c1", city="Rome")), "Done."])
    assert (await agent.run("Go", session=SESSION)).output == "Done."
    await check_session(store)
    second = (await messages(store))[3].tool_calls[0]
    assert second.tool_call_id != "c1"
    assert second.metadata == {"providerToolCallId": "c1"}


# -- limits


@pytest.mark.parametrize(
    ("limits", "reason", "calls"),
    [
        (LoopConfig(max_iterations=2), "max_iterations", 2),
        (LoopConfig(max_tool_rounds=1), "max_tool_rounds", 2),
        (LoopConfig(max_total_tokens=25), "max_total_tokens", 3),
        (LoopConfig(max_cost_usd=0.25), "max_cost_usd", 3),
    ],
)
async def test_a_run_ends_at_its_limit_with_every_call_answered(limits: LoopConfig, reason: str, calls: int) -> None:
    def again(history: Sequence[Message]) -> Message:
        return assistant(call(f"c{len(history)}", city=f"c{len(history)}"), meta=Meta(usage=Usage(8, 2, cost=0.1)))

    agent, store, model = make([again] * 9, config=AgentConfig(loop=limits))
    result = await agent.run("Go", session=SESSION)
    assert (result.status, result.reason, len(model.calls)) == (AgentStatus.FAILED, reason, calls)
    assert result.error is not None
    assert result.error.error_code is ErrorCode.LIMIT_EXCEEDED
    with pytest.raises(AgentError):
        result.output
    await check_session(store)
    assert result.usage is not None
    assert (result.usage.input_tokens, result.usage.output_tokens) == (8 * calls, 2 * calls)
    assert result.cost_usd == pytest.approx(0.1 * calls)


async def test_a_run_ends_at_its_timeout() -> None:
    waiting = Waiting()
    agent, store, _ = make(
        [assistant(ToolCall("c1", "wait", {}))], waiting.tool, config=AgentConfig(loop=LoopConfig(timeout_ms=200))
    )
    result = await within(agent.run("Go", session=SESSION))
    assert (result.status, result.reason) == (AgentStatus.FAILED, "timeout")
    assert waiting.was_cancelled or not waiting.started.is_set()  # a loaded machine may not get that far
    await check_session(store)


async def test_a_model_that_repeats_itself_gets_an_error_and_is_then_stopped() -> None:
    def again(history: Sequence[Message]) -> Message:
        return assistant(call(f"c{len(history)}"))

    agent, store, model = make([again] * 9, max_repeats=3)
    result = await agent.run("Go", session=SESSION)
    assert (result.status, result.reason) == (AgentStatus.FAILED, "repeated_call")
    assert len(model.calls) == 5  # executed three times, refused once, stopped once
    assert (await kinds(store)).count("tool_started") == 3
    await check_session(store)
    again_agent, _, _ = make([lambda history: assistant(call(f"c{len(history)}")), "Done."], store=store, max_repeats=3)
    assert (await again_agent.run("Once more", session=SESSION)).output == "Done."


async def test_a_repeated_call_with_a_new_result_is_allowed() -> None:
    from bartack.tools import tool

    calls: list[int] = []

    @tool
    async def poll() -> int:
        """Looks again."""
        calls.append(1)
        return len(calls)

    def again(history: Sequence[Message]) -> Message:
        return assistant(ToolCall(f"c{len(history)}", "poll", {}))

    agent, _, _ = make([*[again] * 6, "Ready."], poll, max_repeats=2)
    assert (await agent.run("Go", session=SESSION)).output == "Ready."


# -- configuration


async def test_tools_can_be_disabled() -> None:
    agent, _, model = make(["x"], config=AgentConfig(tools=ToolsConfig(enabled={"fail": False, "transfer": False})))
    await agent.run("Go", session=SESSION)
    assert [spec.name for spec in model.calls[0].tools] == ["weather"]


def test_an_agent_without_a_model_is_refused() -> None:
    with pytest.raises(PartValidationError) as caught:
        Agent()
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_a_run_needs_a_prompt() -> None:
    with pytest.raises(PartValidationError):
        Agent(ScriptedModel([])).stream()


def test_run_sync_keeps_its_session_in_memory() -> None:
    agent = Agent(ScriptedModel(["Hello.", "Again."]), tools=[weather], environment=counting_environment())
    assert agent.run_sync("Hi").output == "Hello."
    assert agent.run_sync("Hi").output == "Again."


async def test_a_session_can_be_branched() -> None:
    agent, store, model = make(["One.", "Two.", "Other two."])
    await agent.run("First", session=SESSION)
    head = (await store.tail_of(SESSION)).entry_id
    await agent.run("Second", session=SESSION)
    await agent.run("Instead", session=SESSION, head=head)
    assert [message.text for message in model.calls[2].messages] == ["First", "One.", "Instead"]
    assert len(await store.heads(SESSION)) == 2


async def test_a_call_with_a_result_on_another_branch_is_not_executed_again() -> None:
    """D-5.9"""
    answers: list[Message | str] = [
        assistant(call("c1"), call("c2")),
        "One.",
        assistant(call("c1", city="Oslo")),
        "Other.",
    ]
    agent, store, model = make(answers)
    await agent.run("First", session=SESSION)
    fork = next(entry for entry in await store.load(SESSION) if getattr(entry.fact, "tool_calls", ()))
    second_agent, _, _ = make(model, store=store)  # without a view of the other branch
    assert (await second_agent.run("Instead", session=SESSION, head=fork.id)).output == "Other."
    facts = [entry.fact for entry in await store.entries(SESSION)]
    assert [fact.tool_name for fact in facts if isinstance(fact, ToolStarted)] == ["weather"] * 3
    assert [message.role for message in model.calls[2].messages] == ["user", "assistant", "user"]
    assert len(await store.heads(SESSION)) == 2
    fourth, _, _ = make([assistant(call("c2", city="Rome")), "Fourth."], store=store)
    assert (await fourth.run("On this branch", session=SESSION)).output == "Fourth."


async def test_the_lease_of_a_run_on_a_branch_can_be_taken_over() -> None:
    from tests.agent.kit import PausingModel

    agent, store, _ = make(["One.", "Two."])
    await agent.run("First", session=SESSION)
    head = (await store.tail_of(SESSION)).entry_id
    await agent.run("Second", session=SESSION)
    model = PausingModel(["Three."], after=1)
    third, _, _ = make(model, store=store)
    task = asyncio.create_task(third.run("Instead", session=SESSION, head=head))
    await within(model.reached.wait())
    second_agent, _, _ = make(["Mine."], store=store)
    with pytest.raises(Conflict):
        await second_agent.resume(SESSION)
    assert (await second_agent.resume(SESSION, takeover=True)).output == "Mine."
    model.proceed.set()
    with pytest.raises(Conflict):
        await within(task)


async def test_the_timeout_of_a_run_counts_the_time_before_a_resume() -> None:
    ticks, bits = count(), count(1)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    slow = Environment(lambda: start + timedelta(seconds=next(ticks)), lambda: next(bits))  # a second per look
    limits = AgentConfig(loop=LoopConfig(timeout_ms=5_000))
    script: list[Any] = [assistant(call("t1", "transfer", amount=5)), "Never said."]
    agent, store, _ = make(script, transfer, config=limits, environment=slow, store=MemoryStore(environment=slow))
    assert (await agent.run("Pay", session=SESSION)).status is AgentStatus.AWAITING_HUMAN
    await agent.approve(SESSION, "t1")
    result = await agent.resume(SESSION)
    assert (result.status, result.reason) == (AgentStatus.FAILED, "timeout")
    await check_session(store)


@pytest.mark.parametrize("reason", ["length", "content_filter", "refusal"])
async def test_calls_of_an_answer_that_is_not_complete_are_not_executed(reason: Any) -> None:
    torn = assistant("no", call("c1"), meta=Meta(finish_reason=reason))
    agent, store, _ = make([torn, "ok"])
    assert (await agent.run("Go", session=SESSION)).output == "ok"
    assert (await results(store))["c1"].error_code is ErrorCode.TOOL_NOT_RUN
    assert not any(isinstance(fact, ToolStarted) for fact in await facts(store))
