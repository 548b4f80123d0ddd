"""Leases and their fence, and claims."""

import asyncio
from datetime import timedelta

from msgspec.structs import replace

from bartack.nouns.entries import (
    RunStarted,
)
from bartack.nouns.errors import Conflict, LeaseLost, NotFound, SessionInUse, StoreError
from bartack.nouns.messages import user
from bartack.store.holder import this_process
from bartack.store.session_store import SessionStore, next_entries
from bartack.testing.store_steps import add, following, refusal, run_start

__all__ = ["CHECKS"]


# -- leases


async def a_lease_has_one_owner_at_a_time(store: SessionStore) -> None:
    await store.create_session("s")
    lease = await store.acquire_lease("s", "one", ttl=600)
    error = await refusal(SessionInUse, store.acquire_lease("s", "two"), "a second owner")
    assert error.owner == "one", f"SessionInUse.owner must name the owner, got {error.owner!r}"
    assert 0 < error.expires_in_s <= 600, f"SessionInUse.expires_in_s must be at most the ttl, got {error.expires_in_s}"
    await store.release_lease(lease)
    await store.release_lease(lease)
    second = await store.acquire_lease("s", "two")
    assert second.epoch > lease.epoch, f"epoch must increase: got {second.epoch} after {lease.epoch}"
    await refusal(StoreError, store.acquire_lease("s", ""), "a lease without an owner")
    await refusal(StoreError, store.acquire_lease("s", "two", ttl=0), "a lease that has expired already")


async def a_lease_is_known_while_it_is_held(store: SessionStore) -> None:
    await store.create_session("s")
    assert await store.lease_of("s") is None, "a new session has no lease"
    lease = await store.acquire_lease("s", "one", ttl=600)
    assert await store.lease_of("s") == lease, "lease_of must return the lease that is held"
    await store.release_lease(lease)
    assert await store.lease_of("s") is None, "a lease that was released is not held"
    await store.acquire_lease("s", "two", ttl=0.001)
    await asyncio.sleep(0.01)
    assert await store.lease_of("s") is None, "a lease that has expired is not held"


async def a_lease_can_be_renewed(store: SessionStore) -> None:
    await store.create_session("s")
    lease = await store.acquire_lease("s", "one", ttl=60)
    renewed = await store.renew_lease(lease, ttl=600)
    assert renewed.epoch == lease.epoch, f"renewing changed the epoch from {lease.epoch} to {renewed.epoch}"
    assert renewed.expires_at > lease.expires_at + timedelta(seconds=60), "renewing did not extend the lease"
    await add(store, "s", user("before"), lease=lease)
    await add(store, "s", user("after"), lease=renewed)


async def an_expired_lease_is_not_held(store: SessionStore) -> None:
    await store.create_session("s")
    old = await store.acquire_lease("s", "old", ttl=0.001)
    await asyncio.sleep(0.01)
    try:
        await store.acquire_lease("s", "new")
    except SessionInUse as error:
        raise AssertionError(f"an expired lease must not keep others out: {error}") from error
    await refusal(LeaseLost, store.renew_lease(old), "renewing a lease that another owner has taken")


async def an_owner_that_lost_its_lease_cannot_append(store: SessionStore) -> None:
    header = await store.create_session("s")
    other = await store.create_session("t")
    old = await store.acquire_lease("s", "old")
    new = await store.acquire_lease("s", "new", takeover=True)
    late = store.append("s", following(header), header.id, lease=old)
    await refusal(LeaseLost, late, "an append with a lease that another owner has taken over")
    await store.release_lease(old)  # has no effect
    assert await store.load("s") == [header], "an append with a stale lease was stored"
    await add(store, "s", user("mine"), lease=new)
    foreign = store.append("t", following(other), other.id, lease=new)
    await refusal(StoreError, foreign, "an append with the lease of another session")
    forged = store.append("t", following(other), other.id, lease=replace(new, session_id="t"))
    await refusal(LeaseLost, forged, "an append with a lease that was never granted")
    await store.release_lease(new)
    tail = (await store.entries("s"))[-1]
    late = store.append("s", following(tail), tail.id, lease=new)
    await refusal(LeaseLost, late, "an append with a lease that was released")


