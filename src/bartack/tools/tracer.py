"""What tool calls report to a tracer: a span for each call and for each wait for approval.

`bartack.agent.tracing` extends this to whole runs, and `bartack.telemetry` implements it. Without a tracer, `Untraced`
takes its place.
"""

from contextlib import AbstractContextManager
from typing import Protocol, Self

from bartack.nouns.entries import ApprovalDecided, ApprovalRequired
from bartack.nouns.parts import ToolCall, ToolResult
from bartack.tools.definition import ToolDefinition

__all__ = ["ApprovalSpan", "ToolCallSpan", "ToolTracer", "Untraced"]


class ToolCallSpan(Protocol):
    """The span of one tool call."""

    def retrying(self, attempt: int) -> None:
        """The attempt with this number has failed, and another one follows."""

    def finished(self, result: ToolResult) -> None:
        """The call has this result."""


class ApprovalSpan(Protocol):
    """The span of one wait for approval."""

    def decided(self, verdict: ApprovalDecided | None) -> None:
        """The wait is over; None if there is no decision and the run pauses."""


class ToolTracer(Protocol):
    """Traces the tool calls of one run. Each span is current while its ``with`` block runs."""

    def tool_call(
        self, call: ToolCall, definition: ToolDefinition | None
    ) -> AbstractContextManager[ToolCallSpan, bool | None]:
        """The span of a call, which may end without having executed anything. The definition of an unknown tool is
        None."""

    def approval(self, question: ApprovalRequired) -> AbstractContextManager[ApprovalSpan, bool | None]:
        """The span of a wait for the answer to this question."""


class Untraced:
    """A tracer that does nothing, and its own spans."""

    def tool_call(self, call: ToolCall, definition: ToolDefinition | None) -> Self:
        return self

    def approval(self, question: ApprovalRequired) -> Self:
        return self

    def retrying(self, attempt: int) -> None: ...

    def finished(self, result: ToolResult) -> None: ...

    def decided(self, verdict: ApprovalDecided | None) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...
