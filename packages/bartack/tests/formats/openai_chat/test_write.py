"""Deltas written as Chat Completions chunks."""

from datetime import UTC, datetime
from typing import Any

import pytest

from bartack.formats import writer
from bartack.formats.openai_chat.write import ChatWriter
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
from bartack.nouns.messages import assistant
from bartack.nouns.parts import Thinking, ToolCall
from tests.formats.written import message_of, reread, sse_events, write_all

NAME = "openai-chat"
START = Start("gpt-x", "chatcmpl-1", provider=NAME)
CREATED = datetime(2026, 1, 1, tzinfo=UTC)


def deltas_of(*deltas: Delta, **options: Any) -> list[dict[str, Any]]:
    """The deltas of the choice in each chunk after the first."""
    chunks = sse_events(write_all(writer(NAME, **options), deltas))
    return [chunk["choices"][0]["delta"] for chunk in chunks[1:] if chunk.get("choices")]


def call(call_id: str, name: str, *pieces: str) -> list[Delta]:
    return [ToolCallStart(call_id, name), *(ToolCallArgs(call_id, piece) for piece in pieces), ToolCallEnd(call_id)]


def function(index: int, text: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}


def test_the_complete_sequence_of_an_answer() -> None:
    usage = Usage(10, 5, cache_read_tokens=3, cache_write_tokens=1, reasoning_tokens=2, cost=0.5)
    deltas = [
        START,
        ThinkingDelta("hm"),
        TextDelta("Hi"),
        *call("c1", "read", '{"a"', ":1}"),
        usage,
        Done("tool_calls"),
    ]
    body = write_all(writer(NAME, created=CREATED), deltas)
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1767225600, "model": "gpt-x"}
    opened = {"index": 0, "id": "c1", "type": "function", "function": {"name": "read", "arguments": ""}}
    expected: list[tuple[dict[str, Any], str | None]] = [
        ({"role": "assistant", "content": ""}, None),
        ({"reasoning_content": "hm"}, None),
        ({"content": "Hi"}, None),
        ({"tool_calls": [opened]}, None),
        (function(0, '{"a"'), None),
        (function(0, ":1"), None),
        (function(0, "}"), None),
        ({}, "tool_calls"),
    ]
    counts = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 2},
        "cost": 0.5,
    }
    assert sse_events(body) == [
        *(
            {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]}
            for delta, reason in expected
        ),
        {**head, "choices": [], "usage": counts},
    ]
    assert body.endswith(b"\n\ndata: [DONE]\n\n")


def test_usage_is_sent_only_if_the_client_asked_for_it() -> None:
    deltas: list[Delta] = [START, Usage(1, 2), Done("stop")]
    assert b"usage" not in write_all(writer(NAME, include_usage=False), deltas)
    assert b"usage" not in write_all(writer(NAME), [START, Done("stop")])
    counts = sse_events(write_all(writer(NAME), deltas))[-1]["usage"]
    assert counts["prompt_tokens_details"] == {"cached_tokens": 0}


@pytest.mark.parametrize(
    "pieces", [['{"a":{}', "}", " ", "\n"], ["{}"], ["{", "}", "}"], ['{"a":[1]}'], ["[", "1", "]"]]
)
def test_arguments_are_no_complete_json_until_the_answer_is_complete(pieces: list[str]) -> None:
    response = writer(NAME)
    body = write_all(response, [START, *call("c1", "read", *pieces)])
    texts = [delta["tool_calls"][0]["function"]["arguments"] for delta in _calls_in(body)]
    assert not "".join(texts).endswith(("}", "]"))
    rest = [delta["tool_calls"][0]["function"]["arguments"] for delta in _calls_in(response.write(Done("tool_calls")))]
    assert "".join([*texts, *rest]) == "".join(pieces)


def _calls_in(body: bytes) -> list[dict[str, Any]]:
    deltas = [choice["delta"] for chunk in sse_events(body) for choice in chunk["choices"]]
    return [delta for delta in deltas if "tool_calls" in delta]


def test_brackets_within_arguments_are_sent_with_the_piece_after_them() -> None:
    deltas = deltas_of(START, *call("c1", "read", '{"a":{}', ',"b":1'), Done("tool_calls"))
    assert deltas[1:3] == [function(0, '{"a":{'), function(0, '},"b":1')]


def test_calls_are_numbered_and_may_overlap() -> None:
    deltas: list[Delta] = [
        START,
        ToolCallStart("c1", "read"),
        ToolCallStart("c2", "read"),
        ToolCallArgs("c2", '{"b":2}'),
        ToolCallArgs("c1", '{"a":1}'),
        ToolCallEnd("c1"),
        ToolCallEnd("c2"),
        Done("tool_calls"),
    ]
    assert [call.arguments for call in message_of(reread(NAME, deltas)).tool_calls] == [{"a": 1}, {"b": 2}]


def test_a_call_that_the_output_limit_cut_off_stays_open() -> None:
    deltas = deltas_of(START, *call("c1", "read", '{"a": [1]'), Done("length"))
    assert deltas[1:] == [function(0, '{"a": [1'), {}]


