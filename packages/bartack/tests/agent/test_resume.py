"""Recovery: a session whose process died at any point can be resumed, and nothing is repeated that must not be."""

import asyncio

import pytest

from bartack import Conflict, ErrorCode, NotFound, ToolCall, ToolResult, assistant, tool_message, user
from bartack.agent import StatusChanged
from bartack.nouns.entries import Fact, RunStarted, ToolStarted
from bartack.nouns.messages import Meta
from bartack.nouns.tables import AgentStatus
from bartack.store import SessionStore, Tail, next_entries
from bartack.tools import tool
from tests.agent.kit import SESSION, check_session, collected, facts, kinds, make, results

RUNS: list[str] = []


@tool(idempotent=True)
async def look(city: str) -> str:
    """May run again."""
    RUNS.append(city)
    return f"seen {city}"


@tool
async def pay(amount: int) -> str:
    """May not."""
    RUNS.append(str(amount))
    return f"paid {amount}"


async def left_behind(*facts: Fact) -> SessionStore:
    """A session as after a crash."""
    RUNS.clear()
    agent, store, _ = make([])
    del agent
    header = await store.create_session(SESSION)
    entries = next_entries(SESSION, Tail(header.id, 1), [RunStarted(), *facts], store.environment, run_id="run-1")
    await store.append(SESSION, entries, header.id)
    return store


META = Meta(model_call_index=0, attempt=1)
LOOK = ToolCall("c1", "look", {"city": "Rome"})
PAY = ToolCall("c1", "pay", {"amount": 7})


@pytest.mark.parametrize(
    ("facts", "ran", "code"),
    [
        ((user("Go"),), [], None),
        ((user("Go"), assistant(PAY, meta=META)), ["7"], None),
        (
            (
                user("Go"),
                assistant(PAY, meta=META),
                ToolStarted(tool_call_id="c1", tool_name="pay", arguments={"amount": 7}),
            ),
            [],
            "tool_interrupted",
        ),
        (
            (
                user("Go"),
                assistant(LOOK, meta=META),
                ToolStarted(tool_call_id="c1", tool_name="look", arguments={"city": "Rome"}, idempotent=True),
            ),
            ["Rome"],
            None,
        ),
        (
            (
                user("Go"),
                assistant(PAY, meta=META),
                ToolStarted(tool_call_id="c1", tool_name="pay", arguments={"amount": 7}),
                tool_message(ToolResult("c1", "paid 7")),
            ),
            [],
            None,
        ),
    ],
)
async def test_a_run_resumes_where_it_stopped(facts: tuple[Fact, ...], ran: list[str], code: str | None) -> None:
    """D-5.8, D-5.8.1, D-5.9"""
    store = await left_behind(*facts)
    agent, _, model = make(["Done."], look, pay, store=store)
    result = await agent.resume(SESSION)
    assert (result.output, result.run_id) == ("Done.", "run-1")
    assert ran == RUNS
    assert len(model.calls) == 1
    if code is not None:
        assert (await results(store))["c1"].error_code == code
    entries = await check_session(store)
    assert {entry.run_id for entry in entries[1:]} == {"run-1"}
    if len(facts) > 1:
        assert result.message is not None
        assert result.message.meta is not None
        assert result.message.meta.model_call_index == 1


async def test_a_stored_answer_is_not_requested_again() -> None:
    store = await left_behind(user("Go"), assistant("Done.", meta=META))
    agent, _, model = make(["never"], store=store)
    events = await collected(agent.resume_stream(SESSION))
    result = events[-1].result
    assert (result.output, result.status, list(model.calls)) == ("Done.", AgentStatus.COMPLETED, [])
    assert (await kinds(store))[-1] == "run_ended"
    statuses = [event.status for event in events if isinstance(event, StatusChanged)]
    assert statuses == [AgentStatus.PREPARING, AgentStatus.COMPLETED]  # no model ran


async def test_resuming_a_finished_run_returns_its_result_and_writes_nothing() -> None:
    agent, store, model = make(["Done."])
    first = await agent.run("Go", session=SESSION)
    before = await store.tail_of(SESSION)
    second_agent, _, _ = make([], store=store)
    again = await second_agent.resume(SESSION)
    assert (again.output, again.run_id, again.status) == ("Done.", first.run_id, first.status)
    assert await store.tail_of(SESSION) == before
    assert len(model.calls) == 1


async def test_resuming_a_missing_session_raises_not_found() -> None:
    agent, _, _ = make([])
    with pytest.raises(NotFound):
        await agent.resume("nowhere")


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ((assistant(PAY, meta=META),), ErrorCode.TOOL_NOT_RUN),
        (
            (assistant(PAY, meta=META), ToolStarted(tool_call_id="c1", tool_name="pay", arguments={"amount": 7})),
            ErrorCode.TOOL_INTERRUPTED,
        ),
        (
            (
                assistant(LOOK, meta=META),
                ToolStarted(tool_call_id="c1", tool_name="look", arguments={}, idempotent=True),
            ),
            ErrorCode.TOOL_INTERRUPTED,
        ),
    ],
)
async def test_a_new_prompt_closes_open_calls_without_executing_them(facts: tuple[Fact, ...], code: ErrorCode) -> None:
    """D-5.8, D-5.8.1"""
    store = await left_behind(user("Go"), *facts)
    agent, _, _ = make(["Fine."], look, pay, store=store)
    assert (await agent.run("Something else", session=SESSION)).output == "Fine."
    assert RUNS == []
    assert (await results(store))["c1"].error_code is code
    assert (await kinds(store)).count("run_ended") == 2
    await check_session(store)


async def test_a_failed_attempt_before_the_crash_counts() -> None:
    from bartack import Failed
    from bartack.nouns.entries import StreamFailed

    failed = StreamFailed(error=Failed(ErrorCode.OVERLOADED, "busy", retryable=True), model_call_index=0, attempt=1)
    store = await left_behind(user("Go"), failed)
    agent, _, _ = make(["Done."], store=store)
    result = await agent.resume(SESSION)
    assert result.message is not None
    assert result.message.meta is not None
    assert (result.message.meta.model_call_index, result.message.meta.attempt) == (0, 2)


async def test_the_lease_of_a_process_that_died_can_be_taken_over() -> None:
    from tests.agent.kit import PausingModel, within

    model = PausingModel(["A long answer."], after=2)
    agent, store, _ = make(model)
    first = asyncio.create_task(agent.run("Go", session=SESSION))
    await within(model.reached.wait())
    second_agent, _, _ = make(["Mine."], store=store)
    with pytest.raises(Conflict):
        await second_agent.resume(SESSION)
    assert (await second_agent.resume(SESSION, takeover=True)).output == "Mine."
    model.proceed.set()  # the old process is still alive: its next write is refused
    with pytest.raises(Conflict):
        await within(first)
    entries = await check_session(store)
    assert [fact.text for fact in await facts(store) if getattr(fact, "role", "") == "assistant"] == ["Mine."]
    assert len(entries) == len({entry.seq for entry in entries})
