"""Bartack: one typed conversation model and one strict streaming contract for every LLM provider.

The way of the data, in ten lines::

    decoder = bartack.formats.decoder("anthropic-messages")            # a provider's bytes ...
    deltas = decoder.receive_data(data) + decoder.receive_eof()    # ... become deltas,
    assembler = bartack.MessageAssembler()
    for seq, delta in enumerate(deltas):                           # deltas, stamped at the edge, ...
        assembler.consume(bartack.MessageDelta(run_id, seq, delta, now))
    message = assembler.build_final_message()                      # ... become a message,
    message = bartack.stamped(message, id=new_id, timestamp=now)      # a message is a fact,
    entry = bartack.Entry(id=entry_id, session_id=session_id, seq=1, timestamp=now, fact=message)
    bartack.nouns.wire.encode(entry)                                        # facts are what is stored and exchanged,
    bartack.views.document.dump([entry])                              # and all that anyone looks at is a fold over them.
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
    ApprovalDecided,
    ApprovalRequired,
    BranchSummary,
    CompactionSummary,
    Custom,
    Entry,
    Fact,
    MessageDeltaBatch,
    ModelChange,
    Redaction,
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
    branch,
    heads,
    session_of,
)
from bartack.nouns.errors import (
    AgentError,
    BartackError,
    Conflict,
    ErrorCode,
    InvalidStateTransition,
    MissingRequiredField,
    ModelError,
    NotFound,
    PartValidationError,
    StoreError,
    StreamError,
    ToolError,
)
from bartack.nouns.messages import (
    Koding,
    Message,
    Meta,
    ModelRef,
    Role,
    Step,
    Summary,
    Workspace,
    assistant,
    stamped,
    system,
    tool_message,
    user,
)
from bartack.nouns.parts import (
    ContentPart,
    Continuation,
    FileRef,
    Image,
    Part,
    Span,
    Text,
    Thinking,
    ToolCall,
    ToolContent,
    ToolResult,
)
from bartack.nouns.tables import AgentStatus, AssemblyStatus, CallStatus, ToolStatus, advance
from bartack.session.redaction import redacted, visible
from bartack.stream.assembler import MessageAssembler
from bartack.stream.contract import Contract, StreamLimits
from bartack.stream.partial_json import PartialJson

__version__ = "0.1.0"

# What talks to the world is imported when it is first asked for, so that ``import bartack`` stays light: it loads no
# asyncio and no library but msgspec. A type checker sees plain imports, and so no names that do not exist.
if _typing.TYPE_CHECKING:  # pragma: no cover
    from bartack import agent as agent
    from bartack import formats as formats
    from bartack import models as models
    from bartack import store as store
    from bartack import tools as tools
    from bartack import views as views
    from bartack.agent import Agent
    from bartack.models import connect
    from bartack.store import open_store
    from bartack.tools import ToolContext, tool
else:
    _SHELLS = {
        "Agent": "bartack.agent",
        "ToolContext": "bartack.tools",
        "connect": "bartack.models",
        "open_store": "bartack.store",
        "tool": "bartack.tools",
    }
    _MODULES = ("agent", "formats", "models", "store", "tools", "views")

    def __getattr__(name: str) -> _typing.Any:
        if name in _SHELLS:
            return getattr(_import_module(_SHELLS[name]), name)
        if name in _MODULES:
            return _import_module(f"bartack.{name}")
        raise AttributeError(f"module 'bartack' has no attribute {name!r}")


__all__ = [
    "Agent",
    "AgentConfig",
    "AgentError",
    "AgentState",
    "AgentStatus",
    "ApprovalDecided",
    "ApprovalRequired",
    "AssemblyStatus",
    "BartackError",
    "BranchSummary",
    "CacheConfig",
    "CallStatus",
    "CompactionSummary",
    "Conflict",
    "ContentPart",
    "ContextConfig",
    "Continuation",
    "Contract",
    "Custom",
    "Delta",
    "Done",
    "Entry",
    "ErrorCode",
    "Fact",
    "Failed",
    "FileRef",
    "FinishReason",
    "Image",
    "InvalidStateTransition",
    "Koding",
    "LoopConfig",
    "Message",
    "MessageAssembler",
    "MessageDelta",
    "MessageDeltaBatch",
    "Meta",
    "MissingRequiredField",
    "ModelChange",
    "ModelConfig",
    "ModelError",
    "ModelRef",
    "NotFound",
    "ObservabilityConfig",
    "Part",
    "PartValidationError",
    "PartialJson",
    "Redaction",
    "Role",
    "RunEnded",
    "RunStarted",
    "RuntimeConfig",
    "RuntimeInit",
    "Session",
    "SessionHeader",
    "Span",
    "SpecificTool",
    "Start",
    "Step",
    "StoreError",
    "StreamError",
    "StreamFailed",
    "StreamLimits",
    "Summary",
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
    "ToolChoice",
    "ToolContent",
    "ToolContext",
    "ToolError",
    "ToolProgress",
    "ToolResult",
    "ToolSpec",
    "ToolStarted",
    "ToolStatus",
    "ToolsConfig",
    "Usage",
    "Workspace",
    "__version__",
    "advance",
    "assistant",
    "branch",
    "connect",
    "heads",
    "open_store",
    "redacted",
    "session_of",
    "stamped",
    "system",
    "tool",
    "tool_message",
    "user",
    "visible",
]
