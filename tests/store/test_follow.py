"""Followers that are cancelled. What they return is in the checks for every store."""

import asyncio

import pytest

from bartack.nouns.messages import user
from bartack.store import MemoryStore
from tests.store.stores import add


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
