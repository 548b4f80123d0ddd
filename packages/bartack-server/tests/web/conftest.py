"""What the tests of the web server share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bartack import MemoryStore
from bartack_server.web import app
from tests.web.agents import Gate, new_agent
from tests.web.browser import browser
from tests.web.serving import Client, served


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    """What lets slow answers continue."""
    return Gate(tmp_path / "gate")


@pytest.fixture
async def client(gate: Gate) -> AsyncIterator[Client]:
    """A client of a server in this process, with sessions in memory."""
    async with served(app(new_agent(gate), store=MemoryStore())) as http_client:
        yield http_client


@pytest_asyncio.fixture(scope="session", loop_scope="session", autouse=True)
async def _closed_browser() -> AsyncIterator[None]:
    """Closes the browser after the last test."""
    yield
    await browser.close()
