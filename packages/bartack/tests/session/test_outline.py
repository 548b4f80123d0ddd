"""Outlines: what opening a session reads of closed runs. `tests/properties/test_opening_laws.py` has the laws."""

from typing import Any

import pytest
from msgspec.structs import replace

from bartack import (
    ApprovalRequired,
    CompactionSummary,
    Custom,
    Entry,
    Meta,
    ToolCall,
    ToolResult,
    assistant,
    system,
    tool_message,
    user,
)
from bartack.nouns import wire
from bartack.nouns.entries import (
    Fact,
    MessageQueued,
    ModelChange,
    Redaction,
    RunEnded,
    RunStarted,
    RuntimeInit,
    SystemPromptOverride,
    ToolStarted,
)
from bartack.nouns.messages import ModelRef
from bartack.session.context import ContextFold
from bartack.session.outline import REPAIRED, UNREADABLE, Past, outlines_of
from bartack.session.run_state import RunState
from tests.sample_session import chain

MODEL = ModelRef("p", "m")


class Counted(list[Entry]):
    """Entries that record which of them were read."""

    def __init__(self, entries: list[Entry]) -> None:
        super().__init__(entries)
        self.read: list[int] = []

    def __getitem__(self, index: Any) -> Any:
        self.read.append(index)
        return super().__getitem__(index)


def runs(*runs: list[Fact]) -> Counted:
    """Runs r0, r1, ... with these facts."""
    facts = [(f"r{number}", fact) for number, run in enumerate(runs) for fact in run]
    entries = zip(chain(*(fact for _, fact in facts)), facts, strict=True)
    return Counted([replace(entry, run_id=run_id) for entry, (run_id, _) in entries])


def past_of(entries: list[Entry]) -> Past:
    return Past(outlines_of(list(map(wire.encode, iter(entries)))))


def turn(number: int) -> list[Fact]:
    call = ToolCall(f"c{number}", "read", {})
    return [
        RunStarted(model=MODEL),
        user("Look."),
        assistant(call),
        ToolStarted(tool_call_id=call.tool_call_id, tool_name="read", arguments={}),
        tool_message(ToolResult(call.tool_call_id, "a")),
        assistant("Done."),
        RunEnded(status="completed"),
    ]


def test_only_the_last_run_and_the_last_model_are_read() -> None:
    entries = runs(turn(0), turn(1), turn(2))
    state = RunState.of_branch(entries, past_of(entries))
    assert sorted(set(entries.read)) == [7, *range(14, 21)]
    assert state.last_run_id == "r2"
    assert state.call_ids == {"c0", "c1", "c2"}
    assert state.open_calls == {}
    assert [message.role for message in state.messages] == ["user", "assistant", "tool", "assistant"]


def test_a_resumed_run_is_read_from_its_beginning() -> None:
    entries = runs(turn(0), turn(1)[:4])
    resumed = replace(entries[7], id="again", seq=12)
    state = RunState.of_branch([*entries, resumed], past_of([*entries, resumed]))
    assert state.open_calls["c1"].started is not None
    assert len(state.messages) == 2


def test_a_run_without_a_prompt_is_read_from_the_last_message_of_the_user() -> None:
    same = [assistant(ToolCall("x", "read", {})), tool_message(ToolResult("x", "a"))]
    entries = runs(
        turn(0), [RunStarted(), user("Look."), *same, RunEnded(status="failed")], [RunStarted(), assistant("No.")]
    )
    assert past_of(entries).end == 8


def test_without_a_run_every_entry_is_read() -> None:
    entries = Counted(chain(user("Look."), assistant("Done.")))
    last = RunState.of_branch(entries, past_of(entries)).last_message
    assert last is not None
    assert last.text == "Done."
    assert entries.read == [0, 1]


def test_entries_about_a_call_without_a_result_are_read() -> None:
    pair = assistant(ToolCall("open", "read", {}), ToolCall("closed", "read", {}))
    question = ApprovalRequired(tool_call_id="open", tool_name="read", arguments={})
    first: list[Fact] = [RunStarted(), user("Look."), pair, question, tool_message(ToolResult("closed", "a"))]
    entries = runs(first, [RunStarted(), user("Look.")])
    state = RunState.of_branch(entries, past_of(entries))
    assert list(state.open_calls) == ["open"]
    assert state.questions == (question,)


@pytest.mark.parametrize("end", [RunEnded(status="failed"), Custom(name=REPAIRED, data={})])
def test_calls_whose_result_is_lost_do_not_stay_open(end: Fact) -> None:
    """A run that has ended, and a repair, have given a result to every call; if there is none, it is damaged."""
    call = assistant(ToolCall("c1", "read", {}))
    entries = runs([RunStarted(), user("Look."), call, Custom(name=UNREADABLE, data={}), end], turn(1))
    assert not RunState.of_branch(entries, past_of(entries)).open_calls


