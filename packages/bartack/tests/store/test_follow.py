"""Followers that are cancelled, and many of them. What they return is in the checks for every store."""

import asyncio
from typing import cast

import pytest

from bartack.nouns.messages import user
from bartack.store import Entries, MemoryStore, SessionStore
from tests.store.stores import HANG_S, add


class Polling(MemoryStore):
    """Also looks for entries of other processes, as the stores on disk do."""

    poll_s = 60.0


@pytest.mark.parametrize("steps", range(8))
async def test_a_follower_that_is_cancelled_when_it_was_just_woken_ends(steps: int) -> None:
    store = Polling()
    await store.create_session("s")

    async def follow() -> None:
        async for _ in store.follow("s"):
            pass

    follower = asyncio.create_task(follow())
    for _ in range(10):
        await asyncio.sleep(0)
    await add(store, "s", user("more"))
    for _ in range(steps):
        await asyncio.sleep(0)
    follower.cancel()
    await asyncio.wait({follower}, timeout=5)
    assert follower.cancelled()


async def test_followers_of_a_session_share_their_reads(store: SessionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.create_session("s")
    reads = 0
    read_after = store.read_after  # type: ignore[attr-defined]

    async def counted(session_id: str, after_seq: int) -> Entries:
        nonlocal reads
        reads += 1
        await asyncio.sleep(0)  # as in a store that waits for its disk
        return cast(Entries, await read_after(session_id, after_seq))

    monkeypatch.setattr(store, "read_after", counted)
    monkeypatch.setattr(store, "poll_s", None)
    received: list[list[int]] = [[] for _ in range(100)]

    async def follow(seqs: list[int]) -> None:
        async for entry in store.follow("s"):
            seqs.append(entry.seq)
            if entry.seq == 11:
                return

    tasks = [asyncio.create_task(follow(seqs)) for seqs in received]
    for number in range(10):
        await add(store, "s", user(f"{number}"))
        async with asyncio.timeout(HANG_S):
            while any(len(seqs) < number + 2 for seqs in received):  # noqa: ASYNC110 - a hundred of them
                await asyncio.sleep(0.001)
    await asyncio.wait_for(asyncio.gather(*tasks), HANG_S)
    assert received == [list(range(1, 12))] * 100
    assert reads < 200  # alone, each of the followers would read once for every entry
