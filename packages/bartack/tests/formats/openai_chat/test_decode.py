"""Decoding Chat Completions, with small made-up streams for every rule and vendor."""

import json
from base64 import b64encode
from typing import Any

import pytest

from bartack.formats import ModelRequest, emitter
from bartack.formats import encode as encode_request
from bartack.formats.openai_chat import decode as chat_decode
from bartack.formats.openai_chat.decode import OpenAIChat
from bartack.nouns.config import ModelConfig
from bartack.nouns.deltas import Delta, Done, Failed, FinishReason, Start, TextDelta, ToolCallEnd, ToolCallStart, Usage
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Message, user
from bartack.nouns.parts import FileRef, Image, Text, Thinking, ToolCall
from bartack.nouns.wire import decode, encode
from tests.recordings.agreement import assembler_of, decoded

Json = dict[str, Any]
DONE = b"data: [DONE]\n\n"


def sse(*payloads: Json) -> bytes:
    return b"".join(f"data: {json.dumps(payload)}\n\n".encode() for payload in payloads)


def chunk(delta: Json | None = None, finish: str | None = None, **fields: Any) -> Json:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return {"id": "c1", "model": "m1", "object": "chat.completion.chunk", "choices": [choice], **fields}


def say(text: str) -> Json:
    return chunk({"content": text})


def call(
    index: int | None, name: str | None = None, arguments: Any = None, id: str | None = None, **fields: Any
) -> Json:
    piece: Json = {"function": {"name": name, "arguments": arguments}, **fields}
    if index is not None:
        piece["index"] = index
    if id is not None:
        piece["id"] = id
    return chunk({"tool_calls": [piece]})


STOP = chunk(finish="stop")


def deltas_of(*payloads: Json, tail: bytes = DONE, **options: Any) -> list[Delta]:
    return decoded(OpenAIChat(**options), sse(*payloads) + tail)


def message_of(*payloads: Json, tail: bytes = DONE) -> Message:
    return assembler_of(deltas_of(*payloads, tail=tail)).build_final_message()


def end_of(*payloads: Json, tail: bytes = DONE) -> Delta:
    return deltas_of(*payloads, tail=tail)[-1]


def failure_of(*payloads: Json, tail: bytes = DONE) -> Failed:
    end = end_of(*payloads, tail=tail)
    assert isinstance(end, Failed)
    return end


def usage_of(raw: Any, *chunks: Json) -> Usage | None:
    usages = [delta for delta in deltas_of(STOP, chunk(usage=raw), *chunks) if isinstance(delta, Usage)]
    return usages[-1] if usages else None


def data_of(part: Any) -> Json:
    assert part.continuation is not None
    data: Json = part.continuation.data
    return data


# -- text, start and end


def test_text_deltas_come_between_start_and_done() -> None:
    assert deltas_of(chunk({"role": "assistant", "content": ""}), say("Hel"), say("lo"), STOP) == [
        Start("m1", "c1", provider="openai-chat"),
        TextDelta("Hel"),
        TextDelta("lo"),
        Done("stop", raw_finish_reason="stop"),
    ]


def test_start_waits_for_the_chunk_that_has_an_id() -> None:
    """Azure's first chunk has only the results of its prompt filter."""
    opening = {"id": "", "model": "", "choices": [], "prompt_filter_results": []}
    assert deltas_of(opening, say("x"), STOP)[0] == Start("m1", "c1", provider="openai-chat")


def test_a_stream_without_ids_starts_with_the_ids_of_the_caller() -> None:
    """Snowflake sends empty ids and models in every chunk."""
    nameless = [{**event, "id": "", "model": ""} for event in (say("x"), STOP)]
    assert deltas_of(*nameless, model_id="m", local_id="l")[0] == Start("m", "l", provider="openai-chat")


