"""What one Claude takes and another refuses, by the name of the model.

Names follow a pattern (`claude-3-7-sonnet-20250219`, `claude-opus-4-6`, `us.anthropic.claude-opus-4-8-v1:0`), so the
abilities of a model are read off its family and version, and a model that comes out tomorrow is taken for what its
version says. A name that is no Claude (other vendors speak this format too) is sent what the caller asked for.

Sources: Anthropic's pages on adaptive and extended thinking, effort, structured outputs, mid-conversation system
messages, and the migration guides of each release.
"""

import re
from typing import Any, Literal, NamedTuple

from bartack.nouns.config import ThinkingConfig

__all__ = ["Claude", "ThinkingWish", "Turn", "began_without_thinking", "claude", "thinking_wish"]

Effort = Literal["low", "medium", "high", "max"]

_NAME = re.compile(
    r"claude-(?:(\d)(?:[-.](\d))?-)?(instant|haiku|sonnet|opus|fable|mythos)(?:-(\d)(?:[-.](\d{1,2})(?!\d))?(?!\d))?"
)
_LEAST_BUDGET = 1024  # the API refuses less
# Budgets that stand for an effort, on models that know only budgets. The largest leaves 8,000 tokens of the default
# `max_tokens` for the answer.
_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16_384, "max": 24_000}
_EFFORTS: dict[str, Effort] = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "max": "max"}


class Claude(NamedTuple):
    """A model by its family and version. Both are empty for a model that is no Claude."""

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
        """Thinking with a budget of tokens: removed with Opus 4.7 and all that came after it."""
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
        """`temperature` and `top_p`: refused since Opus 4.7."""
        return not self.family or self.version <= (4, 6)

    @property
    def takes_both_samplings(self) -> bool:
        return not self.family or self.version < (4, 1)

    @property
    def takes_schema(self) -> bool:
        return not self.family or self.version >= (4, 5) or (self.family == "opus" and self.version == (4, 1))

    @property
    def takes_system_turns(self) -> bool:
        """Messages of role system between the others: Opus since 4.8, Fable and Mythos, all since 5.5."""
        return self.is_new_family or self.version >= (5, 5) or (self.family == "opus" and self.version >= (4, 8))

    @property
    def default_max_tokens(self) -> int:
        """The API demands `max_tokens`. Too little cuts answers off without need, too much is refused, or eats the
        context window on models that reserve it: so the most that old models give, and 32,000 on the others, which
        all of them give and which leaves five sixths of the smallest window. 8,192 is what other vendors take."""
        if not self.family or (3, 5) <= self.version < (3, 7):
            return 8192
        return 4096 if self.version < (3, 5) else 32_000


def claude(model_id: str) -> Claude:
    """The model that a name says, in whichever form of its name a platform uses."""
    found = _NAME.search(model_id)
    if found is None:
        return Claude()
    old_major, old_minor, family, major, minor = found.groups()
    newest = "5" if family in ("fable", "mythos") else "0"  # previews have no number
    return Claude(family, (int(major or old_major or newest), int(minor or old_minor or 0)))


class ThinkingWish(NamedTuple):
    """`thinking` and `output_config.effort` of a body, and what could not be said."""

    thinking: dict[str, Any] | None = None
    effort: Effort | None = None
    loss: str = ""


def thinking_wish(wanted: ThinkingConfig | None, model: Claude, max_tokens: int) -> ThinkingWish:
    """How this model is asked to think as much as is wanted."""
    if wanted is None or (wanted.effort is None and wanted.budget_tokens is None):
        return ThinkingWish()
    if wanted.effort == "none":
        if model.always_thinks:
            return ThinkingWish(loss="this model always thinks")
        return ThinkingWish({"type": "disabled"} if model.takes_thinking else None)
    if not model.takes_thinking:
        return ThinkingWish(loss="this model does not think")
    effort = None if wanted.effort is None else _EFFORTS[wanted.effort]
    budget = wanted.budget_tokens
    if budget is None and not model.takes_adaptive:
        budget = _BUDGETS[wanted.effort or "medium"]
    if budget is not None and model.takes_budget:
        return _budgeted(budget, effort if model.takes_effort else None, max_tokens)
    thinking = {"type": "adaptive"}
    if not model.takes_budget:
        thinking["display"] = "summarized"  # these models send no thinking text unless they are asked for it
    return ThinkingWish(thinking, effort, "" if budget is None else "this model takes no budget, only an effort")


class Turn(NamedTuple):
    """What there is to know of a message to say whether a model may think on."""

    is_answer: bool
    has_results: bool
    starts_with_thinking: bool


def began_without_thinking(turns: list[Turn]) -> bool:
    """Whether the answer that the last tool results belong to began without thinking.

    "When thinking is enabled, a final assistant message must start with a thinking block (preceding the lastmost set of
    tool_use and tool_result blocks)": such an answer (another model began it, or this one did before it was told to
    think) is to be ended as it began. Adaptive thinking knows no such demand.
    """
    opening = None
    for turn in reversed(turns):
        if turn.is_answer:
            opening = turn
        elif not turn.has_results:
            break
    return opening is not None and turns[-1].has_results and not opening.starts_with_thinking


def _budgeted(budget: int, effort: Effort | None, max_tokens: int) -> ThinkingWish:
    allowed = min(max(budget, _LEAST_BUDGET), max_tokens - 1)  # the budget is a part of max_tokens
    if allowed < _LEAST_BUDGET:
        return ThinkingWish(effort=effort, loss=f"max_tokens {max_tokens} leaves no room for thinking")
    capped = "high" if effort == "max" else effort  # Opus 4.5 knows no max; later models are asked by effort alone
    return ThinkingWish({"type": "enabled", "budget_tokens": allowed}, capped)
