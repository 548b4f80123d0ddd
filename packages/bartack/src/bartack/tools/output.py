"""The value that a tool returned -> its result, cut to a size that suits a model.

Text stays text; objects (including structs, dataclasses and pydantic models) become JSON objects; parts stay parts;
bytes become an image or a file; None becomes empty text. Content cannot be a list or a number (000 §3.3): these become
JSON text, and the result keeps the value itself too. A `ToolResult` is taken as it is. The ledger refuses lone
surrogates, numbers that are not finite and very deep nesting. A tool that has done its work must not lose its result
because of that, so such values are stored in the nearest valid form, or as Python prints them. For a value that is
neither text nor data, such as a generator, the result is an error.
"""

from collections.abc import Coroutine, Iterator, Mapping, Sequence
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType
from typing import Any

import msgspec

from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.json_values import json_text, plain
from bartack.nouns.parts import (
    FULL_OUTPUT,
    STRUCTURED,
    ContentPart,
    FileRef,
    Image,
    Text,
    ToolContent,
    ToolResult,
    type_of_data,
)

__all__ = [
    "WHOLE_OUTPUT",
    "ToolOutput",
    "error_result",
    "image_type",
    "limited",
    "result_of",
    "valid_object",
    "valid_result",
    "valid_text",
]

WHOLE_OUTPUT = "whole_output"
"""In the metadata of a result: the `file` with all of the output, for the model to read, its `lines` and `bytes`."""
_OPAQUE = "The tool was executed, but returned {}, which is neither text nor data that can be stored."
# The share of the beginning in a cut text. The rest is its end, where errors and totals are.
_HEAD_SHARE = 2 / 3


class _OutputDetails(msgspec.Struct, frozen=True, kw_only=True):
    title: str | None = None
    metadata: dict[str, Any] | None = None
    is_error: bool = False


class ToolOutput(_OutputDetails, frozen=True):
    """A tool's return value with a title, metadata, or marked as an error."""

    content: Any


def result_of(value: Any, tool_call_id: str) -> ToolResult:
    """The value as the result of this call, with content that can be stored."""
    if isinstance(value, ToolResult):
        return msgspec.structs.replace(valid_result(value), tool_call_id=tool_call_id)
    output = value if isinstance(value, ToolOutput) else ToolOutput(value)
    if _is_opaque(output.content):
        type_name = _type_name(output.content)
        return error_result(tool_call_id, ErrorCode.TOOL_FAILED, _OPAQUE.format(type_name))
    content = _content(output.content)
    structured = _structured(output.content) if isinstance(content, str) else {}
    return ToolResult(
        tool_call_id,
        content,
        is_error=output.is_error,
        error_code=ErrorCode.TOOL_FAILED if output.is_error else None,
        title=None if output.title is None else valid_text(output.title),
        metadata={**structured, **(valid_object(output.metadata or {}) or {})} or None,
    )


def valid_result(result: ToolResult) -> ToolResult:
    """The result in a form that can be stored."""
    return msgspec.structs.replace(
        result,
        content=_content(result.content) if result.content else result.content,
        error_code=(result.error_code or ErrorCode.TOOL_FAILED) if result.is_error else None,
        title=None if result.title is None else valid_text(result.title),
        metadata=None if result.metadata is None else valid_object(result.metadata),
    )


def error_result(
    tool_call_id: str, code: ErrorCode, message: str, *, metadata: dict[str, Any] | None = None
) -> ToolResult:
    """An error result; `message` is for the model."""
    return ToolResult(tool_call_id, valid_text(message), is_error=True, error_code=code, metadata=metadata)


