"""The nine deltas and the stamp around them."""

from datetime import UTC, datetime
from typing import get_args

import pytest

from bartack.nouns.deltas import Delta, Done, FinishReason, MessageDelta, TextDelta, Usage
from bartack.nouns.wire import dump

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_there_are_exactly_nine_kinds() -> None:
    """000-4.2, 001-7.4, 004-delta-kinds.1"""
    assert [delta.kind for delta in get_args(Delta)] == [
        "start",
        "text",
        "thinking",
        "tool_call_start",
        "tool_call_args",
        "tool_call_end",
        "usage",
        "done",
        "error",
    ]


def test_there_are_seven_finish_reasons_beside_the_providers_own() -> None:
    """D-3.4.5, D-3.4.6, 000-4.10"""
    assert get_args(FinishReason) == ("stop", "length", "tool_calls", "content_filter", "refusal", "pause", "other")
    assert dump(Done("length", raw_finish_reason="MAX_TOKENS")) == {
        "kind": "done",
        "payload": {"finishReason": "length", "rawFinishReason": "MAX_TOKENS"},
    }


@pytest.mark.parametrize(("counts", "total"), [((3, 4), 7), ((3, 4, 9), 9), ((3, 4, 0), 0), ((3, 4, -1), 7)])
def test_the_total_is_the_sum_unless_the_provider_reports_another(counts: tuple[int, ...], total: int) -> None:
    assert Usage(*counts).total_tokens == total


def test_a_stamp_has_run_number_and_time() -> None:
    """000-4.1, 004-message-delta.1"""
    stamped = MessageDelta("r1", 3, TextDelta("hi"), NOON, provider_raw={"type": "x"}, model_call_index=0, attempt=2)
    assert dump(stamped) == {
        "runId": "r1",
        "seq": 3,
        "kind": "text",
        "payload": {"textDelta": "hi"},
        "timestamp": "2026-01-01T12:00:00Z",
        "modelCallIndex": 0,
        "attempt": 2,
        "providerRaw": {"type": "x"},
    }


def test_a_delta_is_frozen() -> None:
    delta = TextDelta("hi")
    with pytest.raises(AttributeError):
        delta.text_delta = "ho"  # type: ignore[misc]
