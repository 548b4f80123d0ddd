"""Decoding Cohere's v2 chat stream, one rule at a time, with small hand-made streams."""

import json
from typing import Any

import pytest

from bartack.formats.cohere_v2 import CohereV2
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
from bartack.nouns.parts import Text, Thinking
from tests.recordings.agreement import assembler_of, decoded

START = {"type": "message-start", "id": "r1", "delta": {"message": {"role": "assistant", "content": []}}}
END = {"type": "message-end", "delta": {"finish_reason": "COMPLETE"}}


def body(*events: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def read(*events: Any) -> list[Delta]:
    return decoded(CohereV2(), body(*events))


def event(kind: str, index: int | None = None, **message: Any) -> dict[str, Any]:
    place = {} if index is None else {"index": index}
    return {"type": kind, **place, "delta": {"message": message}}


def text(piece: str, index: int = 0) -> dict[str, Any]:
    return event("content-delta", index, content={"text": piece})


def thought(piece: str, index: int = 0) -> dict[str, Any]:
    return event("content-delta", index, content={"thinking": piece})


def test_text_is_emitted_as_it_arrives_until_message_end() -> None:
    begin = event("content-start", 0, content={"type": "text", "text": ""})
    assert read(START, begin, text("Hel"), text("lo"), {"type": "content-end", "index": 0}, END) == [
        Start("", "r1", provider="cohere-v2"),
        TextDelta("Hel"),
        TextDelta("lo"),
        Done("stop", raw_finish_reason="COMPLETE"),
    ]


def test_usage_is_the_token_count_and_not_the_billed_units() -> None:
    """D-3.4.2: cached tokens are part of the input."""
    usage = {
        "billed_units": {"input_tokens": 8, "output_tokens": 50},
        "tokens": {"input_tokens": 1394.0, "output_tokens": 54},
        "cached_tokens": 1360,
    }
    assert Usage(1394, 54, cache_read_tokens=1360) in read({**END, "delta": {**END["delta"], "usage": usage}})  # type: ignore[dict-item]
    usage["tokens"] = {"input_tokens": 9, "output_tokens": 54, "reasoning_tokens": 20}
    del usage["cached_tokens"]
    assert Usage(9, 54, reasoning_tokens=20) in read({**END, "delta": {**END["delta"], "usage": usage}})  # type: ignore[dict-item]
    usage["tokens"] = {"input_tokens": None, "output_tokens": -3}
    assert Usage(0, 0) in read({**END, "delta": {**END["delta"], "usage": usage}})  # type: ignore[dict-item]
    assert not [delta for delta in read({**END, "delta": {"usage": {}}}) if isinstance(delta, Usage)]


def test_blocks_of_one_kind_become_separate_parts() -> None:
    """D-3.2.1."""
    deltas = read(START, thought("a"), thought("b", 1), text("c", 2), text("d", 3), END)
    assert [part.text for part in assembler_of(deltas).parts if isinstance(part, Text | Thinking)] == list("abcd")


def test_the_tool_plan_is_thinking_marked_as_the_plan() -> None:
    plan = [event("tool-plan-delta", tool_plan="I will "), event("tool-plan-delta", tool_plan="look.")]
    assert read(START, thought("Hm."), *plan, event("tool-plan-delta"), END)[1:4] == [
        ThinkingDelta("Hm.", continuation={"type": "thinking"}),
        ThinkingDelta("I will ", new_part=True, continuation={"type": "tool_plan"}),
        ThinkingDelta("look."),
    ]


def test_arguments_arrive_in_pieces_and_may_be_empty() -> None:
    opened = {"id": "now_1", "type": "function", "function": {"name": "now", "arguments": ""}}
    pieces = {"function": {"arguments": '{"zone"'}}, {"function": {"arguments": ":1}"}}
    deltas = read(
        START,
        event("tool-call-start", 0, tool_calls=opened),
        event("tool-call-delta", 0, tool_calls=pieces[0]),
        event("tool-call-delta", 0, tool_calls=pieces[1]),
        event("tool-call-delta", 0, tool_calls={}),
        {"type": "tool-call-end", "index": 0},
        event("tool-call-start", 1, tool_calls={"id": "now_2"}),
        {"type": "message-end", "delta": {"finish_reason": "TOOL_CALL"}},
    )
    assert deltas[1:] == [
        ToolCallStart("now_1", "now"),
        ToolCallArgs("now_1", '{"zone"'),
        ToolCallArgs("now_1", ":1}"),
        ToolCallEnd("now_1"),
        ToolCallStart("now_2", ""),
        ToolCallEnd("now_2"),
        Done("tool_calls", raw_finish_reason="TOOL_CALL"),
    ]


def test_citations_are_attached_to_the_last_delta_of_their_part() -> None:
    """D-3.9: they arrive between the pieces of the text or after it, and are kept whole."""
    first, second = {"start": 0, "end": 2, "sources": [{"id": "d1"}]}, {"start": 3, "end": 5, "type": "PLAN"}
    deltas = read(
        START,
        text("Hi "),
        event("citation-start", 0, citations=first),
        text("there"),
        {"type": "citation-end", "index": 0},
        event("tool-plan-delta", tool_plan="Look."),
        event("citation-start", 1, citations=second),
        event("citation-start", 2, citations=[]),
        event("tool-call-start", 0, tool_calls={"id": "c", "function": {"name": "f"}}),
        END,
    )
    assert deltas[1:6] == [
        TextDelta("Hi "),
        TextDelta("there"),
        TextDelta("", continuation={"citations": [first]}),
        ThinkingDelta("Look.", continuation={"type": "tool_plan"}),
        ThinkingDelta("", continuation={"citations": [second]}),
    ]


def test_a_citation_nested_too_deep_ends_the_stream() -> None:
    """D-3.11.2."""
    deep: Any = {}
    for _ in range(100):
        deep = {"x": deep}
    end = read(START, event("citation-start", 0, citations=deep), END)[-1]
    assert isinstance(end, Failed)
    assert end.error_code is ErrorCode.STREAM_TOO_LARGE


@pytest.mark.parametrize(
    ("reason", "finish"),
    [("COMPLETE", "stop"), ("STOP_SEQUENCE", "stop"), ("MAX_TOKENS", "length"), ("NEW", "other"), (None, "other")],
)
def test_finish_reasons_map_to_ours(reason: str | None, finish: str) -> None:
    end = read(START, {"type": "message-end", "delta": {"finish_reason": reason}})[-1]
    assert end == Done(finish, raw_finish_reason=reason)  # type: ignore[arg-type]


def test_an_empty_message_end_ends_the_stream() -> None:
    assert read(START, {"type": "message-end"})[-1] == Done("other")


def test_a_failure_at_the_end_is_an_error() -> None:
    end = read(START, text("Hi"), {"type": "message-end", "delta": {"finish_reason": "ERROR", "error": "it broke"}})[-1]
    assert isinstance(end, Failed)
    assert (end.message, end.raw_code) == ("it broke", "ERROR")
    end = read(START, {"type": "message-end", "delta": {"finish_reason": "TIMEOUT"}})[-1]
    assert isinstance(end, Failed)
    assert (end.error_code, end.message) == (ErrorCode.TIMEOUT, "The model stopped with TIMEOUT.")


def test_an_error_body_is_an_error() -> None:
    end = read({"id": "x", "message": "invalid api token"})[-1]
    assert isinstance(end, Failed)
    assert end.message == "invalid api token"


def test_events_without_content_are_ignored() -> None:
    odd = [
        {"type": "debug", "prompt": "x"},
        {"type": "brand-new", "delta": 7},
        {"type": "content-delta"},
        {"type": "content-delta", "delta": {}},
        event("content-delta", 0, content=[]),
        {"type": "tool-plan-delta"},
        {"type": "tool-call-start"},
        event("tool-call-start", 0, tool_calls=[]),
        {"type": "tool-call-delta"},
        {"type": "citation-start"},
        event("citation-start", 0),
    ]
    assert read(START, *odd, text("Hi"), END)[1:] == [TextDelta("Hi"), Done("stop", raw_finish_reason="COMPLETE")]


def test_the_sse_event_name_is_used_if_the_data_has_no_type() -> None:
    body = b'event: message-end\ndata: {"delta": {"finish_reason": "COMPLETE"}}\n\n'
    assert decoded(CohereV2(), body)[-1] == Done("stop", raw_finish_reason="COMPLETE")


def test_done_without_message_end_is_truncated() -> None:
    """D-3.5; a truncated stream keeps the citations that had arrived."""
    citation = {"start": 0, "end": 2}
    deltas = decoded(
        CohereV2(), body(START, text("Hi"), event("citation-start", 0, citations=citation)) + b"data: [DONE]\n\n"
    )
    assert TextDelta("", continuation={"citations": [citation]}) in deltas
    assert isinstance(deltas[-1], Failed)
    assert deltas[-1].error_code is ErrorCode.STREAM_TRUNCATED


@pytest.mark.parametrize("garbage", [b"nonsense", b'{"type": "content-delta", "index": "x"}', b'{"type": 1}', b"\xff"])
def test_an_invalid_event_is_an_error(garbage: bytes) -> None:
    end = decoded(CohereV2(), b"data: " + garbage + b"\n\n")[-1]
    assert isinstance(end, Failed)
    assert end.error_code is ErrorCode.STREAM_MALFORMED