def test_only_the_first_choice_is_read() -> None:
    second_choice = {"id": "c1", "choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "length"}]}
    message = message_of(say("yes"), second_choice, STOP, second_choice)
    assert message.text == "yes"
    assert message.meta is not None
    assert message.meta.finish_reason == "stop"


def test_a_choice_may_lack_index_or_delta() -> None:
    assert message_of({"choices": [{"delta": {"content": "x"}}, {"delta": None}]}, STOP).text == "x"


@pytest.mark.parametrize("tail", [b"", b"data: [DONE]", DONE, DONE + b"data: {garbage\n\n", b"\xff\xfe"])
def test_a_finish_reason_ends_the_answer_whatever_follows(tail: bytes) -> None:
    assert end_of(say("x"), STOP, tail=tail) == Done("stop", raw_finish_reason="stop")


def test_garbage_after_the_finish_reason_is_ignored() -> None:
    assert end_of(say("x"), STOP, tail=b'data: {"choices": 5}\n\ndata: {{\n\n') == Done(
        "stop", raw_finish_reason="stop"
    )


def test_content_after_a_finish_reason_counts_and_the_last_finish_reason_holds() -> None:
    message = message_of(call(0, "f", "{}", id="a"), chunk(finish="tool_calls"), chunk({"content": "\n"}, "stop"))
    assert message.text == "\n"
    assert message.meta is not None
    assert (message.meta.finish_reason, message.meta.raw_finish_reason) == ("tool_calls", "stop")


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("stop", "stop"),
        ("eos", "stop"),
        ("length", "length"),
        ("model_length", "length"),
        ("function_call", "tool_calls"),
        ("content_filter", "content_filter"),
        ("sensitive", "content_filter"),
        ("SAFETY", "content_filter"),
        ("tea_time", "other"),
    ],
)
def test_the_finish_reasons_of_every_vendor_are_mapped(word: str, reason: str) -> None:
    """D-3.4.5, D-3.4.6."""
    end = end_of(say("x"), chunk(finish=word))
    assert isinstance(end, Done)
    assert (end.finish_reason, end.raw_finish_reason) == (reason, word)


def test_a_plain_stop_with_calls_is_tool_calls() -> None:
    """D-3.4.7."""
    assert end_of(call(0, "f", "{}", id="a"), STOP) == Done("tool_calls", raw_finish_reason="stop")


def test_a_refusal_becomes_text_and_the_finish_reason() -> None:
    message = message_of(say("Hm. "), chunk({"refusal": "I "}), chunk({"refusal": "won't"}), STOP)
    assert [part.text for part in message.parts if isinstance(part, Text)] == ["Hm. ", "I won't"]
    assert data_of(message.parts[1]) == {"field": "refusal"}
    assert message.meta is not None
    assert message.meta.finish_reason == "refusal"


def test_an_empty_refusal_is_ignored() -> None:
    """Snowflake sends one with every piece."""
    assert end_of(chunk({"content": "x", "refusal": ""}), STOP) == Done("stop", raw_finish_reason="stop")


# -- truncated and malformed streams


@pytest.mark.parametrize(
    "payloads",
    [
        (),
        (chunk({"role": "assistant", "content": ""}),),
        (say("Hel"),),
        (call(0, "f", '{"a"', id="a"),),
        (call(0, "f", '{"a": 1}', id="a"),),
        (say("x"), {"id": "c1", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}),
    ],
    ids=["nothing", "start", "text", "half arguments", "whole arguments", "usage"],
)
def test_bytes_that_end_without_finish_reason_and_done_are_truncated(payloads: tuple[Json, ...]) -> None:
    """D-3.5."""
    assert failure_of(*payloads, tail=b"").error_code is ErrorCode.STREAM_TRUNCATED


def test_bytes_that_end_inside_a_chunk_are_truncated() -> None:
    assert failure_of(say("x"), tail=b'data: {"id": "c1", "cho').error_code is ErrorCode.STREAM_TRUNCATED


def test_done_without_a_finish_reason_ends_an_answer_with_content() -> None:
    """Snowflake sends no finish_reason at all."""
    assert end_of(say("x")) == Done("stop")
    assert end_of(call(0, "f", '{"a": 1}', id="a")) == Done("tool_calls")
    assert end_of(call(0, "f", id="a")) == Done("tool_calls")
    assert end_of(chunk({"refusal": "no"})) == Done("refusal")


@pytest.mark.parametrize("arguments", ['{"a": ', "[" * 100_000])
def test_done_without_a_finish_reason_does_not_end_incomplete_arguments(arguments: str) -> None:
    assert failure_of(say("x"), call(0, "f", arguments, id="a")).error_code is ErrorCode.STREAM_TRUNCATED


def test_done_without_a_finish_reason_does_not_end_an_empty_answer() -> None:
    assert failure_of(chunk({"role": "assistant", "content": ""})).error_code is ErrorCode.STREAM_TRUNCATED


def test_an_answer_cut_off_by_length_inside_arguments_completes_with_bad_args() -> None:
    message = message_of(call(0, "f", '{"a": "b', id="a"), chunk(finish="length"))
    assert message.meta is not None
    assert message.meta.finish_reason == "length"
    assert list(message.meta.bad_args or {}) == ["a"]
    assert message.tool_calls[0].raw_args_text == '{"a": "b'


@pytest.mark.parametrize("word", ["error", "network_error", "insufficient_system_resource", "abort"])
def test_a_finish_reason_for_a_server_fault_is_an_error(word: str) -> None:
    failed = failure_of(say("x"), chunk(finish=word))
    assert (failed.raw_code, failed.message) == (word, f"The provider ended the answer with {word!r}.")


