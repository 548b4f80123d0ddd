"""Amazon's event stream (`application/vnd.amazon.eventstream`): one frame per message.

    total length u32 | headers length u32 | CRC-32 of these 8 bytes | headers | payload | CRC-32 of all before

All numbers are big-endian. A header is the length of its name (u8), the name, the type of its value (u8) and the value.
Bedrock describes the payload in headers: `:message-type` is "event", "exception" or "error", and the name in
`:event-type`, `:exception-type` or `:error-code` becomes the frame's `event`.

Lengths are used only after the checksum of the prelude is verified, headers and payload only after that of the message.
"""

import struct
from struct import Struct
from uuid import UUID
from zlib import crc32

from bartack.formats.framing.frame import LIMIT, Frame, Framed, FramingFault, HeaderValue

__all__ = ["AwsEventStream", "is_prelude"]

_PRELUDE = Struct(">III")
_U32 = Struct(">I")
_U16 = Struct(">H")
_AROUND_BODY = _PRELUDE.size + _U32.size

_NAMES = (":event-type", ":exception-type", ":error-code")

# The types of header values. A timestamp stays a number, milliseconds since 1970: not every 64 bits are a datetime.
_TRUE, _FALSE, _BYTES, _TEXT, _UUID = 0, 1, 6, 7, 9
_NUMBERS = {2: Struct(">b"), 3: Struct(">h"), 4: Struct(">i"), 5: Struct(">q"), 8: Struct(">q")}


class AwsEventStream:
    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._need = _PRELUDE.size  # bytes to buffer before parsing: a prelude, then its message
        self._ended = False

    def feed(self, data: bytes) -> Framed:
        if self._ended:
            return []
        self._buffer += data
        if len(self._buffer) < self._need:
            return []
        data = bytes(self._buffer)
        offset = 0
        framed: Framed = []
        while len(data) - offset >= self._need and not self._ended:
            read: Frame | FramingFault | None
            if self._need == _PRELUDE.size:
                read = self._read_prelude(data[offset : offset + _PRELUDE.size])
            else:
                read = _read_message(data[offset : offset + self._need])
                offset += self._need
                self._need = _PRELUDE.size
            if read is not None:
                framed.append(read)
                self._ended = isinstance(read, FramingFault)
        del self._buffer[: len(data) if self._ended else offset]
        return framed

    def end(self) -> Framed:
        if self._ended:
            return []
        self._ended = True
        if not self._buffer:
            return []
        return [FramingFault("truncated", f"The stream ended {len(self._buffer)} bytes into a message.")]

    def _read_prelude(self, prelude: bytes) -> FramingFault | None:
        total, headers, _ = _PRELUDE.unpack(prelude)
        if not is_prelude(prelude):
            return FramingFault("checksum", f"Invalid checksum of a prelude: {prelude!r}.")
        if total < _AROUND_BODY + headers:
            return FramingFault("malformed", f"A message of {total} bytes cannot contain {headers} bytes of headers.")
        if total > self._limit:
            return FramingFault("too_long", f"A message of {total} bytes exceeds the limit of {self._limit}.")
        self._need = total
        return None


def is_prelude(head: bytes) -> bool:
    """Whether the first twelve bytes are a prelude with a valid checksum."""
    prelude = head[: _PRELUDE.size]
    return len(prelude) == _PRELUDE.size and crc32(prelude[:8]) == _U32.unpack_from(prelude, 8)[0]


def _read_message(message: bytes) -> Frame | FramingFault:
    body, checksum = message[: -_U32.size], message[-_U32.size :]
    if crc32(body) != _U32.unpack(checksum)[0]:
        return FramingFault("checksum", f"Invalid checksum of a message of {len(message)} bytes.")
    payload_at = _PRELUDE.size + _U32.unpack_from(message, 4)[0]
    headers = _read_headers(body[_PRELUDE.size : payload_at])
    if headers is None:
        return FramingFault("malformed", "Invalid headers of a message.")
    event = next((str(headers[name]) for name in _NAMES if name in headers), "")
    return Frame(body[payload_at:], event, headers)


def _read_headers(raw: bytes) -> dict[str, HeaderValue] | None:
    headers: dict[str, HeaderValue] = {}
    offset = 0
    try:
        while offset < len(raw):
            name_end = offset + 1 + raw[offset]
            name = str(raw[offset + 1 : name_end], "utf-8")
            headers[name], offset = _read_value(raw, name_end)
    except (IndexError, ValueError, struct.error):  # past the end; not UTF-8 or an unknown type; half a number
        return None
    return headers if offset == len(raw) else None


def _read_value(raw: bytes, offset: int) -> tuple[HeaderValue, int]:
    """The value whose type is at this index, and the index after it."""
    kind, offset = raw[offset], offset + 1
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE, offset
    if kind in _NUMBERS:
        number = _NUMBERS[kind]
        return number.unpack_from(raw, offset)[0], offset + number.size
    if kind == _UUID:
        return UUID(bytes=raw[offset : offset + 16]), offset + 16
    if kind in (_BYTES, _TEXT):
        start = offset + _U16.size
        end = start + _U16.unpack_from(raw, offset)[0]
        value = raw[start:end]
        return value if kind == _BYTES else str(value, "utf-8"), end
    raise ValueError(f"unknown type {kind} of a header value")
