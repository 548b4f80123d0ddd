"""What all writers share, shown with Anthropic's format."""

import json
from typing import Any

import pytest

from bartack.formats import FORMATS, Loss, format_named, writer
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
from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.nouns.parts import Continuation, Text, Thinking, ToolCall, ToolResult
from tests.formats.written import sse_events, write_all

START = Start("model-x", "resp_1", provider="elsewhere")
NAME = "anthropic-messages"


def losses_of(*deltas: Delta, **options: Any) -> list[tuple[str, str]]:
    response = writer(NAME, **options)
    write_all(response, deltas)
    return [(loss.where, loss.what) for loss in response.report().losses]


def test_a_writer_is_an_entry_of_its_formats_row() -> None:
    for name in FORMATS:
        writer_type = format_named(name).writer
        if writer_type is not None:
            assert writer_type.format == name
            home = f"bartack.formats.{name.replace('-', '_')}"
            assert writer_type.__module__ in (home, f"{home}.write")
            assert type(writer(name)) is writer_type


def test_a_format_without_a_writer_is_refused() -> None:
    with pytest.raises(PartValidationError, match="writing cohere-v2 responses is not supported"):
        writer("cohere-v2")


def test_id_and_model_can_be_those_of_the_request() -> None:
    ours = writer(NAME, response_id="msg_9", model_id="alias")
    message = sse_events(write_all(ours, [START, Done("stop")]))[0]["message"]
    assert (message["id"], message["model"]) == ("msg_9", "alias")
    theirs = sse_events(write_all(writer(NAME), [START, Done("stop")]))[0]["message"]
    assert (theirs["id"], theirs["model"]) == ("resp_1", "model-x")


def test_a_delta_that_adds_nothing_writes_nothing() -> None:
    response = writer(NAME)
    response.write(START)
    assert response.write(TextDelta("")) == b""
    response.write(ToolCallStart("c1", "read"))
    assert response.write(ToolCallArgs("c1", "")) == b""
    assert response.write(ToolCallEnd("c1")) == b""


def test_continuation_data_of_another_provider_is_one_loss_per_part() -> None:
    deltas = (
        START,
        ThinkingDelta("a", continuation={"signature": "x"}),
        ThinkingDelta("b", continuation={"signature": "y"}),
        ThinkingDelta("c", continuation={"signature": "z"}, new_part=True),
        ToolCallStart("c1", "read", continuation={"id": "1"}),
        ToolCallEnd("c1", continuation={"id": "2"}),
        Usage(1, 1),
        Done("tool_calls"),
    )
    assert losses_of(*deltas) == [(f"parts[{number}]", "continuation data") for number in range(3)]
    own = writer(NAME, provider="elsewhere")
    assert b'"signature":"y"' in write_all(own, deltas)
    assert own.report().losses == ()


def test_a_call_that_the_provider_executed_is_left_out() -> None:
    deltas = (
        START,
        ToolCallStart("s1", "search", executed_by="provider"),
        ToolCallArgs("s1", "{}"),
        ToolCallEnd("s1", result="found"),
        Usage(1, 1),
        Done("stop"),
    )
    response = writer(NAME)
    assert b"search" not in write_all(response, deltas)
    why = "the provider executed it, and the format cannot express it"
    assert response.report().losses == (Loss(where="parts[0]", what="call of search", why=why),)


@pytest.mark.parametrize(("reason", "word"), [("stop", "tool_use"), ("other", "tool_use"), ("length", "max_tokens")])
def test_an_answer_with_calls_ends_for_its_calls(reason: Any, word: str) -> None:
    deltas = (START, ToolCallStart("c1", "read"), ToolCallArgs("c1", "{}"), ToolCallEnd("c1"), Done(reason))
    assert sse_events(write_all(writer(NAME), deltas))[-2]["delta"]["stop_reason"] == word


def test_a_finish_reason_that_the_format_does_not_have_is_a_loss() -> None:
    assert losses_of(START, Usage(1, 1), Done("content_filter")) == [
        ("meta.finishReason", "finish reason content_filter")
    ]
    assert losses_of(START, Usage(1, 1), Done("pause", raw_finish_reason="pause_turn")) == []


