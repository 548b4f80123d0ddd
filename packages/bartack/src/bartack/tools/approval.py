"""Approval: which calls need it, and who decides.

A policy decides whether a call needs approval; an `Approver` obtains a `Decision` (see `bartack.session.decisions`).
A provider that runs tools of MCP servers may ask as well. Its question is a call of `PROVIDER_QUESTIONS`, which every
run can answer without declaring a tool: it succeeds if it is approved, and fails if it is not.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from bartack.nouns.entries import ApprovalRequired
from bartack.nouns.errors import exception_text
from bartack.nouns.parts import ToolCall
from bartack.session.decisions import Decision
from bartack.tools.definition import ToolDefinition, tool

__all__ = [
    "PROVIDER_QUESTIONS",
    "ApprovalPolicy",
    "Approver",
    "always",
    "approval_reason",
    "by_definition",
    "by_tool",
    "never",
]

ApprovalPolicy = Callable[[ToolCall, ToolDefinition], bool | str]  # a text is a reason, shown with the question


class Approver(Protocol):
    """Obtains decisions, usually from a person."""

    async def decide(self, request: ApprovalRequired) -> Decision | None:
        """The decision; None leaves the question open, and the run pauses.

        May be called for several calls at once; is cancelled when the approval expires.
        """


# -- policies


def never(call: ToolCall, definition: ToolDefinition) -> bool:
    """No call needs approval, whatever its tool declares."""
    return False


def always(call: ToolCall, definition: ToolDefinition) -> bool:
    """Every call needs approval."""
    return True


def by_definition(call: ToolCall, definition: ToolDefinition) -> bool | str:
    """As the tool declares with `requires_approval`."""
    declared = definition.requires_approval
    return declared(call.arguments) if callable(declared) else declared


def by_tool(
    rules: Mapping[str, Literal["never", "always"]], otherwise: ApprovalPolicy = by_definition
) -> ApprovalPolicy:
    """A rule for each tool named, and another policy for the rest."""

    def policy(call: ToolCall, definition: ToolDefinition) -> bool | str:
        rule = rules.get(definition.name)
        return otherwise(call, definition) if rule is None else rule == "always"

    return policy


def approval_reason(policy: ApprovalPolicy, call: ToolCall, definition: ToolDefinition) -> str | None:
    """Why the call needs approval (may be empty), or None. A policy that raises requires approval."""
    try:
        answer = policy(call, definition)
    except Exception as error:  # noqa: BLE001 - a policy is user code
        return f"the approval policy failed: {exception_text(error)}"
    if isinstance(answer, str):
        return answer
    return "" if answer else None


# -- what a provider asks


@tool(name="mcp_approval_request", requires_approval=True, idempotent=True)
def _approve_mcp_call(server_label: str = "", name: str = "", arguments: Any = None) -> dict[str, bool]:
    """Lets the provider call a tool of an MCP server."""
    return {"approve": True}


PROVIDER_QUESTIONS: Mapping[str, ToolDefinition] = {_approve_mcp_call.name: _approve_mcp_call}
