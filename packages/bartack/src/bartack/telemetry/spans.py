"""The spans of model calls, tool calls, approvals and compactions, and what all of them have in common.

A span is current while its block runs, so that whatever is called there becomes its child. An error is recorded by its
code, never by its text, which may quote content. A span of a call also records the metrics of the call when it ends.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from time import perf_counter, perf_counter_ns, time_ns
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, use_span

from bartack.models.model import Model
from bartack.models.provider import ProviderModel
from bartack.nouns.deltas import Failed, MessageDelta, Start, Usage
from bartack.nouns.entries import ApprovalDecided, CompactionSummary
from bartack.nouns.errors import BartackError, ErrorCode, exception_text
from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.nouns.parts import ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest
from bartack.stream.assembler import MessageAssembler
from bartack.telemetry import content
from bartack.telemetry import conventions as names
from bartack.telemetry.conventions import Conventions, provider_name
from bartack.telemetry.metrics import Attributes, Instruments
from bartack.tools.definition import ToolDefinition
from bartack.tools.tracer import traceback_text

__all__ = [
    "OtelApprovalSpan",
    "OtelCompactionSpan",
    "OtelModelCallSpan",
    "OtelToolCallSpan",
    "call_attributes",
    "current",
    "current_span",
    "error_type",
    "model_attributes",
    "set_error",
    "span_clock",
    "tool_attributes",
    "traceparent",
]


def span_clock() -> Callable[[], int]:
    """A clock for the start and the end of a span, in nanoseconds: setting the wall clock does not change durations."""
    offset_ns = time_ns() - perf_counter_ns()
    return lambda: offset_ns + perf_counter_ns()


@contextmanager
def current_span(
    tracer: Tracer,
    name: str,
    attributes: Attributes,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    context: Context | None = None,
) -> Iterator[Span]:
    """A new span that is current in this block and ends with it. An exception marks it as failed."""
    clock = span_clock()
    span = tracer.start_span(name, context, kind=kind, attributes=attributes, start_time=clock())
    try:
        with current(span):
            yield span
    except BaseException as error:
        set_error(span, error_type(error))
        raise
    finally:
        span.end(clock())


def current(span: Span) -> AbstractContextManager[Span]:
    """Make the span current in a block. The text of an exception may quote content, so it is not recorded."""
    return use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False)


def set_error(span: Span, kind: str, description: str | None = None) -> None:
    """Mark the span as failed, with the code of the error."""
    span.set_attribute(names.ERROR_TYPE, kind)
    span.set_status(StatusCode.ERROR, description)


def error_type(error: BaseException) -> str:
    """The code of an error, or the name of its class if it is not one of ours."""
    if isinstance(error, BartackError):
        return str(error.code)
    if isinstance(error, asyncio.CancelledError):
        return str(ErrorCode.ABORTED)
    return type(error).__qualname__


class OtelToolCallSpan:
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

    def raised(self, error: BaseException) -> None:
        """An attempt has ended with this exception."""
        if self._span.is_recording():
            event = {
                "exception.type": type(error).__qualname__,
                "exception.stacktrace": traceback_text(error, has_content=self._has_content),
                **({"exception.message": exception_text(error)} if self._has_content else {}),
            }
            self._span.add_event("exception", event)

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


class OtelApprovalSpan:
    """The span of one wait for approval."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def decided(self, verdict: ApprovalDecided | None) -> None:
        """The wait is over; None if there is no decision and the run pauses."""
        self._span.set_attribute(names.APPROVAL_DECISION, "pending" if verdict is None else verdict.decision)