def test_the_end_of_a_call_waits_for_the_end_of_the_answer() -> None:
    response = writer(NAME)
    before = write_all(
        response, [START, ToolCallStart("c1", "read"), ToolCallArgs("c1", '{"a":1}'), ToolCallEnd("c1"), TextDelta("b")]
    )
    assert b"content_block_stop" not in before
    assert b'"content_block_stop","index":0' in response.write(Done("tool_calls"))


def test_a_failed_answer_never_ends_its_calls() -> None:
    response = writer(NAME)
    body = write_all(
        response,
        [
            START,
            ToolCallStart("c1", "read"),
            ToolCallArgs("c1", "{}"),
            ToolCallEnd("c1"),
            Failed(ErrorCode.STREAM_TRUNCATED, "cut", retryable=True),
        ],
    )
    assert b"content_block_stop" not in body
    assert sse_events(body)[-1] == {"type": "error", "error": {"type": "overloaded_error", "message": "cut"}}


@pytest.mark.parametrize("text", ["", '{"a": ', "[1]"])
def test_a_call_that_the_output_limit_cut_off_never_ends(text: str) -> None:
    response = writer(NAME)
    deltas: list[Delta] = [START, ToolCallStart("c1", "read"), ToolCallArgs("c1", text), ToolCallEnd("c1"), Usage(1, 1)]
    assert b"content_block_stop" not in write_all(response, [*deltas, Done("length")])
    assert [loss.what for loss in response.report().losses] == ["end of the call of read"]
    finished = write_all(writer(NAME), [*deltas, Done("tool_calls")])  # invalid, but the model ended it
    assert b"content_block_stop" in finished


def test_a_call_without_arguments_gets_an_empty_object() -> None:
    deltas: list[Delta] = [START, ToolCallStart("c1", "read"), ToolCallEnd("c1"), Done("tool_calls")]
    pieces = [event["delta"] for event in sse_events(write_all(writer(NAME), deltas))[2:-3]]
    assert pieces == [{"type": "input_json_delta", "partial_json": "{}"}]


def test_a_message_is_written_like_its_deltas() -> None:
    foreign = Continuation("elsewhere", "model-x", {"signature": "s"})
    own = Continuation(NAME, "claude", {"type": "server_tool_use", "result": {"type": "web_search_tool_result"}})
    message = Message(
        "assistant",
        (
            Thinking("hm", continuation=foreign),
            Text("Hi"),
            Text("!"),
            ToolCall(
                "s1", "web_search", {"q": 1}, executed_by="provider", result=ToolResult("s1", "r"), continuation=own
            ),
            ToolCall("c1", "read", {"a": 1}),
            ToolCall("c2", "read", {}, raw_args_text="{'a'"),
        ),
        meta=Meta(model=ModelRef("elsewhere", "model-x"), response_id="r1", usage=Usage(7, 3)),
    )
    response = writer(NAME)
    assert response.whole_response(message) == {
        "id": "r1",
        "type": "message",
        "role": "assistant",
        "model": "model-x",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": ""},
            {"type": "text", "text": "Hi"},
            {"type": "text", "text": "!"},
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"q": 1}},
            {"type": "web_search_tool_result", "tool_use_id": "s1"},
            {"type": "tool_use", "id": "c1", "name": "read", "input": {"a": 1}},
            {"type": "tool_use", "id": "c2", "name": "read", "input": {"INVALID_JSON": "{'a'"}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 7,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 3,
        },
    }
    assert [loss.where for loss in response.report().losses] == ["parts[0]"]


def test_parts_that_no_answer_has_are_losses() -> None:
    response = writer(NAME)
    body = response.whole_response(Message("tool", (ToolResult("c1", "r"),)))
    assert body["content"] == []
    assert next((loss.where, loss.what) for loss in response.report().losses) == ("parts[0]", "tool_result")
    assert json.dumps(body)
