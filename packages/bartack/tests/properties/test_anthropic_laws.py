"""Anthropic's events in any order, under any index, repeated or omitted, decode to a stream that keeps the contract."""

import json
from base64 import b64encode
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bartack.formats.anthropic_messages.decode import AnthropicMessages
from bartack.formats.bedrock_invoke import BedrockInvoke
from bartack.nouns.deltas import Delta, Done, Failed, Start
from tests.formats.framing.framing_bytes import aws_message
from tests.recordings.agreement import assembler_of, decoded

Json = dict[str, Any]

BLOCKS: list[Json] = [
    {"type": "text", "text": ""},
    {"type": "thinking", "thinking": "", "signature": "s"},
    {"type": "redacted_thinking", "data": "AA"},
    {"type": "compaction", "content": None},
    {"type": "tool_use", "id": "t", "name": "f", "input": {}},
    {"type": "tool_use", "id": "u", "name": "f", "input": {"a": 1}},
    {"type": "server_tool_use", "id": "s", "name": "w", "input": {}},
    {"type": "server_tool_use", "id": "", "name": "w", "input": {"b": 2}},
    {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
    {"type": "later"},
]
PIECES: list[Json] = [
    {"type": "text_delta", "text": "a"},
    {"type": "thinking_delta", "thinking": "b"},
    {"type": "signature_delta", "signature": "c"},
    {"type": "citations_delta", "citation": {"n": 1}},
    {"type": "compaction_delta", "content": "d"},
    {"type": "input_json_delta", "partial_json": "{}"},
]
INDEXES = st.integers(-1, 3) | st.none()
EVENTS = st.one_of(
    st.builds(
        lambda index, block: {"type": "content_block_start", "index": index, "content_block": block},
        INDEXES,
        st.sampled_from(BLOCKS),
    ),
    st.builds(
        lambda index, delta: {"type": "content_block_delta", "index": index, "delta": delta},
        INDEXES,
        st.sampled_from(PIECES),
    ),
    st.builds(lambda index: {"type": "content_block_stop", "index": index}, INDEXES),
    st.just({"type": "message_delta", "delta": {"stop_reason": "end_turn", "container": {"id": "c"}}}),
)


@given(st.lists(EVENTS, max_size=25), st.booleans())
def test_events_in_any_order_decode_to_a_stream(events: list[Json], is_ended: bool) -> None:
    payloads = [json.dumps(event).encode() for event in [*events, *([{"type": "message_stop"}] if is_ended else [])]]
    deltas = decoded(AnthropicMessages(framing="lines"), b"\n".join(payloads))
    assert_is_a_stream(deltas)
    assert isinstance(deltas[-1], Done) is is_ended
    if payloads:
        assert decoded(BedrockInvoke(provider="anthropic-messages"), *map(_chunk, payloads)) == deltas


def _chunk(payload: bytes) -> bytes:
    headers = {":message-type": "event", ":event-type": "chunk"}
    return aws_message(headers, json.dumps({"bytes": b64encode(payload).decode()}).encode())


def assert_is_a_stream(deltas: list[Delta]) -> None:
    """D-3.1."""
    assert isinstance(deltas[0], Start)
    assert isinstance(deltas[-1], Done | Failed)
    assembler_of(deltas)
