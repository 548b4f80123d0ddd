"""Bytes for the tests of framings: splitting and feeding them, and an encoder for Amazon's event stream."""

import zlib
from collections.abc import Iterable, Mapping
from itertools import pairwise
from uuid import UUID

from bartack.formats.framing import Framed, Framing

HeaderIn = bool | int | str | bytes | UUID | tuple[int, int]  # a pair is (type, number), else 64 bits are taken

_WIDTHS = {2: 1, 3: 2, 4: 4, 5: 8, 8: 8}


def read(framing: Framing, *pieces: bytes) -> Framed:
    """Everything a framing returns for a body that arrives in these pieces."""
    framed: Framed = []
    for piece in pieces:
        framed += framing.feed(piece)
    return framed + framing.end()


def cut(body: bytes, places: Iterable[int]) -> list[bytes]:
    """The body in pieces, cut at these positions."""
    edges = [0, *sorted(place for place in places if place <= len(body)), len(body)]
    return [body[start:stop] for start, stop in pairwise(edges)]


def aws_message(headers: Mapping[str, HeaderIn], payload: bytes) -> bytes:
    return aws_message_of(b"".join(_header(name, value) for name, value in headers.items()), payload)


def aws_message_of(headers: bytes, payload: bytes) -> bytes:
    """A message whose headers are already bytes, valid or not; its checksums are correct."""
    lengths = (16 + len(headers) + len(payload)).to_bytes(4) + len(headers).to_bytes(4)
    body = lengths + zlib.crc32(lengths).to_bytes(4) + headers + payload
    return body + zlib.crc32(body).to_bytes(4)


def _header(name: str, value: HeaderIn) -> bytes:
    raw_name = name.encode()
    return bytes([len(raw_name)]) + raw_name + _value(value)


def _value(value: HeaderIn) -> bytes:
    match value:
        case bool():
            return b"\x00" if value else b"\x01"
        case int():
            return _value((5, value))
        case (kind, number):
            return bytes([kind]) + number.to_bytes(_WIDTHS[kind], signed=True)
        case bytes():
            return b"\x06" + len(value).to_bytes(2) + value
        case str():
            return b"\x07" + len(value.encode()).to_bytes(2) + value.encode()
        case UUID():
            return b"\x09" + value.bytes
