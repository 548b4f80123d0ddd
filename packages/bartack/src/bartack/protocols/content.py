"""What all protocols exchange: images and files by their URL, results as text, JSON from a client as typed values, and
JSON to a client as server-sent events, one object per frame."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from bartack.formats.media import data_url, split_data_url
from bartack.nouns.errors import PartValidationError
from bartack.nouns.json_values import json_text
from bartack.nouns.parts import STRUCTURED, FileRef, Image, Part, Text, ToolContent, ToolResult

__all__ = [
    "HEADERS",
    "content_text",
    "converted",
    "is_blank",
    "media_type_of",
    "media_url",
    "read_media",
    "result_of",
    "sse",
]

_BINARY = "application/octet-stream"


def content_text(content: ToolContent) -> str:
    """The content of a result as text; images and files by their names."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return json_text(content)
    pieces = [
        part.text if isinstance(part, Text) else "[image]" if isinstance(part, Image) else f"[file {part.path}]"
        for part in content
    ]
    return "\n".join(pieces)


def is_blank(parts: Iterable[Part]) -> bool:
    """Whether a message has nothing to answer, which many models refuse."""
    return all(isinstance(part, Text) and not part.text.strip() for part in parts)


def result_of(tool_call_id: str, output: Any) -> ToolResult:
    """The result of a tool that a client executed, from any JSON."""
    if isinstance(output, str | dict):
        return ToolResult(tool_call_id, output)
    if output is None:
        return ToolResult(tool_call_id, "")
    return ToolResult(tool_call_id, json_text(output), metadata={STRUCTURED: output})


def media_type_of(part: Image | FileRef) -> str:
    """The media type, or that of any bytes."""
    return part.mime_type or _BINARY


def media_url(part: Image | FileRef) -> str:
    """Where the content is, or a URL that contains it; the name of a file whose content is elsewhere."""
    if part.data is not None:
        return data_url(media_type_of(part), part.data)
    return part.url or (part.path if isinstance(part, FileRef) else "")


def read_media(url: str, *, media_type: str | None, name: str | None, path: str) -> Image | FileRef:
    """An image or a file from a URL that a client sent; `path` is where it was, for errors.

    Only ``data:``, ``http:`` and ``https:`` are accepted: any other URL would name something on this machine.
    """
    scheme = url.partition(":")[0]
    if scheme in ("http", "https"):
        if media_type is not None and media_type.startswith("image/"):
            return Image.from_url(url, mime_type=media_type, name=name)
        return FileRef.from_url(url, name=name, mime_type=media_type)
    if scheme != "data":
        raise PartValidationError(f"URL must begin with data:, http: or https:, got {url[:40]!r}", path=path)
    inline = split_data_url(url)
    if inline is None:
        raise PartValidationError("invalid data URL", path=path)
    declared, data = inline
    kind = media_type or declared or None
    if kind is not None and kind.startswith("image/"):
        return Image.from_bytes(data, mime_type=kind, name=name)
    return FileRef.from_bytes(data, name or "file", mime_type=kind)


HEADERS: Mapping[str, str] = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # a proxy in front passes each frame on at once
}

_encode = msgspec.json.Encoder().encode


def sse(objects: Iterable[Mapping[str, Any]]) -> bytes:
    """The objects as frames."""
    return b"".join([b"data: %b\n\n" % _encode(content) for content in objects])


def converted(value: Any, kind: Any, where: str = "$") -> Any:
    """The value as this type; `PartValidationError` names the place inside `where` that does not fit."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at ")
        raise PartValidationError(text, path=path.strip("`").replace("$", where, 1) or where) from None
