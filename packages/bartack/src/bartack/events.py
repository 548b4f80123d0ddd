"""The events of a run, in the order in which things happened.

`Event`s reach the process that executes the run, through `Agent.stream`. `LiveEvent`s reach any process that follows
the session, through `SessionStore.follow_live`; each has a position from which another reader can continue.

An event about a fact is published after the fact is durable. Deltas are the exception: they show an answer as it
arrives. Do not act on them before their message has been appended.
"""

from typing import TYPE_CHECKING, Any, Generic, Literal, cast

from msgspec import Struct

from bartack.formats.losses import LossReport
from bartack.nouns.deltas import Failed, MessageDelta, TextDelta, ThinkingDelta, Usage
from bartack.nouns.entries import ApprovalRequired, Entry, ToolStarted
from bartack.nouns.errors import AgentError, ErrorCode
from bartack.nouns.messages import Message, ModelRef
from bartack.nouns.noun import Noun
from bartack.nouns.tables import AgentStatus
from bartack.nouns.tool_states import ToolState
from bartack.session.run_state import RunTotals

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # its TypeVar has a default; no release before Python 3.13 does

    Output = TypeVar("Output", default=Any)
else:
    from typing import TypeVar

    Output = TypeVar("Output")

__all__ = [
    "ApprovalRequested",
    "Compacted",
    "DeltaReceived",
    "EntryAppended",
    "Event",
    "LiveDeltas",
    "LiveEntry",
    "LiveEvent",
    "LiveReset",
    "ModelSwitched",
    "Retrying",
    "RunFinished",
    "RunPaused",
    "RunResult",
    "Snapshot",
    "StatusChanged",
    "SubagentEvent",
    "ToolChanged",
]


REFUSED_BY = "refused_by:"  # how the reason of a run that a hook has stopped begins


class RunResult(Struct, Generic[Output], frozen=True, kw_only=True):
    """How a run ended. `status` is completed, failed, aborted, or awaiting_human for a run that paused."""

    status: AgentStatus
    session_id: str
    run_id: str
    agent: str | None = None  # the name of the agent that answered
    message: Message | None = None  # the last answer, or what had arrived of it if the run failed
    messages: tuple[Message, ...] = ()  # added by this run, including the prompt
    # The sum over all model calls, including failed ones and those of sub-agents.
    usage: Usage | None = None
    cost_usd: float | None = None  # None: unknown
    iterations: int = 0  # answers of models, including those of sub-agents
    tool_rounds: int = 0  # answers with tool calls, likewise
    reason: str | None = None  # why it ended, as a keyword; None for an ordinary answer
    error: Failed | None = None
    undelivered: tuple[Message, ...] = ()  # steered or queued too late
    approvals: tuple[ApprovalRequired, ...] = ()  # the decisions that a paused run needs
    deferred: tuple[ToolStarted, ...] = ()  # the calls whose results a paused run needs from outside
    value: Output | None = None  # the output of a completed run

    @property
    def totals(self) -> RunTotals:
        """What the run has used, with its sub-agents."""
        return RunTotals(self.usage, self.cost_usd, self.iterations, self.tool_rounds)

    @property
    def refused_by(self) -> str | None:
        """The name of the hook that stopped the run, if one did; `error` has its reason."""
        is_refused = self.reason is not None and self.reason.startswith(REFUSED_BY)
        return self.reason.removeprefix(REFUSED_BY) if is_refused and self.reason is not None else None

    @property
    def output(self) -> Output:
        """The answer: text, or a value of the agent's output type; `AgentError` if there is none."""
        if self.status is AgentStatus.COMPLETED and self.error is None:
            return cast(Output, self.value)
        if self.status is AgentStatus.AWAITING_HUMAN:
            steps = [
                *(["approve or deny its pending calls"] if self.approvals else []),
                *(["post the results of its deferred calls"] if self.deferred else []),
            ]
            todo = f"{' and '.join(steps)}, then resume it" if steps else "resume it"
            raise AgentError(f"The run has no output yet: it is paused; {todo}.", code=ErrorCode.PAUSED)
        why = (self.error.message if self.error is not None else self.reason) or "no reason given"
        code = ErrorCode.ABORTED if self.error is None else self.error.error_code
        raise AgentError(f"The run has no output (status {self.status}): {why}", code=code)


class StatusChanged(Struct, frozen=True):
    """The status of the run changed."""

    status: AgentStatus
    previous: AgentStatus


class DeltaReceived(Struct, frozen=True):
    """A piece of an answer arrived. After a failure, the answer to the same call arrives again from its beginning."""

    delta: MessageDelta
    model_call_index: int = 0  # the number of the call in its run
    attempt: int = 1

    @property
    def text(self) -> str:
        """The next piece of the answer's text; empty if something else arrived."""
        delta = self.delta.delta
        return delta.text_delta if isinstance(delta, TextDelta) else ""

    @property
    def thinking(self) -> str:
        """The next piece of the model's reasoning; empty if something else arrived."""
        delta = self.delta.delta
        return delta.text_delta if isinstance(delta, ThinkingDelta) else ""


class Snapshot(Struct, frozen=True):
    """The answer so far, as one message; with an output type, also the output so far, as plain JSON."""

    message: Message
    output: Any = None


class ToolChanged(Struct, frozen=True):
    """The state of a tool call changed."""

    tool_call_id: str
    tool_name: str
    state: ToolState


class ApprovalRequested(Struct, frozen=True):
    """A tool call needs approval."""

    request: ApprovalRequired


class EntryAppended(Struct, frozen=True):
    """A fact was stored."""

    entry: Entry


class Retrying(Struct, frozen=True, kw_only=True):
    """A model call failed and will be retried: after a delay, or immediately with a shorter context or another model.

    The deltas of that call so far are void and should no longer be shown.
    """

    error: Failed
    model_call_index: int | None  # None: it writes a summary, and has no deltas
    attempt: int  # number of the next attempt
    delay_ms: int


class ModelSwitched(Struct, frozen=True, kw_only=True):
    """The run uses another model from now on; `report` lists the parts of the history that it does not receive."""

    model: ModelRef
    previous: ModelRef | None
    report: LossReport
    reason: Literal["chosen", "fallback"]


class Compacted(Struct, frozen=True):
    """Older turns are replaced by a summary from now on."""

    entry: Entry
    tokens_before: int | None
    tokens_after: int | None


class SubagentEvent(Struct, frozen=True):
    """Something happened in the run of another agent, which this run called as a tool."""

    tool_call_id: str
    agent: str  # its name, or that of the tool
    event: "Event"  # may be a `SubagentEvent` in turn


class RunPaused(Struct, frozen=True):
    """The run has paused until its calls are approved or denied and the results of deferred calls are posted; continue
    it with `Agent.resume`.
    """

    approvals: tuple[ApprovalRequired, ...]
    deferred: tuple[ToolStarted, ...] = ()


class RunFinished(Struct, Generic[Output], frozen=True):
    """The last event of every run."""

    result: RunResult[Output]


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
    | SubagentEvent
    | RunPaused
    | RunFinished[Output]
)


class LiveEntry(Noun, frozen=True):
    """An entry was stored. An answer is final now, and replaces the deltas that led to it."""

    position: str
    entry: Entry


class LiveDeltas(Noun, frozen=True):
    """The next deltas of the answer in progress."""

    position: str
    deltas: tuple[MessageDelta, ...]


class LiveReset(Noun, frozen=True):
    """The answer in progress so far. It replaces all deltas received for it."""

    position: str
    snapshot: Message


LiveEvent = LiveEntry | LiveDeltas | LiveReset
