"""Decisions about tool calls, and which call each of them applies to.

Request and decision are stored as facts with the exact arguments, and a decision applies to those arguments only:
approving ``rm build`` does not approve ``rm -r /``. If the tool's definition comes from elsewhere, both facts contain
its digest, and the decision applies to that definition only.
"""

import hashlib
import json
from typing import Any, Literal, get_args

import msgspec

from bartack.nouns.entries import ApprovalDecided, ApprovalRequired
from bartack.nouns.errors import ErrorCode, PartValidationError, ToolError
from bartack.nouns.messages import Approval, Message, Meta
from bartack.nouns.parts import ToolResult

__all__ = ["Decision", "Verdict", "arguments_digest", "counts_for", "decided_fact", "decision_of", "result_message"]

Verdict = Literal["approve", "deny", "modify_args", "pause", "resume", "abort", "expire"]


class _DecisionDetails(msgspec.Struct, frozen=True, kw_only=True):
    arguments: dict[str, Any] | None = None  # for modify_args: the arguments to run with
    reason: str | None = None
    decided_by: str | None = None
    arguments_digest: str | None = None  # of the arguments that were shown


class Decision(_DecisionDetails, frozen=True):
    """The decision about one call."""

    decision: Verdict

    def __post_init__(self) -> None:
        if self.decision not in get_args(Verdict):
            text = f"expected one of {', '.join(get_args(Verdict))}, got {self.decision!r}"
            raise PartValidationError(text, path="$.decision")


def arguments_digest(arguments: dict[str, Any]) -> str:
    """The SHA-256 of the arguments as JSON with sorted keys; `ToolError` if they are not JSON."""
    try:
        text = json.dumps(arguments, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolError(f"The arguments are not JSON: {error}", code=ErrorCode.TOOL_BAD_ARGUMENTS) from None
    return hashlib.sha256(text.encode()).hexdigest()


def decided_fact(request: ApprovalRequired, decision: Decision) -> ApprovalDecided:
    """The decision as a fact, with the arguments before and after.

    Raises `ToolError` if the decision does not fit the request: it was made for other arguments, ``modify_args`` comes
    without arguments, or ``approve`` with different ones.
    """
    shown = arguments_digest(request.arguments)
    if decision.arguments_digest is not None and decision.arguments_digest != shown:
        raise ToolError("The decision was made for other arguments.", code=ErrorCode.TOOL_DENIED)
    arguments = None
    if decision.decision == "modify_args":
        if decision.arguments is None:
            raise ToolError("modify_args needs arguments.", code=ErrorCode.TOOL_BAD_ARGUMENTS)
        arguments_digest(decision.arguments)
        arguments = decision.arguments
    elif decision.decision == "approve":
        if decision.arguments is not None and arguments_digest(decision.arguments) != shown:
            raise ToolError("approve cannot change arguments; use modify_args.", code=ErrorCode.TOOL_BAD_ARGUMENTS)
        arguments = request.arguments
    return ApprovalDecided(
        request.tool_call_id,
        decision.decision,
        original_arguments=request.arguments,
        arguments=arguments,
        reason=decision.reason,
        decided_by=decision.decided_by,
        definition_digest=request.definition_digest,
    )


def decision_of(decided: ApprovalDecided) -> Decision:
    """The decision that was recorded, for the same question asked elsewhere."""
    changed = decided.arguments if decided.decision == "modify_args" else None
    return Decision(decided.decision, arguments=changed, reason=decided.reason, decided_by=decided.decided_by)


def counts_for(
    fact: ApprovalRequired | ApprovalDecided, arguments: dict[str, Any], definition_digest: str | None = None
) -> bool:
    """Whether the question or decision is about exactly these arguments, and this definition of the tool."""
    if fact.definition_digest != definition_digest:
        return False
    asked = fact.arguments if isinstance(fact, ApprovalRequired) else fact.original_arguments
    if asked is None or arguments_digest(asked) != arguments_digest(arguments):
        return False
    if isinstance(fact, ApprovalDecided) and fact.decision == "approve":
        return fact.arguments is not None and arguments_digest(fact.arguments) == arguments_digest(arguments)
    return True


def result_message(result: ToolResult, decided: ApprovalDecided | None, posted_id: str | None = None) -> Message:
    """The message with the result of a call. Its metadata have the decision about the call, if there was one, and the
    entry that the result was posted with."""
    if decided is None and posted_id is None:
        return Message("tool", (result,))
    approvals = () if decided is None else (_approval(decided),)
    return Message("tool", (result,), meta=Meta(approvals=approvals or None, request_id=posted_id))


def _approval(decided: ApprovalDecided) -> Approval:
    return Approval(
        tool_call_id=decided.tool_call_id,
        decision=decided.decision,
        decided_by=decided.decided_by,
        reason=decided.reason,
    )
