"""Deltas that arrive together."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bartack import (
    Message,
    MessageAssembler,
    MessageDelta,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCallArgs,
    Usage,
)
from bartack.display.run_reader import joined
from bartack.nouns.deltas import Delta
from tests.properties.strategies import streams

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def untimed(message: Message) -> Message:
    """The message without the times of its texts: those of joined pieces are approximate."""
    parts = (replace(part, time=None) if isinstance(part, Text | Thinking) else part for part in message.parts)
    return replace(message, parts=tuple(parts))


@given(streams(), st.integers(1, 6))
def test_joined_deltas_lead_to_the_same_answer(stream: list[MessageDelta], size: int) -> None:
    plain, shorter = MessageAssembler(guarded=True), MessageAssembler(guarded=True)
    for at in range(0, len(stream), size):
        batch = stream[at : at + size]
        for assembler, deltas in ((plain, batch), (shorter, joined(batch))):
            for delta in deltas:
                assembler.consume(delta)
        assert shorter.last_seq == plain.last_seq
        assert untimed(shorter.snapshot()) == untimed(plain.snapshot())


def test_pieces_are_joined_only_if_they_extend_the_same_text() -> None:
    deltas: list[Delta] = [
        TextDelta("a", continuation={"k": 1}),
        TextDelta("b"),
        TextDelta("c", continuation={"k": 2}),
        TextDelta("d", new_part=True),
        TextDelta("e"),
        ThinkingDelta("f"),
        ToolCallArgs("1", "g"),
        ToolCallArgs("1", "h"),
        ToolCallArgs("2", "i"),
        Usage(1, 2),
        Usage(1, 3),
    ]
    stamped = [MessageDelta("r", seq, one, NOON + timedelta(seconds=seq)) for seq, one in enumerate(deltas)]
    assert [(one.seq, one.timestamp.second, one.delta) for one in joined(stamped)] == [
        (1, 0, TextDelta("ab", continuation={"k": 1})),
        (2, 2, deltas[2]),
        (4, 3, TextDelta("de", new_part=True)),
        (5, 5, deltas[5]),
        (7, 6, ToolCallArgs("1", "gh")),
        (8, 8, deltas[8]),
        (9, 9, deltas[9]),
        (10, 10, deltas[10]),
    ]
    assert list(joined([])) == []
