"""Decoding Anthropic's stream, one rule at a time, with small hand-made streams."""

import json
from typing import Any

import pytest

from bartack.formats.anthropic_messages.decode import AnthropicMessages
from bartack.nouns.deltas import Delta, Done, Failed, Start, TextDelta, ThinkingDelta, ToolCallArgs, ToolCallEnd, Usage
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Message
from bartack.nouns.parts import Text, Thinking, ToolCall
from tests.recordings.agreement import assembler_of, decoded

Json = dict[str, Any]

OPENING: Json = {"type": "message_start", "message": {"id": "msg_1", "model": "claude-x", "content": []}}
STOP: Json = {"type": "message_stop"}


def opened(index: int, **block: Any) -> Json:
    return {"type": "content_block_start", "index": index, "content_block": block}


def piece(index: int, kind: str, **fields: Any) -> Json:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def closed(index: int) -> Json:
    return {"type": "content_block_stop", "index": index}


def text_block(index: int, *pieces: str) -> list[Json]:
    return [opened(index, type="text", text=""), *(piece(index, "text_delta", text=p) for p in pieces), closed(index)]


def stopped(reason: str, **usage: Any) -> Json:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, **({"usage": usage} if usage else {})}


def deltas_of(*events: Json, **options: Any) -> list[Delta]:
    body = b"".join(json.dumps(event).encode() + b"\n" for event in events)
    return decoded(AnthropicMessages(framing="lines", **options), body)


def message_of(*events: Json) -> Message:
    return assembler_of(deltas_of(OPENING, *events, stopped("end_turn"), STOP)).build_final_message()


def data_of(part: Any) -> Json:
    assert part.continuation is not None
    data: Json = part.continuation.data
    return data


def test_a_stream_of_server_sent_events_becomes_deltas() -> None:
    body = b"".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
        for event in (OPENING, *text_block(0, "Hel", "lo"), {"type": "ping"}, stopped("end_turn"), STOP)
    )
    assert decoded(AnthropicMessages(), body) == [
        Start("claude-x", "msg_1", provider="anthropic-messages"),
        TextDelta("Hel"),
        TextDelta("lo"),
        Done("stop", raw_finish_reason="end_turn"),
    ]


def test_the_sse_event_name_is_used_if_the_data_has_no_type() -> None:
    body = b'event: message_delta\ndata: {"delta": {"stop_reason": "end_turn"}}\n\nevent: message_stop\ndata: {}\n\n'
    assert isinstance(decoded(AnthropicMessages(), body)[-1], Done)


# -- the end


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("tool_use", "tool_calls"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refusal"),
        ("pause_turn", "pause"),
        ("compaction", "pause"),
        ("invented_later", "other"),
    ],
)
def test_stop_reasons_map_to_finish_reasons(raw: str, reason: Any) -> None:
    """D-3.4.5, D-3.4.6."""
    assert deltas_of(OPENING, stopped(raw), STOP)[-1] == Done(reason, raw_finish_reason=raw)


def test_a_stream_without_message_stop_is_truncated() -> None:
    """D-3.5."""
    last = deltas_of(OPENING, *text_block(0, "Hi"), stopped("end_turn"))[-1]
    assert isinstance(last, Failed)
    assert last.error_code is ErrorCode.STREAM_TRUNCATED


def test_an_empty_stream_is_truncated() -> None:
    assert [delta.kind for delta in deltas_of()] == ["start", "error"]


def test_done_replaces_a_missing_message_stop() -> None:
    lines = [json.dumps(event).encode() for event in (OPENING, *text_block(0, "Hi"), stopped("end_turn"))]
    tail = [b"[DONE]", json.dumps(piece(0, "text_delta", text="late")).encode()]
    assert decoded(AnthropicMessages(framing="lines"), b"\n".join(lines + tail))[-1].kind == "done"
    assert decoded(AnthropicMessages(framing="lines"), b"\n".join([*lines[:-1], tail[0]]))[-1].kind == "error"


