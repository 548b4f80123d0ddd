"""Decoding Ollama's chat stream, one rule at a time, with small hand-made streams."""

import json
from typing import Any

import pytest

from bartack.formats.ollama_chat import OllamaChat
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


def test_text_is_emitted_as_it_arrives_until_done() -> None:
    usage = {"prompt_eval_count": 26, "eval_count": 3}
    assert read(piece(content="Hel"), piece(content="lo"), {**DONE, **usage, "model": "llama3"}) == [
        Start("llama3", "local", provider="ollama-chat"),
        TextDelta("Hel"),
        TextDelta("lo"),
        Usage(26, 3),
        Done("stop", raw_finish_reason="stop"),
    ]


def test_the_last_line_may_have_content() -> None:
    assert read({**piece(content="Hi"), **DONE})[1:] == [TextDelta("Hi"), Done("stop", raw_finish_reason="stop")]


def test_null_and_missing_fields_are_ignored() -> None:
    assert read({"model": None, "message": None}, {"message": {"content": None}}, DONE)[0] == Start(
        "", "local", provider="ollama-chat"
    )


def test_each_run_of_thinking_is_marked_once() -> None:
    """D-3.9: the mark allows it to be sent back to Ollama."""
    deltas = read(piece(thinking="a"), piece(thinking="b"), piece(content="c"), piece(thinking="d"), DONE)
    assert deltas[1:5] == [
        ThinkingDelta("a", continuation={"thinking": {}}),
        ThinkingDelta("b"),
        TextDelta("c"),
        ThinkingDelta("d", continuation={"thinking": {}}),
    ]


def test_a_whole_call_gets_an_id() -> None:
    """D-3.8.1 and D-3.4.7: a local id, and a stop with calls is `tool_calls`."""
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


def test_arguments_given_as_text_are_kept() -> None:
    deltas = read(piece(tool_calls=[{"function": {"name": "f", "arguments": '{"x": 1}'}}, {}]), DONE)
    assert ToolCallArgs("local-1", '{"x": 1}') in deltas
    assert ToolCallStart("local-2", "") in deltas


def test_arguments_nested_too_deep_end_the_stream() -> None:
    """D-3.11.2."""
    deep: Any = []
    for _ in range(100):
        deep = [deep]
    deltas = read({**piece(tool_calls=[{"function": {"name": "f", "arguments": {"x": deep}}}]), **DONE})
    assert isinstance(deltas[-1], Failed)
    assert deltas[-1].error_code is ErrorCode.STREAM_TOO_LARGE


@pytest.mark.parametrize(
    ("done_reason", "finish_reason"),
    [("stop", "stop"), ("length", "length"), ("load", "other"), ("unload", "other"), (None, "stop")],
)
def test_done_reasons_map_to_finish_reasons(done_reason: str | None, finish_reason: str) -> None:
    """A missing reason is a plain stop: older servers give none."""
    end = read({"done": True, "done_reason": done_reason})[-1]
    assert end == Done(finish_reason, raw_finish_reason=done_reason)  # type: ignore[arg-type]


def test_a_missing_count_is_zero_and_without_any_there_is_no_usage() -> None:
    """D-3.4.3; older servers do not count a cached prompt."""
    assert Usage(0, 5) in read({**DONE, "eval_count": 5})
    assert Usage(4, 0) in read({**DONE, "prompt_eval_count": 4.0, "eval_count": -1})
    assert not [delta for delta in read(DONE) if isinstance(delta, Usage)]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ("model runner has stopped", "model runner has stopped"),
        ({"message": "no"}, "no"),
        ({"code": 1}, "The server reported an error."),
        ([], "The server reported an error."),
    ],
)
def test_an_error_line_ends_the_stream(error: Any, message: str) -> None:
    end = read(piece(content="Hi"), {"error": error}, DONE)[-1]
    assert isinstance(end, Failed)
    assert (end.error_code, end.message) == (ErrorCode.PROVIDER_ERROR, message)


def test_a_truncated_stream_is_an_error() -> None:
    """D-3.5."""
    end = read(piece(content="Hi"))[-1]
    assert isinstance(end, Failed)
    assert end.error_code is ErrorCode.STREAM_TRUNCATED


def test_garbage_after_the_end_is_ignored() -> None:
    body = json.dumps(DONE).encode() + b"\n<html>\n"
    assert decoded(OllamaChat(), body)[-1] == Done("stop", raw_finish_reason="stop")
