"""Server-sent events, as the UI protocols use them: one JSON object per frame."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

__all__ = ["HEADERS", "sse"]

HEADERS: Mapping[str, str] = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # a proxy in front passes each frame on at once
}

_encode = msgspec.json.Encoder().encode


def sse(objects: Iterable[Mapping[str, Any]]) -> bytes:
    """The objects as frames."""
    return b"".join([b"data: %b\n\n" % _encode(content) for content in objects])
