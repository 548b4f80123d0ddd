"""Where the command line sends its spans and metrics: the SDK of OpenTelemetry (extra ``otlp``).

    with TelemetryExport() as export:
        agent = Agent(..., telemetry=export.telemetry)

The variables ``OTEL_*`` mean what they mean everywhere: ``OTEL_EXPORTER_OTLP_ENDPOINT``, ``OTEL_SERVICE_NAME``,
``OTEL_TRACES_SAMPLER`` and so on. Most of them are read by the SDK; here are those that choose an exporter. A program
that was started by ``opentelemetry-instrument`` has providers already, and those are used.

An exporter that cannot deliver anything delays the end of a program by a few seconds at most, and what it logs becomes
one `problem` instead of lines in the middle of an answer.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from bartack.app.errors import with_hint
from bartack.app.safe_text import safe_line
from bartack.nouns.errors import BartackError, ErrorCode
from bartack.telemetry import Telemetry

__all__ = ["Destination", "TelemetryExport", "destinations"]

_CLOSE_S = 3.0  # time to deliver what is left; a collector on the same machine needs milliseconds
_MAX_CHARS = 300  # limit of a log record; some quote a whole chain of exceptions
_PROTOCOLS = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
_PORTS = {"http/protobuf": 4318, "grpc": 4317}
_LIBRARY = "opentelemetry.exporter.otlp.proto.http"


class Destination(NamedTuple):
    """Where the data of one signal goes."""

    signal: str  # "traces" or "metrics"
    exporter: str  # its name among the entry points of installed packages
    address: str | None  # the collector's, without credentials
    variable: str  # the variable that chooses the exporter


def destinations(variables: Mapping[str, str]) -> list[Destination]:
    """Where these variables send spans and metrics; `BartackError` if they are contradictory or unknown."""
    if variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    chosen: list[Destination] = []
    for signal in ("traces", "metrics"):
        variable = f"OTEL_{signal.upper()}_EXPORTER"
        for name in (variables.get(variable, "").strip() or "otlp").split(","):
            match name.strip().lower():
                case "none":
                    continue
                case "otlp":
                    chosen.append(_otlp(signal, variable, variables))
                case other:
                    chosen.append(Destination(signal, other, None, variable))
    return chosen


def _otlp(signal: str, variable: str, variables: Mapping[str, str]) -> Destination:
    def value(setting: str) -> tuple[str, bool]:
        """The value for this signal, or else for all of them; and whether it is for this signal."""
        own = variables.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_{setting}", "").strip()
        return own or variables.get(f"OTEL_EXPORTER_OTLP_{setting}", "").strip(), bool(own)

    protocol = value("PROTOCOL")[0].lower() or "http/protobuf"
    if protocol not in _PROTOCOLS:
        text = f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}; supported are {' and '.join(_PROTOCOLS)}."
        raise BartackError(text, code=ErrorCode.INVALID_CONFIG)
    endpoint, is_own = value("ENDPOINT")
    address = endpoint or f"http://localhost:{_PORTS[protocol]}"
    if protocol != "grpc" and not is_own:
        address = f"{address.rstrip('/')}/v1/{signal}"
    return Destination(signal, _PROTOCOLS[protocol], _without_user(address), variable)


def _without_user(address: str) -> str:
    """The address without a user name and password."""
    url = urlsplit(address)
    return address if "@" not in url.netloc else url._replace(netloc=url.netloc.rpartition("@")[2]).geturl()


class TelemetryExport:
    """Telemetry for a program, from its start to its end."""

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        """Reads the environment, and connects to nothing yet.

        Raises `BartackError` with the code ``invalid_config``, and `ModuleNotFoundError` if the SDK is not installed.
        """
        self.problem: str | None = None  # why something was not delivered
        self._close: list[Callable[[], object]] = []
        self._addresses = ""
        self._log = _LastRecord()
        environment = os.environ if variables is None else variables
        if _is_configured():
            self.telemetry = Telemetry()
            return
        from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415 - slow, and another extra
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

        chosen = destinations(environment)
        exporters = [(destination.signal, _exporter(destination)) for destination in chosen]
        resource = _resource(environment)
        tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        for signal, exporter in exporters:
            if signal == "traces":
                tracers.add_span_processor(BatchSpanProcessor(exporter))
        readers = [PeriodicExportingMetricReader(exporter) for signal, exporter in exporters if signal == "metrics"]
        meters = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
        self.telemetry = Telemetry(tracer_provider=tracers, meter_provider=meters)
        self._close = [tracers.shutdown, meters.shutdown]
        self._addresses = ", ".join(dict.fromkeys(destination.address for destination in chosen if destination.address))

    def __enter__(self) -> Self:
        self._log.attach()
        return self

    def __exit__(self, *_: object) -> None:
        """Deliver what is left, for a few seconds at most."""
        threads = [threading.Thread(target=close, name="bartack-telemetry", daemon=True) for close in self._close]
        deadline = time.monotonic() + _CLOSE_S
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        is_late = any(thread.is_alive() for thread in threads)
        cause = self._log.text or (f"no response within {_CLOSE_S:g} s" if is_late else None)
        if cause is not None:
            self.problem = f"Telemetry was not delivered to {self._addresses}: {cause}"
        if not is_late:  # a late thread still logs, while the program ends
            self._log.detach()


def _is_configured() -> bool:
    """Whether the process has providers already."""
    from opentelemetry import trace  # noqa: PLC0415 - only needed here

    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def _resource(variables: Mapping[str, str]) -> Any:
    """What the data is about. The name of the service can be set by a variable."""
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - another extra

    is_named = variables.get("OTEL_SERVICE_NAME", "").strip() or "service.name=" in variables.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    return Resource.create({} if is_named else {"service.name": "bartack"})


def _exporter(destination: Destination) -> Any:
    """The exporter of an installed package. What the console one prints goes to stderr."""
    candidates = entry_points(group=f"opentelemetry_{destination.signal}_exporter", name=destination.exporter)
    if not candidates:
        if destination.exporter == _PROTOCOLS["http/protobuf"]:
            raise ModuleNotFoundError(f"No module named {_LIBRARY!r}", name=_LIBRARY)
        name = destination.exporter
        text = f"{destination.variable} or the protocol requires the exporter {name!r}, which is not installed."
        hint = f"Install the package that contains it, or set {destination.variable} to otlp, console or none."
        raise with_hint(BartackError(text, code=ErrorCode.INVALID_CONFIG), hint)
    exporter = next(iter(candidates)).load()
    return exporter(out=sys.stderr) if destination.exporter == "console" else exporter()


class _LastRecord(logging.Handler):
    """Keeps the last warning of the SDK, so that it is not printed in the middle of something else."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text: str | None = None
        self._logger = logging.getLogger("opentelemetry")
        self._propagates = self._logger.propagate

    def emit(self, record: logging.LogRecord) -> None:
        self.text = safe_line(record.getMessage())[:_MAX_CHARS]

    def attach(self) -> None:
        """Receive what the SDK logs; nothing else does."""
        self._logger.addHandler(self)
        self._logger.propagate = False

    def detach(self) -> None:
        """Leave the log as it was."""
        self._logger.removeHandler(self)
        self._logger.propagate = self._propagates
