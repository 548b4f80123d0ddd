"""Handoffs: the conversation is passed on to another agent, in the same run and for later ones (D-5.13)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bartack import (
    AgentConfig,
    AgentError,
    BartackError,
    LoopConfig,
    ModelSwitched,
    PartValidationError,
    ToolCall,
    ToolContext,
    ToolOutput,
    assistant,
    handoff,
    tool,
)
from bartack.agent import Agent
from bartack.models import ScriptedModel
from bartack.nouns.entries import RunEnded, RunStarted
from bartack.nouns.tables import AgentStatus
from bartack.session.run_state import HANDOFF
from bartack.store import MemoryStore
from tests.agent.kit import (
    FAST,
    SESSION,
    call,
    check_session,
    collected,
    facts,
    make,
    results,
    transfer,
    weather,
)

PASS_ON = assistant("One moment.", ToolCall("h1", "transfer_to_billing", {"reason": "a refund"}))


def billing_agent(*answers: Any, **options: Any) -> tuple[Agent[Any, Any], ScriptedModel]:
    model = ScriptedModel(answers, model_id="cheap")
    options.setdefault("tools", [transfer])
    return Agent(model, name="billing", instructions="You handle refunds.", retry=FAST, **options), model


def started(all_facts: list[Any]) -> list[str | None]:
    return [fact.agent for fact in all_facts if isinstance(fact, RunStarted)]


async def test_the_other_agent_answers_with_its_own_model_instructions_and_tools() -> None:
    """D-5.13"""
    billing, model = billing_agent("Your refund is on its way.")
    reception, store, own = make(
        [PASS_ON], weather, handoff(billing, "Handles refunds."), name="reception", instructions="Greet."
    )
    events = await collected(reception.stream("Where is my refund?", session=SESSION, metadata={"ticket": 7}))
    result = events[-1].result
    assert (result.output, result.agent) == ("Your refund is on its way.", "billing")
    (request,) = model.calls
    assert [message.role for message in request.messages] == ["system", "user", "assistant", "tool"]
    assert request.messages[0].text == "You handle refunds."
    assert [spec.name for spec in request.tools] == ["transfer"]
    assert {spec.name for spec in own.calls[0].tools} == {"weather", "transfer_to_billing"}
    assert (await results(store))["h1"].content == "Transferred to billing."
    assert started(await facts(store)) == ["reception", "billing"]
    assert [fact.metadata for fact in await facts(store) if isinstance(fact, RunStarted)] == [{"ticket": 7}] * 2
    assert len({entry.run_id for entry in await store.load(SESSION) if entry.run_id}) == 1
    (switched,) = [event for event in events if isinstance(event, ModelSwitched)]
    assert switched.model.model == "cheap"
    await check_session(store)


async def test_the_conversation_stays_with_that_agent_in_later_runs() -> None:
    """D-5.13"""
    billing, model = billing_agent("It is on its way.", "Tomorrow.")
    reception, _, own = make([PASS_ON], handoff(billing, "Handles refunds."), name="reception")
    await reception.run("Where is my refund?", session=SESSION)
    result = await reception.run("When?", session=SESSION)
    assert (result.output, result.agent) == ("Tomorrow.", "billing")
    assert len(own.calls) == 1
    assert model.calls[-1].messages[0].text == "You handle refunds."


async def test_agents_may_pass_on_to_each_other() -> None:
    back = assistant(ToolCall("h2", "back", {}))
    model = ScriptedModel([back])
    billing: Agent[Any, Any] = Agent(
        model, name="billing", tools=[handoff(lambda: reception, "Handles the rest.", name="back")]
    )
    reception, store, _ = make(
        [PASS_ON, "Anything else?", "Good bye."], handoff(billing, "Handles refunds."), name="reception"
    )
    assert (await reception.run("Hello", session=SESSION)).output == "Anything else?"
    result = await reception.run("No", session=SESSION)
    assert (result.output, result.agent) == ("Good bye.", "reception")
    assert started(await facts(store)) == ["reception", "billing", "reception", "reception"]


async def test_a_run_that_stops_right_after_the_handoff_is_resumed_by_the_other_agent() -> None:
    """D-5.13: at every prefix of the session, as a crash may leave it."""
    billing, _ = billing_agent("It is on its way.")
    reception, store, _ = make([PASS_ON], handoff(billing, "Handles refunds."), name="reception")
    await reception.run("Where is my refund?", session=SESSION)
    entries = await store.load(SESSION)
    first = next(index for index, entry in enumerate(entries) if getattr(entry.fact, "role", "") == "tool")
    for end in range(first + 1, len(entries)):
        copy = MemoryStore()
        await copy.append(SESSION, entries[:end], None)
        billing, _ = billing_agent("It is on its way.")
        resumed, _, own = make([], handoff(billing, "Handles refunds."), name="reception", store=copy)
        result = await resumed.resume(SESSION)
        assert (result.output, result.agent, list(own.calls)) == ("It is on its way.", "billing", [])
        await check_session(copy)


async def test_a_run_that_another_agent_took_over_is_not_resumed_without_it() -> None:
    """D-5.13: at every prefix of the session after the handoff, and in a later run."""
    billing, _ = billing_agent("It is on its way.", "By Friday.")
    reception, store, _ = make([PASS_ON], handoff(billing, "Handles refunds."), name="reception")
    await reception.run("Where is my refund?", session=SESSION)
    await reception.run("When?", session=SESSION)
    entries = await store.load(SESSION)
    first = next(index for index, entry in enumerate(entries) if getattr(entry.fact, "role", "") == "tool")
    refused = 0
    for end in range(first + 1, len(entries)):
        if isinstance(entries[end - 1].fact, RunEnded):
            continue
        copy = MemoryStore()
        await copy.append(SESSION, entries[:end], None)
        alone, _, own = make(["never"], weather, name="reception", store=copy)
        with pytest.raises(AgentError, match="belongs to agent 'billing', and agent 'reception' has no handoff to it"):
            await alone.resume(SESSION)
        assert (list(own.calls), len(await copy.load(SESSION))) == ([], end)
        refused += 1
        assert (await alone.abort(SESSION)).status is AgentStatus.ABORTED
    assert refused > 4


async def test_a_handoff_to_an_agent_that_is_not_reachable_fails_the_run() -> None:
    @tool
    async def forward() -> ToolOutput:
        """Claim a handoff."""
        return ToolOutput("Passed on.", metadata={HANDOFF: "billing"})

    reception, store, _ = make([assistant(ToolCall("f", "forward", {}))], forward)
    with pytest.raises(AgentError, match="belongs to agent 'billing', and this agent has no handoff to it"):
        await reception.run("Where is my refund?", session=SESSION)
    await check_session(store)


async def test_a_handoff_to_an_agent_whose_dependencies_are_missing_fails_the_run() -> None:
    billing, model = billing_agent("never", deps_type=int)
    reception, _, _ = make([PASS_ON], handoff(billing, "Handles refunds."), name="reception")
    with pytest.raises(PartValidationError, match="needs dependencies of type int"):
        await reception.run("Where is my refund?", session=SESSION)
    assert model.calls == []


async def test_an_agent_without_the_other_one_answers_itself() -> None:
    billing, _ = billing_agent("It is on its way.")
    reception, store, _ = make([PASS_ON], handoff(billing, "Handles refunds."), name="reception")
    await reception.run("Where is my refund?", session=SESSION)
    alone, _, _ = make(["I am alone."], name="alone", store=store)
    result = await alone.run("Anyone?", session=SESSION)
    assert (result.output, result.agent) == ("I am alone.", "alone")


async def test_limits_output_and_dependencies_are_those_of_the_run() -> None:
    deps: list[Any] = []

    @tool
    async def look(context: ToolContext[str]) -> str:
        """Look."""
        deps.append(context.deps)
        return "nothing"

    billing, _ = billing_agent(assistant(ToolCall("l1", "look", {})), '{"value": 42}', tools=[look])
    options: dict[str, Any] = {"name": "reception", "output_type": int}
    reception, _, _ = make([PASS_ON], handoff(billing, "Handles refunds."), **options)
    result = await reception.run("How much?", session=SESSION, deps="the customer")
    assert result.output == 42
    assert deps == ["the customer"]

    billing, _ = billing_agent("Never said.")
    config = AgentConfig(loop=LoopConfig(max_iterations=1))
    reception, _, _ = make([PASS_ON], handoff(billing, "Handles refunds."), name="reception", config=config)
    limited = await reception.run("How much?", session=SESSION)
    assert (limited.status, limited.reason) == (AgentStatus.FAILED, "max_iterations")


async def test_calls_of_the_other_agent_wait_for_approval_and_continue_there() -> None:
    billing, _ = billing_agent(assistant(call("t1", "transfer", amount=5)), "Paid.")
    reception, store, _ = make([PASS_ON], handoff(billing, "Handles refunds."), name="reception")
    paused = await reception.run("Pay me", session=SESSION)
    assert [question.tool_call_id for question in paused.approvals] == ["t1"]
    await reception.approve(SESSION, "t1")
    result = await reception.resume(SESSION)
    assert (result.output, result.agent) == ("Paid.", "billing")
    assert [fact.status for fact in await facts(store) if isinstance(fact, RunEnded)] == ["completed"]


async def test_names_are_required_and_unique() -> None:
    model = ScriptedModel([])
    with pytest.raises(BartackError, match="needs a name"):
        handoff(Agent(model), "Anyone.")
    with pytest.raises(BartackError, match="needs a name"):
        handoff(lambda: Agent(model), "Anyone.")
    first, two = Agent(model, name="x"), Agent(model, name="x")
    agent = Agent(model, tools=[handoff(first, "One."), handoff(two, "Two.", name="other")])
    with pytest.raises(BartackError, match="Two agents are named 'x'"):
        await agent.run("Go")


def test_it_works_without_an_event_loop_and_on_disk(tmp_path: Path) -> None:
    billing, _ = billing_agent("First.", "Second.")
    reception: Agent[Any, Any] = Agent(
        ScriptedModel([PASS_ON]),
        name="reception",
        tools=[handoff(billing, "Handles refunds.")],
        store=f"sqlite:{tmp_path}/sessions.db",
    )
    assert reception.run_sync("Hello", session=SESSION).output == "First."
    assert reception.run_sync("More", session=SESSION).output == "Second."
    asyncio.run(billing.close())


async def test_only_the_first_of_two_handoffs_in_one_answer_happens() -> None:
    billing, _ = billing_agent("It is on its way.")
    shipping: Agent[Any, Any] = Agent(ScriptedModel([]), name="The shipping desk")
    answer = assistant(ToolCall("h1", "transfer_to_billing", {}), ToolCall("h2", "transfer_to_The_shipping_desk", {}))
    tools = [handoff(billing, "Handles refunds."), handoff(shipping, "Handles parcels.")]
    reception, store, _ = make([answer], *tools, name="reception")
    result = await reception.run("Where is it?", session=SESSION)
    assert (result.output, result.agent) == ("It is on its way.", "billing")
    refused = (await results(store))["h2"]
    assert refused.is_error
    assert "just been transferred to billing" in str(refused.content)


async def test_a_handoff_may_need_approval_and_keeps_the_limits_of_the_run() -> None:
    billing, _ = billing_agent(assistant(call("t1", "transfer", amount=5)), "Never said.")
    tool = handoff(billing, "Handles refunds.", requires_approval=True)
    reception, _, _ = make([PASS_ON], tool, name="reception")
    paused = await reception.run("Pay me", session=SESSION, limits=LoopConfig(max_iterations=2))
    for expected in ("h1", "t1"):
        assert [question.tool_call_id for question in paused.approvals] == [expected]
        await reception.approve(SESSION, expected)
        paused = await reception.resume(SESSION)
    assert paused.reason == "max_iterations"
