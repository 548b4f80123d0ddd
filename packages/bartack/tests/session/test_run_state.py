"""`RunState`: what the entries of a branch amount to for a run."""

from typing import Any

import pytest
from msgspec.structs import replace

from bartack import (
    ApprovalRequired,
    CompactionSummary,
    Custom,
    Entry,
    ErrorCode,
    Failed,
    Meta,
    Redaction,
    ToolCall,
    ToolResult,
    Usage,
    assistant,
    system,
    tool_message,
    user,
)
from bartack.nouns import wire
from bartack.nouns.entries import (
    AbortRequested,
    ApprovalDecided,
    Fact,
    MessageQueued,
    ModelChange,
    ResultPosted,
    RunEnded,
    RunStarted,
    RuntimeInit,
    StreamFailed,
    ToolProgress,
    ToolStarted,
)
from bartack.nouns.messages import ModelRef
from bartack.session.decisions import Decision, Verdict, decided_fact
from bartack.session.outline import REPAIRED, UNREADABLE, outlines_of
from bartack.session.run_state import HANDOFF, REPEATED, SESSION, SPENT, WAITING, RunState, RunTotals
from tests.sample_session import at, chain

CALL = ToolCall("c1", "weather", {"city": "Paris"})
QUESTION = ApprovalRequired(tool_call_id="c1", tool_name="weather", arguments={"city": "Paris"})


def decision(word: Verdict) -> ApprovalDecided:
    return decided_fact(QUESTION, Decision(word))


def folded(*facts: Fact) -> RunState:
    return pushed(chain(*facts))


def pushed(entries: list[Entry]) -> RunState:
    state = RunState()
    for entry in entries:
        state.push(entry)
    return state


# -- damage

LOST = Custom(name=UNREADABLE, data={})


@pytest.mark.parametrize(
    ("facts", "lost", "is_uncertain"),
    [
        ([RunStarted(), user("Pay."), LOST], 3, True),
        ([assistant(CALL), LOST], 2, True),  # without a run, but with a call that may have been started
        ([RunStarted(), user("Hi."), LOST, assistant("Hi.")], 3, False),  # there is nothing left to do
        ([RunStarted(), user("Pay."), LOST, Custom(name=REPAIRED, data={})], None, False),
        ([RunStarted(), LOST, RunEnded(status="aborted")], None, False),
        ([LOST, RunStarted(), user("Pay.")], None, False),
    ],
)
def test_a_run_with_an_entry_that_cannot_be_read_is_uncertain(
    facts: list[Fact], lost: int | None, is_uncertain: bool
) -> None:
    state = folded(*facts)
    assert (state.lost, state.is_uncertain) == (lost, is_uncertain)


def test_a_run_that_lacks_an_entry_is_uncertain() -> None:
    first, prompt, call, started = chain(
        RunStarted(), user("Pay."), assistant(CALL), ToolStarted(tool_call_id="c1", tool_name="weather", arguments={})
    )
    assert pushed([first, prompt, started]).lost == call.seq


# -- calls


def test_a_call_is_open_until_it_has_a_result() -> None:
    state = folded(assistant(CALL))
    assert list(state.open_calls) == ["c1"]
    assert folded(assistant(CALL), tool_message(ToolResult("c1", "rain"))).open_calls == {}
    assert folded(tool_message(ToolResult("unknown", "rain"))).open_calls == {}


def test_a_call_executed_by_the_provider_is_never_open() -> None:
    state = folded(assistant(ToolCall("p1", "search", {}, executed_by="provider")))
    assert state.open_calls == {}
    assert state.call_ids == {"p1"}


def test_an_open_call_holds_what_was_recorded_about_it() -> None:
    started = ToolStarted(tool_call_id="c1", tool_name="weather", arguments={"city": "Paris"}, attempt=2)
    decided = decision("approve")
    other_facts = (
        ToolProgress(tool_call_id="c1", content="half"),
        ToolStarted(tool_call_id="x", tool_name="y", arguments={}),
        Custom(name="note", data={}),
    )
    state = folded(assistant(CALL), QUESTION, decided, started, *other_facts)
    open_call = state.open_calls["c1"]
    assert (open_call.question, open_call.decision, open_call.started) == (QUESTION, decided, started)
    assert (open_call.truncated, open_call.bad_args) == (False, None)


