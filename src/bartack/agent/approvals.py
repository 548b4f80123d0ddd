"""Decisions about tool calls: `LiveApprover` while a run waits for them, `append_decision` for a run that has paused.

agent = Agent(..., approver=LiveApprover())
async with agent.stream("Clean up") as run:
    async for event in run:
        if isinstance(event, ApprovalRequested):
            run.approve(event.request.tool_call_id)
"""

import asyncio
from typing import Any

from bartack.agent.session_view import SessionView
from bartack.nouns.entries import ApprovalRequired
from bartack.nouns.errors import Conflict, NotFound
from bartack.store.session_store import SessionStore, next_entries
from bartack.tools import Decision, decided_fact

__all__ = ["LiveApprover", "append_decision"]

_TRIES = 5  # other processes may append at the same time


class LiveApprover:
    """Waits for each decision without limit; `Agent(approval_timeout_ms=...)` sets one."""

    def __init__(self) -> None:
        self._pending: dict[str, asyncio.Future[Decision]] = {}

    def expect(self, tool_call_id: str) -> "asyncio.Future[Decision]":
        """Accept a decision about this call from now on, before the question is published."""
        future = self._pending.get(tool_call_id)
        if future is None:
            future = self._pending[tool_call_id] = asyncio.get_running_loop().create_future()
        return future

    async def decide(self, request: ApprovalRequired) -> Decision:
        """The decision, once it has been made."""
        try:
            return await self.expect(request.tool_call_id)
        finally:
            self._pending.pop(request.tool_call_id, None)

    def is_pending(self, tool_call_id: str) -> bool:
        """Whether this call is awaiting a decision."""
        return tool_call_id in self._pending

    def approve(self, tool_call_id: str, *, arguments: dict[str, Any] | None = None, **details: Any) -> None:
        """Let the call run, with other arguments if given. `NotFound` if it is not awaiting approval.

        `details` are the other fields of `Decision`.
        """
        self.resolve(
            tool_call_id, Decision("approve" if arguments is None else "modify_args", arguments=arguments, **details)
        )

    def deny(self, tool_call_id: str, **details: Any) -> None:
        """Refuse the call; the model sees the `reason`. `NotFound` if it is not awaiting approval."""
        self.resolve(tool_call_id, Decision("deny", **details))

    def resolve(self, tool_call_id: str, decision: Decision) -> None:
        """Make any decision. `NotFound` if the call is not awaiting approval."""
        future = self._pending.get(tool_call_id)
        if future is None or future.done():
            raise NotFound(f"Call {tool_call_id!r} is not awaiting approval.")
        future.set_result(decision)


async def append_decision(store: SessionStore, session_id: str, tool_call_id: str, decision: Decision) -> None:
    """Store a decision for a paused run, which finds it when it is resumed.

    Raises `NotFound` if the call is not awaiting approval, and `Conflict` if it has been decided.
    """
    for left in reversed(range(_TRIES)):
        view = await SessionView.load(store, session_id)
        known = view.state.open_calls.get(tool_call_id)
        if known is None or known.question is None:
            raise NotFound(f"Call {tool_call_id!r} in session {session_id!r} is not awaiting approval.")
        if known.verdict is not None:
            raise Conflict(f"Call {tool_call_id!r} has already been decided: {known.verdict.decision}.")
        fact = decided_fact(known.question, decision)
        entries = next_entries(session_id, view.tail, [fact], store.environment, run_id=view.state.run_id)
        try:
            await store.append(session_id, entries, view.tail.entry_id)
            return
        except Conflict:
            if not left:
                raise
