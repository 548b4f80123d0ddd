"""A run with everything: a retry, a sub-agent, an approval, a kill -9 in the middle of a tool, and a resume elsewhere.

`run_story` starts a scripted provider and two processes. The first one is killed while it books a train, the second one
resumes the session. Both send their spans to a collector as they end. `lab/draw_charts.py` draws what arrives.

As a program: ``python -m tests.telemetry.story run|resume STORE`` with the provider and the collector in the
environment.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from bartack import Agent, ApprovalRequired, connect, tool
from bartack.agent import RetryPolicy
from bartack.telemetry import Telemetry
from bartack.tools import Decision
from lab.repository import ROOT
from tests.cli.provider_server import Script, provider
from tests.telemetry.collector import Collector

__all__ = ["SESSION", "STARTED", "run_story"]

SESSION = "trip"
STARTED = "booking"  # what the first process prints before it waits to be killed
TIMEOUT = 120  # seconds; only a hang takes this long

SCRIPT: Script = [
    [{"status": 503, "error": "try later"}],
    [{"pause": 0.06}, "Let me ask.", {"call": "forecast", "arguments": {"prompt": "Rain in Paris tomorrow?"}}],
    [{"pause": 0.04}, {"call": "station", "arguments": {"city": "Paris"}}],
    [{"pause": 0.05}, "Rain until noon."],
    [{"pause": 0.07}, "A later train, then.", {"call": "book", "arguments": {"train": "TGV 6607"}}],
    [{"pause": 0.05}, "Let me see.", {"call": "bookings", "arguments": {}}],
    [{"pause": 0.06}, "Nothing was booked. Shall I try again?"],
]


@tool
def station(city: str) -> str:
    """The latest measurements of a weather station."""
    time.sleep(0.03)
    return f"{city}: 14 degrees, rain"


@tool(requires_approval=True)
async def book(train: str) -> str:
    """Book a train."""
    print(STARTED, flush=True)
    await asyncio.sleep(TIMEOUT)
    return f"{train} is booked"


@tool
def bookings() -> str:
    """The bookings of this user."""
    time.sleep(0.02)
    return "none"


class Traveller:
    """Approves after a moment."""

    async def decide(self, request: ApprovalRequired) -> Decision:
        await asyncio.sleep(0.09)
        return Decision("approve", decided_by="ann")


async def main(command: str, store: str) -> None:
    """Run the agent, or resume its run."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
    model = connect("openai-compatible:test")
    forecaster = Agent(model, tools=[station], name="forecaster", store="memory:")
    agent = Agent(
        model,
        tools=[forecaster.as_tool("forecast", "Ask for a weather forecast."), book, bookings],
        name="guide",
        store=store,
        approver=Traveller(),
        retry=RetryPolicy(base_ms=60, jitter=0),
        telemetry=Telemetry(tracer_provider=provider),
    )
    async with agent:
        if command == "run":
            await agent.run("Book me a dry train to Paris", session=SESSION)
        else:
            await agent.resume(SESSION)
    await model.aclose()
    provider.shutdown()


def run_story(folder: Path, receiver: Collector) -> None:
    """Run the agent, kill it, and resume in another process. The session is in ``folder/sessions.db``."""
    with provider(SCRIPT) as server:
        environment = os.environ | {
            "OPENAI_COMPATIBLE_BASE_URL": server.base_url,
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
            "OTEL_SERVICE_NAME": "travel",
        }
        words = [sys.executable, "-m", "tests.telemetry.story"]
        store = f"sqlite:{folder / 'sessions.db'}"
        root = ROOT
        with subprocess.Popen(
            [*words, "run", store], env=environment, cwd=root, stdout=subprocess.PIPE, text=True
        ) as first:
            try:
                assert first.stdout is not None
                assert first.stdout.readline().strip() == STARTED
            finally:
                first.send_signal(signal.SIGKILL)
        subprocess.run([*words, "resume", store], env=environment, cwd=root, check=True, timeout=TIMEOUT)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
