"""Laws of the Responses decoder: events in any order, repeated or missing, give a valid stream without repeated text.

`test_decoder_laws` has those that hold for every format; these are about items, which several events describe.
"""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bartack.formats.openai_responses.decode import OpenAIResponses
from bartack.nouns.deltas import Done, Failed, Start
from bartack.nouns.parts import Text
from tests.recordings.agreement import assembler_of, decoded

Json = dict[str, Any]

TEXT = "Hello there"
MESSAGE: Json = {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": TEXT}]}
REASONING: Json = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]}
CALL: Json = {"type": "function_call", "id": "f", "call_id": "c", "name": "add", "arguments": '{"a":1}'}
CUSTOM: Json = {"type": "custom_tool_call", "id": "x", "call_id": "d", "name": "run", "input": 'a"b'}
SHELL: Json = {"type": "shell_call", "id": "s", "call_id": "e", "environment": {"type": "container"}, "action": {}}
OUTPUT: Json = {"type": "shell_call_output", "id": "o", "call_id": "e", "output": []}
COMPACTION: Json = {"type": "compaction", "id": "k", "encrypted_content": "z"}
ITEMS = [REASONING, MESSAGE, CALL, CUSTOM, SHELL, OUTPUT, COMPACTION]

EVENTS: list[Json] = [
    *({"type": f"response.output_item.{step}", "item": item} for step in ("added", "done") for item in ITEMS),
    {"type": "response.output_text.delta", "item_id": "m", "delta": "Hel"},
    {"type": "response.output_text.done", "text": TEXT},
    {"type": "response.output_text.annotation.added", "annotation": {"url": "u"}},
    {"type": "response.content_part.done", "part": MESSAGE["content"][0]},
    {"type": "response.refusal.delta", "delta": "No."},
    {"type": "response.reasoning_summary_text.delta", "summary_index": 0, "delta": "h"},
    {"type": "response.reasoning_text.delta", "delta": "why"},
    {"type": "response.function_call_arguments.delta", "item_id": "f", "delta": '{"a"'},
    {"type": "response.custom_tool_call_input.delta", "item_id": "x", "delta": 'a"'},
    {"type": "response.in_progress", "response": {"id": "resp", "model": "g"}},
    {"type": "ping"},
]
ENDS: list[Json] = [
    {"type": "response.completed", "response": {"status": "completed", "output": ITEMS}},
    {"type": "response.completed", "response": {"status": "completed", "output": []}},
    {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}},
    {"type": "error", "message": "overloaded"},
    {"type": "ping"},
]


def body_of(events: list[Json]) -> bytes:
    return b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events)


@given(
    events=st.lists(st.tuples(st.sampled_from(EVENTS), st.none() | st.integers(0, 3)), max_size=25),
    end=st.sampled_from(ENDS),
    cut=st.integers(0, 3000),
)
def test_events_in_any_order_give_a_valid_stream(events: list[tuple[Json, int | None]], end: Json, cut: int) -> None:
    """D-3.11, D-3.11.1: the assembler refuses whatever breaks the contract."""
    placed = [event if index is None else {**event, "output_index": index} for event, index in events]
    body = body_of([*placed, end])
    deltas = decoded(OpenAIResponses(), body)
    assert isinstance(deltas[0], Start)
    assert isinstance(deltas[-1], Done | Failed)
    assert decoded(OpenAIResponses(), body[:cut], body[cut:]) == deltas
    assembler_of(deltas)


def events_of_a_message(cut: int) -> list[Json]:
    """All events that a server can send about one message, in order."""
    place = {"output_index": 0, "item_id": "m", "content_index": 0}
    return [
        {"type": "response.output_item.added", "output_index": 0, "item": {**MESSAGE, "content": []}},
        {"type": "response.output_text.delta", **place, "delta": TEXT[:cut]},
        {"type": "response.output_text.delta", **place, "delta": TEXT[cut:]},
        {"type": "response.output_text.done", **place, "text": TEXT},
        {"type": "response.content_part.done", **place, "part": MESSAGE["content"][0]},
        {"type": "response.output_item.done", "output_index": 0, "item": MESSAGE},
        {"type": "response.completed", "response": {"status": "completed", "output": [MESSAGE]}},
    ]


@given(cut=st.integers(0, len(TEXT)), left_out=st.sets(st.integers(0, 5)))
def test_the_text_is_emitted_once_whatever_events_are_missing(cut: int, left_out: set[int]) -> None:
    """The first delta is always present: without it, the second would be taken for the beginning."""
    events = [event for place, event in enumerate(events_of_a_message(cut)) if place not in left_out or place == 1]
    message = assembler_of(decoded(OpenAIResponses(), body_of(events))).build_final_message()
    assert [part.text for part in message.parts if isinstance(part, Text)] == [TEXT]
