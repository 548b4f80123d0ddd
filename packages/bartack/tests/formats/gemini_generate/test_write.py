"""Deltas written as chunks of Gemini's streamGenerateContent."""

import json
from base64 import b64encode
from typing import Any

import pytest

from bartack.formats import decoder, writer
from bartack.formats.gemini_generate.write import GenerateWriter
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
from bartack.nouns.parts import Image, Thinking, ToolCall
from tests.formats.written import content_of, message_of, reread, sse_events, write_all
from tests.recordings.agreement import decoded

NAME = "gemini-generate"
START = Start("gemini-x", "r1", provider=NAME)


def chunks_of(*deltas: Delta) -> list[dict[str, Any]]:
    return sse_events(write_all(writer(NAME), deltas))


def parts_of(*deltas: Delta) -> list[dict[str, Any]]:
    return [part for chunk in chunks_of(*deltas) for part in chunk["candidates"][0]["content"]["parts"]]


def call(call_id: str, text: str) -> list[Delta]:
    return [ToolCallStart(call_id, "read"), ToolCallArgs(call_id, text), ToolCallEnd(call_id)]


def test_the_complete_sequence_of_an_answer() -> None:
    usage = Usage(10, 5, cache_read_tokens=3, reasoning_tokens=2)
    deltas = [START, ThinkingDelta("hm"), TextDelta("Hi"), *call("c1", '{"a":1}'), usage, Done("tool_calls")]
    head = {"modelVersion": "gemini-x", "responseId": "r1"}

    def chunk(part: dict[str, Any], **fields: Any) -> dict[str, Any]:
        return {"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0, **fields}], **head}

    counts = {
        "promptTokenCount": 10,
        "candidatesTokenCount": 3,
        "totalTokenCount": 15,
        "thoughtsTokenCount": 2,
        "cachedContentTokenCount": 3,
    }
    assert chunks_of(*deltas) == [
        chunk({"text": "hm", "thought": True}),
        chunk({"text": "Hi"}),
        chunk({"functionCall": {"id": "c1", "name": "read", "args": {"a": 1}}}),
        {**chunk({"text": ""}, finishReason="STOP"), "usageMetadata": counts},
    ]


def test_usage_without_details() -> None:
    counts = chunks_of(START, Usage(1, 2), Done("stop"))[-1]["usageMetadata"]
    assert counts == {"promptTokenCount": 1, "candidatesTokenCount": 2, "totalTokenCount": 3}


def test_there_is_nothing_to_keep_a_connection_alive_with() -> None:
    assert writer(NAME).keep_alive() == b""


def test_a_call_and_what_follows_it_wait_for_the_end() -> None:
    response = writer(NAME)
    before = write_all(response, [START, TextDelta("a"), *call("c1", "{}"), TextDelta("b")])
    assert [part["text"] for chunk in sse_events(before) for part in chunk["candidates"][0]["content"]["parts"]] == [
        "a"
    ]
    after = sse_events(response.write(Done("tool_calls")))
    assert [list(chunk["candidates"][0]["content"]["parts"][0]) for chunk in after] == [
        ["functionCall"],
        ["text"],
        ["text"],
    ]


def test_a_call_that_the_output_limit_cut_off_is_not_written() -> None:
    assert parts_of(START, *call("c1", '{"a": '), Done("length")) == [{"text": ""}]


def test_invalid_arguments_are_wrapped_in_an_object() -> None:
    response = writer(NAME)
    body = write_all(response, [START, *call("c1", "{'a'"), Done("tool_calls")])
    assert sse_events(body)[0]["candidates"][0]["content"]["parts"][0]["functionCall"]["args"] == {
        "INVALID_JSON": "{'a'"
    }
    assert [(loss.where, loss.what) for loss in response.report().losses] == [("parts[0]", "invalid arguments")]


def test_signatures_are_written_on_the_part_that_they_came_with() -> None:
    data = {"thoughtSignature": "s"}
    deltas: list[Delta] = [
        START,
        ThinkingDelta("a", continuation={"thought": True}),
        ThinkingDelta("b", new_part=True, continuation={"thought": True, **data}),
        TextDelta("c"),
        TextDelta("", new_part=True, continuation=data),
        ToolCallStart("c1", "read", continuation={**data, "id": "c1"}),
        ToolCallArgs("c1", '{"a":1}'),
        ToolCallEnd("c1"),
        Usage(1, 2),
        Done("tool_calls", raw_finish_reason="STOP"),
    ]
    assert parts_of(*deltas)[:5] == [
        {"text": "a", "thought": True},
        {"text": "b", "thought": True, **data},
        {"text": "c"},
        {"text": "", **data},
        {"functionCall": {"id": "c1", "name": "read", "args": {"a": 1}}, **data},
    ]
    assert message_of(reread(NAME, deltas)) == message_of(deltas)


def test_a_signature_is_written_once() -> None:
    data = {"thoughtSignature": "s"}
    assert parts_of(START, TextDelta("a", continuation=data), TextDelta("b"), Done("stop")) == [
        {"text": "a", **data},
        {"text": "b"},
        {"text": ""},
    ]


def test_grounding_belongs_to_the_candidate() -> None:
    data = {"groundingMetadata": {"webSearchQueries": ["q"]}}
    deltas: list[Delta] = [START, TextDelta("a"), TextDelta("", continuation=data), Done("stop", "STOP")]
    assert chunks_of(*deltas)[1]["candidates"][0]["groundingMetadata"] == data["groundingMetadata"]
    assert message_of(reread(NAME, deltas)).parts == message_of(deltas).parts


def test_calls_that_google_executed_and_generated_media() -> None:
    code = {"executableCode": {"code": "1", "language": "PYTHON"}}
    outcome = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}
    picture = {"inlineData": {"mimeType": "image/png"}}
    deltas: list[Delta] = [
        START,
        ToolCallStart("s1", "code_execution", executed_by="provider", continuation={"part": code}),
        ToolCallEnd("s1", result="1", continuation={"resultPart": outcome}),
        ToolCallStart("s2", "image_output", executed_by="provider", continuation={"part": picture}),
        ToolCallEnd("s2", result=(Image("image/png", data=b"png"),)),
        ToolCallStart("s3", "image_output", executed_by="provider", continuation={"part": picture}),
        ToolCallEnd("s3"),
        Done("stop"),
    ]
    data = b64encode(b"png").decode()
    assert parts_of(*deltas) == [
        code,
        outcome,
        {"inlineData": {"mimeType": "image/png", "data": data}},
        {"text": ""},
    ]


