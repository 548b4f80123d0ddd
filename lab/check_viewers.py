"""Check how viewers read the spans of a run: Phoenix, Logfire and Langfuse, at pinned versions.

    python -m lab.check_viewers

They are installed into .venv-viewers. Phoenix is a real server: the run is sent to it over OTLP, and what it stored is
read back over its API. The servers of Logfire and Langfuse are not packages; instead, their SDKs process the spans: the
processor of Logfire rewrites and scrubs spans before it sends them, and the filter of Langfuse decides which ones it
sends.
"""

import asyncio
import json
import os
import subprocess
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from bartack import Agent, ErrorCode, Failed, Message, Meta, ScriptedModel, ToolCall, Usage, assistant, tool
from bartack.agent import RetryPolicy
from bartack.telemetry import Telemetry
from lab.postgres_cluster import free_port
from lab.repository import ROOT, import_path

VENV = ROOT / ".venv-viewers"
PACKAGES = ("arize-phoenix==20.26.1", "logfire==5.2.0", "langfuse==5.0.4", "msgspec")
START_S = 120  # for a server that migrates its database first


@tool
def weather(city: str) -> str:
    """Weather forecast for a city."""
    return f"Rain in {city}."


async def run(telemetry: Telemetry) -> None:
    """A run with a retry and a tool."""
    call = ToolCall("c1", "weather", {"city": "Paris"})
    answers: list[Failed | Message] = [
        Failed(ErrorCode.OVERLOADED, "try later", retryable=True),
        assistant("Let me see.", call, meta=Meta(usage=Usage(20, 5, cache_read_tokens=8, cost=0.25))),
        assistant("Rain.", meta=Meta(usage=Usage(30, 6, cost=0.5))),
    ]
    agent = Agent(
        ScriptedModel(answers),
        tools=[weather],
        name="guide",
        instructions="Be brief.",
        store="memory:",
        retry=RetryPolicy(base_ms=1),
        telemetry=telemetry,
    )
    await agent.run("Will it rain?", session="trip")


def main() -> None:
    python = environment()
    check_phoenix(python)
    for name in ("logfire", "langfuse"):
        env = os.environ | {"PYTHONPATH": import_path()}
        subprocess.run([python, "-c", SDKS[name]], check=True, env=env, cwd=ROOT)


def environment() -> Path:
    """The Python of an environment with the viewers."""
    python = VENV / "bin" / "python"
    marker = VENV / "packages"
    if not marker.exists() or marker.read_text() != "\n".join(PACKAGES):
        venv.create(VENV, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *PACKAGES], check=True)
        marker.write_text("\n".join(PACKAGES))
    return python


# -- Phoenix


def check_phoenix(python: Path) -> None:
    """Send a run to Phoenix, and compare what it shows."""
    with phoenix(python) as address:
        exporter = OTLPSpanExporter(f"{address}/v1/traces")
        provider = TracerProvider(resource=Resource.create({"openinference.project.name": "check"}))
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        asyncio.run(run(Telemetry(content=True, tracer_provider=provider)))
        provider.shutdown()
        spans = stored(address)
    kinds = {span["name"]: span["span_kind"] for span in spans}
    assert kinds == {
        "invoke_agent guide": "AGENT",
        "chat scripted": "LLM",
        "execute_tool weather": "TOOL",
        "append": "UNKNOWN",
    }, kinds
    attributes = {span["name"]: span["attributes"] for span in reversed(spans)}
    expected: dict[str, dict[str, Any]] = {
        "invoke_agent guide": {
            "session.id": "trip",
            "llm.input_messages.0.message.content": "Will it rain?",
            "llm.output_messages.0.message.content": "Rain.",
        },
        "execute_tool weather": {
            "tool.name": "weather",
            "tool.parameters.city": "Paris",
            "output.value": "Rain in Paris.",
        },
    }
    for name, values in expected.items():
        assert {key: attributes[name].get(key) for key in values} == values, json.dumps(attributes[name], indent=1)
    calls = [span for span in spans if span["name"] == "chat scripted"]
    assert sorted(span["status_code"] for span in calls) == ["ERROR", "UNSET", "UNSET"]
    assert sorted(span["attributes"].get("llm.token_count.total", 0) for span in calls) == [0, 25, 36]
    assert any(
        span["attributes"].get("llm.input_messages.2.message.tool_calls.0.tool_call.function.name") == "weather"
        for span in calls
    )
    print("phoenix: kinds, sessions, messages, tool calls, token counts and errors as expected")


@contextmanager
def phoenix(python: Path) -> Iterator[str]:
    """The address of a Phoenix server."""
    with tempfile.TemporaryDirectory() as folder:
        port, grpc = free_port(), free_port()
        env = os.environ | {
            "PHOENIX_WORKING_DIR": folder,
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": str(port),
            "PHOENIX_GRPC_PORT": str(grpc),
            "PHOENIX_TELEMETRY_ENABLED": "false",
        }
        words = [str(python.with_name("phoenix")), "serve"]
        with subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
            try:
                address = f"http://127.0.0.1:{port}"
                wait_for(f"{address}/healthz")
                yield address
            finally:
                server.terminate()


def wait_for(url: str) -> bytes:
    """What is at this address, once the server answers."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            with urlopen(url, timeout=5) as response:
                body: bytes = response.read()
                return body
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def stored(address: str) -> list[dict[str, Any]]:
    """The spans that Phoenix has stored, once the root has arrived; newest first."""
    while True:
        spans: list[dict[str, Any]] = json.loads(wait_for(f"{address}/v1/projects/check/spans?limit=100"))["data"]
        if any(span["parent_id"] is None for span in spans):
            return spans
        time.sleep(0.5)


# -- SDKs, run inside the environment

_HEAD = """
import asyncio
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from bartack.telemetry import Telemetry
from lab.check_viewers import run
spans = InMemorySpanExporter()
"""
SDKS = {
    "logfire": _HEAD
    + """
import logfire
logfire.configure(send_to_logfire=False, console=False, additional_span_processors=[SimpleSpanProcessor(spans)])
asyncio.run(run(Telemetry(content=True)))  # with the global provider, which logfire has set
found = [span for span in spans.get_finished_spans() if span.attributes.get("logfire.span_type") != "pending_span"]
names = sorted(span.name for span in found if span.name != "append")
assert names == ["chat scripted"] * 3 + ["execute_tool weather", "invoke_agent guide"], names
scrubbed = {span.name for span in found if "logfire.scrubbed" in span.attributes}
assert scrubbed == {"append"}, scrubbed  # the kind session_header, because it contains "session"
costs = sorted(span.attributes["operation.cost"] for span in found if "operation.cost" in span.attributes)
assert costs == [0.25, 0.5], costs
failed = [span.attributes["logfire.level_num"] for span in found if "error.type" in span.attributes]
assert failed == [17], failed  # its level for errors
print("logfire: names, costs and errors as expected")
""",
    "langfuse": _HEAD
    + """
from langfuse._client.span_filter import is_default_export_span
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
asyncio.run(run(Telemetry(content=True, tracer_provider=provider)))
sent = sorted(span.name for span in spans.get_finished_spans() if is_default_export_span(span))
assert sent == ["chat scripted"] * 3 + ["execute_tool weather", "invoke_agent guide"], sent
costs = sorted(span.attributes.get("gen_ai.usage.cost", 0) for span in spans.get_finished_spans())
assert costs[-2:] == [0.25, 0.5], costs
print("langfuse: sends runs, model calls and tools with their costs, and no appends")
""",
}


if __name__ == "__main__":
    main()