def test_an_error_event_ends_the_stream() -> None:
    """001-4.1.12: what was emitted before it stays."""
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    deltas = deltas_of(OPENING, opened(0, type="text", text="Hi"), error)
    assert deltas[1:] == [
        TextDelta("Hi"),
        Failed(ErrorCode.OVERLOADED, "Overloaded", retryable=True, raw_code="overloaded_error"),
    ]


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({"error": {"type": "api_error"}}, "api_error"),
        ({"error": "no luck"}, "no luck"),
        ({"message": "Internal server error"}, "Internal server error"),
        ({"type": "error"}, "The provider gave no reason."),
    ],
)
def test_error_shapes_of_gateways_are_recognised(event: Json, message: str) -> None:
    last = deltas_of(OPENING, event)[-1]
    assert isinstance(last, Failed)
    assert last.message == message


def test_unknown_events_and_fields_are_ignored() -> None:
    later = {"type": "content_block_pause", "index": "seven", "delta": 3}
    deltas = deltas_of(OPENING, {"type": "new", "x": 1}, later, *text_block(0, "Hi"), stopped("end_turn"), STOP)
    assert [delta.kind for delta in deltas] == ["start", "text", "done"]


def test_invalid_events_are_malformed() -> None:
    for garbage in (b"{oops}", b'{"type": "content_block_delta", "index": "one"}', b'"\xff"', b"[]"):
        last = decoded(AnthropicMessages(framing="lines"), garbage + b"\n")[-1]
        assert isinstance(last, Failed)
        assert last.error_code is ErrorCode.STREAM_MALFORMED


def test_events_without_content_are_ignored() -> None:
    empty: list[Json] = [
        {"type": "message_start"},
        {"type": "message_start", "message": "x"},
        {"type": "content_block_start", "index": 0},
        {"type": "content_block_start", "index": 0, "content_block": {}},
        {"type": "content_block_delta", "index": 0},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "odd"}},
        {"type": "message_delta"},
        {"type": "message_delta", "delta": {}, "usage": {}},
        closed(4),
        {},
    ]
    assert [delta.kind for delta in deltas_of(OPENING, *empty, STOP)] == ["start", "done"]


# -- usage


def test_the_last_value_of_each_count_applies() -> None:
    """D-3.4, D-3.4.2: cache reads and writes are input, and null does not reset a count."""
    start = {
        **OPENING,
        "message": {
            **OPENING["message"],
            "usage": {"input_tokens": 10, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 2},
        },
    }
    end = stopped("end_turn", output_tokens=7, input_tokens=None, output_tokens_details={"thinking_tokens": 3})
    deltas = [delta for delta in deltas_of(start, end, STOP) if isinstance(delta, Usage)]
    assert deltas == [
        Usage(17, 0, cache_read_tokens=2, cache_write_tokens=5),
        Usage(17, 7, cache_read_tokens=2, cache_write_tokens=5, reasoning_tokens=3),
    ]


def test_separately_priced_counts_are_kept_in_extra() -> None:
    end = stopped(
        "end_turn",
        output_tokens=1,
        server_tool_use={"web_search_requests": 2, "web_fetch_requests": 0},
        cache_creation={"ephemeral_1h_input_tokens": 9, "note": "x"},
    )
    [usage] = [delta for delta in deltas_of(OPENING, end, STOP) if isinstance(delta, Usage)]
    assert usage.extra == {
        "cacheCreation": {"ephemeral_1h_input_tokens": 9},
        "serverToolUse": {"web_search_requests": 2},
    }


# -- text and thinking


def test_blocks_of_one_kind_become_separate_parts() -> None:
    """D-3.2.1."""
    message = message_of(*text_block(0, "one", " two"), *text_block(1, "three"))
    assert [part.text for part in message.parts if isinstance(part, Text)] == ["one two", "three"]


def test_an_empty_block_adds_no_part() -> None:
    deltas = deltas_of(OPENING, *text_block(0), *text_block(1, "x"), STOP)
    assert deltas[1] == TextDelta("x")


def test_text_in_content_block_start_is_emitted() -> None:
    message = message_of(opened(0, type="text", text="Hi"), piece(0, "text_delta", text="!"), closed(0))
    assert message.text == "Hi!"


