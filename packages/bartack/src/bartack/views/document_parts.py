"""The document's vocabulary (003 §3): parts with an identity, and `WithParts`, the message that holds them.

Times are aware datetimes; the document view writes them as whole milliseconds. 003 requires some fields for which a
session may hold no fact, such as the cost of a call whose provider reported none. They are optional here and omitted
when unknown, because an invented zero would be mistaken for a fact.
"""

from datetime import datetime
from typing import Any, ClassVar, Literal

from bartack.nouns.messages import Summary, Workspace
from bartack.nouns.noun import Noun
from bartack.nouns.parts import Span
from bartack.nouns.tool_states import FilePart, PartBase, ToolState

__all__ = [
    "TEXT_FIELDS",
    "AssistantInfo",
    "CacheTokens",
    "DocumentModel",
    "DocumentPart",
    "FilePart",
    "MessageTime",
    "PartBase",
    "ReasoningPart",
    "StepFinishPart",
    "StepStartPart",
    "TextPart",
    "TokenStats",
    "ToolPart",
    "UserInfo",
    "WithParts",
]


# The fields that a part of a document shares with ours, under the same names: `document` and `document_load` copy them.
TEXT_FIELDS = ("id", "text", "synthetic", "ignored", "time", "metadata")


class TextPart(PartBase, frozen=True, kw_only=True):
    """Visible text (003 §3.2)."""

    type: ClassVar[Literal["text"]] = "text"
    text: str
    synthetic: bool = False
    ignored: bool = False
    time: Span | None = None
    metadata: dict[str, Any] | None = None


class ReasoningPart(PartBase, frozen=True, kw_only=True):
    """A model's reasoning (003 §3.3)."""

    type: ClassVar[Literal["reasoning"]] = "reasoning"
    text: str
    time: Span
    metadata: dict[str, Any] | None = None


class ToolPart(PartBase, frozen=True, kw_only=True):
    """A tool call in its current state (003 §3.5)."""

    type: ClassVar[Literal["tool"]] = "tool"
    call_id: str
    tool: str
    state: ToolState
    metadata: dict[str, Any] | None = None


class StepStartPart(PartBase, frozen=True, kw_only=True):
    """The beginning of a model call (003 §3.6)."""

    type: ClassVar[Literal["step-start"]] = "step-start"
    snapshot: str | None = None


class CacheTokens(Noun, frozen=True):
    """Tokens read from and written to a prompt cache."""

    read: int
    write: int


class TokenStats(Noun, frozen=True, kw_only=True):
    """Tokens of one model call: `input` includes the cache, `output` includes reasoning."""

    input: int
    output: int
    reasoning: int
    cache: CacheTokens


class StepFinishPart(PartBase, frozen=True, kw_only=True):
    """The end of a model call (003 §3.6)."""

    type: ClassVar[Literal["step-finish"]] = "step-finish"
    reason: str
    snapshot: str | None = None
    cost: float | None = None
    tokens: TokenStats | None = None


DocumentPart = TextPart | ReasoningPart | ToolPart | StepStartPart | StepFinishPart | FilePart


class MessageTime(Noun, frozen=True, kw_only=True):
    """When a message was created and when it was complete."""

    created: datetime
    completed: datetime | None = None


class DocumentModel(Noun, frozen=True):
    """A model in the form that 003 uses."""

    provider_id: str
    model_id: str


class UserInfo(Noun, frozen=True, kw_only=True):
    """A user message without its parts (003 §3.8)."""

    role: ClassVar[Literal["user"]] = "user"
    id: str
    time: MessageTime
    agent: str | None = None
    model: DocumentModel | None = None
    summary: Summary | None = None
    system: str | None = None
    tools: dict[str, bool] | None = None
    variant: str | None = None


class AssistantInfo(Noun, frozen=True, kw_only=True):
    """An assistant message without its parts (003 §3.8)."""

    role: ClassVar[Literal["assistant"]] = "assistant"
    id: str
    time: MessageTime
    agent: str | None = None
    model: DocumentModel | None = None
    cost: float | None = None
    tokens: TokenStats | None = None
    path: Workspace | None = None


class WithParts(Noun, frozen=True):
    """A message and its parts (003 §3.9)."""

    info: UserInfo | AssistantInfo
    parts: tuple[DocumentPart, ...]
