"""Spans and metrics in memory, recorded by the SDK, and what the tests read from them."""

from collections.abc import Sequence
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler

from bartack.agent.tracing import SpanRef
from bartack.telemetry import Telemetry

Tree = list[Any]  # a list of names; a name with children is a tuple of the name and their tree


class Recorder:
    """Where telemetry goes in a test."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self._exporter = InMemorySpanExporter()
        self.tracer_provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self.meter_provider = MeterProvider([self._reader], shutdown_on_exit=False)

    def telemetry(self, *, content: bool | None = None) -> Telemetry:
        """Telemetry that is recorded here."""
        return Telemetry(content=content, tracer_provider=self.tracer_provider, meter_provider=self.meter_provider)

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        """The spans that have ended, by their start."""
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def named(self, name: str) -> list[ReadableSpan]:
        """The spans of this name."""
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        """The only span of this name."""
        (span,) = self.named(name)
        return span

    def tree(self, *, appends: bool = False) -> Tree:
        """The names of all spans, nested as the spans are."""
        return tree([span for span in self.spans if appends or span.name != "append"])

    def metrics(self) -> dict[str, list[Any]]:
        """The data points of each metric."""
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        return {
            metric.name: list(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


def tree(spans: Sequence[ReadableSpan]) -> Tree:
    """The names of these spans, nested as the spans are."""
    span_ids = {ids(span).span_id for span in spans}

    def below(parent: str | None) -> Tree:
        branches: Tree = []
        for span in spans:
            of = parent_of(span)
            if (of if of in span_ids else None) == parent:
                children = below(ids(span).span_id)
                branches.append((span.name, children) if children else span.name)
        return branches

    return below(None)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """The attributes of a span."""
    return dict(span.attributes or {})


def ids(span: ReadableSpan) -> SpanRef:
    """A span by its ids."""
    context = span.get_span_context()
    assert context is not None
    return SpanRef(f"{context.trace_id:032x}", f"{context.span_id:016x}")


def parent_of(span: ReadableSpan) -> str | None:
    """The id of the span above; None at the top."""
    return None if span.parent is None else f"{span.parent.span_id:016x}"
