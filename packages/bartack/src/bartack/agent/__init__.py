"""The agent: `Agent` runs a model with tools on stored sessions, and `Run` is the handle of a run."""

from bartack.agent.agent import Agent
from bartack.agent.approvals import LiveApprover
from bartack.agent.handoff import handoff
from bartack.agent.hooks import Hooks, Refusal
from bartack.agent.options import RunSettings
from bartack.agent.run import Run
from bartack.agent.settings import PromptContext, RetryPolicy
from bartack.events import (
    ApprovalRequested,
    Compacted,
    DeltaReceived,
    EntryAppended,
    Event,
    ModelSwitched,
    Retrying,
    RunFinished,
    RunPaused,
    RunResult,
    Snapshot,
    StatusChanged,
    SubagentEvent,
    ToolChanged,
)

__all__ = [
    "Agent",
    "ApprovalRequested",
    "Compacted",
    "DeltaReceived",
    "EntryAppended",
    "Event",
    "Hooks",
    "LiveApprover",
    "ModelSwitched",
    "PromptContext",
    "Refusal",
    "RetryPolicy",
    "Retrying",
    "Run",
    "RunFinished",
    "RunPaused",
    "RunResult",
    "RunSettings",
    "Snapshot",
    "StatusChanged",
    "SubagentEvent",
    "ToolChanged",
    "handoff",
]