def test_a_call_of_a_custom_tool_has_free_text() -> None:
    opened = {"index": 0, "id": "c1", "type": "custom", "custom": {"name": "patch", "input": ""}}
    written = {"index": 0, "custom": {"input": "***"}}
    deltas = [START, *call("c1", "patch", '{"input":"***"}'), Done("tool_calls")]
    assert deltas_of(*deltas, custom_tools=["patch"])[:2] == [{"tool_calls": [opened]}, {"tool_calls": [written]}]
    own = [START, ToolCallStart("c1", "patch", continuation={"type": "custom"}), *deltas[2:]]
    assert deltas_of(*own)[:2] == [{"tool_calls": [opened]}, {"tool_calls": [written]}]
    cut = [START, *call("c1", "patch", '{"input":"*'), Done("length")]
    assert deltas_of(*cut, custom_tools=["patch"])[1:] == [{}]


def test_what_its_provider_sent_beside_an_answer_is_written() -> None:
    data = {"extra_content": {"google": {"thought_signature": "s"}}}
    ciphertext = {"type": "reasoning.encrypted", "data": "x"}
    deltas: list[Delta] = [
        START,
        ThinkingDelta("hm", continuation={"field": "reasoning"}),
        ThinkingDelta("", continuation={"reasoning_details": [ciphertext]}),
        TextDelta("Hi", continuation={"annotations": [{"type": "url_citation"}]}),
        ToolCallStart("c1", "read", continuation=data),
        ToolCallEnd("c1"),
        Done("tool_calls"),
    ]
    written = deltas_of(*deltas)
    assert written[:4] == [
        {"reasoning": "hm"},
        {"reasoning_details": [ciphertext]},
        {"content": "Hi"},
        {"annotations": [{"type": "url_citation"}]},
    ]
    assert written[4]["tool_calls"][0]["extra_content"] == data["extra_content"]
    assert message_of(reread(NAME, deltas)).parts == message_of(deltas).parts


def test_reasoning_details_with_text_are_a_loss() -> None:
    response = writer(NAME)
    data = {"reasoning_details": [{"type": "reasoning.text", "text": "hm", "signature": "s"}]}
    assert b"reasoning_details" not in write_all(
        response, [START, ThinkingDelta("hm", continuation=data), Done("stop")]
    )
    assert [(loss.where, loss.what) for loss in response.report().losses] == [("parts[0]", "reasoning details")]


def test_a_refusal_keeps_its_field() -> None:
    deltas: list[Delta] = [START, TextDelta("No.", continuation={"field": "refusal"}), Done("refusal")]
    chunks = sse_events(write_all(writer(NAME), deltas))
    assert [chunk["choices"][0]["delta"] for chunk in chunks[1:]] == [{"refusal": "No."}, {}]
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert message_of(reread(NAME, deltas)).parts == message_of(deltas).parts
    foreign = sse_events(write_all(writer(NAME), [START, TextDelta("No."), Done("refusal")]))
    assert foreign[-1]["choices"][0]["finish_reason"] == "content_filter"


def test_a_call_that_the_provider_executed_is_left_out() -> None:
    response = writer(NAME)
    deltas: list[Delta] = [START, ToolCallStart("s1", "code", executed_by="provider"), ToolCallEnd("s1"), Done("stop")]
    assert b"tool_calls" not in write_all(response, deltas)
    assert [(loss.where, loss.what) for loss in response.report().losses] == [("parts[0]", "call of code")]


def test_an_error_in_the_stream_ends_it_without_done() -> None:
    failed = Failed(ErrorCode.OVERLOADED, "busy", retryable=True)
    body = write_all(writer(NAME), [START, TextDelta("a"), failed])
    assert sse_events(body)[-1] == ChatWriter.error_response(failed).body
    assert b"[DONE]" not in body
    assert b'"finish_reason":"' not in body


def test_the_whole_response() -> None:
    message = assistant(Thinking("hm"), "Hi", ToolCall("c1", "read", {"a": 1}), ToolCall("c2", "patch", {"input": "*"}))
    response = writer(NAME, created=CREATED, response_id="chatcmpl-9", model_id="m", custom_tools=["patch"])
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"a":1}'}},
        {"id": "c2", "type": "custom", "custom": {"name": "patch", "input": "*"}},
    ]
    answer = {"role": "assistant", "content": "Hi", "refusal": None, "reasoning_content": "hm", "tool_calls": calls}
    assert response.whole_response(message) == {
        "id": "chatcmpl-9",
        "object": "chat.completion",
        "created": 1767225600,
        "model": "m",
        "choices": [{"index": 0, "message": answer, "logprobs": None, "finish_reason": "tool_calls"}],
    }
    only_call = writer(NAME).whole_response(assistant(ToolCall("c1", "read", {})))
    assert only_call["choices"][0]["message"]["content"] is None
    assert writer(NAME).whole_response(assistant())["choices"][0]["message"]["content"] == ""


def test_lists_and_usage_are_part_of_the_whole_response() -> None:
    response = ChatWriter()
    deltas = (START, TextDelta("a", continuation={"annotations": [{"n": 1}]}), Usage(1, 2), Done("stop"))
    body = response.joined([event for delta in deltas for event in response.events(delta)])
    assert body["choices"][0]["message"]["annotations"] == [{"n": 1}]
    assert body["usage"]["total_tokens"] == 3