def test_a_failed_choice_reports_its_error() -> None:
    choice = {"finish_reason": "error", "delta": {}, "error": {"code": 502, "message": "upstream died"}}
    failed = failure_of(say("x"), {"choices": [choice]})
    assert (failed.status, failed.message) == (502, "upstream died")


def test_a_chunk_of_another_format_is_malformed() -> None:
    assert failure_of(tail=b'data: {"choices": 5}\n\n').error_code is ErrorCode.STREAM_MALFORMED


def test_empty_events_and_pings_are_ignored() -> None:
    assert end_of(say("x"), {"type": "ping"}, STOP, tail=b"data:\n\n: ping\n\n") == Done(
        "stop", raw_finish_reason="stop"
    )
    assert decoded(OpenAIChat(), b"data:\n\n" + sse(say("x"), STOP))[1] == TextDelta("x")


# -- errors inside the stream


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"error": {"message": "no", "code": "tool_use_failed", "status_code": 400}}, ("no", "tool_use_failed", 400)),
        ({"error": {"message": "no", "type": "server_error", "code": None}}, ("no", "server_error", None)),
        ({"error": {"message": "no", "code": 429, "metadata": {"raw": "slow"}}}, ("no: slow", "429", 429)),
        ({"error": {"message": "no", "metadata": "?"}}, ("no", None, None)),
        ({"error": {"message": {"detail": "no"}}}, ('{"detail":"no"}', None, None)),
        ({"error": "no", "code": "bad"}, ("no", "bad", None)),
        ({"object": "error", "message": "no", "code": 400}, ("no", "400", 400)),
        ({"errors": [{"message": "no", "code": 7000}]}, ("no", "7000", None)),
        ({"detail": "no"}, ("no", None, None)),
        ({"error_code": "BUSY", "message": "no"}, ("no", "BUSY", None)),
    ],
)
def test_an_error_in_the_stream_keeps_the_providers_message_and_code(payload: Json, expected: Any) -> None:
    failed = failure_of(say("x"), payload)
    assert (failed.message, failed.raw_code, failed.status) == expected


def test_an_error_after_the_finish_reason_is_an_error_too() -> None:
    """OpenRouter puts it in an ordinary chunk, whose usage counts."""
    broken = chunk({"content": "y"}, "length", error={"message": "limit", "code": 400}, usage={"prompt_tokens": 5})
    deltas = deltas_of(say("x"), STOP, broken)
    assert TextDelta("y") in deltas
    assert Usage(5, 0) in deltas
    assert isinstance(deltas[-1], Failed)


@pytest.mark.parametrize("data", ['{"choices": []}', '{"a": 1}', "out of memory"])
def test_an_event_named_error_is_an_error_whatever_its_data(data: str) -> None:
    failed = failure_of(say("x"), tail=f"event: error\ndata: {data}\n\n".encode() + DONE)
    assert failed.message == data


def test_an_error_before_anything_else_still_gives_a_start() -> None:
    """D-3.7."""
    assert deltas_of({"error": {"message": "no", "code": 401}}, local_id="l") == [
        Start("", "l", provider="openai-chat"),
        Failed(ErrorCode.AUTHENTICATION, "no", status=401, raw_code="401"),
    ]


def test_notices_that_are_not_errors_are_ignored() -> None:
    assert end_of(say("x"), {"type": "status", "message": "searching"}, STOP) == Done("stop", raw_finish_reason="stop")


def test_an_empty_error_is_ignored() -> None:
    assert end_of(chunk({"content": "x"}, error={}), STOP) == Done("stop", raw_finish_reason="stop")


# -- tool calls


def test_interleaved_arguments_are_collected_by_index() -> None:
    message = message_of(
        call(1, "f", "", id="a"),
        call(2, "g", None, id="b"),
        call(1, arguments='{"x":'),
        call(2, arguments='{"y":2}'),
        call(1, None, "1}", id=""),
        STOP,
    )
    assert message.tool_calls == (ToolCall("a", "f", {"x": 1}), ToolCall("b", "g", {"y": 2}))


def test_another_id_at_the_same_index_is_another_call() -> None:
    message = message_of(call(0, "f", '{"x":1}', id="a"), call(0, "f", '{"x":2}', id="b"), STOP)
    assert message.tool_calls == (ToolCall("a", "f", {"x": 1}), ToolCall("b", "f", {"x": 2}))


def test_another_name_at_the_same_index_is_another_call() -> None:
    message = message_of(call(0, "f", "{}", id="a"), call(0, "g", "{}", id="a"), STOP)
    assert [(tool_call.tool_name, tool_call.tool_call_id) for tool_call in message.tool_calls] == [
        ("f", "a"),
        ("g", "local-1"),
    ]


