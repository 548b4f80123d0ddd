"""Decoding Gemini's streamGenerateContent, one rule at a time, with small hand-made streams."""

import base64
import json
from typing import Any

import pytest

from bartack.formats.gemini_generate.decode import GeminiGenerate
from bartack.nouns.deltas import Delta, Done, Failed, Start, TextDelta, ToolCallArgs, ToolCallEnd, ToolCallStart, Usage
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Message
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall
from tests.recordings.agreement import assembler_of, decoded

Json = dict[str, Any]
STOP: Json = {"candidates": [{"finishReason": "STOP"}]}
PNG = base64.b64encode(b"picture").decode()


def chunk(*parts: Json, **candidate: Any) -> Json:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, **candidate}]}


def deltas_of(*chunks: Json, **options: Any) -> list[Delta]:
    body = b"".join(json.dumps(event).encode() + b"\n" for event in chunks)
    return decoded(GeminiGenerate(framing="lines", **options), body)


def message_of(*parts: Json, reason: str = "STOP") -> Message:
    chunks = [chunk(part) for part in parts]
    return assembler_of(deltas_of(*chunks, {"candidates": [{"finishReason": reason}]})).build_final_message()


def data_of(part: Part) -> Json:
    assert part.continuation is not None
    return part.continuation.data


def failure_of(*chunks: Json) -> Failed:
    end = deltas_of(*chunks)[-1]
    assert isinstance(end, Failed)
    return end


def call_of(message: Message) -> ToolCall:
    [call] = message.tool_calls
    return call


# -- the stream


def test_a_stream_of_server_sent_events_becomes_deltas() -> None:
    first = {**chunk({"text": "Hel"}), "modelVersion": "gemini-x", "responseId": "r1"}
    body = "".join(f"data: {json.dumps(event)}\r\n\r\n" for event in (first, chunk({"text": "lo"}), STOP)).encode()
    assert decoded(GeminiGenerate(), body) == [
        Start("gemini-x", "r1", provider="gemini-generate"),
        TextDelta("Hel"),
        TextDelta("lo"),
        Done("stop", raw_finish_reason="STOP"),
    ]


def test_without_alt_sse_the_stream_is_one_json_array() -> None:
    body = json.dumps([chunk({"text": "hi"}), STOP], indent=2).encode()
    assert decoded(GeminiGenerate(framing="json-array"), body)[1:] == [
        TextDelta("hi"),
        Done("stop", raw_finish_reason="STOP"),
    ]


def test_a_stream_without_finish_reason_is_truncated() -> None:
    """D-3.5."""
    assert failure_of(chunk({"text": "half"})).error_code is ErrorCode.STREAM_TRUNCATED


def test_text_after_a_finish_reason_is_kept() -> None:
    deltas = deltas_of(chunk({"text": "a"}, finishReason="STOP"), chunk({"text": "b"}, finishReason="STOP"))
    assert [delta.text_delta for delta in deltas if isinstance(delta, TextDelta)] == ["a", "b"]


def test_done_and_garbage_after_the_finish_reason_are_ignored() -> None:
    body = b"".join(b"data: " + line + b"\n\n" for line in (b"[DONE]", json.dumps(STOP).encode(), b"garbage"))
    assert decoded(GeminiGenerate(), body)[-1] == Done("stop", raw_finish_reason="STOP")


def test_garbage_before_the_finish_reason_is_an_error() -> None:
    end = decoded(GeminiGenerate(), b"data: garbage\n\n")[-1]
    assert isinstance(end, Failed)
    assert end.error_code is ErrorCode.STREAM_MALFORMED


def test_nulls_and_unknown_fields_are_ignored() -> None:
    odd: Json = {"candidates": [{"content": None, "finishReason": None, "new": 1}], "usageMetadata": None, "x": {}}
    assert deltas_of(odd, chunk({"text": None}), STOP)[1:] == [Done("stop", raw_finish_reason="STOP")]


