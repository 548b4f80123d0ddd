"""Tool states: the transitions of 003, and the fold over facts."""

from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bartack import (
    Entry,
    ErrorCode,
    FileRef,
    Image,
    PartValidationError,
    Text,
    ToolCall,
    ToolResult,
    assistant,
    stamped,
    tool_message,
)
from bartack.nouns.entries import Fact, RunEnded, ToolProgress, ToolStarted
from bartack.nouns.errors import InvalidStateTransition
from bartack.nouns.parts import Span, ToolContent
from bartack.nouns.tool_states import Completed, Errored, Pending, Running, ToolState, ToolTime
from bartack.session import tool_state

T0 = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
T1 = T0 + timedelta(seconds=1)
T2 = T0 + timedelta(seconds=2)

PENDING = tool_state.create_pending({"city": "Paris"}, '{"city": "Paris"}')
RUNNING = tool_state.create_running({"city": "Paris"}, "Weather", start=T0)
COMPLETED = tool_state.create_completed({"city": "Paris"}, "rain", "Weather", {}, T0, T1)
ERRORED = tool_state.create_error({"city": "Paris"}, "no such city", T0, T1)


def test_a_call_begins_as_pending_with_the_text_of_its_arguments() -> None:
    """003-7.1.1, 003-BR-06, 003-3.4.2, 003-4.2.1"""
    assert Pending({"city": "Paris"}, '{"city": "Paris"}') == PENDING
    assert PENDING.status == "pending"


def test_the_four_states_differ_by_status() -> None:
    """003-3.4.1"""
    assert [state.status for state in (PENDING, RUNNING, COMPLETED, ERRORED)] == [
        "pending",
        "running",
        "completed",
        "error",
    ]


def test_starting_records_the_start_and_leaves_the_old_state_unchanged() -> None:
    """003-4.2.2, 003-BR-05, 003-BR-07, 003-7.1.2"""
    start = T0 + timedelta(microseconds=123_456)
    running = tool_state.pending_to_running(PENDING, start=start, title="Weather")
    assert running == Running(input={"city": "Paris"}, title="Weather", time=ToolTime(start=start))
    assert Pending({"city": "Paris"}, '{"city": "Paris"}') == PENDING


def test_completing_sets_output_title_and_end() -> None:
    """003-4.2.3, 003-7.1.4, 003-BR-08, 003-3.4.4"""
    done = tool_state.running_to_completed(RUNNING, "rain", T1)
    assert done == COMPLETED
    assert done.time == ToolTime(start=T0, end=T1)
    assert tool_state.running_to_completed(RUNNING, "rain", T1, title="Paris").title == "Paris"
    assert tool_state.running_to_completed(RUNNING, "  rain\n", T1).output == "  rain\n"


def test_completing_keeps_metadata_and_may_add_to_it() -> None:
    """003-7.1.6"""
    running = tool_state.running_progress(RUNNING, metadata={"percent": 50, "step": 1})
    done = tool_state.running_to_completed(running, "rain", T1, metadata={"percent": 100})
    assert done.metadata == {"percent": 100, "step": 1}


TRANSITIONS: dict[str, Callable[[Running], ToolState]] = {
    "start": lambda state: tool_state.pending_to_running(state, start=T1, title="Other"),
    "progress": lambda state: tool_state.running_progress(state, title="Other", metadata={"percent": 100, "new": 1}),
    "complete": lambda state: tool_state.running_to_completed(state, "rain", T1, metadata={"percent": 100, "new": 1}),
    "fail": lambda state: tool_state.running_to_error(state, "no such city", T1),
    "time_out": lambda state: tool_state.time_out(state, T2, 1),
}


@pytest.mark.parametrize("event", TRANSITIONS)
def test_a_transition_leaves_the_old_state_unchanged(event: str) -> None:
    """003-7.1.2"""
    metadata = {"percent": 50, "nested": {"list": [1]}}
    running = Running(input={"city": "Paris"}, title="Weather", time=ToolTime(start=T0), metadata=metadata)
    before = deepcopy(running)
    next_state = TRANSITIONS[event](running)
    assert running == before
    assert metadata == before.metadata
    assert (next_state is running) == (event == "start")


def test_facts_leave_the_states_before_them_unchanged() -> None:
    """003-7.1.2"""
    fold = tool_state.ToolFold()
    result = ToolResult("c1", "no such city", is_error=True, error_code=ErrorCode.TOOL_FAILED, metadata={"new": 1})
    facts: list[Fact] = [
        asked(ToolCall("c1", "weather", {"city": "Paris"})),
        ToolStarted(tool_call_id="c1", tool_name="weather", arguments={"city": "Paris"}),
        ToolProgress(tool_call_id="c1", content="half", metadata={"percent": 50}),
        ToolProgress(tool_call_id="c1", content="most", metadata={"percent": 90, "step": 1}),
        answered(result),
    ]
    copies: list[tuple[ToolState, ToolState]] = []
    for entry in entries(*facts):
        fold.push(entry)
        copies.append((fold.states["c1"], deepcopy(fold.states["c1"])))
    assert all(state == copied for state, copied in copies)
    assert [state.status for state, _ in copies] == ["pending", "running", "running", "running", "error"]
    assert result.metadata == {"new": 1}