def valid_text(text: str) -> str:
    """The text with lone surrogates replaced."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def valid_object(value: dict[str, Any]) -> dict[str, Any] | None:
    """A copy of the object as plain JSON; None if it cannot be stored."""
    try:
        return msgspec.json.decode(msgspec.json.encode(plain(value)), type=dict[str, Any])
    except (PartValidationError, ValueError, RecursionError):
        return None


def image_type(data: bytes) -> str | None:
    """The MIME type of an image, from its first bytes; None for other data."""
    kind = type_of_data(data)
    return kind if kind is not None and kind.startswith("image/") else None


def _content(value: Any) -> ToolContent:
    match value:
        case None:
            return ""
        case str():
            return valid_text(value)
        case bytes() | bytearray() | memoryview() | Text() | Image() | FileRef():
            return (_part(value),)
        case list() | tuple() if value and any(isinstance(item, ContentPart) for item in value):
            return tuple(_part(item) for item in value)
        case PurePath():
            return valid_text(str(value))
    built_in = _built_in(value)
    if isinstance(built_in, dict) and (stored := valid_object(built_in)) is not None:
        return stored
    return valid_text(built_in) if isinstance(built_in, str) else _value_text(built_in)


def _structured(value: Any) -> dict[str, Any]:
    """The value under the key `STRUCTURED`, if it is data that content cannot be."""
    built_in = _built_in(value)
    return (valid_object({STRUCTURED: built_in}) or {}) if isinstance(built_in, list | tuple | int | float) else {}


def _is_opaque(value: Any) -> bool:
    """Whether the value has no useful text or data, such as a generator."""
    if isinstance(value, type | Iterator | Coroutine | FunctionType | BuiltinFunctionType):
        return True
    return _has_no_text(value) and isinstance(_built_in(value), str)


def _has_no_text(value: Any) -> bool:
    kind: Any = type(value)
    return kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__


def _type_name(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"a value of type {type(value).__name__}"


def _built_in(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        value = sorted(value, key=repr)  # the same set gives the same result
    try:
        return msgspec.to_builtins(value, enc_hook=_from_foreign, str_keys=True)
    except (TypeError, ValueError, RecursionError, msgspec.ValidationError):
        return value


def _from_foreign(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    return _display(value)


def _value_text(value: Any) -> str:
    try:
        return valid_text(json_text(value, default=_display))
    except (TypeError, ValueError, RecursionError):  # odd keys, cycles, very deep nesting
        return _display(value)


def _display(value: Any) -> str:
    if _has_no_text(value):
        return f"<{type(value).__name__}>"  # Python would add an address
    try:
        return valid_text(str(value))
    except Exception:  # noqa: BLE001 - str() runs the value's own code
        return f"<{type(value).__name__}>"


def _part(value: Any) -> ContentPart:
    match value:
        case Text():
            return msgspec.structs.replace(value, text=valid_text(value.text))
        case Image() | FileRef():
            return value
        case bytes() | bytearray() | memoryview():
            data = bytes(value)
            mime_type = image_type(data)
            if mime_type is not None:
                return Image(mime_type, data=data)
            return FileRef("output.bin", data=data, mime_type="application/octet-stream", size=len(data))
    content = _content(value)
    return Text(content if isinstance(content, str) else _value_text(content))


def limited(result: ToolResult, max_chars: int) -> ToolResult:
    """The result with at most `max_chars` of text; text that was cut is kept whole in a file part."""
    content = _limited_content(result.content, max_chars, result.tool_call_id, result.metadata or {})
    if content is result.content:
        return result
    metadata = {key: value for key, value in (result.metadata or {}).items() if key != STRUCTURED}  # the file has it
    return msgspec.structs.replace(result, content=content, metadata=metadata or None)


def _limited_content(
    content: ToolContent, max_chars: int, tool_call_id: str, metadata: Mapping[str, Any]
) -> ToolContent:
    if isinstance(content, tuple):
        return _limited_parts(content, max_chars, tool_call_id)
    text = content if isinstance(content, str) else _value_text(content)
    if len(text) <= max_chars:
        return content
    name, mime_type = ("txt", "text/plain") if isinstance(content, str) else ("json", "application/json")
    match metadata.get(WHOLE_OUTPUT):
        case {"file": str(file), "lines": int(lines), "bytes": int(size)}:
            note = f"shortened; all {lines:,} lines ({size:,} bytes) are in {file}"
        case _:
            note = f"{len(text) - max_chars:,} of {len(text):,} characters omitted"
    return (Text(_cut(text, max_chars, note)), _kept(text, f"{tool_call_id}.{name}", mime_type))


def _limited_parts(parts: tuple[ContentPart, ...], max_chars: int, tool_call_id: str) -> tuple[ContentPart, ...]:
    remaining = max_chars
    out: list[ContentPart] = []
    for index, part in enumerate(parts):
        if not isinstance(part, Text) or len(part.text) <= remaining:
            out.append(part)
            remaining -= len(part.text) if isinstance(part, Text) else 0
            continue
        note = f"{len(part.text) - remaining:,} of {len(part.text):,} characters omitted"
        out += [Text(_cut(part.text, remaining, note)), _kept(part.text, f"{tool_call_id}.{index}.txt", "text/plain")]
        remaining = 0
    return tuple(out)


def _cut(text: str, max_chars: int, note: str) -> str:
    head = int(max_chars * _HEAD_SHARE)
    tail = max_chars - head
    return f"{text[:head]}\n[... {note} ...]\n{text[-tail:] if tail else ''}"


def _kept(text: str, path: str, mime_type: str) -> FileRef:
    data = text.encode()
    return FileRef(path, data=data, mime_type=mime_type, size=len(data), metadata={FULL_OUTPUT: True})
