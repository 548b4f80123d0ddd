"""Folds over a session's facts: the state of its tool calls, what is redacted, and the context for the next request.

`ToolStateTransition` is the namespace of 003 §4.2: ``ToolStateTransition.pending_to_running(state, start=now)``.
"""

from bartack.session import tool_state as ToolStateTransition  # noqa: N812 - the name that 003 gives it

__all__ = ["ToolStateTransition"]