@pytest.mark.parametrize("meta", [Meta(finish_reason="length"), Meta(aborted=True)])
def test_the_calls_of_an_incomplete_answer_are_truncated(meta: Meta) -> None:
    assert folded(assistant(CALL, meta=meta)).open_calls["c1"].truncated


def test_a_call_with_bad_arguments_names_the_reason() -> None:
    state = folded(assistant(CALL, meta=Meta(bad_args={"c1": "unexpected end"})))
    assert state.open_calls["c1"].bad_args == "unexpected end"


@pytest.mark.parametrize(
    ("word", "is_open"),
    [("approve", False), ("deny", False), ("expire", False), ("abort", False), ("pause", True), ("resume", True)],
)
def test_a_decision_settles_a_question_unless_it_postpones_it(word: Verdict, is_open: bool) -> None:
    assert folded(assistant(CALL), QUESTION).questions == (QUESTION,)
    state = folded(assistant(CALL), QUESTION, decision(word))
    assert state.questions == ((QUESTION,) if is_open else ())
    assert (state.open_calls["c1"].verdict is None) is is_open


def nested(*facts: Fact) -> RunState:
    """A call whose sub-agent has asked a question and deferred a call, and what follows."""
    started = ToolStarted(tool_call_id="c1", tool_name="weather", arguments={}, idempotent=True)
    question = ApprovalRequired(tool_call_id="c1/x/q", tool_name="pay", arguments={"sum": 1})
    deferred = ToolStarted(tool_call_id="c1/d", tool_name="order", arguments={}, deferred=True)
    return folded(
        assistant(CALL),
        started,
        ToolProgress(tool_call_id="c1", content="", metadata={SESSION: "inner"}),
        question,
        deferred,
        *facts,
    )


def test_what_a_sub_agent_waits_for_is_part_of_its_call() -> None:
    state = nested()
    assert [fact.tool_call_id for fact in state.questions] == ["c1/x/q"]
    assert [fact.tool_call_id for fact in state.deferred] == ["c1/d"]
    assert (list(state.open_calls), state.open_calls["c1"].inner_session) == (["c1"], "inner")
    assert state.find("c1/x/q") is state.open_calls["c1"].nested["c1/x/q"]
    assert (state.find("c1/y"), state.find("c2/x")) == (None, None)
    assert state.find("c1") is state.open_calls["c1"]
    assert nested(tool_message(ToolResult("c1", "rain"))).questions == ()


def test_answers_reach_the_calls_of_sub_agents() -> None:
    decided = ApprovalDecided(
        tool_call_id="c1/x/q", decision="approve", original_arguments={"sum": 1}, arguments={"sum": 1}
    )
    posted = ResultPosted(tool_call_id="c1/d", result=ToolResult("c1/d", "done"))
    state = nested(decided, posted)
    assert (state.questions, state.deferred, state.answers) == ((), (), (decided, posted))
    inner_call = state.find("c1/x/q")
    assert inner_call is not None
    assert inner_call.is_settled  # the sub-agent may act upon it at any moment
    later = nested(ApprovalDecided(tool_call_id="c1/x/q", decision="pause", original_arguments={"sum": 1}))
    assert [question.tool_call_id for question in later.questions] == ["c1/x/q"]
    assert later.answers == ()


def test_a_result_posted_for_a_sub_agent_can_be_withdrawn() -> None:
    posted = ResultPosted(tool_call_id="c1/d", result=ToolResult("c1/d", "done"))
    entry = chain(
        assistant(CALL), ToolStarted(tool_call_id="c1/d", tool_name="order", arguments={}, deferred=True), posted
    )[-1]
    assert nested(posted).deferred == ()
    state = folded(
        assistant(CALL),
        ToolStarted(tool_call_id="c1/d", tool_name="order", arguments={}, deferred=True),
        posted,
        Redaction(entry_id=entry.id),
    )
    assert [started.tool_call_id for started in state.deferred] == ["c1/d"]