def test_the_same_tool_twice_without_ids_is_two_calls() -> None:
    message = message_of(call(0, "f", '{"x":1}'), call(0, "f", '{"x":2}'), STOP)
    assert [tool_call.arguments for tool_call in message.tool_calls] == [{"x": 1}, {"x": 2}]


def test_a_name_repeated_on_every_piece_is_one_call() -> None:
    message = message_of(call(0, "f", '{"x"', id="a"), call(0, "f", ":1}", id="a"), call(0, "f", "", id="a"), STOP)
    assert message.tool_calls == (ToolCall("a", "f", {"x": 1}),)


def test_two_calls_with_the_same_id_get_different_ids() -> None:
    """D-3.8.1."""
    message = message_of(call(0, "f", "{}", id="a"), call(1, "f", "{}", id="a"), STOP)
    first, second = message.tool_calls
    assert (first.tool_call_id, second.tool_call_id) == ("a", "local-1")
    assert data_of(second) == {"callId": "a"}


def test_calls_without_an_index_are_distinguished_by_id() -> None:
    """Mistral sends each call whole and without an index."""
    message = message_of(call(None, "f", "{}", id="a"), call(None, "f", '{"x":', id="b"), call(None, None, "1}"), STOP)
    assert message.tool_calls == (ToolCall("a", "f", {}), ToolCall("b", "f", {"x": 1}))


def test_a_piece_without_index_and_id_belongs_to_the_latest_call() -> None:
    message = message_of(call(3, "f", '{"x":', id="a"), call(None, None, "1}"), STOP)
    assert message.tool_calls == (ToolCall("a", "f", {"x": 1}),)


def test_a_call_opens_when_its_name_is_known() -> None:
    message = message_of(call(0, None, '{"x":', id="a"), call(0, "f", "1}"), STOP)
    assert message.tool_calls == (ToolCall("a", "f", {"x": 1}),)


def test_a_call_without_a_name_is_kept() -> None:
    message = message_of(call(0, None, "{}", id="a"), STOP)
    assert message.tool_calls == (ToolCall("a", "", {}),)


def test_arguments_sent_as_an_object_become_json_text() -> None:
    assert message_of(call(0, "f", {"x": [1, "é"]}, id="a"), STOP).tool_calls[0].arguments == {"x": [1, "é"]}


def test_arguments_that_are_not_json_are_kept_as_text() -> None:
    """D-3.3.2."""
    message = message_of(call(0, "f", "{x: 1}", id="a"), STOP)
    assert message.tool_calls[0].raw_args_text == "{x: 1}"


def test_a_call_piece_without_a_function_adds_nothing() -> None:
    message = message_of(call(0, "f", "{}", id="a"), chunk({"tool_calls": [{"index": 0, "type": "function"}]}), STOP)
    assert message.tool_calls == (ToolCall("a", "f", {}),)


def test_the_signature_of_a_call_is_kept_in_whichever_piece_it_arrives() -> None:
    """Gemini's OpenAI-compatible endpoint."""
    extra = {"google": {"thought_signature": "sig"}}
    early = message_of(call(0, "f", "{}", id="a", extra_content=extra), STOP)
    late = message_of(call(0, "f", "{", id="a"), call(0, None, "}", extra_content=extra), STOP)
    assert data_of(early.tool_calls[0]) == data_of(late.tool_calls[0]) == {"extra_content": extra}
    assert late.tool_calls[0].arguments == {}


def test_a_legacy_function_call_is_a_call() -> None:
    pieces = [{"name": "f", "arguments": ""}, {"arguments": '{"x":'}, {"arguments": "1}"}]
    message = message_of(*[chunk({"function_call": piece}) for piece in pieces], chunk(finish="function_call"))
    (only,) = message.tool_calls
    assert (only.tool_name, only.arguments, data_of(only)) == ("f", {"x": 1}, {"field": "function_call"})


def test_the_free_text_of_a_custom_tool_becomes_one_argument() -> None:
    first = {"index": 0, "id": "a", "type": "custom", "custom": {"name": "sh", "input": "echo "}}
    pieces = [{"tool_calls": [first]}, {"tool_calls": [{"index": 0, "custom": {"input": '"hi"'}}]}]
    (only,) = message_of(*[chunk(piece) for piece in pieces], STOP).tool_calls
    assert (only.arguments, data_of(only)) == ({"input": 'echo "hi"'}, {"type": "custom"})
    assert end_of(chunk(pieces[0])) == Done("tool_calls")


