"""A PostgreSQL server that is away for two seconds in the middle of a run."""

import asyncio
from collections.abc import Iterator

import pytest

from bartack import ToolCall, assistant
from bartack.agent import Agent
from bartack.models import ScriptedModel
from bartack.store.postgres import PostgresStore
from bartack.tools import tool
from lab.postgres_cluster import Cluster
from tests.agent.kit import SESSION, check_session, results, within
from tests.store.postgres_server import own_server


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with own_server() as cluster:
        yield cluster


async def test_a_run_survives_a_server_that_restarts(cluster: Cluster) -> None:
    """D-5.7.1"""
    restarts: list[asyncio.Task[None]] = []

    async def restart() -> None:
        await asyncio.sleep(2)
        await asyncio.to_thread(cluster.start)

    @tool(timeout_ms=300_000)
    async def pay() -> str:
        """Must not run twice."""
        await asyncio.to_thread(cluster.kill)
        restarts.append(asyncio.create_task(restart()))
        return "paid"

    store = await PostgresStore.open(cluster.url)
    model = ScriptedModel([assistant(ToolCall("c1", "pay", {})), "Done."])
    agent = Agent(model, tools=[pay], store=store, lease_s=300)
    assert (await within(agent.run("Go", session=SESSION))).output == "Done."
    assert len(restarts) == 1
    await restarts[0]
    assert (await results(store))["c1"].content == "paid"
    await check_session(store)
    await store.close()