def test_only_the_first_candidate_is_read() -> None:
    event: Json = {"candidates": [{"index": 1, "content": {"parts": [{"text": "no"}]}}, {"finishReason": "STOP"}]}
    assert not [delta for delta in deltas_of(event) if isinstance(delta, TextDelta)]


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("SPII", "content_filter"),
        ("IMAGE_SAFETY", "content_filter"),
        ("LANGUAGE", "other"),
        ("MALFORMED_FUNCTION_CALL", "other"),
        ("UNEXPECTED_TOOL_CALL", "other"),
        ("INVENTED_LATER", "other"),
        (1, "stop"),
        (2, "length"),
        (9, "other"),
    ],
)
def test_finish_reasons_map_to_ours(word: str | int, reason: str) -> None:
    """D-3.4.5."""
    assert deltas_of({"candidates": [{"finishReason": word}]})[-1] == Done(reason, raw_finish_reason=str(word))  # type: ignore[arg-type]


@pytest.mark.parametrize("word", [0, "FINISH_REASON_UNSPECIFIED"])
def test_an_unspecified_reason_is_not_a_terminal_signal(word: str | int) -> None:
    assert failure_of({"candidates": [{"finishReason": word}]}).error_code is ErrorCode.STREAM_TRUNCATED


def test_a_blocked_prompt_ends_with_content_filter() -> None:
    blocked: Json = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 7}}
    assert deltas_of({"promptFeedback": {}}, blocked)[1:] == [
        Usage(7, 0),
        Done("content_filter", raw_finish_reason="PROHIBITED_CONTENT"),
    ]


# -- errors


def test_an_error_inside_the_stream_ends_it() -> None:
    error = {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}
    end = failure_of(chunk({"text": "a"}), {"error": error})
    assert end == Failed(
        ErrorCode.OVERLOADED, "The model is overloaded.", retryable=True, status=503, raw_code="UNAVAILABLE"
    )


def test_an_error_may_be_an_element_of_the_array() -> None:
    body = json.dumps([{"error": {"code": 400, "message": "bad", "status": "INVALID_ARGUMENT"}}]).encode()
    end = decoded(GeminiGenerate(framing="json-array"), body)[-1]
    assert isinstance(end, Failed)
    assert end.error_code is ErrorCode.INVALID_REQUEST


def test_an_error_has_its_retry_delay() -> None:
    details = ["?", {"@type": "QuotaFailure"}, {"@type": "RetryInfo", "retryDelay": "34.5s"}]
    end = failure_of({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "wait", "details": details}})
    assert (end.error_code, end.retry_after_ms) == (ErrorCode.RATE_LIMITED, 34500)


@pytest.mark.parametrize(
    ("error", "message"),
    [("went wrong", "went wrong"), ({"status": "INTERNAL"}, "INTERNAL"), ({"code": 500}, "reason")],
)
def test_an_error_without_details_is_an_error(error: Any, message: str) -> None:
    assert message in failure_of({"error": error}).message


def test_usage_is_emitted_before_an_error() -> None:
    """D-3.5.2: what was billed is kept."""
    counts = [{"usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": count}} for count in (1, 2, 3)]
    deltas = deltas_of(*counts, {"error": "gone"})
    assert [delta for delta in deltas if isinstance(delta, Usage)] == [Usage(5, 1), Usage(5, 3)]


# -- usage


def test_usage_includes_cached_and_tool_tokens_in_the_input_and_thoughts_in_the_output() -> None:
    """D-3.4.2."""
    counts = {
        "promptTokenCount": 100,
        "toolUsePromptTokenCount": 20,
        "cachedContentTokenCount": 60,
        "candidatesTokenCount": 10,
        "thoughtsTokenCount": 5,
    }
    usage = Usage(120, 15, cache_read_tokens=60, reasoning_tokens=5)
    assert usage in deltas_of({**STOP, "usageMetadata": counts})


def test_the_last_counts_replace_all_earlier_ones() -> None:
    first = {"usageMetadata": {"promptTokenCount": 5, "thoughtsTokenCount": 9}}
    last = {**STOP, "usageMetadata": {"promptTokenCount": 40, "candidatesTokenCount": 3}}
    assert [delta for delta in deltas_of(first, last) if isinstance(delta, Usage)][-1] == Usage(40, 3)


def test_counts_without_a_prompt_count_give_no_usage() -> None:
    """D-3.4.3: early chunks of Vertex AI have only a traffic type."""
    assert not [d for d in deltas_of({**STOP, "usageMetadata": {"trafficType": "ON_DEMAND"}}) if isinstance(d, Usage)]


# -- text, thoughts and signatures