@pytest.mark.parametrize(
    ("metadata", "waiting", "is_paused"),
    [
        ({SESSION: "inner", WAITING: ["c1/d"]}, ["c1/d"], True),
        ({SESSION: "inner"}, ["c1/x/q", "c1/d"], False),
        ({WAITING: []}, ["c1/x/q", "c1/d"], False),
        (None, ["c1/x/q", "c1/d"], False),
    ],
)
def test_a_sub_agent_that_has_paused_waits_for_nothing_else(
    metadata: dict[str, Any] | None, waiting: list[str], is_paused: bool
) -> None:
    open_call = nested(ToolProgress(tool_call_id="c1", content="waiting", metadata=metadata)).open_calls["c1"]
    assert (list(open_call.nested), open_call.is_paused) == (waiting, is_paused)
    again = nested(
        ToolProgress(tool_call_id="c1", content="waiting", metadata=metadata),
        ToolStarted(tool_call_id="c1", tool_name="weather", arguments={}),
    )
    assert not again.open_calls["c1"].is_paused


def test_a_new_question_is_not_settled_by_an_earlier_decision() -> None:
    state = folded(assistant(CALL), QUESTION, decision("approve"), QUESTION)
    assert state.questions == (QUESTION,)


def test_a_decision_holds_until_it_is_corrected_and_no_longer_once_the_tool_has_started() -> None:
    facts: list[Fact] = [assistant(CALL), QUESTION, decision("approve"), decision("deny")]
    assert folded(*facts).open_calls["c1"].verdict == decision("deny")
    started = ToolStarted(tool_call_id="c1", tool_name="weather", arguments={"city": "Paris"})
    state = folded(*facts[:3], started, decision("deny"))
    assert state.open_calls["c1"].verdict == decision("approve")
    state = folded(*facts[:3], started, QUESTION, decision("deny"))  # asked again, for example after a crash
    assert state.open_calls["c1"].verdict == decision("deny")


@pytest.mark.parametrize(
    "ignored",
    [
        ApprovalDecided(tool_call_id="c1", decision="approve"),
        ApprovalDecided(
            tool_call_id="c1", decision="approve", original_arguments={"city": "Rome"}, arguments={"city": "Rome"}
        ),
        ApprovalDecided(
            tool_call_id="c1", decision="approve", original_arguments={"city": "Paris"}, arguments={"city": "Rome"}
        ),
        ApprovalDecided(
            tool_call_id="unknown",
            decision="approve",
            original_arguments={"city": "Paris"},
            arguments={"city": "Paris"},
        ),
    ],
)
def test_a_decision_about_other_arguments_is_ignored(ignored: ApprovalDecided) -> None:
    assert folded(assistant(CALL), QUESTION, ignored).questions == (QUESTION,)
    assert folded(assistant(CALL), ignored).open_calls["c1"].decision is None


def test_a_decision_after_the_deadline_is_ignored_unless_it_is_that_the_question_expired() -> None:
    question = replace(QUESTION, expires_at=at(1.5))  # the entries are a second apart
    assert folded(assistant(CALL), question, decision("approve")).questions == (question,)
    assert folded(assistant(CALL), question, decision("expire")).questions == ()
    assert folded(assistant(CALL), replace(QUESTION, expires_at=at(2)), decision("approve")).questions == ()


# -- requests from others


def test_a_queued_message_waits_until_it_is_delivered_or_withdrawn() -> None:
    state = folded(MessageQueued(message=user("One")), MessageQueued(message=user("Two"), steer=True))
    assert [queued.message.text for queued in state.inbox.values()] == ["One", "Two"]
    assert not state.is_finished
    delivered = user("One", meta=Meta(request_id="e0"))
    assert list(folded(MessageQueued(message=user("One")), MessageQueued(message=user("Two")), delivered).inbox) == [
        "e1"
    ]
    state = folded(MessageQueued(message=user("One")), Redaction(entry_id="e0"))
    assert (state.inbox, state.is_finished) == ({}, True)