def test_each_signature_stays_with_its_thinking_byte_for_byte() -> None:
    """D-3.9: interleaved thinking keeps each block with its own signature."""
    message = message_of(
        opened(0, type="thinking", thinking="", signature=""),
        piece(0, "thinking_delta", thinking="hm"),
        piece(0, "signature_delta", signature="ab"),
        piece(0, "signature_delta", signature="c=="),
        closed(0),
        opened(1, type="thinking", thinking="so", signature="sig"),
        closed(1),
        *text_block(2, "Hi"),
    )
    first, second, _ = message.parts
    assert (first, second) == (
        Thinking("hm", time=first.time, continuation=first.continuation),  # type: ignore[union-attr]
        Thinking("so", time=second.time, continuation=second.continuation),  # type: ignore[union-attr]
    )
    assert data_of(first) == {"signature": "abc=="}
    assert data_of(second) == {"signature": "sig"}


def test_thinking_is_emitted_as_it_arrives() -> None:
    pieces = [piece(0, "thinking_delta", thinking=text) for text in ("a", "b")]
    deltas = deltas_of(OPENING, opened(0, type="thinking", thinking=""), *pieces, closed(0), STOP)
    assert deltas[1:3] == [ThinkingDelta("a"), ThinkingDelta("b")]


def test_thinking_with_only_a_signature_is_kept() -> None:
    message = message_of(opened(0, type="thinking", thinking=""), piece(0, "signature_delta", signature="s"), closed(0))
    assert data_of(message.parts[0]) == {"signature": "s"}


def test_thinking_without_text_and_signature_adds_no_part() -> None:
    assert message_of(opened(0, type="thinking", thinking=""), closed(0)).parts == ()


def test_redacted_thinking_is_kept_block_by_block() -> None:
    message = message_of(
        opened(0, type="redacted_thinking", data="AA"),
        closed(0),
        opened(1, type="redacted_thinking", data="BB"),
        closed(1),
    )
    assert [data_of(part) for part in message.parts] == [
        {"type": "redacted_thinking", "data": "AA"},
        {"type": "redacted_thinking", "data": "BB"},
    ]


def test_citations_are_attached_to_their_text() -> None:
    message = message_of(
        *text_block(0, "see"),
        opened(1, type="text", text="", citations=[{"n": 0}]),
        piece(1, "citations_delta", citation={"n": 1}),
        piece(1, "text_delta", text="this"),
        piece(1, "citations_delta", citation={"n": 2}),
        closed(1),
        opened(2, type="text", text="", citations="odd"),
        piece(2, "citations_delta", citation={"n": 3}),
        piece(2, "text_delta", text="!"),
        closed(2),
    )
    assert message.parts[0].continuation is None
    assert data_of(message.parts[1]) == {"citations": [{"n": 0}, {"n": 1}, {"n": 2}]}
    assert data_of(message.parts[2]) == {"citations": [{"n": 3}]}


def test_a_compaction_block_is_carried_whole() -> None:
    message = message_of(
        opened(0, type="compaction", content=None),
        piece(0, "compaction_delta", content="sum", encrypted_content="x"),
        piece(0, "compaction_delta", content="mary"),
        closed(0),
        *text_block(1, "Hi"),
    )
    assert data_of(message.parts[0]) == {
        "block": {"type": "compaction", "content": "summary", "encrypted_content": "x"}
    }
    assert message.text == "Hi"
    assert message.thinking == ""


def test_an_unknown_block_is_carried_whole() -> None:
    message = message_of(opened(0, type="hologram", shape="cube"), closed(0), *text_block(1, "Hi"))
    assert data_of(message.parts[0]) == {"block": {"type": "hologram", "shape": "cube"}}


def test_text_without_content_block_start_is_emitted() -> None:
    message = message_of(piece(0, "thinking_delta", thinking="a"), closed(0), piece(1, "text_delta", text="b"))
    assert (message.thinking, message.text) == ("a", "b")


def test_overlapping_blocks_are_read_one_after_another() -> None:
    """D-3.2.2: no part is split, and calls keep their position, too."""
    message = message_of(
        opened(0, type="text", text=""),
        piece(0, "text_delta", text="a"),
        opened(1, type="text", text=""),
        piece(1, "text_delta", text="x"),
        opened(2, type="tool_use", id="t", name="f", input={}),
        piece(2, "input_json_delta", partial_json="{}"),
        closed(2),
        piece(0, "text_delta", text="b"),
        closed(1),
        closed(0),
        *text_block(3, "end"),
    )
    assert [getattr(part, "text", part.kind) for part in message.parts] == ["ab", "x", "tool_call", "end"]


