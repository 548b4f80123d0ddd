"""The page in Firefox, driven by puppeteer over WebDriver BiDi, which playwright cannot use with Debian's Firefox."""

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from bartack import MemoryStore
from bartack_server.web import app
from bartack_server.web.access import TokenAccess
from tests.web.agents import Gate, new_agent
from tests.web.serving import LIMIT_S, served

CLIENTS = Path(__file__).parents[1] / "clients" / "web"
FAULTS = Path(__file__).with_name("faults.js")
FIREFOX = os.environ.get("BARTACK_TEST_FIREFOX") or next(
    filter(None, map(shutil.which, ("firefox-esr", "firefox"))), None
)

pytestmark = [
    pytest.mark.skipif(FIREFOX is None, reason="no Firefox; install it, or set BARTACK_TEST_FIREFOX to its path"),
    pytest.mark.skipif(not (CLIENTS / "node_modules").is_dir(), reason="run `npm ci` in tests/clients/web"),
    pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed"),
    pytest.mark.xdist_group("browser"),
]


async def test_the_page_works_in_firefox(gate: Gate) -> None:
    application = app(new_agent(gate), store=MemoryStore())
    assert isinstance(application.access, TokenAccess)
    async with served(application) as client:
        words = ("node", str(CLIENTS / "firefox.mjs"), str(FIREFOX), client.url, application.access.code, str(FAULTS))
        process = await asyncio.create_subprocess_exec(
            *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        try:
            async with asyncio.timeout(LIMIT_S):
                assert process.stdout is not None
                assert process.stderr is not None
                first = await process.stdout.readline()
                assert first, (await process.stderr.read()).decode()
                gate.open()
                second = await process.stdout.readline()
                assert second, (await process.stderr.read()).decode()
        finally:
            if process.returncode is None:
                process.terminate()
            await process.communicate()
    seen: dict[str, Any] = json.loads(second)
    assert json.loads(first) == {"isGrowing": True}
    assert "Slowly: walk" in seen["growing"]
    assert 'return "wet" * days' in seen["code"]
    assert {place: faults for place, faults in seen["faults"].items() if faults} == {}
    assert len(seen["faults"]) == 12
    assert seen["problems"] == []
