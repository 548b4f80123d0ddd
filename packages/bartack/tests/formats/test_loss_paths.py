"""A loss names its place by the path in the canonical JSON of the request, in every format."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.formats import FORMATS, format_named
from bartack.formats.losses import Losses
from bartack.formats.repair import repair
from bartack.nouns.config import CacheConfig, ModelConfig, SpecificTool, ThinkingConfig, ToolSpec
from bartack.nouns.messages import Message
from bartack.nouns.parts import Continuation
from bartack.nouns.requests import ModelRequest
from bartack.nouns.wire import dump
from tests.properties.histories import histories

MODELS = {
    "anthropic-messages": ["claude-sonnet-4-5", "claude-opus-4-6"],
    "bedrock-converse": [
        "anthropic.claude-sonnet-4-5-20250929-v1:0",
        "amazon.nova-pro-v1:0",
        "mistral.mistral-large-2407-v1:0",
    ],
    "bedrock-invoke": [
        "anthropic.claude-sonnet-4-5-20250929-v1:0",
        "amazon.titan-text-express-v1",
        "openai.gpt-oss-120b-1:0",
    ],
    "gemini-generate": ["gemini-2.5-pro", "gemini-3-pro"],
    "gemini-interactions": ["gemini-2.5-pro", "gemini-3-pro"],
}
PROVIDERS = {"openai-chat": ["openai", "mistral", "deepseek", "zai", "perplexity", "writer", "elsewhere"]}
OBJECT = {"type": "object", "properties": {}}
TOOLS = (
    ToolSpec("read", OBJECT, strict=True),
    ToolSpec("web", OBJECT, native=Continuation("some other provider", "m", {"type": "web"})),
)
SETTINGS: dict[str, list[Any]] = {
    "temperature": [1.7],
    "top_p": [0.4],
    "seed": [7],
    "stop_sequences": [("END",)],
    "tool_choice": ["auto", "required", "none", SpecificTool("read")],
    "parallel_tool_calls": [True, False],
    "thinking": [ThinkingConfig(effort="max"), ThinkingConfig(effort="none"), ThinkingConfig(budget_tokens=2048)],
    "output_schema": [OBJECT],
    "cache_config": [CacheConfig()],
}
configs = st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in SETTINGS.items()})


def value_at(request: ModelRequest, path: str) -> Any:
    """What the path leads to in the request's canonical JSON; `KeyError` or `IndexError` if it leads nowhere."""
    value = dump(request)
    for key, index in re.findall(r"(\w+)|\[(\d+)\]", path):
        value = value[key] if key else value[int(index)]
    return value


@pytest.mark.parametrize("format", FORMATS)
def test_losses_name_places_in_the_canonical_json(format: str) -> None:
    row = format_named(format)

    @given(
        histories,
        configs,
        st.sampled_from(MODELS.get(format, ["some-model"])),
        st.sampled_from(PROVIDERS.get(format, ["elsewhere"])),
        st.sampled_from([TOOLS, ()]),
    )
    def holds(
        history: list[Message], options: dict[str, Any], model: str, provider: str, tools: tuple[ToolSpec, ...]
    ) -> None:
        messages = repair(history, row.history_rules(provider, model)).messages
        request = ModelRequest(messages, config=ModelConfig(model, **options), tools=tools, provider=provider)
        losses = Losses(provider)
        row.encode(request, losses)
        for loss in losses.found:
            assert re.fullmatch(r"(\w+|\[\d+\])(\.\w+|\[\d+\])*", loss.where), loss
            value_at(request, loss.where)

    holds()


def test_a_path_in_another_spelling_is_not_found() -> None:
    request = ModelRequest((), config=ModelConfig("m", parallel_tool_calls=True), tools=TOOLS)
    assert value_at(request, "config.parallelToolCalls") is True
    assert value_at(request, "tools[0].strict") is True
    for path in ("config.parallel_tool_calls", "config.seed", "tools.read", "tools[2]", "messages[0]"):
        with pytest.raises((KeyError, IndexError, TypeError)):
            value_at(request, path)
