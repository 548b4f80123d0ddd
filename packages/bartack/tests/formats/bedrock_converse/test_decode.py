"""Decoding Bedrock's ConverseStream, one rule at a time, with small hand-made streams."""

import json
from base64 import b64encode
from typing import Any

import pytest

from bartack.formats import emitter
from bartack.formats.bedrock_converse.decode import BedrockConverse
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
from bartack.nouns.parts import Image, Text, Thinking
from tests.formats.framing.framing_bytes import aws_message
from tests.recordings.agreement import assembler_of, decoded

Event = tuple[str, dict[str, Any]]

START: Event = ("messageStart", {"role": "assistant", "p": "abc"})
STOP: Event = ("messageStop", {"stopReason": "end_turn"})
DONE = Done("stop", raw_finish_reason="end_turn")


def frame(name: str, payload: Any, kind: str = "event") -> bytes:
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return aws_message({f":{kind}-type": name, ":content-type": "application/json", ":message-type": kind}, data)


def body(*events: Event) -> bytes:
    return b"".join(frame(name, payload) for name, payload in events)


def read(*events: Event) -> list[Delta]:
    return decoded(BedrockConverse(model_id="m"), body(*events))


def failure(data: bytes, **options: Any) -> Failed:
    end = decoded(BedrockConverse(**options), data)[-1]
    assert isinstance(end, Failed)
    return end


def delta(index: int | None, **pieces: Any) -> Event:
    return "contentBlockDelta", {"contentBlockIndex": index, "delta": pieces}


def text(index: int, piece: str) -> Event:
    return delta(index, text=piece)


def reasoning(index: int, **piece: str) -> Event:
    return delta(index, reasoningContent=piece)


def arguments(index: int, piece: str | None) -> Event:
    return delta(index, toolUse={"input": piece})


def begin(index: int, **start: Any) -> Event:
    return "contentBlockStart", {"contentBlockIndex": index, "start": start}


def begin_call(index: int, tool_id: str | None = "t1", **fields: str) -> Event:
    return begin(index, toolUse={"toolUseId": tool_id, "name": "add", **fields})


def end(index: int) -> Event:
    return "contentBlockStop", {"contentBlockIndex": index}


# -- the message


def test_text_needs_no_start_and_usage_follows_the_stop() -> None:
    """D-3.4.4: `done` waits for it."""
    usage = ("metadata", {"usage": {"inputTokens": 5, "outputTokens": 2, "totalTokens": 7}, "metrics": {}})
    assert read(START, text(0, "Hel"), text(0, "lo"), end(0), STOP, usage) == [
        Start("m", "local", provider="bedrock-converse"),
        TextDelta("Hel"),
        TextDelta("lo"),
        Usage(5, 2),
        DONE,
    ]


def test_cached_tokens_are_added_to_the_input() -> None:
    """D-3.4.2."""
    counts = {"inputTokens": 3, "outputTokens": 121, "cacheReadInputTokens": 1712, "cacheWriteInputTokens": 236}
    expected = Usage(1951, 121, cache_read_tokens=1712, cache_write_tokens=236)
    assert expected in read(STOP, ("metadata", {"usage": counts}))
    invoked = {"inputTokens": 3.0, "cacheReadInputTokenCount": 1, "cacheWriteInputTokenCount": -1}
    assert Usage(4, 0, cache_read_tokens=1) in read(STOP, ("metadata", {"usage": invoked}))


def test_metadata_before_the_stop_does_not_end_the_stream() -> None:
    deltas = read(START, ("metadata", {"usage": {}}), text(0, "Hi"), STOP, ("metadata", {}))
    assert deltas[1:] == [Usage(0, 0), TextDelta("Hi"), DONE]


def test_the_end_of_the_bytes_replaces_missing_metadata() -> None:
    assert read(START, text(0, "Hi"), STOP)[-1] == DONE


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop_sequence", "stop"),
        ("tool_use", "tool_calls"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("guardrail_intervened", "content_filter"),
        ("content_filtered", "content_filter"),
        ("malformed_model_output", "other"),
        ("malformed_tool_use", "other"),
        (None, "other"),
    ],
)
def test_stop_reasons_map_to_finish_reasons(reason: str | None, finish: str) -> None:
    last = read(START, ("messageStop", {"stopReason": reason}))[-1]
    assert last == Done(finish, raw_finish_reason=reason)  # type: ignore[arg-type]


