"""Laws of every decoder: any bytes decode to a stream that keeps the contract, however they are cut (D-3.11).

Streams are damaged in several ways: bytes are changed, omitted or inserted, and the rest is cut off. `SEEDS` has a
small stream of each format; a format without one gets bytes that resemble its framing.
"""

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.formats import FORMATS, decoder
from bartack.nouns.deltas import Delta, Done, Failed, Start
from bartack.nouns.tables import AssemblyStatus
from tests.formats.framing.framing_bytes import aws_message
from tests.recordings.agreement import assembler_of, decoded

Json = dict[str, Any]

ANTHROPIC: list[Json] = [
    {"type": "message_start", "message": {"id": "m", "model": "c", "content": [], "usage": {"input_tokens": 5}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s=="}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "server_tool_use", "id": "s", "name": "w"}},
    {"type": "content_block_stop", "index": 1},
    {
        "type": "content_block_start",
        "index": 2,
        "content_block": {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"title": "t"}]},
    },
    {"type": "content_block_stop", "index": 2},
    {"type": "content_block_start", "index": 3, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 3, "delta": {"type": "text_delta", "text": "Grüße"}},
    {"type": "content_block_delta", "index": 3, "delta": {"type": "citations_delta", "citation": {"n": 1}}},
    {"type": "content_block_stop", "index": 3},
    {"type": "content_block_start", "index": 4, "content_block": {"type": "tool_use", "id": "t", "name": "f"}},
    {"type": "content_block_delta", "index": 4, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
    {"type": "content_block_stop", "index": 4},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
    {"type": "message_stop"},
]
INVOKE_HEADERS = {":message-type": "event", ":event-type": "chunk"}


def as_sse(events: list[Json]) -> bytes:
    return b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)


def as_chunks(events: list[Json]) -> bytes:
    payloads = [b64encode(json.dumps(event).encode()).decode() for event in events]
    return b"".join(aws_message(INVOKE_HEADERS, json.dumps({"bytes": payload}).encode()) for payload in payloads)


SEEDS: dict[str, bytes] = {"anthropic-messages": as_sse(ANTHROPIC), "bedrock-invoke": as_chunks(ANTHROPIC)}
PLAIN = b'data: {"choices": [{"delta": {"content": "a"}}], "type": "x", "message": {"content": "b"}, "done": true}\n\n'


@st.composite
def damaged(draw: st.DrawFn, seed: bytes) -> bytes:
    body = bytearray(seed)
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(body)))
        width = draw(st.integers(0, 3))
        body[place : place + width] = draw(st.binary(max_size=3))
    return bytes(body[: draw(st.integers(0, len(body)))] if draw(st.booleans()) else body)


@pytest.mark.parametrize("format", FORMATS)
@given(data=st.data())
def test_damaged_bytes_decode_to_a_valid_stream(format: str, data: st.DataObject) -> None:
    body = data.draw(damaged(SEEDS.get(format, PLAIN)))
    cut = data.draw(st.integers(0, len(body)))
    deltas = decoded(decoder(format), body)
    assert decoded(decoder(format), body[:cut], body[cut:]) == deltas
    assert_is_a_stream(deltas)


@pytest.mark.parametrize("format", sorted(SEEDS))
@given(data=st.data())
def test_damaged_events_decode_to_a_valid_stream(format: str, data: st.DataObject) -> None:
    """The frames are valid, but the events in them are shuffled, repeated or omitted."""
    events = data.draw(st.lists(st.sampled_from(ANTHROPIC), max_size=30))
    renumbered = [{**event, "index": data.draw(st.integers(-1, 4))} if "index" in event else event for event in events]
    body = as_sse(renumbered) if format == "anthropic-messages" else as_chunks(renumbered)
    assert_is_a_stream(decoded(decoder(format), body))


def assert_is_a_stream(deltas: list[Delta]) -> None:
    """D-3.1: a start, then anything the contract allows, then exactly one end."""
    assert isinstance(deltas[0], Start)
    assert isinstance(deltas[-1], Done | Failed)
    assert not any(isinstance(delta, Done | Failed) for delta in deltas[:-1])
    assembler = assembler_of(deltas)
    assert assembler.status in (AssemblyStatus.DONE, AssemblyStatus.ERROR)
