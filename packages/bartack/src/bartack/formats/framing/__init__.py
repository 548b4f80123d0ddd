"""Bytes to payloads: how payloads are delimited in a body, independent of what they mean.

    framing = FRAMINGS["sse"]()
    for item in framing.feed(data):     # and once, at the end of the body: framing.end()
        match item:
            case Frame(data=payload, event=name): ...
            case FramingFault(reason=reason): ...

A framing never raises, whatever the bytes. The frames do not depend on how the bytes are cut. The work is linear in the
number of bytes. Nothing follows a fault. At most one frame of `limit` bytes is buffered.
"""

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from bartack.formats.framing.aws import AwsEventStream, is_prelude
from bartack.formats.framing.frame import BOM, LIMIT, FaultReason, Frame, Framed, Framing, FramingFault, HeaderValue
from bartack.formats.framing.json_array import JsonArray, Lines
from bartack.formats.framing.sse import ServerSentEvents

__all__ = [
    "FRAMINGS",
    "LIMIT",
    "AwsEventStream",
    "FaultReason",
    "Frame",
    "Framed",
    "Framing",
    "FramingFault",
    "FramingName",
    "HeaderValue",
    "JsonArray",
    "Lines",
    "ServerSentEvents",
    "sniff",
]

FramingName = Literal["sse", "ndjson", "lines", "json-array", "aws"]

FRAMINGS: Mapping[FramingName, type[ServerSentEvents | Lines | JsonArray | AwsEventStream]] = {
    "sse": ServerSentEvents,
    "ndjson": Lines,
    "lines": Lines,  # payloads of a recording, stored without their framing
    "json-array": JsonArray,
    "aws": AwsEventStream,
}

_SSE = re.compile(rb"\s*(?:data|event|id|retry|error)?:")
_ARRAY = re.compile(rb"\s*\[\s*[\]{]")
_INDENTED_BODY = re.compile(rb"\s*\{[ \t\r]*\n")


def sniff(head: bytes) -> FramingName | None:
    """The framing of a body that begins with these bytes, or None if more bytes are needed to decide.

    The first line of JSON must be complete. Never "lines": recorded payloads look like "ndjson" and are read alike.
    """
    if is_prelude(head):
        return "aws"
    text = head.removeprefix(BOM)
    if _SSE.match(text):
        return "sse"
    if _ARRAY.match(text) or _INDENTED_BODY.match(text):
        return "json-array"
    return "ndjson" if _is_json_object(text.lstrip().partition(b"\n")[0]) else None


def _is_json_object(line: bytes) -> bool:
    try:
        return line.startswith(b"{") and msgspec.json.decode(line, type=msgspec.Raw) is not None
    except (msgspec.DecodeError, RecursionError):
        return False
