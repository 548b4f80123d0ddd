"""What the model families on Bedrock accept: how thinking is requested, sampling, schemas, prompt caching.

A model id is ``anthropic.claude-...``, with a region in front of it (``us.anthropic...``), or an ARN that ends in one.
The family of an ARN that names a custom profile or import is unknown. The differences between Claude models are in
`anthropic_messages.capabilities`.
"""

import re
from typing import Any, Literal

from bartack.formats.anthropic_messages.capabilities import BodyMessage, sendable_thinking
from bartack.formats.body_values import beyond
from bartack.formats.losses import Losses
from bartack.formats.settings import breakpoint_for
from bartack.nouns.config import CacheConfig, ModelConfig, ThinkingConfig

__all__ = ["add_cache_points", "family_of", "read_thinking", "thinking_fields"]

Json = dict[str, Any]

_REGION = re.compile(r"^(?:[a-z]{2}(?:-gov)?|apac|global)\.")
_UNLIMITED = 10**9  # tokens: without `maxTokens` an answer may be as long as the model allows
# Nova: docs.aws.amazon.com/nova/latest/nova2-userguide/extended-thinking.html. gpt-oss and Qwen: not verified.
_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "max": "high"}
_READABLE: tuple[Literal["low", "medium", "high", "max"], ...] = ("low", "medium", "high", "max")
_EFFORT_FIELDS = {"openai": "reasoning_effort", "qwen": "reasoning_config"}


def family_of(model_id: str) -> str:
    """``anthropic``, ``amazon``, ``meta`` and so on."""
    name = model_id.rpartition("/")[2]
    return _REGION.sub("", name, count=1).partition(".")[0]


# -- thinking


def thinking_fields(config: ModelConfig, turns: list[BodyMessage], is_forced: bool, losses: Losses) -> Json:
    """The `additionalModelRequestFields` that request thinking; `is_forced` means that a tool call is required."""
    thinking, family = config.thinking, family_of(config.model_id)
    if thinking is None:
        return {}
    if family == "anthropic":
        sendable = sendable_thinking(config, config.max_tokens or _UNLIMITED, turns, is_forced, losses)
        fields: Json = {} if sendable.thinking is None else {"thinking": sendable.thinking}
        return fields if sendable.effort is None else {**fields, "output_config": {"effort": sendable.effort}}
    if thinking.budget_tokens is not None:
        losses.add("config.thinking.budgetTokens", "thinking budget", "only Claude has one")
    level = _EFFORTS.get(thinking.effort or "medium")
    if family == "amazon":
        is_on = {"type": "disabled"} if level is None else {"type": "enabled", "maxReasoningEffort": level}
        return {"reasoningConfig": is_on}
    if family in _EFFORT_FIELDS and level is not None:
        return {_EFFORT_FIELDS[family]: level}
    losses.add("config.thinking", "thinking settings", f"not supported for {family} models")
    return {}


def read_thinking(model_id: str, fields: Json) -> tuple[ThinkingConfig | None, Json]:
    """The thinking that these fields request, and the remaining fields; None if we would request it differently."""
    for candidate in _candidates(fields):
        ours = thinking_fields(ModelConfig(model_id, thinking=candidate), [], False, Losses(""))
        if ours and all(fields.get(key) == value for key, value in ours.items()):
            return candidate, beyond(fields, *ours)
    return None, fields


def _candidates(fields: Json) -> list[ThinkingConfig]:
    thinking = fields.get("thinking")
    budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
    budgets = [ThinkingConfig(budget_tokens=budget)] if isinstance(budget, int) else []
    return [*budgets, ThinkingConfig(effort="none"), *(ThinkingConfig(effort=effort) for effort in _READABLE)]


# -- prompt caching: docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html


def add_cache_points(model_id: str, body: Json, cache: CacheConfig, losses: Losses) -> None:
    """Mark what later requests will repeat: tools, system prompt, and the last two user turns.

    Claude accepts at most four points, so existing ones are left as the only ones. The last user turn but one is where
    the previous request ended, so that what it wrote to the cache is found. Nova does not cache tools.
    """
    family = family_of(model_id)
    if family not in ("anthropic", "amazon"):
        losses.add("config.cacheConfig", "prompt caching", f"not supported for {family} models")
        return
    tools = body.get("toolConfig", {}).get("tools", [])
    turns = [message["content"] for message in body["messages"] if message["role"] == "user"]
    if any("cachePoint" in block for content in (tools, body.get("system", []), *turns) for block in content):
        return
    point = {"cachePoint": breakpoint_for(cache, losses) | {"type": "default"}}
    if family == "anthropic":
        _add_cache_point(tools, point)
    for content in (body.get("system", []), *turns[-2:]):
        _add_cache_point(content, point)


def _add_cache_point(content: list[Json], point: Json) -> None:
    """Add a cache point at the end, but before trailing documents and videos.

    Directly after a document it is refused (github.com/strands-agents/harness-sdk/issues/1966), and with nothing before
    it, too (github.com/anomalyco/opencode/issues/17300). After a video: not verified.
    """
    place = len(content)
    while place and ("document" in content[place - 1] or "video" in content[place - 1]):
        place -= 1
    if place:
        content.insert(place, point)
