"""Requests of Ollama, Cohere and InvokeModel: what their readers understand, keep and refuse."""

from typing import Any

import pytest
from msgspec.structs import replace

from bartack.formats import encode, read_request
from bartack.nouns.config import ModelConfig, ThinkingConfig
from bartack.nouns.errors import PartValidationError
from bartack.nouns.messages import user
from bartack.nouns.parts import Image, Text

Json = dict[str, Any]
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def ollama(*messages: Any, **fields: Any) -> Json:
    return {"model": "m", "messages": list(messages), **fields}


@pytest.mark.parametrize(
    ("format", "body", "path"),
    [
        ("ollama-chat", {"messages": []}, "$.model"),
        ("ollama-chat", {"model": "m"}, "$.messages"),
        ("ollama-chat", ollama("x"), "$.messages[0]"),
        ("ollama-chat", ollama({"role": "robot"}), "$.messages[0].role"),
        ("ollama-chat", ollama({"role": "user", "content": 1}), "$.messages[0].content"),
        ("ollama-chat", ollama({"role": "user", "images": ["?"]}), "$.messages[0].images[0]"),
        ("ollama-chat", ollama({"role": "assistant", "thinking": 1}), "$.messages[0].thinking"),
        ("ollama-chat", ollama({"role": "assistant", "tool_calls": [1]}), "$.messages[0].tool_calls[0]"),
        ("ollama-chat", ollama({"role": "assistant", "tool_calls": [{}]}), "$.messages[0].tool_calls[0].function"),
        ("ollama-chat", ollama({"role": "system", "images": ["YQ=="]}), "$.messages[0].parts[0]"),
        ("ollama-chat", ollama({"role": "tool", "content": "x"}), "$.messages[0].tool_call_id"),
        ("ollama-chat", ollama(options={"stop": "x"}), "$.options.stop"),
        ("ollama-chat", ollama(tools=[{"function": {}}]), "$.tools[0].function.name"),
        ("cohere-v2", ollama({"role": "robot"}), "$.messages[0].role"),
        ("cohere-v2", ollama({"role": "user", "content": [{"type": "video"}]}), "$.messages[0].content[0]"),
        ("cohere-v2", ollama({"role": "user", "tool_calls": [CALL]}), "$.messages[0].parts[0]"),
        ("cohere-v2", ollama({"role": "tool", "content": "x"}), "$.messages[0].tool_call_id"),
        (
            "cohere-v2",
            ollama({"role": "assistant", "tool_calls": [{"id": "c"}]}),
            "$.messages[0].tool_calls[0].function",
        ),
        ("bedrock-invoke", {"inputText": 1}, "$.inputText"),
        ("bedrock-invoke", {"inputText": "x", "textGenerationConfig": {"topP": "x"}}, "$.textGenerationConfig.topP"),
        ("bedrock-invoke", {}, "$.messages"),
    ],
)
def test_a_body_of_another_shape_is_refused_with_its_path(format: str, body: Json, path: str) -> None:
    model_id = "amazon.titan-text" if format == "bedrock-invoke" else ""
    with pytest.raises(PartValidationError) as caught:
        read_request(format, body, model_id=model_id)
    assert caught.value.path == path


def test_calls_of_ollama_without_ids_are_answered_in_order() -> None:
    calls: list[Json] = [{"function": {"name": name, "arguments": {}}} for name in ("f", "g")]
    body = ollama(
        {"role": "assistant", "thinking": "hm", "tool_calls": calls},
        {"role": "tool", "content": "1"},
        {"role": "tool", "content": "2", "images": ["YQ=="]},
        {"role": "tool", "content": "3", "tool_call_id": "other"},
        think=True,
    )
    request = read_request("ollama-chat", body)
    assert [call.tool_call_id for call in request.messages[0].tool_calls] == ["call-1", "call-2"]
    results = [message.tool_results[0] for message in request.messages[1:]]
    assert [result.tool_call_id for result in results] == ["call-1", "call-2", "other"]
    assert results[1].content == (Text("2"), Image("image/png", data=b"a"))
    assert request.config.thinking == ThinkingConfig()


