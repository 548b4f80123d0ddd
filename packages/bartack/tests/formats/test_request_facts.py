"""`request_facts`: how a client wants to be answered, and which conversation it continues."""

from typing import Any

import pytest

from bartack.formats import FORMATS, RequestFacts, read_request, request_facts
from bartack.nouns.errors import PartValidationError

IN_URL = {"gemini-generate", "bedrock-converse", "bedrock-invoke"}


@pytest.mark.parametrize("format", FORMATS)
def test_a_body_says_whether_the_answer_is_streamed_unless_the_url_does(format: str) -> None:
    default = None if format in IN_URL else format == "ollama-chat"
    assert request_facts(format, {}).stream is default
    assert request_facts(format, {"stream": None}).stream is default
    for value in (True, False):
        assert request_facts(format, {"stream": value}).stream is (None if format in IN_URL else value)


def test_clients_of_the_chat_api_have_to_request_usage() -> None:
    assert not request_facts("openai-chat", {"stream": True}).include_usage
    assert not request_facts("openai-chat", {"stream_options": {"include_usage": False}}).include_usage
    assert request_facts("openai-chat", {"stream_options": {"include_usage": True}}).include_usage
    assert request_facts("openai-responses", {}).include_usage


def test_how_an_answer_is_sent_is_no_setting_of_the_model() -> None:
    options = {"include_usage": True, "include_obfuscation": False}
    body = {"model": "m", "messages": [], "stream": False, "stream_options": options, "n": 1}
    extra = read_request("openai-chat", body).config.extra
    assert extra == {"openai-chat": {"stream_options": {"include_obfuscation": False}}}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"previous_response_id": "resp_1"}, {"previous_response_id": "resp_1"}),
        ({"previous_interaction_id": "i1"}, {"previous_response_id": "i1"}),
        ({"conversation": "conv_1"}, {"conversation": "conv_1"}),
        ({"conversation": {"id": "conv_1"}}, {"conversation": "conv_1"}),
        (
            {"prompt_cache_key": "k", "session_id": "s", "client_metadata": {"thread": "t", "n": 1}},
            {"session_keys": {"prompt_cache_key": "k", "session_id": "s", "client_metadata.thread": "t"}},
        ),
        ({"metadata": {"user_id": "u", "x": "y"}}, {"session_keys": {"metadata.user_id": "u"}}),
        (
            {"metadata": {"user_id": '{"session_id":"s","device_id":"d"}'}},
            {
                "session_keys": {
                    "metadata.user_id.session_id": "s",
                    "metadata.user_id": '{"session_id":"s","device_id":"d"}',
                }
            },
        ),
    ],
)
def test_the_conversation_that_a_request_continues(body: dict[str, Any], expected: dict[str, Any]) -> None:
    assert request_facts("openai-responses", body) == RequestFacts(stream=False, **expected)


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"stream": "yes"}, "$.stream"),
        ({"stream_options": {"include_usage": 1}}, "$.stream_options.include_usage"),
        ({"previous_response_id": 1}, "$.previous_response_id"),
        ({"conversation": 1}, "$.conversation"),
        ({"conversation": {}}, "$.conversation.id"),
    ],
)
def test_a_value_of_another_type_is_refused(body: dict[str, Any], path: str) -> None:
    with pytest.raises(PartValidationError) as caught:
        request_facts("openai-chat", body)
    assert caught.value.path == path


@pytest.mark.parametrize("count", [2, 0, "2"])
def test_several_answers_are_refused(count: Any) -> None:
    chat = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "n": count}
    gemini = {"contents": [{"parts": [{"text": "Hi"}]}], "generationConfig": {"candidateCount": count}}
    for format, body, path in (
        ("openai-chat", chat, "$.n"),
        ("gemini-generate", gemini, "$.generationConfig.candidateCount"),
    ):
        with pytest.raises(PartValidationError, match="several answers") as caught:
            read_request(format, body, model_id="m")
        assert caught.value.path == path


def test_a_body_that_was_parsed_is_read_without_another_check() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    tools = [{"name": "look", "input_schema": schema, "cache_control": {"type": "ephemeral"}}]
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}], "tools": tools}
    read = read_request("anthropic-messages", body, is_parsed=True)
    assert read == read_request("anthropic-messages", body)
    assert read.tools[0].parameter_schema == schema
    for wrong in ({"model": 3}, {"tools": [{**tools[0], "name": 3}]}, {"tools": [{**tools[0], "input_schema": 4}]}):
        with pytest.raises(PartValidationError):
            read_request("anthropic-messages", body | wrong, is_parsed=True)