def test_an_abort_concerns_the_open_run_and_is_done_when_that_has_ended() -> None:
    request = AbortRequested(reason="enough")
    assert folded(RunStarted(), request).abort == request
    assert folded(RunStarted(), request, RunStarted()).abort == request  # resumed
    assert folded(RunStarted(), request, RunEnded(status="aborted")).abort is None
    assert folded(request, RunStarted()).abort is None
    first, abort, second = chain(RunStarted(), request, RunStarted())
    assert pushed([first, abort, replace(second, run_id="r2")]).abort is None


def test_a_model_that_others_choose_is_requested_until_the_run_ends_or_changes_it() -> None:
    chosen, own = ModelRef("p", "chosen"), ModelRef("p", "own")
    entries = chain(
        RunStarted(model=own), ModelChange(model=chosen), RunStarted(model=chosen), RunEnded(status="completed")
    )
    entries[1] = replace(entries[1], run_id=None)
    assert [pushed(entries[:end]).requested_model for end in (1, 2, 3, 4)] == [None, chosen, chosen, None]
    assert pushed(entries).model == chosen
    assert folded(RunStarted(), ModelChange(model=chosen)).requested_model is None
    changed_back = pushed([*entries[:2], *chain(ModelChange(model=own))])
    assert (changed_back.model, changed_back.requested_model) == (own, None)


# -- the run


def test_a_run_is_open_from_its_start_to_its_end() -> None:
    start = RunStarted(model=ModelRef("a", "m"))
    state = folded(start, user("Hi"))
    assert (state.run_id, state.last_run_id, state.ended) == ("r", "r", None)
    assert [message.text for message in state.messages] == ["Hi"]
    ended = RunEnded(status="completed")
    state = folded(user("before"), start, user("Hi"), assistant("Hello"), ended)
    assert (state.run_id, state.last_run_id, state.ended) == (None, "r", ended)
    assert [message.text for message in state.messages] == ["Hi", "Hello"]


def test_a_resumed_run_keeps_its_numbers_and_a_new_one_begins_at_zero() -> None:
    answer = assistant("One", meta=Meta(model_call_index=0, usage=Usage(3, 1)))
    entries = chain(RunStarted(), user("Hi"), answer, RunStarted())
    state = pushed(entries)
    assert (state.totals.iterations, state.call_index, state.totals.usage) == (1, 1, Usage(3, 1))
    state = pushed([*entries[:3], replace(entries[3], run_id="r2")])
    assert (state.call_index, state.totals, state.messages) == (0, RunTotals(), [])


@pytest.mark.parametrize(
    ("metadata", "spent"),
    [
        (RunTotals(Usage(10, 5), 0.5, 3, 2).as_json(), RunTotals(Usage(10, 5), 0.5, 4, 3)),
        (RunTotals(cost_usd=0.5).as_json(), RunTotals(None, 0.5, 1, 1)),
        ({"costUsd": 0.5}, RunTotals(None, 0.5, 1, 1)),
        ("nonsense", RunTotals(None, None, 1, 1)),
        ({"usage": 3}, RunTotals(None, None, 1, 1)),
        ({"iterations": "many"}, RunTotals(None, None, 1, 1)),
    ],
)
def test_what_a_sub_agent_used_counts_for_the_run(metadata: object, spent: RunTotals) -> None:
    answer = assistant(ToolCall("c1", "ask", {}), ToolCall("c2", "ask", {}))
    of_agent = ToolResult("c1", "Yes.", metadata={SPENT: metadata})
    state = folded(RunStarted(), user("Hi"), answer, tool_message(of_agent), tool_message(ToolResult("c2", "No.")))
    assert state.totals == spent
    assert state.totals.tokens == (0 if spent.usage is None else 15)


