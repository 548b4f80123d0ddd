"""Weft: one typed conversation model and one strict streaming contract for every LLM provider.

The way of the data, in ten lines::

    decoder = weft.decode.decoder("anthropic-messages")            # a provider's bytes ...
    deltas = decoder.receive_data(data) + decoder.receive_eof()    # ... become deltas,
    assembler = weft.MessageAssembler()
    for seq, delta in enumerate(deltas):                           # deltas, stamped at the edge, ...
        assembler.consume(weft.MessageDelta(run_id, seq, delta, now))
    message = assembler.build_final_message()                      # ... become a message,
    message = weft.stamped(message, id=new_id, timestamp=now)      # a message is a fact,
    entry = weft.Entry(id=entry_id, session_id=session_id, seq=1, timestamp=now, fact=message)
    weft.wire.encode(entry)                                        # facts are what is stored and exchanged,
    weft.views.document.dump([entry])                              # and all that anyone looks at is a fold over them.
"""

import typing as _typing
from importlib import import_module as _import_module

from weft.assembler import MessageAssembler
from weft.config import (
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
from weft.contract import Contract, StreamLimits
from weft.deltas import (
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
from weft.entries import (
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
from weft.errors import (
    AgentError,
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
    WeftError,
)
from weft.messages import (
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
from weft.partial_json import PartialJson
from weft.parts import (
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
from weft.redaction import redacted, visible
from weft.tables import AgentStatus, AssemblyStatus, CallStatus, ToolStatus, advance

__version__ = "0.1.0"

# What talks to the world is imported when it is first asked for, so that ``import weft`` stays light: it loads no
# asyncio and no library but msgspec. A type checker sees plain imports, and so no names that do not exist.
if _typing.TYPE_CHECKING:  # pragma: no cover
    from weft import agent as agent
    from weft import decode as decode
    from weft import encode as encode
    from weft import models as models
    from weft import store as store
    from weft import tools as tools
    from weft import views as views
    from weft.agent import Agent
    from weft.models import model
    from weft.store import open_store
    from weft.tools import ToolContext, tool
else:
    _SHELLS = {
        "Agent": "weft.agent",
        "ToolContext": "weft.tools",
        "model": "weft.models",
        "open_store": "weft.store",
        "tool": "weft.tools",
    }
    _MODULES = ("agent", "decode", "encode", "models", "store", "tools", "views")

    def __getattr__(name: str) -> _typing.Any:
        if name in _SHELLS:
            return getattr(_import_module(_SHELLS[name]), name)
        if name in _MODULES:
            return _import_module(f"weft.{name}")
        raise AttributeError(f"module 'weft' has no attribute {name!r}")


__all__ = [
    "Agent",
    "AgentConfig",
    "AgentError",
    "AgentState",
    "AgentStatus",
    "ApprovalDecided",
    "ApprovalRequired",
    "AssemblyStatus",
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
    "WeftError",
    "Workspace",
    "__version__",
    "advance",
    "assistant",
    "branch",
    "heads",
    "model",
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
