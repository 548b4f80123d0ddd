"""Differences between the model families on Bedrock: sampling, thinking, schemas and prompt caching."""

from typing import Any

import pytest

from bartack.formats.bedrock_converse.capabilities import family_of
from bartack.formats.bedrock_converse.encode import encode
from bartack.formats.bedrock_converse.read import read_request
from bartack.formats.losses import Losses
from bartack.nouns.config import CacheConfig, ModelConfig, ThinkingConfig, ToolSpec
from bartack.nouns.messages import Message, assistant, system, user
from bartack.nouns.parts import FileRef
from bartack.nouns.requests import ModelRequest

OLD_CLAUDE = "us.anthropic.claude-3-7-sonnet-20250219-v1:0"
CLAUDE = "global.anthropic.claude-sonnet-4-6"
NEW_CLAUDE = "anthropic.claude-opus-4-8-v1:0"
NOVA = "us.amazon.nova-2-lite-v1:0"
POINT = {"cachePoint": {"type": "default"}}


def asked(model_id: str, *messages: Message, tools: Any = (), **settings: Any) -> tuple[dict[str, Any], list[str]]:
    losses = Losses("bedrock")
    config = ModelConfig(model_id, **settings)
    body = encode(ModelRequest(messages=messages, config=config, tools=tools, provider="bedrock"), losses)
    return body, [loss.where for loss in losses.found]


@pytest.mark.parametrize(
    ("model_id", "family"),
    [
        (OLD_CLAUDE, "anthropic"),
        (NOVA, "amazon"),
        ("us-gov.anthropic.claude-v2", "anthropic"),
        ("qwen.qwen3-32b-v1:0", "qwen"),
        ("arn:aws:bedrock:eu-west-1:1:inference-profile/eu.meta.llama4-v1:0", "meta"),
        ("arn:aws:bedrock:eu-west-1:1:application-inference-profile/abc", "abc"),
    ],
)
def test_the_family_is_read_from_the_model_id(model_id: str, family: str) -> None:
    assert family_of(model_id) == family


