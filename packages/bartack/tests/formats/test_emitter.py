"""The emitter keeps the streaming contract whatever a decoder reports, in whatever order."""

import pytest

from bartack import Text
from bartack.formats.emitter import Emitter
from bartack.formats.usage import amount, token_count
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


def new(**options: str) -> Emitter:
    return Emitter(provider="p", model_id="asked-for", local_id="local", **options)


def after_start(emitter: Emitter) -> list[Delta]:
    start, *deltas = emitter.take()
    assert isinstance(start, Start)
    return deltas


def test_start_is_emitted_once_with_the_ids_of_the_provider() -> None:
    """000-5.1"""
    emitter = new()
    emitter.start("model", "req_1")
    emitter.start("other", "req_2")
    assert emitter.take() == [Start("model", "req_1", provider="p")]


def test_start_falls_back_to_the_local_id_and_the_requested_model() -> None:
    """D-3.7"""
    emitter = new()
    emitter.start()
    assert emitter.take() == [Start("asked-for", "local", provider="p")]


@pytest.mark.parametrize("say", ["text", "thinking", "usage", "open_call", "done", "fail"])
def test_start_comes_first_whatever_is_reported_first(say: str) -> None:
    """000-5.1"""
    emitter = new()
    match say:
        case "usage":
            emitter.usage(Usage(1, 2))
        case "open_call":
            emitter.open_call(0, "f")
        case "done":
            emitter.done()
        case "fail":
            emitter.fail(ErrorCode.OVERLOADED, "busy")
        case _:
            getattr(emitter, say)("hi")
    assert isinstance(emitter.take()[0], Start)


def test_text_and_thinking_keep_new_part_and_continuation_data() -> None:
    emitter = new()
    emitter.text("a")
    emitter.text("b")
    emitter.text("c", new_part=True)
    emitter.text("", continuation={"citations": []})
    emitter.thinking("d")
    emitter.thinking("e", new_part=True, continuation={"signature": "s"})
    assert after_start(emitter) == [
        TextDelta("a"),
        TextDelta("b"),
        TextDelta("c", new_part=True),
        TextDelta("", continuation={"citations": []}),
        ThinkingDelta("d"),
        ThinkingDelta("e", new_part=True, continuation={"signature": "s"}),
    ]


def test_empty_text_and_thinking_give_no_deltas() -> None:
    emitter = new()
    emitter.text("")
    emitter.thinking("")
    assert emitter.take() == []
    assert not emitter.started


def test_deltas_contain_the_id_of_a_call_and_not_its_key() -> None:
    emitter = new()
    emitter.open_call(7, "f", provider_id="call_1", continuation={"item": "i"})
    assert emitter.is_open(7)
    emitter.call_args(7, '{"a"')
    emitter.call_args(7, "")
    emitter.call_args(8, "lost")
    emitter.close_call(7, continuation={"signature": "s"})
    emitter.close_call(7)
    assert not emitter.is_open(7)
    assert after_start(emitter) == [
        ToolCallStart("call_1", "f", continuation={"item": "i"}),
        ToolCallArgs("call_1", '{"a"'),
        ToolCallEnd("call_1", continuation={"signature": "s"}),
    ]


def test_a_repeated_or_missing_id_is_replaced_and_the_original_is_kept() -> None:
    """D-3.8.1"""
    emitter = Emitter(provider="p", model_id="m", local_id="local", used_call_ids=["call_0", "local-1"])
    emitter.open_call(0, "f", provider_id="call_0")
    emitter.open_call(1, "f", provider_id="call_1")
    emitter.open_call(2, "f", provider_id="call_1", continuation={"a": 1})
    emitter.open_call(3, "f")
    starts = [delta for delta in emitter.take() if isinstance(delta, ToolCallStart)]
    assert [(start.tool_call_id, start.continuation) for start in starts] == [
        ("local-2", {"callId": "call_0"}),
        ("call_1", None),
        ("local-3", {"a": 1, "callId": "call_1"}),
        ("local-4", None),
    ]


