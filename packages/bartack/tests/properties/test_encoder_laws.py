"""The law of the encoders: any history becomes a request that the provider accepts.

`tests.formats.validity.checks` checks the bodies independently of the encoders. A target is a format, with a model and
a vendor where they make a difference.
"""

import json
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bartack.formats import Encoded, ModelRequest, encode
from bartack.nouns.config import CacheConfig, ModelConfig, ThinkingConfig, ToolSpec
from bartack.nouns.messages import Message, assistant, system, tool_message, user
from bartack.nouns.parts import FileRef, Image, Text, Thinking, ToolCall, ToolResult
from tests.formats.validity.checks import faults
from tests.properties.answers import LEFT, MODELS, TEXTS_KEPT
from tests.properties.histories import encodable_histories

TOOLS = (ToolSpec("read", {"type": "object", "properties": {"path": {"type": "string"}}}, description="Reads."),)
BUDGET = ThinkingConfig(budget_tokens=2048)
EFFORT = ThinkingConfig(effort="high")


class Target(NamedTuple):
    """The destination of a request."""

    format: str
    model: str
    provider: str = ""
    thinking: ThinkingConfig | None = None
    tools: tuple[ToolSpec, ...] = TOOLS

    def encoded(self, history: list[Message]) -> Encoded:
        config = ModelConfig(self.model, thinking=self.thinking, cache_config=CacheConfig())
        request = ModelRequest(tuple(history), config=config, tools=self.tools, provider=self.provider)
        return encode(self.format, request)

    def faults(self, body: dict[str, Any]) -> list[str]:
        # What OpenAI refuses is not sent to any vendor of its format.
        strict = faults(self.format, body, model=self.model)
        return strict + faults(self.format, body, model=self.model, provider=self.provider)


CLAUDE_45, CLAUDE_48 = "anthropic.claude-sonnet-4-5-20250929-v1:0", "us.anthropic.claude-opus-4-8-v1:0"
TARGETS = [
    Target("anthropic-messages", "claude-3-5-haiku-20241022", tools=()),
    Target("anthropic-messages", "claude-sonnet-4-5", thinking=BUDGET),
    Target("anthropic-messages", "claude-opus-4-8", thinking=EFFORT),
    Target("anthropic-messages", "claude-opus-4-6", provider="elsewhere"),
    Target("bedrock-converse", CLAUDE_45, thinking=BUDGET),
    Target("bedrock-converse", CLAUDE_48, tools=()),
    Target("bedrock-converse", "us.amazon.nova-pro-v1:0"),
    Target("bedrock-converse", "mistral.mistral-large-2407-v1:0", tools=()),
    Target("bedrock-invoke", CLAUDE_45, thinking=BUDGET),
    Target("bedrock-invoke", "us.amazon.nova-lite-v1:0"),
    Target("bedrock-invoke", "amazon.titan-text-express-v1", tools=()),
    Target("bedrock-invoke", "openai.gpt-oss-120b-1:0"),
    Target("cohere-v2", "command-a-03-2025"),
    Target("gemini-generate", "gemini-2.5-flash", thinking=EFFORT),
    Target("gemini-generate", "gemini-3-pro"),
    Target("gemini-generate", "gemini-3-flash", tools=()),
    Target("gemini-interactions", "gemini-3-pro"),
    Target("ollama-chat", "qwen3"),
    Target("openai-chat", "gpt-5"),
    Target("openai-chat", "gpt-5", provider="openai", tools=()),
    Target("openai-chat", "mistral-large-latest", provider="mistral"),
    Target("openai-chat", "deepseek-reasoner", provider="deepseek", thinking=EFFORT),
    Target("openai-chat", "sonar-pro", provider="perplexity", tools=()),
    Target("openai-chat", "kimi-k2.6", provider="moonshot", thinking=EFFORT),
    Target("openai-chat", "anthropic/claude-opus-4.1", provider="openrouter"),
    Target("openai-chat", "grok-4", provider="xai"),
    Target("openai-chat", "glm-4.6", provider="zai"),
    Target("openai-chat", "local", provider="nobody knows"),
    Target("openai-responses", "gpt-5"),
    Target("openai-responses", "gpt-4.1", tools=()),
    Target("openai-responses", "grok-4", provider="xai"),
]
thorough = settings(max_examples=5 * settings().max_examples)