def test_failed_attempts_are_counted_until_there_is_an_answer() -> None:
    failed = StreamFailed(error=Failed(ErrorCode.OVERLOADED), model_call_index=0, attempt=1)
    summary = StreamFailed(error=Failed(ErrorCode.OVERLOADED))
    assert folded(RunStarted(), failed, failed, summary).failed_attempts == 2
    assert folded(RunStarted(), failed, assistant("Hello")).failed_attempts == 0


def test_the_last_model_and_runtime_apply() -> None:
    small, large = ModelRef("a", "small"), ModelRef("a", "large")
    assert folded(RunStarted(model=small), RunStarted()).model == small
    assert folded(RunStarted(model=small), ModelChange(model=large, previous=small)).model == large
    runtime = RuntimeInit(runtime="local", data={"root": "x"})
    assert folded(runtime).runtime == runtime


@pytest.mark.parametrize(
    ("facts", "is_answered"),
    [
        ((), False),
        ((user("Hi"),), False),
        ((user("Hi"), assistant("Hello")), True),
        ((user("Hi"), assistant("Hello"), system("Be brief.")), True),
        ((user("Hi"), assistant("Hel", meta=Meta(finish_reason="pause"))), False),
        ((user("Hi"), assistant(CALL)), False),
        ((user("Hi"), assistant(CALL), tool_message(ToolResult("c1", "rain"))), False),
        ((assistant(ToolCall("p1", "search", {}, executed_by="provider"), "Found."),), True),
    ],
)
def test_the_answer_is_the_last_message_if_nothing_is_left_to_do(facts: tuple[Fact, ...], is_answered: bool) -> None:
    assert (folded(*facts).answer is not None) is is_answered


@pytest.mark.parametrize(
    ("facts", "is_finished"),
    [
        ((), True),
        ((RunStarted(),), False),
        ((user("Hi"),), False),
        ((assistant(CALL),), False),
        ((RunStarted(), user("Hi"), assistant("Hello"), RunEnded(status="completed")), True),
    ],
)
def test_a_session_is_finished_if_there_is_nothing_to_resume(facts: tuple[Fact, ...], is_finished: bool) -> None:
    assert folded(*facts).is_finished is is_finished


# -- totals


def test_totals_add_answers_failures_and_summaries() -> None:
    state = folded(
        RunStarted(),
        assistant("One", meta=Meta(usage=Usage(10, 1, cost=0.5))),
        StreamFailed(error=Failed(ErrorCode.OVERLOADED), usage=Usage(20, 2)),
        CompactionSummary(summary="Short.", first_kept_entry_id="e1", usage=Usage(30, 3, cost=0.25)),
        assistant("Two", meta=Meta(usage=Usage(40, 4), cost_usd=1.0)),
        assistant("Three"),
        user("Hi"),
    )
    assert state.totals.usage == Usage(100, 10, cost=0.75)
    assert state.totals.cost_usd == 1.75
    assert state.totals.plus(RunEnded(status="completed")) == state.totals


# -- repeats


def round_of(number: int, result: Any = "rain", **metadata: bool) -> tuple[Fact, Fact]:
    call = ToolCall(f"c{number}", "weather", {"city": "Paris"})
    return assistant(call), tool_message(ToolResult(call.tool_call_id, result, metadata=metadata or None))


NEXT = assistant(ToolCall("next", "weather", {"city": "Paris"}))


def test_rounds_with_the_same_calls_and_results_are_counted() -> None:
    assert folded(NEXT).repeats == 0
    assert folded(*round_of(1), NEXT).repeats == 1
    assert folded(*round_of(1), *round_of(2), NEXT).repeats == 2
    assert folded(*round_of(1), *round_of(2), *round_of(3, **{REPEATED: True}), NEXT).repeats == 3


def test_another_result_call_prompt_or_answer_resets_the_count() -> None:
    assert folded(*round_of(1), *round_of(2, "sun"), NEXT).repeats == 1
    assert folded(*round_of(1), assistant(ToolCall("next", "weather", {"city": "Rome"}))).repeats == 0
    assert folded(*round_of(1), user("Again"), NEXT).repeats == 0
    assert folded(*round_of(1), assistant("Rain."), NEXT).repeats == 0


