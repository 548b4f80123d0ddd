"""Deltas written as a stream of the Responses API, event by event."""

from base64 import b64encode
from datetime import UTC, datetime
from typing import Any

import pytest

from bartack.formats import writer
from bartack.formats.openai_responses.write import ResponsesWriter
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
from bartack.nouns.parts import Image, Text
from tests.formats.written import message_of, reread, sse_events, write_all

NAME = "openai-responses"
START = Start("gpt-x", "resp_1", provider=NAME)
CREATED = datetime(2026, 1, 1, tzinfo=UTC)


def events_of(*deltas: Delta, **options: Any) -> list[dict[str, Any]]:
    return sse_events(write_all(writer(NAME, created=CREATED, **options), deltas))


def kinds_of(*deltas: Delta, **options: Any) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events_of(*deltas, **options)]


def output_of(*deltas: Delta, **options: Any) -> list[dict[str, Any]]:
    output: list[dict[str, Any]] = events_of(*deltas, **options)[-1]["response"]["output"]
    return output


def call(call_id: str, name: str, text: str) -> list[Delta]:
    return [ToolCallStart(call_id, name), ToolCallArgs(call_id, text), ToolCallEnd(call_id)]


def test_the_complete_sequence_of_an_answer() -> None:
    deltas: list[Delta] = [
        START,
        ThinkingDelta("hm"),
        ThinkingDelta("", continuation={"item": {"type": "reasoning", "encrypted_content": "e=="}}),
        TextDelta("H"),
        TextDelta("i"),
        *call("c1", "read", '{"a":1}'),
        Usage(10, 5, cache_read_tokens=3, cache_write_tokens=1, reasoning_tokens=2, cost=0.5),
        Done("tool_calls"),
    ]
    events = events_of(*deltas)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    assert events[0]["response"]["status"] == "in_progress"
    assert events[0]["response"]["created_at"] == 1767225600
    assert events[2]["item"] == {"id": "rs_1_0", "type": "reasoning", "summary": []}
    assert events[8]["item"] == {
        "id": "msg_1_1",
        "type": "message",
        "status": "in_progress",
        "role": "assistant",
        "content": [],
    }
    assert events[10] == {
        "type": "response.output_text.delta",
        "sequence_number": 10,
        "item_id": "msg_1_1",
        "output_index": 1,
        "content_index": 0,
        "delta": "H",
        "logprobs": [],
    }
    final = events[-1]["response"]
    assert final["output"] == [
        {
            "id": "rs_1_0",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "hm"}],
            "encrypted_content": "e==",
        },
        {
            "id": "msg_1_1",
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Hi", "annotations": []}],
        },
        {
            "id": "fc_1_2",
            "type": "function_call",
            "status": "completed",
            "call_id": "c1",
            "name": "read",
            "arguments": '{"a":1}',
        },
    ]
    assert [event["item"] for event in events if event["type"].endswith("item.done")] == final["output"]
    assert (final["id"], final["model"], final["status"]) == ("resp_1", "gpt-x", "completed")
    assert final["usage"] == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 1},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 15,
        "cost": 0.5,
    }


def test_every_event_has_its_name_and_a_comment_keeps_the_connection_alive() -> None:
    assert write_all(writer(NAME), [START]).startswith(b"event: response.created\ndata: {")
    assert writer(NAME).keep_alive() == b": keep-alive\n\n"


def test_usage_is_null_until_it_is_known() -> None:
    events = events_of(START, Usage(1, 1), Done("stop"))
    assert events[0]["response"]["usage"] is None
    assert events[-1]["response"]["usage"]["input_tokens_details"] == {"cached_tokens": 0}
    assert events_of(START, Done("stop"))[-1]["response"]["usage"] is None


def test_the_item_of_a_call_ends_after_everything_else() -> None:
    kinds = kinds_of(START, *call("c1", "read", "{}"), TextDelta("b"), Done("tool_calls"))
    assert kinds[-3:] == ["function_call_arguments.done", "output_item.done", "completed"]
    assert [item["type"] for item in output_of(START, *call("c1", "f", "{}"), TextDelta("b"), Done("tool_calls"))] == [
        "function_call",
        "message",
    ]


