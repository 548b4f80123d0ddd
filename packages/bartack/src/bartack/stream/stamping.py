"""`DeltaStamper`: bare deltas, as decoders produce them -> the `MessageDelta` values of one stream.

Decoders have neither a run nor a clock. The code that reads the stream stamps its deltas here, and only here.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from itertools import repeat
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
        self._seq = first_seq
        metadata = metadata or RequestMetadata()
        numbers = {"model_call_index": metadata.model_call_index, "attempt": metadata.attempt}
        extra_fields: dict[str, Any] = {name: number for name, number in numbers.items() if number is not None}
        self._make: Callable[..., MessageDelta] = (
            partial(MessageDelta, **extra_fields) if extra_fields else MessageDelta
        )

    def stamp(
        self,
        deltas: Sequence[Delta],
        timestamp: datetime,
        *,
        requested_at: datetime | None = None,
        provider_raw: dict[str, Any] | None = None,
    ) -> list[MessageDelta]:
        """The stamped deltas. `start` gets the time of the request, if known, and the others get `timestamp`.

        `provider_raw`, for debugging, is attached to the first one.
        """
        first, self._seq = self._seq, self._seq + len(deltas)
        if len(deltas) == 1:  # a live stream: one event per read
            stamped = [self._make(self._run_id, first, deltas[0], timestamp)]
        else:
            stamped = list(map(self._make, repeat(self._run_id), range(first, self._seq), deltas, repeat(timestamp)))
        if requested_at is not None and stamped and type(stamped[0].delta) is Start:
            stamped[0] = replace(stamped[0], timestamp=requested_at)
        if provider_raw is not None and stamped:
            stamped[0] = replace(stamped[0], provider_raw=provider_raw)
        return stamped
