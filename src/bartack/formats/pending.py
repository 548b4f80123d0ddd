"""`PendingData`: the limits for what a decoder holds back until it is complete (signatures, citations, results)."""

from typing import Any

from bartack.formats.emitter import Emitter
from bartack.formats.framing import LIMIT
from bartack.nouns.errors import ErrorCode
from bartack.nouns.json_values import MAX_DEPTH, is_within, json_text

__all__ = ["PendingData"]

_MAX_DEPTH = MAX_DEPTH - 4  # a part's continuation data wraps up to four levels around what is kept


class PendingData:
    """Counts what is held back in one answer. Exceeding a limit ends the stream with an error (D-3.11.2)."""

    def __init__(self, out: Emitter) -> None:
        self._out = out
        self.size = 0  # a hot path may add to it, and call `hold` once it exceeds `LIMIT`

    def hold(self, size: int) -> None:
        """Count this many more bytes as held back."""
        self.size += size
        if self.size > LIMIT:
            self._out.fail(ErrorCode.STREAM_TOO_LARGE, f"More than {LIMIT} bytes of one answer had to be held back.")

    def can_keep(self, value: Any) -> bool:
        """Whether free-form JSON is shallow enough to be stored. If it is not, the stream has ended with an error."""
        if is_within(value, _MAX_DEPTH):
            return True
        self._out.fail(ErrorCode.STREAM_TOO_LARGE, f"The provider's data is nested deeper than {_MAX_DEPTH} levels.")
        return False

    def text_of_json(self, value: Any) -> str:
        """Arguments as text, where a server sends them as JSON; "" if they are too deep, which ends the stream."""
        if isinstance(value, str):
            return value
        return json_text(value) if self.can_keep(value) else ""
