"""Deltas written as the lines of Ollama's `/api/chat`."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from bartack.formats import writer
from bartack.formats.ollama_chat import OllamaWriter
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
from tests.formats.written import message_of, reread, write_all

NAME = "ollama-chat"
START = Start("qwen3", "r1", provider=NAME)
CREATED = datetime(2026, 1, 1, tzinfo=UTC)
HEAD = {"model": "qwen3", "created_at": "2026-01-01T00:00:00Z"}


def lines_of(*deltas: Delta) -> list[dict[str, Any]]:
    return [json.loads(line) for line in write_all(writer(NAME, created=CREATED), deltas).splitlines()]


def call(call_id: str, text: str) -> list[Delta]:
    return [ToolCallStart(call_id, "read"), ToolCallArgs(call_id, text), ToolCallEnd(call_id)]


def message(**fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "", **fields}


def test_the_complete_sequence_of_an_answer() -> None:
    thinking = ThinkingDelta("hm", continuation={"thinking": {}})
    deltas = [START, thinking, TextDelta("Hi"), *call("c1", '{"a":1}'), TextDelta("!"), Usage(3, 5), Done("tool_calls")]
    function = {"name": "read", "arguments": {"a": 1}}
    assert lines_of(*deltas) == [
        {**HEAD, "message": message(thinking="hm"), "done": False},
        {**HEAD, "message": message(content="Hi"), "done": False},
        {**HEAD, "message": message(tool_calls=[{"id": "c1", "function": function}]), "done": False},
        {**HEAD, "message": message(content="!"), "done": False},
        {**HEAD, "message": message(), "done": True, "done_reason": "stop", "prompt_eval_count": 3, "eval_count": 5},
    ]
    assert message_of(reread(NAME, deltas)).parts == message_of(deltas).parts


def test_a_call_waits_for_the_end_and_is_dropped_by_a_failure() -> None:
    response = writer(NAME)
    before = write_all(response, [START, *call("c1", "{}"), *call("c2", "{}"), TextDelta("a")])
    assert before == b""
    failed = Failed(ErrorCode.STREAM_TRUNCATED, "cut", retryable=True)
    assert json.loads(response.write(failed)) == {"error": "cut"}


def test_calls_that_cannot_be_written_as_they_are() -> None:
    response = writer(NAME)
    body = write_all(response, [START, *call("c1", "{'a'"), Done("tool_calls")])
    (written,) = json.loads(body.splitlines()[0])["message"]["tool_calls"]
    assert written["function"]["arguments"] == {"INVALID_JSON": "{'a'"}
    assert [loss.what for loss in response.report().losses] == ["invalid arguments"]
    assert len(lines_of(START, *call("c1", '{"a'), Done("length"))) == 1


@pytest.mark.parametrize(
    ("reason", "word", "losses"), [("stop", "stop", 0), ("length", "length", 0), ("pause", "stop", 1)]
)
def test_how_an_answer_ends(reason: Any, word: str, losses: int) -> None:
    response = writer(NAME)
    last = json.loads(write_all(response, [START, Done(reason)]))
    assert (last["done"], last["done_reason"]) == (True, word)
    assert "eval_count" not in last
    assert len(response.report().losses) == losses


def test_a_line_without_content_keeps_the_connection_alive() -> None:
    response = writer(NAME, created=CREATED, model_id="qwen3")
    assert json.loads(response.keep_alive()) == {**HEAD, "message": message(), "done": False}
    assert response.media_type == "application/x-ndjson"


def test_errors_before_the_first_byte() -> None:
    response = OllamaWriter.error_response(Failed(ErrorCode.MODEL_NOT_FOUND))
    assert (response.status, response.body) == (404, {"error": "model_not_found"})
    assert OllamaWriter.error_response(Failed(ErrorCode.STREAM_TRUNCATED, "cut", retryable=True)).status == 503


def test_the_whole_response() -> None:
    answer = assistant(Thinking("hm"), "a", ToolCall("c1", "read", {"a": 1}))
    body = writer(NAME, created=CREATED, model_id="qwen3").whole_response(answer)
    calls = [{"id": "c1", "function": {"name": "read", "arguments": {"a": 1}}}]
    whole = message(content="a", thinking="hm", tool_calls=calls)
    assert body == {**HEAD, "message": whole, "done": True, "done_reason": "stop"}
    assert writer(NAME).whole_response(assistant("a"))["message"] == message(content="a")
