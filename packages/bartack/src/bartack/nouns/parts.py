"""The six kinds of parts that make up a message (000 §3.2), as frozen values.

A part is content only: ``Text("hi")``. Role, time and run belong to the message. Fields after the obvious first ones
are keyword-only. `bartack.nouns.wire` defines the canonical JSON.
"""

import re
from datetime import datetime
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal, Self

from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.noun import Noun

__all__ = [
    "FULL_OUTPUT",
    "STRUCTURED",
    "ContentPart",
    "Continuation",
    "FileRef",
    "Image",
    "Part",
    "Span",
    "Text",
    "Thinking",
    "ToolCall",
    "ToolContent",
    "ToolResult",
    "type_of_data",
    "type_of_name",
]

# Metadata key of a `FileRef` in a tool result: it has the full text of a truncated output, for people only.
FULL_OUTPUT = "full_output"
# Metadata key of a tool result whose content is JSON text: the list, number or boolean that the tool returned.
STRUCTURED = "structured"


class Continuation(Noun, frozen=True, gc=False):
    """Data that a provider expects back unchanged: signatures, encrypted reasoning, item ids, citations.

    It is sent back to the same provider only, byte for byte (D-3.9).
    """

    provider: str
    model: str
    data: dict[str, Any]


class Span(Noun, frozen=True, gc=False):
    """When something started and, once it has, when it ended."""

    start: datetime | None = None
    end: datetime | None = None


class _PartFields(Noun, frozen=True, kw_only=True, gc=False):
    id: str | None = None  # 003 §3.1; the document view derives one if there is none
    continuation: Continuation | None = None
    metadata: dict[str, Any] | None = None


class _TextFields(_PartFields, frozen=True, kw_only=True):
    synthetic: bool = False  # 003 §3.2: written by a program
    ignored: bool = False  # 003 §3.2: shown to people, never sent to a model
    time: Span | None = None


class Text(_TextFields, frozen=True):
    """Visible text."""

    kind: ClassVar[Literal["text"]] = "text"
    text: str


class Thinking(_TextFields, frozen=True):
    """A model's reasoning. The text is empty if the provider encrypts or redacts it."""

    kind: ClassVar[Literal["thinking"]] = "thinking"
    text: str


class _MediaFields(_PartFields, frozen=True, kw_only=True):
    data: bytes | None = None
    url: str | None = None


class _ImageFields(_MediaFields, frozen=True, kw_only=True):
    detail: Literal["auto", "low", "high"] | None = None  # how closely the model looks, which costs tokens


class Image(_ImageFields, frozen=True):
    """An image, either inline (`data`) or by reference (`url`)."""

    kind: ClassVar[Literal["image"]] = "image"
    mime_type: str

    @property
    def name(self) -> str | None:
        """The name of its file, if that is known: ``metadata["name"]``."""
        name = (self.metadata or {}).get("name")
        return name if isinstance(name, str) else None

    def __post_init__(self) -> None:
        if (self.data is None) == (self.url is None):
            raise PartValidationError("an image needs either data or url, and not both", rule="000-3.2.7")

    @classmethod
    def from_bytes(
        cls, data: bytes | bytearray | memoryview, *, mime_type: str | None = None, name: str | None = None
    ) -> Self:
        """An image with this content. Its type is read from the first bytes if it is not given."""
        data = _bytes(data)
        kind = mime_type or type_of_data(data)
        if kind is None or not kind.startswith("image/"):
            raise PartValidationError("not a PNG, JPEG, GIF or WebP image; pass its mime_type", path="$.data")
        return cls(kind, data=data, metadata=_name_metadata(name))

    @classmethod
    def from_file(cls, path: str | PathLike[str], *, mime_type: str | None = None) -> Self:
        """The image in a file, which is read now, and without the folders of its path."""
        return cls.from_bytes(_content_of(path), mime_type=mime_type, name=Path(path).name)

    @classmethod
    def from_url(cls, url: str, *, mime_type: str | None = None, name: str | None = None) -> Self:
        """An image that the provider fetches. Its type is taken from the URL if it is not given."""
        path = _check_url(url).partition("?")[0]
        kind = mime_type or type_of_name(path) or "image/*"
        return cls(kind, url=url, metadata=_name_metadata(name))


def _name_metadata(name: str | None) -> dict[str, Any] | None:
    return {"name": name} if name else None


class _FileFields(_MediaFields, frozen=True, kw_only=True):
    mime_type: str | None = None
    size: int | None = None


