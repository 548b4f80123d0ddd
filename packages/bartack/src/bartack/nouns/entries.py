"""`Entry`: one fact in a session. A session is an append-only list of facts.

A fact is something that became true; the entry adds its position: session, number, parent, run and time. `parent_id`
makes a session a tree: an entry whose parent is not the previous entry begins a branch. `seq` orders entries;
timestamps do not.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, ClassVar, Literal

from bartack.nouns.config import LoopConfig, ModelConfig
from bartack.nouns.deltas import Failed, MessageDelta, Usage
from bartack.nouns.errors import NotFound, PartValidationError
from bartack.nouns.messages import FileDiff, Message, ModelRef
from bartack.nouns.noun import Noun
from bartack.nouns.parts import Part, ToolResult

__all__ = [
    "AbortRequested",
    "ApprovalDecided",
    "ApprovalRequired",
    "BranchSummary",
    "CompactionSummary",
    "Custom",
    "Entry",
    "Fact",
    "MessageDeltaBatch",
    "MessageQueued",
    "ModelChange",
    "Redaction",
    "ResultPosted",
    "RunEnded",
    "RunStarted",
    "RuntimeInit",
    "Session",
    "SessionHeader",
    "StreamFailed",
    "SystemPromptOverride",
    "ThinkingLevelChange",
    "ToolProgress",
    "ToolStarted",
    "branch",
    "heads",
]


class SessionHeader(Noun, frozen=True, kw_only=True):
    """The first fact of every session."""

    kind: ClassVar[Literal["session_header"]] = "session_header"
    always_written: ClassVar[tuple[str, ...]] = ("version",)  # a new default must not change what is stored
    version: int = 1  # the version of the ledger JSON
    title: str | None = None
    origin: str | None = None  # the program that an imported transcript comes from
    metadata: dict[str, Any] | None = None


class RunStarted(Noun, frozen=True, kw_only=True):
    """A run started, with this agent, model and tools."""

    kind: ClassVar[Literal["run_started"]] = "run_started"
    agent: str | None = None
    handed_off: bool = False  # it took the conversation over from the agent that the run was started with
    model: ModelRef | None = None
    config: ModelConfig | None = None
    tools: tuple[str, ...] = ()
    trace_id: str | None = None  # the trace that the run belongs to
    span_id: str | None = None  # the run's span in that trace, if the run is traced
    limits: LoopConfig | None = None  # they still apply when the run is resumed; None: the default ones
    metadata: dict[str, Any] | None = None  # the caller's own


class ToolStarted(Noun, frozen=True, kw_only=True):
    """A tool is about to be executed with these arguments. Stored before it starts."""

    kind: ClassVar[Literal["tool_started"]] = "tool_started"
    tool_call_id: str
    tool_name: str
    arguments: dict[str, Any]
    title: str | None = None
    idempotent: bool = False  # it may be executed again if its outcome is unknown
    deferred: bool = False  # its result may be posted from outside, by a `result_posted`
    attempt: int = 1


class ToolProgress(Noun, frozen=True, kw_only=True):
    """A running tool reported progress."""

    kind: ClassVar[Literal["tool_progress"]] = "tool_progress"
    tool_call_id: str
    content: str
    title: str | None = None
    metadata: dict[str, Any] | None = None


class ApprovalRequired(Noun, frozen=True, kw_only=True):
    """A tool call needs a human's approval."""

    kind: ClassVar[Literal["approval_required"]] = "approval_required"
    tool_call_id: str
    tool_name: str
    arguments: dict[str, Any]
    reason: str | None = None
    expires_at: datetime | None = None
    parameters: dict[str, Any] | None = None  # the tool's JSON Schema, for checking edited arguments
    definition_digest: str | None = None  # set if the definition comes from elsewhere and may change
    preview: dict[str, Any] | None = None  # what the call would do, as its tool describes it


