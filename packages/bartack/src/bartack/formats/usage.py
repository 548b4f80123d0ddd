"""Token counts and costs that providers report, checked."""

from typing import Any

from msgspec.structs import replace

from bartack.nouns.deltas import Usage
from bartack.nouns.wire import camel

__all__ = ["PART_OF", "amount", "consistent", "token_count"]

# The largest whole number that all JSON readers represent exactly (RFC 7493, section 2.2). Databases accept it, too.
_MAX_AMOUNT = 2**53 - 1

# The counts that break another one down.
PART_OF = {
    "cache_read_tokens": "input_tokens",
    "cache_write_tokens": "input_tokens",
    "reasoning_tokens": "output_tokens",
}


def amount(value: Any) -> float | None:
    """The value if it is a number that can count something: not negative and not beyond exact arithmetic."""
    return float(value) if type(value) in (int, float) and 0 <= value <= _MAX_AMOUNT else None


def token_count(*values: Any) -> int | None:
    """The first of these values that can be a number of tokens."""
    return next((int(count) for count in map(amount, values) if count is not None), None)


def consistent(usage: Usage) -> Usage:
    """The usage with counts that fit together (D-3.4):

        cache_read_tokens + cache_write_tokens <= input_tokens
        reasoning_tokens <= output_tokens
        total_tokens >= input_tokens + output_tokens

    A breakdown that exceeds its whole is cut to it, and what was reported is kept in `extra`. OpenRouter counts
    reasoning with another tokenizer (118 of 107 in openrouter-chat/*deepseek_chat_v3_1-streaming--0-f01a64). Mistral
    counts cached tokens of a prompt that its input count leaves out (64 of 10 in
    mistral-chat/prism--mistral-stream-reasoning-model-1-1--0-131d10), and so does Azure for Grok (not recorded).
    """
    room = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    fitting: dict[str, int] = {}
    for name, whole in PART_OF.items():
        count = getattr(usage, name)
        if count is not None:
            fitting[name] = min(count, room[whole])
            room[whole] -= fitting[name]
    fitting["total_tokens"] = max(usage.total_tokens, usage.input_tokens + usage.output_tokens)
    reported = {camel(name): getattr(usage, name) for name in fitting if getattr(usage, name) != fitting[name]}
    if not reported:
        return usage
    return replace(usage, **fitting, extra={**(usage.extra or {}), "reported": reported})
