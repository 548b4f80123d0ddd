"""Converse, Cohere and Ollama: events in any order, repeated, omitted and renumbered, decode to a stream (D-3.11)."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.formats import decoder
from bartack.nouns.deltas import Done, Failed, Start
from tests.formats.framing.framing_bytes import aws_message
from tests.recordings.agreement import assembler_of, decoded

Json = dict[str, Any]

CONVERSE: list[Json] = [
    {"messageStart": {"role": "assistant"}},
    {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": "hm"}}}},
    {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"reasoningContent": {"signature": "s=="}}}},
    {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"reasoningContent": {"redactedContent": "AA=="}}}},
    {"contentBlockStart": {"contentBlockIndex": 1, "start": {"toolUse": {"toolUseId": "t", "name": "f"}}}},
    {
        "contentBlockStart": {
            "contentBlockIndex": 2,
            "start": {"toolUse": {"toolUseId": "s", "name": "code", "type": "server_tool_use"}},
        }
    },
    {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"toolUse": {"input": "{}"}}}},
    {"contentBlockStart": {"contentBlockIndex": 3, "start": {"toolResult": {"toolUseId": "s", "status": "success"}}}},
    {"contentBlockDelta": {"contentBlockIndex": 3, "delta": {"toolResult": [{"text": "2"}]}}},
    {"contentBlockStart": {"contentBlockIndex": 4, "start": {"image": {"format": "png"}}}},
    {"contentBlockDelta": {"contentBlockIndex": 4, "delta": {"image": {"source": {"bytes": "AAAA"}}}}},
    {"contentBlockDelta": {"contentBlockIndex": 5, "delta": {"text": "Grüße"}}},
    {"contentBlockDelta": {"contentBlockIndex": 5, "delta": {"citation": {"title": "t"}}}},
    {"contentBlockStop": {"contentBlockIndex": 5}},
    {"messageStop": {"stopReason": "end_turn"}},
    {"metadata": {"usage": {"inputTokens": 1, "outputTokens": 2}}},
    {"throttlingException": {"message": "slow down"}},
]
COHERE: list[Json] = [
    {"type": "message-start", "id": "r"},
    {"type": "content-start", "index": 0, "delta": {"message": {"content": {"type": "thinking", "thinking": "hm"}}}},
    {"type": "content-delta", "index": 1, "delta": {"message": {"content": {"text": "Grüße"}}}},
    {"type": "citation-start", "index": 0, "delta": {"message": {"citations": {"start": 0}}}},
    {"type": "tool-plan-delta", "delta": {"message": {"tool_plan": "plan"}}},
    {
        "type": "tool-call-start",
        "index": 0,
        "delta": {"message": {"tool_calls": {"id": "t", "function": {"name": "f"}}}},
    },
    {"type": "tool-call-delta", "index": 0, "delta": {"message": {"tool_calls": {"function": {"arguments": "{}"}}}}},
    {"type": "tool-call-end", "index": 0},
    {"type": "message-end", "delta": {"finish_reason": "COMPLETE", "usage": {"tokens": {"input_tokens": 1}}}},
    {"type": "message-end", "delta": {"finish_reason": "ERROR", "error": "no"}},
]
OLLAMA: list[Json] = [
    {"model": "m", "message": {"content": "Grüße"}},
    {"message": {"thinking": "hm", "tool_calls": [{"id": "t", "function": {"name": "f", "arguments": {"a": [1]}}}]}},
    {"message": {"tool_calls": [{"function": {"name": "f"}}]}, "done": False},
    {"done": True, "done_reason": "stop", "eval_count": 3},
    {"error": "no"},
]


def as_frames(events: list[Json]) -> bytes:
    named_payloads = [next(iter(event.items())) for event in events]
    headers = [{":message-type": "event", ":event-type": name} for name, _ in named_payloads]
    payloads = [json.dumps(payload).encode() for _, payload in named_payloads]
    return b"".join(map(aws_message, headers, payloads))


def as_sse(events: list[Json]) -> bytes:
    return b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events)


def as_lines(events: list[Json]) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


FORMATS: dict[str, tuple[list[Json], Callable[[list[Json]], bytes]]] = {
    "bedrock-converse": (CONVERSE, as_frames),
    "cohere-v2": (COHERE, as_sse),
    "ollama-chat": (OLLAMA, as_lines),
}


@st.composite
def disordered(draw: st.DrawFn, events: list[Json]) -> list[Json]:
    """Events in any order and number, with arbitrary indexes."""
    chosen = json.dumps(draw(st.lists(st.sampled_from(events), max_size=30)))
    for name in ("index", "contentBlockIndex"):
        pieces = chosen.split(f'"{name}": ')
        chosen = pieces[0] + "".join(
            f'"{name}": {draw(st.integers(0, 3))}{piece.lstrip("0123456789")}' for piece in pieces[1:]
        )
    disorder: list[Json] = json.loads(chosen)
    return disorder


@pytest.mark.parametrize("format", FORMATS)
@given(data=st.data())
def test_events_in_any_order_decode_to_a_stream(format: str, data: st.DataObject) -> None:
    events, framed = FORMATS[format]
    body = framed(data.draw(disordered(events)))
    cut = data.draw(st.integers(0, len(body)))
    deltas = decoded(decoder(format), body)
    assert decoded(decoder(format), body[:cut], body[cut:]) == deltas
    assert isinstance(deltas[0], Start)
    assert isinstance(deltas[-1], Done | Failed)
    assembler_of(deltas)
