"""What an agent reports about its runs: log records, counters and traces, without any content."""

import logging
import re

import pytest
from msgspec.structs import replace

from bartack import (
    AgentConfig,
    ErrorCode,
    Failed,
    Meta,
    ObservabilityConfig,
    PartValidationError,
    ToolCall,
    Usage,
    assistant,
    handoff,
)
from bartack.agent import Agent, Hooks, Retrying
from bartack.agent.observer import COUNTERS
from bartack.agent.tracing import current_trace, in_trace
from bartack.models import ScriptedModel
from bartack.models.scripted import ScriptedResponse
from bartack.nouns.entries import RunStarted
from bartack.nouns.messages import Approval, Trace
from bartack.nouns.requests import ModelRequest
from bartack.tools import Decision
from tests.agent.kit import SESSION, call, facts, make, messages, transfer
from tests.agent.test_approvals import FixedApprover

BUSY = Failed(ErrorCode.OVERLOADED, "the prompt was SECRET", retryable=True)
ANSWER = assistant("SECRET", meta=Meta(usage=Usage(10, 5, cost=0.5)))
STEPS: list[ScriptedResponse] = [
    BUSY,
    assistant("SECRET", call("c1", city="SECRET"), call("c2", "transfer", amount=5), call("c3", "fail", why="SECRET")),
    ANSWER,
]
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"


def observed(**settings: object) -> AgentConfig:
    return AgentConfig(observability=ObservabilityConfig(**settings))  # type: ignore[arg-type]


def records(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "bartack.agent"]


async def test_a_run_is_logged_without_its_content(caplog: pytest.LogCaptureFixture) -> None:
    """004-agent-config.1"""
    approver = FixedApprover(Decision("approve", reason="SECRET"))
    agent, _, _ = make(STEPS, config=observed(log_level="debug"), approver=approver)
    result = await agent.run("SECRET", session=SESSION)
    logged = [(level, re.sub(r"after \d+ ms", "", text)) for level, text in records(caplog)]
    assert logged[:3] == [
        ("INFO", "run started with scripted:scripted and 3 tools"),
        ("WARNING", "call of scripted:scripted failed: overloaded (attempt 1)"),
        ("DEBUG", "scripted:scripted answered : 3 tool calls, finish reason tool_calls"),
    ]
    assert sorted(logged[3:-2]) == [  # the tools run in parallel
        ("DEBUG", "tool call c1: succeeded"),
        ("DEBUG", "tool call c1: weather started"),
        ("DEBUG", "tool call c2: succeeded"),
        ("DEBUG", "tool call c2: transfer started"),
        ("DEBUG", "tool call c3: fail started"),
        ("DEBUG", "tool call c3: tool_failed"),
        ("INFO", "tool call c2: approve"),
        ("INFO", "tool call c2: transfer needs approval"),
    ]
    assert logged[-2:] == [
        ("DEBUG", "scripted:scripted answered : 0 tool calls, finish reason stop"),
        ("INFO", "run completed"),
    ]
    own = [
        record for record in caplog.records if record.name == "bartack.agent"
    ]  # asyncio reports tasks of other tests
    assert {(record.session_id, record.run_id) for record in own} == {(SESSION, result.run_id)}  # type: ignore[attr-defined]
    assert "SECRET" not in repr([vars(record) for record in own])


async def test_the_level_is_that_of_one_agent(caplog: pytest.LogCaptureFixture) -> None:
    """004-agent-config.1"""
    shared = logging.getLogger("bartack.agent")
    before = shared.level
    for level in ("error", None):
        agent, _, _ = make([BUSY, BUSY, BUSY], config=observed(log_level=level))
        await agent.run("Go", session=SESSION)
    errors, warnings = ["ERROR"], ["WARNING"] * 3 + ["ERROR"]  # the root logger has the level WARNING
    assert [level for level, _ in records(caplog)] == errors + warnings
    assert caplog.records[-1].getMessage() == "run failed: overloaded"
    assert shared.level == before


def test_a_level_that_does_not_exist_is_refused() -> None:
    """004-agent-config.1"""
    with pytest.raises(PartValidationError) as caught:
        observed(log_level="loud")
    assert (caught.value.path, caught.value.code) == ("$.logLevel", ErrorCode.INVALID_CONFIG)


async def test_runs_are_counted_if_metrics_are_on() -> None:
    """004-agent-config.1"""
    agent, _, _ = make(STEPS, config=observed(metrics=True), approver=FixedApprover(Decision("approve")))
    await agent.run("Go", session=SESSION)
    counted = {name: count for name, count in agent.metrics.items() if count}
    assert counted == {
        "runs.started": 1,
        "runs.completed": 1,
        "model_calls.answered": 2,
        "model_calls.failed": 1,
        "tokens.input": 10,
        "tokens.output": 5,
        "cost_usd": 0.5,
        "tool_calls.succeeded": 2,
        "tool_calls.failed": 1,
        "approvals.required": 1,
    }
    assert list(agent.metrics) == list(COUNTERS)
    quiet, _, _ = make(["Hi."])
    await quiet.run("Go", session=SESSION)
    assert quiet.metrics == {}


