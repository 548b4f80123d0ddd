"""The line below the prompt: model, tokens, cost, how full the context is, and the session; short in narrow windows."""

from collections.abc import Iterable
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from bartack.cli.sessions_print import cost_text
from bartack.cli.terminal.safe_text import safe_line
from bartack.nouns.entries import Entry
from bartack.nouns.messages import Message
from bartack.store import SessionStore, Spend

__all__ = ["Usage", "count_text", "status_line", "usage_of"]


class Usage(NamedTuple):
    """What a session used so far, and the tokens of its last request with the answer."""

    spend: Spend = Spend()
    context_tokens: int | None = None


async def usage_of(store: SessionStore, session_id: str, branch: Iterable[Entry]) -> Usage:
    """As the session says."""
    context = None
    for entry in branch:
        if isinstance(entry.fact, Message) and entry.fact.meta is not None and entry.fact.meta.usage is not None:
            context = entry.fact.meta.usage.total_tokens
    return Usage((await store.totals(session_id)).spend, context)


def status_line(model: str, usage: Usage, *, window: int | None, session: str | None, width: int) -> str:
    """The pieces that fit, the most useful ones first; the model is always there."""
    spend = usage.spend
    pieces = [
        safe_line(model),
        _context(usage.context_tokens, window),
        f"{count_text(spend.input_tokens + spend.output_tokens)} tokens",
        cost_text(spend),
        f"session {safe_line(session)}" if session else "new session",
        "/help",
    ]
    line = f" {pieces[0]}"
    for piece in pieces[1:]:
        if piece and cell_len(line) + 3 + cell_len(piece) < width:
            line += f" · {piece}"
    return line if cell_len(line) <= width else set_cell_size(line, width)


def _context(tokens: int | None, window: int | None) -> str:
    if tokens is None:
        return ""
    if not window:
        return f"context {count_text(tokens)}"
    return f"context {count_text(tokens)} of {count_text(window)} ({tokens * 100 // window} %)"


def count_text(count: int) -> str:
    """A number of tokens in a few characters: 950, 1.2k, 34k, 1.1M."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if count >= size:
            tenths = count * 10 // size  # rounded down: 9.99k is not 10.0k
            return f"{tenths // 10}.{tenths % 10}{letter}" if count < 10 * size else f"{count // size}{letter}"
    return str(count)