def test_reusing_the_key_of_a_call_closes_the_previous_call() -> None:
    emitter = new()
    emitter.open_call(0, "f", provider_id="a")
    emitter.open_call(0, "g", provider_id="b")
    assert after_start(emitter) == [ToolCallStart("a", "f"), ToolCallEnd("a"), ToolCallStart("b", "g")]


def test_a_call_executed_by_the_provider_ends_with_its_result() -> None:
    """D-3.10"""
    emitter = new()
    emitter.open_call(0, "search", provider_id="s", executed_by="provider")
    emitter.close_call(0, result=(Text("found"),), result_is_error=True)
    emitter.done()
    assert after_start(emitter) == [
        ToolCallStart("s", "search", executed_by="provider"),
        ToolCallEnd("s", result=(Text("found"),), result_is_error=True),
        Done("stop"),
    ]


def test_done_closes_open_calls_and_a_plain_stop_with_client_calls_is_tool_calls() -> None:
    """D-3.4.7, 001-5.2.5"""
    emitter = new()
    emitter.open_call(0, "f", provider_id="a")
    emitter.finish("stop", "end_turn")
    emitter.done()
    assert after_start(emitter) == [
        ToolCallStart("a", "f"),
        ToolCallEnd("a"),
        Done("tool_calls", raw_finish_reason="end_turn"),
    ]


def test_a_plain_stop_with_calls_of_the_provider_remains_a_stop() -> None:
    """D-3.4.7"""
    emitter = new()
    emitter.open_call(0, "search", provider_id="a", executed_by="provider")
    emitter.finish("stop", "end_turn")
    emitter.done()
    assert after_start(emitter)[-1] == Done("stop", raw_finish_reason="end_turn")


def test_other_finish_reasons_do_not_change() -> None:
    emitter = new()
    emitter.open_call(0, "f")
    emitter.finish("length", "max_tokens")
    emitter.done()
    assert emitter.take()[-1] == Done("length", raw_finish_reason="max_tokens")


def test_usage_is_emitted_when_it_changes() -> None:
    """D-3.4"""
    emitter = new()
    for usage in (Usage(1, 1), Usage(1, 1), Usage(1, 2)):
        emitter.usage(usage)
    assert after_start(emitter) == [Usage(1, 1), Usage(1, 2)]


def test_nothing_is_emitted_after_the_end() -> None:
    """000-5.2, D-3.1"""
    emitter = new()
    emitter.done()
    emitter.done()
    emitter.fail(ErrorCode.OVERLOADED, "late")
    assert after_start(emitter) == [Done("stop")]
    failed = new()
    failed.fail(ErrorCode.RATE_LIMITED, "slow down", status=429, retry_after_ms=5, raw_code="rate")
    failed.done()
    assert after_start(failed) == [
        Failed(ErrorCode.RATE_LIMITED, "slow down", retryable=True, status=429, retry_after_ms=5, raw_code="rate")
    ]


def test_a_failure_may_override_whether_it_is_retryable() -> None:
    emitter = new()
    emitter.fail(ErrorCode.OVERLOADED, "gone for good", retryable=False)
    assert emitter.take()[-1] == Failed(ErrorCode.OVERLOADED, "gone for good", retryable=False)


def test_an_error_of_the_provider_gets_our_code() -> None:
    emitter = new()
    emitter.refused("try later", raw_code="overloaded_error")
    assert emitter.take()[-1] == Failed(ErrorCode.OVERLOADED, "try later", retryable=True, raw_code="overloaded_error")


def test_halves_of_a_surrogate_pair_are_joined() -> None:
    emitter = new()
    emitter.start()
    emitter.join_surrogates()
    emitter.open_call(0, "f", provider_id="c")
    emitter.text("a\ud83d")
    emitter.thinking("b\ud83d")
    emitter.call_args(0, '"\ud83d')
    emitter.text("\ude00!")
    emitter.thinking("\ude00?")
    emitter.call_args(0, '\ude00"')
    joined = [delta for delta in emitter.take() if not isinstance(delta, Start | ToolCallStart)]
    assert joined == [
        TextDelta("a"),
        ThinkingDelta("b"),
        ToolCallArgs("c", '"'),
        TextDelta("😀!"),
        ThinkingDelta("😀?"),
        ToolCallArgs("c", '😀"'),
    ]


