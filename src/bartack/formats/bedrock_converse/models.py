"""What differs between the model families behind Bedrock's Converse: sampling, how they are told to think, caching.

A model id is ``anthropic.claude-...``, with a region in front of it (``us.anthropic...``), or an ARN that ends in one.
An ARN that names a profile or an import of one's own does not tell the family. What one Claude takes and another
refuses stands in `anthropic_models`.
"""

import re
from typing import Any

from bartack.formats.anthropic_messages.models import claude, thinking_wish
from bartack.formats.losses import Losses
from bartack.nouns.config import ModelConfig, ThinkingConfig

__all__ = ["add_cache_points", "family_of", "read_thinking", "sampling", "takes_schema", "thinking_fields"]

_REGION = re.compile(r"^(?:[a-z]{2}(?:-gov)?|apac|global)\.")
_UNLIMITED = 10**9  # tokens: without `maxTokens` an answer may be as long as the model allows
_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "max": "high"}
_EFFORT_FIELDS = {"openai": "reasoning_effort", "qwen": "reasoning_config"}
_CACHE_POINT = {"cachePoint": {"type": "default"}}


def family_of(model_id: str) -> str:
    """``anthropic``, ``amazon``, ``meta`` and so on."""
    name = model_id.rpartition("/")[2]
    return _REGION.sub("", name, count=1).partition(".")[0]


def takes_schema(model_id: str) -> bool:
    """Whether the model answers by a schema. Of the models that are no Claude we know nothing and let them try."""
    return claude(model_id).takes_schema


def sampling(config: ModelConfig, fields: dict[str, Any], losses: Losses) -> dict[str, float]:
    """`temperature` and `topP` as far as the model takes them; `fields` say whether it thinks."""
    model = claude(config.model_id)
    is_thinking = fields.get("thinking", {}).get("type") in ("enabled", "adaptive")
    temperature, top_p = config.temperature, config.top_p
    if temperature is not None and temperature > 1:
        losses.add("config.temperature", f"a temperature of {temperature}", "1 is the highest")
        temperature = 1.0
    if temperature is not None and (not model.takes_sampling or (is_thinking and temperature != 1)):
        losses.add("config.temperature", "the temperature", "the model takes none, or none while it thinks")
        temperature = None
    is_second = temperature is not None and not model.takes_both_samplings
    if top_p is not None and (not model.takes_sampling or is_second or (is_thinking and top_p < 0.95)):
        losses.add("config.topP", "top_p", "the model takes none, none beside a temperature, or none while it thinks")
        top_p = None
    return {name: value for name, value in (("temperature", temperature), ("topP", top_p)) if value is not None}


# -- thinking


def thinking_fields(config: ModelConfig, is_forced: bool, is_late: bool, losses: Losses) -> dict[str, Any]:
    """The `additionalModelRequestFields` that ask the model's family to think.

    `is_forced`: it has to call a tool. `is_late`: it goes on with an answer that began without thinking.
    """
    thinking, family = config.thinking, family_of(config.model_id)
    if thinking is None:
        return {}
    if family == "anthropic":
        return _claude_fields(config, is_forced, is_late, losses)
    if thinking.budget_tokens is not None:
        losses.add("config.thinking.budgetTokens", "a budget of tokens for thinking", "only Claude has one")
    level = _EFFORTS.get(thinking.effort or "medium")
    if family == "amazon":
        is_on = {"type": "disabled"} if level is None else {"type": "enabled", "maxReasoningEffort": level}
        return {"reasoningConfig": is_on}
    if family in _EFFORT_FIELDS and level is not None:
        return {_EFFORT_FIELDS[family]: level}
    losses.add("config.thinking", "how much to think", f"models of {family} have no such setting")
    return {}


def _claude_fields(config: ModelConfig, is_forced: bool, is_late: bool, losses: Losses) -> dict[str, Any]:
    wish = thinking_wish(config.thinking, claude(config.model_id), config.max_tokens or _UNLIMITED)
    thinking = wish.thinking
    if wish.loss:
        losses.add("config.thinking", "how much to think", wish.loss)
    if is_forced and thinking is not None and thinking["type"] != "disabled":
        losses.add("config.thinking", "how much to think", "a tool call is demanded, which excludes thinking")
        thinking = None
    if is_late and thinking is not None and thinking["type"] == "enabled":
        losses.add("config.thinking", "how much to think", "the answer that is going on began without thinking")
        thinking = None
    fields: dict[str, Any] = {} if thinking is None else {"thinking": thinking}
    return fields if wish.effort is None else {**fields, "output_config": {"effort": wish.effort}}


def read_thinking(model_id: str, fields: dict[str, Any]) -> tuple[ThinkingConfig | None, dict[str, Any]]:
    """The thinking that these fields ask for and the fields that are left; None where we would ask otherwise."""
    for wish in _wishes(fields):
        ours = thinking_fields(ModelConfig(model_id, thinking=wish), False, False, Losses(""))
        if ours and all(fields.get(key) == value for key, value in ours.items()):
            return wish, {key: value for key, value in fields.items() if key not in ours}
    return None, fields


def _wishes(fields: dict[str, Any]) -> list[ThinkingConfig]:
    """Every wish that could stand behind these fields."""
    asked = fields.get("thinking")
    budget = asked.get("budget_tokens") if isinstance(asked, dict) else None
    budgets = [ThinkingConfig(budget_tokens=budget)] if isinstance(budget, int) else []
    return [
        *budgets,
        ThinkingConfig(effort="none"),
        ThinkingConfig(effort="low"),
        ThinkingConfig(effort="medium"),
        ThinkingConfig(effort="high"),
        ThinkingConfig(effort="max"),
    ]


# -- prompt caching


def add_cache_points(model_id: str, body: dict[str, Any], losses: Losses) -> None:
    """Mark what later requests will repeat: tools, system prompt, and the last two turns of the user.

    Four is the most that Claude takes, so points that are there already stay the only ones. The point in the turn
    before the last is where the request before this one ended, so what that one wrote is found. Nova caches no tools.
    """
    family = family_of(model_id)
    if family not in ("anthropic", "amazon"):
        losses.add("config.cacheConfig", "prompt caching", f"models of {family} have no cache points")
        return
    tools = body.get("toolConfig", {}).get("tools", [])
    turns = [message["content"] for message in body["messages"] if message["role"] == "user"]
    if any("cachePoint" in block for content in (tools, body.get("system", []), *turns) for block in content):
        return
    if family == "anthropic":
        _mark(tools)
    for content in (body.get("system", []), *turns[-2:]):
        _mark(content)


def _mark(content: list[dict[str, Any]]) -> None:
    """Put a cache point at the end, in front of closing documents and videos: directly behind them it is refused."""
    at = len(content)
    while at and ("document" in content[at - 1] or "video" in content[at - 1]):
        at -= 1
    if at:
        content.insert(at, _CACHE_POINT)
