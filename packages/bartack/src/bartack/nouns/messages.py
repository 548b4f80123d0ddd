"""`Message`: a role, ordered parts, and metadata (000 §3.1, 002, 003 §3.8).

A message written by hand (``user("hi")``) has no id, run or time. `stamped` adds them when it becomes a fact. The
constructor checks which parts a role may contain, so a message that violates 000 §3.2 cannot exist.
"""

from datetime import datetime
from typing import ClassVar, Literal, get_args

import msgspec

from bartack.nouns.deltas import FinishReason, Usage
from bartack.nouns.errors import PartValidationError
from bartack.nouns.noun import Noun
from bartack.nouns.parts import ContentPart, FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult

__all__ = [
    "ROLE_PARTS",
    "Approval",
    "FileDiff",
    "Koding",
    "Message",
    "Meta",
    "ModelRef",
    "Role",
    "Step",
    "Summary",
    "Trace",
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

_WITH_CALL_ID = (ToolCall, ToolResult)
# For most messages, their classes alone show that the parts are allowed.
_PLAIN_PARTS = {role: frozenset(allowed) - {*_WITH_CALL_ID} for role, allowed in ROLE_PARTS.items()}

_ROLE_RULES: dict[Role, str] = {
    "system": "000-3.2.9",
    "user": "000-3.2.10",
    "assistant": "000-3.2.11",
    "tool": "000-3.2.12",
}


class Koding(Noun, frozen=True):
    """Marks input sent in Koding mode (002), with the context that the mode adds; the model receives it as text."""

    context: str | None = None


class FileDiff(Noun, frozen=True, kw_only=True):
    """A file that was changed, and by how many lines; None if it is not text (003 §3.8)."""

    file: str
    additions: int | None = None
    deletions: int | None = None


class Summary(Noun, frozen=True, kw_only=True):
    """A summary of a user message, created when the context is compacted (003 §3.8, BR-11)."""

    title: str | None = None
    body: str | None = None
    diffs: tuple[FileDiff, ...] | None = None


class Workspace(Noun, frozen=True):
    """The directories that an assistant worked in (003 §3.8)."""

    cwd: str
    root: str


class Step(Noun, frozen=True, kw_only=True):
    """Ids and workspace snapshots of the parts that begin and end a step (003 §3.6)."""

    start_id: str | None = None
    start_snapshot: str | None = None
    finish_id: str | None = None
    finish_snapshot: str | None = None


class ModelRef(Noun, frozen=True, gc=False):
    """A model, identified by its provider and its name there."""

    provider: str
    model: str


class Trace(Noun, frozen=True, kw_only=True):
    """The trace that a message belongs to (000 §3.2)."""

    trace_id: str | None = None


class Approval(Noun, frozen=True, kw_only=True):
    """A decision about the call that a result answers (000 §3.2). The whole of it is the fact ``approval_decided``."""

    tool_call_id: str
    decision: str
    decided_by: str | None = None
    reason: str | None = None


class Meta(Noun, frozen=True, kw_only=True, gc=False):
    """Everything about a message that is not content. All fields are optional."""

    model: ModelRef | None = None
    response_id: str | None = None  # 002: the provider's id, for correlating turns
    usage: Usage | None = None
    cost_usd: float | int | None = None  # None means unknown, not free
    duration_ms: int | None = None  # from the request to the end of the answer, the wait for its first byte included
    completed_at: datetime | None = None  # 003 BR-14
    finish_reason: FinishReason | None = None
    raw_finish_reason: str | None = None
    bad_args: dict[str, str] | None = None  # tool call id -> why its arguments could not be parsed (000 §5)
    open_calls: tuple[str, ...] | None = None  # calls whose arguments are incomplete; only in a snapshot
    aborted: bool = False  # a partial answer, kept when the run was aborted
    is_api_error_message: bool = False  # 002: represents a failed model call
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
    request_id: str | None = None  # the entry id of the `message_queued` or `result_posted` that this delivers
    trace: Trace | None = None
    approvals: tuple[Approval, ...] | None = None


class Message(Noun, frozen=True, gc=False):
    """One turn of a conversation. The order of its parts never changes. It is also the fact ``message``."""

    kind: ClassVar[Literal["message"]] = "message"
    role: Role
    parts: tuple[Part, ...]
    id: str | None = None
    run_id: str | None = None
    timestamp: datetime | None = None
    meta: Meta | None = None

    def __post_init__(self) -> None:
        allowed = ROLE_PARTS.get(self.role)
        if allowed is None:
            roles = ", ".join(get_args(Role))
            raise PartValidationError(
                f"role must be one of {roles}, got {self.role!r}", path="$.role", rule="000-3.1.2"
            )
        if not isinstance(self.parts, tuple):
            raise PartValidationError(
                f"parts must be a tuple, got {type(self.parts).__name__}", path="$.parts", rule="000-3.1.1"
            )
        plain = _PLAIN_PARTS[self.role]
        call_ids = set()
        for index, part in enumerate(self.parts):
            if type(part) in plain:
                continue
            if not isinstance(part, allowed):
                kind = getattr(part, "kind", type(part).__name__)
                may = ", ".join(part_type.kind for part_type in allowed)
                raise PartValidationError(
                    f"{kind} is not allowed in a message of the role {self.role!r} (allowed: {may})",
                    path=f"$.parts[{index}]",
                    rule=_ROLE_RULES[self.role],
                )
            if isinstance(part, _WITH_CALL_ID):
                if part.tool_call_id in call_ids:
                    raise PartValidationError(
                        f"duplicate tool call id {part.tool_call_id!r} in one message",
                        path=f"$.parts[{index}].payload.toolCallId",
                        rule="000-6.1",
                    )
                call_ids.add(part.tool_call_id)

    @property
    def text(self) -> str:
        """The text of all text parts, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def thinking(self) -> str:
        """The text of all thinking parts, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, Thinking))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls in order, including those executed by the provider."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        """The tool results in order."""
        return tuple(part for part in self.parts if isinstance(part, ToolResult))


def stamped(message: Message, *, id: str, timestamp: datetime, run_id: str | None = None) -> Message:
    """Return the message with an id, a time and a run where it has none yet."""
    return msgspec.structs.replace(
        message,
        id=message.id or id,
        timestamp=message.timestamp or timestamp,
        run_id=message.run_id or run_id,
    )


def user(*content: str | ContentPart, meta: Meta | None = None) -> Message:
    """Create a user message: ``user("What is this?", Image("image/png", data=...))``."""
    return Message("user", tuple(Text(piece) if isinstance(piece, str) else piece for piece in content), meta=meta)


def system(text: str) -> Message:
    """Create a system message."""
    return Message("system", (Text(text),))


def assistant(*content: str | Text | Thinking | ToolCall, meta: Meta | None = None) -> Message:
    """Create an assistant message, for histories written by hand."""
    return Message("assistant", tuple(Text(piece) if isinstance(piece, str) else piece for piece in content), meta=meta)


def tool_message(*results: ToolResult) -> Message:
    """Create a tool message from one or more results."""
    return Message("tool", results)
