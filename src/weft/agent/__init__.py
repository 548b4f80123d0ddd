"""The agent: `Agent` runs a model with tools on sessions that are kept, and `Run` is one of its runs while it works."""

from weft.agent.agent import Agent
from weft.agent.events import (
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
from weft.agent.hooks import Hooks, ModelRequest
from weft.agent.live import LiveApprover
from weft.agent.retry import RetryPolicy
from weft.agent.run import Run

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
