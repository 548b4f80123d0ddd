"""An agent as a tool of another: what it costs, who approves its calls, and what the outer run shows of it."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from bartack import (
    AgentConfig,
    BartackError,
    ErrorCode,
    LoopConfig,
    Message,
    Meta,
    ToolCall,
    ToolContext,
    ToolResult,
    Usage,
    assistant,
    tool,
    tool_message,
    user,
)
from bartack.agent import (
    Agent,
    ApprovalRequested,
    DeltaReceived,
    LiveApprover,
    RunFinished,
    SubagentEvent,
    ToolChanged,
)
from bartack.models import ScriptedModel
from bartack.nouns import wire
from bartack.nouns.tables import AgentStatus
from bartack.store import MemoryStore
from bartack.store.requests import post, redact
from bartack.tools import Decision, ToolDefinition
from tests.agent.kit import SESSION, Waiting, call, check_session, collected, make, messages, results, within


def ask(id: str = "c1", prompt: str = "What is it?") -> ToolCall:
    return ToolCall(id, "research", {"prompt": prompt})


def as_research(agent: Agent[Any, Any]) -> ToolDefinition:
    return agent.as_tool("research", "Finds things out.")


def costly(message: Message | str, tokens: int, cost: float | None = None) -> Message:
    answer = assistant(message) if isinstance(message, str) else message
    return replace(answer, meta=Meta(usage=Usage(tokens, 0, cost=cost)))


def test_an_agent_among_the_tools_is_refused_with_advice() -> None:
    inner: Any = Agent(ScriptedModel([]))
    with pytest.raises(BartackError, match=r"not Agent; use agent\.as_tool\(name, description\)"):
        Agent(ScriptedModel([]), tools=[inner])


async def test_an_agent_can_be_a_tool_of_another() -> None:
    inner, inner_store, inner_model = make(["Forty-two."])
    outer, store, _ = make(
        [assistant(ToolCall("c1", "research", {"prompt": "What is it?"})), "It is 42."],
        inner.as_tool("research", "Finds things out."),
    )
    assert (await outer.run("Go", session=SESSION)).output == "It is 42."
    result = (await results(store))["c1"]
    assert result.content == "Forty-two."
    assert result.metadata is not None
    assert inner_model.calls[0].messages[0].text == "What is it?"
    assert [message.text for message in await messages(inner_store, result.metadata["sessionId"])] == [
        "What is it?",
        "Forty-two.",
    ]


async def test_an_inner_agent_that_fails_is_an_error_result() -> None:
    inner, _, _ = make([])
    tool = inner.as_tool("research", "Finds things out.")
    outer, store, _ = make([assistant(ToolCall("c1", "research", {"prompt": "?"})), "Never mind."], tool)
    assert (await outer.run("Go", session=SESSION)).output == "Never mind."
    assert (await results(store))["c1"].error_code is ErrorCode.TOOL_FAILED


async def test_stopping_the_outer_run_stops_the_inner_one() -> None:
    waiting = Waiting()
    inner, inner_store, _ = make(ScriptedModel([assistant(ToolCall("i1", "wait", {}))]), waiting.tool)
    outer, store, _ = make(
        [assistant(ToolCall("c1", "research", {"prompt": "?"}))], inner.as_tool("research", "Finds things out.")
    )
    task = asyncio.create_task(outer.run("Go", session=SESSION))
    await within(waiting.started.wait())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await within(task)
    assert waiting.was_cancelled
    await check_session(store)
    (info,) = (await inner_store.sessions()).items
    await check_session(inner_store, info.id)
    assert (await outer.resume(SESSION)).status is AgentStatus.ABORTED


async def test_the_name_of_the_tool_is_one_that_providers_accept() -> None:
    inner, _, _ = make(["Forty-two."])
    tool = inner.as_tool("Ask Ada, please!", "Finds things out.")
    assert tool.name == "Ask_Ada_please_"
    outer, _, _ = make([assistant(ToolCall("c1", tool.name, {"prompt": "?"})), "It is 42."], tool)
    assert (await outer.run("Go", session=SESSION)).output == "It is 42."


# -- usage and limits


async def test_the_usage_of_an_inner_run_adds_up_in_the_outer_one_and_is_stored_once() -> None:
    inner, _, _ = make([costly(assistant(call("i1")), 10, 0.5), costly("Forty-two.", 20, 0.25)])
    script = [costly(assistant(ask()), 1), costly(assistant(ask("c2")), 2), costly("It is 42.", 4)]
    outer, store, _ = make(script, as_research(inner))
    result = await outer.run("Go", session=SESSION)
    assert result.usage is not None
    assert (result.usage.total_tokens, result.cost_usd) == (1 + 2 + 4 + 30, 0.75)  # the second inner run fails at once
    assert (await outer.resume(SESSION)).usage == result.usage
    spend = (await store.totals(SESSION)).spend
    assert (spend.input_tokens, spend.cost_usd) == (7, 0.0)
    await check_session(store)


async def test_the_usage_of_an_inner_run_that_failed_counts_too() -> None:
    inner, inner_store, _ = make([costly(assistant(call("i1")), 10, 0.5)])
    outer, store, _ = make([assistant(ask()), "Never mind."], as_research(inner))
    result = await outer.run("Go", session=SESSION)
    assert (result.usage, result.cost_usd) == (Usage(10, 0, cost=0.5), 0.5)
    metadata = (await results(store))["c1"].metadata
    assert metadata is not None
    assert (await messages(inner_store, metadata["sessionId"]))[0].text == "What is it?"


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (LoopConfig(max_total_tokens=100), "max_total_tokens"),
        (LoopConfig(max_cost_usd=1.0), "max_cost_usd"),
        (LoopConfig(max_iterations=4), "max_iterations"),  # one outer, one inner, two in the middle
    ],
)
async def test_an_inner_run_stops_at_what_is_left_of_the_outer_limits(limits: LoopConfig, reason: str) -> None:
    endless = [costly(assistant(call(f"i{number}", city=str(number))), 30, 0.3) for number in range(20)]
    middle, _, middle_model = make(endless, config=AgentConfig(loop=LoopConfig(max_total_tokens=10_000)))
    inner, _, _ = make([assistant(ask("m1"))], as_research(middle))
    outer, store, _ = make([costly(assistant(ask()), 50, 0.5), "never"], as_research(inner))
    result = await outer.run("Go", session=SESSION, limits=limits)
    assert (result.status, result.reason) == (AgentStatus.FAILED, reason)
    assert len(middle_model.calls) == 2
    assert result.usage is not None
    assert result.usage.total_tokens == 50 + 2 * 30
    await check_session(store)


async def test_tool_rounds_of_an_inner_run_count_for_the_outer_one() -> None:
    endless = [assistant(call(f"i{number}", city=str(number))) for number in range(20)]
    inner, _, model = make(endless)
    outer, store, _ = make([assistant(ask()), "Never mind."], as_research(inner))
    result = await outer.run("Go", session=SESSION, limits=LoopConfig(max_tool_rounds=3))
    assert (result.output, result.tool_rounds, len(model.calls)) == (
        "Never mind.",
        4,
        3,
    )  # the last one is not executed
    assert "More than 2 rounds" in str((await results(store))["c1"].content)


async def test_an_inner_agent_keeps_its_own_smaller_limits() -> None:
    config = AgentConfig(loop=LoopConfig(max_total_tokens=10, max_cost_usd=0.1))
    inner, _, model = make([costly(assistant(call("i1")), 30, 0.3), "never"], config=config)
    outer, store, _ = make([assistant(ask()), "Never mind."], as_research(inner))
    limits = LoopConfig(max_total_tokens=1000, max_cost_usd=10)
    assert (await outer.run("Go", session=SESSION, limits=limits)).output == "Never mind."
    assert "Limit reached" in str((await results(store))["c1"].content)
    assert len(model.calls) == 1


async def test_an_inner_run_gets_the_dependencies_of_the_outer_one() -> None:
    deps: list[str] = []

    @tool
    async def note(context: ToolContext[str]) -> str:
        """Note something."""
        deps.append(context.deps)
        return "noted"

    inner, _, _ = make([assistant(ToolCall("i1", "note", {})), "Noted."], note)
    outer, _, _ = make([assistant(ask()), "Done."], as_research(inner))
    await outer.run("Go", session=SESSION, deps="mine")
    assert deps == ["mine"]


async def test_the_tool_works_outside_of_any_run() -> None:
    inner, _, _ = make([costly("Forty-two.", 20)])
    output = await as_research(inner).execute({"prompt": "?"}, ToolContext())
    assert output.content == "Forty-two."


# -- approvals


async def test_an_inner_call_is_approved_by_the_reader_of_the_outer_run() -> None:
    inner, inner_store, _ = make([assistant(call("t", "transfer", amount=5)), "Moved."])
    questions: list[str] = []
    second_agent, _, _ = make([assistant(call("t", "transfer", amount=7)), "Moved."], store=inner_store)
    outer, store, _ = make(
        [assistant(ask("a"), ToolCall("b", "other", {"prompt": "?"})), "Done."],
        as_research(inner),
        second_agent.as_tool("other", "Another one."),
        approver=LiveApprover(),
    )
    async with outer.stream("Go", session=SESSION) as run:
        async for event in run:
            if isinstance(event, ApprovalRequested):
                questions.append(event.request.tool_call_id)
                if event.request.arguments == {"amount": 5}:
                    run.approve(event.request.tool_call_id)
                else:
                    run.deny(event.request.tool_call_id, reason="too much")
    assert sorted(questions) == ["a/t", "b/t"]
    contents = {}
    for id, result in (await results(store)).items():
        assert result.metadata is not None
        contents[id] = (await results(inner_store, result.metadata["sessionId"]))["t"].content
    assert contents == {"a": "moved 5", "b": "The call was denied: too much"}


class Recording:
    """Approves everything, and notes what it was asked."""

    def __init__(self, verdict: Any = "approve") -> None:
        self.asked: list[str] = []
        self._verdict = verdict

    async def decide(self, request: Any) -> Decision:
        self.asked.append(request.tool_call_id)
        return Decision(self._verdict)


async def test_a_question_passes_through_every_level() -> None:
    approver = Recording()
    innermost, innermost_store, _ = make([assistant(call("t", "transfer", amount=5)), "Moved."])
    inner, _, _ = make([assistant(ask("m")), "Moved."], as_research(innermost))
    outer, _, _ = make([assistant(ask("a")), "Done."], as_research(inner), approver=approver)
    events = await collected(outer.stream("Go", session=SESSION))
    assert approver.asked == ["a/m/t"]
    assert [event.request.tool_call_id for event in events if isinstance(event, ApprovalRequested)] == ["a/m/t"]
    (info,) = (await innermost_store.sessions()).items
    assert (await results(innermost_store, info.id))["t"].content == "moved 5"


async def test_an_inner_agent_with_an_approver_asks_that_one() -> None:
    own, outer_approver = Recording(), Recording()
    inner, _, _ = make([assistant(call("t", "transfer", amount=5)), "Moved."], approver=own)
    outer, _, _ = make([assistant(ask("a")), "Done."], as_research(inner), approver=outer_approver)
    await outer.run("Go", session=SESSION)
    assert (own.asked, outer_approver.asked) == (["t"], [])


# -- events


async def test_the_outer_stream_shows_the_events_of_inner_runs_nested() -> None:
    innermost = Agent(ScriptedModel(["Forty-two."]), name="oracle", store=MemoryStore())
    inner, _, _ = make([assistant(ask("m")), "It is 42."], as_research(innermost))
    outer, _, _ = make([assistant(ask("a")), "Done."], as_research(inner))
    events = await collected(outer.stream("Go", session=SESSION))
    nested = [event for event in events if isinstance(event, SubagentEvent)]
    assert {(event.tool_call_id, event.agent) for event in nested} == {("a", "research")}
    assert isinstance(nested[-1].event, RunFinished)
    assert any(isinstance(event.event, ToolChanged) for event in nested)
    deepest = [event.event for event in nested if isinstance(event.event, SubagentEvent)]
    assert {(event.tool_call_id, event.agent) for event in deepest} == {("m", "oracle")}
    deltas = [event.event.delta.delta for event in deepest if isinstance(event.event, DeltaReceived)]
    assert "".join(getattr(delta, "text_delta", "") for delta in deltas) == "Forty-two."


async def test_what_a_sub_agent_used_before_it_timed_out_counts() -> None:
    waiting = Waiting()
    inner, _, _ = make([costly(assistant(ToolCall("w", "wait", {})), 500)], waiting.tool)
    slow = inner.as_tool("research", "Researches a question.", timeout_ms=2_000)
    outer, store, _ = make([assistant(ask("a")), "Done."], slow)
    result = await outer.run("Go", session=SESSION)
    assert (await results(store))["a"].error_code is ErrorCode.TOOL_TIMEOUT
    assert result.usage is not None
    assert result.usage.total_tokens >= 500


async def test_redacting_a_call_redacts_the_sessions_of_its_sub_agents() -> None:
    innermost = Agent(ScriptedModel(["It is hunter2."])).as_tool("research", "Finds things out.")
    middle = Agent(ScriptedModel([assistant(ask("d1", "Find hunter2")), "hunter2"]), tools=[innermost])
    outer, store, _ = make([assistant(ask(prompt="Find hunter2")), "Done."], as_research(middle))
    await outer.run("Go", session=SESSION)
    session_ids = [info.id for info in (await store.sessions()).items]
    assert len(session_ids) == 3
    entries = await store.load(SESSION)
    calls = next(entry for entry in entries if isinstance(entry.fact, Message) and entry.fact.tool_calls)
    await redact(store, SESSION, calls.id)
    inner_session, innermost_session = sorted(session_ids, key=len)[1:]
    for session_id in (inner_session, innermost_session):
        assert not any(b"hunter2" in wire.encode(entry) for entry in await store.load(session_id))
    count = len(await store.entries(innermost_session))
    await redact(store, SESSION, calls.id)  # again
    assert len(await store.entries(innermost_session)) == count


async def test_a_session_of_a_sub_agent_that_is_somewhere_else_is_not_redacted() -> None:
    """An imported session may name any session as that of its sub-agent."""
    inner, inner_store, _ = make(["Forty-two."])
    outer, store, _ = make([assistant(ask()), "It is 42."], as_research(inner))
    await outer.run("Go", session=SESSION)
    await store.create_session("private")
    secret = await post(store, "private", user("A secret"))
    forged = ToolResult("c1", "Done", metadata={"sessionId": "private"})
    await store.create_session("other")
    calls = await post(store, "other", assistant(ask()), tool_message(forged))
    await redact(store, "other", calls.id)
    await redact(store, SESSION, (await store.entries(SESSION))[-2].id)
    assert (await store.entries("private"))[-1].id == secret.id
    assert len(await inner_store.entries((await inner_store.sessions()).items[0].id)) == 5
