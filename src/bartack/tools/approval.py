"""Who must be asked before a tool runs, and what the answer is worth.

A policy says whether a call needs a human; an `Approver` is the way to one; the answer is a `Decision`. Question and
answer are stored as facts with the exact arguments. An answer counts for those arguments only: whoever approved
``rm build`` has not approved ``rm -r /``, and an answer to other arguments than the call's is no answer.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

import msgspec

from bartack.nouns.entries import ApprovalDecided, ApprovalRequired
from bartack.nouns.errors import ErrorCode, ToolError
from bartack.nouns.parts import ToolCall
from bartack.tools.definition import ToolDefinition

__all__ = [
    "ApprovalPolicy",
    "Approver",
    "Decision",
    "always",
    "arguments_digest",
    "by_definition",
    "by_tool",
    "counts_for",
    "decided_fact",
    "never",
    "required_reason",
]

ApprovalPolicy = Callable[[ToolCall, ToolDefinition], bool | str]  # a text is the reason that the human is told
Verdict = Literal["approve", "deny", "modify_args", "pause", "resume", "abort", "expire"]


class _Grounds(msgspec.Struct, frozen=True, kw_only=True):
    arguments: dict[str, Any] | None = None  # of modify_args: what may run instead
    reason: str | None = None
    decided_by: str | None = None
    arguments_digest: str | None = None  # of the arguments that the human was shown


class Decision(_Grounds, frozen=True):
    """A human's word on one call."""

    decision: Verdict


class Approver(Protocol):
    """The way to a human."""

    async def decide(self, request: ApprovalRequired) -> Decision:
        """The human's word. It may be asked for several calls at once, and is cancelled when the time is up."""
        ...


# -- policies


def never(call: ToolCall, definition: ToolDefinition) -> bool:
    """Nobody is asked, whatever a tool declares."""
    return False


def always(call: ToolCall, definition: ToolDefinition) -> bool:
    """Every call is asked for."""
    return True


def by_definition(call: ToolCall, definition: ToolDefinition) -> bool | str:
    """What the tool declares: yes, no, or a function of the arguments."""
    declared = definition.requires_approval
    return declared(call.arguments) if callable(declared) else declared


def by_tool(
    rules: Mapping[str, Literal["never", "always"]], otherwise: ApprovalPolicy = by_definition
) -> ApprovalPolicy:
    """A rule for each tool that is named, and another policy for the rest."""

    def policy(call: ToolCall, definition: ToolDefinition) -> bool | str:
        match rules.get(definition.name):
            case "never":
                return False
            case "always":
                return True
            case None:
                return otherwise(call, definition)

    return policy


def required_reason(policy: ApprovalPolicy, call: ToolCall, definition: ToolDefinition) -> str | None:
    """Why a human must be asked ("" for no reason given), or None. A policy that fails asks: it must not let pass."""
    try:
        answer = policy(call, definition)
    except Exception as error:  # noqa: BLE001 - a policy is anyone's code
        return f"the approval policy failed: {type(error).__name__}: {error}"
    if isinstance(answer, str):
        return answer
    return "" if answer else None


# -- decisions


def arguments_digest(arguments: dict[str, Any]) -> str:
    """The SHA-256 of the arguments as JSON with sorted keys; `ToolError` for what is not JSON."""
    try:
        text = json.dumps(arguments, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolError(f"arguments are not JSON: {error}", code=ErrorCode.TOOL_BAD_ARGUMENTS) from None
    return hashlib.sha256(text.encode()).hexdigest()


def decided_fact(request: ApprovalRequired, decision: Decision) -> ApprovalDecided:
    """The decision as a fact with both versions of the arguments.

    `ToolError` where it does not answer this request: it was made for other arguments, ``modify_args`` gives none, or
    ``approve`` comes with other ones.
    """
    shown = arguments_digest(request.arguments)
    if decision.arguments_digest is not None and decision.arguments_digest != shown:
        raise ToolError("the decision was made for other arguments", code=ErrorCode.TOOL_DENIED)
    arguments = None
    if decision.decision == "modify_args":
        if decision.arguments is None:
            raise ToolError("modify_args gives the arguments that may run", code=ErrorCode.TOOL_BAD_ARGUMENTS)
        arguments_digest(decision.arguments)
        arguments = decision.arguments
    elif decision.decision == "approve":
        if decision.arguments is not None and arguments_digest(decision.arguments) != shown:
            raise ToolError("approve changes no arguments; modify_args does", code=ErrorCode.TOOL_BAD_ARGUMENTS)
        arguments = request.arguments
    return ApprovalDecided(
        request.tool_call_id,
        decision.decision,
        original_arguments=request.arguments,
        arguments=arguments,
        reason=decision.reason,
        decided_by=decision.decided_by,
    )


def counts_for(fact: ApprovalRequired | ApprovalDecided, arguments: dict[str, Any]) -> bool:
    """Whether the question or the answer is about exactly these arguments."""
    asked = fact.arguments if isinstance(fact, ApprovalRequired) else fact.original_arguments
    if asked is None or arguments_digest(asked) != arguments_digest(arguments):
        return False
    if isinstance(fact, ApprovalDecided) and fact.decision == "approve":
        return fact.arguments is not None and arguments_digest(fact.arguments) == arguments_digest(arguments)
    return True