def test_failing_sets_the_error_and_the_end() -> None:
    """003-4.2.4, 003-7.1.4, 003-BR-08, 003-3.4.5"""
    running = tool_state.running_progress(RUNNING, metadata={"step": 1})
    failed = tool_state.running_to_error(running, "no such city", T1)
    assert failed == Errored(
        input={"city": "Paris"}, error="no such city", metadata={"step": 1}, time=ToolTime(start=T0, end=T1)
    )


@pytest.mark.parametrize("event", ["reject", "abort"])
def test_a_denied_or_aborted_call_never_ran(event: str) -> None:
    """D-4.5, 003-BR-05"""
    failed = tool_state.pending_to_error(PENDING, "denied", T1, event=event)
    assert failed.time == ToolTime(start=T1, end=T1)


def test_no_other_event_ends_a_pending_call() -> None:
    """D-4.5, 003-BR-05, 003-6.1.2, 003-7.1.3"""
    for event in ("fail", "time_out"):
        with pytest.raises(InvalidStateTransition) as caught:
            tool_state.running_to_error(PENDING, "x", T1, event=event)
        assert (caught.value.current, caught.value.event, caught.value.attempted) == ("pending", event, "error")
        assert caught.value.valid == ("running", "error")
    with pytest.raises(InvalidStateTransition):
        tool_state.running_to_completed(PENDING, "x", T1)
    with pytest.raises(InvalidStateTransition):
        tool_state.running_progress(PENDING, title="Paris")


def test_a_refused_transition_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """003-6.1.2"""
    with pytest.raises(InvalidStateTransition):
        tool_state.running_to_completed(PENDING, "secret", T1)
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("bartack.session", "WARNING")
    assert record.getMessage() == "Refused a transition of a tool call from pending to completed."


def test_a_transition_changes_neither_the_old_state_nor_what_it_holds() -> None:
    """003-7.1.2"""
    metadata: dict[str, Any] = {"step": 1}
    running = Running(input={"city": "Paris"}, time=ToolTime(start=T0), metadata=metadata)
    progress = tool_state.running_progress(running, metadata={"step": 2, "of": 3})
    completed = tool_state.running_to_completed(running, "rain", T1, metadata={"ms": 5})
    failed = tool_state.running_to_error(running, "no", T1)
    assert (running.metadata, metadata) == ({"step": 1}, {"step": 1})
    assert (progress.metadata, completed.metadata) == ({"step": 2, "of": 3}, {"step": 1, "ms": 5})
    assert failed.metadata == {"step": 1}
    assert running == Running(input={"city": "Paris"}, time=ToolTime(start=T0), metadata={"step": 1})


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda: tool_state.create_pending("x", "{}"), "$.input"),  # type: ignore[arg-type]
        (lambda: tool_state.create_pending({}, None), "$.raw"),  # type: ignore[arg-type]
        (lambda: tool_state.create_running({}, 5, start=T0), "$.title"),  # type: ignore[arg-type]
        (lambda: tool_state.create_running({}, start=1000), "$.start"),  # type: ignore[arg-type]
        (lambda: tool_state.create_completed({}, "x", "t", {}, 1000, 2000), "$.start"),  # type: ignore[arg-type]
        (lambda: tool_state.create_completed({}, "x", "t", {}, T0, 2000), "$.end"),  # type: ignore[arg-type]
        (lambda: tool_state.create_completed({}, 5, "t", {}, T0, T1), "$.output"),  # type: ignore[arg-type]
        (lambda: tool_state.create_completed({}, "x", "t", None, T0, T1), "$.metadata"),  # type: ignore[arg-type]
        (lambda: tool_state.create_error({}, b"x", T0, T1), "$.error"),  # type: ignore[arg-type]
        (lambda: tool_state.pending_to_running(PENDING, start=1000), "$.start"),  # type: ignore[arg-type]
        (lambda: tool_state.running_to_completed(RUNNING, "x", 2000), "$.end"),  # type: ignore[arg-type]
    ],
)
def test_an_argument_of_the_wrong_type_is_refused_where_it_is_passed(make: Any, path: str) -> None:
    """003-4.2.1"""
    with pytest.raises(PartValidationError) as caught:
        make()
    assert (caught.value.path, caught.value.rule) == (path, "003-4.2.1")


