"""A server of the Model Context Protocol receives the span of the tool call."""

import json
import sys
from pathlib import Path

import pytest

from bartack.tools.mcp import mcp
from tests.telemetry.kit import Recorder, ids
from tests.tools.mcp.kit import results_of

pytest.importorskip("mcp", reason="mcp is not installed (bartack[mcp])")

SERVER = Path(__file__).with_name("meta_server.py")


async def test_the_span_of_the_call_is_the_traceparent_in_the_request(tmp_path: Path) -> None:
    recorder = Recorder()
    server = mcp([sys.executable, "-I", str(SERVER)], name="m", known_tools=tmp_path / "known.json")
    (result,) = await results_of(server, "m_meta", telemetry=recorder.telemetry())
    span = recorder.one("execute_tool m_meta")
    trace_id, span_id = ids(span)
    assert json.loads(str(result.content))["traceparent"].startswith(f"00-{trace_id}-{span_id}-")
