"""The agent: `Agent` runs a model with tools on sessions that are kept, and `Run` is one of its runs while it works."""

from bartack.agent.agent import Agent
from bartack.agent.events import (
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
    ToolChanged,
)
from bartack.agent.hooks import Hooks, ModelRequest
from bartack.agent.live import LiveApprover
from bartack.agent.retry import RetryPolicy
from bartack.agent.run import Run

__all__ = [
    "Agent",
    "ApprovalRequested",
    "Compacted",
    "DeltaReceived",
    "EntryAppended",
    "Event",
    "Hooks",
    "LiveApprover",
    "ModelRequest",
    "ModelSwitched",
    "RetryPolicy",
    "Retrying",
    "Run",
    "RunFinished",
    "RunPaused",
    "RunResult",
    "Snapshot",
    "StatusChanged",
    "ToolChanged",
]