@pytest.mark.parametrize("state", [COMPLETED, ERRORED], ids=["completed", "error"])
def test_a_finished_call_cannot_start_again(state: ToolState) -> None:
    """003-BR-05, 003-6.1.2"""
    with pytest.raises(InvalidStateTransition):
        tool_state.pending_to_running(state, start=T0)
    with pytest.raises(InvalidStateTransition):
        tool_state.running_progress(state, title="again")


def test_an_outcome_is_never_replaced() -> None:
    """003-BR-05"""
    with pytest.raises(InvalidStateTransition):
        tool_state.running_to_error(COMPLETED, "late", T2)
    with pytest.raises(InvalidStateTransition):
        tool_state.running_to_completed(ERRORED, "late", T2)


def test_a_repeated_transition_returns_the_same_object() -> None:
    """003-7.1.7, D-4.4"""
    assert tool_state.pending_to_running(RUNNING, start=T2) is RUNNING
    assert tool_state.running_to_completed(COMPLETED, "other", T2) is COMPLETED
    assert tool_state.running_to_error(ERRORED, "other", T2) is ERRORED
    assert tool_state.pending_to_error(ERRORED, "other", T2) is ERRORED
    assert tool_state.running_progress(RUNNING) is RUNNING


def test_a_tool_that_reaches_its_timeout_is_an_error() -> None:
    """D-4.6"""
    assert tool_state.time_out(RUNNING, T0 + timedelta(milliseconds=999), 1000) is RUNNING
    late = tool_state.time_out(RUNNING, T1, 1000)
    assert late == Errored(input={"city": "Paris"}, error="Timed out after 1000 ms.", time=ToolTime(start=T0, end=T1))
    assert tool_state.time_out(PENDING, T2, 1) is PENDING
    assert tool_state.time_out(late, T2, 1) is late


def test_a_completed_tool_needs_an_output() -> None:
    """003-BR-09"""
    with pytest.raises(PartValidationError) as caught:
        tool_state.create_completed({}, "", "t", {}, T0, T1)
    assert (caught.value.path, caught.value.rule) == ("$.output", "003-BR-09")


def test_a_tool_error_needs_a_description() -> None:
    """003-BR-10"""
    with pytest.raises(PartValidationError) as caught:
        tool_state.create_error({}, "", T0, T1)
    assert (caught.value.path, caught.value.rule) == ("$.error", "003-BR-10")


@pytest.mark.parametrize(
    "make",
    [
        lambda time: Completed(input={}, output="x", title="t", metadata={}, time=time),
        lambda time: Errored(input={}, error="x", time=time),
    ],
    ids=["completed", "error"],
)
def test_a_finished_tool_needs_an_end_time(make: Any) -> None:
    """003-BR-08"""
    with pytest.raises(PartValidationError) as caught:
        make(ToolTime(start=T0))
    assert (caught.value.path, caught.value.rule) == ("$.time.end", "003-BR-08")


# -- the fold


def entries(*facts: Fact) -> list[Entry]:
    stamps = [T0 + timedelta(seconds=place) for place in range(len(facts))]
    return [
        Entry(id=f"e{place}", session_id="s", seq=place + 1, timestamp=stamps[place], fact=fact)
        for place, fact in enumerate(facts)
    ]


def asked(*calls: ToolCall) -> Fact:
    return stamped(assistant(*calls), id="m1", timestamp=T0)


def answered(*results: ToolResult) -> Fact:
    return stamped(tool_message(*results), id="m2", timestamp=T0)


CALL = ToolCall("c1", "weather", {"city": "Paris"})


def state_after(*facts: Fact) -> ToolState:
    return tool_state.fold_tools(entries(*facts))["c1"]


def test_a_call_that_has_not_started_is_pending() -> None:
    """003-7.2.4, 003-7.1.1, 003-BR-06"""
    assert state_after(asked(CALL)) == Pending({"city": "Paris"}, '{"city":"Paris"}')


def test_a_pending_call_keeps_invalid_argument_text() -> None:
    """003-BR-06"""
    for text in ('{"city": "Pa', ' {"city": "Pa \n', ""):
        broken = ToolCall("c1", "weather", {}, raw_args_text=text)
        assert state_after(asked(broken)) == Pending({}, text)


def test_the_fold_follows_start_progress_and_result() -> None:
    """003-7.2.4"""
    started = ToolStarted(tool_call_id="c1", tool_name="weather", arguments={"city": "Lyon"}, title="Weather")
    progress = ToolProgress(tool_call_id="c1", content="half", metadata={"percent": 50})
    assert state_after(asked(CALL), started) == Running(
        input={"city": "Lyon"}, title="Weather", time=ToolTime(start=T1)
    )
    done = state_after(asked(CALL), started, progress, answered(ToolResult("c1", "rain", metadata={"ms": 3})))
    assert done == Completed(
        input={"city": "Lyon"},
        output="rain",
        title="Weather",
        metadata={"percent": 50, "ms": 3},
        time=ToolTime(start=T1, end=T0 + timedelta(seconds=3)),
    )


