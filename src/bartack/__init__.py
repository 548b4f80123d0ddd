"""Bartack: one typed conversation model and one strict streaming contract for every LLM provider.

The path of the data, in ten lines::

    decoder = bartack.formats.decoder("anthropic-messages")           # a provider's bytes
    deltas = decoder.receive_data(data) + decoder.receive_eof()       # become deltas;
    assembler = bartack.MessageAssembler()
    for seq, delta in enumerate(deltas):                              # deltas, stamped with run, number and time,
        assembler.consume(bartack.MessageDelta(run_id, seq, delta, now))
    message = assembler.build_final_message()                         # become a message;
    message = bartack.stamped(message, id=message_id, timestamp=now)  # a message is a fact;
    entry = bartack.Entry(id=entry_id, session_id=session_id, seq=1, timestamp=now, fact=message)
    bartack.nouns.wire.encode(entry)                                  # facts are stored and exchanged,
    bartack.views.document.dump([entry])                              # and every view is a fold over them.

Names used every day are here. Everything else is in the package of its layer: `bartack.nouns`, `bartack.stream`,
`bartack.formats`, `bartack.session`, `bartack.models`, `bartack.tools`, `bartack.store`, `bartack.agent` and
`bartack.views`.
"""

import typing as _typing
from importlib import import_module as _import_module

