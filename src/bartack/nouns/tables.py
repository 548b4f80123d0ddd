"""Every state table of Bartack, and `advance`, the only code that reads them.

A table maps a state to its edges, and an edge is an event's name and the state it leads to. Every state has a
row, the dead ends too: ``{}`` says that nothing more may come. An edge that leads back to its own state makes a
repeat harmless (003 §7.1). What a table cannot say (that `seq` rises, that no call is open at the end) stands in
the machine that uses it, next to the rule it keeps. The diagrams in docs/architecture.md are drawn from here.

Four tables, because there are four lives to keep apart: a stream being assembled, one tool call inside that
stream, one tool call being executed, and an agent working on a run.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from bartack.nouns.errors import InvalidStateTransition

__all__ = [
    "AGENT",
    "ASSEMBLY",
    "CALL",
    "TOOL",
    "AgentStatus",
    "AssemblyStatus",
    "CallStatus",
    "Table",
    "ToolStatus",
    "advance",
]

S = TypeVar("S", bound=StrEnum)
Table = Mapping[S, Mapping[str, S]]


class _State(StrEnum):
    # Enum hashes by name in Python code; a table is read for every delta, so use the text's own hash.
    __hash__ = str.__hash__


class AssemblyStatus(_State):
    """One stream (001 §5.2)."""

    IDLE = "idle"
    STARTED = "started"
    DONE = "done"
    ERROR = "error"


class CallStatus(_State):
    """One tool call inside one stream (000 §5, 001 §5.2)."""

    ABSENT = "absent"
    OPEN = "open"
    CLOSED = "closed"


class ToolStatus(_State):
    """One tool call's execution (003 §5.2)."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    ERROR = "error"


class AgentStatus(_State):
    """An agent (004)."""

    IDLE = "idle"
    PREPARING = "preparing"
    MODEL_RUNNING = "model_running"
    TOOL_RUNNING = "tool_running"
    AWAITING_HUMAN = "awaiting_human"
    COMPLETED = "completed"
    FAILED = "failed"
    ABORTED = "aborted"


# The events are the kinds of the deltas.
ASSEMBLY: Table[AssemblyStatus] = {
    AssemblyStatus.IDLE: {"start": AssemblyStatus.STARTED},
    AssemblyStatus.STARTED: {
        "text": AssemblyStatus.STARTED,
        "thinking": AssemblyStatus.STARTED,
        "tool_call_start": AssemblyStatus.STARTED,
        "tool_call_args": AssemblyStatus.STARTED,
        "tool_call_end": AssemblyStatus.STARTED,
        "usage": AssemblyStatus.STARTED,
        "done": AssemblyStatus.DONE,
        "error": AssemblyStatus.ERROR,
    },
    AssemblyStatus.DONE: {},
    AssemblyStatus.ERROR: {},
}

CALL: Table[CallStatus] = {
    CallStatus.ABSENT: {"tool_call_start": CallStatus.OPEN},
    CallStatus.OPEN: {"tool_call_args": CallStatus.OPEN, "tool_call_end": CallStatus.CLOSED},
    CallStatus.CLOSED: {},
}

# pending -> error is for calls that never ran: denied by a human, refused before the start, or aborted (D-4.5).
TOOL: Table[ToolStatus] = {
    ToolStatus.PENDING: {
        "start": ToolStatus.RUNNING,
        "reject": ToolStatus.ERROR,
        "abort": ToolStatus.ERROR,
    },
    ToolStatus.RUNNING: {
        "start": ToolStatus.RUNNING,
        "progress": ToolStatus.RUNNING,
        "complete": ToolStatus.COMPLETED,
        "fail": ToolStatus.ERROR,
        "time_out": ToolStatus.ERROR,
        "abort": ToolStatus.ERROR,
    },
    ToolStatus.COMPLETED: {"complete": ToolStatus.COMPLETED},
    ToolStatus.ERROR: {
        "fail": ToolStatus.ERROR,
        "time_out": ToolStatus.ERROR,
        "reject": ToolStatus.ERROR,
        "abort": ToolStatus.ERROR,
    },
}

# A run goes round prepare -> call_model -> run_tools until the model has nothing more to call. `prepare` in the
# middle of a run is a retry or a compaction; after an end it begins the next run. A human's answer leads to the
# tools (granted) or straight back to the model (denied); a human who never answers must not hang a run, so
# awaiting_human has edges to failed and aborted.
AGENT: Table[AgentStatus] = {
    AgentStatus.IDLE: {"prepare": AgentStatus.PREPARING},
    AgentStatus.PREPARING: {
        "prepare": AgentStatus.PREPARING,
        "call_model": AgentStatus.MODEL_RUNNING,
        "run_tools": AgentStatus.TOOL_RUNNING,
        "ask_human": AgentStatus.AWAITING_HUMAN,
        "fail": AgentStatus.FAILED,
        "abort": AgentStatus.ABORTED,
    },
    AgentStatus.MODEL_RUNNING: {
        "call_model": AgentStatus.MODEL_RUNNING,
        "prepare": AgentStatus.PREPARING,
        "run_tools": AgentStatus.TOOL_RUNNING,
        "ask_human": AgentStatus.AWAITING_HUMAN,
        "complete": AgentStatus.COMPLETED,
        "fail": AgentStatus.FAILED,
        "abort": AgentStatus.ABORTED,
    },
    AgentStatus.TOOL_RUNNING: {
        "run_tools": AgentStatus.TOOL_RUNNING,
        "prepare": AgentStatus.PREPARING,
        "call_model": AgentStatus.MODEL_RUNNING,
        "ask_human": AgentStatus.AWAITING_HUMAN,
        "complete": AgentStatus.COMPLETED,
        "fail": AgentStatus.FAILED,
        "abort": AgentStatus.ABORTED,
    },
    AgentStatus.AWAITING_HUMAN: {
        "ask_human": AgentStatus.AWAITING_HUMAN,
        "prepare": AgentStatus.PREPARING,
        "run_tools": AgentStatus.TOOL_RUNNING,
        "call_model": AgentStatus.MODEL_RUNNING,
        "fail": AgentStatus.FAILED,
        "abort": AgentStatus.ABORTED,
    },
    AgentStatus.COMPLETED: {"complete": AgentStatus.COMPLETED, "prepare": AgentStatus.PREPARING},
    AgentStatus.FAILED: {"fail": AgentStatus.FAILED, "prepare": AgentStatus.PREPARING},
    AgentStatus.ABORTED: {"abort": AgentStatus.ABORTED, "prepare": AgentStatus.PREPARING},
}


def advance(table: Table[S], state: S, event: str) -> S:
    """The state that `event` leads to; `InvalidStateTransition` where the table has no such edge."""
    edges = table[state]
    try:
        return edges[event]
    except KeyError:
        raise InvalidStateTransition(state, event, edges) from None