def test_a_truncated_stream_is_an_error_that_keeps_what_arrived() -> None:
    """D-3.5."""
    deltas = read(START, reasoning(0, text="Hm."), reasoning(0, signature="sig"))
    assert deltas[1:3] == [
        ThinkingDelta("Hm."),
        ThinkingDelta("", continuation={"reasoningText": {"signature": "sig"}}),
    ]
    assert isinstance(deltas[-1], Failed)
    assert deltas[-1].error_code is ErrorCode.STREAM_TRUNCATED


def test_events_without_content_are_ignored() -> None:
    odd: list[Event] = [
        ("brandNew", {"delta": 7}),
        ("contentBlockDelta", {}),
        ("contentBlockStart", {"contentBlockIndex": 0}),
        begin(0),
        delta(0),
        arguments(3, "{}"),
        end(9),
    ]
    assert read(START, *odd, delta(None, text="Hi"), ("unknown", {}), STOP)[1:] == [TextDelta("Hi"), DONE]


def test_garbage_after_the_stop_is_ignored_and_before_it_is_an_error() -> None:
    garbage = frame("metadata", b"nonsense")
    assert decoded(BedrockConverse(), body(START, STOP) + garbage)[-1] == DONE
    assert failure(body(START) + garbage).error_code is ErrorCode.STREAM_MALFORMED
    assert failure(b'{"nonsense"\n', framing="lines").error_code is ErrorCode.STREAM_MALFORMED


# -- recordings without frames, and errors


def test_events_may_be_wrapped_in_their_names() -> None:
    lines = [START, begin_call(0), arguments(0, "{}"), end(0), text(1, "Hi"), STOP, ("metadata", {"usage": {}})]
    data = b"".join(json.dumps({name: payload, "other": 1}).encode() + b"\n" for name, payload in lines)
    assert decoded(BedrockConverse(model_id="m", framing="lines"), data) == read(*lines)
    assert decoded(BedrockConverse(model_id="m", framing="lines"), b'{"brandNew": {}}\n' + data) == read(*lines)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("throttlingException", ErrorCode.RATE_LIMITED),
        ("modelStreamErrorException", ErrorCode.SERVER_ERROR),
        ("validationException", ErrorCode.INVALID_REQUEST),
        ("serviceUnavailableException", ErrorCode.OVERLOADED),
    ],
)
def test_an_exception_ends_the_stream(name: str, code: ErrorCode) -> None:
    payload = {"message": "no more"}
    framed = failure(body(START, text(0, "Hi")) + frame(name, payload, "exception"))
    assert (framed.error_code, framed.message, framed.raw_code) == (code, "no more", name)
    assert failure(json.dumps({name: payload}).encode() + b"\n", framing="lines") == framed


def test_an_exception_after_the_stop_is_still_an_error() -> None:
    """A stop reason does not hide it."""
    assert failure(body(START, STOP) + frame("internalServerException", {}, "exception")).message == (
        "The stream ended with internalServerException."
    )


def test_an_exception_may_have_the_message_of_the_model() -> None:
    payload = {"originalMessage": "too hot", "originalStatusCode": 500}
    last = failure(body(START) + frame("modelStreamErrorException", payload, "exception"))
    assert (last.message, last.status) == ("too hot", 500)


def test_the_message_of_an_error_frame_is_in_its_headers() -> None:
    headers = {":message-type": "error", ":error-code": "InternalError", ":error-message": "it broke"}
    last = failure(body(START) + aws_message(headers, b""))
    assert (last.message, last.raw_code) == ("it broke", "InternalError")


def test_the_body_of_an_http_error_is_an_error() -> None:
    last = failure(b'{"message": "The security token is invalid"}\n', framing="lines")
    assert (last.message, last.raw_code) == ("The security token is invalid", None)


# -- text and reasoning


def test_blocks_of_one_kind_become_separate_parts() -> None:
    """D-3.2.1, also if the second begins with an empty delta."""
    deltas = read(START, text(0, "a"), end(0), text(1, ""), text(1, "b"), end(1), reasoning(2, text="c"), end(2), STOP)
    assert deltas[2] == TextDelta("b", new_part=True)
    assert [part.text for part in assembler_of(deltas).parts if isinstance(part, Text | Thinking)] == ["a", "b", "c"]


def test_a_signature_in_pieces_stays_with_its_block() -> None:
    deltas = read(
        START,
        reasoning(0, text="one"),
        reasoning(0, signature="si"),
        reasoning(0, signature="g1"),
        end(0),
        reasoning(1, signature="sig2"),
        end(1),
        STOP,
    )
    assert deltas[1:4] == [
        ThinkingDelta("one"),
        ThinkingDelta("", continuation={"reasoningText": {"signature": "sig1"}}),
        ThinkingDelta("", new_part=True, continuation={"reasoningText": {"signature": "sig2"}}),
    ]