from bartack.nouns.config import (
    AgentConfig,
    AgentState,
    CacheConfig,
    ContextConfig,
    LoopConfig,
    ModelConfig,
    ObservabilityConfig,
    RuntimeConfig,
    SpecificTool,
    ThinkingConfig,
    ToolChoice,
    ToolsConfig,
    ToolSpec,
)
from bartack.nouns.deltas import (
    Delta,
    Done,
    Failed,
    FinishReason,
    MessageDelta,
    Start,
    TextDelta,
    ThinkingDelta,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from bartack.nouns.entries import (
    AbortRequested,
    ApprovalDecided,
    ApprovalRequired,
    BranchSummary,
    CompactionSummary,
    Custom,
    Entry,
    Fact,
    MessageDeltaBatch,
    MessageQueued,
    ModelChange,
    Redaction,
    ResultPosted,
    RunEnded,
    RunStarted,
    RuntimeInit,
    Session,
    SessionHeader,
    StreamFailed,
    SystemPromptOverride,
    ThinkingLevelChange,
    ToolProgress,
    ToolStarted,
)
from bartack.nouns.errors import (
    AgentError,
    BartackError,
    Conflict,
    ErrorCode,
    InvalidStateTransition,
    LeaseLost,
    MissingRequiredField,
    ModelError,
    NotFound,
    NothingToResume,
    PartValidationError,
    QueueFull,
    SessionInUse,
    StoreError,
    StreamError,
    ToolError,
    TryAgain,
)
from bartack.nouns.messages import (
    Message,
    Meta,
    ModelRef,
    Role,
    assistant,
    stamped,
    system,
    tool_message,
    user,
)
from bartack.nouns.parts import (
    Continuation,
    FileRef,
    Image,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from bartack.nouns.requests import RequestMetadata
from bartack.nouns.tables import AgentStatus
from bartack.nouns.tool_states import FileSource, ResourceSource, SymbolSource
from bartack.stream.assembler import MessageAssembler
from bartack.stream.partial_json import PartialJson

__version__ = "0.1.0"

# Everything that does I/O is imported on first use: ``import bartack`` loads no asyncio and no package but msgspec.
if _typing.TYPE_CHECKING:  # pragma: no cover
    from bartack import agent as agent
    from bartack import formats as formats
    from bartack import models as models
    from bartack import session as session
    from bartack import store as store
    from bartack import tools as tools
    from bartack import views as views
    from bartack.agent import (
        Agent,
        ApprovalRequested,
        Compacted,
        DeltaReceived,
        EntryAppended,
        Event,
        Hooks,
        LiveApprover,
        ModelSwitched,
        PromptContext,
        Retrying,
        RetryPolicy,
        Run,
        RunFinished,
        RunPaused,
        RunResult,
        RunSettings,
        Snapshot,
        StatusChanged,
        SubagentEvent,
        ToolChanged,
        handoff,
    )
    from bartack.models import ScriptedModel, connect
    from bartack.store import MemoryStore, SessionStore, open_store
    from bartack.tools import Approver, Decision, ToolContext, ToolDefinition, ToolOutput, ToolRegistry, Toolset, tool
    from bartack.tools.mcp import mcp
else:
    _PACKAGES = ("agent", "formats", "models", "session", "store", "tools", "views")
    _TOOLS = ("Approver", "Decision", "ToolContext", "ToolDefinition", "ToolOutput", "ToolRegistry", "Toolset", "tool")
    _LAZY = dict.fromkeys(_TOOLS, "tools") | {"mcp": "tools.mcp"}
    _LAZY |= dict.fromkeys(("MemoryStore", "SessionStore", "open_store"), "store")
    _LAZY |= dict.fromkeys(("ScriptedModel", "connect"), "models")

    def __getattr__(name: str) -> _typing.Any:
        if name in _PACKAGES:
            return _import_module(f"bartack.{name}")
        if name in __all__:
            return getattr(_import_module(f"bartack.{_LAZY.get(name, 'agent')}"), name)
        raise AttributeError(f"module 'bartack' has no attribute {name!r}")


__all__ = [
    "AbortRequested",
    "Agent",
    "AgentConfig",
    "AgentError",
    "AgentState",
    "AgentStatus",
    "ApprovalDecided",
    "ApprovalRequested",
    "ApprovalRequired",
    "Approver",
    "BartackError",
    "BranchSummary",
    "CacheConfig",
    "Compacted",
    "CompactionSummary",
    "Conflict",
    "ContextConfig",
    "Continuation",
    "Custom",
    "Decision",
    "Delta",
    "DeltaReceived",
    "Done",
    "Entry",
    "EntryAppended",
    "ErrorCode",
    "Event",
    "Fact",
    "Failed",
    "FileRef",
    "FileSource",
    "FinishReason",
    "Hooks",
    "Image",
    "InvalidStateTransition",
    "LeaseLost",
    "LiveApprover",
    "LoopConfig",
    "MemoryStore",
    "Message",
    "MessageAssembler",
    "MessageDelta",
    "MessageDeltaBatch",
    "MessageQueued",
    "Meta",
    "MissingRequiredField",
    "ModelChange",
    "ModelConfig",
    "ModelError",
    "ModelRef",
    "ModelSwitched",
    "NotFound",
    "NothingToResume",
    "ObservabilityConfig",
    "Part",
    "PartValidationError",
    "PartialJson",
    "PromptContext",
    "QueueFull",
    "Redaction",
    "RequestMetadata",
    "ResourceSource",
    "ResultPosted",
    "RetryPolicy",
    "Retrying",
    "Role",
    "Run",
    "RunEnded",
    "RunFinished",
    "RunPaused",
    "RunResult",
    "RunSettings",
    "RunStarted",
    "RuntimeConfig",
    "RuntimeInit",
    "ScriptedModel",
    "Session",
    "SessionHeader",
    "SessionInUse",
    "SessionStore",
    "Snapshot",
    "SpecificTool",
    "Start",
    "StatusChanged",
    "StoreError",
    "StreamError",
    "StreamFailed",
    "SubagentEvent",
    "SymbolSource",
    "SystemPromptOverride",
    "Text",
    "TextDelta",
    "Thinking",
    "ThinkingConfig",
    "ThinkingDelta",
    "ThinkingLevelChange",
    "ToolCall",
    "ToolCallArgs",
    "ToolCallEnd",
    "ToolCallStart",
    "ToolChanged",
    "ToolChoice",
    "ToolContext",
    "ToolDefinition",
    "ToolError",
    "ToolOutput",
    "ToolProgress",
    "ToolRegistry",
    "ToolResult",
    "ToolSpec",
    "ToolStarted",
    "ToolsConfig",
    "Toolset",
    "TryAgain",
    "Usage",
    "__version__",
    "assistant",
    "connect",
    "handoff",
    "mcp",
    "open_store",
    "stamped",
    "system",
    "tool",
    "tool_message",
    "user",
]
