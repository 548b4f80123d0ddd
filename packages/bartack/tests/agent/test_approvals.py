"""Approvals: by a live approver during the run, or later from another process."""

from typing import Literal

import pytest

from bartack import (
    AgentConfig,
    ApprovalRequired,
    Conflict,
    Continuation,
    ErrorCode,
    Message,
    NotFound,
    PartValidationError,
    ToolCall,
    assistant,
)
from bartack.agent import ApprovalRequested, LiveApprover, RunPaused, StatusChanged
from bartack.formats import encode
from bartack.nouns.config import ToolsConfig
from bartack.nouns.entries import ApprovalDecided, ToolStarted
from bartack.nouns.tables import AgentStatus
from bartack.tools import Decision, always
from tests.agent.kit import (
    SESSION,
    call,
    check_session,
    collected,
    facts,
    kinds,
    make,
    results,
    transfer,
    weather,
    within,
)

ASK = assistant("Moving it.", call("c1", "transfer", amount=5))


class FixedApprover:
    """An approver with a fixed decision."""

    def __init__(self, decision: Decision) -> None:
        self.decision = decision
        self.asked: list[ApprovalRequired] = []

    async def decide(self, request: ApprovalRequired) -> Decision:
        self.asked.append(request)
        return self.decision


async def test_an_approved_call_runs() -> None:
    approver = FixedApprover(Decision("approve", decided_by="ann"))
    agent, store, _ = make([ASK, "Done."], approver=approver)
    events = await collected(agent.stream("Go", session=SESSION))
    assert events[-1].result.output == "Done."
    assert (await results(store))["c1"].content == "moved 5"
    assert [request.arguments for request in approver.asked] == [{"amount": 5}]
    statuses = [event.status for event in events if isinstance(event, StatusChanged)]
    assert statuses[3:5] == [AgentStatus.AWAITING_HUMAN, AgentStatus.TOOL_RUNNING]
    decided = next(fact for fact in await facts(store) if isinstance(fact, ApprovalDecided))
    assert (decided.decision, decided.decided_by) == ("approve", "ann")


async def test_a_denied_call_gets_a_result_and_the_run_continues() -> None:
    agent, store, _ = make([ASK, "All right."], approver=FixedApprover(Decision("deny", reason="too much")))
    assert (await agent.run("Go", session=SESSION)).output == "All right."
    result = (await results(store))["c1"]
    assert (result.error_code, "too much" in str(result.content)) == (ErrorCode.TOOL_DENIED, True)
    assert "tool_started" not in await kinds(store)


async def test_modified_arguments_are_used_and_both_versions_are_kept() -> None:
    agent, store, _ = make([ASK, "Done."], approver=FixedApprover(Decision("modify_args", arguments={"amount": 1})))
    await agent.run("Go", session=SESSION)
    assert (await results(store))["c1"].content == 'moved 1\n[The user changed the arguments to {"amount":1}]'
    decided = next(fact for fact in await facts(store) if isinstance(fact, ApprovalDecided))
    assert (decided.original_arguments, decided.arguments) == ({"amount": 5}, {"amount": 1})
    started = next(fact for fact in await facts(store) if isinstance(fact, ToolStarted))
    assert started.arguments == {"amount": 1}


async def test_an_approver_can_abort_the_run() -> None:
    agent, store, _ = make([ASK], approver=FixedApprover(Decision("abort")))
    result = await agent.run("Go", session=SESSION)
    assert (result.status, result.reason) == (AgentStatus.ABORTED, "human")
    await check_session(store)


async def test_a_missing_decision_does_not_block_the_run_forever() -> None:
    agent, store, _ = make([ASK, "Never mind."], approver=LiveApprover(), approval_timeout_ms=30)
    assert (await within(agent.run("Go", session=SESSION))).output == "Never mind."
    assert (await results(store))["c1"].error_code is ErrorCode.TOOL_DENIED
    await check_session(store)


