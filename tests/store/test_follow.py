"""Following a session, in every store."""

import asyncio

from bartack.nouns.entries import Entry
from bartack.nouns.messages import user
from bartack.store import SessionStore
from tests.store.stores import HANG_S, Open, add


async def test_a_follower_gets_every_entry_once(store: SessionStore) -> None:
    await store.create_session("s")

    async def listen(after: int, until: int) -> list[int]:
        seqs = []
        async for entry in store.follow("s", after):
            seqs.append(entry.seq)
            if entry.seq == until:
                break
        return seqs

    async with asyncio.timeout(HANG_S):
        listeners = [asyncio.create_task(listen(after, 31)) for after in (0, 1, 15)]
        for number in range(30):
            await add(store, "s", user(str(number)))
        assert await listeners[0] == list(range(1, 32))
        assert await listeners[1] == list(range(2, 32))
        assert await listeners[2] == list(range(16, 32))


async def test_a_follower_ends_when_the_store_closes(open_store: Open) -> None:
    store = await open_store()
    await store.create_session("s")
    received: asyncio.Queue[Entry] = asyncio.Queue()

    async def listen() -> None:
        async for entry in store.follow("s"):
            received.put_nowait(entry)

    async with asyncio.timeout(HANG_S):
        listener = asyncio.create_task(listen())
        assert (await received.get()).seq == 1
        await store.close()
        await store.close()
        await listener
    assert received.empty()


async def test_a_follower_of_a_closed_store_ends_at_once(open_store: Open) -> None:
    store = await open_store()
    await store.create_session("s")
    listener = asyncio.create_task(anext(store.follow("s"), None))
    await store.close()
    async with asyncio.timeout(HANG_S):
        assert await listener is None
        assert await anext(store.follow("s"), None) is None


async def test_a_follower_gets_entries_from_another_process(open_persistent: Open) -> None:
    mine, other = await open_persistent(), await open_persistent()
    await mine.create_session("s")
    follower = mine.follow("s", after=1)
    async with asyncio.timeout(HANG_S):
        waiting = asyncio.ensure_future(anext(follower))
        (entry,) = await add(other, "s", user("hi"))
        assert await waiting == entry
    await mine.close()
    await other.close()
