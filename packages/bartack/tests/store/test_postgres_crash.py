"""A PostgreSQL server that is stopped, killed and restarted under its stores; `lab/crash.py` does it 200 times. What
is left in its files after a purge."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import pytest

from bartack.nouns.errors import StoreError
from bartack.nouns.messages import user
from bartack.store.maintenance import purge
from bartack.store.postgres import PostgresStore
from bartack.store.requests import redact
from lab.crash import kill_server
from lab.postgres_cluster import Cluster
from tests.store.postgres_server import own_server
from tests.store.stores import HANG_S, add, following


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with own_server() as cluster:
        yield cluster


def test_killing_writers_and_the_server_loses_nothing(cluster: Cluster) -> None:
    """D-5.2: a writer, then the server and a writer."""
    report = kill_server(cluster, kills=3, seed=7)
    assert (report.kills, report.faults) == (3, [])
    assert report.acknowledged >= 3  # each kill comes after an acknowledgement


def test_without_synchronous_commit_killing_the_server_loses_entries(cluster: Cluster) -> None:
    """The negative control: the test above can fail."""
    query = "?schema=weak&synchronous_commit=off"
    # The server may have written its log just before it is killed; then nothing is lost, and the kill is repeated.
    faults = (kill_server(cluster, kills=2, seed=seed, query=query).faults for seed in range(20))
    assert any("lost" in fault for report in faults for fault in report)


async def test_appends_fail_only_while_the_server_is_down(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PostgresStore, "poll_s", 0.1)
    url = f"{cluster.url}?schema=outage"
    store = await PostgresStore.open(url)
    header = await store.create_session("s")
    follower = store.follow("s")
    assert (await anext(follower)).seq == 1
    waiting = asyncio.ensure_future(anext(follower))
    entries = following(header, user("hi"))
    await asyncio.to_thread(cluster.stop)
    for _ in range(2):
        with pytest.raises(StoreError, match="PostgreSQL") as caught:
            await store.append("s", entries, header.id)
        assert caught.value.retryable
    with pytest.raises(StoreError):
        await store.load("s")
    await asyncio.to_thread(cluster.start)
    assert (await store.append("s", entries, header.id)).seq == 2
    async with asyncio.timeout(HANG_S):
        assert await waiting == entries[0]
    assert await store.load("s") == [header, *entries]
    await asyncio.to_thread(cluster.kill)
    await asyncio.to_thread(cluster.start)
    await store.release_lease(await store.acquire_lease("s", "me"))
    await add(store, "s", user("first append after a restart"))
    async with asyncio.timeout(HANG_S):
        assert (await anext(follower)).seq == 3
    await store.close()


async def test_a_store_can_be_closed_while_its_server_is_down(cluster: Cluster) -> None:
    store = await PostgresStore.open(f"{cluster.url}?schema=closing")
    await store.create_session("s")
    await asyncio.to_thread(cluster.stop)
    try:
        async with asyncio.timeout(HANG_S):
            await store.close()
    finally:
        await asyncio.to_thread(cluster.start)


async def test_a_purge_leaves_nothing_in_the_files_of_the_tables(cluster: Cluster) -> None:
    """Deleted rows stay in their pages, and their bytes stay even when the space is free again."""
    store = await PostgresStore.open(f"{cluster.url}?schema=purged")
    await store.create_session("s")
    for number in range(30):
        await add(store, "s", user(f"hunter{number} " * (number % 5 + 1)))
    connection = await asyncpg.connect(cluster.url)
    await connection.execute("ANALYZE purged.entries")
    entry = (await store.entries("s"))[10]
    await redact(store, "s", entry.id)
    tail = (await store.tail_of("s")).entry_id
    assert await files_of_tables(connection, cluster, b"hunter9")
    new_id = await purge(store, "s")
    assert new_id is not None
    assert not await files_of_tables(connection, cluster, b"hunter9")
    assert await files_of_tables(connection, cluster, b"hunter8")  # the rest is there
    assert (await store.tail_of(new_id)).entry_id == tail
    await connection.close()
    await store.close()


async def files_of_tables(connection: Any, cluster: Cluster, text: bytes) -> list[Path]:
    """The files of the database that contain the text, once the server has written everything."""
    await connection.execute("CHECKPOINT")
    files = [file for file in (cluster.data / "base").rglob("*") if file.is_file()]
    return [file for file in files if text in file.read_bytes()]