def test_arguments_over_the_limit_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """D-3.11.2."""
    monkeypatch.setattr(emitter, "LIMIT", 10)
    monkeypatch.setattr(chat_decode, "LIMIT", 10)
    failed = failure_of(call(0, "f", "12345", id="a"), call(0, None, "678901"), say("x"))
    assert failed.error_code is ErrorCode.STREAM_TOO_LARGE
    legacy = chunk({"function_call": {"name": "f", "arguments": "12345678901"}})
    assert failure_of(legacy).error_code is ErrorCode.STREAM_TOO_LARGE


# -- thinking


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_the_field_that_thinking_came_in_is_kept(field: str) -> None:
    message = message_of(chunk({field: "a"}), chunk({field: "b", "content": ""}), say("c"), chunk({field: "d"}), STOP)
    assert [(type(part), getattr(part, "text", None)) for part in message.parts] == [
        (Thinking, "ab"),
        (Text, "c"),
        (Thinking, "d"),
    ]
    assert data_of(message.parts[0]) == data_of(message.parts[2]) == {"field": field}


def test_empty_thinking_is_ignored() -> None:
    empty = chunk({"content": "x", "reasoning_content": "", "reasoning": "", "reasoning_details": []})
    assert [part.kind for part in message_of(empty, STOP).parts] == ["text"]


def detail(text: str | None = None, index: int = 0, **fields: Any) -> Json:
    spoken = {} if text is None else {"text": text}
    return {"type": "reasoning.text", **spoken, "index": index, "format": "f", **fields}


def test_reasoning_details_are_reassembled() -> None:
    """OpenRouter sends the signature after the text, and expects everything back unchanged."""
    secret = {"type": "reasoning.encrypted", "data": "QUJD", "id": "rs_1", "index": 1}
    message = message_of(
        chunk({"reasoning": None, "reasoning_details": [detail("", signature="")]}),
        chunk({"reasoning": "Hm", "reasoning_details": [detail("Hm")]}),
        chunk({"reasoning": "m.", "reasoning_details": [detail("m.")]}),
        chunk({"reasoning_details": [detail(signature="c2ln")]}),
        chunk({"reasoning_details": [detail("", signature="")]}),
        chunk({"reasoning_details": [secret, secret]}),
        say("Yes"),
        STOP,
    )
    assert [part.text for part in message.parts if isinstance(part, Thinking | Text)] == ["Hmm.", "Yes"]
    assert data_of(message.parts[0]) == {
        "field": "reasoning",
        "reasoning_details": [detail("Hmm.", signature="c2ln"), secret, secret],
    }


def test_details_with_another_index_or_id_are_separate() -> None:
    pieces = [detail("a"), detail("b", 1), detail("c", 1, id="x"), detail("d", 1, id="y"), {"text": 5}, "odd"]
    message = message_of(chunk({"reasoning_details": pieces}), STOP)
    assert message.thinking == "abcd"
    assert data_of(message.parts[0])["reasoning_details"] == [
        detail("a"),
        detail("bc", 1, id="x"),
        detail("d", 1, id="y"),
        {"text": 5},
    ]


def test_a_ciphertext_alone_becomes_a_thinking_part_without_text() -> None:
    secret = {"type": "reasoning.encrypted", "data": "QUJD"}
    message = message_of(chunk({"reasoning_details": [secret]}), call(0, "f", "{}", id="a"), STOP)
    assert isinstance(message.parts[0], Thinking)
    assert data_of(message.parts[0]) == {"reasoning_details": [secret]}


def test_a_ciphertext_between_texts_does_not_split_them() -> None:
    secret = {"type": "reasoning.encrypted", "data": "QUJD"}
    message = message_of(say("a"), chunk({"reasoning_details": [secret]}), say("b"), STOP)
    assert [part.text for part in message.parts if isinstance(part, Text | Thinking)] == ["ab", ""]


def test_details_over_the_limit_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emitter, "LIMIT", 10)
    deltas = deltas_of(chunk({"reasoning_details": [detail("a")], "content": "x"}), STOP)
    assert isinstance(deltas[-1], Failed)
    assert deltas[-1].error_code is ErrorCode.STREAM_TOO_LARGE


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = {"in": value}
    return value


FREE_FORM = {
    "annotations": lambda value: chunk({"content": "a", "annotations": [value]}),
    "reasoning details": lambda value: chunk({"reasoning": "a", "reasoning_details": [value]}),
    "content pieces": lambda value: chunk({"content": [{"type": "text", "text": "a"}, value]}),
    "thinking chunks": lambda value: chunk({"content": [{"type": "thinking", "thinking": "a", "more": value}]}),
    "executed tools": lambda value: chunk({"executed_tools": [{"index": 0, "output": "a", "more": value}]}),
    "audio": lambda value: chunk({"content": "a", "audio": {"id": value}}),
    "extra content": lambda value: call(0, "f", "{}", id="c", extra_content=value),
    "citations": lambda value: chunk({"content": "a"}, "stop", citations=[value]),
    "search results": lambda value: chunk({"content": "a"}, "stop", search_results=[value]),
}


