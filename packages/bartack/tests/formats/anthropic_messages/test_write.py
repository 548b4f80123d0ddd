"""Deltas written as Anthropic's Messages stream, event by event."""

from typing import Any

import pytest

from bartack.formats import writer
from bartack.formats.anthropic_messages.write import MessagesWriter
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
from tests.formats.written import message_of, reread, sse_events, write_all

NAME = "anthropic-messages"
START = Start("claude-x", "msg_1", provider=NAME)
ZERO = {"input_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 0}


def events_of(*deltas: Delta, **options: Any) -> list[dict[str, Any]]:
    return sse_events(write_all(writer(NAME, **options), deltas))


def blocks_of(*deltas: Delta) -> list[dict[str, Any]]:
    response = MessagesWriter()
    blocks: list[dict[str, Any]] = response.joined([event for delta in deltas for event in response.events(delta)])[
        "content"
    ]
    return blocks


def test_the_complete_sequence_of_an_answer() -> None:
    deltas: list[Delta] = [
        START,
        ThinkingDelta("hm"),
        ThinkingDelta("", continuation={"signature": "s=="}),
        TextDelta("Hi"),
        ToolCallStart("c1", "read"),
        ToolCallArgs("c1", '{"a":1}'),
        ToolCallEnd("c1"),
        Usage(10, 5, cache_read_tokens=3, cache_write_tokens=2, reasoning_tokens=1),
        Done("tool_calls"),
    ]
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**ZERO, "input_tokens": 4},
    }
    thinking = {"type": "thinking", "thinking": "", "signature": ""}
    call = {"type": "tool_use", "id": "c1", "name": "read", "input": {}}
    final_usage = {
        "input_tokens": 5,
        "cache_creation_input_tokens": 2,
        "cache_read_input_tokens": 3,
        "output_tokens": 5,
        "output_tokens_details": {"thinking_tokens": 1},
    }
    assert events_of(*deltas, input_tokens=4) == [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": thinking},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s=="}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Hi"}},
        {"type": "content_block_stop", "index": 1},
        {"type": "content_block_start", "index": 2, "content_block": call},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"a":1}'}},
        {"type": "content_block_stop", "index": 2},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None}, "usage": final_usage},
        {"type": "message_stop"},
    ]


def test_every_event_has_its_name_on_a_line_of_its_own() -> None:
    body = write_all(writer(NAME), [START, Done("stop")])
    assert [line for line in body.split(b"\n") if line.startswith(b"event:")] == [
        b"event: message_start",
        b"event: message_delta",
        b"event: message_stop",
    ]
    assert writer(NAME).keep_alive() == b'event: ping\ndata: {"type":"ping"}\n\n'


def test_usage_that_comes_first_is_the_usage_of_the_start() -> None:
    start, *_ = events_of(START, Usage(9, 1), TextDelta("a"), Usage(9, 4), Done("stop"), input_tokens=100)
    assert start["message"]["usage"] == {**ZERO, "input_tokens": 9, "output_tokens": 1}


def test_separately_priced_counts_are_written() -> None:
    extra = {"cacheCreation": {"ephemeral_1h_input_tokens": 2}, "serverToolUse": {"web_search_requests": 1}}
    usage = events_of(START, Usage(5, 1, extra=extra), Done("stop"))[-2]["usage"]
    assert usage["cache_creation"] == {"ephemeral_1h_input_tokens": 2}
    assert usage["server_tool_use"] == {"web_search_requests": 1}


def test_missing_usage_is_added_because_clients_require_it() -> None:
    response = writer(NAME, input_tokens=7)
    events = sse_events(write_all(response, [START, TextDelta("a"), Done("stop")]))
    assert events[-2]["usage"] == {**ZERO, "input_tokens": 7}
    assert [(loss.where, loss.action) for loss in response.report().losses] == [("meta.usage", "added")]


def test_parts_of_one_kind_are_separate_blocks() -> None:
    assert blocks_of(START, TextDelta("a"), TextDelta("b", new_part=True), Done("stop")) == [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
    ]


def test_citations_follow_their_text() -> None:
    deltas = (START, TextDelta("a"), TextDelta("", continuation={"citations": [{"n": 1}, {"n": 2}]}), Done("stop"))
    assert blocks_of(*deltas) == [{"type": "text", "text": "a", "citations": [{"n": 1}, {"n": 2}]}]
    assert blocks_of(START, TextDelta("", continuation={"citations": [{"n": 1}]}), Done("stop")) == [
        {"type": "text", "text": "", "citations": [{"n": 1}]}
    ]
    assert blocks_of(START, TextDelta("", continuation={"citations": 1}), Done("stop")) == []


