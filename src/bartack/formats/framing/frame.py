"""What every framing hands out: frames, and at most one fault as the last thing."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, Protocol
from uuid import UUID

import msgspec

__all__ = ["BOM", "LIMIT", "FaultReason", "Frame", "Framed", "Framing", "FramingFault", "HeaderValue"]

# The most bytes that one frame may hold. One event can carry a whole image as base64, several MB of it, so the 1 MB
# that would do for text is too little. 16 MiB is room chosen for that, not a measured need.
LIMIT = 16 * 1024 * 1024

BOM = b"\xef\xbb\xbf"

HeaderValue = bool | int | str | bytes | UUID
NO_HEADERS: Mapping[str, HeaderValue] = MappingProxyType({})


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One payload as the server sent it, with what the framing said about it.

    A struct without garbage collection costs 20 ns more than a bare tuple and 300 ns less than a named tuple.
    """

    data: bytes
    event: str = ""
    headers: Mapping[str, HeaderValue] = NO_HEADERS


# truncated: the bytes ended inside a frame.     too_long: a frame grew over the limit.
# checksum: a frame's bytes are not those sent.  malformed: these bytes are not of this framing.
FaultReason = Literal["truncated", "too_long", "checksum", "malformed"]


class FramingFault(msgspec.Struct, frozen=True):
    """Why the framing stopped. Nothing follows it."""

    reason: FaultReason
    detail: str


Framed = list[Frame | FramingFault]


class Framing(Protocol):
    """Cuts bytes into frames. Neither method raises, whatever the bytes; after a fault or the end both give []."""

    def feed(self, data: bytes) -> Framed:
        """The frames that these bytes complete."""

    def end(self) -> Framed:
        """What was still held when the bytes ended: a last frame, or the fault that there was half of one."""