class ApprovalDecided(Noun, frozen=True, kw_only=True):
    """The decision on a tool call that needs approval."""

    kind: ClassVar[Literal["approval_decided"]] = "approval_decided"
    tool_call_id: str
    decision: Literal["approve", "deny", "modify_args", "pause", "resume", "abort", "expire"]
    original_arguments: dict[str, Any] | None = None
    arguments: dict[str, Any] | None = None  # the approved ones; modify_args changes them
    reason: str | None = None
    decided_by: str | None = None
    definition_digest: str | None = None  # copied from the question: the decision counts for this definition only
    question_digest: str | None = None  # identifies the question as a whole: the decision counts for this one only


class StreamFailed(Noun, frozen=True, kw_only=True):
    """A model call failed. There is no message; this keeps what was received (D-3.5)."""

    kind: ClassVar[Literal["stream_failed"]] = "stream_failed"
    error: Failed
    parts: tuple[Part, ...] = ()  # received before the error; never executed
    usage: Usage | None = None  # billed before the error
    model: ModelRef | None = None
    response_id: str | None = None
    duration_ms: int | None = None  # from the request to the error; None if nothing was sent
    model_call_index: int | None = None
    attempt: int | None = None


class ModelChange(Noun, frozen=True, kw_only=True):
    """The session uses another model from here on."""

    kind: ClassVar[Literal["model_change"]] = "model_change"
    model: ModelRef
    previous: ModelRef | None = None


class ThinkingLevelChange(Noun, frozen=True, kw_only=True):
    """The thinking level changes from here on."""

    kind: ClassVar[Literal["thinking_level_change"]] = "thinking_level_change"
    level: str


class RuntimeInit(Noun, frozen=True, kw_only=True):
    """What a runtime reported about itself when it was initialised."""

    kind: ClassVar[Literal["runtime_init"]] = "runtime_init"
    runtime: str
    data: dict[str, Any]


class SystemPromptOverride(Noun, frozen=True, kw_only=True):
    """Replaces the agent's system prompt from here on; None restores it."""

    kind: ClassVar[Literal["system_prompt_override"]] = "system_prompt_override"
    text: str | None


class CompactionSummary(Noun, frozen=True, kw_only=True):
    """A summary that replaces everything before `first_kept_entry_id` in the context."""

    kind: ClassVar[Literal["compaction_summary"]] = "compaction_summary"
    summary: str
    first_kept_entry_id: str
    model: ModelRef | None = None
    usage: Usage | None = None
    tokens_before: int | None = None
    tokens_after: int | None = None
    diffs: tuple[FileDiff, ...] | None = None  # files changed since the first step that the summary covers


class BranchSummary(Noun, frozen=True, kw_only=True):
    """A summary of an abandoned branch, for the branch that continues."""

    kind: ClassVar[Literal["branch_summary"]] = "branch_summary"
    summary: str
    from_entry_id: str
    model: ModelRef | None = None
    usage: Usage | None = None
    tokens_before: int | None = None
    tokens_after: int | None = None


class Redaction(Noun, frozen=True, kw_only=True):
    """The content of this entry must no longer be shown or sent."""

    kind: ClassVar[Literal["redaction"]] = "redaction"
    entry_id: str
    reason: str | None = None


class MessageDeltaBatch(Noun, frozen=True, kw_only=True):
    """Deltas of an answer that is arriving. They are kept in the journal, not in the log (bartack.store.live)."""

    kind: ClassVar[Literal["message_delta_batch"]] = "message_delta_batch"
    deltas: tuple[MessageDelta, ...]
    generation: int = 0  # the seq of the session's last entry when the stream began
    number: int = 0  # the position of this batch in its generation


class MessageQueued(Noun, frozen=True, kw_only=True):
    """A message for the run, or for the next one. The message that delivers it has its entry id as `request_id`."""

    kind: ClassVar[Literal["message_queued"]] = "message_queued"
    message: Message
    steer: bool = False  # deliver it before the next model call, not when the run would end
    requested_by: str | None = None
    metadata: dict[str, Any] | None = None  # the caller's own


class ResultPosted(Noun, frozen=True, kw_only=True):
    """The result of a deferred call, from outside the run. The message that delivers it has its entry id as
    `request_id`."""

    kind: ClassVar[Literal["result_posted"]] = "result_posted"
    tool_call_id: str
    result: ToolResult
    posted_by: str | None = None


