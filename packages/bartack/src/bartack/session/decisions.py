"""Decisions about tool calls, and which call each of them applies to.

A question is stored with everything that the decision is about: the tool, its parameters and the digest of its
definition, the exact arguments, and the preview that the tool made of what it would do. The decision is stored with
the digest of all that, and applies to that question only: approving ``rm build`` does not approve ``rm -r /``, and
approving a change to a file does not approve the same change to a file that differs.
"""

import hashlib
import json
from typing import Any, Literal, get_args

import msgspec

from bartack.nouns.entries import ApprovalDecided, ApprovalRequired
from bartack.nouns.errors import ErrorCode, PartValidationError, ToolError
from bartack.nouns.messages import Approval, Message, Meta
from bartack.nouns.parts import ToolResult

__all__ = [
    "Decision",
    "Verdict",
    "approval_id",
    "arguments_digest",
    "counts_for",
    "decided_fact",
    "decision_of",
    "question_digest",
    "read_approval_id",
    "result_message",
]

Verdict = Literal["approve", "deny", "modify_args", "pause", "resume", "abort", "expire"]


class _DecisionDetails(msgspec.Struct, frozen=True, kw_only=True):
    arguments: dict[str, Any] | None = None  # the arguments to run with, only for modify_args
    reason: str | None = None
    decided_by: str | None = None
    arguments_digest: str | None = None  # identifies the arguments that were shown
    question_digest: str | None = None  # identifies the question that was shown; None: whichever is open


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


def question_digest(question: ApprovalRequired) -> str:
    """The SHA-256 of all that a decision about the question applies to."""
    return arguments_digest(
        {
            "toolName": question.tool_name,
            "parameters": question.parameters,
            "definitionDigest": question.definition_digest,
            "arguments": question.arguments,
            "preview": question.preview,
        }
    )


def approval_id(question: ApprovalRequired) -> str:
    """The name of a question for a program that shows it to its user, and answers by this name: the digest and the id
    of the call. The same call that is asked about again, with another preview, has another name."""
    return f"{question_digest(question)} {question.tool_call_id}"


def read_approval_id(text: str) -> tuple[str, str]:
    """The id of the call and the digest in the name of a question; a digest that fits no question if there is none."""
    digest, separator, tool_call_id = text.partition(" ")
    return (tool_call_id, digest) if separator else (text, "")


def decided_fact(request: ApprovalRequired, decision: Decision) -> ApprovalDecided:
    """The decision as a fact, with the arguments before and after.

    Raises `ToolError` if the decision does not fit the request: it was made for another question or other arguments,
    ``modify_args`` comes without arguments, or ``approve`` with different ones.
    """
    if decision.question_digest not in (None, question_digest(request)):
        raise ToolError("The decision was made for another question.", code=ErrorCode.TOOL_DENIED)
    digest = arguments_digest(request.arguments)
    if decision.arguments_digest is not None and decision.arguments_digest != digest:
        raise ToolError("The decision was made for other arguments.", code=ErrorCode.TOOL_DENIED)
    arguments = None
    if decision.decision == "modify_args":
        if decision.arguments is None:
            raise ToolError("modify_args needs arguments.", code=ErrorCode.TOOL_BAD_ARGUMENTS)
        arguments_digest(decision.arguments)
        arguments = decision.arguments
    elif decision.decision == "approve":
        if decision.arguments is not None and arguments_digest(decision.arguments) != digest:
            raise ToolError("approve cannot change arguments; use modify_args.", code=ErrorCode.TOOL_BAD_ARGUMENTS)
        arguments = request.arguments
    return ApprovalDecided(
        tool_call_id=request.tool_call_id,
        decision=decision.decision,
        original_arguments=request.arguments,
        arguments=arguments,
        reason=decision.reason,
        decided_by=decision.decided_by,
        definition_digest=request.definition_digest,
        question_digest=question_digest(request),
    )


def decision_of(decided: ApprovalDecided) -> Decision:
    """The decision that was recorded, for the same question asked elsewhere."""
    changed = decided.arguments if decided.decision == "modify_args" else None
    return Decision(
        decided.decision,
        arguments=changed,
        reason=decided.reason,
        decided_by=decided.decided_by,
        question_digest=decided.question_digest,
    )


def counts_for(decided: ApprovalDecided, question: ApprovalRequired) -> bool:
    """Whether the decision is about exactly this question.

    A decision that names no question is one of an earlier version: it is about the arguments and the definition.
    """
    if decided.question_digest not in (None, question_digest(question)):
        return False
    if decided.definition_digest != question.definition_digest or decided.original_arguments is None:
        return False
    digest = arguments_digest(question.arguments)
    if arguments_digest(decided.original_arguments) != digest:
        return False
    if decided.decision == "approve":
        return decided.arguments is not None and arguments_digest(decided.arguments) == digest
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
