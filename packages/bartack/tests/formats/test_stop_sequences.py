"""Stop sequences that a model does not take: where an answer ends, however its stream was cut."""

from hypothesis import given
from hypothesis import strategies as st

from bartack.formats import writer
from bartack.formats.stop_sequences import StopSequences
from bartack.nouns.deltas import (
    Delta,
    Done,
    Failed,
    Start,
    TextDelta,
    ThinkingDelta,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from bartack.nouns.errors import ErrorCode

STOPPED = Done("stop", raw_finish_reason="stop_sequence")
DONE = Done("length")


def enforced(sequences: list[str], *deltas: Delta) -> tuple[list[Delta], str | None]:
    stops = StopSequences(sequences)
    return [written for delta in deltas for written in stops.deltas(delta)], stops.matched


def text_of(deltas: list[Delta]) -> str:
    return "".join(delta.text_delta for delta in deltas if isinstance(delta, TextDelta))


def test_an_answer_ends_before_the_sequence_but_its_usage_follows() -> None:
    deltas: list[Delta] = [
        Start("m", "r"),
        TextDelta("<a>yes</"),
        TextDelta("a> and more"),
        TextDelta("x"),
        ThinkingDelta("hm"),
    ]
    written, matched = enforced(["</a>", "END"], *deltas, Usage(1, 2), DONE)
    assert written == [Start("m", "r"), TextDelta("<a>yes"), Usage(1, 2), STOPPED]
    assert matched == "</a>"


def test_without_a_sequence_nothing_changes() -> None:
    deltas: list[Delta] = [Start("m", "r"), ThinkingDelta("a END"), TextDelta("b", new_part=True), TextDelta("c"), DONE]
    assert enforced(["END"], *deltas) == (deltas, None)
    assert enforced([], *deltas) == (deltas, None)


def test_text_held_back_is_released_by_what_follows_it() -> None:
    first, second = TextDelta("E", new_part=True), TextDelta("ND", new_part=True)
    assert enforced(["END"], first, second, DONE) == ([first, second, DONE], None)
    failed = Failed(ErrorCode.TIMEOUT, "late")
    assert enforced(["END"], TextDelta("aE"), failed) == ([TextDelta("a"), TextDelta("E"), failed], None)
    assert enforced(["END"], TextDelta("E"), ThinkingDelta("ND")) == ([TextDelta("E"), ThinkingDelta("ND")], None)


def test_continuation_data_is_not_held_back() -> None:
    delta = TextDelta("E", new_part=True, continuation={"a": 1})
    written, _ = enforced(["END"], delta, TextDelta("x"))
    assert written == [TextDelta("", new_part=True, continuation={"a": 1}), TextDelta("Ex")]


def test_only_calls_that_began_before_the_sequence_are_completed() -> None:
    before: list[Delta] = [ToolCallStart("a", "f"), TextDelta("END")]
    rest: list[Delta] = [ToolCallArgs("a", "{}"), ToolCallEnd("a")]
    later: list[Delta] = [ToolCallStart("b", "f"), ToolCallArgs("b", "{}"), ToolCallEnd("b")]
    failed = Failed(ErrorCode.TIMEOUT, "late")
    assert enforced(["END"], *before, *rest, *later, failed)[0] == [before[0], *rest, failed]


def test_clients_of_anthropic_are_told_the_sequence() -> None:
    messages = writer("anthropic-messages")
    messages.stop_sequence = "END"
    deltas: list[Delta] = [Start("m", "r"), Usage(1, 1), STOPPED]
    events = [event for delta in deltas for event in messages.events(delta)]
    assert events[-2]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "END"}


@given(st.lists(st.text("ab", max_size=4), max_size=3), st.lists(st.text("abc", max_size=4)))
def test_the_answer_does_not_depend_on_how_the_stream_was_cut(sequences: list[str], pieces: list[str]) -> None:
    text = "".join(pieces)
    written, matched = enforced(sequences, *map(TextDelta, pieces), DONE)
    ends = [(text.find(word) + len(word), -len(word)) for word in sequences if word and word in text]
    end, negative_length = min(ends, default=(len(text), 0))
    assert text_of(written) == text[: end + negative_length]
    assert matched == (text[end + negative_length : end] or None)
    assert written[-1] == (DONE if matched is None else STOPPED)
