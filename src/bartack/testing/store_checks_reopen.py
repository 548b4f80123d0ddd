"""Opening a store again, and two stores at the same place: for stores whose sessions outlive the store object."""

import asyncio

from bartack.nouns.entries import Entry
from bartack.nouns.errors import Conflict, LeaseLost, SessionInUse, StoreError
from bartack.nouns.messages import user
from bartack.store.session_store import SessionStore
from bartack.testing.store_steps import HANG_S, OpenStore, add, following, opened, refusal, sample_session, texts_of

__all__ = ["CHECKS"]


async def entries_survive_reopening(open_store: OpenStore) -> None:
    entries = sample_session()
    async with opened(open_store) as store:
        await store.append("s", entries, None)
    async with opened(open_store) as again:
        assert await again.load("s") == entries, "a store that was opened again has other entries"
        (info,) = (await again.sessions()).items
        assert info.entries == len(entries), f"a session of {len(entries)} entries is listed with {info.entries}"
        assert [hit.seq for hit in await again.search("rains")] == [7], "search finds nothing after reopening"
        await add(again, "s", user("more"))


async def leases_survive_reopening(open_store: OpenStore) -> None:
    async with opened(open_store) as store:
        await store.create_session("s")
        lease = await store.acquire_lease("s", "one", ttl=600)
    async with opened(open_store) as again:
        await refusal(SessionInUse, again.acquire_lease("s", "two"), "a second owner, after reopening")
        await add(again, "s", user("mine"), lease=lease)
        new = await again.acquire_lease("s", "two", takeover=True)
        assert new.epoch > lease.epoch, f"epoch must increase across reopening: got {new.epoch} after {lease.epoch}"


async def a_closed_store_refuses_everything(open_store: OpenStore) -> None:
    store = await open_store()
    await store.create_session("s")
    await store.close()
    await refusal(StoreError, store.load("s"), "load of a closed store")
    await refusal(StoreError, store.create_session("t"), "an append to a closed store")


async def two_stores_see_each_other(open_store: OpenStore) -> None:
    async with opened(open_store) as one, opened(open_store) as two:
        header = await one.create_session("s")
        (first,) = await add(two, "s", user("from the second"))
        assert (await one.tail_of("s")).entry_id == first.id, "the first store does not see the tail of the second"
        stale = one.append("s", following(header), header.id)
        error = await refusal(Conflict, stale, "an append of the first store, after one of the second")
        assert error.tail == first.id, f"Conflict.tail must be the last entry {first.id!r}, got {error.tail!r}"
        await add(one, "s", user("from the first"))
        assert await two.load("s") == await one.load("s"), "the two stores load different entries"
        await refusal(Conflict, two.create_session("s"), "creating a session that the other store has created")


async def two_stores_share_leases(open_store: OpenStore) -> None:
    async with opened(open_store) as one, opened(open_store) as two:
        await one.create_session("s")
        lease = await one.acquire_lease("s", "one")
        await refusal(SessionInUse, two.acquire_lease("s", "two"), "a second owner in the second store")
        await refusal(SessionInUse, add(two, "s", user("hello")), "a message of others to a live run")
        new = await two.acquire_lease("s", "two", takeover=True)
        late = add(one, "s", user("late"), lease=lease)
        await refusal(LeaseLost, late, "an append of the first store, after a takeover in the second")
        await one.release_lease(lease)  # has no effect
        await two.renew_lease(new)


async def one_of_two_stores_creates_a_session(open_store: OpenStore) -> None:
    async with opened(open_store) as one, opened(open_store) as two:
        attempts = [store.create_session("s") for store in (one, two, one, two)]
        outcomes = await asyncio.gather(*attempts, return_exceptions=True)
        created = [outcome for outcome in outcomes if isinstance(outcome, Entry)]
        assert len(created) == 1, f"four attempts to create one session: {outcomes}"
        assert all(isinstance(outcome, Entry | Conflict) for outcome in outcomes), f"not a Conflict: {outcomes}"
        assert await one.load("s") == await two.load("s") == created, "the session has another header"


async def writers_of_two_stores_lose_nothing(open_store: OpenStore) -> None:
    async def write(store: SessionStore, name: str) -> None:
        for number in range(20):
            while True:
                try:
                    await add(store, "s", user(f"{name}{number}"))
                    break
                except Conflict:  # another writer was first
                    pass

    async with opened(open_store) as one, opened(open_store) as two, asyncio.timeout(HANG_S):
        await one.create_session("s")
        await asyncio.gather(write(one, "a"), write(two, "b"), write(one, "c"))
        texts = await texts_of(two, "s")
        assert len(texts) == 60, f"three writers of 20 messages each left {len(texts)}"
        for name in "abc":
            mine = [text for text in texts if text.startswith(name)]
            assert mine == [f"{name}{number}" for number in range(20)], f"the messages of one writer are {mine}"


async def a_follower_gets_entries_of_another_store(open_store: OpenStore) -> None:
    async with opened(open_store) as mine, opened(open_store) as other:
        await mine.create_session("s")
        follower = mine.follow("s", after=1)
        async with asyncio.timeout(HANG_S):
            waiting = asyncio.ensure_future(anext(follower))
            (entry,) = await add(other, "s", user("hi"))
            assert await waiting == entry, "a follower got another entry than was appended"


CHECKS = (
    entries_survive_reopening,
    leases_survive_reopening,
    a_closed_store_refuses_everything,
    two_stores_see_each_other,
    two_stores_share_leases,
    one_of_two_stores_creates_a_session,
    writers_of_two_stores_lose_nothing,
    a_follower_gets_entries_of_another_store,
)