@pytest.mark.parametrize("place", FREE_FORM)
def test_data_nested_too_deep_to_be_stored_is_an_error(place: str) -> None:
    """D-3.11.2: without the limit, the assembler would refuse the deltas."""
    failed = failure_of(FREE_FORM[place](nested(62)), STOP)
    assert failed.error_code is ErrorCode.STREAM_TOO_LARGE
    message = message_of(FREE_FORM[place](nested(58)), STOP)
    assert decode(Message, encode(message)) == message
    assert any(part.continuation and "'in'" in str(part.continuation.data) for part in message.parts)


def test_content_may_be_a_list_of_thinking_and_text() -> None:
    """Mistral."""
    thinking = [
        [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}, {"type": "ref"}, "odd"]}],
        [{"type": "thinking", "thinking": []}, {"type": "thinking", "thinking": "m", "closed": True}],
    ]
    source = {"type": "reference", "reference_ids": [1]}
    texts = [[{"type": "text", "text": "Ye"}, {"type": "text", "text": "s"}, {"type": "text"}, source, "odd"], "!"]
    message = message_of(*[chunk({"content": content}) for content in thinking + texts], STOP)
    assert [part.text for part in message.parts if isinstance(part, Thinking | Text)] == ["Hmm", "Yes", "", "!"]
    assert data_of(message.parts[0]) == {"field": "content", "chunk": {"closed": True}}
    assert data_of(message.parts[2]) == {"content": source}


def test_a_thinking_piece_without_text_is_ignored_before_any_thinking() -> None:
    assert message_of(chunk({"content": [{"type": "thinking", "thinking": [], "closed": True}]}), STOP).parts == ()


# -- sources, tools and media of the provider


def test_sources_are_kept_with_the_text() -> None:
    """Perplexity repeats them in every chunk; the last list is the longest."""
    sources: Json = {"citations": ["https://a", "https://b"], "search_results": [{"url": "https://a"}]}
    message = message_of(chunk({"content": "x"}, citations=["https://a"]), chunk(finish="stop", **sources))
    assert message.parts[0].continuation is not None
    assert data_of(message.parts[0]) == sources


def test_annotations_are_collected_on_the_text_before_them() -> None:
    first, second = {"type": "url_citation", "url": "a"}, {"type": "url_citation", "url": "b"}
    message = message_of(
        chunk({"content": "x", "annotations": [first]}),
        chunk({"annotations": [second]}),
        call(0, "f", "{}", id="a"),
        STOP,
    )
    assert data_of(message.parts[0]) == {"annotations": [first, second]}
    assert len(message.parts) == 2


def test_annotations_without_text_are_kept_on_an_empty_text() -> None:
    message = message_of(chunk({"annotations": [{"type": "file"}]}), STOP)
    assert (message.text, data_of(message.parts[0])) == ("", {"annotations": [{"type": "file"}]})


def test_a_tool_that_the_provider_executed_has_its_result() -> None:
    """D-3.10. Groq reports each tool twice."""
    called = {"index": 0, "type": "search", "arguments": '{"q":"x"}'}
    finished = {**called, "output": "found"}
    message = message_of(*[chunk({"executed_tools": [tool]}) for tool in (called, finished, finished)], say("x"), STOP)
    (only,) = message.tool_calls
    assert (only.tool_name, only.arguments, only.executed_by) == ("search", {"q": "x"}, "provider")
    assert only.result is not None
    assert only.result.content == "found"
    assert data_of(only) == {"executed_tool": finished}
    assert message.meta is not None
    assert message.meta.finish_reason == "stop"


def test_malformed_executed_tools_are_tolerated() -> None:
    tools = ["odd", {"index": 1}, {"index": 2, "name": "n", "arguments": {"a": 1}, "output": {"b": 2}}]
    deltas = deltas_of(chunk({"executed_tools": tools}), STOP)
    started = [delta.tool_name for delta in deltas if isinstance(delta, ToolCallStart)]
    ended = [delta.result for delta in deltas if isinstance(delta, ToolCallEnd)]
    assert (started, ended) == (["", "n"], ['{"b":2}', None])


