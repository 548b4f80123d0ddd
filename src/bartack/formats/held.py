"""What a decoder holds back until it is whole (signatures, citations, results), and the two limits that hold for it."""

from typing import Any

from bartack.formats.emitter import Emitter
from bartack.formats.framing import LIMIT, Frame
from bartack.nouns.errors import ErrorCode
from bartack.nouns.wire import MAX_DEPTH

__all__ = ["Held"]

_DEPTH = MAX_DEPTH - 4  # a part's continuation data lays up to four levels around what is kept


class Held:
    """Counts what is held back in one answer; over a limit the stream ends in an error (D-3.11.2)."""

    def __init__(self, out: Emitter) -> None:
        self._out = out
        self._bytes = 0

    def count(self, frame: Frame) -> None:
        """Something out of this frame is held."""
        self._bytes += len(frame.data)
        if self._bytes > LIMIT:
            self._out.fail(ErrorCode.STREAM_TOO_LARGE, f"more than {LIMIT} bytes of one answer had to be held back")

    def can_keep(self, value: Any) -> bool:
        """Whether free-form JSON can be stored; if not, the stream has ended here."""
        if _is_within(value, _DEPTH):
            return True
        self._out.fail(ErrorCode.STREAM_TOO_LARGE, f"the provider nested its data deeper than {_DEPTH}")
        return False


def _is_within(value: Any, depth: int) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    return not isinstance(value, list) or (depth > 0 and all(_is_within(item, depth - 1) for item in value))