def test_a_block_waiting_for_one_that_never_ends_is_read_at_the_end() -> None:
    message = message_of(
        opened(0, type="text", text="a"), opened(1, type="text", text="b"), opened(2, type="thinking", thinking="c")
    )
    assert [getattr(part, "text", None) for part in message.parts] == ["a", "b", "c"]


def test_reopening_a_block_closes_it_first() -> None:
    message = message_of(opened(0, type="text", text="a"), opened(0, type="text", text="b"), closed(0))
    assert [getattr(part, "text", None) for part in message.parts] == ["a", "b"]


# -- calls


def test_arguments_are_emitted_as_they_arrive_without_empty_pieces() -> None:
    deltas = deltas_of(
        OPENING,
        opened(0, type="tool_use", id="t1", name="f", input={}),
        piece(0, "input_json_delta", partial_json=""),
        piece(0, "input_json_delta", partial_json='{"a"'),
        piece(0, "input_json_delta", partial_json=":1}"),
        closed(0),
        stopped("tool_use"),
        STOP,
    )
    assert [delta.args_text_delta for delta in deltas if isinstance(delta, ToolCallArgs)] == ['{"a"', ":1}"]
    assert deltas[-2:] == [ToolCallEnd("t1"), Done("tool_calls", raw_finish_reason="tool_use")]


def test_a_call_without_deltas_has_no_arguments() -> None:
    [call] = message_of(opened(0, type="tool_use", id="t1", name="f", input={}), closed(0)).tool_calls
    assert call.arguments == {}


def test_whole_arguments_are_emitted_if_no_deltas_follow() -> None:
    opening = opened(0, type="tool_use", id="t1", name="f", input={"a": 1}, caller={"type": "direct"})
    [call] = message_of(opening, closed(0)).tool_calls
    assert call.arguments == {"a": 1}
    assert data_of(call) == {"caller": {"type": "direct"}}
    [call] = message_of(opening, piece(0, "input_json_delta", partial_json='{"b":2}'), closed(0)).tool_calls
    assert call.arguments == {"b": 2}


def test_a_call_without_content_block_stop_is_closed_at_the_end() -> None:
    [call] = message_of(opened(0, type="tool_use", id="t1", name="f", input={"a": 1})).tool_calls
    assert call.arguments == {"a": 1}


def test_arguments_without_an_open_call_are_ignored() -> None:
    assert message_of(piece(3, "input_json_delta", partial_json="{}")).parts == ()


def test_calls_may_overlap() -> None:
    """D-3.3."""
    message = message_of(
        opened(0, type="tool_use", id="a", name="f", input={}),
        opened(1, type="tool_use", id="b", name="g", input={}),
        piece(1, "input_json_delta", partial_json='{"y":2}'),
        piece(0, "input_json_delta", partial_json='{"x":1}'),
        closed(1),
        closed(0),
    )
    assert [call.arguments for call in message.tool_calls] == [{"x": 1}, {"y": 2}]


def test_a_repeated_call_id_is_replaced_and_kept() -> None:
    """D-3.8.1."""
    twice = [opened(i, type="tool_use", id="t", name="f", input={}) for i in (0, 1)]
    first, second = message_of(*twice).tool_calls
    assert (first.tool_call_id, second.tool_call_id) == ("t", "local-1")
    assert data_of(second) == {"callId": "t"}