def test_a_call_of_a_custom_tool_has_free_text() -> None:
    deltas = [START, *call("c1", "apply_patch", '{"input":"*** Begin"}'), Done("tool_calls")]
    assert kinds_of(*deltas, custom_tools=["apply_patch"])[2:] == [
        "output_item.added",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
        "completed",
    ]
    assert output_of(*deltas, custom_tools=["apply_patch"]) == [
        {
            "id": "ctc_1_0",
            "type": "custom_tool_call",
            "status": "completed",
            "call_id": "c1",
            "name": "apply_patch",
            "input": "*** Begin",
        }
    ]
    unwrapped = [START, *call("c1", "apply_patch", "*** Begin"), Done("tool_calls")]
    assert output_of(*unwrapped, custom_tools=["apply_patch"])[0]["input"] == "*** Begin"
    cut = [START, *call("c1", "apply_patch", '{"input":"***'), Done("length")]
    assert kinds_of(*cut, custom_tools=["apply_patch"])[2:] == ["output_item.added", "incomplete"]


def test_a_renamed_tool_gets_its_namespace_back() -> None:
    deltas = [START, *call("c1", "files__read", "{}"), Done("tool_calls")]
    (item,) = output_of(*deltas, namespaces={"files__read": ("files", "read")})
    assert (item["namespace"], item["name"]) == ("files", "read")


def test_a_call_that_the_output_limit_cut_off_is_incomplete() -> None:
    deltas = [START, *call("c1", "read", '{"a": '), Done("length")]
    events = events_of(*deltas)
    assert "response.output_item.done" not in [event["type"] for event in events]
    response = events[-1]["response"]
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert (response["output"][0]["status"], response["output"][0]["arguments"]) == ("incomplete", '{"a": ')


def test_annotations_are_part_of_the_finished_text() -> None:
    data = {"part": {"type": "output_text", "annotations": [{"type": "url_citation"}]}}
    (item,) = output_of(START, TextDelta("a", continuation=data), Done("stop"))
    assert item["content"][0]["annotations"] == [{"type": "url_citation"}]
    odd = {"part": {"annotations": 1}}
    assert output_of(START, TextDelta("a", continuation=odd), Done("stop"))[0]["content"][0]["annotations"] == []


def test_parts_without_text_are_written_only_if_they_carry_something() -> None:
    deltas: list[Delta] = [
        START,
        ThinkingDelta("", continuation={"item": {"type": "reasoning", "encrypted_content": "e"}}),
        TextDelta("", continuation={"item": {"type": "message", "id": "m"}}),
        TextDelta("", new_part=True, continuation={"item": {"type": "compaction", "id": "k"}}),
        Done("stop"),
    ]
    assert output_of(*deltas) == [
        {"id": "rs_1_0", "type": "reasoning", "summary": [], "encrypted_content": "e"},
        {"type": "compaction", "id": "k"},
    ]


def provider_call(call_id: str, end: ToolCallEnd) -> list[Delta]:
    return [ToolCallStart(call_id, "tool", executed_by="provider"), ToolCallArgs(call_id, "{}"), end]


def test_the_items_of_calls_that_the_provider_executed_are_written_whole() -> None:
    search = {"type": "web_search_call", "id": "ws", "status": "completed"}
    shell = {"type": "shell_call", "id": "sh", "call_id": "s2", "environment": {"type": "container"}}
    output = {"type": "shell_call_output", "call_id": "s2", "output": "ok"}
    image = {"type": "image_generation_call", "id": "ig", "status": "completed"}
    pictures = (Image("image/png", data=b"png"), Text("ignored"))
    deltas = [
        START,
        *provider_call("s1", ToolCallEnd("s1", continuation={"item": search}, result={"status": "completed"})),
        *provider_call("s2", ToolCallEnd("s2", continuation={"item": shell, "output": output}, result="ok")),
        *provider_call("s3", ToolCallEnd("s3", continuation={"item": image}, result=pictures)),
        Usage(1, 1),
        Done("stop", raw_finish_reason="completed"),
    ]
    assert output_of(*deltas) == [
        search,
        shell,
        output,
        {**image, "result": b64encode(b"png").decode()},
    ]


