"""`LiveApprover`: decisions by whoever watches the run, while it runs.

agent = Agent(..., approver=LiveApprover())
async with agent.stream("Clean up") as run:
    async for event in run:
        if isinstance(event, ApprovalRequested):
            run.approve(event.request.tool_call_id)
"""

import asyncio
from typing import Any

from bartack.nouns.entries import ApprovalRequired
from bartack.nouns.errors import NotFound
from bartack.tools import Decision

__all__ = ["LiveApprover"]


class LiveApprover:
    """Waits for each decision, however long; `Agent(approval_timeout_ms=...)` sets an end."""

    def __init__(self) -> None:
        self._asked: dict[str, asyncio.Future[Decision]] = {}

    def expect(self, tool_call_id: str) -> "asyncio.Future[Decision]":
        """Take decisions about this call from now on; the run says so before it tells anyone of the question."""
        known = self._asked.get(tool_call_id)
        if known is None:
            known = self._asked[tool_call_id] = asyncio.get_running_loop().create_future()
        return known

    async def decide(self, request: ApprovalRequired) -> Decision:
        """The decision, when somebody has made it."""
        try:
            return await self.expect(request.tool_call_id)
        finally:
            self._asked.pop(request.tool_call_id, None)

    def asks_for(self, tool_call_id: str) -> bool:
        """Whether this call waits for a decision."""
        return tool_call_id in self._asked

    def approve(self, tool_call_id: str, *, arguments: dict[str, Any] | None = None, **details: Any) -> None:
        """Let the call run, with other arguments where they are given; `NotFound` if nobody asked."""
        self.answer(
            tool_call_id, Decision("approve" if arguments is None else "modify_args", arguments=arguments, **details)
        )

    def deny(self, tool_call_id: str, **details: Any) -> None:
        """Do not let the call run; the model is told the `reason`. `NotFound` if nobody asked."""
        self.answer(tool_call_id, Decision("deny", **details))

    def answer(self, tool_call_id: str, decision: Decision) -> None:
        """Any decision; `NotFound` if nobody asked."""
        future = self._asked.get(tool_call_id)
        if future is None or future.done():
            raise NotFound(f"nobody asks about call {tool_call_id!r}")
        future.set_result(decision)