def test_blocks_in_message_start_are_read() -> None:
    start = {
        "type": "message_start",
        "message": {
            "id": "m",
            "model": "claude-x",
            "content": [
                {"type": "text", "text": "Hi"},
                {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
            ],
            "stop_reason": "tool_use",
            "container": {"id": "c1"},
        },
    }
    message = assembler_of(deltas_of(start, STOP)).build_final_message()
    assert message.text == "Hi"
    assert message.tool_calls[0].arguments == {"a": 1}
    assert data_of(message.tool_calls[0]) == {"container": {"id": "c1"}}


# -- the provider's own tools


SEARCH = opened(0, type="server_tool_use", id="s1", name="web_search", input={})
QUERY = piece(0, "input_json_delta", partial_json='{"query":"x"}')
FOUND = [{"type": "web_search_result", "title": "T", "url": "u", "encrypted_content": "zzz"}]


def result(index: int, call_id: str, content: Any, kind: str = "web_search_tool_result", **fields: Any) -> list[Json]:
    return [opened(index, type=kind, tool_use_id=call_id, content=content, **fields), closed(index)]


def test_a_provider_call_holds_its_result() -> None:
    """D-3.10: readable in the result, raw in the continuation data."""
    [call] = message_of(SEARCH, QUERY, closed(0), *result(1, "s1", FOUND)).tool_calls
    assert call.executed_by == "provider"
    assert call.arguments == {"query": "x"}
    assert call.result is not None
    assert call.result.content == {"content": [{"type": "web_search_result", "title": "T", "url": "u"}]}
    assert data_of(call) == {
        "type": "server_tool_use",
        "result": {"type": "web_search_tool_result", "tool_use_id": "s1", "content": FOUND},
    }


def test_a_provider_call_does_not_change_the_finish_reason() -> None:
    deltas = deltas_of(OPENING, SEARCH, closed(0), *result(1, "s1", FOUND), stopped("end_turn"), STOP)
    assert deltas[-1] == Done("stop", raw_finish_reason="end_turn")


@pytest.mark.parametrize(
    ("content", "fields", "expected", "is_error"),
    [
        ({"type": "web_fetch_tool_result_error", "error_code": "x"}, {}, None, True),
        ({"type": "code_execution_result", "stdout": "1"}, {}, None, False),
        ([{"type": "text", "text": "a"}], {"is_error": True}, (Text("a"),), True),
        ("plain", {}, "plain", False),
        (None, {}, {"content": []}, False),
    ],
)
def test_results_of_every_shape_are_readable(content: Any, fields: Json, expected: Any, is_error: bool) -> None:
    [call] = message_of(SEARCH, closed(0), *result(1, "s1", content, "mcp_tool_result", **fields)).tool_calls
    assert call.result is not None
    assert call.result.content == (content if expected is None else expected)
    assert call.result.is_error is is_error


def test_a_provider_call_without_a_result_is_closed() -> None:
    deltas = deltas_of(OPENING, SEARCH, QUERY, closed(0), stopped("pause_turn"), STOP)
    assert deltas[-2:] == [ToolCallEnd("s1"), Done("pause", raw_finish_reason="pause_turn")]


def test_an_mcp_call_keeps_the_name_of_its_server() -> None:
    [call] = message_of(opened(0, type="mcp_tool_use", id="m", name="ask", input={}, server_name="wiki")).tool_calls
    assert data_of(call) == {"type": "mcp_tool_use", "server_name": "wiki"}


def test_a_result_away_from_its_call_leaves_a_placeholder() -> None:
    message = message_of(
        opened(0, type="server_tool_use", id="a", name="code_execution", input={}),
        closed(0),
        opened(1, type="server_tool_use", id="b", name="web_fetch", input={"url": "u"}),
        closed(1),
        *result(2, "a", "ra"),
        *result(3, "b", "rb"),
        *text_block(4, "Hi"),
    )
    kinds = [part.kind for part in message.parts]
    assert kinds == ["tool_call", "tool_call", "thinking", "thinking", "text"]
    assert [data_of(part) for part in message.parts[2:4]] == [{"resultOf": "a"}, {"resultOf": "b"}]
    assert all(isinstance(part, ToolCall) and part.result is not None for part in message.parts[:2])


@pytest.mark.parametrize("between", [[], text_block(3, "Hi")])
def test_input_after_the_result_of_a_call_is_ignored(between: list[Json]) -> None:
    """D-3.11: a call without its `content_block_stop` ends with its result."""
    late = piece(0, "input_json_delta", partial_json="{}")
    message = message_of(
        opened(0, type="server_tool_use", id="a", name="web_fetch"), *result(1, "a", "ra"), *between, late, late
    )
    [call] = message.tool_calls
    assert (call.arguments, call.raw_args_text) == ({}, None)


def test_a_result_for_an_earlier_message_is_carried() -> None:
    block = {"type": "code_execution_tool_result", "tool_use_id": "old", "content": {}}
    message = message_of(opened(0, **block), closed(0), *text_block(1, "Hi"))
    assert data_of(message.parts[0]) == {"block": block}


CONTAINER = {"id": "c1", "expires_at": "2026-01-01T00:00:00Z"}
CONTAINED: Json = {"type": "message_delta", "delta": {"stop_reason": "end_turn", "container": CONTAINER}}


@pytest.mark.parametrize(
    ("events", "kind"),
    [
        ([SEARCH, closed(0), *result(1, "s1", FOUND), *text_block(2, "Hi")], "text"),
        ([SEARCH, closed(0), *result(1, "s1", FOUND)], "tool_call"),
        ([SEARCH, closed(0)], "tool_call"),
        ([opened(0, type="tool_use", id="t", name="f", input={}), closed(0)], "tool_call"),
        ([SEARCH, closed(0), opened(1, type="redacted_thinking", data="A"), closed(1)], "thinking"),
        ([], "thinking"),
    ],
)
def test_the_container_is_attached_to_the_last_part(events: list[Json], kind: str) -> None:
    message = assembler_of(deltas_of(OPENING, *events, CONTAINED, STOP)).build_final_message()
    assert message.parts[-1].kind == kind
    assert data_of(message.parts[-1])["container"] == CONTAINER


# -- limits


def test_held_back_data_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """D-3.11.2."""
    monkeypatch.setattr("bartack.formats.emitter.LIMIT", 300)
    signature = [piece(0, "signature_delta", signature="s" * 100) for _ in range(4)]
    waiting = [piece(1, "text_delta", text="t" * 100) for _ in range(4)]
    for events in (signature, waiting):
        deltas = deltas_of(OPENING, opened(0, type="thinking", thinking="x"), *events, closed(0), STOP)
        last = deltas[-1]
        assert isinstance(last, Failed)
        assert last.error_code is ErrorCode.STREAM_TOO_LARGE
        assert all(isinstance(delta, Start | ThinkingDelta) for delta in deltas[:-1])


def test_data_nested_too_deep_ends_the_stream() -> None:
    deep: Any = []
    for _ in range(80):
        deep = [deep]
    for event in (
        opened(0, type="later", x=deep),
        {"type": "message_start", "message": {"content": [{"type": "later", "x": deep}], "usage": {"input_tokens": 1}}},
        {"type": "message_delta", "delta": {"container": {"x": deep}}, "usage": {"output_tokens": 1}},
    ):
        last = deltas_of(OPENING, event, STOP)[-1]
        assert isinstance(last, Failed)
        assert last.error_code is ErrorCode.STREAM_TOO_LARGE
    deltas = deltas_of(
        OPENING, opened(0, type="text", text="a"), piece(0, "citations_delta", citation={"x": deep}), STOP
    )
    assert [delta.kind for delta in deltas] == ["start", "text", "error"]


WHOLE: Json = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
        {"type": "text", "text": "I look.", "citations": [{"type": "page_location"}]},
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"city": "Paris"}},
    ],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 1, "output_tokens": 2},
}


def test_a_response_that_was_not_streamed_is_read() -> None:
    deltas = deltas_of(WHOLE)
    message = assembler_of(deltas).build_final_message()
    assert [part.kind for part in message.parts] == ["thinking", "text", "tool_call"]
    assert data_of(message.parts[0]) == {"signature": "sig"}
    assert data_of(message.parts[1]) == {"citations": [{"type": "page_location"}]}
    assert message.tool_calls[0].arguments == {"city": "Paris"}
    assert message.meta is not None
    assert message.meta.usage == Usage(1, 2)
    assert deltas[-1] == Done("tool_calls", raw_finish_reason="tool_use")


def test_a_whole_response_without_a_stop_reason_or_of_another_type_is_an_error() -> None:
    ends = [deltas_of(WHOLE | change)[-1] for change in ({"stop_reason": None}, {"content": 3})]
    assert [end.error_code for end in ends if isinstance(end, Failed)] == [
        ErrorCode.STREAM_TRUNCATED,
        ErrorCode.STREAM_MALFORMED,
    ]


def test_a_whole_response_in_the_middle_of_a_stream_is_ignored() -> None:
    assert message_of(*text_block(0, "Hi."), WHOLE).parts == message_of(*text_block(0, "Hi.")).parts