def test_thoughts_are_marked_as_geminis_own() -> None:
    message = message_of({"text": "hm", "thought": True}, {"text": "m", "thought": True}, {"text": "hi"})
    assert [type(part) for part in message.parts] == [Thinking, Text]
    assert (message.thinking, message.text) == ("hmm", "hi")
    assert data_of(message.parts[0]) == {"thought": True}


def test_an_empty_thought_is_ignored() -> None:
    assert message_of({"text": "", "thought": True}).parts == ()


def test_a_part_with_a_signature_stays_separate() -> None:
    """D-3.9: Gemini requires the signature back on the part it came with."""
    message = message_of({"text": "a"}, {"text": "b", "thoughtSignature": "s1"}, {"text": "c"}, {"text": "d"})
    assert [part.text for part in message.parts if isinstance(part, Text)] == ["a", "b", "cd"]
    assert data_of(message.parts[1]) == {"thoughtSignature": "s1"}
    assert message.parts[0].continuation is message.parts[2].continuation is None


def test_an_empty_part_may_carry_the_signature() -> None:
    message = message_of({"text": "a"}, {"text": "", "thoughtSignature": "s1"})
    assert [part.text for part in message.parts if isinstance(part, Text)] == ["a", ""]
    assert data_of(message.parts[1]) == {"thoughtSignature": "s1"}


def test_a_signature_without_text_is_kept() -> None:
    [part] = message_of({"thoughtSignature": "s1"}).parts
    assert (part.kind, data_of(part)) == ("text", {"thoughtSignature": "s1"})


def test_signed_thoughts_are_separate_parts() -> None:
    first, second = message_of(
        {"text": "a", "thought": True, "thoughtSignature": "s1"},
        {"text": "b", "thought": True, "thoughtSignature": "s2"},
    ).parts
    assert data_of(first) == {"thought": True, "thoughtSignature": "s1"}
    assert data_of(second) == {"thought": True, "thoughtSignature": "s2"}


def test_grounding_belongs_to_the_text_before_the_signature() -> None:
    early = chunk({"text": "Paris"}, groundingMetadata={}, urlContextMetadata={"urlMetadata": [1]})
    late = chunk({"text": "", "thoughtSignature": "s"}, groundingMetadata={"groundingChunks": [2]}, finishReason="STOP")
    message = assembler_of(deltas_of(early, late)).build_final_message()
    assert data_of(message.parts[0]) == {
        "groundingMetadata": {"groundingChunks": [2]},
        "urlContextMetadata": {"urlMetadata": [1]},
    }
    assert data_of(message.parts[1]) == {"thoughtSignature": "s"}


def test_citations_belong_to_the_last_text() -> None:
    last = chunk({"text": "quoted"}, citationMetadata={"citationSources": []}, finishReason="STOP")
    [part] = assembler_of(deltas_of(last)).build_final_message().parts
    assert data_of(part) == {"citationMetadata": {"citationSources": []}}


def test_metadata_nested_too_deep_ends_the_stream() -> None:
    """D-3.11.2."""
    deep: Any = "x"
    for _ in range(80):
        deep = [deep]
    end = failure_of(chunk({"text": "a"}, groundingMetadata={"deep": deep}))
    assert end.error_code is ErrorCode.STREAM_TOO_LARGE


# -- calls of the client


def test_a_function_call_without_id_gets_a_local_one() -> None:
    """D-3.8.1."""
    call = call_of(message_of({"functionCall": {"name": "f", "args": {"a": 1.0}}, "thoughtSignature": "s"}))
    assert (call.tool_call_id, call.tool_name, call.arguments) == ("local-1", "f", {"a": 1.0})
    assert data_of(call) == {"thoughtSignature": "s"}


def test_a_function_call_with_id_keeps_it() -> None:
    call = call_of(message_of({"functionCall": {"name": "f", "id": "x7", "args": {}}}))
    assert (call.tool_call_id, data_of(call)) == ("x7", {"id": "x7"})


def test_a_repeated_call_id_is_replaced_and_kept() -> None:
    deltas = deltas_of(chunk({"functionCall": {"name": "f", "id": "x7"}}), STOP, used_call_ids=["x7"])
    call = call_of(assembler_of(deltas).build_final_message())
    assert call.tool_call_id == "local-1"
    assert data_of(call)["id"] == "x7"