class AbortRequested(Noun, frozen=True, kw_only=True):
    """The open run should end. A run that is not live ends when it is resumed."""

    kind: ClassVar[Literal["abort_requested"]] = "abort_requested"
    reason: str | None = None
    requested_by: str | None = None


class RunEnded(Noun, frozen=True, kw_only=True):
    """A run ended."""

    kind: ClassVar[Literal["run_ended"]] = "run_ended"
    status: Literal["completed", "failed", "aborted"]
    reason: str | None = None
    error: Failed | None = None
    usage: Usage | None = None
    cost_usd: float | int | None = None


class Custom(Noun, frozen=True, kw_only=True):
    """An application's own fact: stored and shown, never interpreted."""

    kind: ClassVar[Literal["custom"]] = "custom"
    name: str
    data: dict[str, Any]


Fact = (
    SessionHeader
    | RunStarted
    | Message
    | ToolStarted
    | ToolProgress
    | ApprovalRequired
    | ApprovalDecided
    | StreamFailed
    | ModelChange
    | ThinkingLevelChange
    | RuntimeInit
    | SystemPromptOverride
    | CompactionSummary
    | BranchSummary
    | Redaction
    | MessageDeltaBatch
    | MessageQueued
    | ResultPosted
    | AbortRequested
    | RunEnded
    | Custom
)


class Entry(Noun, frozen=True, kw_only=True, gc=False):
    """A fact and its position in a session."""

    spliced: ClassVar[str] = "fact"
    id: str
    session_id: str
    seq: int
    timestamp: datetime
    fact: Fact
    parent_id: str | None = None
    run_id: str | None = None

    def __post_init__(self) -> None:
        if self.seq < 1:
            raise PartValidationError(f"seq must be at least 1, got {self.seq}", path="$.seq", rule="D-1.2")
        if isinstance(self.fact, Message) and (self.fact.id is None or self.fact.timestamp is None):
            raise PartValidationError(
                "a stored message needs an id and a timestamp", path="$.payload", rule="002-metadata.1"
            )


class Session(Noun, frozen=True, kw_only=True):
    """A session as 004 describes it: the state that its entries add up to."""

    session_id: str
    run_id: str | None = None  # the active run, if any
    messages: tuple[Message, ...] = ()
    entries: tuple[Entry, ...] = ()
    metadata: dict[str, Any] | None = None

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> "Session":
        """The session that these entries form: one branch, in order, with at least one entry."""
        run_id: str | None = None
        metadata: dict[str, Any] | None = None
        for entry in entries:
            if isinstance(entry.fact, SessionHeader):
                metadata = entry.fact.metadata
            elif isinstance(entry.fact, RunStarted):
                run_id = entry.run_id
            elif isinstance(entry.fact, RunEnded):
                run_id = None
        return cls(
            session_id=entries[0].session_id,
            run_id=run_id,
            messages=tuple(entry.fact for entry in entries if isinstance(entry.fact, Message)),
            entries=tuple(entries),
            metadata=metadata,
        )


def heads(entries: Iterable[Entry]) -> tuple[str, ...]:
    """The ids of the entries without children, one for each branch, oldest first."""
    entry_ids: dict[str, None] = {}
    followed = set()
    for entry in entries:
        entry_ids[entry.id] = None
        followed.add(entry.parent_id)
    return tuple(id for id in entry_ids if id not in followed)


def branch(entries: Iterable[Entry], head: str) -> tuple[Entry, ...]:
    """The entries from the root to `head`, in order; raises `NotFound` if one of them is missing."""
    by_id = {entry.id: entry for entry in entries}
    path: list[Entry] = []
    entry_id: str | None = head
    while entry_id is not None:
        entry = by_id.pop(entry_id, None)  # popped, so that a cycle ends too
        if entry is None:
            raise NotFound(f"entry {entry_id!r} is not in this session, or its parents form a cycle")
        path.append(entry)
        entry_id = entry.parent_id
    return tuple(reversed(path))
