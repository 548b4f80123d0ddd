"""Deltas that a model says twice, for example after it has connected again, are heard once (001 §1, D-7.10.1)."""

from collections.abc import AsyncIterator

from bartack.nouns.deltas import MessageDelta

__all__ = ["without_repeats"]


async def without_repeats(stream: AsyncIterator[MessageDelta]) -> AsyncIterator[MessageDelta]:
    """The stream of one attempt, each `seq` once. What else is wrong with it is for the guard to say."""
    seen: set[int] = set()
    try:
        async for delta in stream:
            if type(delta) is MessageDelta and type(delta.seq) is int:
                if delta.seq in seen:
                    continue
                seen.add(delta.seq)
            yield delta
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
