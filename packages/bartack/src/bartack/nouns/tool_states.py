"""The four states of a tool call (003 §3.4), each a class with the fields of that state only.

`bartack.session.tool_state` has the transitions between them; the table TOOL defines which are valid.
"""

from datetime import datetime
from typing import Any, ClassVar, Literal

from bartack.nouns.errors import PartValidationError
from bartack.nouns.noun import Noun

__all__ = [
    "Completed",
    "Errored",
    "FilePart",
    "FilePartSource",
    "FileSource",
    "PartBase",
    "Pending",
    "ResourceSource",
    "Running",
    "SourcePosition",
    "SourceRange",
    "SourceText",
    "SymbolSource",
    "ToolState",
    "ToolTime",
]


class PartBase(Noun, frozen=True, kw_only=True):
    """The identity that every part of a document has (003 §3.1)."""

    id: str
    session_id: str
    message_id: str


class SourceText(Noun, frozen=True, kw_only=True):
    """The part of a message's text that refers to a source, and its position."""

    value: str
    start: int
    end: int


class SourcePosition(Noun, frozen=True, kw_only=True):
    """A position in a file; both numbers count from 0."""

    line: int
    character: int


class SourceRange(Noun, frozen=True, kw_only=True):
    """A range in a file."""

    start: SourcePosition
    end: SourcePosition


class FileSource(Noun, frozen=True, kw_only=True):
    """The content is a file (003 §3.7)."""

    type: ClassVar[Literal["file"]] = "file"
    path: str
    text: SourceText | None = None


class SymbolSource(Noun, frozen=True, kw_only=True):
    """The content is a symbol in a file, such as a function. Its `kind` is a number of the language server protocol."""

    type: ClassVar[Literal["symbol"]] = "symbol"
    path: str
    name: str
    range: SourceRange | None = None
    kind: int | None = None
    text: SourceText | None = None


class ResourceSource(Noun, frozen=True, kw_only=True):
    """The content is a resource that another program serves."""

    type: ClassVar[Literal["resource"]] = "resource"
    uri: str
    client_name: str | None = None
    text: SourceText | None = None


FilePartSource = FileSource | SymbolSource | ResourceSource


class FilePart(PartBase, frozen=True, kw_only=True):
    """A file in a document, alone or attached to a tool's output (003 §3.7)."""

    type: ClassVar[Literal["file"]] = "file"
    mime: str
    url: str
    filename: str | None = None
    source: FilePartSource | None = None


class ToolTime(Noun, frozen=True, kw_only=True):
    """When a tool ran, and when its output was removed by a compaction."""

    start: datetime
    end: datetime | None = None
    compacted: datetime | None = None

    def __post_init__(self) -> None:
        for key, time in (("start", self.start), ("end", self.end), ("compacted", self.compacted)):
            if not isinstance(time, datetime) and (time is not None or key == "start"):
                raise PartValidationError(f"expected a datetime, got {time!r}", path=f"$.{key}", rule="003-4.2.1")


class Pending(Noun, frozen=True):
    """Requested but not started. `raw` is the argument text as the model wrote it (BR-06)."""

    status: ClassVar[Literal["pending"]] = "pending"
    input: dict[str, Any]
    raw: str


class Running(Noun, frozen=True, kw_only=True):
    """Started but not finished."""

    status: ClassVar[Literal["running"]] = "running"
    input: dict[str, Any]
    time: ToolTime
    title: str | None = None
    metadata: dict[str, Any] | None = None


class Completed(Noun, frozen=True, kw_only=True):
    """Finished successfully."""

    status: ClassVar[Literal["completed"]] = "completed"
    input: dict[str, Any]
    output: str
    title: str
    metadata: dict[str, Any]
    time: ToolTime
    attachments: tuple[FilePart, ...] | None = None

    def __post_init__(self) -> None:
        if not self.output:
            raise PartValidationError("output must not be empty", path="$.output", rule="003-BR-09")
        _require_end(self.time)


class Errored(Noun, frozen=True, kw_only=True):
    """Failed, or never allowed to start."""

    status: ClassVar[Literal["error"]] = "error"
    input: dict[str, Any]
    error: str
    time: ToolTime
    metadata: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if not self.error:
            raise PartValidationError("error must not be empty", path="$.error", rule="003-BR-10")
        _require_end(self.time)


def _require_end(time: ToolTime) -> None:
    if time.end is None:
        raise PartValidationError("a finished tool call needs an end time", path="$.time.end", rule="003-BR-08")


ToolState = Pending | Running | Completed | Errored
