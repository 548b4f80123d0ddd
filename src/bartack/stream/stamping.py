"""`DeltaStamper`: bare deltas, as decoders produce them -> the `MessageDelta` values of one stream.

Decoders have neither a run nor a clock. The code that reads the stream stamps its deltas here, and only here.
"""

from collections.abc import Iterable
from datetime import datetime
from itertools import count
from typing import Any

from msgspec.structs import replace

from bartack.nouns.deltas import Delta, MessageDelta, Start
from bartack.nouns.requests import RequestMetadata

__all__ = ["DeltaStamper"]


class DeltaStamper:
    """Stamps the deltas of one stream with their run, an increasing number and the time."""

    def __init__(self, run_id: str, metadata: RequestMetadata | None = None, *, first_seq: int = 0) -> None:
        """`metadata` supplies the numbers of the model call and the attempt."""
        self._run_id = run_id
        self._seq = count(first_seq)
        metadata = metadata or RequestMetadata()
        numbers = {"model_call_index": metadata.model_call_index, "attempt": metadata.attempt}
        self._attempt: dict[str, Any] = {name: number for name, number in numbers.items() if number is not None}

    def stamp(
        self,
        deltas: Iterable[Delta],
        now: datetime,
        *,
        requested_at: datetime | None = None,
        provider_raw: Any = None,
    ) -> list[MessageDelta]:
        """The stamped deltas. `start` gets the time of the request, if known, and the others get `now`.

        `provider_raw`, for debugging, is attached to the first one.
        """
        run_id, seq, attempt = self._run_id, self._seq, self._attempt
        if attempt:
            stamped = [MessageDelta(run_id, next(seq), delta, now, **attempt) for delta in deltas]
        else:
            stamped = [MessageDelta(run_id, next(seq), delta, now) for delta in deltas]
        if requested_at is not None and stamped and type(stamped[0].delta) is Start:
            stamped[0] = replace(stamped[0], timestamp=requested_at)
        if provider_raw is not None:
            stamped[0] = replace(stamped[0], provider_raw=provider_raw)
        return stamped
