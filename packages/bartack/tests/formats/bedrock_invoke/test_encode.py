"""Encoding requests for Bedrock's InvokeModel, in the format of each model family."""

from typing import Any

import pytest

from bartack.formats.bedrock_invoke import encode, read_request, rules_for
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


def test_claude_gets_the_messages_body_without_model_and_stream() -> None:
    body, lost = encoded(CLAUDE, user("Hi"))
    assert body == {
        "anthropic_version": "bedrock-2023-05-31",
        "max_tokens": 32_000,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    }
    assert lost == []


def test_extra_overrides_the_anthropic_version() -> None:
    body, _ = encoded(CLAUDE, user("Hi"), extra={"anthropic_version": "later", "anthropic_beta": ["x"]})
    assert (body["anthropic_version"], body["anthropic_beta"]) == ("later", ["x"])


def test_nova_gets_the_converse_body() -> None:
    body, lost = encoded(NOVA, system("s"), user("Hi"), max_tokens=5, thinking=ThinkingConfig(effort="low"))
    assert body == {
        "schemaVersion": "messages-v1",
        "system": [{"text": "s"}],
        "messages": [{"role": "user", "content": [{"text": "Hi"}]}],
        "inferenceConfig": {"maxTokens": 5},
        "reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"},
    }
    assert lost == []


def test_chat_completions_models_get_that_body() -> None:
    body, _ = encoded("openai.gpt-oss-120b-1:0", user("Hi"))
    assert body["messages"] == [{"role": "user", "content": "Hi"}]
    assert not {"model", "stream", "stream_options"} & body.keys()
    assert encode(read_request(body, provider="bedrock", model_id="openai.gpt-oss-120b-1:0"), Losses("bedrock")) == body


def test_titan_gets_a_single_message_as_it_is() -> None:
    body, lost = encoded(TITAN, user("Hi"), max_tokens=5, temperature=0.5, top_p=0.9, stop_sequences=("x",))
    assert body == {
        "inputText": "Hi",
        "textGenerationConfig": {"maxTokenCount": 5, "temperature": 0.5, "topP": 0.9, "stopSequences": ["x"]},
    }
    assert lost == []


def test_titan_gets_a_conversation_with_named_speakers() -> None:
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
    assert lost == ["image (image/png)", "tool call", "tool result", "seed", "tools"]


def test_an_unknown_model_family_raises() -> None:
    with pytest.raises(PartValidationError, match="use bedrock-converse"):
        encoded("meta.llama3-70b-instruct-v1:0", user("Hi"))


def test_titan_gets_no_thinking() -> None:
    own, foreign = Thinking("hm", continuation=Continuation("bedrock", TITAN, {})), Thinking("oh")
    body, lost = encoded(TITAN, user("Hi"), assistant(own, foreign, Thinking("-", ignored=True), "Hello"), user("So?"))
    assert body == {"inputText": "User: Hi\nBot: Hello\nUser: So?\nBot:"}
    assert lost == ["thinking", "thinking"]


@pytest.mark.parametrize(
    ("model_id", "rules"),
    [
        ("anthropic.claude-opus-4-6-v1:0", "bedrock-invoke"),
        ("us.amazon.nova-pro-v1:0", "bedrock-converse"),
        ("openai.gpt-oss-120b-1:0", "openai-chat"),
    ],
)
def test_the_model_family_decides_the_history_rules(model_id: str, rules: str) -> None:
    assert rules_for("bedrock", model_id) is RULES[rules]


def test_an_older_claude_may_continue_an_answer() -> None:
    assert rules_for("bedrock", "anthropic.claude-sonnet-4-5-20250929-v1:0").allows_assistant_last