@pytest.mark.parametrize(
    ("setting", "thinking"),
    [
        ({"type": "disabled"}, ThinkingConfig(effort="none")),
        ({"type": "enabled"}, ThinkingConfig()),
        ({"type": "enabled", "token_budget": 5}, ThinkingConfig(budget_tokens=5)),
        ({"type": "later"}, None),
    ],
)
def test_thinking_of_cohere(setting: Json, thinking: ThinkingConfig | None) -> None:
    request = read_request("cohere-v2", ollama({"role": "user", "content": "Hi"}, thinking=setting))
    assert request.config.thinking == thinking
    assert encode("cohere-v2", request).body["thinking"] == setting


def test_messages_of_cohere() -> None:
    url = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    citation = {"start": 0, "end": 1, "text": "a"}
    body = ollama(
        {"role": "user", "content": [{"type": "text", "text": "Look"}, url]},
        {"role": "assistant", "tool_plan": "I will.", "tool_calls": [CALL], "citations": [citation]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "document", "document": {"data": {"a": 1}}}]},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "see"}, url]},
        {"role": "assistant", "content": "a", "citations": [citation]},
        tool_choice="REQUIRED",
        strict_tools=True,
        tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "odd": 1}}],
    )
    request = read_request("cohere-v2", body)
    assert request.messages[0].parts[1] == Image("image/*", url="https://example.com/a.png")
    assert [part.kind for part in request.messages[1].parts] == ["thinking", "text", "tool_call"]
    assert request.messages[2].tool_results[0].content == '{"a":1}'
    assert len(request.messages[3].tool_results[0].content) == 2
    assert (request.config.tool_choice, request.tools[0].strict) == ("required", True)
    cited = [message for message in encode("cohere-v2", request).body["messages"] if "citations" in message]
    assert [message["citations"] for message in cited] == [[citation]]  # empty text has none to send
    assert request.tools[0].extra == {"cohere-v2": {"odd": 1}}
    bad = {**CALL, "function": {"name": "f", "arguments": "{"}}
    [message] = read_request("cohere-v2", ollama({"role": "assistant", "tool_calls": [bad]})).messages
    assert message.tool_calls[0].raw_args_text == "{"


def test_the_prompt_of_titan() -> None:
    settings = {"maxTokenCount": 5, "stopSequences": ["x"], "odd": 1}
    body = {"inputText": "Hi", "textGenerationConfig": settings, "trace": "on"}
    request = read_request("bedrock-invoke", body, model_id="amazon.titan-text-lite-v1")
    extra = {"bedrock-invoke": {"trace": "on", "textGenerationConfig": {"odd": 1}}}
    config = ModelConfig("amazon.titan-text-lite-v1", max_tokens=5, stop_sequences=("x",), extra=extra)
    assert (request.config, request.messages) == (config, (user("Hi"),))
    assert encode("bedrock-invoke", request).body == body


@pytest.mark.parametrize(
    ("model", "field"),
    [
        ("anthropic.claude-opus-4-8", {"anthropic_version": "later", "top_k": 5}),
        ("us.amazon.nova-lite-v1:0", {"schemaVersion": "later"}),
        ("openai.gpt-oss-120b-1:0", {"logit_bias": {"1": 2}}),
    ],
)
def test_each_family_on_bedrock_is_read_in_its_own_format(model: str, field: Json) -> None:
    content = [{"text": "Hi"}] if "nova" in model else "Hi"
    body = {"messages": [{"role": "user", "content": content}], **field}
    request = read_request("bedrock-invoke", body, model_id=model)
    encoded = encode("bedrock-invoke", request)
    assert {key: encoded.body[key] for key in field} == field
    assert encoded.report.losses == ()
    with pytest.raises(PartValidationError):
        encode("bedrock-invoke", replace(request, config=replace(request.config, model_id="cohere.command")))