@pytest.mark.parametrize("granted", [True, False])
async def test_the_reader_of_the_events_can_decide(granted: bool) -> None:
    agent, store, _ = make([ASK, "Done."], approver=LiveApprover())
    async with agent.stream("Go", session=SESSION) as run:
        async for event in run:
            if isinstance(event, ApprovalRequested):
                decide = run.approve if granted else run.deny
                decide(event.request.tool_call_id, reason="because")
    assert run.result.output == "Done."
    assert (await results(store))["c1"].is_error is not granted
    with pytest.raises(NotFound):
        run.approve("c1")


# -- without an approver


async def test_a_run_without_an_approver_pauses_and_another_process_resumes_it() -> None:
    agent, store, _ = make([assistant(call("c1", "transfer", amount=5), call("c2")), "never"])
    events = await collected(agent.stream("Go", session=SESSION))
    result = events[-1].result
    assert result.status is AgentStatus.AWAITING_HUMAN
    assert [request.tool_call_id for request in result.approvals] == ["c1"]
    assert RunPaused(result.approvals) in events
    assert (await kinds(store))[-1] != "run_ended"

    second_agent, _, model = make(["Done."], store=store)  # another process, later
    again = await second_agent.resume(SESSION)
    assert (again.status, again.run_id, list(model.calls)) == (AgentStatus.AWAITING_HUMAN, result.run_id, [])
    await second_agent.approve(SESSION, "c1", decided_by="ann")
    await second_agent.deny(SESSION, "c1")
    await second_agent.approve(SESSION, "c1", reason="after all")
    done = await second_agent.resume(SESSION)
    with pytest.raises(Conflict):
        await second_agent.deny(SESSION, "c1")
    assert (done.output, done.run_id) == ("Done.", result.run_id)
    results_by_id = await results(store)
    assert (results_by_id["c1"].content, results_by_id["c2"].content) == ("moved 5", "rain in Paris")
    assert [fact.tool_call_id for fact in await facts(store) if isinstance(fact, ToolStarted)].count("c2") == 1
    await check_session(store)


async def test_a_paused_call_can_be_denied() -> None:
    agent, store, _ = make([ASK, "All right."])
    await agent.run("Go", session=SESSION)
    await agent.deny(SESSION, "c1", reason="no")
    assert (await agent.resume(SESSION)).output == "All right."
    assert (await results(store))["c1"].error_code is ErrorCode.TOOL_DENIED


async def test_a_decision_is_bound_to_the_arguments_it_was_made_for() -> None:
    from bartack import ToolError
    from bartack.tools import arguments_digest

    agent, _, _ = make([ASK, "Done."])
    await agent.run("Go", session=SESSION)
    with pytest.raises(ToolError):
        await agent.approve(SESSION, "c1", arguments_digest=arguments_digest({"amount": 6}))
    await agent.approve(SESSION, "c1", arguments_digest=arguments_digest({"amount": 5}))


async def test_a_call_that_is_not_awaiting_approval_cannot_be_decided() -> None:
    agent, _, _ = make(["x"])
    await agent.run("Go", session=SESSION)
    with pytest.raises(NotFound):
        await agent.approve(SESSION, "c1")


async def test_a_new_prompt_to_a_paused_session_answers_the_open_call() -> None:
    agent, store, _ = make([ASK, "Other things."])
    await agent.run("Go", session=SESSION)
    assert (await agent.run("Forget it", session=SESSION)).output == "Other things."
    assert (await results(store))["c1"].error_code is ErrorCode.TOOL_NOT_RUN
    assert (await kinds(store)).count("run_ended") == 2
    await check_session(store)


async def test_the_policy_can_come_from_the_configuration_or_from_a_function() -> None:
    config = AgentConfig(tools=ToolsConfig(approval={"transfer": "never", "weather": "always"}))
    agent, _, _ = make([assistant(call("c1", "transfer", amount=1), call("c2"))], transfer, weather, config=config)
    assert [request.tool_name for request in (await agent.run("Go", session=SESSION)).approvals] == ["weather"]
    agent, _, _ = make([assistant(call("c1"))], approval=always)
    assert [request.tool_name for request in (await agent.run("Go", session=SESSION)).approvals] == ["weather"]


