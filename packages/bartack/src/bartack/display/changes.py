"""Changes to the display of a run, which every window draws.

`RunReader` derives them from events. The terminal prints them, the page turns them into HTML, and each protocol writes
them in its own format. A *step* is one model call with the tools that its answer calls, and an *attempt* is one request
for that answer. A key names a text or a call within one stream; that of a call is its id, unless the model has used
this id before.
"""

from typing import Any, Literal

from msgspec import Struct

from bartack.nouns.deltas import Failed, Usage
from bartack.nouns.entries import ApprovalDecided, ApprovalRequired
from bartack.nouns.messages import Message
from bartack.nouns.parts import ToolResult

__all__ = [
    "AttemptFailed",
    "CallAsked",
    "CallDecided",
    "CallDropped",
    "CallEnded",
    "CallGrew",
    "CallProgressed",
    "CallReady",
    "CallRunning",
    "CallStarted",
    "Change",
    "MessageAdded",
    "Noted",
    "RunEnds",
    "RunPauses",
    "StepFinished",
    "StepStarted",
    "StepVoided",
    "Subagent",
    "SubagentChanged",
    "TextEnded",
    "TextGrew",
    "TextStarted",
]

TextKind = Literal["text", "thinking"]


class StepStarted(Struct, frozen=True):
    """An answer begins."""

    number: int  # counts the steps of the run, from 1


class AttemptFailed(Struct, frozen=True):
    """The model call failed. What is shown of its answer is voided if another attempt follows, and stays otherwise."""

    error: Failed


class StepVoided(Struct, frozen=True):
    """What was shown since the step started does not count: the model call is made again, or the answer was changed."""

    error: Failed | None  # why the call is made again


class StepFinished(Struct, frozen=True):
    """The answer is stored. Its tools may still have to run."""

    entry_id: str
    message: Message
    keys: dict[str, str]  # its calls: id -> key


class TextStarted(Struct, frozen=True):
    """A text or thinking part begins."""

    key: str
    kind: TextKind


class TextGrew(Struct, frozen=True, gc=False):
    """More of the part that began last."""

    key: str
    kind: TextKind
    text: str


class TextEnded(Struct, frozen=True):
    """The part is complete."""

    key: str
    kind: TextKind


class _CallChange(Struct, frozen=True):
    key: str
    tool_name: str


class Subagent(Struct, frozen=True):
    """The agent that a call runs."""

    name: str
    session_id: str


class CallStarted(_CallChange, frozen=True):
    """A tool call begins."""

    by_provider: bool = False
    is_nested: bool = False  # a sub-agent made it; it is shown because it awaits a decision or a result


class CallGrew(_CallChange, frozen=True, gc=False):
    """More of the argument text of a call."""

    text: str


class CallReady(_CallChange, frozen=True, kw_only=True):
    """The arguments of a call are complete, or were changed before it ran."""

    arguments: dict[str, Any]
    by_provider: bool = False
    raw_text: str | None = None  # the arguments as they were written, if they are invalid; such a call never runs
    fault: str | None = None  # what is wrong with them
    is_whole: bool = True  # the pieces of `CallGrew` add up to the arguments


class CallDropped(_CallChange, frozen=True):
    """The call is not part of the stored answer, and never runs."""

    reason: str


class CallAsked(_CallChange, frozen=True):
    """The call needs approval."""

    request: ApprovalRequired


class CallDecided(_CallChange, frozen=True):
    """A call that needed approval was decided about."""

    decision: ApprovalDecided
    request: ApprovalRequired | None = None
    """The question, unless the call was never asked about."""


class CallRunning(_CallChange, frozen=True):
    """The tool runs."""

    arguments: dict[str, Any]
    title: str | None = None
    subagent: Subagent | None = None


class CallProgressed(_CallChange, frozen=True):
    """The tool reported progress; or the sub-agent that it runs took a step."""

    content: str
    title: str | None = None
    subagent: Subagent | None = None
    metadata: dict[str, Any] | None = None
    by_subagent: bool = False  # `content` describes a step of the sub-agent


class CallEnded(_CallChange, frozen=True, kw_only=True):
    """The call has a result."""

    result: ToolResult
    arguments: dict[str, Any]
    seconds: float | None = None  # how long it took, and never negative
    was_asked: bool = False  # it had needed approval
    by_provider: bool = False
    is_nested: bool = False  # a sub-agent made it


class SubagentChanged(_CallChange, frozen=True):
    """The display of the sub-agent that the call runs changed."""

    agent: str
    change: "Change"


class MessageAdded(Struct, frozen=True):
    """A user message joined the run: after its first answer, or because it was queued."""

    entry_id: str
    message: Message


class Noted(Struct, frozen=True):
    """A fact of the application was added to the session."""

    entry_id: str
    name: str
    data: dict[str, Any]


class RunPauses(Struct, frozen=True):
    """The run waits for approvals, and for the results of deferred calls. It continues in another stream."""

    approvals: tuple[ApprovalRequired, ...] = ()
    deferred: tuple[str, ...] = ()  # the keys of the calls


class RunEnds(Struct, frozen=True, kw_only=True):
    """The run ended."""

    status: Literal["completed", "failed", "aborted"]
    reason: str | None = None
    error: Failed | None = None
    usage: Usage | None = None
    cost_usd: float | None = None


Change = (
    StepStarted
    | AttemptFailed
    | StepVoided
    | StepFinished
    | TextStarted
    | TextGrew
    | TextEnded
    | CallStarted
    | CallGrew
    | CallReady
    | CallDropped
    | CallAsked
    | CallDecided
    | CallRunning
    | CallProgressed
    | CallEnded
    | SubagentChanged
    | MessageAdded
    | Noted
    | RunPauses
    | RunEnds
)
