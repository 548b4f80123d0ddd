"""The context: which messages a model receives, and when to compact (D-6).

Entries are pushed into a `ContextFold` one by one. `ContextManager.build_context` returns the messages of the next
request, and `compute_context_updates` determines whether to summarise first. The path of an entry::

    fold       normalise, remove duplicates, apply redactions and compactions
    window     count tokens, trim to the budget
    manager    combine system prompt, summary and messages; choose what to compact

All of it is deterministic: the same entries, configuration and input give the same bytes. As a session grows, its
earlier context remains a prefix of the new one until something is trimmed, compacted, redacted or given another system
prompt, so provider caches keep working.
"""

from bartack.session.context.fold import ContextFold
from bartack.session.context.manager import (
    ContextBuildResult,
    ContextInput,
    ContextManager,
    ContextUpdateResult,
    summary_messages,
)
from bartack.session.context.window import TrimNote

__all__ = [
    "ContextBuildResult",
    "ContextFold",
    "ContextInput",
    "ContextManager",
    "ContextUpdateResult",
    "TrimNote",
    "summary_messages",
]
