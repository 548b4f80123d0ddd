"""Token counts and costs that providers report, checked."""

from typing import Any

from msgspec.structs import replace

from bartack.nouns.deltas import Usage

__all__ = ["amount", "consistent", "token_count"]

# The largest whole number that all JSON readers represent exactly (RFC 7493, section 2.2). Databases accept it, too.
_MAX_AMOUNT = 2**53 - 1


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
    read, written, reasoning = usage.cache_read_tokens, usage.cache_write_tokens, usage.reasoning_tokens
    sent, made, total = usage.input_tokens, usage.output_tokens, usage.total_tokens
    if (read or 0) + (written or 0) <= sent and (reasoning or 0) <= made and sent + made <= total:
        return usage
    reported = {
        "cacheReadTokens": read,
        "cacheWriteTokens": written,
        "reasoningTokens": reasoning,
        "totalTokens": total,
    }
    read = _at_most(sent, read)
    written = _at_most(sent - (read or 0), written)
    reasoning = _at_most(made, reasoning)
    total = max(total, sent + made)
    kept = zip(reported.items(), (read, written, reasoning, total), strict=True)
    return replace(
        usage,
        total_tokens=total,
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=reasoning,
        extra={**(usage.extra or {}), "reported": {name: count for (name, count), used in kept if count != used}},
    )


def _at_most(whole: int, count: int | None) -> int | None:
    return None if count is None else min(count, whole)