def test_reasoning_without_a_signature_is_marked_as_bedrocks_own() -> None:
    assert read(START, reasoning(0, text="Hm."), STOP)[1:3] == [
        ThinkingDelta("Hm."),
        ThinkingDelta("", continuation={"reasoningText": {}}),
    ]


def test_redacted_reasoning_is_kept_unchanged() -> None:
    """D-3.9.1; bytes in pieces become one base64 string."""
    first, second = b64encode(b"first").decode(), b64encode(b"second").decode()
    joined = b64encode(b"firstsecond").decode()
    assert _redacted(first) == first
    assert _redacted(first, second) == joined
    assert _redacted("not base64!", second) == f"not base64!{second}"


def _redacted(*pieces: str) -> str:
    deltas = read(START, *(reasoning(0, redactedContent=piece) for piece in pieces), end(0), STOP)
    assert isinstance(deltas[1], ThinkingDelta)
    assert deltas[1].continuation is not None
    redacted = deltas[1].continuation["redactedContent"]
    assert isinstance(redacted, str)
    return redacted


def test_citations_are_attached_to_the_last_delta_of_their_text() -> None:
    citation = {"title": "t", "location": {"documentPage": {"documentIndex": 0, "start": 1, "end": 2}}}
    assert read(START, text(0, "Hi"), delta(0, citation=citation), end(0), STOP)[1:3] == [
        TextDelta("Hi"),
        TextDelta("", continuation={"citations": [citation]}),
    ]


# -- calls


def test_a_client_call() -> None:
    deltas = read(START, text(0, "Hi"), end(0), begin_call(1), arguments(1, '{"a"'), arguments(1, ":1}"), end(1), STOP)
    assert deltas[2:] == [
        ToolCallStart("t1", "add"),
        ToolCallArgs("t1", '{"a"'),
        ToolCallArgs("t1", ":1}"),
        ToolCallEnd("t1"),
        Done("tool_calls", raw_finish_reason="end_turn"),
    ]


def test_a_call_without_id_name_and_arguments_is_kept() -> None:
    deltas = read(START, begin(0, toolUse={}), arguments(0, None), end(0), STOP)
    assert deltas[1:3] == [ToolCallStart("local-1", ""), ToolCallEnd("local-1")]


def test_a_provider_call_holds_its_result() -> None:
    """D-3.10."""
    result = {"toolUseId": "t1", "status": "success", "type": "code_result"}
    deltas = read(
        START,
        begin_call(0, type="server_tool_use"),
        arguments(0, '{"code":"1+1"}'),
        end(0),
        begin(1, toolResult=result),
        delta(1, toolResult=[{"json": {"out": "2"}}]),
        end(1),
        STOP,
    )
    block = {**result, "content": [{"json": {"out": "2"}}]}
    assert deltas[1] == ToolCallStart("t1", "add", executed_by="provider", continuation={"type": "server_tool_use"})
    assert deltas[3] == ToolCallEnd("t1", result={"out": "2"}, continuation={"toolResult": block})
    assert deltas[-1] == DONE


@pytest.mark.parametrize(
    ("pieces", "result"),
    [
        ([[{"text": "a"}], [{"text": "b"}]], "ab"),
        ([[{"text": "a"}, {"json": [1]}]], (Text("a"), Text("[1]"))),
        ([[{"image": 1}]], '{"image":1}'),
        ([], ()),
    ],
)
def test_results_of_every_shape_are_readable(pieces: list[Any], result: Any) -> None:
    events = [begin_call(0, None, type="server_tool_use"), begin(1, toolResult={"status": "error"})]
    deltas = read(START, *events, *(delta(1, toolResult=piece) for piece in pieces), STOP)
    [ended] = [delta for delta in deltas if isinstance(delta, ToolCallEnd)]
    assert (ended.result, ended.result_is_error) == (result, True)


def test_a_result_without_its_call_is_carried() -> None:
    deltas = read(START, begin(0, toolResult={"toolUseId": "t0"}), delta(0, toolResult=None), end(0), STOP)
    block = {"toolResult": {"toolUseId": "t0", "content": []}}
    assert deltas[1] == ThinkingDelta("", continuation={"block": block})


def test_a_provider_call_without_a_result_is_closed() -> None:
    assert read(START, begin_call(0, type="server_tool_use"), end(0), STOP)[2] == ToolCallEnd("t1")


# -- images


def image_of(*pieces: dict[str, Any], ends: bool = True) -> ToolCallEnd:
    events = [begin(0, image={"format": "webp"}), *(delta(0, image=piece) for piece in pieces)]
    deltas = read(START, *events, *([end(0)] if ends else []), STOP)
    assert ToolCallStart("local-1", "image_output", executed_by="provider") in deltas
    assert deltas[-1] == DONE
    [ended] = [delta for delta in deltas if isinstance(delta, ToolCallEnd)]
    return ended