@pytest.mark.parametrize(
    ("reason", "word", "losses"),
    [("stop", "STOP", 0), ("length", "MAX_TOKENS", 0), ("other", "OTHER", 0), ("refusal", "SAFETY", 1)],
)
def test_how_an_answer_ends(reason: Any, word: str, losses: int) -> None:
    response = writer(NAME)
    last = sse_events(write_all(response, [START, TextDelta("a"), Done(reason)]))[-1]
    assert last["candidates"][0]["finishReason"] == word
    assert len(response.report().losses) == losses


def test_without_server_sent_events_the_stream_is_an_array() -> None:
    deltas: list[Delta] = [START, TextDelta("a"), *call("c1", '{"b":1}'), Done("tool_calls")]
    response = writer(NAME, as_array=True)
    assert (response.media_type, writer(NAME).media_type) == ("application/json", "text/event-stream")
    body = write_all(response, deltas)
    assert len(json.loads(body)) == 3
    assert content_of(decoded(decoder(NAME, framing="json-array"), body)) == content_of(deltas)
    failed = Failed(ErrorCode.OVERLOADED, "busy", retryable=True)
    assert json.loads(write_all(writer(NAME, as_array=True), [START, failed])) == [
        {"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}
    ]


def test_errors_before_the_first_byte_and_in_the_stream() -> None:
    failed = Failed(ErrorCode.RATE_LIMITED, retryable=True, retry_after_ms=1500)
    response = GenerateWriter.error_response(failed)
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1.5s"}]
    error = {"code": 429, "message": "rate_limited", "status": "RESOURCE_EXHAUSTED", "details": details}
    assert (response.status, response.body) == (429, {"error": error})
    assert chunks_of(START, TextDelta("a"), failed)[-1] == response.body
    read = reread(NAME, [START, failed])[-1]
    assert isinstance(read, Failed)
    assert (read.error_code, read.retry_after_ms) == (ErrorCode.RATE_LIMITED, 1500)


def test_the_whole_response() -> None:
    response = GenerateWriter(response_id="r", model_id="m")
    deltas = (START, TextDelta("a"), TextDelta("b"), Usage(1, 2), Done("stop"))
    assert response.joined([event for delta in deltas for event in response.events(delta)]) == {
        "candidates": [{"content": {"role": "model", "parts": [{"text": "ab"}]}, "index": 0, "finishReason": "STOP"}],
        "modelVersion": "m",
        "responseId": "r",
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 2, "totalTokenCount": 3},
    }
    body = GenerateWriter().whole_response(assistant(Thinking("hm"), "a", ToolCall("c1", "read", {})))
    assert body["candidates"][0]["content"]["parts"] == [
        {"text": "hm", "thought": True},
        {"text": "a"},
        {"functionCall": {"id": "c1", "name": "read", "args": {}}},
    ]
