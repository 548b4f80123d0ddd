"""Decoding Bedrock's InvokeModel stream: the frames, the models' own formats inside them, and plain text."""

import json
from base64 import b64encode
from typing import Any

import pytest

from bartack.formats.bedrock_invoke import BedrockInvoke, TextCompletions
from bartack.nouns.deltas import Delta, Done, Failed, TextDelta, Usage
from bartack.nouns.errors import ErrorCode
from tests.formats.framing.framing_bytes import aws_message
from tests.recordings.agreement import assembler_of, decoded

Json = dict[str, Any]


def frame(payload: bytes, kind: str = "event", name: str = "chunk") -> bytes:
    key = {"event": ":event-type", "exception": ":exception-type", "error": ":error-code"}[kind]
    return aws_message({":message-type": kind, key: name}, payload)


def chunk(event: Json | bytes) -> bytes:
    payload = event if isinstance(event, bytes) else json.dumps(event).encode()
    return frame(json.dumps({"bytes": b64encode(payload).decode(), "p": "abcd"}).encode())


def deltas_of(*events: Json | bytes, ending: bytes = b"") -> list[Delta]:
    return decoded(BedrockInvoke(model_id="m"), b"".join(map(chunk, events)) + ending)


def fault_of(*events: Json | bytes, ending: bytes = b"") -> Failed:
    last = deltas_of(*events, ending=ending)[-1]
    assert isinstance(last, Failed)
    return last


CLAUDE: list[Json] = [
    {"type": "message_start", "message": {"id": "m1", "model": "claude-x", "usage": {"input_tokens": 3}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hi"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 130}},
    {"type": "message_stop", "amazon-bedrock-invocationMetrics": {"inputTokenCount": 3, "outputTokenCount": 98}},
]


def test_claude_sends_messages_events_inside_the_frames() -> None:
    """The model's own usage holds, not Bedrock's count."""
    deltas = deltas_of(*CLAUDE)
    assert deltas[2:] == [TextDelta("Hi"), Usage(3, 130), Done("stop", raw_finish_reason="end_turn")]
    assert deltas[0].kind == "start"


def test_continuation_data_belongs_to_the_given_provider() -> None:
    decoder = BedrockInvoke(provider="bedrock")
    start = decoded(decoder, chunk(CLAUDE[0]))[0]
    assert getattr(start, "provider", None) == "bedrock"


def test_payloads_recorded_without_frames_are_decoded() -> None:
    lines = b"\n".join(json.dumps(event).encode() for event in CLAUDE)
    assert decoded(BedrockInvoke(framing="lines"), lines) == deltas_of(*CLAUDE)
    assert (
        decoded(BedrockInvoke(framing="lines"), b'{"outputText": "a", "completionReason": "FINISH"}')[-1].kind == "done"
    )


def test_a_truncated_stream_is_an_error() -> None:
    """D-3.5."""
    for events in ([], CLAUDE[:-1]):
        assert fault_of(*events).error_code is ErrorCode.STREAM_TRUNCATED


def test_an_exception_frame_ends_the_stream() -> None:
    """001-4.1.12."""
    body = frame(json.dumps({"message": "slow down"}).encode(), "exception", "throttlingException")
    fault = fault_of(*CLAUDE[:2], ending=body + chunk(CLAUDE[2]))
    assert (fault.error_code, fault.message, fault.raw_code) == (
        ErrorCode.RATE_LIMITED,
        "slow down",
        "throttlingException",
    )


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b'{"originalMessage": "bad gateway", "originalStatusCode": 502}', "bad gateway"),
        (b'{"Message": "no"}', "no"),
        (b"", "The stream ended with modelStreamErrorException."),
    ],
)
def test_an_exception_has_the_best_message_available(payload: bytes, message: str) -> None:
    fault = fault_of(ending=frame(payload, "exception", "modelStreamErrorException"))
    assert (fault.error_code, fault.message) == (ErrorCode.SERVER_ERROR, message)


