"""Leases, appends with and without one, and requests: what others may append while a session is in use."""

import asyncio
from datetime import timedelta

from msgspec.structs import replace

from bartack.nouns.entries import (
    AbortRequested,
    ApprovalDecided,
    ApprovalRequired,
    Custom,
    Fact,
    MessageQueued,
    ModelChange,
    Redaction,
    ResultPosted,
    RunStarted,
)
from bartack.nouns.errors import Conflict, LeaseLost, NotFound, SessionInUse, StoreError
from bartack.nouns.messages import ModelRef, assistant, user
from bartack.nouns.parts import ToolCall, ToolResult
from bartack.session.decisions import Decision
from bartack.store import requests
from bartack.store.leases import this_process
from bartack.store.session_store import SessionStore, next_entries
from bartack.testing.store_steps import HANG_S, add, following, refusal, run_start

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
    expired = await store.acquire_lease("s", "old", ttl=0.001)
    await asyncio.sleep(0.01)
    try:
        await store.acquire_lease("s", "new")
    except SessionInUse as error:
        raise AssertionError(f"an expired lease must not keep others out: {error}") from error
    await refusal(LeaseLost, store.renew_lease(expired), "renewing a lease that another owner has taken")


async def an_owner_that_lost_its_lease_cannot_append(store: SessionStore) -> None:
    header = await store.create_session("s")
    foreign_header = await store.create_session("t")
    lost_lease = await store.acquire_lease("s", "old")
    current_lease = await store.acquire_lease("s", "new", takeover=True)
    late = store.append("s", following(header), header.id, lease=lost_lease)
    await refusal(LeaseLost, late, "an append with a lease that another owner has taken over")
    await store.release_lease(lost_lease)  # has no effect
    assert await store.load("s") == [header], "an append with a stale lease was stored"
    await add(store, "s", user("mine"), lease=current_lease)
    foreign = store.append("t", following(foreign_header), foreign_header.id, lease=current_lease)
    await refusal(StoreError, foreign, "an append with the lease of another session")
    forged = store.append(
        "t", following(foreign_header), foreign_header.id, lease=replace(current_lease, session_id="t")
    )
    await refusal(LeaseLost, forged, "an append with a lease that was never granted")
    await store.release_lease(current_lease)
    tail = (await store.entries("s"))[-1]
    late = store.append("s", following(tail), tail.id, lease=current_lease)
    await refusal(LeaseLost, late, "an append with a lease that was released")


async def a_new_lease_of_the_same_owner_replaces_the_old_one(store: SessionStore) -> None:
    header = await store.create_session("s")
    before = await store.acquire_lease("s", "me")
    second = await store.acquire_lease("s", "me")
    late = store.append("s", following(header), header.id, lease=before)
    await refusal(LeaseLost, late, "an append with the first of two leases of the same owner")
    await store.append("s", following(header), header.id, lease=second)


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
    refused = next_entries("s", await store.tail_of("s"), [RunStarted(), user("me too")], store.environment)
    await refusal(SessionInUse, store.claim("s", refused, entries[-1].id, "run 2"), "a claim of a session in use")
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
    foreign_claim = store.claim("s", entries, None, "run 2")
    await refusal(SessionInUse, foreign_claim, "a claim by another owner, with entries that are stored")


async def a_takeover_ends_the_lease_of_the_owner(store: SessionStore) -> None:
    entries = run_start(store)
    old_lease = await store.claim("s", entries, None, "run 1")
    later = next_entries("s", await store.tail_of("s"), [RunStarted()], store.environment)
    new_lease = await store.claim("s", later, entries[-1].id, "run 2", takeover=True)
    assert new_lease.epoch > old_lease.epoch, f"epoch must increase: got {new_lease.epoch} after {old_lease.epoch}"
    late = store.append("s", following(later[-1]), later[-1].id, lease=old_lease)
    await refusal(LeaseLost, late, "an append by an owner whose session was taken over")
    await refusal(LeaseLost, store.renew_lease(old_lease), "renewing a lease that was taken over")


_REQUESTS: tuple[Fact, ...] = (
    MessageQueued(message=user("one more thing"), steer=True),
    ApprovalDecided(tool_call_id="c1", decision="approve"),
    ResultPosted(tool_call_id="c1", result=ToolResult("c1", "late")),
    AbortRequested(reason="enough"),
    ModelChange(model=ModelRef("p", "m")),
    Custom(name="note", data={"text": "seen"}),
)


