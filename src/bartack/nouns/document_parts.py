"""The words of 003: parts with identity, the four states of a tool, and `WithParts` around them.

They are what the document view shows. Inside, times are aware datetimes like everywhere; the view writes them as whole
milliseconds. 003 asks for some fields that no fact may stand behind (a cost that nobody reported, an agent without a
name): those are optional here and left out, since a made-up zero would be read as the truth.
"""

from datetime import datetime
from typing import Any, ClassVar

from bartack.nouns.errors import PartValidationError
from bartack.nouns.messages import Summary, Workspace
from bartack.nouns.noun import Noun
from bartack.nouns.parts import Span

__all__ = [
    "AssistantInfo",
    "CacheTokens",
    "Completed",
    "DocumentPart",
    "Errored",
    "FilePart",
    "MessageTime",
    "Pending",
    "ProviderModel",
    "ReasoningPart",
    "Running",
    "StepFinishPart",
    "StepStartPart",
    "TextPart",
    "TokenStats",
    "ToolPart",
    "ToolState",
    "ToolTime",
    "UserInfo",
    "WithParts",
]


class _Identified(Noun, frozen=True, kw_only=True):
    """003 §3.1: what every part has."""

    id: str
    session_id: str
    message_id: str


class TextPart(_Identified, frozen=True, kw_only=True):
    """003 §3.2."""

    type: ClassVar = "text"
    text: str
    synthetic: bool = False
    ignored: bool = False
    time: Span | None = None
    metadata: dict[str, Any] | None = None


class ReasoningPart(_Identified, frozen=True, kw_only=True):
    """003 §3.3."""

    type: ClassVar = "reasoning"
    text: str
    time: Span
    metadata: dict[str, Any] | None = None


class FilePart(_Identified, frozen=True, kw_only=True):
    """003 §3.7. `source` is a file, a symbol or a resource, as its own ``type`` says."""

    type: ClassVar = "file"
    mime: str
    url: str
    filename: str | None = None
    source: dict[str, Any] | None = None


# -- the four states of a tool call, 003 §3.4


class ToolTime(Noun, frozen=True, kw_only=True):
    """When a tool ran, and when its output was compacted away."""

    start: datetime
    end: datetime | None = None
    compacted: datetime | None = None


class Pending(Noun, frozen=True):
    """Asked for, not started; `raw` is the argument text (BR-06)."""

    status: ClassVar = "pending"
    input: dict[str, Any]
    raw: str


class Running(Noun, frozen=True, kw_only=True):
    """Started, not finished."""

    status: ClassVar = "running"
    input: dict[str, Any]
    time: ToolTime
    title: str | None = None
    metadata: dict[str, Any] | None = None


class Completed(Noun, frozen=True, kw_only=True):
    """Finished well."""

    status: ClassVar = "completed"
    input: dict[str, Any]
    output: str
    title: str
    metadata: dict[str, Any]
    time: ToolTime
    attachments: tuple[FilePart, ...] | None = None

    def __post_init__(self) -> None:
        if not self.output:
            raise PartValidationError("a completed tool has an output", path="$.output", rule="003-BR-09")
        _require_end(self.time)


class Errored(Noun, frozen=True, kw_only=True):
    """Finished badly, or never allowed to start."""

    status: ClassVar = "error"
    input: dict[str, Any]
    error: str
    time: ToolTime
    metadata: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if not self.error:
            raise PartValidationError("a tool error describes what went wrong", path="$.error", rule="003-BR-10")
        _require_end(self.time)


def _require_end(time: ToolTime) -> None:
    if time.end is None:
        raise PartValidationError("a finished tool has an end time", path="$.time.end", rule="003-BR-08")


ToolState = Pending | Running | Completed | Errored


class ToolPart(_Identified, frozen=True, kw_only=True):
    """003 §3.5."""

    type: ClassVar = "tool"
    call_id: str
    tool: str
    state: ToolState
    metadata: dict[str, Any] | None = None


# -- one step of an assistant, 003 §3.6


class StepStartPart(_Identified, frozen=True, kw_only=True):
    """A model call begins."""

    type: ClassVar = "step-start"
    snapshot: str | None = None


class CacheTokens(Noun, frozen=True):
    """Tokens read from and written to a prompt cache."""

    read: int
    write: int


class TokenStats(Noun, frozen=True, kw_only=True):
    """Tokens of one model call; as everywhere, `input` includes the cache's and `output` includes reasoning."""

    input: int
    output: int
    reasoning: int
    cache: CacheTokens


class StepFinishPart(_Identified, frozen=True, kw_only=True):
    """A model call ended."""

    type: ClassVar = "step-finish"
    reason: str
    snapshot: str | None = None
    cost: float | None = None
    tokens: TokenStats | None = None


DocumentPart = TextPart | ReasoningPart | ToolPart | StepStartPart | StepFinishPart | FilePart


# -- a message, 003 §3.8-3.9


class MessageTime(Noun, frozen=True, kw_only=True):
    """When a message was made and when it was complete."""

    created: datetime
    completed: datetime | None = None


class ProviderModel(Noun, frozen=True):
    """A model as 003 names it."""

    provider_id: str
    model_id: str


class UserInfo(Noun, frozen=True, kw_only=True):
    """What stands around a user's parts."""

    role: ClassVar = "user"
    id: str
    time: MessageTime
    agent: str | None = None
    model: ProviderModel | None = None
    summary: Summary | None = None
    system: str | None = None
    tools: dict[str, bool] | None = None
    variant: str | None = None


class AssistantInfo(Noun, frozen=True, kw_only=True):
    """What stands around an assistant's parts."""

    role: ClassVar = "assistant"
    id: str
    time: MessageTime
    agent: str | None = None
    model: ProviderModel | None = None
    cost: float | None = None
    tokens: TokenStats | None = None
    path: Workspace | None = None


class WithParts(Noun, frozen=True):
    """A message and its parts."""

    info: UserInfo | AssistantInfo
    parts: tuple[DocumentPart, ...]