def test_other_frames_and_chunks_without_content_are_ignored() -> None:
    odd = frame(b"{}", name="telemetry") + frame(b"not json", name="telemetry") + frame(b"{}")
    deltas = decoded(BedrockInvoke(), odd + chunk({"amazon-bedrock-trace": {}}) + b"".join(map(chunk, CLAUDE)))
    assert deltas[-1].kind == "done"


def test_an_invalid_chunk_is_malformed() -> None:
    assert fault_of(b"{oops").error_code is ErrorCode.STREAM_MALFORMED
    assert fault_of(ending=frame(b"oops")).error_code is ErrorCode.STREAM_MALFORMED


def test_the_text_blocks_of_nova_are_joined() -> None:
    deltas = deltas_of(
        {"messageStart": {"role": "assistant"}},
        {"contentBlockDelta": {"delta": {"text": "a"}, "contentBlockIndex": 0}},
        {"contentBlockStop": {"contentBlockIndex": 0}},
        {"contentBlockDelta": {"delta": {"text": "b"}, "contentBlockIndex": 1}},
        {"contentBlockStop": {"contentBlockIndex": 1}},
        {"messageStop": {"stopReason": "end_turn"}},
        {"metadata": {"usage": {"inputTokens": 5, "outputTokens": 2, "cacheReadInputTokenCount": 1}}},
    )
    assert deltas[1:] == [
        TextDelta("a"),
        TextDelta("b"),
        Usage(6, 2, cache_read_tokens=1),
        Done("stop", raw_finish_reason="end_turn"),
    ]


