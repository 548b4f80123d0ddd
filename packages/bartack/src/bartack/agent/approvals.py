"""`LiveApprover`: the owner of a run decides about its tool calls while the run waits.

agent = Agent(..., approver=LiveApprover())
async with agent.stream("Clean up") as run:
    async for event in run:
        if isinstance(event, ApprovalRequested):
            run.approve(event.request.tool_call_id)
"""

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple

from bartack.nouns.entries import ApprovalRequired
from bartack.nouns.errors import ErrorCode, NotFound, PartValidationError, ToolError
from bartack.session.decisions import question_digest
from bartack.store.requests import check_arguments
from bartack.tools import Decision

__all__ = ["LiveApprover"]


class _Pending(NamedTuple):
    """A question, and where its decision arrives."""

    request: ApprovalRequired
    decision: "asyncio.Future[Decision]"


class LiveApprover:
    """Waits for each decision without a time limit, unless `Agent(approval_timeout_ms=...)` sets one."""

    def __init__(self) -> None:
        self._pending: dict[str, _Pending] = {}

    def expect(self, request: ApprovalRequired) -> "asyncio.Future[Decision]":
        """Accept a decision about this call from now on, before the question is published."""
        pending = self._pending.get(request.tool_call_id)
        if pending is None or pending.request != request:  # asked again, about something else
            pending = _Pending(request, asyncio.get_running_loop().create_future())
            self._pending[request.tool_call_id] = pending
        return pending.decision

    async def decide(self, request: ApprovalRequired) -> Decision:
        """The decision, once it has been made."""
        try:
            return await self.expect(request)
        finally:
            self._pending.pop(request.tool_call_id, None)

    def forget(self, tool_call_ids: Iterable[str]) -> None:
        """Accept no more decisions about these calls."""
        for tool_call_id in tool_call_ids:
            self._pending.pop(tool_call_id, None)

    def approve(self, tool_call_id: str, *, arguments: dict[str, Any] | None = None, **details: Any) -> None:
        """Let the call run, with other arguments if given.

        `NotFound` if it is not awaiting approval, `ToolError` if the decision was made for another question,
        `PartValidationError` if its tool does not accept the arguments; the call then still waits. `details` are the
        other fields of `Decision`.
        """
        self.resolve(
            tool_call_id, Decision("approve" if arguments is None else "modify_args", arguments=arguments, **details)
        )

    def deny(self, tool_call_id: str, **details: Any) -> None:
        """Refuse the call; the model sees the `reason`. `NotFound` if it is not awaiting approval."""
        self.resolve(tool_call_id, Decision("deny", **details))

    def resolve(self, tool_call_id: str, decision: Decision) -> None:
        """Make any decision; raises as `approve` does."""
        pending = self._pending.get(tool_call_id)
        if pending is None or pending.decision.done():
            raise NotFound(f"Call {tool_call_id!r} is not awaiting approval.")
        if decision.question_digest not in (None, question_digest(pending.request)):
            raise ToolError("The decision was made for another question.", code=ErrorCode.TOOL_DENIED)
        if decision.arguments is not None:
            try:
                check_arguments(pending.request, decision.arguments)
            except PartValidationError as error:
                if error.code is not ErrorCode.MISSING_DEPENDENCY:  # the tool itself checks them, when it runs
                    raise
        pending.decision.set_result(decision)
