"""Laws of `repair` for every history and every format's rules."""

from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bartack.formats.format import STRICTEST, HistoryRules
from bartack.formats.repair import INTERRUPTED, repair
from bartack.nouns.messages import Message, assistant, tool_message, user
from bartack.nouns.parts import Text, ToolCall, ToolResult
from tests.formats.every_rule import RULES
from tests.formats.history_check import check_history
from tests.properties.histories import histories

any_rules = st.sampled_from([STRICTEST, *RULES.values()]) | st.builds(
    HistoryRules,
    merge_same_role=st.booleans(),
    starts_with_user=st.booleans(),
    allows_assistant_last=st.booleans(),
    allows_user_after_tool=st.booleans(),
    allows_any_result_order=st.booleans(),
    allows_paused_last=st.booleans(),
    allows_empty_text=st.booleans(),
    allows_signed_empty_text=st.booleans(),
    call_id_pattern=st.sampled_from([None, r"[a-z0-9]{9}", r"\w{1,40}"]),
)
Histories = list[Message]
thorough = settings(max_examples=4 * settings().max_examples)  # fewer miss the rarer faults


@thorough
@given(histories, any_rules)
def test_a_repaired_history_is_accepted(history: Histories, rules: HistoryRules) -> None:
    assert check_history(repair(history, rules).messages, rules) == []


@thorough
@given(histories)
def test_the_strictest_rules_satisfy_every_format(history: Histories) -> None:
    strictest = repair(history).messages
    for name, rules in RULES.items():
        assert check_history(strictest, rules) == [], name


@thorough
@given(histories, any_rules)
def test_a_second_repair_changes_nothing(history: Histories, rules: HistoryRules) -> None:
    once = repair(history, rules)
    twice = repair(once.messages, rules)
    assert twice.messages == once.messages
    assert all(second is first for second, first in zip(twice.messages, once.messages, strict=True))
    assert twice.notes == ()


@thorough
@given(histories, any_rules)
def test_every_change_has_a_note_and_every_note_a_change(history: Histories, rules: HistoryRules) -> None:
    repaired = repair(history, rules)
    assert (repaired.messages == tuple(history)) == (repaired.notes == ())
    assert all(0 <= note.index < max(len(history), 1) for note in repaired.notes)
    assert [note.index for note in repaired.notes] == sorted(note.index for note in repaired.notes)


@thorough
@given(histories, any_rules)
def test_an_acceptable_history_is_not_changed(history: Histories, rules: HistoryRules) -> None:
    assert (check_history(history, rules) == []) == (repair(history, rules).notes == ())


def texts_of(messages: tuple[Message, ...]) -> list[tuple[str, str]]:
    return [
        (message.role, part.text)
        for message in messages
        if message.role in ("user", "assistant")
        for part in message.parts
        if isinstance(part, Text) and not part.ignored and not part.synthetic and part.text.strip()
    ]


@thorough
@given(histories, any_rules)
def test_no_text_of_user_or_assistant_is_lost_or_moved(history: Histories, rules: HistoryRules) -> None:
    assert texts_of(repair(history, rules).messages) == texts_of(tuple(history))


def client_calls(messages: tuple[Message, ...]) -> list[ToolCall]:
    """The calls that need a result, in order."""
    return [
        call
        for message in messages
        for call in message.tool_calls
        if call.executed_by == "client" and call.tool_call_id not in ((message.meta and message.meta.open_calls) or ())
    ]


@thorough
@given(histories, any_rules)
def test_every_complete_call_is_unchanged_except_for_its_id(history: Histories, rules: HistoryRules) -> None:
    before = client_calls(tuple(history))
    repaired_calls = client_calls(repair(history, rules).messages)
    assert [(call.arguments, call.raw_args_text) for call in before] == [
        (call.arguments, call.raw_args_text) for call in repaired_calls
    ]


def numbered(history: Histories) -> Histories:
    """The same history with distinguishable results."""
    return [
        Message(
            "tool",
            tuple(
                ToolResult(result.tool_call_id, f"{place}.{number}")
                for number, result in enumerate(message.tool_results)
            ),
        )
        if message.role == "tool"
        else message
        for place, message in enumerate(history)
    ]


@thorough
@given(histories.map(numbered), any_rules)
def test_no_first_result_of_a_call_is_lost(history: Histories, rules: HistoryRules) -> None:
    """A call with a unique id gets the first result that follows it, or the error if there is none."""
    calls = client_calls(tuple(history))
    repaired = repair(history, rules).messages
    results = {result.tool_call_id: result for message in repaired for result in message.tool_results}
    assert sum(len(message.tool_results) for message in repaired) == len(results) == len(calls)
    calls_by_id = Counter(call.tool_call_id for message in history for call in message.tool_calls)
    for call, sent_call in zip(calls, client_calls(repaired), strict=True):
        result = results[sent_call.tool_call_id]
        if calls_by_id[call.tool_call_id] == 1:
            place = next(
                place for place, message in enumerate(history) if any(later is call for later in message.parts)
            )
            following = [later for message in history[place:] for later in message.tool_results]
            expected = [later.content for later in following if later.tool_call_id == call.tool_call_id]
            assert result.content == (expected or [INTERRUPTED])[0]


@thorough
@given(histories, histories, any_rules)
def test_later_messages_do_not_change_earlier_ids(history: Histories, later: Histories, rules: HistoryRules) -> None:
    shorter = [call.tool_call_id for call in client_calls(repair(history, rules).messages)]
    longer = [call.tool_call_id for call in client_calls(repair(history + later, rules).messages)]
    assert longer[: len(shorter)] == shorter


@thorough
@given(histories)
@example([user("x"), assistant(ToolCall("b", "t", {}), ToolCall("a", "t", {})), tool_message(ToolResult("a", "1"))])
def test_call_and_result_end_up_with_the_same_id(history: Histories) -> None:
    messages = repair(history).messages
    answered = [result.tool_call_id for message in messages for result in message.tool_results]
    assert answered == [call.tool_call_id for call in client_calls(messages)]


@pytest.mark.parametrize("field", [name for name in HistoryRules.__struct_fields__ if name.startswith("allows_")])
def test_the_default_rules_allow_nothing_that_some_provider_refuses(field: str) -> None:
    assert not getattr(STRICTEST, field)
    assert any(getattr(rules, field) for rules in RULES.values())


@pytest.mark.parametrize("name", RULES)
def test_an_id_that_the_default_rules_accept_is_accepted_everywhere(name: str) -> None:
    assert STRICTEST.accepts_id("abcXYZ019")
    assert RULES[name].accepts_id("abcXYZ019")
