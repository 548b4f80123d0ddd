"""How much a model thinks, from formats that take an effort to those that take a token budget, and back.

A reader takes the meaning of a client's setting, whatever the model: an effort or a budget. Where the encoder of its
format would not write that as the client did, the exact form is kept beside it, in `ThinkingConfig.extra` under the
name of the format, and is written in place of the encoder's own. Other formats see only the meaning.

| budget | effort |      | effort | budget |
|---|---|---|---|---|
| 0 | none |             | minimal | 1,024 |
| to 4,096 | low |       | low | 2,048 |
| to 12,288 | medium |   | medium | 8,192 |
| more | high |          | high | 16,384 |
|  |  |                   | max | 24,000 |

The limits lie between the budgets, the largest of which leaves 8,000 tokens of the default `max_tokens` of Claude for
the answer. ``max`` is never derived from a budget, because few models accept it. Formats whose
provider publishes a table of its own use that one.
"""

from typing import Any, Literal

from bartack.nouns.config import ThinkingConfig

__all__ = ["BUDGETS", "WORDS", "budget_of", "effort_of", "exact_fields", "with_exact"]

Effort = Literal["none", "minimal", "low", "medium", "high", "max"]

BUDGETS: dict[str, int] = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16_384, "max": 24_000}
_LIMITS: tuple[tuple[int, Effort], ...] = ((0, "none"), (4096, "low"), (12_288, "medium"))
WORDS: dict[str, Effort] = {  # the words of all providers
    "none": "none",
    "minimal": "minimal",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "max",
    "max": "max",
}


def effort_of(thinking: ThinkingConfig) -> Effort | None:
    """The effort, or the one nearest to the budget; None for the provider's default."""
    if thinking.effort is not None or thinking.budget_tokens is None:
        return thinking.effort
    return next((effort for limit, effort in _LIMITS if thinking.budget_tokens <= limit), "high")


def budget_of(thinking: ThinkingConfig) -> int | None:
    """The budget, or the one for the effort; None for the provider's default."""
    return BUDGETS.get(thinking.effort or "") if thinking.budget_tokens is None else thinking.budget_tokens


def with_exact(thinking: ThinkingConfig, format: str, fields: dict[str, Any]) -> ThinkingConfig:
    """The setting with the fields that a client wrote for it in this format."""
    return ThinkingConfig(effort=thinking.effort, budget_tokens=thinking.budget_tokens, extra={format: fields})


def exact_fields(thinking: ThinkingConfig | None, format: str) -> dict[str, Any]:
    """The fields of this format that a client wrote for the setting; empty if the encoder writes its own."""
    fields = None if thinking is None else (thinking.extra or {}).get(format)
    return fields if isinstance(fields, dict) else {}
