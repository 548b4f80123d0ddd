"""`Decoder`: bytes in, deltas out, no I/O. Each format is a subclass that reads one kind of event.

``receive_data`` and ``receive_eof`` never raise on bytes, and cutting the bytes differently changes nothing: any
byte string decodes to ``Start ... (Done | Failed)`` (D-3.11). A format gives four things: how its events are typed,
which framing they come in, how one event is read, and how the end of the bytes is judged.
"""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar

import msgspec

from bartack.formats.emitter import Emitter
from bartack.formats.framing import FRAMINGS, Frame, FramingFault, FramingName
from bartack.formats.pending import PendingData
from bartack.nouns.deltas import Delta
from bartack.nouns.errors import ErrorCode

__all__ = ["UNREADABLE", "Decoder", "event_type"]

# What msgspec raises for bytes that are not JSON of the type: also bytes that are not UTF-8, and JSON nested too deeply.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_FAULT_CODES = {
    "truncated": ErrorCode.STREAM_TRUNCATED,
    "too_long": ErrorCode.STREAM_TOO_LARGE,
    "checksum": ErrorCode.STREAM_MALFORMED,
    "malformed": ErrorCode.STREAM_MALFORMED,
}


class Decoder(ABC):
    """One response of one provider, from its first byte to its end."""

    format: ClassVar[str]
    framing: ClassVar[FramingName] = "sse"  # what the provider sends unless told otherwise
    events: ClassVar[msgspec.json.Decoder[Any]]

    def __init__(
        self,
        *,
        framing: FramingName | None = None,
        provider: str | None = None,
        model_id: str = "",
        local_id: str = "local",
        used_call_ids: Collection[str] = (),
        out: Emitter | None = None,
    ) -> None:
        """`provider` names whom continuation data belongs to (default: the format). `local_id` is the request's id
        where the provider gives none, and the stem of local call ids; `used_call_ids` are those the run has seen.
        `out` is that of the decoder which hands over frames with `receive_frame`."""
        self.out = out or Emitter(
            provider=provider or self.format, model_id=model_id, local_id=local_id, used_call_ids=used_call_ids
        )
        self._pending = PendingData(self.out)
        self._framing = FRAMINGS[framing or self.framing]()
        self._parse: Callable[[bytes], Any] = self.events.decode

    @abstractmethod
    def read(self, event: Any, frame: Frame) -> None:
        """Tell `self.out` what one event says."""

    def read_unparsed(self, frame: Frame) -> bool:
        """A payload that is not an event of the format: True if it means something all the same (``[DONE]``)."""
        return False

    @abstractmethod
    def read_end(self) -> None:
        """The bytes have ended: tell `self.out` whether the provider's terminal signal had come."""

    def receive_data(self, data: bytes) -> list[Delta]:
        """The deltas that these bytes complete."""
        if not self.out.ended:
            self._read_all(self._framing.feed(data), ErrorCode.STREAM_MALFORMED)
        return self.out.take()

    def receive_eof(self) -> list[Delta]:
        """The deltas that the end of the bytes completes; the last of them is `Done` or `Failed`."""
        if not self.out.ended:
            # What the end of the bytes cut short of its line end may be cut inside, too.
            self._read_all(self._framing.end(), ErrorCode.STREAM_TRUNCATED)
        if not self.out.ended:
            self.read_end()
        return self.out.take()

    def receive_frame(self, frame: Frame) -> None:
        """Read a frame that another decoder unwrapped; what it says goes to `out`, which the two share."""
        self._read_all([frame], ErrorCode.STREAM_MALFORMED)

    def truncated(self, what: str) -> None:
        """The stream ended without its provider's terminal signal (D-3.5)."""
        self.out.fail(ErrorCode.STREAM_TRUNCATED, f"the stream ended before {what}")

    def _read_all(self, frames: Sequence[Any], unparsed: ErrorCode) -> None:
        out, parse, read = self.out, self._parse, self.read
        for frame in frames:
            if type(frame) is FramingFault:
                self._read_fault(frame)
                return
            try:
                event = parse(frame.data)
            except UNREADABLE as error:
                if self.read_unparsed(frame):
                    if out.ended:
                        return
                    continue
                event = self._read_surrogates(frame.data)
                if event is None:
                    self._refuse_event(unparsed, error)
                    return
            read(event, frame)
            if out.ended:
                return

    def _refuse_event(self, code: ErrorCode, error: Exception) -> None:
        if code is ErrorCode.STREAM_TRUNCATED:
            self.out.fail(code, "the stream ended inside an event")
        else:
            self.out.fail(code, f"an event is not {self.format}: {error}")

    def _read_fault(self, fault: FramingFault) -> None:
        # A fault after the provider said that it finished takes nothing away from the answer.
        if self.out.finish_reason is not None:
            self.read_end()
        else:
            self.out.fail(_FAULT_CODES[fault.reason], fault.detail)

    def _read_surrogates(self, data: bytes) -> Any:
        """The event of a payload with half a surrogate pair in it, which msgspec refuses; None if that was not it.

        Servers that escape by UTF-16 unit and cut by length send one half at the end of a piece and the other at
        the start of the next. The halves travel on as they are; the emitter joins them.
        """
        if rb"\ud" not in data and rb"\uD" not in data:
            return None
        try:
            event = msgspec.convert(json.loads(data, parse_float=_finite, parse_constant=_finite), self.events.type)
        except (ValueError, RecursionError):
            return None
        self.out.join_surrogates()
        return event


def _finite(text: str) -> float:
    """A number as msgspec accepts it: no NaN or Infinity, and nothing beyond the range of a float."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a JSON number")
    return number


class _Typed(msgspec.Struct, gc=False):
    type: str | None = None


_TYPED = msgspec.json.Decoder(_Typed)


def event_type(data: bytes) -> str | None:
    """The `type` of an event whose other fields may have any shape; None if it has none, or is not an event."""
    try:
        return _TYPED.decode(data).type
    except UNREADABLE:
        return None