def test_chat_completions_models_are_decoded() -> None:
    deltas = deltas_of(
        {"id": "c", "model": "gpt-oss", "choices": [{"index": 0, "delta": {"content": "Hi"}}]},
        {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    )
    assert deltas[1:] == [TextDelta("Hi"), Done("stop", raw_finish_reason="stop")]


METRICS = {"amazon-bedrock-invocationMetrics": {"inputTokenCount": 4, "outputTokenCount": 2}}


@pytest.mark.parametrize(
    ("family", "events", "raw", "usage"),
    [
        (
            "titan",
            [
                {"outputText": "a", "inputTextTokenCount": 28.0},
                {"outputText": "b", "completionReason": "FINISH", "totalOutputTextTokenCount": 3.0},
            ],
            "FINISH",
            Usage(28, 3),
        ),
        (
            "llama",
            [
                {"generation": "a", "prompt_token_count": 9, "generation_token_count": 1},
                {"generation": "b", "generation_token_count": 2, "stop_reason": "stop", **METRICS},
            ],
            "stop",
            Usage(9, 2),
        ),
        (
            "mistral",
            [{"outputs": [{"text": "a"}]}, {"outputs": [{"text": "b", "stop_reason": "stop"}], **METRICS}],
            "stop",
            Usage(4, 2),
        ),
        (
            "mistral chat",
            [
                {"choices": [{"index": 0, "message": {"role": "assistant", "content": "a"}}]},
                {"choices": [{"index": 0, "message": {"content": "b"}, "stop_reason": "stop"}], **METRICS},
            ],
            "stop",
            Usage(4, 2),
        ),
        (
            "deepseek",
            [{"choices": [{"text": "a"}]}, {"choices": [{"text": "b", "stop_reason": "stop"}]}, METRICS],
            "stop",
            Usage(4, 2),
        ),
        (
            "command r",
            [
                {"event_type": "text-generation", "text": "a", "is_finished": False},
                {"event_type": "text-generation", "text": "b", "is_finished": False},
                {"event_type": "stream-end", "finish_reason": "COMPLETE", "is_finished": True, **METRICS},
            ],
            "COMPLETE",
            Usage(4, 2),
        ),
        (
            "command",
            [{"generations": [{"text": "ab", "finish_reason": "COMPLETE"}], **METRICS}],
            "COMPLETE",
            Usage(4, 2),
        ),
        (
            "claude 2",
            [
                {"type": "completion", "completion": "a", "stop_reason": None},
                {"type": "completion", "completion": "b", "stop_reason": "stop_sequence", **METRICS},
            ],
            "stop_sequence",
            Usage(4, 2),
        ),
    ],
)
def test_plain_text_of_every_family_is_decoded(family: str, events: list[Json], raw: str, usage: Usage) -> None:
    deltas = deltas_of(*events)
    message = assembler_of(deltas).build_final_message()
    assert message.text == "ab", family
    assert message.meta is not None
    assert message.meta.usage == usage
    assert deltas[-1] == Done("stop", raw_finish_reason=raw)


@pytest.mark.parametrize(
    ("word", "reason"),
    [("LENGTH", "length"), ("CONTENT_FILTERED", "content_filter"), ("MAX_TOKENS", "length"), ("ODD", "other")],
)
def test_stop_reasons_are_compared_without_case(word: str, reason: Any) -> None:
    assert deltas_of({"outputText": "a", "completionReason": word})[-1] == Done(reason, raw_finish_reason=word)


def test_a_blocked_request_ends_without_a_stop_reason() -> None:
    blocked = {"outputText": "Blocked", "totalOutputTextTokenCount": 3, "amazon-bedrock-guardrailAction": "INTERVENED"}
    assert deltas_of(blocked)[-1] == Done("content_filter", raw_finish_reason="INTERVENED")
    masked = {**blocked, "completionReason": "FINISH"}
    assert deltas_of(masked)[-1] == Done("stop", raw_finish_reason="FINISH")
    del blocked["totalOutputTextTokenCount"]
    assert fault_of(blocked).error_code is ErrorCode.STREAM_TRUNCATED


def test_calls_of_plain_text_models_arrive_whole() -> None:
    mistral = {"id": "t", "function": {"name": "f", "arguments": '{"a":1}'}}
    deltas = deltas_of(
        {"choices": [{"message": {"content": "", "tool_calls": [mistral]}, "stop_reason": "tool_calls"}]},
        {"tool_calls": [{"name": "g", "parameters": {"b": 2}}, {"name": "h"}]},
    )
    message = assembler_of(deltas).build_final_message()
    assert [(call.tool_name, call.arguments) for call in message.tool_calls] == [
        ("f", {"a": 1}),
        ("g", {"b": 2}),
        ("h", {}),
    ]
    assert deltas[-1] == Done("tool_calls", raw_finish_reason="tool_calls")


def test_a_chunk_with_an_error_message_is_an_error() -> None:
    assert fault_of({"message": "too many tokens"}).message == "too many tokens"


def test_a_truncated_text_completion_is_an_error() -> None:
    assert fault_of({"generation": "a"}).error_code is ErrorCode.STREAM_TRUNCATED


def test_malformed_choices_are_an_error() -> None:
    assert fault_of({"choices": 3}).error_code is ErrorCode.STREAM_MALFORMED


def test_text_completions_decode_plain_lines() -> None:
    assert decoded(TextCompletions(), b'{"generation": "a", "stop_reason": "length"}')[-1].kind == "done"


def test_of_several_generations_only_the_first_is_read() -> None:
    deltas = deltas_of(
        {"index": 0, "text": "A", "is_finished": False},
        {"index": 1, "text": "X", "is_finished": False},
        {"index": 1, "is_finished": True, "finish_reason": "MAX_TOKENS"},
        {"index": 0, "text": "B", "is_finished": False},
        {"index": 0, "is_finished": True, "finish_reason": "COMPLETE"},
    )
    assert assembler_of(deltas).build_final_message().text == "AB"
    assert isinstance(deltas[-1], Done)
    assert deltas[-1].raw_finish_reason == "COMPLETE"