def test_the_last_model_and_runtime_that_can_be_read_apply() -> None:
    first: list[Fact] = [
        RunStarted(),
        ModelChange(model=MODEL),
        RuntimeInit(runtime="local", data={}),
        ModelChange(model=ModelRef("p", "n")),
    ]
    entries = runs(first, [RunStarted(), user("Look.")])
    damaged = Counted(
        [*entries[:3], replace(entries[3], fact=Custom(name="bartack.unreadable", data={})), *entries[4:]]
    )
    state = RunState.of_branch(damaged, past_of(list(entries)))
    assert state.model == MODEL
    assert state.runtime == RuntimeInit(runtime="local", data={})


def test_messages_that_were_not_delivered_are_read() -> None:
    queued: list[Fact] = [MessageQueued(message=user(text)) for text in ("late", "delivered", "withdrawn")]
    delivered: list[Fact] = [user("delivered", meta=Meta(request_id="e1")), user("other", meta=Meta())]
    entries = runs([*queued, RunStarted(), *delivered, Redaction(entry_id="e2"), RunEnded(status="aborted")], turn(1))
    state = RunState.of_branch(entries, past_of(entries))
    assert list(state.inbox) == ["e0"]
    assert not {1, 2} & set(entries.read)


@pytest.mark.parametrize("is_over", [True, False])
def test_a_model_that_others_chose_is_requested_until_a_run_has_ended(is_over: bool) -> None:
    first: list[Fact] = [
        ModelChange(model=MODEL),
        *([RunEnded(status="completed")] if is_over else [Custom(name="note", data={})]),
    ]
    entries = runs([RunStarted(), *first], [RunStarted(), user("Look.")])
    entries = Counted([*entries[:1], replace(entries[1], run_id=None), *entries[2:]])
    assert RunState.of_branch(entries, past_of(entries)).requested_model == (None if is_over else MODEL)


def test_text_that_is_not_an_entry_has_an_outline_without_a_kind() -> None:
    outlines = outlines_of([b"{", b'{"id": 1}', b"\xff"])
    assert [outline.kind for outline in outlines] == ["", "", ""]


# -- contexts


def context_of(entries: Counted) -> ContextFold:
    return ContextFold.of_branch(entries, outlines_of(list(map(wire.encode, iter(entries)))))


def test_facts_that_are_not_part_of_a_context_are_not_read() -> None:
    entries = runs(turn(0))
    assert len(context_of(entries).items) == 4
    assert entries.read == [0, 1, 2, 4, 5]


def test_a_run_with_the_model_of_the_one_before_is_not_read() -> None:
    starts = [RunStarted(model=MODEL), RunStarted(model=MODEL), RunStarted(model=ModelRef("p", "other"))]
    facts: list[list[Fact]] = [[start, user("Look.")] for start in starts]
    entries = runs(*facts)
    places = [place for place, entry in enumerate(iter(entries)) if isinstance(entry.fact, RunStarted)]
    assert context_of(entries).model == ModelRef("p", "other")
    assert [place in entries.read for place in places] == [True, False, True]


def test_of_what_is_summarised_only_settings_and_system_messages_are_read() -> None:
    before: list[Fact] = [
        RunStarted(model=MODEL),
        SystemPromptOverride(text="Be brief."),
        system("Rules."),
        user("Look."),
    ]
    last_run: list[Fact] = [
        user("Go on."),
        CompactionSummary(summary="They looked.", first_kept_entry_id="e11"),
        Redaction(entry_id="e3"),
        user("More."),
    ]
    entries = runs(before, turn(1), last_run)
    context = context_of(entries)
    assert sorted(set(entries.read)) == [1, 2, 4, 11, 12, 13, 14]
    assert [item.entry_id for item in context.items] == ["e11", "e14"]
    assert [message.text for message in context.instructions] == ["Rules."]
    assert (context.model, context.system_prompt) == (MODEL, "Be brief.")


def test_an_answer_that_is_summarised_still_excludes_its_repetition() -> None:
    answer = assistant("Done.", meta=Meta(model_call_index=0))
    facts: list[Fact] = [
        RunStarted(model=MODEL),
        user("Look."),
        answer,
        CompactionSummary(summary="They looked.", first_kept_entry_id="e3"),
    ]
    context = context_of(runs([*facts, answer, assistant("Really.", meta=Meta(model_call_index=1))]))
    assert [item.message.text for item in context.items] == ["Really."]


def test_a_compaction_that_cannot_be_read_hides_nothing() -> None:
    entries = runs(
        [
            RunStarted(model=MODEL),
            user("Look."),
            CompactionSummary(summary="They looked.", first_kept_entry_id="e2"),
            user("More."),
        ]
    )
    outlines = outlines_of(list(map(wire.encode, iter(entries))))
    damaged = [*entries[:2], replace(entries[2], fact=Custom(name="bartack.unreadable", data={})), entries[3]]
    assert [item.entry_id for item in ContextFold.of_branch(damaged, outlines).items] == ["e1", "e3"]
