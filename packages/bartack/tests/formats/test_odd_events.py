"""Events of an unexpected shape: every decoder turns them into a stream that keeps the contract (D-3.11).

`scripts/fuzz.py` found most of them. The recursion limit decides which depth fails, so several are tried.
"""

import json
from base64 import b64encode
from typing import Any

import pytest

from bartack.formats import decoder, guess_format
from bartack.nouns.deltas import Delta, Done, Failed, Start
from bartack.nouns.errors import ErrorCode
from tests.formats.framing.framing_bytes import aws_message
from tests.recordings.agreement import assembler_of, decoded

Json = dict[str, Any]
DEPTHS = (61, 100, 330, 480, *range(900, 1001, 4))


def sse(*events: Json | str) -> bytes:
    texts = [event if isinstance(event, str) else json.dumps(event) for event in events]
    return "".join(f"data: {text}\n\n" for text in texts).encode()


def aws(*events: tuple[str, Any]) -> bytes:
    payloads = [(name, event if isinstance(event, bytes) else json.dumps(event).encode()) for name, event in events]
    return b"".join(aws_message({":message-type": "event", ":event-type": name}, data) for name, data in payloads)


def stream_of(format: str, body: bytes) -> list[Delta]:
    """The deltas, which keep the contract."""
    deltas = decoded(decoder(format), body)
    assert isinstance(deltas[0], Start)
    assert isinstance(deltas[-1], Done | Failed)
    assembler_of(deltas)
    return deltas


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def chat(delta: str) -> str:
    return f'{{"choices": [{{"delta": {delta}}}]}}'


def gemini_piece(piece: str) -> str:
    call = f'{{"name": "f", "willContinue": true, "partialArgs": [{piece}]}}'
    return f'{{"candidates": [{{"content": {{"parts": [{{"functionCall": {call}}}]}}}}]}}'


TEXT_BLOCK = '{"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hi", "%s": 1}}'
COMPLETED = '{"type": "response.completed", "response": {}}'
FINISHED = '{"choices": [{"finish_reason": "stop"}]}'
ITEM_ADDED = "response.output_item.added"
ITEM_DONE = "response.output_item.done"
CALL = {"type": "function_call", "id": "f", "call_id": "c", "name": "f", "arguments": "{}"}


@pytest.mark.parametrize("key", ["type", "id", "call_id", "name", "status"])
@pytest.mark.parametrize("odd", [{"a": 1}, ["a"], 5], ids=str)
@pytest.mark.parametrize("kind", ["function_call", "message", "web_search_call"])
def test_the_fields_that_identify_a_responses_item_may_have_any_type(key: str, odd: Any, kind: str) -> None:
    item = {**CALL, "type": kind, key: odd}
    response = {"status": "completed", "output": [item]}
    added, done = {"type": ITEM_ADDED, "item": item}, {"type": ITEM_DONE, "item": item}
    completed = {"type": "response.completed", "response": response}
    for events in ([added, done, completed], [completed], [done, completed]):
        assert isinstance(stream_of("openai-responses", sse(*events))[-1], Done)


def test_a_call_that_changes_its_type_keeps_its_executor() -> None:
    searched = {**CALL, "type": "web_search_call", "results": "found"}
    done = {"type": ITEM_DONE, "item": searched}
    stream_of("openai-responses", sse({"type": ITEM_ADDED, "item": CALL}, done, {"type": "response.completed"}))


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(
    ("format", "event"),
    [
        ("anthropic-messages", '{"type": "content_block_start", "content_block": {"type": "tool_use", "input": %s}}'),
        ("anthropic-messages", '{"type": "message_start", "message": {"content": [{"type": "text", "a": %s}]}}'),
        ("cohere-v2", '{"type": "citation-start", "delta": {"message": {"citations": {"a": %s}}}}'),
        ("cohere-v2", '{"type": "citation-start", "delta": {"message": {"citations": %s}}}'),
        ("openai-chat", chat('{"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": %s}}]}')),
        ("openai-chat", chat('{"executed_tools": [{"name": %s, "arguments": "{}", "output": ""}]}')),
        ("openai-chat", '{"error": {"code": %s}}'),
        ("openai-chat", '{"error": {"message": %s}}'),
        ("openai-chat", '{"x_groq": {"error": %s}, "choices": []}'),
        ("openai-responses", '{"type": "error", "error": {"code": %s}}'),
        ("openai-responses", '{"type": "response.incomplete", "response": {"incomplete_details": {"reason": %s}}}'),
        ("gemini-generate", '{"error": %s}'),
        ("gemini-generate", gemini_piece('{"jsonPath": "$.a", "numberValue": %s}')),
        ("gemini-generate", gemini_piece('{"jsonPath": %s, "numberValue": 1}')),
        ("gemini-interactions", '{"event_type": "error", "error": %s}'),
    ],
)
def test_deeply_nested_values_end_the_stream_or_are_ignored(format: str, event: str, depth: int) -> None:
    stream_of(format, sse(event % nested(depth)))


@pytest.mark.parametrize("depth", DEPTHS)
def test_deeply_nested_tools_in_a_response_are_ignored(depth: int) -> None:
    tools = '{"tools": [' * depth + "]}" * depth
    created = f'{{"type": "response.created", "response": {{"tools": [{tools}]}}}}'
    call = {"type": ITEM_DONE, "item": {"type": "custom_tool_call", "id": "c", "call_id": "c", "name": "f"}}
    stream_of("openai-responses", sse(created, call, {"type": "response.completed", "response": {}}))


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_guess_survives_deeply_nested_values(depth: int) -> None:
    assert guess_format(f'{{"a": {nested(depth)}}}\n'.encode()) is None


