"""`DeltaStamper`: bare deltas, as decoders produce them -> the `MessageDelta` values of one stream.

Decoders have neither a run nor a clock. The code that reads the stream stamps its deltas here, and only here.
"""

from collections.abc import Iterable
from datetime import datetime
from itertools import count
from typing import Any

from bartack.nouns.deltas import Delta, MessageDelta
from bartack.nouns.requests import RequestMetadata

__all__ = ["DeltaStamper"]


class DeltaStamper:
    """Stamps the deltas of one stream with their run, a rising number and the time."""

    def __init__(self, run_id: str, metadata: RequestMetadata | None = None, *, first_seq: int = 0) -> None:
        """`metadata` supplies the numbers of the model call and the attempt."""
        self._run_id = run_id
        self._seq = count(first_seq)
        metadata = metadata or RequestMetadata()
        numbers = {"model_call_index": metadata.model_call_index, "attempt": metadata.attempt}
        self._attempt: dict[str, Any] = {name: number for name, number in numbers.items() if number is not None}

    def stamp(self, deltas: Iterable[Delta], now: datetime, *, provider_raw: Any = None) -> list[MessageDelta]:
        """The stamped deltas. `provider_raw`, for debugging, is attached to the first one."""
        run_id, seq, attempt = self._run_id, self._seq, self._attempt
        if provider_raw is not None:
            first, *rest = deltas
            start = MessageDelta(run_id, next(seq), first, now, provider_raw=provider_raw, **attempt)
            return [start, *self.stamp(rest, now)]
        if attempt:
            return [MessageDelta(run_id, next(seq), delta, now, **attempt) for delta in deltas]
        return [MessageDelta(run_id, next(seq), delta, now) for delta in deltas]
