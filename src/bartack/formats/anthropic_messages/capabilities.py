"""What each Claude model accepts: thinking, sampling, structured output, system messages between turns.

Model names follow a pattern (`claude-3-7-sonnet-20250219`, `claude-opus-4-6`, `us.anthropic.claude-opus-4-8-v1:0`), so
a model's capabilities are derived from its family and version, and a future model is treated as its version suggests. A
model that is not a Claude (other vendors speak this format, too) is sent what the caller asked for.

Sources: docs.claude.com on adaptive and extended thinking, effort, structured outputs and mid-conversation system
messages, and the migration guide of each release.
"""

import re
from typing import Any, Literal, NamedTuple

from bartack.formats.losses import Losses
from bartack.nouns.config import ModelConfig, ThinkingConfig

__all__ = ["Claude", "ThinkingFields", "Turn", "claude", "sampling", "sendable_thinking", "thinking_fields"]

Effort = Literal["low", "medium", "high", "max"]

_NAME = re.compile(
    r"claude-(?:(\d)(?:[-.](\d))?-)?(instant|haiku|sonnet|opus|fable|mythos)(?:-(\d)(?:[-.](\d{1,2})(?!\d))?(?!\d))?"
)
_MIN_BUDGET = 1024  # the API refuses less
# The budgets that represent an effort on models that only take budgets. The largest leaves 8,000 tokens of the default
# `max_tokens` for the answer.
_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16_384, "max": 24_000}
_EFFORTS: dict[str, Effort] = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "max": "max"}


class Claude(NamedTuple):
    """A model by family and version; the family is empty for a model that is not a Claude."""

    family: str = ""
    version: tuple[int, int] = (0, 0)

    @property
    def is_new_family(self) -> bool:
        return self.family in ("fable", "mythos")

    @property
    def takes_thinking(self) -> bool:
        return not self.family or self.version >= (3, 7)

    @property
    def takes_budget(self) -> bool:
        """Thinking with a token budget, which was removed in 4.7."""
        return not self.family or (3, 7) <= self.version <= (4, 6)

    @property
    def takes_adaptive(self) -> bool:
        return bool(self.family) and self.version >= (4, 6)

    @property
    def always_thinks(self) -> bool:
        return self.is_new_family or self.version >= (5, 5)

    @property
    def takes_effort(self) -> bool:
        return self.takes_adaptive or (self.family == "opus" and self.version == (4, 5))

    @property
    def takes_sampling(self) -> bool:
        """`temperature` and `top_p`, which are refused since 4.7."""
        return not self.family or self.version <= (4, 6)

    @property
    def takes_both_samplings(self) -> bool:
        return not self.family or self.version < (4, 1)

    @property
    def takes_schema(self) -> bool:
        return not self.family or self.version >= (4, 5) or (self.family == "opus" and self.version == (4, 1))

    @property
    def takes_system_turns(self) -> bool:
        """System messages between the others: Opus since 4.8, Fable and Mythos, all models since 5.5."""
        return self.is_new_family or self.version >= (5, 5) or (self.family == "opus" and self.version >= (4, 8))

    @property
    def default_max_tokens(self) -> int:
        """The value of `max_tokens`, which the API requires, if the caller gives none.

        Too little cuts answers short; too much is refused, or takes away from the context window on models that
        reserve it. Old models get their maximum. The others get 32,000, which all of them accept and which leaves five
        sixths of the smallest window. 8,192 is accepted by other vendors.
        """
        if not self.family or (3, 5) <= self.version < (3, 7):
            return 8192
        return 4096 if self.version < (3, 5) else 32_000


def claude(model_id: str) -> Claude:
    """The model of this name, in any form that a platform uses."""
    found = _NAME.search(model_id)
    if found is None:
        return Claude()
    old_major, old_minor, family, major, minor = found.groups()
    newest = "5" if family in ("fable", "mythos") else "0"  # their previews have no number
    return Claude(family, (int(major or old_major or newest), int(minor or old_minor or 0)))


# -- thinking


class ThinkingFields(NamedTuple):
    """`thinking` and `output_config.effort` of a body, and why the settings could not be kept in full."""

    thinking: dict[str, Any] | None = None
    effort: Effort | None = None
    loss: str = ""