async def a_new_lease_of_the_same_owner_replaces_the_old_one(store: SessionStore) -> None:
    header = await store.create_session("s")
    before = await store.acquire_lease("s", "me")
    after = await store.acquire_lease("s", "me")
    late = store.append("s", following(header), header.id, lease=before)
    await refusal(LeaseLost, late, "an append with the first of two leases of the same owner")
    await store.append("s", following(header), header.id, lease=after)


# -- claims


async def a_claim_takes_the_lease_and_stores_its_entries(store: SessionStore) -> None:
    entries = run_start(store)
    lease = await store.claim("s", entries, None, "run 1")
    assert (lease.session_id, lease.owner) == ("s", "run 1"), f"claim returned {lease}"
    assert lease.holder == this_process(), f"the holder of the lease must be this process, got {lease.holder}"
    assert await store.load("s") == list(entries), "claim stored other entries"
    await add(store, "s", user("more"), lease=lease)


async def a_refused_claim_leaves_no_trace(store: SessionStore) -> None:
    entries = run_start(store)
    await store.claim("s", entries, None, "run 1")
    others = next_entries("s", await store.tail_of("s"), [RunStarted(), user("me too")], store.environment)
    await refusal(SessionInUse, store.claim("s", others, entries[-1].id, "run 2"), "a claim of a session in use")
    assert await store.load("s") == list(entries), "a refused claim stored entries"
    await refusal(SessionInUse, store.acquire_lease("s", "run 3"), "a third owner, while the first has the lease")


async def a_claim_with_a_wrong_tail_takes_no_lease(store: SessionStore) -> None:
    header = await store.create_session("s")
    late = following(header, user("late"))
    (first,) = await add(store, "s", user("first"))
    error = await refusal(Conflict, store.claim("s", late, header.id, "run 1"), "a claim with a wrong tail")
    assert error.tail == first.id, f"Conflict.tail must be the last entry {first.id!r}, got {error.tail!r}"
    try:
        await store.acquire_lease("s", "run 2")
    except SessionInUse as in_use:
        raise AssertionError(f"a claim that stored nothing took the lease: {in_use}") from in_use
    missing = store.claim("t", run_start(store, "t"), "missing", "run 1")
    await refusal(NotFound, missing, "a claim after an entry of a session that does not exist")


async def a_repeated_claim_gets_its_lease(store: SessionStore) -> None:
    """As after an unknown outcome, when the first attempt may have succeeded."""
    entries = run_start(store)
    first = await store.claim("s", entries, None, "run 1")
    again = await store.claim("s", entries, None, "run 1")
    assert (again.epoch, again.owner) == (first.epoch, "run 1"), f"the same claim again returned {again}, not {first}"
    assert await store.load("s") == list(entries), "the same claim again changed the session"
    other = store.claim("s", entries, None, "run 2")
    await refusal(SessionInUse, other, "a claim by another owner, with entries that are stored")


async def a_takeover_ends_the_lease_of_the_owner(store: SessionStore) -> None:
    entries = run_start(store)
    old = await store.claim("s", entries, None, "run 1")
    more = next_entries("s", await store.tail_of("s"), [RunStarted()], store.environment)
    new = await store.claim("s", more, entries[-1].id, "run 2", takeover=True)
    assert new.epoch > old.epoch, f"epoch must increase: got {new.epoch} after {old.epoch}"
    late = store.append("s", following(more[-1]), more[-1].id, lease=old)
    await refusal(LeaseLost, late, "an append by an owner whose session was taken over")
    await refusal(LeaseLost, store.renew_lease(old), "renewing a lease that was taken over")


CHECKS = (
    a_lease_has_one_owner_at_a_time,
    a_lease_is_known_while_it_is_held,
    a_lease_can_be_renewed,
    an_expired_lease_is_not_held,
    an_owner_that_lost_its_lease_cannot_append,
    a_new_lease_of_the_same_owner_replaces_the_old_one,
    a_claim_takes_the_lease_and_stores_its_entries,
    a_refused_claim_leaves_no_trace,
    a_claim_with_a_wrong_tail_takes_no_lease,
    a_repeated_claim_gets_its_lease,
    a_takeover_ends_the_lease_of_the_owner,
)
