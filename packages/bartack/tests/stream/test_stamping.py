"""`DeltaStamper`: run, increasing number and time on every delta, and the numbers of the attempt if known."""

from datetime import UTC, datetime, timedelta

from bartack.nouns.deltas import Delta, Done, MessageDelta, Start, TextDelta
from bartack.nouns.requests import RequestMetadata
from bartack.stream.contract import DeltaStamper

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(seconds=1)
START, TEXT, DONE = Start("m", "r"), TextDelta("hi"), Done("stop")


def test_numbers_continue_from_one_batch_to_the_next() -> None:
    """D-1.3"""
    stamper = DeltaStamper("r1")
    assert stamper.stamp([START, TEXT], NOON) == [MessageDelta("r1", 0, START, NOON), MessageDelta("r1", 1, TEXT, NOON)]
    assert stamper.stamp([], LATER) == []
    assert stamper.stamp([DONE], LATER) == [MessageDelta("r1", 2, DONE, LATER)]


def test_every_delta_carries_the_numbers_of_its_attempt() -> None:
    metadata = RequestMetadata(run_id="ignored", model_call_index=0, attempt=2)
    stamped = DeltaStamper("r1", metadata, first_seq=5).stamp([START, TEXT], NOON, provider_raw={"text": "x"})
    assert [(delta.run_id, delta.seq, delta.model_call_index, delta.attempt) for delta in stamped] == [
        ("r1", 5, 0, 2),
        ("r1", 6, 0, 2),
    ]


def test_raw_data_is_attached_to_the_first_delta_only() -> None:
    deltas: list[Delta] = [START, TEXT, DONE]
    stamped = DeltaStamper("r1").stamp(deltas, NOON, provider_raw={"type": "x"})
    assert [message.provider_raw for message in stamped] == [{"type": "x"}, None, None]
    assert [(message.seq, message.delta) for message in stamped] == list(enumerate(deltas))


def test_start_has_the_time_of_the_request() -> None:
    stamper = DeltaStamper("r1")
    stamped = stamper.stamp([START, TEXT], LATER, requested_at=NOON, provider_raw={"text": "x"})
    assert [(delta.timestamp, delta.provider_raw) for delta in stamped] == [(NOON, {"text": "x"}), (LATER, None)]
    assert stamper.stamp([DONE], LATER, requested_at=NOON) == [MessageDelta("r1", 2, DONE, LATER)]
    assert stamper.stamp([], LATER, requested_at=NOON) == []
