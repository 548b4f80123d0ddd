"""What tool calls report to a tracer: a span for each call and for each wait for approval.

`bartack.agent.tracing` extends this to whole runs, and `bartack.telemetry` implements it. Without a tracer,
`UntracedTools` takes its place.
"""

import traceback
from contextlib import AbstractContextManager
from typing import Protocol, Self

from bartack.nouns.entries import ApprovalDecided, ApprovalRequired
from bartack.nouns.parts import ToolCall, ToolResult
from bartack.tools.definition import ToolDefinition

__all__ = ["ApprovalSpan", "ToolCallSpan", "ToolTracer", "UntracedTools", "traceback_text"]


def traceback_text(error: BaseException, *, has_content: bool) -> str:
    """Where the exception was raised, and by what. Its text may quote anything, so without `has_content` only the types
    of the exceptions are named."""
    if has_content:
        return "".join(traceback.format_exception(error)).rstrip()
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    before = [] if cause is None else [traceback_text(cause, has_content=False), "", "which led to:", ""]
    frames = "".join(traceback.format_tb(error.__traceback__)).rstrip()
    return "\n".join([*before, "Traceback (most recent call last):", *filter(None, [frames]), type(error).__qualname__])


class ToolCallSpan(Protocol):
    """The span of one tool call."""

    def retrying(self, attempt: int) -> None:
        """The attempt with this number has failed, and another one follows."""

    def raised(self, error: BaseException) -> None:
        """An attempt has ended with this exception."""

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


class UntracedTools:
    """A tracer that does nothing, and its own spans."""

    def tool_call(self, call: ToolCall, definition: ToolDefinition | None) -> Self:
        return self

    def approval(self, question: ApprovalRequired) -> Self:
        return self

    def retrying(self, attempt: int) -> None: ...

    def raised(self, error: BaseException) -> None: ...

    def finished(self, result: ToolResult) -> None: ...

    def decided(self, verdict: ApprovalDecided | None) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...
