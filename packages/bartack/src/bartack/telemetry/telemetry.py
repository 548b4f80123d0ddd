"""`Telemetry`: reports the runs of an agent as spans and metrics (`RunSpans`), and the jobs of a worker as metrics."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    SpanKind,
    TraceFlags,
    Tracer,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from bartack.agent.tracing import RunStart, SpanRef
from bartack.events import RunResult
from bartack.models.model import Model
from bartack.nouns.deltas import Failed
from bartack.nouns.entries import ApprovalRequired, Entry, Fact, RunStarted
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Message, ModelRef
from bartack.nouns.parts import ToolCall
from bartack.nouns.requests import ModelRequest
from bartack.nouns.tables import AgentStatus
from bartack.queues.run_queue import Job, Outcome, QueueStatus
from bartack.telemetry import content
from bartack.telemetry import conventions as names
from bartack.telemetry.conventions import LATEST, V1_41, Conventions
from bartack.telemetry.metrics import Attributes, Instruments, QueueInstruments
from bartack.telemetry.spans import (
    OtelApprovalSpan,
    OtelCompactionSpan,
    OtelModelCallSpan,
    OtelToolCallSpan,
    call_attributes,
    current,
    current_span,
    error_type,
    model_attributes,
    set_error,
    span_clock,
    tool_attributes,
)
from bartack.tools.definition import ToolDefinition

__all__ = ["CONTENT_VARIABLE", "STABILITY_VARIABLE", "RunSpans", "Telemetry", "captures_content"]

# -- one run: a span, with a span below it for everything that takes time
#
#     invoke_agent {agent}            the run
#       append                        an append to the store
#       chat {model}                  one attempt at a model call
#       wait_for_approval {tool}      a question to a person
#       execute_tool {tool}           a tool call, which is current while the tool runs
#         invoke_agent {agent}        a sub-agent
#       compact                       a compaction, with the call that writes the summary
#
# A run that is resumed, perhaps by another process, gets a new span with a link to the earlier one. Everything a
# sampler may look at is set when a span is created. An error is given by its code: its message may quote content.

_IDS = re.compile(r"[0-9a-f]{32}"), re.compile(r"[0-9a-f]{16}")


class RunSpans:
    """The spans and metrics of one run."""

    def __init__(
        self, start: RunStart, tracer: Tracer, instruments: Instruments, conventions: Conventions, *, content: bool
    ) -> None:
        """Starts the span of the run. It ends with `active`, or with `not_started`."""
        self._start = start
        self._tracer = tracer
        self._instruments = instruments
        self._conventions = conventions
        self._content = content
        self._model = model_attributes(start.model, start.ref)  # the model of the next call
        self._agent = _agent(start.agent)
        self._answering = self._agent  # another one after a handoff
        self._metric: Attributes = {names.OPERATION: names.INVOKE_AGENT, **self._agent}
        if conventions.agent_has_provider:
            self._metric |= self._model
        self._prompts: list[str] = []  # entry ids
        self._answer: str | None = None
        self._is_active = False
        self._clock = span_clock()
        self._span = tracer.start_span(
            _span_name(names.INVOKE_AGENT, start.agent),
            _parent(start.trace),
            attributes=self._run_attributes(),
            links=_links(start.continues),
            start_time=self._clock(),
        )
        self._has_failed = False
        self.span = _ref(self._span)

    def _run_attributes(self) -> Attributes:
        return {
            **self._metric,
            names.REQUEST_MODEL: self._start.ref.model,
            names.CONVERSATION_ID: self._start.session_id,
            names.RUN_ID: self._start.run_id,
            names.RUN_RESUMED: self._start.is_resumed,
        }

    # -- the run

    @contextmanager
    def active(self) -> Iterator[None]:
        """The run while it works; its span ends with the block."""
        start_time = perf_counter()
        self._is_active = True
        self._instruments.active(1, self._agent)
        try:
            with current(self._span):
                yield
        except BaseException as error:
            if not self._has_failed:
                self._fail(error_type(error))
            raise
        finally:
            self._instruments.active(-1, self._agent)
            with current(self._span):  # metrics link to the current span as their exemplar
                self._instruments.ended(names.INVOKE_AGENT, perf_counter() - start_time, self._metric)
            self._span.end(self._clock())

    def not_started(self, error: Exception) -> None:
        """The session could not be claimed, so there is no run."""
        self._fail(error_type(error))
        self._span.end(self._clock())

    def see(self, entry: Entry) -> None:
        """An entry has been stored, by the run or by others."""
        match entry.fact:
            case RunStarted(agent=agent):
                self._answering = _agent(agent)
            case Message(role="user"):
                self._prompts.append(entry.id)
            case Message(role="assistant"):
                self._answer = entry.id
            case _:
                pass

    def finished(self, result: RunResult) -> None:
        """The run has this result."""
        self._span.set_attribute(names.RUN_STATUS, str(result.status))
        if result.status is AgentStatus.FAILED:
            self._fail(str(ErrorCode.INTERNAL_ERROR if result.error is None else result.error.error_code))
        usage = self._conventions.usage(result.usage)
        if not self._conventions.agent_has_provider:
            usage = {name: count for name, count in usage.items() if name in (names.INPUT_TOKENS, names.OUTPUT_TOKENS)}
        self._span.set_attributes(usage)
        if result.cost_usd is not None:
            self._span.set_attribute(names.COST, result.cost_usd)
        if self._content and self._span.is_recording():
            self._set_content()

    def _set_content(self) -> None:
        visible = self._start.visible()
        prompts = [visible[entry_id] for entry_id in self._prompts if entry_id in visible]
        if prompts:
            self._span.set_attribute(names.INPUT_MESSAGES, content.as_json(content.messages(prompts)))
        answer = None if self._answer is None else visible.get(self._answer)
        if answer is not None:
            meta = answer.meta if self._conventions.message_has_finish_reason else None
            reason = None if meta is None else meta.finish_reason
            self._span.set_attribute(names.OUTPUT_MESSAGES, content.as_json(content.output_message(answer, reason)))

    def _fail(self, kind: str) -> None:
        self._has_failed = True
        self._metric[names.ERROR_TYPE] = kind
        set_error(self._span, kind)

    # -- what it does

    @contextmanager
    def model_call(self, request: ModelRequest, model: Model, ref: ModelRef) -> Iterator[OtelModelCallSpan]:
        """The span of one attempt at a model call."""
        self._model = model_attributes(model, ref)
        metric: Attributes = {names.OPERATION: names.CHAT, **self._model}
        attributes = {**metric, **self._answering, **call_attributes(request)}
        name = f"{names.CHAT} {ref.model}"
        with current_span(self._tracer, name, attributes, kind=SpanKind.CLIENT) as span:
            yield OtelModelCallSpan(
                span,
                request,
                metric,
                instruments=self._instruments,
                conventions=self._conventions,
                has_content=self._content,
            )

    def retrying_call(self, failed: Failed, attempt: int, delay_ms: int) -> None:
        """A model call has failed and attempt number `attempt` follows."""
        kind: Attributes = {names.ERROR_TYPE: str(failed.error_code)}
        self._instruments.retried({names.OPERATION: names.CHAT, **self._model, **kind})
        event = {**kind, names.CALL_ATTEMPT: attempt, names.RETRY_DELAY: delay_ms}
        self._span.add_event(names.RETRY_EVENT, event)

    @contextmanager
    def tool_call(self, call: ToolCall, definition: ToolDefinition | None) -> Iterator[OtelToolCallSpan]:
        """The span of a call, which may end without having executed anything.

        The name of an unknown tool was made up by the model, so it is neither in the name of the span nor in metrics.
        """
        tool_name = None if definition is None else definition.name
        metric: Attributes = {names.OPERATION: names.EXECUTE_TOOL}
        if tool_name is not None:
            metric[names.TOOL_NAME] = tool_name
        attributes = {**tool_attributes(call, definition), **self._place()}
        with current_span(self._tracer, _span_name(names.EXECUTE_TOOL, tool_name), attributes) as span:
            has_content = self._content and not self._is_redacted(call)
            yield OtelToolCallSpan(span, call, metric, instruments=self._instruments, has_content=has_content)

    def _is_redacted(self, call: ToolCall) -> bool:
        """Whether the answer that contains the call has been redacted: then it is still there, without arguments."""
        for message in reversed(self._start.visible().values()):
            for stored_call in message.tool_calls:
                if stored_call.tool_call_id == call.tool_call_id:
                    return not stored_call.arguments and bool(call.arguments)
        return False

    @contextmanager
    def approval(self, question: ApprovalRequired) -> Iterator[OtelApprovalSpan]:
        """The span of a wait for the answer to this question."""
        attributes = {names.TOOL_NAME: question.tool_name, names.TOOL_CALL_ID: question.tool_call_id, **self._place()}
        with current_span(self._tracer, _span_name(names.WAIT_FOR_APPROVAL, question.tool_name), attributes) as span:
            yield OtelApprovalSpan(span)

    @contextmanager
    def compaction(self, *, overflow: bool) -> Iterator[OtelCompactionSpan]:
        """The span of one compaction; `overflow` if the provider has refused the context."""
        with current_span(self._tracer, names.COMPACT, {names.COMPACTION_OVERFLOW: overflow, **self._place()}) as span:
            yield OtelCompactionSpan(span)

    @contextmanager
    def append(self, facts: Sequence[Fact]) -> Iterator[None]:
        """The span of one append to the store. The first one is made before the run is active.

        It has no attribute of the GenAI conventions, so that viewers which show nothing else leave it out.
        """
        kinds = tuple(fact.kind for fact in facts)
        attributes: Attributes = {names.APPEND_KINDS: kinds, names.RUN_ID: self._start.run_id}
        context = None if self._is_active else set_span_in_context(self._span)
        with current_span(self._tracer, names.APPEND, attributes, context=context):
            yield

    def _place(self) -> Attributes:
        return {names.CONVERSATION_ID: self._start.session_id, names.RUN_ID: self._start.run_id}


def _agent(name: str | None) -> Attributes:
    return {} if name is None else {names.AGENT_NAME: name}


def _span_name(operation: str, name: str | None) -> str:
    return operation if name is None else f"{operation} {name}"


def _parent(trace: str | None) -> Context | None:
    """The current context, or if it has no span, the ``traceparent`` that the run is started in."""
    if trace is None or get_current_span().get_span_context().is_valid:
        return None
    return TraceContextTextMapPropagator().extract({"traceparent": trace})


def _ref(span: Span) -> SpanRef | None:
    context = span.get_span_context()
    return SpanRef(f"{context.trace_id:032x}", f"{context.span_id:016x}") if context.is_valid else None


def _links(earlier: SpanRef | None) -> list[Link]:
    """A link to the span of the run before it was interrupted, unless another program wrote something else there."""
    if earlier is None or not all(ids.fullmatch(value) for ids, value in zip(_IDS, earlier, strict=True)):
        return []
    trace_id, span_id = (int(value, 16) for value in earlier)
    linked = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    return [Link(linked, {names.LINK: "resumed_run"})]


# -- all runs of an agent

CONTENT_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
STABILITY_VARIABLE = "OTEL_SEMCONV_STABILITY_OPT_IN"
_LATEST = "gen_ai_latest_experimental"
# The values of the variable that put content into spans: a boolean, or a mode of newer instrumentations.
_CONTENT = frozenset(("true", "1", "span_only", "span_and_event"))


class Telemetry:
    """Spans and metrics of runs, by the OpenTelemetry conventions for generative AI.

    One object can serve any number of agents. A sub-agent without one uses that of the agent that calls it.
    """

    def __init__(
        self,
        *,
        content: bool | None = None,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        """Without providers, OpenTelemetry's global ones are used, even if they are set later.

        With `content`, spans contain prompts, answers, arguments and results, except those already redacted. The
        default is ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT``; without it, spans contain no content.
        """
        opted = {value.strip() for value in os.environ.get(STABILITY_VARIABLE, "").split(",")}
        self._conventions = LATEST if _LATEST in opted else V1_41
        self._content = captures_content(os.environ) if content is None else content
        url = self._conventions.schema_url
        self._tracer = trace.get_tracer("bartack", tracer_provider=tracer_provider, schema_url=url)
        meter = metrics.get_meter("bartack", meter_provider=meter_provider, schema_url=url)
        self._instruments = Instruments(meter, self._conventions)
        self._queue_instruments = QueueInstruments(meter)

    def start_run(self, start: RunStart) -> RunSpans:
        """The tracer of a new run."""
        return RunSpans(start, self._tracer, self._instruments, self._conventions, content=self._content)

    def job_claimed(self, job: Job, waited_s: float) -> None:
        """A worker starts a job, this long after it was enqueued or due."""
        self._queue_instruments.claimed(job, waited_s)

    def job_ended(self, job: Job, outcome: Outcome, seconds: float, code: ErrorCode | None) -> None:
        """The worker has completed the job, this long after it started."""
        self._queue_instruments.ended(job, outcome, seconds, code)

    def queue_observed(self, status: QueueStatus, engine: str) -> None:
        """What the queue is doing at the moment."""
        self._queue_instruments.observed(status, engine)


def captures_content(variables: Mapping[str, str]) -> bool:
    """Whether these environment variables ask for content in spans."""
    return variables.get(CONTENT_VARIABLE, "").strip().lower() in _CONTENT