def test_a_generated_image_is_the_result_of_a_provider_call() -> None:
    inline = f"data:image/jpeg;base64,{b64encode(b'jpg').decode()}"
    images = [
        {"type": "image_url", "image_url": {"url": inline}},
        {"type": "image_url", "image_url": "https://a/b.png"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,?"}},
        {"type": "image_url"},
        "odd",
    ]
    message = message_of(
        chunk({"images": images[:1]}), chunk({"content": images[1:4]}), chunk({"images": images[4:]}), STOP
    )
    contents = [tool_call.result.content for tool_call in message.tool_calls if tool_call.result is not None]
    assert contents == [
        (Image("image/jpeg", data=b"jpg"),),
        (Image("image/*", url="https://a/b.png"),),
        (Image("image/*", url="data:image/png;base64,?"),),
    ]
    assert {tool_call.tool_name for tool_call in message.tool_calls} == {"image_output"}


def test_speech_becomes_its_transcript_and_a_file() -> None:
    pieces = [{"id": "audio_1"}, {"transcript": "Hi"}, {"data": b64encode(b"pcm").decode()}, {"expires_at": 5}]
    message = message_of(*[chunk({"audio": piece}) for piece in pieces], STOP)
    assert message.text == "Hi"
    assert data_of(message.parts[0]) == {"audio": {"id": "audio_1", "expires_at": 5}}
    (sound,) = message.tool_calls
    assert sound.result is not None
    assert sound.result.content == (FileRef("audio", data=b"pcm"),)


def test_speech_that_is_not_base64_is_malformed() -> None:
    assert failure_of(chunk({"audio": {"data": "?"}}), STOP).error_code is ErrorCode.STREAM_MALFORMED
    assert end_of(chunk({"audio": "odd", "content": "x"}), STOP) == Done("stop", raw_finish_reason="stop")


# -- answers that were not streamed


def test_the_signature_of_an_answer_goes_back_with_the_message() -> None:
    """Gemini: openai-compat-chat-requests/pydantic-ai--test_openai-test_compatible_api_with_tool_calls_without_id-*."""
    signed = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
    message = message_of(say("x"), chunk(signed), chunk({"extra_content": "odd"}), STOP)
    assert data_of(message.parts[0]) == {"message": signed}
    request = ModelRequest((user("Hi"), message, user("Go on")), config=ModelConfig("m"), provider="openai-chat")
    assert encode_request("openai-chat", request).body["messages"][1] == {"role": "assistant", "content": "x", **signed}


def whole(message: Json, object: str | None = "chat.completion") -> Json:
    return {"id": "c1", "model": "m1", "object": object, "choices": [{"message": message, "finish_reason": "stop"}]}


def test_an_answer_that_was_not_streamed_is_read_too() -> None:
    calls = [{"id": "a", "function": {"name": "f", "arguments": "{}"}}, {"id": "b", "function": {"name": "g"}}]
    body = json.dumps(whole({"reasoning": "Hm", "content": "x", "tool_calls": calls}), indent=2).encode()
    message = assembler_of(decoded(OpenAIChat(), body)).build_final_message()
    assert [part.kind for part in message.parts] == ["thinking", "text", "tool_call", "tool_call"]
    assert message_of(whole({"content": "x"}, object=None)).text == "x"  # Z.ai


def test_a_message_beside_or_after_deltas_only_repeats_them() -> None:
    assert message_of(say("x"), whole({"content": "x"}), STOP).text == "x"
    assert message_of(whole({"content": "x"}, object="chat.completion.done"), say("y"), STOP).text == "y"


def test_a_message_that_is_not_of_the_format_is_malformed() -> None:
    assert failure_of(whole({"content": 5})).error_code is ErrorCode.STREAM_MALFORMED


# -- usage


@pytest.mark.parametrize("reason", ["stop", "length", "content_filter"])
def test_usage_after_the_finish_reason_comes_before_done(reason: FinishReason) -> None:
    """D-3.4.4."""
    late = {"id": "c1", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}
    end = Done(reason, raw_finish_reason=reason)
    assert deltas_of(say("x"), chunk(finish=reason), late)[-2:] == [Usage(3, 2), end]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"prompt_tokens": 3, "completion_tokens": 2}, Usage(3, 2)),
        ({"prompt_tokens": 3}, Usage(3, 0)),
        ({"completion_tokens": 2.0}, Usage(0, 2)),
        ({"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 2}},
         Usage(3, 0, cache_read_tokens=1, cache_write_tokens=2)),
        ({"prompt_tokens": 3, "prompt_cache_hit_tokens": 2}, Usage(3, 0, cache_read_tokens=2)),
        ({"prompt_tokens": 3, "prompt_token_details": {"cached_tokens": 1}}, Usage(3, 0, cache_read_tokens=1)),
        ({"prompt_tokens": 3, "completion_tokens": 2, "completion_tokens_details": {"reasoning_tokens": 1}},
         Usage(3, 2, reasoning_tokens=1)),
        ({"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 9, "reasoning_tokens": 4},
         Usage(3, 6, reasoning_tokens=4)),
        ({"prompt_tokens": 3, "cost": 0.5}, Usage(3, 0, cost=0.5)),
        ({"prompt_tokens": 3, "cost": {"total_cost": 1}}, Usage(3, 0, cost=1.0)),
        ({"prompt_tokens": 3, "cost_in_usd_ticks": 5_000_000_000}, Usage(3, 0, cost=0.5)),
        ({"prompt_tokens": 3, "cost_in_usd_ticks": 0}, Usage(3, 0)),
        ({"prompt_tokens": 3, "cost": 0}, Usage(3, 0, cost=0.0)),
        ({"prompt_tokens": "3", "completion_tokens": True}, None),
        ({"prompt_tokens": -1}, None),
        ([], None),
    ],
)  # fmt: skip
def test_usage_is_read_in_every_vendors_spelling(raw: Any, expected: Usage | None) -> None:
    """D-3.4.2: xAI counts reasoning apart from the completion."""
    assert usage_of(raw) == expected


