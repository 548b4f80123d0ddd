"""`RunReader`: what changes in a window, for every kind of event."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from bartack.display import changes as c
from bartack.display.run_reader import RunReader, last_run
from bartack.display.shown_step import ShownKeys
from bartack.events import (
    Event,
    LiveDeltas,
    LiveEntry,
    LiveReset,
    RunFinished,
    RunPaused,
    RunResult,
    StatusChanged,
    SubagentEvent,
)
from bartack.nouns.deltas import Done, Failed, TextDelta, ThinkingDelta, ToolCallArgs, ToolCallStart, Usage
from bartack.nouns.entries import (
    ApprovalDecided,
    ApprovalRequired,
    Custom,
    ResultPosted,
    RunEnded,
    RunStarted,
    ThinkingLevelChange,
    ToolProgress,
    ToolStarted,
)
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Message, Meta, assistant, user
from bartack.nouns.parts import Span, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.tables import AgentStatus
from bartack.session.run_state import WAITING
from tests.protocols.events import (
    BUSY,
    CALL,
    END,
    NOW,
    RUN,
    START,
    Events,
    Log,
    answer,
    call_deltas,
    deltas,
    failed,
    result,
    run_of,
)

CALL2 = ToolCall("c2", "look", {})


def read(events: Events, reader: RunReader | None = None) -> list[c.Change]:
    reader = reader or RunReader()
    return [change for event in events for change in reader.read(event)]


def kinds(changes: list[c.Change]) -> list[str]:
    return [type(change).__name__ for change in changes]


def shown(changes: list[c.Change]) -> str:
    """All text that was shown, with the calls by name, and a bar for each void."""
    pieces = []
    for change in changes:
        match change:
            case c.TextGrew() | c.CallGrew():
                pieces.append(change.text)
            case c.StepVoided():
                pieces.append("|")
            case c.CallStarted():
                pieces.append(f"<{change.key}>")
            case _:
                pass
    return "".join(pieces)


def test_deltas_and_the_stored_answer_give_one_step() -> None:
    log = Log()
    events = [
        log(RunStarted()),
        log(user("Go")),
        StatusChanged(AgentStatus.MODEL_RUNNING, AgentStatus.PREPARING),
        *deltas(START, ThinkingDelta("hm"), TextDelta("a"), TextDelta("b"), Usage(1, 1), Done("stop")),
        log(answer(Thinking("hm"), "ab")),
        log(END),
    ]
    reader = RunReader()
    assert kinds(read(events, reader)) == [
        "StepStarted",
        *("TextStarted", "TextGrew", "TextEnded"),
        *("TextStarted", "TextGrew", "TextGrew", "TextEnded"),
        *("StepFinished", "RunEnds"),
    ]
    assert reader.run_id == RUN
    assert reader.is_ended
    assert read([log(answer("late"))], reader) == []
    assert list(reader.close()) == []
    assert list(reader.pause()) == []


def test_a_new_part_of_the_same_kind_is_a_new_text() -> None:
    changes = read(deltas(START, TextDelta("a"), TextDelta("", new_part=True), TextDelta("b")))
    assert kinds(changes)[1:] == ["TextStarted", "TextGrew", "TextEnded", "TextStarted", "TextGrew"]


def test_calls_run_and_end() -> None:
    events = run_of(
        answer(CALL),
        ToolStarted(tool_call_id="c1", tool_name="look", arguments={"at": "sea"}, title="Look"),
        ToolProgress(tool_call_id="c1", content="half"),
        result("c1"),
        result("c1"),  # a second result of a call does not count
        result("unknown"),
        ToolProgress(tool_call_id="c1", content="late"),
        answer(CALL2),
        ToolStarted(tool_call_id="c2", tool_name="look", arguments={}),
    )
    changes = read(events)
    assert kinds(changes)[-2:] == ["CallRunning", "RunEnds"]
    assert kinds(changes)[1:8] == [
        "CallStarted",
        "CallGrew",
        "CallReady",
        "StepFinished",
        "CallReady",  # with the arguments that it ran with
        "CallRunning",
        "CallProgressed",
    ]
    assert kinds(changes)[8:10] == ["CallEnded", "StepStarted"]
    ready = [change for change in changes if isinstance(change, c.CallReady)]
    assert [one.arguments for one in ready] == [{"at": "sky"}, {"at": "sea"}, {}]


def test_a_provider_executes_calls_of_its_own() -> None:
    pieces = call_deltas("w1", "search", '{"q":1}', result="found", result_is_error=True)
    found = ToolResult("w1", "found", is_error=True)
    done = ToolCall("w1", "search", {"q": 1}, executed_by="provider", result=found)
    log = Log()
    reader = RunReader()
    changes = read([*deltas(START, *pieces, Done("stop")), log(answer(done))], reader)
    assert kinds(changes) == ["StepStarted", "CallStarted", "CallGrew", "CallReady", "CallEnded", "StepFinished"]
    (ended,) = [change for change in changes if isinstance(change, c.CallEnded)]
    assert (ended.result.is_error, ended.by_provider, ended.was_asked) == (True, True, False)
    assert not reader.is_waiting


def test_invalid_arguments_are_ready_with_a_fault() -> None:
    log = Log()
    bad = ToolCall("c1", "look", {}, raw_args_text='{"at": ')
    expected = read([*deltas(START, *call_deltas("c1", "look", '{"at"', "", ": ")), log(answer(bad))])
    (ready,) = [change for change in expected if isinstance(change, c.CallReady)]
    assert ready.raw_text == '{"at": '
    assert ready.fault is not None
    stored = read([Log()(answer(bad, bad_args={"c1": "not JSON"}))])
    (ready,) = [change for change in stored if isinstance(change, c.CallReady)]
    assert (ready.fault, shown(stored)) == ("not JSON", '<c1>{"at": ')


def test_what_an_answer_lacks_is_added_from_the_stored_one() -> None:
    log = Log()
    arrived = deltas(START, TextDelta("It "))
    changes = read([*arrived, log(answer("It rains.", CALL))])
    assert shown(changes) == 'It rains.<c1>{"at":"sky"}'
    assert "StepVoided" not in kinds(changes)


def test_arguments_continue_as_the_model_wrote_them_if_possible() -> None:
    for prefix, rest in (('{"at": "s', 'ky"}'), ('{"at":"s', 'ky"}'), ("", '{"at":"sky"}')):
        arrived = deltas(START, ToolCallStart("c1", "look"), ToolCallArgs("c1", prefix))
        changes = read([*arrived, Log()(answer(CALL))])
        assert shown(changes) == f"<c1>{prefix}{rest}"
        assert [change.is_whole for change in changes if isinstance(change, c.CallReady)] == [True]
    arrived = deltas(START, ToolCallStart("c1", "look"), ToolCallArgs("c1", '{  "at'))
    changes = read([*arrived, Log()(answer(CALL))])
    assert [change.is_whole for change in changes if isinstance(change, c.CallReady)] == [False]


def test_an_answer_that_was_changed_is_shown_again() -> None:
    cases: list[tuple[Any, Message]] = [
        ((TextDelta("It snows."),), answer("It rains.")),
        ((TextDelta("It"), ThinkingDelta("hm")), answer("It rains.", Thinking("hm"))),
        ((TextDelta("It rains."),), answer(Thinking("It rains."))),
        (call_deltas("c1", "look", '{"at":"sea"}'), answer(CALL)),
        (call_deltas("c1", "listen", "{}"), answer(CALL)),
        (call_deltas("c2", "look", '{"at":"sky"}'), answer(CALL)),
        (call_deltas("c1", "look", '{"at":"sky"}'), answer("No.")),
    ]
    for arrived, stored in cases:
        changes = read([*deltas(START, *arrived), Log()(stored)])
        (void,) = [change for change in changes if isinstance(change, c.StepVoided)]
        assert void.error is None
        again = changes[changes.index(void) + 1 :]
        assert shown(again) == shown(read([Log()(stored)]))


def test_a_retry_voids_what_the_failed_attempt_showed() -> None:
    log = Log()
    events = [
        *deltas(START, TextDelta("It sn"), *call_deltas("c1", "look", "{}"), BUSY),
        log(failed(Text("It sn"))),
        *deltas(START, *call_deltas("c1", "look", '{"at":"sky"}'), Done("stop")),
        log(answer(CALL)),
    ]
    changes = read(events)
    at = kinds(changes).index("StepVoided")
    assert kinds(changes)[at - 1] == "CallDropped"
    assert changes[at] == c.StepVoided(BUSY)
    assert shown(changes[at:]) == '|<c1>{"at":"sky"}'  # its id is free again


def test_a_retry_of_an_attempt_that_was_never_shown_needs_no_void() -> None:
    changes = read(run_of(failed(Text("It sn")), failed(index=None), answer("It rains.")))
    assert (shown(changes), "StepVoided" in kinds(changes)) == ("It rains.", False)


def test_a_failed_run_shows_what_had_arrived() -> None:
    end = RunEnded(status="failed", error=BUSY)
    parts = (Text("It sn"), CALL)
    for arrived in ([], deltas(START, TextDelta("It")), deltas(START, TextDelta("It sn"), *call_deltas("c1", "look"))):
        log = Log()
        changes = read([*arrived, log(failed(*parts)), log(end)])
        assert shown(changes).startswith("It sn<c1>")
        assert kinds(changes)[-3:] == ["CallGrew", "CallDropped", "RunEnds"] or kinds(changes)[-2:] == [
            "CallDropped",
            "RunEnds",
        ]
    contradicting = deltas(START, TextDelta("It rains"))
    log = Log()
    assert shown(read([*contradicting, log(failed(*parts)), log(end)])) == "It rains"
    log = Log()
    assert kinds(read([log(failed()), log(end)])) == ["AttemptFailed", "RunEnds"]


def test_a_call_that_was_cut_off_is_dropped() -> None:
    arrived = deltas(START, ToolCallStart("c1", "look"), ToolCallArgs("c1", '{"a'), TextDelta("It "))
    changes = read([*arrived, Log()(answer("It ", aborted=True))])
    assert kinds(changes)[-3:] == ["CallDropped", "TextEnded", "StepFinished"]


def test_an_id_that_is_taken_gets_another_key() -> None:
    log = Log()
    renamed = ToolCall("new", "look", {"at": "sky"}, metadata={"providerToolCallId": "c1"})
    events = [
        log(answer(CALL)),
        log(result("c1")),
        *deltas(START, *call_deltas("c1", "look", '{"at":"sky"}'), Done("tool_calls")),
        log(answer(renamed)),
        log(result("new")),
    ]
    changes = read(events)
    assert "StepVoided" not in kinds(changes)
    assert [change.key for change in changes if isinstance(change, c.CallEnded)] == ["c1", "c1~2"]


def test_a_queued_message_that_joins_before_the_first_answer_is_shown() -> None:
    queued = replace(user("Faster!"), meta=Meta(request_id="e9"))
    changes = read(run_of(queued, answer("Done.")))
    assert [change.message.text for change in changes if isinstance(change, c.MessageAdded)] == ["Faster!"]


def test_a_reader_that_joins_late_gets_the_answer_so_far() -> None:
    open_call = ToolCall("c1", "look", {}, raw_args_text='{"at"')
    meta = Meta(open_calls=("c1",))
    snapshot = Message("assistant", (Text("It "), open_call), run_id=RUN, meta=meta)
    more = tuple(event.delta for event in deltas(ToolCallArgs("c1", ':"sky"}')) if hasattr(event, "delta"))
    events: Events = [
        LiveReset("p", snapshot),
        LiveReset("p", snapshot),
        LiveDeltas("p", more),
        LiveEntry("p", Log().entry(answer("It ", CALL))),
    ]
    changes = read(events)
    assert shown(changes) == 'It <c1>{"at":"sky"}'
    other = Message("assistant", (Text("No"),), run_id=RUN)
    assert shown(read([LiveReset("p", snapshot), LiveReset("p", other)])) == 'It <c1>{"at"|No'
    changed = Message("assistant", (Text("It "), ToolCall("c1", "look", {}, raw_args_text="[")), run_id=RUN, meta=meta)
    assert shown(read([LiveReset("p", snapshot), LiveReset("p", changed)])) == 'It <c1>{"at"|It <c1>['


def test_events_of_other_runs_are_ignored() -> None:
    log = Log()
    events: Events = [
        log(RunStarted()),
        log(answer("Mine.")),
        log(answer("Not mine."), run_id="other"),
        *deltas(START, TextDelta("not mine"), run_id="other"),
        LiveReset("p", Message("assistant", (Text("no"),), run_id="other")),
        *deltas(TextDelta("without a start")),
    ]
    assert shown(read(events)) == "Mine."


def test_messages_that_join_are_added_and_history_is_not() -> None:
    log = Log()
    events = [
        log(RunStarted()),
        log(user("Earlier")),
        log(assistant("History.")),
        log(user("Go")),
        log(answer("First.")),
        log(user(Text("correct it", synthetic=True))),
        log(user("Faster!")),
        log(ThinkingLevelChange(level="high")),
        log(answer("Second.")),
    ]
    changes = read(events)
    assert [change.message.text for change in changes if isinstance(change, c.MessageAdded)] == ["Faster!"]
    assert shown(changes) == "First.Second."


def test_notes_wait_for_the_answer_in_progress() -> None:
    log = Log()
    note = Custom(name="weather", data={"rain": True})
    events = [log(note), *deltas(START, TextDelta("It ")), log(note, run_id=None), log(answer("It rains."))]
    assert [kind for kind in kinds(read(events)) if kind in ("Noted", "StepFinished")] == [
        "Noted",
        "StepFinished",
        "Noted",
    ]
    ended = read([*deltas(START, TextDelta("It ")), log(note), log(RunEnded(status="aborted"))])
    assert kinds(ended)[-3:] == ["TextEnded", "Noted", "RunEnds"]


def test_a_run_waits_until_all_its_questions_are_decided() -> None:
    log = Log()
    reader = RunReader()
    question = ApprovalRequired(tool_call_id="c1", tool_name="look", arguments={"at": "sky"})
    read([log(answer(CALL, CALL2)), log(question)], reader)
    assert not reader.is_waiting  # c2 runs
    assert list(reader.pause()) == []
    read([log(result("c2"))], reader)
    assert reader.is_waiting
    again = RunReader(earlier=log.entries)
    assert list(again.pause()) == [c.RunPauses((question,))]
    assert again.is_ended
    decided = read([log(ApprovalDecided(tool_call_id="c1", decision="deny"), run_id=None)], reader)
    assert (kinds(decided), reader.is_waiting) == (["CallDecided"], False)
    (ended,) = read([log(result("c1", is_error=True))], reader)
    assert isinstance(ended, c.CallEnded)
    assert ended.was_asked


def test_a_run_waits_for_the_results_of_deferred_calls() -> None:
    log = Log()
    reader = RunReader()
    read(
        [
            log(answer(CALL)),
            log(ToolStarted(tool_call_id="c1", tool_name="look", arguments={"at": "sky"}, deferred=True)),
        ],
        reader,
    )
    assert reader.is_waiting
    assert list(RunReader(earlier=log.entries).pause()) == [c.RunPauses((), ("c1",))]
    assert read([log(ResultPosted(tool_call_id="c1", result=ToolResult("c1", "grey")), run_id=None)], reader) == []
    assert not reader.is_waiting


def test_calls_of_a_sub_agent_that_await_a_decision_are_shown() -> None:
    log = Log()
    reader = RunReader()
    question = ApprovalRequired(tool_call_id="c1/q", tool_name="pay", arguments={"sum": 1})
    read([log(answer(CALL)), log(ToolStarted(tool_call_id="c1", tool_name="look", arguments={"at": "sky"}))], reader)
    asked = read(
        [log(question), log(ToolStarted(tool_call_id="c1/d", tool_name="order", arguments={}, deferred=True))], reader
    )
    assert kinds(asked) == [
        *("CallStarted", "CallGrew", "CallReady", "CallAsked"),
        *("CallStarted", "CallGrew", "CallReady", "CallRunning"),
    ]
    assert shown(asked) == '<c1/q>{"sum":1}<c1/d>{}'
    assert not reader.is_waiting  # the sub-agent still does something else
    read([log(ToolProgress(tool_call_id="c1", content="waiting", metadata={WAITING: ["c1/q", "c1/d"]}))], reader)
    assert reader.is_waiting
    assert list(RunReader(earlier=log.entries).pause()) == [c.RunPauses((question,), ("c1/d",))]
    decided = read([log(ApprovalDecided(tool_call_id="c1/q", decision="approve"), run_id=None)], reader)
    assert (kinds(decided), reader.is_waiting) == (["CallDecided"], False)
    assert read([log(ApprovalDecided(tool_call_id="c1/unknown", decision="approve"), run_id=None)], reader) == []
    read([log(ToolStarted(tool_call_id="c1", tool_name="look", arguments={"at": "sky"}, attempt=2))], reader)
    assert not reader.is_waiting
    ended = read([log(result("c1"))], reader)
    assert [change.key for change in ended if isinstance(change, c.CallEnded)] == ["c1/q", "c1/d", "c1"]


def test_a_denied_call_of_a_sub_agent_has_failed() -> None:
    log, reader = Log(), RunReader()
    read([log(answer(CALL)), log(ToolStarted(tool_call_id="c1", tool_name="look", arguments={}))], reader)
    read(
        [
            log(ApprovalRequired(tool_call_id="c1/q", tool_name="pay", arguments={})),
            log(ApprovalDecided(tool_call_id="c1/q", decision="deny"), run_id=None),
        ],
        reader,
    )
    nested, _ = [change.result for change in read([log(result("c1"))], reader) if isinstance(change, c.CallEnded)]
    assert (nested.is_error, nested.error_code) == (True, ErrorCode.TOOL_DENIED)


def test_what_ends_the_run_before_is_not_part_of_the_one_that_starts() -> None:
    log = Log()
    before = [log(result("c0"), run_id="before"), log(RunEnded(status="aborted"), run_id="before")]
    reader = RunReader(from_start=True)
    assert read([*before, log(RunStarted()), log(answer("Hello."))], reader) != []
    assert (reader.run_id, reader.is_ended) == (RUN, False)


def test_runs_pause_and_finish_without_a_stored_end() -> None:
    question = ApprovalRequired(tool_call_id="c1", tool_name="look", arguments={})
    assert read([RunPaused((question,))]) == [c.RunPauses((question,))]

    def finished(status: AgentStatus, **fields: Any) -> list[c.Change]:
        return read([RunFinished(RunResult(status=status, session_id="s", run_id=RUN, **fields))])

    assert finished(AgentStatus.AWAITING_HUMAN, approvals=(question,)) == [c.RunPauses((question,))]
    assert finished(AgentStatus.COMPLETED) == [c.RunEnds(status="completed")]
    assert finished(AgentStatus.ABORTED, reason="user") == [c.RunEnds(status="aborted", reason="user")]
    assert finished(AgentStatus.FAILED, error=BUSY) == [c.RunEnds(status="failed", error=BUSY)]


def test_a_stream_without_further_events_is_closed_with_an_error() -> None:
    reader = RunReader()
    read(deltas(START, TextDelta("It ")), reader)
    ended, end = list(reader.close())
    assert isinstance(ended, c.TextEnded)
    assert isinstance(end, c.RunEnds)
    assert end.error is not None
    assert end.error.error_code is ErrorCode.STREAM_TRUNCATED
    error = Failed(ErrorCode.STORAGE_FAILED, "gone")
    assert list(RunReader().close(error)) == [c.RunEnds(status="failed", error=error)]


def test_the_steps_of_a_sub_agent_are_progress_of_the_call_that_runs_it() -> None:
    log, inner = Log(), Log("inner-run")
    steps: list[Event] = [
        inner(RunStarted()),
        inner(ToolStarted(tool_call_id="i1", tool_name="read_file", arguments={}, title="read a.txt")),
        inner(answer("Found it.")),
        SubagentEvent("i1", "reader", inner(answer("Deeper."))),
        inner(ToolStarted(tool_call_id="i2", tool_name="look", arguments={})),
    ]
    events: Events = [
        log(RunStarted()),
        log(answer(CALL)),
        *(SubagentEvent("c1", "helper", step) for step in steps),
        SubagentEvent("unknown", "helper", steps[1]),
        log(result("c1")),
    ]
    progress = [change for change in read(events) if isinstance(change, c.CallProgressed)]
    contents = [change.content for change in progress]
    assert contents == ["helper: read a.txt", "helper: Found it.", "helper: reader: Deeper.", "helper: look"]
    assert all(change.by_subagent for change in progress)


def test_a_sub_agent_has_a_display_of_its_own() -> None:
    log, inner, innermost = Log(), Log("inner-run"), Log("innermost-run")
    inner_call = ToolCall("i1", "look", {})
    events: Events = [
        log(RunStarted()),
        log(answer(CALL)),
        SubagentEvent("c1", "helper", inner(answer(inner_call))),
        SubagentEvent("c1", "helper", SubagentEvent("i1", "reader", innermost(answer("Deeper.")))),
        SubagentEvent("c1", "helper", inner(result("i1"))),
        log(result("c1")),
        SubagentEvent("c1", "helper", inner(answer("Late."))),
    ]
    changes = [change for change in read(events) if isinstance(change, c.SubagentChanged)]
    assert {(change.key, change.agent) for change in changes} == {("c1", "helper")}
    assert kinds([change.change for change in changes]) == [
        *("StepStarted", "CallStarted", "CallGrew", "CallReady", "StepFinished"),
        *("SubagentChanged",) * 5,
        *("CallProgressed", "CallEnded"),
    ]


def test_a_call_ends_with_the_time_since_its_start() -> None:
    log = Log()
    events = [
        log.entry(fact)
        for fact in (answer(CALL, CALL2), ToolStarted(tool_call_id="c1", tool_name="look", arguments={}), result("c1"))
    ]
    untimed = log.entry(result("c2", is_error=True))
    reader = RunReader(events[:1])
    read([LiveEntry("2", events[1])], reader)
    late = replace(events[2], timestamp=NOW + timedelta(seconds=2))
    (ended,) = read([LiveEntry("3", late)], reader)
    assert isinstance(ended, c.CallEnded)
    assert (ended.seconds, ended.arguments) == (2.0, {})
    (ended,) = read([LiveEntry("4", untimed)], reader)
    assert isinstance(ended, c.CallEnded)
    assert ended.seconds == 0.0


@pytest.mark.parametrize("step_s", [-60, 3600])
def test_the_time_of_a_call_does_not_depend_on_the_wall_clock(step_s: int) -> None:
    log = Log()
    measured = ToolResult("c1", "ok", time=Span(NOW, NOW + timedelta(seconds=3)))
    facts = (
        answer(CALL, CALL2),
        ToolStarted(tool_call_id="c1", tool_name="look", arguments={}),
        replace(result("c1"), parts=(measured,)),
        ToolStarted(tool_call_id="c2", tool_name="look", arguments={}),
        result("c2"),
    )
    events = [log.entry(fact) for fact in facts]
    reader = RunReader(events[:1])
    read([LiveEntry("2", events[1]), LiveEntry("4", events[3])], reader)
    stepped = [replace(event, timestamp=NOW + timedelta(seconds=step_s)) for event in (events[2], events[4])]
    changes = read([LiveEntry(str(number), event) for number, event in enumerate(stepped, 5)], reader)
    assert [change.seconds for change in changes if isinstance(change, c.CallEnded)] == [3.0, max(step_s, 0)]


def test_the_last_run_begins_where_it_first_started() -> None:
    log = Log()
    entries = [
        log.entry(RunStarted(), run_id="before"),
        *(log.entry(fact) for fact in (RunStarted(), answer(CALL), RunStarted())),
    ]
    assert last_run(entries) == entries[1:]
    assert last_run([log.entry(user("Go"))]) == []


def test_notes_of_bartack_itself_are_not_for_clients() -> None:
    assert not [
        change for change in read(run_of(Custom(name="bartack.request", data={}))) if isinstance(change, c.Noted)
    ]


def test_a_run_that_was_suspended_ends_its_stream_in_an_error() -> None:
    for paused in ([], [Log()(failed(Text("It ")))]):
        reader = RunReader()
        read([*deltas(START, TextDelta("It ")), *paused], reader)
        *closed, end = read([RunPaused(())], reader)
        assert kinds(closed) == ["TextEnded"]
        assert end == c.RunEnds(status="failed", error=Failed(ErrorCode.PAUSED, "The run was suspended."))
        assert reader.is_ended


def test_a_message_that_comes_before_the_next_attempt_follows_what_is_taken_back() -> None:
    log, reader = Log(), RunReader()
    start = [log(RunStarted()), log(user("Go")), *deltas(START, TextDelta("It ")), log(failed(Text("It ")))]
    assert kinds(read(start, reader)) == ["StepStarted", "TextStarted", "TextGrew", "AttemptFailed"]
    resumed = [log(RunStarted()), log(user("Faster!")), log(answer("It rains."))]
    changes = read(resumed, reader)
    assert kinds(changes) == [
        "TextEnded",
        "StepVoided",
        "MessageAdded",
        "StepStarted",
        "TextStarted",
        "TextGrew",
        "TextEnded",
        "StepFinished",
    ]
    assert changes[3] == c.StepStarted(1)  # which is how the stored session counts


def test_two_failures_in_a_row_leave_nothing_of_the_first() -> None:
    log = Log()
    events = [
        *deltas(START, TextDelta("It sn")),
        log(failed(Text("It sn"))),
        log(failed()),  # nothing arrived of this attempt
        log(RunEnded(status="failed", error=BUSY)),
    ]
    assert shown(read(events)) == "It sn|"


def test_calls_keep_the_keys_that_the_window_has_when_the_run_continues() -> None:
    first = ToolCall("call_0", "quick", {})
    second = ToolCall("stored-id", "asked", {}, metadata={"providerToolCallId": "call_0"})
    for taken, key in ((["call_0", "call_0~2"], "call_0~2"), (["call_0", "stored-id"], "stored-id")):
        keys = ShownKeys(taken)
        keys.are_known = True
        assert [keys.for_stored(first), keys.for_stored(second)] == ["call_0", key]
        keys.are_known = False
        assert keys.for_call("call_0") not in taken
        assert keys.for_stored(second) not in taken or key == "call_0~2"


def test_calls_of_a_sub_agent_keep_their_keys_and_end_when_it_waits_for_others() -> None:
    log = Log()
    facts = (
        RunStarted(),
        answer(CALL),
        ApprovalRequired(tool_call_id="c1/i1", tool_name="pay", arguments={}),
        waiting("c1/i1"),
    )
    known = [log(fact).entry for fact in facts]
    reader = RunReader(known, ["c1", "c1/i1"])
    assert reader.call_ids == {"c1": "c1", "c1/i1": "c1/i1"}
    found = [
        change
        for fact in (ApprovalRequired(tool_call_id="c1/i2", tool_name="pay", arguments={}), waiting("c1/i2"))
        for change in reader.read(log(fact))
    ]
    assert [change.key for change in found if isinstance(change, c.CallEnded)] == ["c1/i1"]
    assert reader.is_waiting
    assert reader.find("c1/i1") is None


def waiting(*call_ids: str) -> ToolProgress:
    return ToolProgress(
        tool_call_id="c1", content="Waiting.", metadata={"sessionId": "s", "bartack.waiting": list(call_ids)}
    )
