"""Configurations: their fields, their ranges and their JSON."""

from typing import Any

import pytest

from bartack.nouns.config import (
    AgentConfig,
    AgentState,
    CacheConfig,
    ContextConfig,
    LoopConfig,
    ModelConfig,
    ObservabilityConfig,
    RuntimeConfig,
    SpecificTool,
    ThinkingConfig,
    ToolsConfig,
)
from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.tables import AgentStatus
from bartack.nouns.wire import dump, load


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"model_id": ""}, "modelId"),
        ({"max_tokens": 0}, "maxTokens"),
        ({"max_tokens": -1}, "maxTokens"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": -0.1}, "topP"),
        ({"top_p": 1.1}, "topP"),
        ({"model_id": 5}, "modelId"),
        ({"temperature": "hot"}, "temperature"),
        ({"max_tokens": 1.5}, "maxTokens"),
        ({"max_tokens": True}, "maxTokens"),
        ({"stop_sequences": "END"}, "stopSequences"),
        ({"tool_choice": "sometimes"}, "toolChoice"),
        ({"parallel_tool_calls": 1}, "parallelToolCalls"),
        ({"thinking": "high"}, "thinking"),
        ({"output_schema": []}, "outputSchema"),
        ({"cache_config": "auto"}, "cacheConfig"),
        ({"extra": 5}, "extra"),
    ],
)
def test_a_setting_of_the_wrong_type_or_outside_its_range_is_rejected(settings: dict[str, Any], key: str) -> None:
    """001-2.1.2"""
    with pytest.raises(PartValidationError) as caught:
        ModelConfig(**{"model_id": "m", **settings})
    assert (caught.value.path, caught.value.code) == (f"$.{key}", ErrorCode.INVALID_CONFIG)
    assert caught.value.rule == "001-2.1.2"


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda: AgentConfig(loop="fast"), "$.loop"),  # type: ignore[arg-type]
        (lambda: LoopConfig(max_retries="two"), "$.maxRetries"),  # type: ignore[arg-type]
        (lambda: LoopConfig(timeout_ms=1.5), "$.timeoutMs"),  # type: ignore[arg-type]
        (lambda: ContextConfig(compaction=None), "$.compaction"),  # type: ignore[arg-type]
        (lambda: RuntimeConfig(root=5), "$.root"),  # type: ignore[arg-type]
        (lambda: ToolsConfig(enabled=("read",)), "$.enabled"),  # type: ignore[arg-type]
        (lambda: ToolsConfig(approval={"read": "maybe"}), "$.approval"),  # type: ignore[dict-item]
        (lambda: ObservabilityConfig(trace="yes"), "$.trace"),  # type: ignore[arg-type]
        (lambda: ThinkingConfig(effort="some"), "$.effort"),  # type: ignore[arg-type]
        (lambda: SpecificTool(5), "$.toolName"),  # type: ignore[arg-type]
        (lambda: CacheConfig("never"), "$.strategy"),  # type: ignore[arg-type]
        (lambda: LoopConfig(max_iterations=-1), "$.maxIterations"),
        (lambda: LoopConfig(max_cost_usd=-0.5), "$.maxCostUsd"),
        (lambda: ContextConfig(max_tokens=-1), "$.maxTokens"),
        (lambda: ToolsConfig(timeout_ms=-1), "$.timeoutMs"),
    ],
)
def test_a_configuration_with_a_wrong_value_is_rejected(make: Any, path: str) -> None:
    """004-agent-config.1, 001-2.1.2"""
    with pytest.raises(PartValidationError) as caught:
        make()
    assert (caught.value.path, caught.value.code) == (path, ErrorCode.INVALID_CONFIG)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LoopConfig(timeout_ms=-1), "timeout_ms: must not be negative, got -1"),
        (lambda: LoopConfig(max_tool_rounds="x"), "max_tool_rounds: expected an integer, got text"),  # type: ignore[arg-type]
        (lambda: ModelConfig("m", max_tokens=0), "max_tokens: must be positive"),
    ],
)
def test_the_message_names_the_field_as_python_code_does(make: Any, message: str) -> None:
    with pytest.raises(PartValidationError) as caught:
        make()
    assert caught.value.message == message


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
        "inferenceGeo": "eu",
    }
    config = load(ModelConfig, data)
    assert config.extra == {"inferenceGeo": "eu"}
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
