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
    CacheConfig,
    ContextConfig,
    LoopConfig,
    ModelConfig,
    ObservabilityConfig,
    ThinkingConfig,
)
from bartack.nouns.deltas import (
    Delta,
    Done,
    Failed,
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
    ApprovalRequired,
    CompactionSummary,
    Custom,
    Entry,
    Redaction,
    Session,
)
from bartack.nouns.errors import (
    AgentError,
    BartackError,
    Conflict,
    ErrorCode,
    ModelError,
    NotFound,
    PartValidationError,
    SessionInUse,
    ToolError,
    TryAgain,
)
from bartack.nouns.messages import (
    Message,
    Meta,
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
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
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
        DeltaReceived,
        ModelSwitched,
        PromptContext,
        Refusal,
        Retrying,
        RetryPolicy,
        Run,
        RunFinished,
        RunResult,
        Snapshot,
        handoff,
    )
    from bartack.models import ScriptedModel, connect
    from bartack.store import MemoryStore, open_store
    from bartack.tools import (
        ToolContext,
        ToolOutput,
        ToolRegistry,
        provider_tool,
        tool,
    )
    from bartack.tools.mcp import mcp
else:
    _PACKAGES = ("agent", "formats", "models", "session", "store", "tools", "views")
    _TOOLS = ("ToolContext", "ToolOutput", "ToolRegistry", "provider_tool", "tool")
    _LAZY = dict.fromkeys(_TOOLS, "tools") | {"mcp": "tools.mcp"}
    _LAZY |= dict.fromkeys(("MemoryStore", "open_store"), "store")
    _LAZY |= dict.fromkeys(("ScriptedModel", "connect"), "models")

    def __getattr__(name: str) -> _typing.Any:
        if name in _PACKAGES:
            return _import_module(f"bartack.{name}")
        if name in __all__:
            return getattr(_import_module(f"bartack.{_LAZY.get(name, 'agent')}"), name)
        raise AttributeError(f"module 'bartack' has no attribute {name!r}")


__all__ = [
    "Agent",
    "AgentConfig",
    "AgentError",
    "ApprovalRequired",
    "BartackError",
    "CacheConfig",
    "CompactionSummary",
    "Conflict",
    "ContextConfig",
    "Continuation",
    "Custom",
    "Delta",
    "DeltaReceived",
    "Done",
    "Entry",
    "ErrorCode",
    "Failed",
    "FileRef",
    "Image",
    "LoopConfig",
    "MemoryStore",
    "Message",
    "MessageAssembler",
    "MessageDelta",
    "Meta",
    "ModelConfig",
    "ModelError",
    "ModelSwitched",
    "NotFound",
    "ObservabilityConfig",
    "PartValidationError",
    "PartialJson",
    "PromptContext",
    "Redaction",
    "Refusal",
    "RetryPolicy",
    "Retrying",
    "Run",
    "RunFinished",
    "RunResult",
    "ScriptedModel",
    "Session",
    "SessionInUse",
    "Snapshot",
    "Start",
    "Text",
    "TextDelta",
    "Thinking",
    "ThinkingConfig",
    "ThinkingDelta",
    "ToolCall",
    "ToolCallArgs",
    "ToolCallEnd",
    "ToolCallStart",
    "ToolContext",
    "ToolError",
    "ToolOutput",
    "ToolRegistry",
    "ToolResult",
    "TryAgain",
    "Usage",
    "__version__",
    "assistant",
    "connect",
    "handoff",
    "mcp",
    "open_store",
    "provider_tool",
    "stamped",
    "system",
    "tool",
    "tool_message",
    "user",
]
