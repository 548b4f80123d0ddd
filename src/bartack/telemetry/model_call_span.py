"""`ModelCallSpan`: one attempt at a model call as a span ``chat {model}``, with its metrics."""

from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.trace import Span

from bartack.models.model import Model
from bartack.models.provider import ProviderModel
from bartack.nouns.deltas import Failed, MessageDelta, Start, Usage
from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.nouns.requests import ModelRequest
from bartack.stream.assembler import MessageAssembler
from bartack.telemetry import content
from bartack.telemetry import conventions as names
from bartack.telemetry.conventions import Conventions, provider_name
from bartack.telemetry.metrics import Attributes, Instruments
from bartack.telemetry.spans import set_error

__all__ = ["ModelCallSpan", "call_attributes", "model_attributes", "traceparent"]

_PORTS = {"https": 443, "http": 80}


class ModelCallSpan:
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
    found: Attributes = {names.PROVIDER: provider_name(ref.provider), names.REQUEST_MODEL: ref.model}
    if isinstance(model, ProviderModel):
        url = urlsplit(model.base_url)
        found[names.SERVER_ADDRESS] = url.hostname or ""
        found[names.SERVER_PORT] = url.port or _PORTS[url.scheme]
    return found


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