def test_thinking_without_text_is_a_signed_block() -> None:
    assert blocks_of(START, ThinkingDelta("", continuation={"signature": "s"}), Done("stop")) == [
        {"type": "thinking", "thinking": "", "signature": "s"}
    ]


def test_blocks_that_no_part_can_represent_are_written_whole() -> None:
    deltas = (
        START,
        ThinkingDelta("", continuation={"type": "redacted_thinking", "data": "x"}),
        ThinkingDelta("", new_part=True, continuation={"block": {"type": "compaction", "content": "c"}}),
        Done("stop"),
    )
    assert blocks_of(*deltas) == [
        {"type": "redacted_thinking", "data": "x"},
        {"type": "compaction", "content": "c"},
    ]


def test_calls_that_the_provider_executed_are_written_with_their_results() -> None:
    result = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    deltas: list[Delta] = [
        START,
        ToolCallStart("a", "web_search", executed_by="provider", continuation={"type": "server_tool_use"}),
        ToolCallArgs("a", '{"q":1}'),
        ToolCallStart("b", "web_search", executed_by="provider", continuation={"type": "server_tool_use"}),
        ThinkingDelta("", continuation={"resultOf": "a"}, new_part=True),
        ToolCallEnd("a", continuation={"result": {**result, "tool_use_id": "a"}}, result={"content": []}),
        ThinkingDelta("", continuation={"resultOf": "b"}, new_part=True),
        ToolCallEnd("b", continuation={"result": {**result, "tool_use_id": "b"}}, result={"content": []}),
        Usage(1, 1, cache_read_tokens=0, cache_write_tokens=0),
        Done("stop", raw_finish_reason="end_turn"),
    ]
    assert [block["type"] for block in blocks_of(*deltas)] == ["server_tool_use"] * 2 + ["web_search_tool_result"] * 2
    assert message_of(reread(NAME, deltas)) == message_of(deltas)


def test_the_caller_of_a_call_and_the_container_are_kept() -> None:
    data = {"caller": {"type": "code", "tool_id": "s"}}
    deltas: list[Delta] = [
        START,
        ToolCallStart("c1", "read", continuation=data),
        ToolCallEnd("c1", continuation={"container": {"id": "k"}}),
        Usage(1, 1),
        Done("tool_calls"),
    ]
    events = events_of(*deltas)
    assert events[1]["content_block"]["caller"] == data["caller"]
    assert events[-2]["delta"]["container"] == {"id": "k"}
    deltas = [START, TextDelta("a", continuation={"container": {"id": "k"}}), Usage(1, 1), Done("stop")]
    assert events_of(*deltas)[-2]["delta"]["container"] == {"id": "k"}


def test_a_call_that_the_output_limit_cut_off_is_not_in_the_whole_response() -> None:
    deltas = (START, TextDelta("a"), ToolCallStart("c1", "read"), ToolCallArgs("c1", "{"), ToolCallEnd("c1"))
    assert blocks_of(*deltas, Done("length")) == [{"type": "text", "text": "a"}]


@pytest.mark.parametrize(
    ("failed", "status", "kind", "message"),
    [
        (Failed(ErrorCode.RATE_LIMITED, "slow"), 429, "rate_limit_error", "slow"),
        (Failed(ErrorCode.QUOTA_EXCEEDED, "pay"), 402, "billing_error", "pay"),
        (Failed(ErrorCode.STREAM_TRUNCATED, retryable=True), 529, "overloaded_error", "stream_truncated"),
        (Failed(ErrorCode.PROVIDER_ERROR, "?"), 500, "api_error", "?"),
        (Failed(ErrorCode.CONTEXT_OVERFLOW, "too big"), 400, "invalid_request_error", "prompt is too long: too big"),
        (
            Failed(ErrorCode.CONTEXT_OVERFLOW, "prompt is too long: 9 tokens > 8 maximum"),
            400,
            "invalid_request_error",
            "prompt is too long: 9 tokens > 8 maximum",
        ),
    ],
)
def test_errors_before_the_first_byte_and_in_the_stream(failed: Failed, status: int, kind: str, message: str) -> None:
    response = MessagesWriter.error_response(failed)
    assert (response.status, response.body["error"]) == (status, {"type": kind, "message": message})
    assert events_of(START, TextDelta("a"), failed)[-1] == response.body
    reread_failure = reread(NAME, [START, failed])[-1]
    assert isinstance(reread_failure, Failed)