async def test_an_expired_question_is_denied_when_the_run_resumes() -> None:
    agent, store, _ = make([ASK, "Never mind."], approval_timeout_ms=50)
    assert (await agent.run("Go", session=SESSION)).status is AgentStatus.AWAITING_HUMAN
    for _ in range(50):
        store.environment.now()  # advances the counting clock
    result = await agent.resume(SESSION)
    assert (result.status, result.value) == (AgentStatus.COMPLETED, "Never mind.")
    assert (await results(store))["c1"].error_code is ErrorCode.TOOL_DENIED
    await check_session(store)


async def test_an_approver_can_postpone_the_decision() -> None:
    agent, store, _ = make([ASK], approver=FixedApprover(Decision("pause", reason="ask me tomorrow")))
    assert (await agent.run("Go", session=SESSION)).status is AgentStatus.AWAITING_HUMAN
    second_agent, _, _ = make(["Done."], store=store)
    await second_agent.approve(SESSION, "c1")
    assert (await second_agent.resume(SESSION)).output == "Done."


async def test_invalid_arguments_are_refused_at_once_and_the_call_still_waits() -> None:
    agent, store, _ = make([ASK, "Done."], approver=LiveApprover())
    async with agent.stream("Go", session=SESSION) as run:
        async for event in run:
            if isinstance(event, ApprovalRequested):
                with pytest.raises(PartValidationError, match="Invalid arguments"):
                    run.approve("c1", arguments={"amount": "much"})
                run.approve("c1", arguments={"amount": 1})
    assert run.result.output == "Done."
    assert str((await results(store))["c1"].content).startswith("moved 1")


async def test_a_decision_through_the_agent_reaches_its_live_run() -> None:
    agent, store, _ = make([ASK, "Done."], approver=LiveApprover())
    async with agent.stream("Go", session=SESSION) as run:
        async for event in run:
            if isinstance(event, ApprovalRequested):
                await agent.approve(SESSION, event.request.tool_call_id)
    assert run.result.output == "Done."
    await check_session(store)


async def test_an_open_question_is_published_again_when_the_run_resumes() -> None:
    paused, store, _ = make([ASK])
    await paused.run("Go", session=SESSION)
    agent, _, _ = make(["Done."], store=store, approver=LiveApprover())
    async with agent.resume_stream(SESSION) as run:
        async for event in run:
            if isinstance(event, ApprovalRequested):
                run.approve(event.request.tool_call_id)
    assert run.result.output == "Done."
    assert (await results(store))["c1"].content == "moved 5"
    assert (await kinds(store)).count("approval_required") == 1


# -- questions of a provider


def asks_for_mcp() -> Message:
    """An answer in which OpenAI asks whether it may call a tool that has the name of one of ours."""
    item = {"type": "mcp_approval_request", "id": "c1", "server_label": "wiki", "name": "transfer", "arguments": "{}"}
    asked = {"server_label": "wiki", "name": "transfer", "arguments": {}}
    kept = Continuation("openai-responses", "m", {"item": item})
    return assistant(ToolCall("c1", "mcp_approval_request", asked, continuation=kept))


@pytest.mark.parametrize(("decision", "approve"), [("approve", True), ("deny", False)])
async def test_a_question_of_the_provider_goes_to_the_approver(
    decision: Literal["approve", "deny"], approve: bool
) -> None:
    approver = FixedApprover(Decision(decision))
    agent, store, model = make([asks_for_mcp(), "Done."], approver=approver)
    assert (await agent.run("Go", session=SESSION)).output == "Done."
    assert approver.asked[0].arguments["server_label"] == "wiki"
    assert (await results(store))["c1"].is_error is not approve
    sent = encode("openai-responses", model.calls[-1]).body["input"]
    assert sent[-1]["type"] == "mcp_approval_response"
    assert (sent[-1]["approval_request_id"], sent[-1]["approve"]) == ("c1", approve)