def test_the_results_of_parallel_calls_may_come_in_any_order() -> None:
    def pair(number: int) -> list[ToolCall]:
        return [ToolCall(f"{name}{number}", name, {}) for name in ("a", "b")]

    facts = (
        assistant(*pair(1)),
        tool_message(ToolResult("a1", "left")),
        tool_message(ToolResult("b1", (assistant("right").parts[0],))),  # type: ignore[arg-type]
        assistant(*pair(2)),
        tool_message(ToolResult("b2", (assistant("right").parts[0],))),  # type: ignore[arg-type]
        tool_message(ToolResult("a2", "left")),
    )
    assert folded(*facts, assistant(*pair(3))).repeats == 2


# -- branches


def test_other_branches_add_their_call_ids_and_results() -> None:
    entries = chain(RunStarted(), assistant(CALL), tool_message(ToolResult("c1", "rain")), RunStarted())
    state = pushed(entries[:2])
    assert list(state.open_calls) == ["c1"]
    branch = chain(RunStarted(), assistant(CALL), tool_message(ToolResult("c1", "rain")), RunStarted(), NEXT, QUESTION)
    state.add_other_branches(outlines_of(map(wire.encode, branch)))
    assert state.open_calls == {}
    assert state.call_ids == {"c1", "next"}


def posted(text: str) -> ResultPosted:
    return ResultPosted(tool_call_id="c1", result=ToolResult("c1", text))


DEFERRED = ToolStarted(tool_call_id="c1", tool_name="weather", arguments={"city": "Paris"}, deferred=True)


def test_the_first_result_of_a_deferred_call_counts() -> None:
    """D-5.12.5"""
    state = folded(RunStarted(), assistant(CALL), posted("too early"), DEFERRED)
    assert state.deferred == (DEFERRED,)
    state = folded(RunStarted(), assistant(CALL), DEFERRED, posted("one"), posted("two"))
    assert state.deferred == ()
    assert state.open_calls["c1"].posted == posted("one")
    assert state.open_calls["c1"].posted_id == "e3"


def test_a_result_for_a_call_that_is_not_deferred_or_not_open_is_ignored() -> None:
    """D-5.12.5"""
    running = replace(DEFERRED, deferred=False)
    assert folded(RunStarted(), assistant(CALL), running, posted("one")).open_calls["c1"].posted is None
    assert folded(RunStarted(), posted("one")).open_calls == {}


def test_a_redacted_result_is_withdrawn() -> None:
    state = folded(
        RunStarted(), assistant(CALL), DEFERRED, posted("one"), Redaction(entry_id="e2"), Redaction(entry_id="e3")
    )
    assert state.deferred == (DEFERRED,)


def test_a_handoff_is_pending_until_the_other_agent_has_started() -> None:
    """D-5.13"""
    passed_on = tool_message(ToolResult("c1", "Transferred.", metadata={HANDOFF: "billing"}))
    odd = tool_message(ToolResult("c2", "?", metadata={HANDOFF: 5}))
    state = folded(RunStarted(agent="reception"), assistant(CALL), passed_on, odd)
    assert (state.agent, state.handoff) == ("reception", "billing")
    state = folded(RunStarted(agent="reception"), assistant(CALL), passed_on, RunStarted(agent="billing"))
    assert (state.agent, state.handoff) == ("billing", None)


def test_time_between_a_pause_and_the_resume_does_not_count() -> None:
    facts: list[Fact] = [
        RunStarted(),
        user("Go"),
        assistant(CALL),
        RunStarted(),
        ToolStarted(tool_call_id="c1", tool_name="weather", arguments={}),
    ]
    entries = [
        replace(entry, timestamp=at(seconds), run_id="r")
        for entry, seconds in zip(chain(*facts), (0, 1, 3, 1000, 1004), strict=True)
    ]
    assert pushed(entries).live_s == 7.0
    assert pushed([*entries, replace(chain(RunStarted())[0], run_id="other")]).live_s == 0.0
