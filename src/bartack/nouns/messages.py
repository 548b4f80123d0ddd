"""`Message`: who spoke, in which parts, with which facts beside them (000 §3.1, 002, 003 §3.8).

A message written by hand (``user("hi")``) has no id, run or time yet: those are inputs that the edge gives it
with `stamped` when it becomes a fact. Which parts a role may hold is checked on construction, so no message
that breaks 000 §3.2 exists.
"""

from datetime import datetime
from typing import Any, ClassVar, Literal, get_args

import msgspec

from bartack.nouns.deltas import FinishReason, Usage
from bartack.nouns.errors import PartValidationError
from bartack.nouns.noun import Noun
from bartack.nouns.parts import ContentPart, FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult

__all__ = [
    "ROLE_PARTS",
    "Koding",
    "Message",
    "Meta",
    "ModelRef",
    "Role",
    "Step",
    "Summary",
    "Workspace",
    "assistant",
    "stamped",
    "system",
    "tool_message",
    "user",
]

Role = Literal["system", "user", "assistant", "tool"]

ROLE_PARTS: dict[Role, tuple[type[Part], ...]] = {
    "system": (Text, Thinking),
    "user": (Text, Image, FileRef),
    "assistant": (Text, Thinking, ToolCall),
    "tool": (ToolResult,),
}

_ROLE_RULES: dict[Role, str] = {
    "system": "000-3.2.9",
    "user": "000-3.2.10",
    "assistant": "000-3.2.11",
    "tool": "000-3.2.12",
}


class Koding(Noun, frozen=True):
    """The user sent this input in Koding mode (002), with what the mode adds to it."""

    context: str | None = None


class Summary(Noun, frozen=True, kw_only=True):
    """What a user message was about, written when the context is compacted (003 §3.8, BR-11)."""

    title: str | None = None
    body: str | None = None
    diffs: tuple[Any, ...] | None = None


class Workspace(Noun, frozen=True):
    """Where an assistant worked (003 §3.8)."""

    cwd: str
    root: str


class Step(Noun, frozen=True, kw_only=True):
    """The two ends of an answer where they have ids and workspace snapshots of their own (003 §3.6)."""

    start_id: str | None = None
    start_snapshot: str | None = None
    finish_id: str | None = None
    finish_snapshot: str | None = None


class ModelRef(Noun, frozen=True):
    """A model by its provider and its name there."""

    provider: str
    model: str


class Meta(Noun, frozen=True, kw_only=True):
    """Everything about a message that is not its content. All of it is optional."""

    model: ModelRef | None = None
    response_id: str | None = None  # 002: ties the turns of one conversation at the provider together
    usage: Usage | None = None
    cost_usd: float | None = None  # None means unknown, never free
    duration_ms: int | None = None
    completed_at: datetime | None = None  # 003 BR-14
    finish_reason: FinishReason | None = None
    raw_finish_reason: str | None = None
    bad_args: dict[str, str] | None = None  # tool call id -> why its arguments did not parse (000 §5)
    open_calls: tuple[str, ...] | None = None  # of a snapshot: calls whose arguments are still coming
    aborted: bool = False  # a partial answer that was kept when the run was stopped
    is_api_error_message: bool = False  # 002: stands for a failed model call
    koding: Koding | None = None
    model_call_index: int | None = None
    attempt: int | None = None
    agent: str | None = None
    summary: Summary | None = None
    system: str | None = None
    tools: dict[str, bool] | None = None
    variant: str | None = None
    path: Workspace | None = None
    step: Step | None = None
    trace: dict[str, Any] | None = None
    approvals: tuple[dict[str, Any], ...] | None = None


class _Stamps(Noun, frozen=True, kw_only=True):
    id: str | None = None
    run_id: str | None = None
    timestamp: datetime | None = None
    meta: Meta | None = None


class Message(_Stamps, frozen=True):
    """One speaker's turn: ordered parts that are never rearranged. It is also the fact ``message``."""

    kind: ClassVar = "message"
    role: Role
    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        allowed = ROLE_PARTS.get(self.role)
        if allowed is None:
            roles = ", ".join(get_args(Role))
            raise PartValidationError(f"{self.role!r} is not a role ({roles})", path="$.role", rule="000-3.1.2")
        if not isinstance(self.parts, tuple):
            raise PartValidationError("parts are a tuple", path="$.parts", rule="000-3.1.1")
        calls = set()
        for index, part in enumerate(self.parts):
            if not isinstance(part, allowed):
                kind = getattr(part, "kind", type(part).__name__)
                may = ", ".join(one.kind for one in allowed)
                raise PartValidationError(
                    f"a {self.role} message may not hold {kind} (only {may})",
                    path=f"$.parts[{index}]",
                    rule=_ROLE_RULES[self.role],
                )
            if isinstance(part, ToolCall | ToolResult):
                if part.tool_call_id in calls:
                    raise PartValidationError(
                        f"tool call id {part.tool_call_id!r} appears twice in one message",
                        path=f"$.parts[{index}].payload.toolCallId",
                        rule="000-6.1",
                    )
                calls.add(part.tool_call_id)

    @property
    def text(self) -> str:
        """All visible text, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def thinking(self) -> str:
        """All reasoning, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, Thinking))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls in order, those of the provider's own tools included."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        """The results in order."""
        return tuple(part for part in self.parts if isinstance(part, ToolResult))


def stamped(message: Message, *, id: str, timestamp: datetime, run_id: str | None = None) -> Message:
    """The message as a fact: with an id and a time, and its run if it is part of one. Stamps it has are kept."""
    return msgspec.structs.replace(
        message,
        id=message.id or id,
        timestamp=message.timestamp or timestamp,
        run_id=message.run_id or run_id,
    )


def user(*content: str | ContentPart, meta: Meta | None = None) -> Message:
    """A user message: ``user("What is this?", Image("image/png", data=...))``."""
    return Message("user", tuple(Text(piece) if isinstance(piece, str) else piece for piece in content), meta=meta)


def system(text: str) -> Message:
    """A system message."""
    return Message("system", (Text(text),))


def assistant(*content: str | Text | Thinking | ToolCall, meta: Meta | None = None) -> Message:
    """An assistant message, for histories written by hand."""
    return Message("assistant", tuple(Text(piece) if isinstance(piece, str) else piece for piece in content), meta=meta)


def tool_message(*results: ToolResult) -> Message:
    """A tool message: one or several results."""
    return Message("tool", results)