def test_a_stop_with_function_calls_is_tool_calls() -> None:
    """D-3.4.7."""
    message = message_of({"functionCall": {"name": "f"}}, {"functionCall": {"name": "g", "args": None}})
    assert [call.arguments for call in message.tool_calls] == [{}, {}]
    assert message.meta is not None
    assert message.meta.finish_reason == "tool_calls"


def test_a_field_beside_a_call_that_is_not_utf8_is_left_out() -> None:
    part = {"functionCall": {"name": "f", "args": {}}, "newField": "?"}
    body = f"data: {json.dumps(chunk(part, finishReason='STOP'))}\n\n".encode().replace(b"?", b"\xff")
    message = assembler_of(decoded(GeminiGenerate(), body)).build_final_message()
    assert message.parts == (ToolCall("local-1", "f", {}),)


def test_arguments_that_are_not_utf8_end_the_stream() -> None:
    body = json.dumps(chunk({"functionCall": {"name": "f", "args": {"a": "?"}}})).encode().replace(b"?", b"\xff")
    end = decoded(GeminiGenerate(framing="lines"), body + b"\n")[-1]
    assert isinstance(end, Failed)
    assert end.error_code is ErrorCode.STREAM_MALFORMED


def streamed(*pieces: Json, **fields: Any) -> Json:
    return {"functionCall": {"partialArgs": list(pieces), **fields}}


def test_streamed_arguments_are_emitted_as_they_arrive() -> None:
    deltas = deltas_of(
        chunk({"functionCall": {"name": "f", "willContinue": True}, "thoughtSignature": "s"}),
        chunk(streamed({"jsonPath": "$.city", "stringValue": "Par", "willContinue": True}, willContinue=True)),
        chunk(streamed({"jsonPath": "$.city", "stringValue": "is"}, willContinue=True)),
        chunk({"functionCall": {"willContinue": True}}),
        chunk(streamed({"jsonPath": "$.days[0]", "numberValue": 3}, willContinue=True)),
        chunk({"functionCall": {}}),
        chunk({"functionCall": {}}),
        STOP,
    )
    pieces = [delta.args_text_delta for delta in deltas if isinstance(delta, ToolCallArgs)]
    assert pieces == ['{"city":"Par', 'is"', ',"days":[3', "]}"]


def test_the_last_piece_may_end_the_call() -> None:
    start: Json = {"functionCall": {"name": "f", "willContinue": True}}
    call = call_of(message_of(start, {**streamed({"jsonPath": "$.a", "boolValue": True}), "thoughtSignature": "s"}))
    assert (call.arguments, data_of(call)) == ({"a": True}, {"thoughtSignature": "s"})


def test_the_next_call_and_the_stop_end_a_streamed_call() -> None:
    start: Json = {"functionCall": {"name": "f", "willContinue": True}}
    piece = streamed({"jsonPath": "$.a", "stringValue": "x", "willContinue": True}, willContinue=True)
    message = message_of(start, piece, start, piece)
    assert [call.arguments for call in message.tool_calls] == [{"a": "x"}, {"a": "x"}]


def test_truncated_arguments_stay_incomplete() -> None:
    """D-3.3.2."""
    start: Json = {"functionCall": {"name": "f", "willContinue": True}}
    piece = streamed({"jsonPath": "$.a", "stringValue": "x", "willContinue": True}, willContinue=True)
    call = call_of(message_of(start, piece, reason="MAX_TOKENS"))
    assert call.raw_args_text == '{"a":"x'


def test_streamed_arguments_out_of_order_end_the_stream() -> None:
    start: Json = {"functionCall": {"name": "f", "willContinue": True}}
    end = failure_of(chunk(start, streamed({"jsonPath": "$.a[3]", "numberValue": 1}), {"text": "not deltas"}))
    assert end.error_code is ErrorCode.STREAM_MALFORMED


# -- calls of the provider


def test_executed_code_is_a_provider_call_with_its_result() -> None:
    """D-3.10."""
    code: Json = {"executableCode": {"language": "PYTHON", "code": "1+1", "id": "c1"}, "thoughtSignature": "s"}
    result: Json = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2\n", "id": "c1"}}
    message = message_of(code, {"text": ""}, result, {"text": "Two."})
    call = call_of(message)
    assert (call.tool_call_id, call.tool_name, call.executed_by) == ("c1", "code_execution", "provider")
    assert call.arguments == {"language": "PYTHON", "code": "1+1"}
    assert call.result is not None
    assert (call.result.content, call.result.is_error) == ("2\n", False)
    assert data_of(call) == {"part": code, "resultPart": result}
    assert message.meta is not None
    assert message.meta.finish_reason == "stop"