@pytest.mark.parametrize(
    ("provider", "model", "output", "total"),
    [
        ("vercel", "google/gemini-2.5-flash", 47, 55),
        ("vercel", "openai/gpt-5.5", 10, 18),
        ("openrouter", "google/gemini-2.5-flash", 10, 18),
    ],
)
def test_whether_the_completion_includes_reasoning_depends_on_the_vendor(
    provider: str, model: str, output: int, total: int
) -> None:
    """D-3.4.2: 10 + 37 = 47 tokens were billed."""
    counts = {"prompt_tokens": 8, "completion_tokens": 10, "total_tokens": 18}
    raw = {**counts, "completion_tokens_details": {"reasoning_tokens": 37}}
    events = [{**event, "model": model} for event in (say("x"), STOP, chunk(usage=raw))]
    [usage] = [delta for delta in deltas_of(*events, provider=provider) if isinstance(delta, Usage)]
    assert (usage.output_tokens, usage.total_tokens) == (output, total)
    assert usage.reasoning_tokens == min(37, output)


def test_zeros_after_real_usage_are_ignored() -> None:
    """Cloudflare."""
    zeros = chunk(usage={"prompt_tokens": 0, "completion_tokens": 0})
    assert usage_of({"prompt_tokens": 3, "completion_tokens": 2}, zeros) == Usage(3, 2)


def test_groqs_own_error_is_reported() -> None:
    failed = failure_of(say("x"), chunk(x_groq={"error": "over capacity"}), STOP)
    assert failed.message == "over capacity"


def test_groqs_own_usage_is_read() -> None:
    reported = chunk(finish="stop", x_groq={"usage": {"prompt_tokens": 3, "completion_tokens": 2}})
    assert Usage(3, 2) in deltas_of(say("x"), reported)


# -- odd values in every place

RICH = chunk(
    {
        "content": [{"type": "thinking", "thinking": [{"text": "t"}]}, {"type": "text", "text": "x"}],
        "reasoning": "r",
        "reasoning_details": [detail("r", id="x"), detail("s", id="x")],
        "tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}, "custom": {"name": "f"}}],
        "refusal": "no",
        "function_call": {"name": "g", "arguments": "{}"},
        "executed_tools": [{"index": 0, "type": "search", "arguments": "{}", "output": "o"}],
        "annotations": [{"type": "file"}],
        "images": [{"image_url": {"url": "https://a"}}],
        "audio": {"id": "s", "transcript": "t", "data": "YWJj"},
    },
    "stop",
    usage={"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1}, "cost": {"total_cost": 1}},
    error={"message": "no", "code": 400, "metadata": {"raw": "x"}},
    x_groq={"usage": {"prompt_tokens": 1}},
    citations=["https://a"],
)
ODD: list[Any] = [None, True, -1, 10**30, 1e308, "", "error", [], [[]], [None], {}, {"a": [1]}, {"url": 5}]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path to every value inside a value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] + [place for key, item in inside for place in places(item, (*path, key))]


def with_value(root: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    changed = dict(root) if isinstance(root, dict) else list(root)
    changed[path[0]] = with_value(root[path[0]], path[1:], value)
    return changed


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_no_value_in_any_place_breaks_the_contract(odd: Any) -> None:
    """D-3.11: nothing is raised, and the assembler accepts the deltas."""
    without_error = {key: value for key, value in RICH.items() if key != "error"}
    for event in (RICH, without_error):
        for place in places(event):
            deltas = deltas_of(say("x"), with_value(event, place, odd), without_error, STOP)
            assert isinstance(deltas[-1], Done | Failed)
            assert assembler_of(deltas).status in ("done", "error")
