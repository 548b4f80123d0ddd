"""How much each of Gemini's models may be told to think.

Gemini 3 knows levels, Gemini 2.5 a budget of tokens. The flash models can go without thinking, the pro models cannot.
"""

import re
from typing import Any

from bartack.nouns.config import ThinkingConfig

__all__ = ["EFFORTS", "gemini_generation", "thinking_budget", "thinking_level"]

# ai.google.dev/gemini-api/docs/openai: the budgets that Google's own layer takes for an effort.
_BUDGETS = {"none": 0, "minimal": 1024, "low": 1024, "medium": 8192, "high": 24576, "max": 24576}
_LEAST_OF_PRO = 128
EFFORTS = frozenset(("minimal", "low", "medium", "high"))  # Gemini's words for a level, and ours


def gemini_generation(model_id: str) -> int:
    """3 for ``gemini-3-pro``; names that always mean the newest model count as 3; 0 for what is no Gemini."""
    number = re.search(r"gemini-(\d{1,3})", model_id)
    if number is not None:
        return int(number[1])
    return 3 if re.search(r"gemini-.*latest", model_id) else 0


def thinking_level(thinking: ThinkingConfig, model_id: str) -> str | None:
    """The level for this effort, or the one nearest to this budget."""
    effort: Any = thinking.effort
    if thinking.budget_tokens is not None:
        effort = next((word for word, budget in _BUDGETS.items() if thinking.budget_tokens <= budget), "high")
    if effort in ("none", "minimal"):
        return "low" if "pro" in model_id else "minimal"
    return "high" if effort == "max" else effort


def thinking_budget(thinking: ThinkingConfig, model_id: str) -> int | None:
    """The budget itself, or the one for this effort."""
    if thinking.budget_tokens is not None or thinking.effort is None:
        return thinking.budget_tokens
    return max(_BUDGETS[thinking.effort], _LEAST_OF_PRO if "pro" in model_id else 0)