def test_failed_code_is_an_error_result() -> None:
    call = call_of(
        message_of({"executableCode": {"code": "!"}}, {"codeExecutionResult": {"outcome": "OUTCOME_FAILED"}})
    )
    assert call.result is not None
    assert (call.result.content, call.result.is_error) == ("", True)


def test_code_without_a_result_is_closed() -> None:
    call = call_of(message_of({"executableCode": {"code": "1"}}, {"text": "One."}))
    assert call.result is None


def test_a_provider_tool_is_named_after_its_type() -> None:
    search: Json = {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["q"]}, "id": "t1"}}
    file_search: Json = {"toolCall": {"toolType": "FILE_SEARCH", "id": "t2"}}
    answers = [
        {"toolResponse": {"id": name, "response": {"of": name}}, "thoughtSignature": name} for name in ("t2", "t1")
    ]
    message = message_of(search, file_search, *answers)
    assert [(call.tool_name, call.arguments) for call in message.tool_calls] == [
        ("GOOGLE_SEARCH_WEB", {"queries": ["q"]}),
        ("FILE_SEARCH", {}),
    ]
    assert [call.result.content for call in message.tool_calls if call.result is not None] == [
        {"of": "t1"},
        {"of": "t2"},
    ]
    assert data_of(message.tool_calls[0])["resultPart"] == answers[1]


def test_a_result_without_its_call_is_kept_as_a_call() -> None:
    call = call_of(message_of({"codeExecutionResult": {"outcome": 1, "output": "x"}}))
    assert (call.tool_name, call.executed_by) == ("code_execution", "provider")
    assert call.result is not None
    assert call.result.content == "x"


@pytest.mark.parametrize("kind", ["toolCall", "toolResponse", "inlineData"])
def test_a_part_nested_too_deep_ends_the_stream(kind: str) -> None:
    deep: Any = {}
    for _ in range(80):
        deep = {"x": deep}
    end = failure_of(chunk({kind: {"mimeType": "image/png", "data": PNG, "deep": deep}}))
    assert end.error_code is ErrorCode.STREAM_TOO_LARGE


def test_a_generated_image_is_the_result_of_a_provider_call() -> None:
    call = call_of(message_of({"inlineData": {"mimeType": "image/png", "data": PNG}, "thoughtSignature": "s"}))
    assert (call.tool_name, call.executed_by) == ("image_output", "provider")
    assert call.result is not None
    assert call.result.content == (Image("image/png", data=b"picture"),)
    assert data_of(call) == {"part": {"inlineData": {"mimeType": "image/png"}, "thoughtSignature": "s"}}


def test_generated_audio_and_files_are_provider_calls() -> None:
    sound: Json = {"inlineData": {"mimeType": "audio/L16;rate=24000", "data": PNG.replace("=", "")}}
    message = message_of(sound, {"fileData": {"fileUri": "gs://b/v.mp4", "mimeType": "video/mp4"}})
    results = [call.result.content for call in message.tool_calls if call.result is not None]
    assert [call.tool_name for call in message.tool_calls] == ["audio_output", "video_output"]
    assert results == [
        (FileRef("audio_output", mime_type="audio/L16;rate=24000", data=b"picture"),),
        (FileRef("video_output", mime_type="video/mp4", url="gs://b/v.mp4"),),
    ]


@pytest.mark.parametrize("data", ["no base64!", ""])
def test_invalid_media_end_the_stream(data: str) -> None:
    end = failure_of(chunk({"inlineData": {"mimeType": "image/png", "data": data}}))
    assert end.error_code is ErrorCode.STREAM_MALFORMED


def test_calls_close_before_the_end() -> None:
    deltas = deltas_of(chunk({"functionCall": {"name": "f"}}, {"executableCode": {"code": "1"}}), STOP)
    assert [type(delta) for delta in deltas[1:]] == [
        ToolCallStart,
        ToolCallEnd,
        ToolCallStart,
        ToolCallArgs,
        ToolCallEnd,
        Done,
    ]
