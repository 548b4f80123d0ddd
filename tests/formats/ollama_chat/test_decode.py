"""Ollama's chat lines, one rule and one quirk at a time."""

import json
from typing import Any

import pytest

from bartack.formats.ollama_chat.decode import OllamaChat
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
from tests.recordings.agreement import assembler_of, decoded

DONE = {"done": True, "done_reason": "stop"}


def read(*lines: Any, **options: Any) -> list[Delta]:
    return decoded(OllamaChat(**options), b"".join(json.dumps(line).encode() + b"\n" for line in lines))


def piece(**message: Any) -> dict[str, Any]:
    return {"model": "llama3", "message": {"role": "assistant", **message}, "done": False}


def test_text_comes_in_pieces_and_ends_with_the_line_that_is_done() -> None:
    usage = {"prompt_eval_count": 26, "eval_count": 3}
    assert read(piece(content="Hel"), piece(content="lo"), {**DONE, **usage, "model": "llama3"}) == [
        Start("llama3", "local", provider="ollama-chat"),
        TextDelta("Hel"),
        TextDelta("lo"),
        Usage(26, 3),
        Done("stop", raw_finish_reason="stop"),
    ]


def test_the_line_that_is_done_may_hold_content() -> None:
    assert read({**piece(content="Hi"), **DONE})[1:] == [TextDelta("Hi"), Done("stop", raw_finish_reason="stop")]


def test_a_null_or_a_missing_field_is_nothing() -> None:
    assert read({"model": None, "message": None}, {"message": {"content": None}}, DONE)[0] == Start(
        "", "local", provider="ollama-chat"
    )


def test_thinking_says_once_that_it_came_as_thinking() -> None:
    """D-3.9: each stretch of thinking may go back, and nothing but Ollama wrote it."""
    deltas = read(piece(thinking="a"), piece(thinking="b"), piece(content="c"), piece(thinking="d"), DONE)
    assert deltas[1:5] == [
        ThinkingDelta("a", continuation={"thinking": {}}),
        ThinkingDelta("b"),
        TextDelta("c"),
        ThinkingDelta("d", continuation={"thinking": {}}),
    ]


def test_a_call_comes_whole_and_gets_an_id() -> None:
    """D-3.8.1 and D-3.4.7: ids are made, and a stop with calls is `tool_calls`."""
    call = {"function": {"name": "add", "arguments": {"a": 1, "b": "ü"}}}
    deltas = read(piece(tool_calls=[call, {"id": "call_7", "function": {"name": "now"}}]), DONE)
    assert deltas[1:] == [
        ToolCallStart("local-1", "add"),
        ToolCallArgs("local-1", '{"a":1,"b":"ü"}'),
        ToolCallEnd("local-1"),
        ToolCallStart("call_7", "now"),
        ToolCallEnd("call_7"),
        Done("tool_calls", raw_finish_reason="stop"),
    ]
    assert assembler_of(deltas).build_final_message().tool_calls[0].arguments == {"a": 1, "b": "ü"}


def test_arguments_that_are_text_already_stay_as_they_are() -> None:
    deltas = read(piece(tool_calls=[{"function": {"name": "f", "arguments": '{"x": 1}'}}, {}]), DONE)
    assert ToolCallArgs("local-1", '{"x": 1}') in deltas
    assert ToolCallStart("local-2", "") in deltas


def test_arguments_that_nest_too_deep_end_the_stream() -> None:
    """D-3.11.2."""
    deep: Any = []
    for _ in range(100):
        deep = [deep]
    deltas = read({**piece(tool_calls=[{"function": {"name": "f", "arguments": {"x": deep}}}]), **DONE})
    assert isinstance(deltas[-1], Failed)
    assert deltas[-1].error_code is ErrorCode.STREAM_TOO_LARGE


@pytest.mark.parametrize(
    ("said", "meant"),
    [("stop", "stop"), ("length", "length"), ("load", "other"), ("unload", "other"), (None, "stop")],
)
def test_why_it_stopped(said: str | None, meant: str) -> None:
    """A server too old to give a reason stopped plainly."""
    end = read({"done": True, "done_reason": said})[-1]
    assert end == Done(meant, raw_finish_reason=said)  # type: ignore[arg-type]


def test_counts_that_are_left_out_are_zero_and_without_any_there_is_no_usage() -> None:
    """A prompt from the cache is not counted; D-3.4.3."""
    assert Usage(0, 5) in read({**DONE, "eval_count": 5})
    assert Usage(4, 0) in read({**DONE, "prompt_eval_count": 4.0, "eval_count": -1})
    assert not [delta for delta in read(DONE) if isinstance(delta, Usage)]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ("model runner has stopped", "model runner has stopped"),
        ({"message": "no"}, "no"),
        ({"code": 1}, "the server reported an error"),
        ([], "the server reported an error"),
    ],
)
def test_an_error_line_ends_the_stream(error: Any, message: str) -> None:
    end = read(piece(content="Hi"), {"error": error}, DONE)[-1]
    assert isinstance(end, Failed)
    assert (end.error_code, end.message) == (ErrorCode.PROVIDER_ERROR, message)


def test_a_cut_stream_is_an_error() -> None:
    """D-3.5."""
    end = read(piece(content="Hi"))[-1]
    assert isinstance(end, Failed)
    assert end.error_code is ErrorCode.STREAM_TRUNCATED


def test_garbage_after_the_end_changes_nothing() -> None:
    body = json.dumps(DONE).encode() + b"\n<html>\n"
    assert decoded(OllamaChat(), body)[-1] == Done("stop", raw_finish_reason="stop")
