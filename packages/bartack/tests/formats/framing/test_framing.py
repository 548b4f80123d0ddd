"""The table of framings, and how a framing is recognised."""

import pytest

from bartack.formats.framing import (
    FRAMINGS,
    AwsEventStream,
    Frame,
    FramingName,
    JsonArray,
    Lines,
    ServerSentEvents,
    sniff,
)
from tests.formats.framing.framing_bytes import aws_message, read


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"data: {}", "sse"),
        (b"\xef\xbb\xbfevent:a\n", "sse"),
        (b": keep-alive\n", "sse"),
        (b"\r\nid: 1\n", "sse"),
        (b'{"a": 1}\n{"b"', "ndjson"),
        (b'\n{"a": 1}', "ndjson"),
        (b'[{"a"', "json-array"),
        (b"[\n]", "json-array"),
        (b'{\n  "error"', "json-array"),
        (aws_message({}, b"")[:12], "aws"),
    ],
)
def test_a_framing_is_recognised_by_its_first_bytes(head: bytes, name: FramingName) -> None:
    assert sniff(head) == name


@pytest.mark.parametrize("head", [b"", b"dat", b"{", b'{"a": ', b"[", b"[DONE]", b"<html>", b"1\n2\n", bytes(16)])
def test_ambiguous_first_bytes_give_no_framing(head: bytes) -> None:
    assert sniff(head) is None


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("sse", b"data: {}\n\n"),
        ("ndjson", b"{}\n"),
        ("lines", b"{}\n"),
        ("json-array", b"[{}]"),
        ("aws", aws_message({}, b"{}")),
    ],
)
def test_every_framing_has_a_name_and_accepts_a_limit(name: FramingName, body: bytes) -> None:
    assert read(FRAMINGS[name](), body) == [Frame(b"{}")]
    assert read(FRAMINGS[name](limit=1), body) != [Frame(b"{}")]


@pytest.mark.parametrize(
    ("make", "opening", "closing"),
    [
        (ServerSentEvents, b"data: ", b"\n\n"),
        (ServerSentEvents, b'{"a": "', b'"}'),
        (Lines, b"", b"\n"),
        (JsonArray, b'[{"a": "', b'"}]'),
    ],
)
def test_a_long_frame_can_arrive_byte_by_byte(
    make: type[ServerSentEvents | Lines | JsonArray], opening: bytes, closing: bytes
) -> None:
    body = opening + b"x" * 20_000 + closing
    assert len(read(make(), *(body[place : place + 1] for place in range(len(body))))) == 1


def test_a_long_message_can_arrive_byte_by_byte() -> None:
    body = aws_message({}, bytes(20_000))
    assert len(read(AwsEventStream(), *(body[place : place + 1] for place in range(len(body))))) == 1