def name_of(target: Target) -> str:
    return "-".join(filter(None, (target.format, target.provider, target.model)))


@thorough
@given(encodable_histories)
@example([])
@example([system("Be brief.")])
@example([assistant("Hello!")])
@example([user(FileRef("a.txt"))])
@example([user(""), assistant(ToolCall("a", "", {}))])
def test_any_history_becomes_a_request_that_the_provider_accepts(history: list[Message]) -> None:
    for target in TARGETS:
        assert target.faults(target.encoded(history).body) == [], name_of(target)


@given(encodable_histories)
def test_the_same_history_gives_the_same_bytes(history: list[Message]) -> None:
    for target in TARGETS:
        assert json.dumps(target.encoded(history).body) == json.dumps(target.encoded(history).body), name_of(target)


@given(encodable_histories, st.sampled_from(TARGETS))
def test_encoding_does_not_change_the_history(history: list[Message], target: Target) -> None:
    before = repr(history)
    target.encoded(history)
    assert repr(history) == before


def provider_of(target: Target) -> str:
    return target.provider or target.format


@pytest.mark.parametrize("target", TARGETS, ids=name_of)
def test_continuation_data_is_sent_only_to_its_provider(target: Target) -> None:
    """D-3.9.3: the body contains no data of other providers, and the report lists what each part lost."""
    for format, ways in LEFT.items():
        if format == provider_of(target):
            continue
        for number, make in enumerate(ways):
            part = make("call00001")
            encoded = target.encoded([user("hi"), Message("assistant", (part, Text("done"))), user("go on")])
            body = json.dumps(encoded.body)
            assert not [text for text in TEXTS_KEPT if text in body], (format, number)
            places = {loss.where for loss in encoded.report.losses}  # repair drops empty text, encoders the rest
            assert places & {"messages[1].parts[0]", "history[1].parts[0]"}, (format, number)


@pytest.mark.parametrize("target", TARGETS, ids=name_of)
def test_thinking_that_is_left_out_is_reported_as_thinking(target: Target) -> None:
    for format in ("anthropic-messages", "openai-responses", "elsewhere"):
        if format == provider_of(target):
            continue
        history = [user("hi"), Message("assistant", (LEFT[format][0]("x"), Text("yes"))), user("go on")]
        losses = [loss for loss in target.encoded(history).report.losses if loss.where == "messages[1].parts[0]"]
        assert [(loss.what, loss.why) for loss in losses] == [("thinking", f"it belongs to {format}")]
    own_words = [user("hi"), assistant(Thinking("hm"), "yes"), user("go on")]
    losses = [loss for loss in target.encoded(own_words).report.losses if loss.where == "messages[1].parts[0]"]
    assert [(loss.what, loss.why) for loss in losses] == [("thinking", "the provider it came from is unknown")]


UNSAYABLE = [
    FileRef("notes/a.txt"),
    FileRef("b.bin", data=b"\0", mime_type="application/x-thing"),
    Image("image/bmp", data=b"BM"),
]


@pytest.mark.parametrize("target", TARGETS, ids=name_of)
@pytest.mark.parametrize("part", UNSAYABLE, ids=lambda part: part.kind)
def test_unsupported_content_is_named_in_a_text(target: Target, part: FileRef | Image) -> None:
    encoded = target.encoded([user(part)])
    name = part.path if isinstance(part, FileRef) else "image/bmp"
    body_text = json.dumps(encoded.body)
    if [loss for loss in encoded.report.losses if loss.where == "messages[0].parts[0]"]:
        assert name in body_text
    else:
        assert part.data is not None  # this provider takes it


@pytest.mark.parametrize("target", TARGETS, ids=name_of)
def test_unsupported_tool_output_is_named_too(target: Target) -> None:
    call, result = ToolCall("call00001", "read", {}), ToolResult("call00001", (FileRef("notes/a.txt"),))
    encoded = target.encoded([user("hi"), assistant(call), tool_message(result)])
    assert "notes/a.txt" in json.dumps(encoded.body) or "titan" in target.model
    assert target.faults(encoded.body) == []


def test_every_format_is_a_target() -> None:
    assert {target.format for target in TARGETS} == MODELS.keys()