async def anyone_may_append_requests_to_a_live_run(store: SessionStore) -> None:
    lease = await store.claim("s", run_start(store), None, "run 1")
    for fact in _REQUESTS:
        try:
            (request,) = await add(store, "s", fact)
            await add(store, "s", Redaction(entry_id=request.id))
        except SessionInUse as error:
            raise AssertionError(f"{fact.kind} is a request, which anyone may append: {error}") from error
        await add(store, "s", user("more"), lease=lease)


async def a_late_request_finds_another_tail(store: SessionStore) -> None:
    entries = run_start(store)
    lease = await store.claim("s", entries, None, "run 1")
    late = next_entries("s", await store.tail_of("s"), [Custom(name="note", data={})], store.environment)
    (last,) = await add(store, "s", user("more"), lease=lease)
    error = await refusal(Conflict, store.append("s", late, entries[-1].id), "a request after an entry before the last")
    assert error.tail == last.id, f"Conflict.tail must be the last entry {last.id!r}, got {error.tail!r}: {error}"


async def nobody_else_may_append_anything_but_requests(store: SessionStore) -> None:
    entries = run_start(store)
    lease = await store.claim("s", entries, None, "run 1")
    tail = await store.tail_of("s")
    note, message = Custom(name="note", data={}), user("hello")
    batches: list[list[Fact]] = [[message], [note, message]]
    for facts in batches:
        attempt = store.append("s", next_entries("s", tail, facts, store.environment), tail.entry_id)
        await refusal(SessionInUse, attempt, f"an append of {[fact.kind for fact in facts]} to a live run by others")
    elsewhere = next_entries("s", tail, [note], store.environment, parent_id=entries[0].id)
    attempt = store.append("s", elsewhere, tail.entry_id)
    await refusal(SessionInUse, attempt, "a request on another branch, where it would not reach the run")
    assert await store.tail_of("s") == tail, "a refused append changed the session"
    await store.release_lease(lease)
    await store.append("s", next_entries("s", tail, [message], store.environment), tail.entry_id)


async def requests_follow_the_last_entry(store: SessionStore) -> None:
    lease = await store.claim("s", run_start(store), None, "run 1")
    await add(
        store,
        "s",
        assistant(ToolCall("c1", "clock", {})),
        ApprovalRequired(tool_call_id="c1", tool_name="clock", arguments={}),
        lease=lease,
    )
    queued = await requests.queue(store, "s", "one more thing")
    posted = [
        queued,
        await requests.steer(store, "s", "and another"),
        await requests.decide(store, "s", "c1", Decision("approve")),
        await requests.switch_model(store, "s", "vendor:model"),
        await requests.note(store, "s", "seen", {}),
        await requests.redact(store, "s", queued.id),
        await requests.request_abort(store, "s"),
    ]
    stored = await store.entries("s", after_seq=5)
    assert stored == posted, f"seven requests were posted, the entries after them are {list(stored)}"
    await add(store, "s", Custom(name="seen by the run", data={}), lease=lease)


async def requests_of_many_are_stored_once_each(store: SessionStore) -> None:
    """The owner of the lease and others append at the same time; one that finds another tail tries again."""
    lease = await store.claim("s", run_start(store), None, "run 1")

    async def work() -> list[str]:
        entry_ids: list[str] = []
        for number in range(10):
            while True:
                try:
                    (entry,) = await add(store, "s", user(f"{number}"), lease=lease)
                except (SessionInUse, LeaseLost) as error:
                    raise AssertionError(f"requests of others must not cost the owner its lease: {error}") from error
                except Conflict:  # another writer was first
                    continue
                entry_ids.append(entry.id)
                break
            await asyncio.sleep(0)  # a turn for the others, also in a store that never waits
        return entry_ids

    async with asyncio.timeout(HANG_S):
        working = asyncio.create_task(work())
        notes = (requests.note(store, "s", "note", {"number": number}) for number in range(20))
        noted = await asyncio.gather(*notes)
        mine = await working
    expected = sorted([*mine, *(entry.id for entry in noted)])
    stored = [entry.id for entry in await store.entries("s", after_seq=3)]
    assert sorted(stored) == expected, f"30 entries were acknowledged, {len(stored)} are stored: {stored}"
    assert (await store.tail_of("s")).seq == 33, "seq has a gap, or an entry is stored twice"