async def test_a_resumed_run_and_a_handoff_are_not_counted_as_further_starts() -> None:
    billing, _, _ = make(["Hi."], name="billing")
    passed = assistant(ToolCall("h", "transfer_to_billing", {}))
    steps = [assistant(call("c1", "transfer", amount=5)), passed]
    agent, _, _ = make(steps, transfer, handoff(billing, "Bills."), config=observed(metrics=True))
    await agent.run("Go", session=SESSION)
    await agent.approve(SESSION, "c1")
    await agent.resume(SESSION)
    counted = {name: count for name, count in agent.metrics.items() if name.startswith("runs.") and count}
    assert counted == {"runs.started": 1, "runs.resumed": 1, "runs.handed_off": 1, "runs.completed": 1}


async def test_a_traced_run_has_an_id_in_its_facts_its_requests_and_its_answers() -> None:
    """000-3.2.16, 001-4.1.5, 004-agent-config.1"""
    agent, store, model = make([assistant(call("c1")), "Rain."], config=observed(trace=True))
    await agent.run("Go", session=SESSION)
    (started,) = [fact for fact in await facts(store) if isinstance(fact, RunStarted)]
    trace_id = started.trace_id
    assert trace_id is not None
    assert re.fullmatch("[0-9a-f]{32}", trace_id)  # the format that W3C defines
    assert [request.metadata.trace_id for request in model.calls] == [trace_id, trace_id]
    answers = [message for message in await messages(store) if message.role == "assistant"]
    assert [answer.meta.trace for answer in answers if answer.meta] == [Trace(trace_id=trace_id)] * 2
    assert current_trace() is None


async def test_a_run_that_is_not_traced_has_no_id() -> None:
    agent, store, model = make(["Rain."])
    await agent.run("Go", session=SESSION)
    assert model.calls[0].metadata.trace_id is None
    assert "trace" not in repr(await facts(store))


async def test_runs_join_the_trace_that_they_are_started_in_and_so_do_those_of_their_tools() -> None:
    """001-4.1.5"""
    inner = ScriptedModel(["Wet."])
    child = Agent(inner, store="memory:", config=observed(trace=True))
    answer = assistant(call("c1", "ask", prompt="Rain?"))
    agent, _, model = make([answer, "It is wet."], child.as_tool("ask", "Ask."), config=observed(trace=True))
    with in_trace(TRACE_ID), in_trace(None):
        await agent.run("Go", session=SESSION)
        assert current_trace() == TRACE_ID
    assert {request.metadata.trace_id for request in (*model.calls, *inner.calls)} == {TRACE_ID}


async def test_a_resumed_run_stays_in_its_trace() -> None:
    """001-4.1.5"""
    agent, store, model = make([assistant(call("c1", "transfer", amount=5)), "Done."], config=observed(trace=True))
    await agent.run("Go", session=SESSION)
    await agent.approve(SESSION, "c1")
    await agent.resume(SESSION)
    started = [fact.trace_id for fact in await facts(store) if isinstance(fact, RunStarted)]
    assert len(started) == 2
    assert {request.metadata.trace_id for request in model.calls} == set(started)
    assert len(set(started)) == 1


async def test_a_hook_may_pass_state_to_the_model() -> None:
    """001-4.1.3"""

    async def add_state(request: ModelRequest) -> ModelRequest:
        return replace(request, invocation_state={"tenant": "a"})

    agent, _, model = make(["Hi."], hooks=Hooks(before_model=add_state))
    await agent.run("Go", session=SESSION)
    assert model.calls[0].invocation_state == {"tenant": "a"}


async def test_the_state_has_the_last_error_until_there_is_an_answer() -> None:
    """004-agent-state.2"""
    agent, _, _ = make([BUSY, "Hi."])
    errors = []
    async with agent.stream("Go", session=SESSION) as run:
        async for event in run:
            if isinstance(event, Retrying):
                errors.append(run.state.last_error)
        errors.append(run.state.last_error)
    assert errors == [BUSY, None]


@pytest.mark.parametrize("verdict", ["approve", "deny"])
async def test_the_result_of_a_call_names_the_decision_about_it(verdict: str) -> None:
    """000-3.2.16"""
    decision = Decision(verdict, decided_by="ann", reason="why not")  # type: ignore[arg-type]
    calls = assistant(call("c1"), call("c2", "transfer", amount=5))
    agent, store, _ = make([calls, "Done."], approver=FixedApprover(decision))
    await agent.run("Go", session=SESSION)
    by_call = {
        message.tool_results[0].tool_call_id: message for message in await messages(store) if message.role == "tool"
    }
    assert by_call["c1"].meta is None
    approval = Approval(tool_call_id="c2", decision=verdict, decided_by="ann", reason="why not")
    assert by_call["c2"].meta == Meta(approvals=(approval,))


async def test_an_approved_call_that_never_ran_still_names_the_decision() -> None:
    """000-3.2.16"""
    agent, store, _ = make([assistant(call("c1", "transfer", amount=5)), "Done."])
    await agent.run("Go", session=SESSION)
    await agent.approve(SESSION, "c1", decided_by="ann")
    await agent.abort(SESSION)
    closed = [message for message in await messages(store) if message.role == "tool"]
    assert [message.meta for message in closed] == [
        Meta(approvals=(Approval(tool_call_id="c1", decision="approve", decided_by="ann"),))
    ]