def test_a_generated_image_is_the_result_of_a_provider_call() -> None:
    halves = [{"source": {"bytes": b64encode(half).decode()}} for half in (b"one", b"two")]
    assert image_of(*halves).result == (Image("image/webp", data=b"onetwo"),)
    assert image_of(halves[0], {}, ends=False).result == (Image("image/webp", data=b"one"),)
    place = {"source": {"s3Location": {"uri": "s3://bucket/key"}}}
    assert image_of(place).result == (Image("image/webp", url="s3://bucket/key"),)


def test_a_failed_image_is_an_error_result() -> None:
    failed = image_of({"error": {"message": "too rude"}})
    assert (failed.result, failed.result_is_error) == ("too rude", True)
    assert image_of({"error": {}}).result == "the image could not be generated"
    assert image_of({"source": {"bytes": "?"}}).result == "the image is not valid base64"


# -- overlapping blocks


def test_overlapping_blocks_are_read_one_after_another() -> None:
    """D-3.2.2: arguments of an open call need not wait, everything else keeps its order."""
    deltas = read(
        START,
        begin_call(0),
        text(1, "a"),
        arguments(0, "{}"),
        text(2, "c"),
        begin_call(3, "t2"),
        arguments(3, "[]"),
        end(3),
        text(1, "b"),
        end(0),
        end(1),
        end(2),
        STOP,
    )
    assert deltas[1:] == [
        ToolCallStart("t1", "add"),
        TextDelta("a"),
        ToolCallArgs("t1", "{}"),
        TextDelta("b"),
        ToolCallEnd("t1"),
        TextDelta("c", new_part=True),
        ToolCallStart("t2", "add"),
        ToolCallArgs("t2", "[]"),
        ToolCallEnd("t2"),
        Done("tool_calls", raw_finish_reason="end_turn"),
    ]


def test_a_reused_index_is_another_block() -> None:
    """D-3.10: a result is matched with its call even if the call's index has been reused."""
    deltas = read(
        START,
        begin_call(0, "s1", type="server_tool_use"),
        begin(0, toolResult={"toolUseId": "s0"}),
        begin_call(0, "t1"),
        begin(0, image={}),
        begin(0, toolResult={"toolUseId": "s1"}),
        delta(0, toolResult=[{"text": "2"}]),
        STOP,
    )
    ended = [delta for delta in deltas if isinstance(delta, ToolCallEnd)]
    assert [(delta.tool_call_id, delta.result) for delta in ended] == [
        ("t1", None),
        ("local-1", (Image("image/png", data=b""),)),
        ("s1", "2"),
    ]


def test_blocks_without_a_stop_are_closed_at_the_end() -> None:
    deltas = read(START, text(0, "a"), text(1, "c"), text(0, "b"), begin_call(0), STOP)
    assert deltas[1:5] == [TextDelta("a"), TextDelta("b"), ToolCallStart("t1", "add"), TextDelta("c")]


# -- limits


def test_held_back_data_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """D-3.11.2."""
    monkeypatch.setattr(emitter, "LIMIT", 1000)
    signature = reasoning(0, signature="x" * 600)
    last = failure(body(START, signature, signature, STOP))
    assert last.error_code is ErrorCode.STREAM_TOO_LARGE


def test_nothing_follows_a_limit_reached_while_closing_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D-3.1."""
    monkeypatch.setattr(emitter, "LIMIT", 1000)
    late = reasoning(1, signature="x" * 300)  # counted while it waits, and again when it is read
    deltas = read(START, text(0, "a"), begin(5, toolResult={}), late, late, text(1, "b"), text(2, "c"), STOP)
    assert deltas[1] == TextDelta("a")
    assert isinstance(deltas[2], Failed)
    assert len(deltas) == 3


@pytest.mark.parametrize("where", ["citation", "result", "start", "image"])
def test_data_nested_too_deep_ends_the_stream(where: str) -> None:
    deep: Any = []
    for _ in range(100):
        deep = [deep]
    events = {
        "citation": [delta(0, citation={"x": deep})],
        "result": [begin(0, toolResult={}), delta(0, toolResult=[{"json": deep}])],
        "start": [begin(0, toolResult={"x": deep})],
        "image": [begin(0, image={}), delta(0, image={"error": {"message": deep}})],
    }
    assert failure(body(START, *events[where], STOP)).error_code is ErrorCode.STREAM_TOO_LARGE