class OtelCompactionSpan:
    """The span of one compaction."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def compacted(self, fact: CompactionSummary) -> None:
        """Older turns are replaced by this summary."""
        counts = {names.TOKENS_BEFORE: fact.tokens_before, names.TOKENS_AFTER: fact.tokens_after}
        self._span.set_attributes({name: count for name, count in counts.items() if count is not None})


def tool_attributes(call: ToolCall, definition: ToolDefinition | None) -> Attributes:
    """A tool call by its names."""
    attributes: Attributes = {
        names.OPERATION: names.EXECUTE_TOOL,
        names.TOOL_NAME: call.tool_name,
        names.TOOL_CALL_ID: call.tool_call_id,
        names.TOOL_TYPE: "function",
    }
    if definition is not None and definition.description:
        attributes[names.TOOL_DESCRIPTION] = definition.description
    return attributes


_PORTS = {"https": 443, "http": 80}


class OtelModelCallSpan:
    """The span of one attempt at a model call."""

    def __init__(
        self,
        span: Span,
        request: ModelRequest,
        attributes: Attributes,
        *,
        instruments: Instruments,
        conventions: Conventions,
        has_content: bool,
    ) -> None:
        """`attributes` are those of the metrics."""
        self.traceparent = traceparent(span)
        self._span = span
        self._attributes = attributes
        self._instruments = instruments
        self._conventions = conventions
        self._has_content = has_content and span.is_recording()
        self._began = perf_counter()
        if self._has_content:
            self._set_json(names.SYSTEM_INSTRUCTIONS, content.instructions(request.messages))
            self._set_json(names.INPUT_MESSAGES, content.messages(request.messages))
            self._set_json(names.TOOL_DEFINITIONS, content.tool_definitions(request.tools))

    def received(self, delta: MessageDelta) -> bool:
        """A delta has arrived. Returns whether to report the next one too: until the first delta with content."""
        if isinstance(delta.delta, Start | Usage):
            return True
        if not isinstance(delta.delta, Failed):
            seconds = perf_counter() - self._began
            self._span.set_attribute(names.TIME_TO_FIRST_CHUNK, seconds)
            self._instruments.first_chunk(seconds, self._attributes)
        return False

    def finished(self, assembler: MessageAssembler, failed: Failed | None) -> None:
        """The stream has ended."""
        seconds = perf_counter() - self._began
        message = assembler.snapshot()
        meta = message.meta or Meta()
        usage = assembler.usage
        cost = meta.cost_usd if usage is None or usage.cost is None else usage.cost
        metric: Attributes = {**self._attributes}
        if meta.model is not None and meta.model.model:
            metric[names.RESPONSE_MODEL] = meta.model.model
        self._instruments.used(usage, cost, metric)
        if failed is not None:
            metric[names.ERROR_TYPE] = str(failed.error_code)
            set_error(self._span, str(failed.error_code), failed.message if self._has_content else None)
        self._instruments.ended(names.CHAT, seconds, metric)
        self._set_response(message, meta, metric, cost)
        for name, count in self._conventions.usage(usage).items():
            self._span.set_attribute(name, count)

    def _set_response(self, message: Message, meta: Meta, metric: Attributes, cost: float | None) -> None:
        values = {
            names.RESPONSE_ID: meta.response_id,
            names.RESPONSE_MODEL: metric.get(names.RESPONSE_MODEL),
            names.RESPONSE_FINISH_REASONS: None if meta.finish_reason is None else (meta.finish_reason,),
            **dict.fromkeys(names.CALL_COSTS, cost),
        }
        self._span.set_attributes({name: value for name, value in values.items() if value is not None})
        if self._has_content and message.parts:
            reason = meta.finish_reason if self._conventions.message_has_finish_reason else None
            self._set_json(names.OUTPUT_MESSAGES, content.output_message(message, reason))

    def _set_json(self, name: str, value: list[dict[str, Any]]) -> None:
        if value:
            self._span.set_attribute(name, content.as_json(value))


def model_attributes(model: Model, ref: ModelRef) -> Attributes:
    """The model of a run or a call, and where it is."""
    attributes: Attributes = {names.PROVIDER: provider_name(ref.provider), names.REQUEST_MODEL: ref.model}
    if isinstance(model, ProviderModel):
        url = urlsplit(model.base_url)
        attributes[names.SERVER_ADDRESS] = url.hostname or ""
        attributes[names.SERVER_PORT] = url.port or _PORTS[url.scheme]
    return attributes


def call_attributes(request: ModelRequest) -> Attributes:
    """The settings of a call and its place in the run."""
    config, metadata = request.config, request.metadata
    values: dict[str, Any] = {
        names.CONVERSATION_ID: metadata.session_id,
        names.RUN_ID: metadata.run_id,
        names.CALL_INDEX: metadata.model_call_index,
        names.CALL_ATTEMPT: metadata.attempt,
        names.REQUEST_MAX_TOKENS: config.max_tokens,
        names.REQUEST_TEMPERATURE: config.temperature,
        names.REQUEST_TOP_P: config.top_p,
        names.REQUEST_SEED: config.seed,
        names.REQUEST_STOP_SEQUENCES: config.stop_sequences,
        names.OUTPUT_TYPE: None if config.output_schema is None else "json",
    }
    return {names.REQUEST_STREAM: True} | {name: value for name, value in values.items() if value is not None}


def traceparent(span: Span) -> str | None:
    """The span as a header of W3C Trace Context; None if it is not part of a trace."""
    context = span.get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
