"""Leases and their fence, in every store."""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from bartack.nouns.errors import Conflict, LeaseLost, SessionInUse, StoreError
from bartack.nouns.messages import user
from bartack.store import SessionStore, next_entries
from tests.store.stores import following


async def test_a_lease_has_one_owner_at_a_time(store: SessionStore) -> None:
    await store.create_session("s")
    lease = await store.acquire_lease("s", "one", ttl=60)
    with pytest.raises(SessionInUse, match=r"Session 's' is in use by one \(process \d+ on .* in \d+ s") as in_use:
        await store.acquire_lease("s", "two")
    assert (in_use.value.owner, 50 < in_use.value.expires_in_s <= 60) == ("one", True)
    (entry,) = next_entries("s", await store.tail_of("s"), [user("hi")], store.environment)
    tail = await store.append("s", [entry], entry.parent_id, lease=lease)
    renewed = await store.renew_lease(lease, ttl=600)
    assert (renewed.epoch, renewed.expires_at > lease.expires_at + timedelta(seconds=60)) == (lease.epoch, True)
    await store.release_lease(lease)
    await store.release_lease(lease)
    with pytest.raises(LeaseLost, match="was lost"):
        await store.append("s", following(entry), tail.entry_id, lease=lease)
    second = await store.acquire_lease("s", "two")
    assert second.epoch == lease.epoch + 1
    with pytest.raises(StoreError, match="needs an owner"):
        await store.acquire_lease("s", "")


async def test_an_owner_that_lost_its_lease_cannot_write(store: SessionStore) -> None:
    header = await store.create_session("s")
    other = await store.create_session("t")
    old = await store.acquire_lease("s", "old", ttl=0.001)
    await asyncio.sleep(0.01)
    new = await store.acquire_lease("s", "new")
    with pytest.raises(Conflict, match="was lost"):
        await store.append("s", following(header), header.id, lease=old)
    with pytest.raises(Conflict, match="was lost"):
        await store.renew_lease(old)
    await store.release_lease(old)
    assert await store.load("s") == [header]
    await store.append("s", following(header), header.id, lease=new)
    with pytest.raises(StoreError, match="The lease is for session 's'"):
        await store.append("t", following(other), other.id, lease=new)
    with pytest.raises(Conflict):
        await store.append("t", following(other), other.id, lease=replace(new, session_id="t"))


async def test_a_new_lease_of_the_same_owner_fences_out_the_old_one(store: SessionStore) -> None:
    header = await store.create_session("s")
    before = await store.acquire_lease("s", "me")
    after = await store.acquire_lease("s", "me")
    with pytest.raises(Conflict):
        await store.append("s", following(header), header.id, lease=before)
    await store.append("s", following(header), header.id, lease=after)
