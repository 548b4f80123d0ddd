"""Requests and stored sessions with values of an unexpected type: reading and encoding them never raises anything but
`PartValidationError`. `scripts/fuzz.py` found most of them."""

import json
from typing import Any

import msgspec
import pytest

from bartack import Text, Thinking, ToolCall, ToolResult, assistant, user
from bartack.formats import FORMATS, ModelRequest, decoder, encode, read_request
from bartack.formats.body_values import parsed_object
from bartack.formats.output_schemas import fits_strict_mode
from bartack.nouns import wire
from bartack.nouns.config import ModelConfig, ToolSpec
from bartack.nouns.deltas import Failed
from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.messages import Message
from bartack.nouns.parts import Continuation
from tests.recordings.agreement import assembler_of, decoded
from tests.recordings.plain import parsed_arguments

Json = dict[str, Any]

ODD: list[Any] = [None, True, 5, 1.5, "", "x", [], ["a"], [{"a": 1}], {}, {"a": 1}, {"type": ["x"]}, {"id": ["a"]}]
MODELS = {"bedrock-invoke": "anthropic.claude-sonnet-4-5"}


def body_of(format: str, message: Message, **settings: Any) -> Json:
    """The body of a request with this answer in its history, which can be sent."""
    config = ModelConfig(MODELS.get(format, "claude-sonnet-4-5"), **settings)
    request = ModelRequest((user("a"), message, user("b")), config=config, provider=format)
    body = encode(format, request).body
    msgspec.json.encode(body)
    return body


def answer_to(format: str, *events: Json) -> Message:
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()
    message = assembler_of(decoded(decoder(format), body)).build_final_message()
    assert wire.decode(Message, wire.encode(message)) == message
    return message


# -- stored sessions


