"""What a tool returned as the content of its result, cut to what a model should read.

Text stays text; objects (also structs, dataclasses and pydantic models) become JSON objects; parts stay parts; bytes
become an image or a file; nothing becomes an empty text; every other value is written as JSON. A value that JSON cannot
say is written as Python would print it: the tool has run, and a result that is hard to write must not undo that.
"""

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import msgspec

from bartack.nouns.errors import ErrorCode
from bartack.nouns.parts import ContentPart, FileRef, Image, Span, Text, ToolContent, ToolResult
from bartack.tools.storable import printed, storable_object, storable_text, value_text

__all__ = ["WHOLE_OUTPUT", "ToolOutput", "error_result", "image_type", "limited", "output_of"]

WHOLE_OUTPUT = "whole_output"  # in the metadata of a file that keeps what was cut from the text; not for models

_IMAGES = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))
_HEAD_SHARE = 2 / 3  # of a cut text; errors and totals stand at the end, so that is kept too


class _OutputDetails(msgspec.Struct, frozen=True, kw_only=True):
    title: str | None = None
    metadata: dict[str, Any] | None = None
    is_error: bool = False


class ToolOutput(_OutputDetails, frozen=True):
    """What a tool returns when it has more to say than content."""

    content: Any


def output_of(value: Any) -> ToolOutput:
    """The value as an output whose content is `ToolContent` that can be stored."""
    if not isinstance(value, ToolOutput):
        return ToolOutput(_content(value))
    metadata = None if value.metadata is None else storable_object(value.metadata)
    title = None if value.title is None else storable_text(value.title)
    return ToolOutput(_content(value.content), title=title, metadata=metadata, is_error=value.is_error)


def error_result(
    tool_call_id: str,
    code: ErrorCode,
    message: str,
    *,
    time: Span | None = None,
    metadata: dict[str, Any] | None = None,
) -> ToolResult:
    """The result of a call that has no better one; the model reads the message."""
    return ToolResult(
        tool_call_id, storable_text(message), is_error=True, error_code=code, time=time, metadata=metadata
    )


def image_type(data: bytes) -> str | None:
    """The MIME type of a picture, by its first bytes."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((name for magic, name in _IMAGES if data.startswith(magic)), None)


def _content(value: Any) -> ToolContent:
    match value:
        case None:
            return ""
        case str():
            return storable_text(value)
        case bytes() | bytearray() | memoryview() | Text() | Image() | FileRef():
            return (_part(value),)
        case list() | tuple() if value and any(isinstance(one, ContentPart) for one in value):
            return tuple(_part(one) for one in value)
        case PurePath():
            return storable_text(str(value))
    plain = _plain(value)
    if isinstance(plain, dict) and (stored := storable_object(plain)) is not None:
        return stored
    return storable_text(plain) if isinstance(plain, str) else value_text(plain)


def _plain(value: Any) -> Any:
    try:
        return msgspec.to_builtins(value, enc_hook=_foreign, str_keys=True)
    except (TypeError, ValueError, RecursionError, msgspec.ValidationError):
        return value


def _foreign(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    return printed(value)


def _part(value: Any) -> ContentPart:
    match value:
        case Text():
            return msgspec.structs.replace(value, text=storable_text(value.text))
        case Image() | FileRef():
            return value
        case bytes() | bytearray() | memoryview():
            data = bytes(value)
            mime_type = image_type(data)
            if mime_type is not None:
                return Image(mime_type, data=data)
            return FileRef("output.bin", data=data, mime_type="application/octet-stream", size=len(data))
    content = _content(value)
    return Text(content if isinstance(content, str) else value_text(content))


def limited(content: ToolContent, max_chars: int, tool_call_id: str) -> ToolContent:
    """The content with at most so many characters of text; what was longer is kept whole in a file beside it."""
    match content:
        case str():
            if len(content) <= max_chars:
                return content
            return (Text(_cut(content, max_chars)), _kept(content, f"{tool_call_id}.txt", "text/plain"))
        case dict():
            text = value_text(content)
            if len(text) <= max_chars:
                return content
            return (Text(_cut(text, max_chars)), _kept(text, f"{tool_call_id}.json", "application/json"))
    return _limited_parts(content, max_chars, tool_call_id)


def _limited_parts(parts: tuple[ContentPart, ...], max_chars: int, tool_call_id: str) -> tuple[ContentPart, ...]:
    left = max_chars
    out: list[ContentPart] = []
    for index, part in enumerate(parts):
        if not isinstance(part, Text) or len(part.text) <= left:
            out.append(part)
            left -= len(part.text) if isinstance(part, Text) else 0
            continue
        out += [Text(_cut(part.text, left)), _kept(part.text, f"{tool_call_id}.{index}.txt", "text/plain")]
        left = 0
    return tuple(out)


def _cut(text: str, max_chars: int) -> str:
    head = int(max_chars * _HEAD_SHARE)
    tail = max_chars - head
    note = f"\n[... {len(text) - max_chars} of {len(text)} characters left out ...]\n"
    return text[:head] + note + (text[-tail:] if tail else "")


def _kept(text: str, path: str, mime_type: str) -> FileRef:
    data = text.encode()
    return FileRef(path, data=data, mime_type=mime_type, size=len(data), metadata={WHOLE_OUTPUT: True})
