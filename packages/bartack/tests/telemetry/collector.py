"""A collector on the loopback address: it receives OTLP over HTTP and keeps what it gets as the messages of OTLP."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

__all__ = ["Collector", "attributes_of", "collector"]


class Collector:
    """What has arrived."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"  # the value of OTEL_EXPORTER_OTLP_ENDPOINT
        self.traces: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.headers: list[dict[str, str]] = []  # the headers of each request

    @property
    def spans(self) -> list[Span]:
        """All spans, by their start."""
        spans = [
            span
            for request in list(self.traces)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        return sorted(spans, key=lambda span: span.start_time_unix_nano)

    @property
    def services(self) -> set[str]:
        """The names of the services that have sent spans."""
        resource_spans = [spans for request in self.traces for spans in request.resource_spans]
        return {attributes_of(spans.resource)["service.name"] for spans in resource_spans}

    @property
    def metric_names(self) -> set[str]:
        """The metrics that have arrived."""
        return {
            metric.name
            for request in self.metrics
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


def attributes_of(owner: Any) -> dict[str, Any]:
    """The attributes of a span, an event, a link or a resource."""
    return {attribute.key: _value(attribute.value) for attribute in owner.attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return tuple(map(_value, value.array_value.values)) if kind == "array_value" else getattr(value, kind)


@contextmanager
def collector() -> Iterator[Collector]:
    """A collector on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.headers.append(dict(self.headers))
            if self.path == "/v1/traces":
                receiver.traces.append(ExportTraceServiceRequest.FromString(body))
            elif self.path == "/v1/metrics":
                receiver.metrics.append(ExportMetricsServiceRequest.FromString(body))
            self.send_response(200 if self.path in ("/v1/traces", "/v1/metrics") else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver = Collector(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()
