"""Facts to what a model may see, and when to compact (D-6).

Entries go into a `ContextFold` one by one. `ContextManager.build_context` gives the messages of the next request and
`compute_context_updates` says whether to summarise first. The way of the data::

    entry -> fold      normalise (spoken), remove repeats, honour redactions and compactions
          -> window    count tokens, trim to the budget
          -> manager   put system prompt, summary and messages together; choose what to compact

Nothing here asks a model or a clock: the same entries, configuration and input give the same bytes, and a session that
grows keeps what it had as a prefix until something is trimmed, compacted, redacted or instructed anew.
"""

from bartack.session.context.fold import ContextFold
from bartack.session.context.manager import (
    ContextBuildResult,
    ContextInput,
    ContextManager,
    ContextUpdateResult,
    summary_request,
)
from bartack.session.context.window import TrimNote

__all__ = [
    "ContextBuildResult",
    "ContextFold",
    "ContextInput",
    "ContextManager",
    "ContextUpdateResult",
    "TrimNote",
    "summary_request",
]
