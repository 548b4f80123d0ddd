"""A human's decision about a call of a paused run, appended by anyone: the run that goes on will find it."""

from bartack.agent.view import SessionView
from bartack.nouns.errors import Conflict, NotFound
from bartack.store.session_store import SessionStore, next_entries
from bartack.tools import Decision, decided_fact

__all__ = ["decide"]

_TRIES = 5  # others may append at the same moment


async def decide(store: SessionStore, session_id: str, tool_call_id: str, decision: Decision) -> None:
    """Make the decision durable; `NotFound` if no human is asked about this call."""
    for left in reversed(range(_TRIES)):
        view = await SessionView.load(store, session_id)
        one = view.progress.open_calls.get(tool_call_id)
        if one is None or one.question is None:
            raise NotFound(f"no human is asked about call {tool_call_id!r} in session {session_id!r}")
        if one.decision is not None and not one.waits:
            raise Conflict(f"call {tool_call_id!r} was decided before: {one.decision.decision}")
        fact = decided_fact(one.question, decision)
        entries = next_entries(session_id, view.tail, [fact], store.environment, run_id=view.progress.run_id)
        try:
            await store.append(session_id, entries, view.tail.entry_id)
            return
        except Conflict:
            if not left:
                raise