def test_a_result_without_a_start_still_ends_its_call() -> None:
    """Imported histories have no start: the time of the result counts, or else that of its entry."""
    timed = ToolResult("c1", "rain", time=Span(start=T0))
    assert state_after(asked(CALL), answered(timed)) == Completed(
        input={"city": "Paris"}, output="rain", title="", metadata={}, time=ToolTime(start=T0, end=T1)
    )
    for time in (None, Span()):
        state = state_after(asked(CALL), answered(ToolResult("c1", "rain", time=time)))
        assert isinstance(state, Completed)
        assert state.time == ToolTime(start=T1, end=T1)


@pytest.mark.parametrize(
    ("code", "started"),
    [
        (ErrorCode.TOOL_DENIED, False),
        (ErrorCode.TOOL_NOT_RUN, False),
        (ErrorCode.TOOL_NOT_FOUND, False),
        (ErrorCode.TOOL_BAD_ARGUMENTS, False),
        (ErrorCode.TOOL_ABORTED, False),
        (ErrorCode.TOOL_ABORTED, True),
        (ErrorCode.TOOL_TIMEOUT, True),
        (ErrorCode.TOOL_INTERRUPTED, True),
        (ErrorCode.TOOL_INTERRUPTED, False),
        (ErrorCode.TOOL_FAILED, True),
        (ErrorCode.TOOL_FAILED, False),
        (None, True),
    ],
)
def test_an_error_result_ends_its_call_in_error(code: ErrorCode | None, started: bool) -> None:
    """000-6.2, 004-invariants.2"""
    facts: list[Fact] = [asked(CALL)]
    if started:
        facts.append(ToolStarted(tool_call_id="c1", tool_name="weather", arguments={"city": "Paris"}))
    facts.append(answered(ToolResult("c1", "no", is_error=True, error_code=code, metadata={"why": 1})))
    state = state_after(*facts)
    assert isinstance(state, Errored)
    assert (state.error, state.metadata) == ("no", {"why": 1})
    assert state.time.end == T0 + timedelta(seconds=len(facts) - 1)


def test_an_error_without_metadata_has_none() -> None:
    state = state_after(asked(CALL), answered(ToolResult("c1", "no", is_error=True)))
    assert isinstance(state, Errored)
    assert state.metadata is None


def test_the_first_outcome_of_a_call_is_final() -> None:
    """000-6.2, 004-invariants.2"""
    once = state_after(asked(CALL), answered(ToolResult("c1", "rain")))
    twice = state_after(asked(CALL), answered(ToolResult("c1", "rain")), answered(ToolResult("c1", "sun")))
    assert once == twice


def test_facts_about_calls_that_are_not_open_change_nothing() -> None:
    """000-6.3"""
    orphans: list[Fact] = [
        ToolStarted(tool_call_id="c9", tool_name="x", arguments={}),
        ToolProgress(tool_call_id="c9", content="x"),
        answered(ToolResult("c9", "x")),
        RunEnded(status="failed"),
    ]
    assert tool_state.fold_tools(entries(*orphans)) == {}
    over = [asked(CALL), answered(ToolResult("c1", "rain"))]
    late: list[Fact] = [
        ToolStarted(tool_call_id="c1", tool_name="weather", arguments={}),
        ToolProgress(tool_call_id="c1", content="x", title="late"),
        asked(CALL),
    ]
    assert tool_state.fold_tools(entries(*over, *late)) == tool_state.fold_tools(entries(*over))


def test_a_call_executed_by_the_provider_is_finished_at_once() -> None:
    """D-3.10"""
    search = ToolCall("c1", "search", {"q": "x"}, executed_by="provider", result=ToolResult("c1", "found"))
    state = state_after(asked(search))
    assert isinstance(state, Completed)
    assert (state.output, state.time) == ("found", ToolTime(start=T0, end=T0))


def test_every_kind_of_content_has_a_text() -> None:
    """003-BR-09, D-7.4"""
    image, file = Image("image/png", data=b"x"), FileRef("a.txt")
    texts: dict[str, ToolContent] = {
        "rain": "rain",
        tool_state.NO_OUTPUT: "",
        '{"a":1}': {"a": 1},
        "one\ntwo": (Text("one"), image, Text("two")),
        "[image image/png]\n[file_ref a.txt]": (image, file),
    }
    for text, content in texts.items():
        assert tool_state.output_text(ToolResult("c1", content)) == text
    assert tool_state.output_text(ToolResult("c1", ())) == tool_state.NO_OUTPUT
