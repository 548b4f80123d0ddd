"""Bytes -> payloads. How payloads are cut out of a body, apart from what they mean: the formats sit on top of this.

    framing = FRAMINGS["sse"]()
    for item in framing.feed(data):     # and once, at the end of the body: framing.end()
        match item:
            case Frame(data=payload, event=name): ...
            case FramingFault(reason=reason): ...

The laws: a framing never raises, whatever the bytes; how the bytes are cut changes no frame; the work is linear in the
bytes; a fault is the last thing that comes; no more than a frame of `limit` bytes is ever held.
"""

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from bartack.formats.framing.aws import AwsEventStream, is_prelude
from bartack.formats.framing.frame import BOM, LIMIT, FaultReason, Frame, Framed, Framing, FramingFault, HeaderValue
from bartack.formats.framing.json_array import JsonArray
from bartack.formats.framing.lines import Lines
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
    "lines": Lines,  # payloads as a recording keeps them, stripped of the framing they came in
    "json-array": JsonArray,
    "aws": AwsEventStream,
}

_SSE = re.compile(rb"\s*(?:data|event|id|retry|error)?:")
_ARRAY = re.compile(rb"\s*\[\s*[\]{]")
_LAID_OUT_BODY = re.compile(rb"\s*\{[ \t\r]*\n")


def sniff(head: bytes) -> FramingName | None:
    """The framing of a body that begins with these bytes, or None where they leave it open: then more bytes may tell.

    A first line of JSON must be there in full. "lines" is never the answer: recorded payloads look like "ndjson" and
    are cut in the same way.
    """
    if is_prelude(head):
        return "aws"
    text = head.removeprefix(BOM)
    if _SSE.match(text):
        return "sse"
    if _ARRAY.match(text) or _LAID_OUT_BODY.match(text):
        return "json-array"
    return "ndjson" if _is_json_object(text.lstrip().partition(b"\n")[0]) else None


def _is_json_object(line: bytes) -> bool:
    try:
        return line.startswith(b"{") and msgspec.json.decode(line, type=msgspec.Raw) is not None
    except (msgspec.DecodeError, RecursionError):
        return False
