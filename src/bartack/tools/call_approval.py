"""`CallApproval`: the approval of one tool call, from the question to the decision that the call acts upon.

The decision comes from the agent's approver, or from anyone who adds one to the session: whichever is stored first. It
may be corrected until the call has acted upon it, so everything that relies on a decision is recorded on the condition
that it is still the last one.
"""

import asyncio
from datetime import timedelta
from inspect import isawaitable
from typing import Any

from bartack.nouns.entries import ApprovalDecided, ApprovalRequired
from bartack.nouns.errors import ErrorCode, ToolError
from bartack.nouns.parts import ToolCall
from bartack.session.decisions import Decision, counts_for, decided_fact
from bartack.session.run_state import OpenCall
from bartack.tools import tool_round
from bartack.tools.approval import Approver, approval_reason
from bartack.tools.definition import ToolDefinition
from bartack.tools.output import valid_text
from bartack.tools.tool_round import ToolRound, retrieve_exception

__all__ = ["CallApproval", "asked_approval"]

_EXPIRED = "no decision before the deadline"


async def asked_approval(
    round: ToolRound, past: OpenCall, call: ToolCall, definition: ToolDefinition | None
) -> "CallApproval | None":
    """The approval of a call that needs one, after recording the question if the session does not hold it already."""
    asked = past.question
    assert definition is not None
    if asked is not None and counts_for(asked, call.arguments, definition.digest):
        return CallApproval(round, asked)
    reason = definition.changed or approval_reason(round.settings.approval, call, definition)
    if reason is None:
        return None
    limit = round.settings.approval_timeout_ms
    question = ApprovalRequired(
        call.tool_call_id,
        call.tool_name,
        call.arguments,
        reason=valid_text(reason) or None,
        expires_at=None if limit is None else round.settings.environment.now() + timedelta(milliseconds=limit),
        parameters=dict(definition.parameter_schema),
        definition_digest=definition.digest,
    )
    await round.record(question)
    return CallApproval(round, question)


class CallApproval:
    """A question and its answer."""

    def __init__(self, round: ToolRound, question: ApprovalRequired) -> None:
        self._round = round
        self._question = question
        self._verdict: ApprovalDecided | None = None  # the decision that the call acts upon

    def is_current(self) -> bool:
        """Whether the decision that the call acts upon is still the last one."""
        return self._stored() is self._verdict

    async def verdict(self) -> ApprovalDecided | None:
        """The decision to act upon; None if the call still waits for one. `ToolError` if the round was stopped."""
        self._verdict = self._stored()
        if self._verdict is None:
            with self._round.tracer.approval(self._question) as span:
                decision = await self._decision()
                if decision is not None:
                    await self._record(decision)
                self._verdict = self._stored()
                span.decided(self._verdict)
        return self._verdict

    def _stored(self) -> ApprovalDecided | None:
        """The last decision in the session that counts for this call."""
        known = self._round.log.find(self._question.tool_call_id)
        verdict = None if known is None else known.verdict
        question = self._question
        if verdict is None or not counts_for(verdict, question.arguments, question.definition_digest):
            return None
        return verdict

    async def _decision(self) -> Decision | None:
        """The approver's decision; None if there is no approver to ask, or if the session already has a decision."""
        settings, expires_at = self._round.settings, self._question.expires_at
        left = None if expires_at is None else (expires_at - settings.environment.now()).total_seconds()
        if left is not None and left <= 0:
            return Decision("expire", reason=_EXPIRED)
        if settings.approver is None:
            return None
        try:
            return await self._round.call("the approver", self._ask(settings.approver), left)
        except ToolError as error:
            if error.code is ErrorCode.TOOL_ABORTED:
                raise
            is_late = error.code is ErrorCode.TOOL_TIMEOUT
            return Decision("expire", reason=_EXPIRED) if is_late else Decision("deny", reason=error.message)

    async def _ask(self, approver: Approver) -> Decision | None:
        """The approver's decision; None if another process decided first, in which case the approver is cancelled."""
        asking = asyncio.create_task(_answer(approver, self._question))
        elsewhere = asyncio.create_task(self._decided_elsewhere())
        try:
            await asyncio.wait({asking, elsewhere}, return_when=asyncio.FIRST_COMPLETED)
            return None if elsewhere.done() else asking.result()
        finally:
            elsewhere.cancel()
            if not asking.done():
                asking.cancel()
                await asyncio.wait({asking}, timeout=tool_round.GRACE_MS / 1000)
            retrieve_exception(asking)

    async def _decided_elsewhere(self) -> None:
        while self._stored() is None:
            await self._round.log.changed()

    async def _record(self, decision: Decision) -> None:
        """Record a decision; `Superseded` if another one was stored in the meantime."""
        try:
            fact = decided_fact(self._question, decision)
        except ToolError as error:
            denied = Decision("deny", reason=error.message, decided_by=decision.decided_by)
            fact = decided_fact(self._question, denied)
        await self._round.record(fact, still=self.is_current)


async def _answer(approver: Approver, question: ApprovalRequired) -> Decision | None:
    """What the approver decides; `TypeError` if that is not a decision."""
    made: Any = approver.decide(question)
    if not isawaitable(made) or not isinstance(answer := await made, Decision | None):
        raise TypeError("decide() must be a coroutine function that returns a Decision or None")
    return answer
