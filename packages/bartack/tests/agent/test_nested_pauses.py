"""Sub-agents whose calls wait for a person or for a result: the outer run pauses for them, and resumes them."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bartack import ErrorCode, ToolCall, ToolContext, ToolResult, Usage, assistant, tool
from bartack.agent import Agent, ApprovalRequested, LiveApprover, RunPaused
from bartack.models import ScriptedModel
from bartack.models.scripted import ScriptedResponse
from bartack.nouns.entries import ApprovalRequired, ToolStarted
from bartack.nouns.errors import Conflict, NotFound, PartValidationError, StoreError
from bartack.nouns.tables import AgentStatus
from bartack.store import MemoryStore, SessionStore, open_store, requests
from bartack.tools import Decision, ToolDefinition
from tests.agent.kit import (
    SESSION,
    Waiting,
    call,
    check_session,
    collected,
    facts,
    kinds,
    make,
    results,
    transfer,
    within,
)
from tests.agent.test_subagents import Recording, as_research, ask, costly

INNER: list[ScriptedResponse] = [assistant(call("t", "transfer", amount=5)), "Moved."]
OUTER: list[ScriptedResponse] = [assistant(ask("a")), "Done."]


async def inner_session(store: SessionStore, call_id: str = "a") -> str:
    """The session of the sub-agent that the call runs."""
    progress = [fact for fact in await facts(store) if fact.kind == "tool_progress" and fact.tool_call_id == call_id]
    session: str = progress[0].metadata["sessionId"]
    return session


async def test_an_inner_call_that_needs_approval_pauses_the_outer_run() -> None:
    inner, inner_store, _ = make(INNER)
    outer, store, _ = make(OUTER, as_research(inner))
    events = await collected(outer.stream("Go", session=SESSION))
    (paused,) = [event for event in events if isinstance(event, RunPaused)]
    (question,) = paused.approvals
    assert (question.tool_call_id, question.tool_name, question.arguments) == ("a/t", "transfer", {"amount": 5})
    assert [event.request for event in events if isinstance(event, ApprovalRequested)] == [question]
    assert await requests.pending_approvals(store, SESSION) == (question,)
    assert await requests.deferred_calls(store, SESSION) == ()

    await outer.approve(SESSION, "a/t", decided_by="me", reason="It is due.")
    result = await outer.resume(SESSION)
    assert result.output == "Done."
    assert (await results(store))["a"].content == "Moved."
    session = await inner_session(store)
    assert (await results(inner_store, session))["t"].content == "moved 5"
    (decided,) = [fact for fact in await facts(inner_store, session) if fact.kind == "approval_decided"]
    assert (decided.decision, decided.decided_by, decided.reason) == ("approve", "me", "It is due.")
    await check_session(store)
    await check_session(inner_store, session)


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        (Decision("deny", reason="too much"), "The call was denied: too much"),
        (Decision("modify_args", arguments={"amount": 2}), 'moved 2\n[The user changed the arguments to {"amount":2}]'),
    ],
)
async def test_a_denied_or_edited_inner_call(decision: Decision, expected: str) -> None:
    inner, inner_store, _ = make(INNER)
    outer, store, _ = make(OUTER, as_research(inner))
    await outer.run("Go", session=SESSION)
    with pytest.raises(PartValidationError, match="amount"):
        await outer.approve(SESSION, "a/t", arguments={"amount": "much"})
    await requests.decide(store, SESSION, "a/t", decision)
    assert (await outer.resume(SESSION)).output == "Done."
    assert (await results(inner_store, await inner_session(store)))["t"].content == expected


async def test_a_decision_for_a_sub_agent_is_final() -> None:
    outer, _, _ = make(OUTER, as_research(make(INNER)[0]))
    await outer.run("Go", session=SESSION)
    await outer.approve(SESSION, "a/t")
    with pytest.raises(Conflict, match="can no longer be decided"):
        await outer.deny(SESSION, "a/t")
    with pytest.raises(NotFound, match="not awaiting approval"):
        await outer.deny(SESSION, "a/unknown")
    await outer.resume(SESSION)
    with pytest.raises(NotFound):
        await outer.deny(SESSION, "a/t")


async def test_a_run_that_is_resumed_without_a_decision_pauses_again() -> None:
    inner, inner_store, model = make(INNER)
    outer, store, _ = make(OUTER, as_research(inner))
    await outer.run("Go", session=SESSION)
    result = await outer.resume(SESSION)
    assert (result.status, [request.tool_call_id for request in result.approvals]) == (
        AgentStatus.AWAITING_HUMAN,
        ["a/t"],
    )
    assert len(model.calls) == 1
    assert (await kinds(store)).count("approval_required") == 1
    await outer.approve(SESSION, "a/t")
    assert (await outer.resume(SESSION)).output == "Done."
    assert (await kinds(inner_store, await inner_session(store))).count("approval_required") == 1


async def test_finished_inner_steps_are_not_repeated_and_everything_counts_once() -> None:
    ran: list[str] = []

    @tool
    async def look(what: str) -> str:
        """Look at something."""
        ran.append(what)
        return "seen"

    script = [
        costly(assistant(ToolCall("l", "look", {"what": "first"})), 10),
        costly(assistant(call("t", "transfer", amount=5)), 20),
        costly(assistant(call("u", "transfer", amount=6), ToolCall("m", "look", {"what": "second"})), 40),
        costly("Moved.", 80),
    ]
    inner, _, model = make(script, look, transfer)
    outer, store, _ = make([costly(assistant(ask("a")), 1), costly("Done.", 2)], as_research(inner))
    await outer.run("Go", session=SESSION)
    await outer.approve(SESSION, "a/t")
    result = await outer.resume(SESSION)
    assert [request.tool_call_id for request in result.approvals] == [
        "a/u"
    ]  # and no longer the one that was acted upon
    await outer.approve(SESSION, "a/u")
    result = await outer.resume(SESSION)
    assert (result.output, ran, len(model.calls)) == ("Done.", ["first", "second"], 4)
    assert result.usage == Usage(153, 0)
    assert (result.iterations, result.tool_rounds) == (6, 4)
    await check_session(store)


async def test_a_deferred_inner_call_pauses_the_outer_run_until_its_result_is_posted() -> None:
    @tool(deferred=True)
    async def order(title: str) -> None:
        """Order a book."""

    inner, inner_store, _ = make([assistant(ToolCall("o", "order", {"title": "Bar tacks"})), "It came."], order)
    outer, store, _ = make(OUTER, as_research(inner))
    result = await outer.run("Go", session=SESSION)
    assert result.approvals == ()
    assert result.deferred == (
        ToolStarted(tool_call_id="a/o", tool_name="order", arguments={"title": "Bar tacks"}, deferred=True),
    )
    assert await requests.deferred_calls(store, SESSION) == result.deferred
    await outer.post_result(SESSION, "a/o", "A parcel.", posted_by="the post")
    with pytest.raises(Conflict, match="already has a result"):
        await outer.post_result(SESSION, "a/o", "Another.")
    with pytest.raises(NotFound, match="not waiting for a result"):
        await outer.post_result(SESSION, "a", "It came.")
    assert (await outer.resume(SESSION)).output == "Done."
    session = await inner_session(store)
    assert (await results(inner_store, session))["o"].content == "A parcel."
    (posted,) = [fact for fact in await facts(inner_store, session) if fact.kind == "result_posted"]
    assert posted.posted_by == "the post"
    await check_session(store)


def levels(store: SessionStore) -> Agent[Any, Any]:
    """An agent that calls one that calls one that transfers money and orders a book."""

    @tool(deferred=True)
    async def order() -> None:
        """Order a book."""

    calls = assistant(call("t", "transfer", amount=5), ToolCall("o", "order", {}))
    innermost = Agent(ScriptedModel(_after(calls, "Moved.")), tools=[transfer, order])
    inner = Agent(ScriptedModel(_after(assistant(ask("m")), "Moved.")), tools=[as_research(innermost)])
    return Agent(ScriptedModel(_after(assistant(ask("a")), "Done.")), tools=[as_research(inner)], store=store)


def _after(first: Any, last: str) -> list[Any]:
    """Answers for as many processes as there are: the first one until there is a result."""
    return [lambda history: last if history[-1].role == "tool" else first] * 4


async def test_two_levels_in_other_processes(tmp_path: Path) -> None:
    async def process(step: Callable[[Agent[Any, Any], SessionStore], Awaitable[None]]) -> None:
        """Something done with agents and a connection of its own."""
        store = await open_store(tmp_path / "sessions.db")
        try:
            await step(levels(store), store)
        finally:
            await store.close()

    async def begin(agent: Agent[Any, Any], store: SessionStore) -> None:
        result = await agent.run("Go", session=SESSION)
        assert [request.tool_call_id for request in result.approvals] == ["a/m/t"]
        assert [call.tool_call_id for call in result.deferred] == ["a/m/o"]

    async def approve(agent: Agent[Any, Any], store: SessionStore) -> None:
        await requests.decide(store, SESSION, "a/m/t", Decision("approve"))
        result = await agent.resume(SESSION)
        assert (result.approvals, [call.tool_call_id for call in result.deferred]) == ((), ["a/m/o"])

    async def post(agent: Agent[Any, Any], store: SessionStore) -> None:
        await requests.post_result(store, SESSION, "a/m/o", ToolResult("a/m/o", "A parcel."))
        assert (await agent.resume(SESSION)).output == "Done."
        sessions = [info.id for info in (await store.sessions()).items]
        assert len(sessions) == 3  # agents without a store use that of the outer run
        ended = [await results(store, session) for session in sessions]
        contents = {call_id: result.content for results_by_id in ended for call_id, result in results_by_id.items()}
        assert contents == {"a": "Moved.", "m": "Moved.", "t": "moved 5", "o": "A parcel."}
        for session in sessions:
            await check_session(store, session)

    for step in (begin, approve, post):
        await process(step)


async def test_after_a_crash_the_inner_session_is_continued() -> None:
    waiting = Waiting()
    first = assistant(call("w"), ToolCall("i", "wait", {}))
    inner, inner_store, model = make([first, "Waited."], waiting.tool, *make([])[0].tools)
    outer, store, _ = make(OUTER, as_research(inner))
    frozen = asyncio.create_task(outer.run("Go", session=SESSION))
    await within(waiting.started.wait())
    assert (await outer.resume(SESSION, takeover=True)).output == "Done."
    session = await inner_session(store)
    assert (waiting.runs, len(model.calls)) == (1, 2)
    ended = await results(inner_store, session)
    assert (ended["w"].content, ended["i"].error_code) == ("rain in Paris", ErrorCode.TOOL_INTERRUPTED)
    await check_session(store)
    await check_session(inner_store, session)
    frozen.cancel()
    with suppress(asyncio.CancelledError, StoreError):
        await within(frozen)


async def test_an_inner_session_that_is_gone_is_not_begun_again() -> None:
    inner, _, model = make(INNER)
    outer, store, _ = make(OUTER, as_research(inner))
    await outer.run("Go", session=SESSION)
    second_agent, _, _ = make(OUTER[1:], as_research(make(INNER)[0].with_store(MemoryStore())), store=store)
    await second_agent.approve(SESSION, "a/t")
    assert (await second_agent.resume(SESSION)).output == "Done."
    assert (await results(store))["a"].error_code is ErrorCode.TOOL_INTERRUPTED
    assert len(model.calls) == 1


async def test_sub_agents_at_the_same_time_each_wait_for_their_own_answers() -> None:
    inner, inner_store, _ = make([*INNER, *INNER])
    second_agent, _, _ = make(INNER, store=inner_store)
    tools = (as_research(inner), second_agent.as_tool("other", "Another one."))
    outer, store, _ = make([assistant(ask("a"), ToolCall("b", "other", {"prompt": "?"})), "Done."], *tools)
    result = await outer.run("Go", session=SESSION)
    assert [request.tool_call_id for request in result.approvals] == ["a/t", "b/t"]
    await outer.approve(SESSION, "a/t")
    result = await outer.resume(SESSION)
    assert [request.tool_call_id for request in result.approvals] == ["b/t"]
    assert list(await results(store)) == ["a"]
    await outer.deny(SESSION, "b/t")
    assert (await outer.resume(SESSION)).output == "Done."
    await check_session(store)


async def test_a_decision_that_arrives_while_another_sub_agent_works_is_used_without_a_pause() -> None:
    waiting = Waiting()
    busy, _, _ = make([assistant(ToolCall("w", "wait", {})), "Waited."], waiting.tool)
    inner, _, _ = make(INNER)
    tools = (as_research(inner), busy.as_tool("busy", "Takes long."))
    outer, store, _ = make([assistant(ask("a"), ToolCall("b", "busy", {"prompt": "?"})), "Done."], *tools)
    task = asyncio.create_task(outer.run("Go", session=SESSION))
    await within(waiting.started.wait())
    async for entry in store.follow(SESSION, 0):
        if isinstance(entry.fact, ApprovalRequired):
            break
    await requests.decide(store, SESSION, "a/t", Decision("approve"))
    waiting.proceed.set()
    assert (await within(task)).output == "Done."


# -- with an approver


async def test_a_question_that_waits_for_the_approver_may_be_decided_in_the_outer_session() -> None:
    inner, inner_store, _ = make(INNER)
    outer, store, _ = make(OUTER, as_research(inner), approver=LiveApprover())
    async with outer.stream("Go", session=SESSION) as run:
        async for event in run:
            if isinstance(event, ApprovalRequested):
                assert await requests.pending_approvals(store, SESSION) == (event.request,)
                await requests.decide(store, SESSION, "a/t", Decision("deny", decided_by="another process"))
    assert run.result.output == "Done."
    session = await inner_session(store)
    assert (await results(inner_store, session))["t"].error_code is ErrorCode.TOOL_DENIED


@pytest.mark.parametrize("is_inner", [True, False])
async def test_an_approver_may_leave_the_question_open(is_inner: bool) -> None:
    undecided = Recording("pause")
    inner, _, _ = make(INNER, approver=undecided if is_inner else None)
    outer, _, _ = make(OUTER, as_research(inner), approver=None if is_inner else undecided)
    result = await outer.run("Go", session=SESSION)
    assert (result.status, [request.tool_call_id for request in result.approvals]) == (
        AgentStatus.AWAITING_HUMAN,
        ["a/t"],
    )
    assert undecided.asked == ["t" if is_inner else "a/t"]
    await outer.approve(SESSION, "a/t")
    assert (await outer.resume(SESSION)).output == "Done."
    assert len(undecided.asked) == 1


class Undecided:
    async def decide(self, request: ApprovalRequired) -> None:
        return None


async def test_a_run_pauses_if_its_approver_makes_no_decision() -> None:
    agent, _, _ = make(INNER, approver=Undecided())
    result = await agent.run("Go", session=SESSION)
    assert (result.status, len(result.approvals)) == (AgentStatus.AWAITING_HUMAN, 1)


# -- outside of a run, and the end


async def test_a_sub_agent_that_pauses_outside_of_any_run_is_ended() -> None:
    inner, inner_store, _ = make(INNER)
    output = await as_research(inner).execute({"prompt": "?"}, ToolContext())
    assert (output.is_error, output.content) == (True, "research did not complete (status aborted): paused")
    (info,) = (await inner_store.sessions()).items
    assert (await results(inner_store, info.id))["t"].error_code is ErrorCode.TOOL_ABORTED


@pytest.mark.parametrize("how", ["abort", "request", "new run"])
async def test_a_paused_inner_run_ends_with_the_outer_one(how: str) -> None:
    inner, inner_store, _ = make(INNER)
    middle, middle_store, _ = make([assistant(ask("m"))], as_research(inner))
    outer, store, _ = make([assistant(ask("a")), "Never mind."], as_research(middle))
    await outer.run("Go", session=SESSION)
    if how == "abort":
        assert (await outer.abort(SESSION)).status is AgentStatus.ABORTED
    elif how == "request":
        await requests.request_abort(store, SESSION)
        assert (await outer.resume(SESSION)).status is AgentStatus.ABORTED
    else:
        assert (await outer.run("Forget it", session=SESSION)).output == "Never mind."
    assert await requests.pending_approvals(store, SESSION) == ()
    await check_session(store)
    for one in (middle_store, inner_store):
        (info,) = (await one.sessions()).items
        ended = (await facts(one, info.id))[-1]
        assert (ended.status, ended.reason) == ("aborted", "outer run ended")
        assert await requests.pending_approvals(one, info.id) == ()
        await check_session(one, info.id)


async def test_an_outer_run_ends_also_if_the_inner_session_is_gone() -> None:
    outer, store, _ = make(OUTER, as_research(make(INNER)[0]))
    await outer.run("Go", session=SESSION)
    second_agent, _, _ = make([], as_research(make(INNER)[0].with_store(MemoryStore())), store=store)
    assert (await second_agent.abort(SESSION)).status is AgentStatus.ABORTED


async def test_an_agent_tool_that_needs_approval_itself_asks_once() -> None:
    inner, _, _ = make(INNER)
    research: ToolDefinition = inner.as_tool("research", "Finds things out.", requires_approval=True)
    outer, _, _ = make(OUTER, research)
    assert [request.tool_call_id for request in (await outer.run("Go", session=SESSION)).approvals] == ["a"]
    await outer.approve(SESSION, "a")
    assert [request.tool_call_id for request in (await outer.resume(SESSION)).approvals] == ["a/t"]
    await outer.approve(SESSION, "a/t")
    assert (await outer.resume(SESSION)).output == "Done."
