"""What telemetry costs: runs with a tool, without telemetry, with the API alone, and with the SDK.

Each round runs all of them in turn, so that a busy machine slows them alike, and the ratios of the CPU time to that of
runs without telemetry are compared. "Without" is measured twice: the ratio of the second to the first shows the noise.
Run it with `make bench` or `python -m bench.telemetry`.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Callable

from bartack import ToolCall, assistant
from bartack.agent import Agent
from bartack.agent.tracing import TelemetrySink
from bartack.models import ScriptedModel
from bartack.store import MemoryStore
from bartack.tools import tool

ROUNDS = 25
RUNS = 20  # in each round
ANSWER = "Rain, and then some more rain. " * 40


@tool
async def weather(city: str) -> str:
    """Weather forecast for a city."""
    return f"Rain in {city}."


async def seconds(telemetry: TelemetrySink | None) -> float:
    """The CPU time of some runs."""
    total = 0.0
    for _ in range(RUNS):
        model = ScriptedModel([assistant(ToolCall("c1", "weather", {"city": "Paris"})), ANSWER])
        agent = Agent(model, tools=[weather], store=MemoryStore(), telemetry=telemetry)
        began = time.process_time()
        await agent.run("Will it rain?")
        total += time.process_time() - began
    return total


def api() -> TelemetrySink:
    """Without an SDK, every span is empty."""
    from bartack.telemetry import Telemetry  # noqa: PLC0415 - not loaded by runs without telemetry

    return Telemetry()


def sdk(*, content: bool) -> TelemetrySink:
    """Spans and metrics in memory."""
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult  # noqa: PLC0415

    from bartack.telemetry import Telemetry  # noqa: PLC0415

    class Nowhere(SpanExporter):
        def export(self, spans: object) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(Nowhere()))
    meters = MeterProvider([InMemoryMetricReader()])
    return Telemetry(content=content, tracer_provider=provider, meter_provider=meters)


async def main() -> None:
    """Measure and print the ratios."""
    await seconds(None)  # imports and caches
    assert not any(name.startswith("opentelemetry") for name in sys.modules)
    kinds: dict[str, Callable[[], TelemetrySink | None]] = {
        "without telemetry": lambda: None,
        "without, again": lambda: None,
        "API alone": api,
        "SDK": lambda: sdk(content=False),
        "SDK, with content": lambda: sdk(content=True),
    }
    telemetries = {name: make() for name, make in kinds.items()}
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(ROUNDS):
        for name, telemetry in telemetries.items():
            times[name].append(await seconds(telemetry))
    base = times["without telemetry"]
    for name, measured in times.items():
        ratios = [value / base_value for value, base_value in zip(measured, base, strict=True)]
        per_run = statistics.median(measured) / RUNS * 1000
        print(f"{name:20} {per_run:6.2f} ms of CPU per run, {statistics.median(ratios):.3f} x")


if __name__ == "__main__":
    asyncio.run(main())
