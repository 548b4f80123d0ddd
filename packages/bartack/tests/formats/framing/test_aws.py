"""Amazon's event stream, written by the tests' own encoder."""

from uuid import UUID
from zlib import crc32

import pytest

from bartack.formats.framing import AwsEventStream, Frame, FramingFault, HeaderValue
from tests.formats.framing.framing_bytes import HeaderIn, aws_message, aws_message_of, cut, read

EVENT: dict[str, HeaderValue] = {":event-type": "contentBlockDelta", ":message-type": "event"}


def test_a_message_gives_the_same_frame_wherever_it_is_split() -> None:
    """D-3.11.1"""
    body = aws_message(EVENT, b'{"a": 1}') + aws_message({}, b"")
    for place in range(len(body)):
        assert read(AwsEventStream(), *cut(body, [place])) == [
            Frame(b'{"a": 1}', "contentBlockDelta", EVENT),
            Frame(b""),
        ]


@pytest.mark.parametrize("name", [":event-type", ":exception-type", ":error-code"])
def test_a_frame_is_named_after_its_event_exception_or_error(name: str) -> None:
    (frame,) = read(AwsEventStream(), aws_message({":message-type": "any", name: "throttled"}, b"{}"))
    assert frame == Frame(b"{}", "throttled", {":message-type": "any", name: "throttled"})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, True),
        (False, False),
        ((2, -1), -1),
        ((3, -2), -2),
        ((4, 1 << 30), 1 << 30),
        (-(1 << 63), -(1 << 63)),
        (b"\xff\x00", b"\xff\x00"),
        ("grüße", "grüße"),
        ((8, 1_700_000_000_000), 1_700_000_000_000),
        (UUID(int=7), UUID(int=7)),
    ],
)
def test_every_type_of_header_value_is_parsed(value: HeaderIn, expected: HeaderValue) -> None:
    (frame,) = read(AwsEventStream(), aws_message({"one": value, "two": "2"}, b""))
    assert frame == Frame(b"", "", {"one": expected, "two": "2"})


@pytest.mark.parametrize(
    "headers",
    [
        b"\x05ab",
        b"\x01a",
        b"\x01a\x0a",
        b"\x01a\x04\x00",
        b"\x01a\x07\x00",
        b"\x01a\x07\x00\x05abc",
        b"\x01a\x07\x00\x01\xff",
        b"\x01\xff\x00",
        b"\x01a\x09\x00",
    ],
)
def test_invalid_headers_are_a_fault(headers: bytes) -> None:
    good = aws_message(EVENT, b"1")
    assert read(AwsEventStream(), good + aws_message_of(headers, b"{}") + good) == [
        Frame(b"1", "contentBlockDelta", EVENT),
        FramingFault("malformed", "Invalid headers of a message."),
    ]


def test_an_invalid_checksum_ends_the_stream() -> None:
    good = aws_message(EVENT, b"1")
    framing = AwsEventStream()
    assert framing.feed(good + good[:-1] + b"?" + good) == [
        Frame(b"1", "contentBlockDelta", EVENT),
        FramingFault("checksum", f"Invalid checksum of a message of {len(good)} bytes."),
    ]
    assert read(framing, good) == []


def test_another_format_is_rejected_after_twelve_bytes() -> None:
    body = b'{"message": "no"}'
    assert read(AwsEventStream(), body) == [FramingFault("checksum", f"Invalid checksum of a prelude: {body[:12]!r}.")]


def test_impossible_lengths_are_rejected_before_anything_is_buffered() -> None:
    short = b"\x00\x00\x00\x10\x00\x00\x00\x01"
    long = b"\x00\x00\x01\x01\x00\x00\x00\x00"
    assert read(AwsEventStream(), _prelude(short)) == [
        FramingFault("malformed", "A message of 16 bytes cannot contain 1 bytes of headers.")
    ]
    assert read(AwsEventStream(256), _prelude(long)) == [
        FramingFault("too_long", "A message of 257 bytes exceeds the limit of 256.")
    ]


@pytest.mark.parametrize("size", [1, 11, 12, 20])
def test_an_incomplete_message_is_reported_as_truncated(size: int) -> None:
    assert read(AwsEventStream(), aws_message(EVENT, b"1")[:size]) == [
        FramingFault("truncated", f"The stream ended {size} bytes into a message.")
    ]


def test_input_after_the_end_is_ignored() -> None:
    framing = AwsEventStream()
    assert read(framing) == []
    assert read(framing, aws_message(EVENT, b"1")) == []


def _prelude(lengths: bytes) -> bytes:
    return lengths + crc32(lengths).to_bytes(4)
