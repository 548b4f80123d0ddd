"""`LiveApprover`: the owner of a run decides about its tool calls while the run waits.

agent = Agent(..., approver=LiveApprover())
async with agent.stream("Clean up") as run:
    async for event in run:
        if isinstance(event, ApprovalRequested):
            run.approve(event.request.tool_call_id)
"""

import asyncio
from collections.abc import Iterable
from typing import Any

from bartack.nouns.entries import ApprovalRequired
from bartack.nouns.errors import NotFound
from bartack.tools import Decision

__all__ = ["LiveApprover"]


class LiveApprover:
    """Waits for each decision without a time limit, unless `Agent(approval_timeout_ms=...)` sets one."""

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

    def forget(self, tool_call_ids: Iterable[str]) -> None:
        """Accept no more decisions about these calls."""
        for tool_call_id in tool_call_ids:
            self._pending.pop(tool_call_id, None)

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