@pytest.mark.parametrize(
    ("model_id", "thinking", "fields"),
    [
        (OLD_CLAUDE, {"budget_tokens": 1024}, {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
        (OLD_CLAUDE, {"effort": "low"}, {"thinking": {"type": "enabled", "budget_tokens": 2048}}),
        (CLAUDE, {"effort": "high"}, {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}),
        (CLAUDE, {"effort": "none"}, {"thinking": {"type": "disabled"}}),
        (NOVA, {"effort": "max"}, {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "high"}}),
        (NOVA, {"effort": "none"}, {"reasoningConfig": {"type": "disabled"}}),
        ("openai.gpt-oss-120b-1:0", {"effort": "minimal"}, {"reasoning_effort": "low"}),
        ("qwen.qwen3-32b-v1:0", {}, {"reasoning_config": "medium"}),
    ],
)
def test_thinking_is_requested_in_the_terms_of_the_family(
    model_id: str, thinking: dict[str, Any], fields: dict[str, Any]
) -> None:
    body, losses = asked(model_id, user("Hi"), thinking=ThinkingConfig(**thinking))
    assert body["additionalModelRequestFields"] == fields
    assert not losses
    read = read_request(body, provider="bedrock", model_id=model_id)
    assert encode(read, Losses("bedrock")) == body
    assert read.config.thinking is not None
    assert read.config.extra is None


@pytest.mark.parametrize(
    ("model_id", "thinking", "lost"),
    [
        ("meta.llama4-v1:0", {"effort": "high"}, ["config.thinking"]),
        ("openai.gpt-oss-120b-1:0", {"effort": "none"}, ["config.thinking"]),
        ("qwen.qwen3-32b-v1:0", {"budget_tokens": 9}, ["config.thinking.budgetTokens"]),
        ("anthropic.claude-3-haiku-20240307-v1:0", {"effort": "high"}, ["config.thinking"]),
    ],
)
def test_unsupported_thinking_is_reported(model_id: str, thinking: dict[str, Any], lost: list[str]) -> None:
    assert asked(model_id, user("Hi"), thinking=ThinkingConfig(**thinking))[1] == lost


def test_a_required_call_excludes_thinking_on_claude() -> None:
    body, losses = asked(
        OLD_CLAUDE, tools=(ToolSpec("add", {}),), tool_choice="required", thinking=ThinkingConfig(effort="low")
    )
    assert losses == ["config.thinking"]
    assert "additionalModelRequestFields" not in body


def test_thinking_fields_of_another_form_stay_in_extra() -> None:
    fields = {"thinking": {"type": "adaptive", "depth": "deep"}, "top_k": 5}
    body = {"messages": [], "additionalModelRequestFields": fields}
    request = read_request(body, provider="bedrock", model_id=CLAUDE)
    assert request.config.extra == {"bedrock-converse": {"additionalModelRequestFields": fields}}
    assert encode(request, Losses("bedrock")) == body


# -- sampling and schemas


def test_sampling_that_the_model_does_not_take_is_reported() -> None:
    assert asked(NOVA, temperature=0.5, top_p=0.9)[0]["inferenceConfig"] == {"temperature": 0.5, "topP": 0.9}
    assert asked(NOVA, temperature=1.5) == (
        {"messages": [], "inferenceConfig": {"temperature": 1.0}},
        ["config.temperature"],
    )
    assert asked(NEW_CLAUDE, temperature=0.5, top_p=0.9) == ({"messages": []}, ["config.temperature", "config.topP"])
    assert asked(CLAUDE, temperature=0.5, top_p=0.9)[1] == ["config.topP"]
    thinking = ThinkingConfig(effort="low")
    assert asked(OLD_CLAUDE, temperature=0.5, top_p=0.9, thinking=thinking)[1] == ["config.temperature", "config.topP"]
    assert asked(OLD_CLAUDE, temperature=1, top_p=0.95, thinking=thinking)[1] == []


def test_a_schema_is_sent_as_text_and_not_to_old_claudes() -> None:
    definition = {"schema": '{"type":"string"}'}
    assert asked(CLAUDE, output_schema={"type": "string"})[0]["outputConfig"] == {
        "textFormat": {"type": "json_schema", "structure": {"jsonSchema": definition}}
    }
    assert asked(OLD_CLAUDE, output_schema={"type": "object"}) == ({"messages": []}, ["config.outputSchema"])


# -- prompt caching


def conversation() -> tuple[Message, ...]:
    document = FileRef("a.pdf", mime_type="application/pdf", data=b"x")
    return system("Be brief."), user("one"), assistant("1"), user("two"), assistant("2"), user("three", document)


def test_claude_caches_tools_system_and_the_last_two_user_turns() -> None:
    """The point precedes documents; directly after them it is refused."""
    settings = {"tools": (ToolSpec("add", {}),), "cache_config": CacheConfig()}
    body, losses = asked(CLAUDE, *conversation(), **settings)
    assert not losses
    assert body["toolConfig"]["tools"][-1] == POINT
    assert body["system"] == [{"text": "Be brief."}, POINT]
    contents = [message["content"] for message in body["messages"]]
    assert [[place for place, block in enumerate(content) if block == POINT] for content in contents] == [
        [],
        [],
        [1],
        [],
        [1],
    ]
    assert asked(CLAUDE, *conversation(), **settings)[0] == body


def test_nova_does_not_cache_tools_and_others_cache_nothing() -> None:
    settings = {"tools": (ToolSpec("add", {}),), "cache_config": CacheConfig()}
    body = asked(NOVA, *conversation(), **settings)[0]
    assert len(body["toolConfig"]["tools"]) == 1
    assert body["system"][-1] == POINT
    body, losses = asked("meta.llama4-v1:0", *conversation(), **settings)
    assert losses == ["config.cacheConfig"]
    assert POINT not in body["system"]


def test_existing_cache_points_stay_the_only_ones() -> None:
    body = {"messages": [{"role": "user", "content": [{"text": "one"}, POINT, {"text": "two"}]}]}
    request = read_request(body, provider="bedrock", model_id=CLAUDE)
    messages = request.messages
    assert asked(CLAUDE, *messages, cache_config=CacheConfig())[0] == body


def test_a_turn_of_documents_gets_its_cache_point_after_the_added_text() -> None:
    document = FileRef("a.pdf", mime_type="application/pdf", data=b"x")
    body = asked(CLAUDE, assistant("1"), user(document), cache_config=CacheConfig())[0]
    assert [next(iter(block)) for block in body["messages"][1]["content"]] == ["document", "text", "cachePoint"]