@pytest.mark.parametrize("text", [r"\udc00", r"\ud83d", "a\\udc00b"])
@pytest.mark.parametrize(
    ("format", "event"),
    [
        ("anthropic-messages", '{"type": "content_block_start", "content_block": {"type": "tool_use", "input": %s}}'),
        ("openai-chat", chat('{"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": %s}}]}')),
        ("openai-chat", '{"error": %s}'),
        ("openai-chat", '{"error": {"code": %s, "message": "a"}}'),
        ("openai-responses", '{"type": "response.output_item.done", "item": {"type": "message", "content": [%s]}}'),
        ("gemini-interactions", '{"event_type": "error", "error": %s}'),
    ],
)
def test_half_a_surrogate_pair_leaves_no_trace(format: str, event: str, text: str) -> None:
    stream_of(format, sse(event % f'{{"a{text}": "{text}"}}'))
    stream_of(format, sse(event % f'"{text}"'))


@pytest.mark.parametrize("half", [r"\udc00", r"\ud83d"])
def test_a_whole_chat_message_may_hold_half_a_surrogate_pair_anywhere(half: str) -> None:
    call = f'{{"id": "c{half}", "function": {{"name": "f{half}", "arguments": "{{\\"a\\": \\"{half}\\"}}"}}}}'
    message = f'{{"content": "a{half}b", "x{half}": "{half}", "tool_calls": [{call}]}}'
    choice = f'{{"message": {message}, "finish_reason": "stop", "{half}": 1}}'
    body = f'{{"object": "chat.completion", "id": "i", "model": "m", "choices": [{choice}]}}'
    answer = assembler_of(stream_of("openai-chat", sse(body))).build_final_message()
    assert answer.text == "a\ufffdb"
    [call_found] = answer.tool_calls
    assert (call_found.tool_call_id, call_found.tool_name) == ("c\ufffd", "f\ufffd")
    assert call_found.arguments == {"a": "\ufffd"}


@pytest.mark.parametrize(
    ("format", "event", "end"),
    [
        ("openai-chat", '{"choices": [{"delta": {"content": "Hi", "%s": 1}, "%s": 1}]}', "[DONE]"),
        ("anthropic-messages", TEXT_BLOCK, '{"type": "message_stop"}'),
        ("openai-responses", '{"type": "response.output_text.delta", "delta": "Hi", "%s": {"%s": 1}}', COMPLETED),
    ],
)
def test_half_a_surrogate_pair_in_an_unknown_key_costs_no_text(format: str, event: str, end: str) -> None:
    body = sse(event.replace("%s", r"a\udc00"), *([FINISHED] if format == "openai-chat" else []), end)
    assert assembler_of(stream_of(format, body)).build_final_message().text == "Hi"


def test_an_error_in_half_a_surrogate_pair_is_reported() -> None:
    body = rb"event: error" + b"\n" + rb'data: {"error": {"message": "no \udc00 way", "code": "\ud83d"}}' + b"\n\n"
    last = stream_of("openai-chat", body)[-1]
    assert isinstance(last, Failed)
    assert (last.message, last.raw_code) == ("no \ufffd way", "\ufffd")


INNER = [
    b'{"choices": [{"delta": {"\xe9": 1}}]}',
    b'{"choices": [{"\xe9": 1}]}',
    b'{"\xe9": 1}',
    b'{"type": "x", "\xe9": 1}',
    *(b'{"choices": [{"delta": {"a": %s}}]}' % nested(depth).encode() for depth in DEPTHS),
]


@pytest.mark.parametrize("payload", INNER, ids=range(len(INNER)))
def test_a_first_chunk_that_is_not_utf_8_or_too_deep_ends_the_stream(payload: bytes) -> None:
    stream_of("bedrock-invoke", aws(("chunk", {"bytes": b64encode(payload).decode()})))


def test_base64_in_other_characters_than_ascii_is_not_base64() -> None:
    audio = sse(chat('{"audio": {"id": "a", "data": "é"}}'), '{"choices": [{"finish_reason": "stop"}]}')
    last = stream_of("openai-chat", audio)[-1]
    assert isinstance(last, Failed)
    assert last.error_code is ErrorCode.STREAM_MALFORMED
    redacted = ("contentBlockDelta", {"delta": {"reasoningContent": {"redactedContent": "é"}}})
    stream_of("bedrock-converse", aws(redacted, redacted, ("contentBlockStop", {})))
    image: list[tuple[str, Json]] = [
        ("contentBlockStart", {"start": {"image": {"format": "png"}}}),
        ("contentBlockDelta", {"delta": {"image": {"source": {"bytes": "é"}}}}),
        ("contentBlockStop", {}),
    ]
    stream_of("bedrock-converse", aws(*image))


def test_an_image_that_failed_for_an_unreadable_reason_is_an_error() -> None:
    image: list[tuple[str, Json]] = [
        ("contentBlockStart", {"start": {"image": {"format": "png"}}}),
        ("contentBlockDelta", {"delta": {"image": {"error": {"message": ["a"]}}}}),
        ("contentBlockStop", {}),
        ("messageStop", {"stopReason": "end_turn"}),
    ]
    message = assembler_of(stream_of("bedrock-converse", aws(*image))).build_final_message()
    assert message.tool_calls[0].result is not None
    assert message.tool_calls[0].result.content == "the image could not be generated"
