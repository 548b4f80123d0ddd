"""What a run tells those who watch it: frozen values, in the order in which things became true.

An event about a fact comes after the fact is durable. Deltas are the exception: they are a model's words while it
speaks, and nobody may act on them before the message they make has been appended.
"""

from typing import Any, Literal

from msgspec import Struct

from bartack.formats.losses import LossReport
from bartack.nouns.deltas import Failed, MessageDelta, Usage
from bartack.nouns.entries import ApprovalRequired, Entry
from bartack.nouns.errors import AgentError, ErrorCode
from bartack.nouns.messages import Message, ModelRef
from bartack.nouns.tables import AgentStatus
from bartack.nouns.tool_states import ToolState

__all__ = [
    "ApprovalRequested",
    "Compacted",
    "DeltaReceived",
    "EntryAppended",
    "Event",
    "ModelSwitched",
    "Retrying",
    "RunFinished",
    "RunPaused",
    "RunResult",
    "Snapshot",
    "StatusChanged",
    "ToolChanged",
]


class RunResult(Struct, frozen=True, kw_only=True):
    """How a run ended. `status` is completed, failed, aborted, or awaiting_human for a run that paused."""

    status: AgentStatus
    session_id: str
    run_id: str
    message: Message | None = None  # the last answer, also of a run that did not complete
    messages: tuple[Message, ...] = ()  # what this run added, the prompt included
    usage: Usage | None = None  # of every model call, failed ones included
    cost_usd: float | None = None  # None: nobody knows
    reason: str | None = None  # why it ended as it did, in a word
    error: Failed | None = None
    undelivered: tuple[Message, ...] = ()  # what was said to the run and came too late
    approvals: tuple[ApprovalRequired, ...] = ()  # what a paused run waits for
    value: Any = None  # the output of a run that completed

    @property
    def output(self) -> Any:
        """The answer: text, or a value of the agent's output type; `AgentError` if the run did not complete."""
        if self.status is not AgentStatus.COMPLETED:
            code = ErrorCode.ABORTED if self.error is None else self.error.error_code
            why = (self.error.message if self.error is not None else self.reason) or "no reason given"
            if self.status is AgentStatus.AWAITING_HUMAN:
                why = "approve or deny its calls, and then resume it"
            raise AgentError(f"the run has no output: it is {self.status} ({why})", code=code)
        return self.value


class StatusChanged(Struct, frozen=True):
    """The run is in another state."""

    status: AgentStatus
    previous: AgentStatus


class DeltaReceived(Struct, frozen=True):
    """The model said something."""

    delta: MessageDelta


class Snapshot(Struct, frozen=True):
    """The answer so far, as one message."""

    message: Message


class ToolChanged(Struct, frozen=True):
    """A tool call is in another state."""

    tool_call_id: str
    tool_name: str
    state: ToolState


class ApprovalRequested(Struct, frozen=True):
    """A human is asked whether a call may run."""

    request: ApprovalRequired


class EntryAppended(Struct, frozen=True):
    """A fact is durable."""

    entry: Entry


class Retrying(Struct, frozen=True, kw_only=True):
    """A model call failed and is made again, after a pause."""

    error: Failed
    model_call_index: int
    attempt: int  # of the attempt to come
    delay_ms: int


class ModelSwitched(Struct, frozen=True, kw_only=True):
    """Another model answers from here on; `report` says what it is not told of the history."""

    model: ModelRef
    previous: ModelRef | None
    report: LossReport
    reason: Literal["chosen", "fallback"]


class Compacted(Struct, frozen=True):
    """Older turns are told to the model as a summary from here on."""

    entry: Entry
    tokens_before: int | None
    tokens_after: int | None


class RunPaused(Struct, frozen=True):
    """The run waits for humans and holds nothing: it goes on with `Agent.resume` after they decided."""

    approvals: tuple[ApprovalRequired, ...]


class RunFinished(Struct, frozen=True):
    """The last event of every run."""

    result: RunResult


Event = (
    StatusChanged
    | DeltaReceived
    | Snapshot
    | ToolChanged
    | ApprovalRequested
    | EntryAppended
    | Retrying
    | ModelSwitched
    | Compacted
    | RunPaused
    | RunFinished
)