def test_a_caller_of_another_type_is_not_sent_back() -> None:
    """D-3.9.4"""
    block = {"type": "tool_use", "id": "t", "name": "f", "input": {}, "caller": {"tool_id": [1]}}
    message = answer_to(
        "anthropic-messages",
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_stop"},
    )
    continuation = message.tool_calls[0].continuation
    assert continuation is not None
    assert continuation.data == {"caller": {"tool_id": [1]}}
    request = ModelRequest((user("a"), message), config=ModelConfig("m"), provider="anthropic-messages")
    encoded = encode("anthropic-messages", request)
    [call] = encoded.body["messages"][1]["content"]
    assert call == {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    dropped = [loss.why for loss in encoded.report.losses if loss.action == "dropped"]
    assert dropped == ["its format is unknown: caller"]


def test_an_item_with_an_id_of_another_type_is_sent_without_it() -> None:
    item = {"type": "message", "id": ["a"], "content": [{"type": "output_text", "text": "Hi"}]}
    message = answer_to(
        "openai-responses",
        {"type": "response.output_item.done", "item": item},
        {"type": "response.completed", "response": {}},
    )
    continuation = message.parts[0].continuation
    assert continuation is not None
    assert continuation.data["item"] == {"type": "message"}
    assert {"type": "message", "role": "assistant", "content": item["content"]} in body_of("openai-responses", message)[
        "input"
    ]


def test_an_item_stored_with_an_odd_id_is_sent_as_plain_text() -> None:
    """Sessions stored by earlier versions may have any type there."""
    data = {"item": {"type": "message", "id": ["a"]}, "field": "content", "nth": 0, "part": {"type": "output_text"}}
    message = assistant(Text("Hi", continuation=Continuation("openai-responses", "m", data)))
    assert {"role": "assistant", "content": "Hi"} in body_of("openai-responses", message)["input"]


@pytest.mark.parametrize("field", ["content", "summary"])
@pytest.mark.parametrize("value", ODD, ids=str)
@pytest.mark.parametrize("kind", ["message", "reasoning"])
def test_texts_stored_with_an_item_are_not_sent_beside_those_of_its_parts(kind: str, field: str, value: Any) -> None:
    item = {"type": kind, "id": "i", "encrypted_content": "e", field: value}
    data = {"item": item, "field": field, "nth": 0, "part": {"type": "output_text"}}
    continuation = Continuation("openai-responses", "m", data)
    part = Text("Hi", continuation=continuation) if kind == "message" else Thinking("Hi", continuation=continuation)
    sent_item = body_of("openai-responses", assistant(part, Text("Bye")))["input"][1]
    assert sent_item[field] == [{"type": "output_text", "text": "Hi"}]


KEYS = [
    "annotations", "audio", "block", "call", "callId", "caller", "chunk", "citations",
    "container", "content", "data", "extra_content", "field", "file", "id", "image_url",
    "inlineData", "item", "message", "name", "nth", "output", "part", "reasoningText",
    "reasoning_details", "redactedContent", "result", "resultOf", "resultPart", "resultStep", "role", "signature",
    "step", "thinking", "thought", "thoughtSignature", "toolResult", "type",
]  # fmt: skip


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("key", KEYS)
def test_continuation_data_of_any_type_can_be_encoded(format: str, key: str) -> None:
    """D-3.9.4, D-3.11.3"""
    for value in ODD:
        for fields in ({}, {"type": "server_tool_use"}, {"item": {"type": "message"}}, {"field": "content"}):
            continuation = Continuation(format, "m", {**fields, key: value})
            result = ToolResult("p", "r", continuation=continuation)
            parts: list[Text | Thinking | ToolCall] = [
                Text("a", continuation=continuation),
                Thinking("b", continuation=continuation),
                ToolCall("c", "f", {}, continuation=continuation),
                ToolCall("p", "f", {}, executed_by="provider", result=result, continuation=continuation),
                Text("d"),
            ]
            body_of(format, assistant(*parts))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("value", ODD, ids=str)
def test_extra_settings_of_any_type_can_be_encoded(format: str, value: Any) -> None:
    for key in ("reasoning", "text", "thinking", "include", "store", "anthropic_version", "generationConfig"):
        body_of(format, assistant("a"), extra={key: value}, output_schema={"required": [value], "type": "object"})
    native = Continuation(format, "m", {"type": value, "name": value})
    tools = (ToolSpec("f", {}, extra={format: value}), ToolSpec("n", {}, native=native))
    choice: Any = wire.load(ModelConfig, {"modelId": "claude-sonnet-4-5", "toolChoice": {"toolName": "n"}})
    model = MODELS.get(format, "claude-sonnet-4-5")
    config = ModelConfig(model, tool_choice=choice.tool_choice)
    msgspec.json.encode(encode(format, ModelRequest((user("a"),), config=config, tools=tools, provider=format)).body)


# -- requests

BODIES: dict[str, Json] = {
    "anthropic-messages": {"max_tokens": 2000, "messages": [{"role": "user", "content": "a"}]},
    "openai-chat": {"messages": [{"role": "user", "content": "a"}]},
    "openai-responses": {"input": [{"role": "user", "content": "a"}]},
    "gemini-generate": {"contents": [{"role": "user", "parts": [{"text": "a"}]}]},
    "gemini-interactions": {"input": "a"},
    "bedrock-converse": {"messages": [{"role": "user", "content": [{"text": "a"}]}]},
    "bedrock-invoke": {"messages": [{"role": "user", "content": "a"}]},
    "cohere-v2": {"messages": [{"role": "user", "content": "a"}]},
    "ollama-chat": {"messages": [{"role": "user", "content": "a"}]},
}


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("value", [nested(70), nested(500), float("inf"), float("nan"), "\udc00", b"a"], ids=range(6))
def test_a_body_that_is_not_json_is_refused(format: str, value: Any) -> None:
    with pytest.raises(PartValidationError):
        read_request(format, {**BODIES[format], "x": value}, model_id="m")


def test_a_budget_of_another_type_is_kept_as_it_came() -> None:
    for budget in ("1", [1], 1.5):
        thinking = {"type": "enabled", "budget_tokens": budget}
        body = {**BODIES["anthropic-messages"], "model": "claude-sonnet-4-5", "thinking": thinking}
        config = read_request("anthropic-messages", body).config
        assert config.thinking is None
        assert config.extra == {"anthropic-messages": {"thinking": thinking}}


@pytest.mark.parametrize("value", ODD, ids=str)
@pytest.mark.parametrize(
    ("format", "body"),
    [
        ("openai-chat", {"reasoning_effort": "?"}),
        ("openai-chat", {"tools": [{"type": "function", "function": {"name": "f", "description": "?"}}]}),
        ("openai-responses", {"input": [{"type": "?", "id": "a", "call_id": "a"}]}),
        ("gemini-generate", {"contents": [{"parts": [{"inlineData": {"mimeType": "?", "data": "YQ=="}}]}]}),
        ("gemini-generate", {"tools": [{"functionDeclarations": [{"name": "f", "description": "?"}]}]}),
        ("gemini-interactions", {"input": [{"type": "function_call", "id": "a", "name": "f", "arguments": "?"}]}),
        ("gemini-interactions", {"input": [{"type": "?", "id": "a", "call_id": "a"}]}),
        ("gemini-interactions", {"generation_config": {"thinking_level": "?"}}),
        ("bedrock-converse", {"toolConfig": {"tools": [{"toolSpec": {"name": "f", "strict": "?"}}]}}),
        ("anthropic-messages", {"max_tokens": "?"}),
        ("anthropic-messages", {"tools": [{"type": "mcp_toolset", "mcp_server_name": "?"}]}),
        ("anthropic-messages", {"temperature": "?"}),
    ],
)
def test_values_of_any_type_are_read_or_refused(format: str, body: Json, value: Any) -> None:
    """D-3.11.3"""
    odd_body = json.loads(json.dumps({**BODIES[format], **body}).replace('"?"', json.dumps(value)))
    try:
        request = read_request(format, odd_body, model_id="m")
    except PartValidationError:
        return
    wire.encode(request)
    msgspec.json.encode(encode(format, request).body)


@pytest.mark.parametrize("value", [float("inf"), float("nan"), "1", True, [1]], ids=str)
@pytest.mark.parametrize("name", ["temperature", "top_p", "max_tokens"])
def test_settings_must_be_finite_numbers(name: str, value: Any) -> None:
    with pytest.raises(PartValidationError, match=r"must be a finite number|expected (a number|an integer)"):
        ModelConfig("m", **{name: value})


@pytest.mark.parametrize("name", ["temperature", "top_p"])
@pytest.mark.parametrize("digits", [400, 5000])
def test_settings_beyond_the_range_of_a_float_are_refused(name: str, digits: int) -> None:
    with pytest.raises(PartValidationError, match="must be a finite number"):
        read_request("openai-chat", {**BODIES["openai-chat"], name: 10**digits}, model_id="m")


# -- helpers


DEEP = f'{{"a": {"[" * 100}1{"]" * 100}}}'
NOT_STORED = ['{"a": 1e999}', '{"a": NaN}', r'{"a": "\udc00"}', "[1]", "{", "[" * 2000, DEEP]


@pytest.mark.parametrize("text", NOT_STORED, ids=range(len(NOT_STORED)))
def test_arguments_that_cannot_be_stored_are_not_parsed(text: str) -> None:
    assert parsed_object(text) is None
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": text}}
    body = {"messages": [{"role": "assistant", "content": "x", "tool_calls": [call]}]}
    request = read_request("openai-chat", body, model_id="m")
    assert request.messages[0].tool_calls[0].raw_args_text == text


def test_arguments_that_can_be_stored_are_parsed() -> None:
    assert parsed_object('{"a": 1}') == parsed_arguments('{"a": 1}') == {"a": 1}


@pytest.mark.parametrize("odd", ["NaN", "Infinity", "1e999"])
def test_numbers_beyond_json_are_refused_beside_half_a_surrogate_pair_too(odd: str) -> None:
    event = rf'{{"event_type": "step.start", "step": {{"type": "x_call", "a": "\udc00", "b": {odd}}}}}'
    [_, failed] = decoded(decoder("gemini-interactions"), f"data: {event}\n\n".encode())
    assert isinstance(failed, Failed)
    assert failed.error_code is ErrorCode.STREAM_MALFORMED


def test_a_schema_whose_required_names_are_not_text_does_not_fit_strict_mode() -> None:
    schema: Json = {"type": "object", "additionalProperties": False, "properties": {"a": {}}, "required": [{"a": 1}]}
    assert not fits_strict_mode(schema)
    assert fits_strict_mode({**schema, "required": ["a"]})


def test_numbers_are_read_beside_half_a_surrogate_pair() -> None:
    event = r'{"event_type": "step.start", "step": {"type": "x_call", "id": "c", "a": "\udc00", "b": 1.5}}'
    completed = '{"event_type": "interaction.completed", "interaction": {"status": "completed"}}'
    body = f"data: {event}\n\ndata: {completed}\n\n".encode()
    [call] = assembler_of(decoded(decoder("gemini-interactions"), body)).build_final_message().tool_calls
    assert call.continuation is not None
    assert call.continuation.data["step"]["b"] == 1.5


def test_an_unknown_kind_may_be_nested_without_limit() -> None:
    with pytest.raises(PartValidationError, match="unknown kind a list"):
        wire.load(Message, {"role": "user", "parts": [{"kind": nested(990), "payload": {}}]})


@pytest.mark.parametrize("value", ODD, ids=str)
def test_reasoning_of_any_type_is_read_or_refused(value: Any) -> None:
    content = [{"reasoningContent": {"reasoningText": value}}, {"reasoningContent": {"redactedContent": value}}]
    for block in content:
        try:
            read_request("bedrock-converse", {"messages": [{"role": "assistant", "content": [block]}]}, model_id="m")
        except PartValidationError:
            continue
