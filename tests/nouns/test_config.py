"""Configurations: their fields, their ranges and their JSON."""

from typing import Any

import pytest

from bartack.nouns.config import AgentConfig, AgentState, ModelConfig, SpecificTool, ThinkingConfig, ToolsConfig
from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.tables import AgentStatus
from bartack.nouns.wire import dump, load


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"model_id": ""}, "modelId"),
        ({"max_tokens": 0}, "maxTokens"),
        ({"max_tokens": -1}, "maxTokens"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": -0.1}, "topP"),
        ({"top_p": 1.1}, "topP"),
    ],
)
def test_a_setting_outside_its_range_is_rejected(given: dict[str, Any], key: str) -> None:
    with pytest.raises(PartValidationError) as caught:
        ModelConfig(**{"model_id": "m", **given})
    assert (caught.value.path, caught.value.code) == (f"$.{key}", ErrorCode.INVALID_CONFIG)


def test_the_limits_of_the_ranges_are_allowed() -> None:
    config = ModelConfig("m", max_tokens=1, temperature=0, top_p=1)
    assert (config.max_tokens, config.temperature, config.top_p) == (1, 0, 1)


def test_a_model_config_keeps_provider_specific_settings() -> None:
    data = {
        "modelId": "m",
        "temperature": 0.5,
        "maxTokens": 100,
        "topP": 0.9,
        "stopSequences": ["END"],
        "toolChoice": {"toolName": "read"},
        "thinking": {"effort": "low", "budgetTokens": 10},
        "cacheConfig": {"strategy": "auto"},
        "serviceTier": "flex",
    }
    config = load(ModelConfig, data)
    assert config.extra == {"serviceTier": "flex"}
    assert config.tool_choice == SpecificTool("read")
    assert config.thinking == ThinkingConfig(effort="low", budget_tokens=10)
    assert dump(config) == data


def test_a_tool_choice_is_a_word_or_a_tool() -> None:
    assert load(ModelConfig, {"modelId": "m", "toolChoice": "required"}).tool_choice == "required"
    with pytest.raises(PartValidationError) as caught:
        load(ModelConfig, {"modelId": "m", "toolChoice": "sometimes"})
    assert caught.value.path == "$.toolChoice"


def test_an_agent_config_has_six_sections_with_defaults() -> None:
    config = AgentConfig()
    assert config.tools == ToolsConfig()
    assert [name for name in config.__struct_fields__ if name != "extra"] == [
        "model",
        "runtime",
        "tools",
        "context",
        "loop",
        "observability",
    ]


def test_an_agent_begins_idle() -> None:
    """004-agent-state.1"""
    assert AgentState().status is AgentStatus.IDLE
    for status in AgentStatus:
        assert load(AgentState, {"status": status.value}).status is status
    with pytest.raises(PartValidationError) as caught:
        load(AgentState, {"status": "asleep"})
    assert caught.value.path == "$.status"
