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
from bartack.session.decisions import Decision, arguments_digest, counts_for, decided_fact, question_digest
from bartack.session.run_state import OpenCall
from bartack.tools import tool_round
from bartack.tools.approval import Approver, approval_reason
from bartack.tools.definition import ToolDefinition
from bartack.tools.output import valid_text
from bartack.tools.preview import MakePreview, make_preview
from bartack.tools.tool_context import ToolContext
from bartack.tools.tool_round import ToolRound, contained, retrieve_exception

__all__ = ["CallApproval", "asked_approval", "preview_of"]

_EXPIRED = "no decision before the deadline"


async def asked_approval(
    round: ToolRound, past: OpenCall, call: ToolCall, definition: ToolDefinition
) -> "CallApproval | None":
    """The approval of a call that needs one, after recording the question if the session does not hold it already.

    A question that has a decision, or can no longer get one, stays as it is: before the call acts, the preview is made
    again in any case. `ToolError` if the call cannot succeed; then nobody is asked.
    """
    earlier = past.question
    if earlier is not None and _is_same_call(earlier, call, definition):
        if past.verdict is not None or _is_expired(round, earlier):
            return CallApproval(round, earlier)
        reason = earlier.reason
    else:
        earlier = None
        reason = definition.changed or approval_reason(round.settings.approval, call, definition)
        if reason is None:
            return None
    question = await _new_question(round, call, definition, reason)
    if earlier is not None and question_digest(question) == question_digest(earlier):
        round.log.publish(earlier)  # asked before a crash or a pause: the reader of this run has not seen it
        return CallApproval(round, earlier)
    await round.record(question)
    return CallApproval(round, question)


async def _new_question(
    round: ToolRound, call: ToolCall, definition: ToolDefinition, reason: str | None
) -> ApprovalRequired:
    limit = round.settings.approval_timeout_ms
    return ApprovalRequired(
        tool_call_id=call.tool_call_id,
        tool_name=call.tool_name,
        arguments=call.arguments,
        reason=valid_text(reason or "") or None,
        expires_at=None if limit is None else round.settings.environment.now() + timedelta(milliseconds=limit),
        parameters=dict(definition.parameter_schema),
        definition_digest=definition.digest,
        preview=await preview_of(round, call, definition),
    )


async def preview_of(round: ToolRound, call: ToolCall, definition: ToolDefinition) -> dict[str, Any] | None:
    """What the call would do now, if its tool can tell. `ToolError` if it cannot succeed, or the preview fails."""
    if definition.preview is None:
        return None
    context: ToolContext[Any] = ToolContext(
        deps=round.settings.deps,
        tool_call_id=call.tool_call_id,
        tool_name=call.tool_name,
        run_id=round.run_id,
        session_id=round.session_id,
        agent=round.settings.agent if definition.requires_agent else None,
        runtime=round.settings.runtime if definition.requires_runtime else None,
    )
    refusals: list[ToolError] = []

    async def make(preview: MakePreview) -> dict[str, Any] | None:
        try:
            return await make_preview(preview, call.arguments, context)
        except ToolError as error:
            refusals.append(error)
            return None

    preview = await round.call("The preview", make(definition.preview), round.settings.timeout_ms / 1000)
    if refusals:
        raise refusals[0]
    return preview


def _is_same_call(question: ApprovalRequired, call: ToolCall, definition: ToolDefinition) -> bool:
    """Whether the question is about this call of this tool, whatever its preview."""
    return (question.tool_name, question.definition_digest) == (call.tool_name, definition.digest) and (
        arguments_digest({"arguments": question.arguments, "parameters": question.parameters})
        == arguments_digest({"arguments": call.arguments, "parameters": definition.parameter_schema})
    )


def _is_expired(round: ToolRound, question: ApprovalRequired) -> bool:
    return question.expires_at is not None and question.expires_at <= round.settings.environment.now()


class CallApproval:
    """A question and its answer."""

    def __init__(self, round: ToolRound, question: ApprovalRequired) -> None:
        self._round = round
        self.question = question
        self._verdict: ApprovalDecided | None = None  # the decision that the call acts upon

    def is_current(self) -> bool:
        """Whether the decision that the call acts upon is still the last one."""
        return self._stored() is self._verdict

    async def renewed(self, call: ToolCall, definition: ToolDefinition) -> "CallApproval":
        """This approval, if the call would still do what the question says; otherwise that of a new question, which is
        recorded unless the decision has been corrected in the meantime (`Superseded`)."""
        question = await _new_question(self._round, call, definition, self.question.reason)
        if question_digest(question) == question_digest(self.question):
            return self
        await self._round.record(question, still=self.is_current)
        return CallApproval(self._round, question)

    async def verdict(self) -> ApprovalDecided | None:
        """The decision to act upon; None if the call still waits for one. `ToolError` if the round was stopped."""
        self._verdict = self._stored()
        if self._verdict is None:
            with self._round.tracer.approval(self.question) as span:
                decision = await self._decision()
                if decision is not None:
                    await self._record(decision)
                self._verdict = self._stored()
                span.decided(self._verdict)
        return self._verdict

    def _stored(self) -> ApprovalDecided | None:
        """The last decision in the session that counts for this call."""
        stored_call = self._round.log.find(self.question.tool_call_id)
        verdict = None if stored_call is None else stored_call.verdict
        return verdict if verdict is not None and counts_for(verdict, self.question) else None

    async def _decision(self) -> Decision | None:
        """The approver's decision; None if there is no approver to ask, or if the session already has a decision."""
        settings, expires_at = self._round.settings, self.question.expires_at
        remaining_s = None if expires_at is None else (expires_at - settings.environment.now()).total_seconds()
        if remaining_s is not None and remaining_s <= 0:
            return Decision("expire", reason=_EXPIRED)
        if settings.approver is None:
            return None
        try:
            return await self._round.call("the approver", self._ask(settings.approver), remaining_s)
        except ToolError as error:
            if error.code is ErrorCode.TOOL_ABORTED:
                raise
            is_late = error.code is ErrorCode.TOOL_TIMEOUT
            return Decision("expire", reason=_EXPIRED) if is_late else Decision("deny", reason=error.message)

    async def _ask(self, approver: Approver) -> Decision | None:
        """The approver's decision; None if another process decided first, in which case the approver is cancelled."""
        asking = asyncio.create_task(contained(_answer(approver, self.question)))
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
            fact = decided_fact(self.question, decision)
        except ToolError as error:
            denied = Decision("deny", reason=error.message, decided_by=decision.decided_by)
            fact = decided_fact(self.question, denied)
        await self._round.record(fact, still=self.is_current)


async def _answer(approver: Approver, question: ApprovalRequired) -> Decision | None:
    """What the approver decides; `TypeError` if that is not a decision."""
    outcome: Any = approver.decide(question)
    if not isawaitable(outcome) or not isinstance(answer := await outcome, Decision | None):
        raise TypeError("decide() must be a coroutine function that returns a Decision or None")
    return answer