@pytest.mark.parametrize("data", [None, {"item": {"type": "custom_tool_call", "id": "x"}}])
def test_a_provider_call_that_a_client_would_take_for_its_own_is_a_loss(data: dict[str, Any] | None) -> None:
    response = writer(NAME)
    end = ToolCallEnd("s1", result="r", continuation=data)
    assert b"output_item" not in write_all(response, [START, *provider_call("s1", end), Done("stop")])
    assert [(loss.where, loss.what) for loss in response.report().losses] == [("parts[0]", "call of tool")]


@pytest.mark.parametrize(
    ("reason", "status", "losses"),
    [
        ("stop", "completed", 0),
        ("content_filter", "incomplete", 0),
        ("refusal", "incomplete", 1),
        ("pause", "completed", 1),
        ("other", "completed", 1),
    ],
)
def test_how_an_answer_ends(reason: Any, status: str, losses: int) -> None:
    response = writer(NAME)
    last = sse_events(write_all(response, [START, TextDelta("a"), Done(reason)]))[-1]
    assert (last["type"], last["response"]["status"]) == (f"response.{status}", status)
    assert len(response.report().losses) == losses


def test_a_failed_answer_has_its_finished_items() -> None:
    failed = Failed(ErrorCode.RATE_LIMITED, "Too fast.", retryable=True, retry_after_ms=1500)
    deltas = [START, ThinkingDelta("a"), TextDelta("b"), *call("c1", "read", "{}"), failed]
    event = events_of(*deltas)[-1]
    assert event["type"] == "response.failed"
    assert event["response"]["error"] == {
        "code": "rate_limit_exceeded",
        "message": "Too fast. Please try again in 1.5s.",
    }
    assert [item["type"] for item in event["response"]["output"]] == ["reasoning", "message"]


@pytest.mark.parametrize(
    ("failed", "status", "kind", "code"),
    [
        (Failed(ErrorCode.CONTEXT_OVERFLOW, "long"), 400, "invalid_request_error", "context_length_exceeded"),
        (Failed(ErrorCode.QUOTA_EXCEEDED, "pay"), 429, "insufficient_quota", "insufficient_quota"),
        (Failed(ErrorCode.STREAM_TRUNCATED, retryable=True), 503, "server_error", "server_error"),
        (Failed(ErrorCode.RATE_LIMITED, "slow"), 429, "rate_limit_exceeded", "rate_limit_exceeded"),
    ],
)
def test_errors_before_the_first_byte(failed: Failed, status: int, kind: str, code: str) -> None:
    response = ResponsesWriter.error_response(failed)
    message = failed.message or "stream_truncated"
    assert response.status == status
    assert response.body == {"error": {"message": message, "type": kind, "param": None, "code": code}}
    read = reread(NAME, [START, failed])[-1]
    assert isinstance(read, Failed)
    assert read.raw_code == code


def test_encrypted_reasoning_comes_back_to_its_provider() -> None:
    deltas: list[Delta] = [
        START,
        ThinkingDelta("hm", continuation={"item": {"type": "reasoning", "encrypted_content": "e=="}}),
        TextDelta("Hi"),
        Done("stop"),
    ]
    thinking, _ = message_of(reread(NAME, deltas)).parts
    assert thinking.continuation is not None
    assert thinking.continuation.data["item"]["encrypted_content"] == "e=="


def test_a_message_is_written_as_the_last_response_of_its_stream() -> None:
    body = ResponsesWriter(created=CREATED, response_id="resp_9").whole_response(assistant("Hi"))
    assert (body["object"], body["id"], body["status"]) == ("response", "resp_9", "completed")
    assert body["output"][0]["content"][0]["text"] == "Hi"


def test_a_response_that_is_not_stored_has_the_code_after_which_clients_send_the_history() -> None:
    failed = Failed(ErrorCode.INVALID_REQUEST, "not found", raw_code="previous_response_not_found")
    response = ResponsesWriter.error_response(failed)
    error = response.body["error"]
    assert (response.status, error["code"], error["param"]) == (
        400,
        "previous_response_not_found",
        "previous_response_id",
    )