def test_lone_surrogates_elsewhere_are_replaced() -> None:
    emitter = new()
    emitter.join_surrogates()
    emitter.start("m\ud83d", "r")
    emitter.text("lone \ude00 half")
    emitter.open_call(0, "f", provider_id="c", executed_by="provider", continuation={"\ud83d": ["\ud83d", 1]})
    emitter.close_call(0, result=(Text("\ud83d"),))
    emitter.fail(ErrorCode.OVERLOADED, "\ud83d")
    assert emitter.take() == [
        Start("m\ufffd", "r", provider="p"),
        TextDelta("lone \ufffd half"),
        ToolCallStart("c", "f", executed_by="provider", continuation={"\ufffd": ["\ufffd", 1]}),
        ToolCallEnd("c", result=(Text("\ufffd"),)),
        Failed(ErrorCode.OVERLOADED, "\ufffd", retryable=True),
    ]


def test_surrogates_are_joined_in_further_text_and_thinking() -> None:
    emitter = new()
    emitter.start()
    call_id = emitter.open_call(0, "f", provider_id="c")
    assert emitter.call_id(0) == call_id == "c"
    emitter.take()
    for joins in (False, True):
        if joins:
            emitter.join_surrogates()
        emitter.more_text("a")
        emitter.more_thinking("b")
        emitter.more_args(call_id, "{}")
        for say in (emitter.more_text, emitter.more_thinking):
            say("")
        emitter.more_args(call_id, "")
        assert emitter.take() == [TextDelta("a"), ThinkingDelta("b"), ToolCallArgs("c", "{}")]


@pytest.mark.parametrize("end", ["done", "fail"])
def test_deltas_after_the_end_are_dropped(end: str) -> None:
    """D-3.1: a decoder may continue with an event after it has failed inside it."""
    emitter = new()
    emitter.text("a")
    emitter.done() if end == "done" else emitter.fail(ErrorCode.STREAM_TOO_LARGE, "too much")
    emitter.more_text("b")
    emitter.usage(Usage(1, 1))
    assert emitter.last_usage is None
    assert isinstance(emitter.take()[-1], Done | Failed)
    emitter.more_text("c")
    assert emitter.take() == []


# -- counts


@pytest.mark.parametrize("value", [0, 1, 2**53 - 1, 12.0, 12.7])
def test_a_plausible_token_count_is_kept(value: float) -> None:
    assert token_count(value) == int(value)
    assert amount(value) == value


@pytest.mark.parametrize("value", [None, -1, 2**53, 1e300, float("nan"), float("inf"), True, "12", [1], {}])
def test_negative_and_inexact_token_counts_are_rejected(value: object) -> None:
    assert token_count(value) is None
    assert amount(value) is None


def test_the_first_plausible_count_is_used() -> None:
    assert token_count(None, -3, 7, 9) == 7
    assert token_count() is None


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (Usage(7, 3, cache_read_tokens=7, reasoning_tokens=3), Usage(7, 3, cache_read_tokens=7, reasoning_tokens=3)),
        (Usage(7, 3, 12), Usage(7, 3, 12)),
        (
            Usage(7, 3, cache_read_tokens=161),
            Usage(7, 3, cache_read_tokens=7, extra={"reported": {"cacheReadTokens": 161}}),
        ),
        (
            Usage(7, 3, cache_read_tokens=5, cache_write_tokens=4, extra={"x": 1}),
            Usage(7, 3, cache_read_tokens=5, cache_write_tokens=2, extra={"x": 1, "reported": {"cacheWriteTokens": 4}}),
        ),
        (
            Usage(7, 3, 9, reasoning_tokens=4),
            Usage(7, 3, 10, reasoning_tokens=3, extra={"reported": {"reasoningTokens": 4, "totalTokens": 9}}),
        ),
    ],
)
def test_inconsistent_counts_are_reduced_and_the_originals_kept(usage: Usage, expected: Usage) -> None:
    """D-3.4.8."""
    out = Emitter(provider=None, model_id="m", local_id="r")
    out.usage(usage)
    assert out.take()[-1] == expected
