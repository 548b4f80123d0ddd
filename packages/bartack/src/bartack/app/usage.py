"""Tokens and cost as text, and what a session has used so far."""

from collections.abc import Sequence
from typing import NamedTuple

from bartack.nouns.entries import Entry
from bartack.nouns.messages import Message
from bartack.store import SessionStore, Spend


class SessionUsage(NamedTuple):
    """What a session used in total, and the size of its context: the last request together with its answer."""

    spend: Spend = Spend()
    context_tokens: int | None = None


async def session_usage(store: SessionStore, session_id: str, branch: Sequence[Entry]) -> SessionUsage:
    """The totals of the session, and the context at the end of this branch."""
    return SessionUsage((await store.totals(session_id)).spend, context_tokens(branch))


def context_tokens(branch: Sequence[Entry]) -> int | None:
    """The size of the last request together with its answer; None before the first answer with usage."""
    for entry in reversed(branch):
        meta = entry.fact.meta if isinstance(entry.fact, Message) else None
        if meta is not None and meta.usage is not None:
            return meta.usage.total_tokens
    return None


def format_count(count: int) -> str:
    """A number in at most five characters, rounded down: 950, 1.2k, 34k, 1.1M."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if count >= size:
            tenths = count * 10 // size  # 9.99k is not 10.0k
            return f"{tenths // 10}.{tenths % 10}{letter}" if count < 10 * size else f"{count // size}{letter}"
    return str(count)


def format_tokens(spend: Spend) -> str:
    """All tokens, input and output: `1.5k tokens`."""
    return f"{format_count(spend.input_tokens + spend.output_tokens)} tokens"


def format_cost(spend: Spend) -> str:
    """The cost in dollars; `+` means that some calls have no known price. Empty if no model was called."""
    if not spend.calls:
        return ""
    if not spend.cost_usd:
        return "cost unknown" if spend.unpriced else "$0"
    return f"${spend.cost_usd:.4f}{'+' if spend.unpriced else ''}"


def format_context(tokens: int | None, window: int | None) -> str:
    """How full the context window is: `context 1.0k of 4.0k (25 %)`. Empty before the first answer."""
    if tokens is None:
        return ""
    if not window:
        return f"context {format_count(tokens)}"
    return f"context {format_count(tokens)} of {format_count(window)} ({tokens * 100 // window} %)"
