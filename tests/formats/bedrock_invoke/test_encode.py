"""Bodies for Bedrock's InvokeModel, in the language of each family of models."""

from typing import Any

import pytest

from bartack.formats.bedrock_invoke.encode import encode, read_request, rules_for
from bartack.formats.losses import Losses
from bartack.nouns.config import ModelConfig, ThinkingConfig, ToolSpec
from bartack.nouns.errors import PartValidationError
from bartack.nouns.messages import Message, assistant, system, tool_message, user
from bartack.nouns.parts import Continuation, Image, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest
from tests.formats.every_rule import RULES

Json = dict[str, Any]

CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
NOVA = "amazon.nova-2-lite-v1:0"
TITAN = "amazon.titan-text-express-v1"


def encoded(
    model_id: str, *messages: Message, tools: tuple[ToolSpec, ...] = (), **settings: Any
) -> tuple[Json, list[str]]:
    losses = Losses("bedrock")
    request = ModelRequest(messages=messages, config=ModelConfig(model_id, **settings), tools=tools, provider="bedrock")
    return encode(request, losses), [loss.what for loss in losses.found]


def test_claude_takes_the_messages_body_without_model_and_stream() -> None:
    body, lost = encoded(CLAUDE, user("Hi"))
    assert body == {
        "anthropic_version": "bedrock-2023-05-31",
        "max_tokens": 32_000,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    }
    assert lost == []


def test_the_version_may_be_set() -> None:
    body, _ = encoded(CLAUDE, user("Hi"), extra={"anthropic_version": "later", "anthropic_beta": ["x"]})
    assert (body["anthropic_version"], body["anthropic_beta"]) == ("later", ["x"])


def test_nova_takes_the_body_of_converse() -> None:
    body, lost = encoded(NOVA, system("s"), user("Hi"), max_tokens=5, thinking=ThinkingConfig(effort="low"))
    assert body == {
        "schemaVersion": "messages-v1",
        "system": [{"text": "s"}],
        "messages": [{"role": "user", "content": [{"text": "Hi"}]}],
        "inferenceConfig": {"maxTokens": 5},
        "reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"},
    }
    assert lost == []


def test_models_of_the_chat_completions_format_take_its_body() -> None:
    body, _ = encoded("openai.gpt-oss-120b-1:0", user("Hi"))
    assert body["messages"] == [{"role": "user", "content": "Hi"}]
    assert not {"model", "stream", "stream_options"} & body.keys()
    request = read_request(body, provider="bedrock", model_id="openai.gpt-oss-120b-1:0")
    assert request.messages == (user("Hi"),)


def test_titan_takes_one_question_as_it_is() -> None:
    body, lost = encoded(TITAN, user("Hi"), max_tokens=5, temperature=0.5, top_p=0.9, stop_sequences=("x",))
    assert body == {
        "inputText": "Hi",
        "textGenerationConfig": {"maxTokenCount": 5, "temperature": 0.5, "topP": 0.9, "stopSequences": ["x"]},
    }
    assert lost == []


def test_titan_takes_a_conversation_in_the_form_it_was_taught() -> None:
    body, lost = encoded(
        TITAN,
        system("Be brief."),
        user("Hi", Image("image/png", data=b"x"), Text("note", ignored=True)),
        assistant("Hello", ToolCall("a", "f", {})),
        tool_message(ToolResult("a", "x")),
        user("More?"),
        tools=(ToolSpec("f", {}),),
        seed=1,
    )
    assert body == {"inputText": "Be brief.\nUser: Hi\n[image: image/png]\nBot: Hello\nUser: More?\nBot:"}
    assert lost == ["an image (image/png)", "a tool_call", "a tool_result", "seed", "the tools"]


def test_a_prompt_of_titan_is_read() -> None:
    body = {"inputText": "Hi", "textGenerationConfig": {"maxTokenCount": 5, "stopSequences": ["x"], "odd": 1}, "k": 2}
    request = read_request(body, provider="bedrock", model_id=TITAN)
    assert request.messages == (user("Hi"),)
    assert request.config == ModelConfig(
        TITAN, max_tokens=5, stop_sequences=("x",), extra={"textGenerationConfig": {"odd": 1}, "k": 2}
    )
    assert encode(request, Losses("bedrock")) == body


def test_bodies_of_claude_and_nova_are_read_by_what_they_say() -> None:
    claude_body = {"anthropic_version": "v", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}
    nova_body = {"messages": [{"role": "user", "content": [{"text": "Hi"}]}]}
    for body, model_id in ((claude_body, CLAUDE), (nova_body, NOVA)):
        request = read_request(body, provider="bedrock", model_id=model_id)
        assert request.messages == (user("Hi"),)
        assert request.config.model_id == model_id


def test_a_model_without_a_known_language_is_refused() -> None:
    with pytest.raises(PartValidationError, match="Converse takes every model"):
        encoded("meta.llama3-70b-instruct-v1:0", user("Hi"))
    with pytest.raises(PartValidationError, match="neither messages nor inputText"):
        read_request({"prompt": "x"}, provider="bedrock", model_id="meta.llama3-70b-instruct-v1:0")
    with pytest.raises(PartValidationError) as caught:
        read_request({"inputText": "x"}, provider="bedrock")
    assert caught.value.path == "$.model"


def test_titan_is_told_no_thinking() -> None:
    own, foreign = Thinking("hm", continuation=Continuation("bedrock", TITAN, {})), Thinking("oh")
    body, lost = encoded(TITAN, user("Hi"), assistant(own, foreign, Thinking("-", ignored=True), "Hello"), user("So?"))
    assert body == {"inputText": "User: Hi\nBot: Hello\nUser: So?\nBot:"}
    assert lost == ["thinking", "thinking"]


@pytest.mark.parametrize(
    ("model_id", "rules"),
    [
        ("anthropic.claude-sonnet-4-5-20250929-v1:0", "bedrock-invoke"),
        ("us.amazon.nova-pro-v1:0", "bedrock-converse"),
        ("openai.gpt-oss-120b-1:0", "openai-chat"),
    ],
)
def test_the_language_of_the_model_says_what_a_history_must_be_like(model_id: str, rules: str) -> None:
    assert rules_for("bedrock", model_id) is RULES[rules]
