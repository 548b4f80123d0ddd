"""Values that several formats write and read alike."""

import json
from typing import Any

import pytest

from bartack.formats import ModelRequest, encode, read_request
from bartack.nouns.config import ModelConfig, ToolSpec
from bartack.nouns.errors import PartValidationError
from bartack.nouns.messages import user

MODEL = "anthropic.claude-opus-4-8"


@pytest.mark.parametrize("format", ["anthropic-messages", "bedrock-converse", "openai-responses", "openai-chat"])
@pytest.mark.parametrize("schema", [{}, {"properties": {"a": {}}}])
def test_the_arguments_of_a_tool_are_an_object(format: str, schema: dict[str, Any]) -> None:
    request = ModelRequest((user("Hi"),), config=ModelConfig(MODEL), tools=(ToolSpec("now", schema),))
    body = json.dumps(encode(format, request).body)
    assert json.dumps({"type": "object", **(schema or {"properties": {}})}) in body


@pytest.mark.parametrize("format", ["cohere-v2", "ollama-chat"])
def test_functions_have_an_object_as_well(format: str) -> None:
    request = ModelRequest((user("Hi"),), config=ModelConfig("m"), tools=(ToolSpec("now", {}),))
    assert encode(format, request).body["tools"][0]["function"]["parameters"] == {"type": "object", "properties": {}}


def test_values_of_another_type_are_refused_or_left_out_when_a_request_is_read() -> None:
    turns = [{"role": "assistant", "content": [{"citationsContent": {"content": 1.5}}]}]
    with pytest.raises(PartValidationError) as caught:
        read_request("bedrock-converse", {"messages": turns}, model_id="m")
    assert caught.value.path == "$.messages[0].content[0].citationsContent.content"
    body = {"contents": [{"parts": [{"text": "Hi"}]}], "generationConfig": None}
    assert read_request("gemini-generate", body, model_id="m").config == ModelConfig("m")


def test_null_is_the_absence_of_a_field_of_gemini() -> None:
    turn = {"role": "user", "parts": [{"text": "Hi"}]}
    declaration = {"name": "now", "description": None, "parameters": None}
    body = {"contents": [turn], "tools": [{"functionDeclarations": [declaration], "googleSearch": None}]}
    nulls = dict.fromkeys(("systemInstruction", "toolConfig", "safetySettings", "cachedContent"))
    request = read_request("gemini-generate", {**body, **nulls}, model_id="m")
    assert (request.messages, request.config, request.tools) == (
        (user("Hi"),),
        ModelConfig("m"),
        (ToolSpec("now", {}),),
    )
    for nothing in ({"contents": [{**turn, "role": None}], "tools": None}, {"contents": [{**turn, "role": None}]}):
        assert read_request("gemini-generate", nothing, model_id="m").messages == (user("Hi"),)


@pytest.mark.parametrize("format", ["bedrock-invoke", "bedrock-converse"])
@pytest.mark.parametrize("field", ["messages", "system"])
def test_the_fields_of_a_model_on_bedrock_cannot_replace_the_conversation_either(format: str, field: str) -> None:
    config = ModelConfig("us.amazon.nova-lite-v1:0", extra={"additionalModelRequestFields": {field: []}})
    with pytest.raises(PartValidationError):
        encode(format, ModelRequest((user("Hi"),), config=config))