class Turn(NamedTuple):
    """What decides whether a model may think: one message of the body."""

    is_answer: bool
    has_results: bool
    starts_with_thinking: bool


def thinking_fields(wanted: ThinkingConfig | None, model: Claude, max_tokens: int) -> ThinkingFields:
    """The fields that ask this model for the wanted amount of thinking."""
    if wanted is None or (wanted.effort is None and wanted.budget_tokens is None):
        return ThinkingFields()
    if wanted.effort == "none":
        if model.always_thinks:
            return ThinkingFields(loss="this model always thinks")
        return ThinkingFields({"type": "disabled"} if model.takes_thinking else None)
    if not model.takes_thinking:
        return ThinkingFields(loss="this model does not support thinking")
    effort = None if wanted.effort is None else _EFFORTS[wanted.effort]
    budget = wanted.budget_tokens
    if budget is None and not model.takes_adaptive:
        budget = _BUDGETS[wanted.effort or "medium"]
    if budget is not None and model.takes_budget:
        return _with_budget(budget, effort if model.takes_effort else None, max_tokens)
    thinking = {"type": "adaptive"}
    if not model.takes_budget:
        thinking["display"] = "summarized"  # without it these models send no thinking text
    return ThinkingFields(thinking, effort, "" if budget is None else "this model takes an effort, not a budget")


def _with_budget(budget: int, effort: Effort | None, max_tokens: int) -> ThinkingFields:
    allowed = min(max(budget, _MIN_BUDGET), max_tokens - 1)  # the budget is a part of max_tokens
    if allowed < _MIN_BUDGET:
        return ThinkingFields(effort=effort, loss=f"max_tokens={max_tokens} leaves no room for thinking")
    capped = "high" if effort == "max" else effort  # Opus 4.5 has no "max"; later models take an effort alone
    return ThinkingFields({"type": "enabled", "budget_tokens": allowed}, capped)


def sendable_thinking(
    config: ModelConfig, max_tokens: int, turns: list[Turn], is_forced: bool, losses: Losses
) -> ThinkingFields:
    """The thinking fields as far as this request allows them; `is_forced` means that a tool call is required."""
    fields = thinking_fields(config.thinking, claude(config.model_id), max_tokens)
    kind = None if fields.thinking is None else fields.thinking["type"]
    why = fields.loss
    if is_forced and kind in ("enabled", "adaptive"):
        why = "a tool call is required, which excludes thinking"
        fields = fields._replace(thinking=None)
    elif kind == "enabled" and _began_without_thinking(turns):
        why = "the turn that is being continued began without thinking"
        fields = fields._replace(thinking=None)
    if why:
        losses.add("config.thinking", "thinking settings", why)
    return fields


def _began_without_thinking(turns: list[Turn]) -> bool:
    """Whether the answer to which the last tool results belong began without thinking.

    "When thinking is enabled, a final assistant message must start with a thinking block (preceding the lastmost set of
    tool_use and tool_result blocks)". An answer that another model began, or this one with thinking turned off, has to
    be finished without thinking. Adaptive thinking has no such requirement.
    """
    opening = None
    for turn in reversed(turns):
        if turn.is_answer:
            opening = turn
        elif not turn.has_results:
            break
    return opening is not None and turns[-1].has_results and not opening.starts_with_thinking


# -- sampling


def sampling(config: ModelConfig, thinking: dict[str, Any] | None, losses: Losses) -> tuple[float | None, float | None]:
    """`temperature` and `top_p` as far as the model takes them with these thinking fields."""
    model = claude(config.model_id)
    is_thinking = thinking is not None and thinking["type"] in ("enabled", "adaptive")
    temperature, top_p = config.temperature, config.top_p
    if temperature is not None:
        if not model.takes_sampling or (is_thinking and temperature != 1):
            losses.add("config.temperature", "temperature", "not supported by this model, or not with thinking")
            temperature = None
        elif temperature > 1:
            losses.add("config.temperature", f"temperature {temperature}", "the maximum is 1; 1 is sent")
            temperature = 1
    if top_p is not None:
        is_refused = not model.takes_sampling or (is_thinking and top_p < 0.95)
        if is_refused or (temperature is not None and not model.takes_both_samplings):
            why = "not supported by this model, or not with a temperature or with thinking"
            losses.add("config.topP", "top_p", why)
            top_p = None
    return temperature, top_p
