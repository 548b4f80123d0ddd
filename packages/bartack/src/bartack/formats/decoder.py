"""`Decoder`: bytes to deltas, without I/O. Each format is a subclass that reads its events.

``receive_data`` and ``receive_eof`` never raise, whatever the bytes, and the deltas do not depend on how the bytes are
cut: any byte string decodes to ``Start ... (Done | Failed)`` (D-3.11). A format defines the type of its events, their
framing, how to read one event, and what the end of the bytes means.
"""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from bartack.formats.emitter import Emitter, PendingData, joined_pairs
from bartack.formats.framing import FRAMINGS, Frame, FramingFault, FramingName
from bartack.nouns.deltas import Delta
from bartack.nouns.errors import ErrorCode

__all__ = ["UNREADABLE", "Decoder", "event_type", "joined_pieces"]

# What msgspec raises for bytes that are not JSON of the type, not UTF-8, or nested too deeply.
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
    framing: ClassVar[FramingName] = "sse"  # unless the constructor is given another
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
        """`provider` is the owner of continuation data (default: the format's name). `local_id` is the request id if
        the provider sends none, and the prefix of local call ids; `used_call_ids` are the ids the run already has.
        `out` is the emitter of another decoder, which passes frames on with `receive_frame`."""
        self.out: Emitter = out or Emitter(
            provider=provider or self.format, model_id=model_id, local_id=local_id, used_call_ids=used_call_ids
        )
        self._pending = PendingData(self.out)
        self._framing = FRAMINGS[framing or self.framing]()
        self._parse: Callable[[bytes], Any] = self.events.decode

    @abstractmethod
    def read(self, event: Any, frame: Frame) -> None:
        """Emit the content of one event through `self.out`."""

    def read_unparsed(self, frame: Frame) -> bool:
        """Read a payload that is not an event of the format, such as ``[DONE]``; False if it is unknown."""
        return False

    @abstractmethod
    def read_end(self) -> None:
        """End the stream at the end of the bytes: complete if the provider's terminal signal has arrived."""

    def receive_data(self, data: bytes) -> list[Delta]:
        """The deltas that these bytes complete."""
        if not self.out.ended:
            self._read_all(self._framing.feed(data), ErrorCode.STREAM_MALFORMED)
        return self.out.take()

    def receive_eof(self) -> list[Delta]:
        """The deltas at the end of the bytes; the last one is `Done` or `Failed`."""
        if not self.out.ended:
            # A last line without its line ending may be incomplete itself.
            self._read_all(self._framing.end(), ErrorCode.STREAM_TRUNCATED)
        if not self.out.ended:
            self.read_end()
        return self.out.take()

    def receive_frame(self, frame: Frame) -> None:
        """Read a frame that another decoder unwrapped, into the emitter that both share."""
        self._read_all([frame], ErrorCode.STREAM_MALFORMED)

    def plain_json(self, frame: Frame) -> Any:
        """The payload of a frame whose event was read, with the fields that the format does not declare."""
        try:
            return msgspec.json.decode(frame.data)
        except UNREADABLE:  # half a surrogate pair
            return json.loads(frame.data, object_pairs_hook=_with_whole_keys)

    def truncated(self, missing: str) -> None:
        """Fail because the stream ended without its provider's terminal signal (D-3.5)."""
        self.out.fail(ErrorCode.STREAM_TRUNCATED, f"The stream ended before {missing}.")

    def _read_all(self, frames: Sequence[Any], unparsed: ErrorCode) -> None:
        out, parse, read = self.out, self._parse, self.read
        fault = frames[-1] if frames and type(frames[-1]) is FramingFault else None  # it can only be the last
        for frame in frames if fault is None else frames[:-1]:
            try:
                event = parse(frame.data)
            except UNREADABLE as error:
                if self.read_unparsed(frame):
                    if out.ended:
                        return
                    continue
                event = self._read_surrogates(frame.data)
                if event is None:
                    self._fail_at_event(unparsed, error)
                    return
            read(event, frame)
            if out.ended:
                return
        if fault is not None:
            self._read_fault(fault)

    def _fail_at_event(self, code: ErrorCode, error: Exception) -> None:
        if code is ErrorCode.STREAM_TRUNCATED:
            self.out.fail(code, "The stream ended inside an event.")
        else:
            self.out.fail(code, f"Invalid {self.format} event: {error}")

    def _read_fault(self, fault: FramingFault) -> None:
        # A fault after the provider's finish reason does not invalidate the answer.
        if self.out.finish_reason is not None:
            self.read_end()
        else:
            self.out.fail(_FAULT_CODES[fault.reason], fault.detail)

    def _read_surrogates(self, data: bytes) -> Any:
        """The event of a payload with half a surrogate pair, which msgspec refuses; None if it is invalid otherwise.

        Servers that escape UTF-16 units and cut text by length send one half at the end of a piece and the other at the
        start of the next. The emitter joins the halves.
        """
        if rb"\ud" not in data and rb"\uD" not in data:
            return None
        try:
            value = json.loads(data, parse_float=_finite, parse_constant=_finite, object_pairs_hook=_with_whole_keys)
            event = msgspec.convert(value, self.events.type)
        except (ValueError, RecursionError):
            return None
        self.out.join_surrogates()
        return event


def joined_pieces(pieces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The object that a server sent in pieces, of a type that is unknown here.

    Texts and lists are joined, objects merged in the same way; of other values the last one holds.
    """
    values: dict[str, list[Any]] = {}
    for piece in pieces:
        for name, value in piece.items():
            values.setdefault(name, []).append(value)
    return {name: _joined([value for value in parts if value is not None]) for name, parts in values.items()}


def _joined(values: list[Any]) -> Any:
    kinds = {type(value) for value in values}
    if kinds == {str}:
        return "".join(values)
    if kinds == {list}:
        return [item for value in values for item in value]
    if kinds == {dict}:
        return joined_pieces(values)
    return values[-1] if values else None


def _finite(text: str) -> float:
    """A number as msgspec accepts it: no NaN or Infinity, and nothing beyond the range of a float."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a JSON number")
    return number


def _with_whole_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys msgspec accepts."""
    return {joined_pairs(key): value for key, value in pairs}


class _Typed(msgspec.Struct, gc=False):
    type: str | None = None


_TYPED = msgspec.json.Decoder(_Typed)


def event_type(data: bytes) -> str | None:
    """The `type` of an event whose other fields may have any shape; None if it has none, or is not an event."""
    try:
        return _TYPED.decode(data).type
    except UNREADABLE:
        return None
