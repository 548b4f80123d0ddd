"""The state tables, and `advance`, the only function that reads them.

Bartack keeps four lifetimes apart. Each is a small state machine, and each machine is data: a mapping from every state
to its edges, where an edge is an event name and the state it leads to.

    ASSEMBLY    one model stream           idle -> started -> done | error             events: kinds of deltas
    CALL        one call in that stream    absent -> open -> closed                    events: kinds of deltas
    TOOL        one call's execution       pending -> running -> completed | error     events: what the executor did
    AGENT       one agent's work on runs   idle -> preparing -> ... -> completed       events: what the loop does next

They run side by side and never share a state. While an agent is in ``model_running``, one ASSEMBLY consumes its stream,
and inside it any number of CALLs open and close in any order. When the stream is done, each call that the client must
execute starts its own TOOL, and several may run at once. Combining the four into one machine would multiply their
states; keeping them apart leaves the few rules that connect them to the code that owns both sides.

Rules of notation:

- Every state has a row. An empty row is final.
- An event without an edge is an error: `advance` raises `InvalidStateTransition`, and the caller has changed nothing
  yet, because it asks before it acts.
- An edge back to its own state makes a repeat harmless (003 §7.1): completing a completed tool returns the same object.
  A final state of TOOL has such edges and no others, so an outcome can be reported twice but never replaced.
- Events are verbs in the imperative or kinds of deltas; states are adjectives or participles. A state has no data here.
  The data is in the class that represents it (`bartack.nouns.tool_states`), so that each state has only its own fields.

What the tables do not cover, because it depends on more than a state and an event:

- order and content of a stream: `seq` increases, a call id is new, no call is open at ``done``, sizes stay within their
  limits. See `bartack.stream.contract`, which consults ASSEMBLY and CALL.
- which error moves a call out of ``pending`` or ``running``, and when a timeout is due: `bartack.session.tool_state`.
- how often ``preparing`` and ``model_running`` may alternate (retries, iterations, budgets) and what must be stored
  before each step: `bartack.agent`. The table permits endless runs; the loop's limits end them.
- that a call has at most one result and a session one run at a time, also across processes: constraints of the stores.

The diagrams in docs/architecture.md are generated from these tables (lab/draw_docs.py).
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
    # Enum computes its hash in Python. Tables are read for every delta, so use the hash of the text.
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

# pending -> error is for calls that never ran: denied by a human, rejected before they started, or aborted (D-4.5).
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

# A run repeats prepare -> call_model -> run_tools until the model makes no more calls. `prepare` in the middle of a run
# is a retry or a compaction; in a final state it begins the next run. `complete` from preparing is for a run that makes
# no model call: a compaction, or a resumed run whose answer was already stored. A human's decision leads to the tools
# (approved) or back to the model (denied). A decision that never comes must not block a run forever, so awaiting_human
# has edges to failed and aborted (D-7.11).
AGENT: Table[AgentStatus] = {
    AgentStatus.IDLE: {"prepare": AgentStatus.PREPARING},
    AgentStatus.PREPARING: {
        "prepare": AgentStatus.PREPARING,
        "call_model": AgentStatus.MODEL_RUNNING,
        "run_tools": AgentStatus.TOOL_RUNNING,
        "ask_human": AgentStatus.AWAITING_HUMAN,
        "complete": AgentStatus.COMPLETED,
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
    """Return the state that `event` leads to; raise `InvalidStateTransition` if the table has no such edge."""
    edges = table[state]
    try:
        return edges[event]
    except KeyError:
        attempted = next((row[event] for row in table.values() if event in row), None)
        raise InvalidStateTransition(state, event, edges, attempted=attempted) from None