class FileRef(_FileFields, frozen=True):
    """A file by its path or name; `data` or `url` is its content, if the message includes it."""

    kind: ClassVar[Literal["file_ref"]] = "file_ref"
    path: str

    def __post_init__(self) -> None:
        if self.data is not None and self.url is not None:
            raise PartValidationError("a file cannot have both data and url", rule="000-3.2.8")

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview, name: str, *, mime_type: str | None = None) -> Self:
        """A document, recording or other file with this content. Its type is taken from the content or the name."""
        data = _bytes(data)
        kind = mime_type or type_of_data(data) or type_of_name(name)
        return cls(name, data=data, mime_type=kind, size=len(data))

    @classmethod
    def from_file(cls, path: str | PathLike[str], *, mime_type: str | None = None) -> Self:
        """The file with its content, which is read now, and without the folders of its path."""
        return cls.from_bytes(_content_of(path), Path(path).name, mime_type=mime_type)

    @classmethod
    def from_url(cls, url: str, *, name: str | None = None, mime_type: str | None = None) -> Self:
        """A file that the provider fetches."""
        path = _check_url(url).partition("?")[0]
        return cls(name or path.rpartition("/")[2] or url, url=url, mime_type=mime_type or type_of_name(path))


def _bytes(data: bytes | bytearray | memoryview) -> bytes:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise PartValidationError(f"expected bytes, got {type(data).__name__}", path="$.data")
    return bytes(data)


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S")


def _check_url(url: str) -> str:
    if not isinstance(url, str) or not _URL.match(url):
        raise PartValidationError(f"expected a URL such as 'https://example.org/a.png', got {url!r}", path="$.url")
    return url


def _content_of(path: str | PathLike[str]) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise PartValidationError(f"cannot read {str(path)!r}: {error.strerror}", path="$.path") from error


ContentPart = Text | Image | FileRef
ToolContent = str | dict[str, Any] | tuple[ContentPart, ...]  # 000 §3.3: parts, an object, or text


class _ResultFields(_PartFields, frozen=True, kw_only=True):
    is_error: bool = False
    error_code: ErrorCode | None = None  # why it failed: denied, timed out, ...
    title: str | None = None
    time: Span | None = None
    compacted_at: datetime | None = None  # 003 §3.4: when the output was removed from the context


class ToolResult(_ResultFields, frozen=True):
    """The outcome of one tool call. Each call ends with exactly one (000 §6)."""

    kind: ClassVar[Literal["tool_result"]] = "tool_result"
    always_written: ClassVar[tuple[str, ...]] = ("is_error",)
    tool_call_id: str
    content: ToolContent

    def __post_init__(self) -> None:
        if not self.tool_call_id:
            raise PartValidationError("tool call id must not be empty", path="$.toolCallId", rule="000-6.3")
        if isinstance(self.content, tuple):
            for index, part in enumerate(self.content):
                if not isinstance(part, ContentPart):
                    raise PartValidationError(
                        f"a tool result may contain text, images and files, not {_kind_of(part)}",
                        path=f"$.content[{index}]",
                        rule="000-3.3.3",
                    )

    @property
    def value(self) -> Any:
        """The structured data that the tool returned, or else its text; None if the content consists of parts."""
        if isinstance(self.content, tuple):
            return None
        return (self.metadata or {}).get(STRUCTURED, self.content)


class _CallFields(_PartFields, frozen=True, kw_only=True):
    raw_args_text: str | None = None  # the text that the model wrote, kept if it is not valid JSON
    executed_by: Literal["client", "provider"] = "client"
    result: ToolResult | None = None  # only if the provider executed the call (D-3.10)


class ToolCall(_CallFields, frozen=True):
    """A model's request to execute a tool."""

    kind: ClassVar[Literal["tool_call"]] = "tool_call"
    tool_call_id: str
    tool_name: str
    arguments: dict[str, Any]

    def __post_init__(self) -> None:
        if not self.tool_call_id:
            raise PartValidationError("tool call id must not be empty", path="$.toolCallId", rule="000-6.1")
        if self.result is not None and self.executed_by == "client":
            raise PartValidationError(
                "only a call executed by the provider may contain its result", path="$.result", rule="D-3.10"
            )
        if self.result is not None and self.result.tool_call_id != self.tool_call_id:
            raise PartValidationError(
                f"call {self.tool_call_id!r} contains the result of call {self.result.tool_call_id!r}",
                path="$.result.toolCallId",
                rule="000-6.3",
            )


Part = Text | Thinking | ToolCall | ToolResult | Image | FileRef


def _kind_of(value: object) -> str:
    return getattr(value, "kind", type(value).__name__)


# -- the media type of a file, from its first bytes or its name

# Only types that some provider accepts: other files are not sent, so their types do not matter.
_BY_SUFFIX = {
    ".pdf": "application/pdf",
    ".csv": "text/csv",
    ".doc": "application/msword",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".xls": "application/vnd.ms-excel",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".html": "text/html",
    ".txt": "text/plain",
    ".md": "text/markdown",
    ".json": "application/json",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".wav": "audio/wav",
    ".mp3": "audio/mpeg",
    ".mp4": "video/mp4",
    ".mov": "video/quicktime",
    ".webm": "video/webm",
}

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
)


def type_of_data(data: bytes) -> str | None:
    """The type of an image or a PDF by its first bytes; None for anything else."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((name for magic, name in _MAGIC if data.startswith(magic)), None)


def type_of_name(name: str) -> str | None:
    """The type that the end of a file name or path implies; None if unknown."""
    return _BY_SUFFIX.get(PurePosixPath(name).suffix.lower())
