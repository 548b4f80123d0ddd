"""The spans of tool calls, approvals and compactions."""

from time import perf_counter

from opentelemetry.trace import Span

from bartack.nouns.entries import ApprovalDecided, CompactionSummary
from bartack.nouns.parts import ToolCall, ToolResult
from bartack.telemetry import content
from bartack.telemetry import conventions as names
from bartack.telemetry.metrics import Attributes, Instruments
from bartack.telemetry.spans import set_error
from bartack.tools.definition import ToolDefinition

__all__ = ["ApprovalSpan", "CompactionSpan", "ToolCallSpan", "tool_attributes"]


class ToolCallSpan:
    """The span of one tool call."""

    def __init__(
        self,
        span: Span,
        call: ToolCall,
        attributes: Attributes,
        *,
        instruments: Instruments,
        has_content: bool,
    ) -> None:
        """`attributes` are those of the metrics."""
        self._span = span
        self._attributes = attributes
        self._instruments = instruments
        self._has_content = has_content and span.is_recording()
        self._began = perf_counter()
        if self._has_content:
            span.set_attribute(names.TOOL_ARGUMENTS, content.as_json(call.arguments))

    def retrying(self, attempt: int) -> None:
        """The attempt with this number has failed, and another one follows."""
        self._span.set_attribute(names.TOOL_ATTEMPTS, attempt + 1)
        self._instruments.retried(self._attributes)

    def finished(self, result: ToolResult) -> None:
        """The call has this result."""
        metric: Attributes = {**self._attributes}
        if result.is_error:
            metric[names.ERROR_TYPE] = str(result.error_code or "_OTHER")
            set_error(self._span, str(metric[names.ERROR_TYPE]))
        if self._has_content:
            output = content.tool_output(result.content)
            text = output if isinstance(output, str) else content.as_json(output)
            self._span.set_attribute(names.TOOL_RESULT, text)
        self._instruments.ended(names.EXECUTE_TOOL, perf_counter() - self._began, metric)


class ApprovalSpan:
    """The span of one wait for approval."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def decided(self, verdict: ApprovalDecided | None) -> None:
        """The wait is over; None if there is no decision and the run pauses."""
        self._span.set_attribute(names.APPROVAL_DECISION, "pending" if verdict is None else verdict.decision)


class CompactionSpan:
    """The span of one compaction."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def compacted(self, fact: CompactionSummary) -> None:
        """Older turns are replaced by this summary."""
        counts = {names.TOKENS_BEFORE: fact.tokens_before, names.TOKENS_AFTER: fact.tokens_after}
        self._span.set_attributes({name: count for name, count in counts.items() if count is not None})


def tool_attributes(call: ToolCall, definition: ToolDefinition | None) -> Attributes:
    """A tool call by its names."""
    found: Attributes = {
        names.OPERATION: names.EXECUTE_TOOL,
        names.TOOL_NAME: call.tool_name,
        names.TOOL_CALL_ID: call.tool_call_id,
        names.TOOL_TYPE: "function",
    }
    if definition is not None and definition.description:
        found[names.TOOL_DESCRIPTION] = definition.description
    return found
