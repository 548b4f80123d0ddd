"""The six kinds of content a message is made of (000 §3.2), as frozen values.

``Text("hi")`` is all it takes to write one by hand; everything after the obvious first fields is keyword-only.
A part says what was said. Who said it and when is the message's business; its canonical JSON is made in `bartack.nouns.wire`.
"""

from datetime import datetime
from typing import Any, ClassVar, Literal

from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.noun import Noun

__all__ = [
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
]


class Continuation(Noun, frozen=True):
    """What a provider wants back unchanged: signatures, encrypted reasoning, item ids, citations.

    It goes back to the same provider only, byte for byte; nobody else may see it. (D-3.9)
    """

    provider: str
    model: str
    data: dict[str, Any]


class Span(Noun, frozen=True):
    """When something began and, once known, when it ended."""

    start: datetime | None = None
    end: datetime | None = None


class _Carried(Noun, frozen=True, kw_only=True):
    """What any part may carry beside its content."""

    id: str | None = None  # 003 §3.1; the document view makes one where there is none
    continuation: Continuation | None = None
    metadata: dict[str, Any] | None = None


class _Written(_Carried, frozen=True, kw_only=True):
    synthetic: bool = False  # 003 §3.2: written by a program, not by the speaker
    ignored: bool = False  # 003 §3.2: for people, never sent to a model
    time: Span | None = None


class Text(_Written, frozen=True):
    """Visible text."""

    kind: ClassVar = "text"
    text: str


class Thinking(_Written, frozen=True):
    """A model's reasoning. The text is empty where the provider keeps it encrypted or redacted."""

    kind: ClassVar = "thinking"
    text: str


class _Media(_Carried, frozen=True, kw_only=True):
    data: bytes | None = None
    url: str | None = None


class Image(_Media, frozen=True):
    """A picture, inline (`data`) or by address (`url`): exactly one of the two."""

    kind: ClassVar = "image"
    mime_type: str

    def __post_init__(self) -> None:
        if (self.data is None) == (self.url is None):
            raise PartValidationError("an image has exactly one of data and url", rule="000-3.2.7")


class _FileFacts(_Media, frozen=True, kw_only=True):
    mime_type: str | None = None
    size: int | None = None


class FileRef(_FileFacts, frozen=True):
    """A file by its path or name; `data` or `url` hold the content where it travels with the message."""

    kind: ClassVar = "file_ref"
    path: str

    def __post_init__(self) -> None:
        if self.data is not None and self.url is not None:
            raise PartValidationError("a file has at most one of data and url", rule="000-3.2.8")


ContentPart = Text | Image | FileRef
ToolContent = str | dict[str, Any] | tuple[ContentPart, ...]  # 000 §3.3: parts, an object, or text


class _ResultFacts(_Carried, frozen=True, kw_only=True):
    is_error: bool = False
    error_code: ErrorCode | None = None  # why there is no better result: failed, denied, timed out, ...
    title: str | None = None
    time: Span | None = None
    compacted_at: datetime | None = None  # 003 §3.4: when the output was dropped from what models see


class ToolResult(_ResultFacts, frozen=True):
    """How one tool call ended. Each call has exactly one in the end (000 §6)."""

    kind: ClassVar = "tool_result"
    always_written: ClassVar = ("is_error",)
    tool_call_id: str
    content: ToolContent

    def __post_init__(self) -> None:
        if not self.tool_call_id:
            raise PartValidationError("a tool result names its call", path="$.toolCallId", rule="000-6.3")
        if isinstance(self.content, tuple):
            for index, part in enumerate(self.content):
                if not isinstance(part, ContentPart):
                    raise PartValidationError(
                        f"a tool result holds text, images and files, not {_kind_of(part)}",
                        path=f"$.content[{index}]",
                        rule="000-3.3.3",
                    )


class _CallFacts(_Carried, frozen=True, kw_only=True):
    raw_args_text: str | None = None  # the arguments as the model wrote them, kept where they do not parse
    executed_by: Literal["client", "provider"] = "client"
    result: ToolResult | None = None  # of a call that the provider executed itself (D-3.10)


class ToolCall(_CallFacts, frozen=True):
    """A model's wish to run a tool."""

    kind: ClassVar = "tool_call"
    tool_call_id: str
    tool_name: str
    arguments: dict[str, Any]

    def __post_init__(self) -> None:
        if not self.tool_call_id:
            raise PartValidationError("a tool call has an id", path="$.toolCallId", rule="000-6.1")
        if self.result is not None and self.executed_by == "client":
            raise PartValidationError(
                "only a call that the provider executed holds its result", path="$.result", rule="D-3.10"
            )
        if self.result is not None and self.result.tool_call_id != self.tool_call_id:
            raise PartValidationError(
                f"call {self.tool_call_id!r} holds the result of {self.result.tool_call_id!r}",
                path="$.result.toolCallId",
                rule="000-6.3",
            )


Part = Text | Thinking | ToolCall | ToolResult | Image | FileRef


def _kind_of(value: object) -> str:
    return getattr(value, "kind", type(value).__name__)
