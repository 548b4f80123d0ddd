"""What the tests of the web server share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bartack import MemoryStore
from bartack_server.web import app
from tests.web.agents import Gate, new_agent
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
