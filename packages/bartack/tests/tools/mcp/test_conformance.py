"""The conformance suite of the protocol judges the client (`tests/clients/mcp`, installed by `.ci/run`)."""

import asyncio
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.tools.mcp.conformance_client import run_scenario
from tests.tools.mcp.kit import NODE, PACKAGES

SUITE = PACKAGES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
COMMAND = Path(__file__).with_name("conformance_command.py")

# Scenarios that fail, each with the reason.
DRAFT = "an extension that is still a draft, and that the SDK does not have; an httpx2.Auth can implement it"
EXPECTED = {
    "auth/dpop": f"Tokens bound to a key (RFC 9449): {DRAFT}.",
    "auth/dpop-nonce": f"Tokens bound to a key (RFC 9449): {DRAFT}.",
    "auth/wif-jwt-bearer": f"The identity of a workload instead of a client secret (RFC 7523): {DRAFT}.",
}
# The client reconnects when the server asks it to. On a busy machine that is late, which the suite judges by the clock.
LATE = [("sse-retry", counts) for counts in ("2 passed, 0 failed, 1 warnings", "2 passed, 1 failed")]


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    task = json.loads(await reader.readline())
    problem = await run_scenario(task["scenario"], task["url"], task["context"])
    writer.write(json.dumps(problem).encode() + b"\n")
    writer.close()


@pytest.mark.skipif(
    NODE is None or not SUITE.exists(), reason="the conformance suite is not installed; .ci/run does that"
)
async def test_every_scenario_for_clients_passes_or_is_explained() -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    command = shlex.join([sys.executable, "-I", "-S", str(COMMAND), str(port)])
    words = [str(NODE), str(SUITE), "client", "--command", command, "--suite", "all", "--timeout", "120000"]
    async with server:
        judge = await asyncio.create_subprocess_exec(
            *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        output = (await judge.communicate())[0].decode()
    outcomes = re.findall(r"^([✓✗]) ([\w/-]+): (.*)", output, re.MULTILINE)
    assert len(outcomes) == 48, output
    failed = {name for sign, name, counts in outcomes if sign == "✗" and (name, counts) not in LATE}
    assert failed == EXPECTED.keys(), output
