"""Requests: what others may append while a session is in use."""

import asyncio

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
)
from bartack.nouns.errors import Conflict, LeaseLost, SessionInUse
from bartack.nouns.messages import ModelRef, assistant, user
from bartack.nouns.parts import ToolCall, ToolResult
from bartack.session.decisions import Decision
from bartack.store import requests
from bartack.store.session_store import SessionStore, next_entries
from bartack.testing.store_steps import HANG_S, add, refusal, run_start

__all__ = ["CHECKS"]

_REQUESTS: tuple[Fact, ...] = (
    MessageQueued(user("one more thing"), steer=True),
    ApprovalDecided("c1", "approve"),
    ResultPosted("c1", ToolResult("c1", "late")),
    AbortRequested(reason="enough"),
    ModelChange(ModelRef("p", "m")),
    Custom("note", {"text": "seen"}),
)


async def anyone_may_append_requests_to_a_live_run(store: SessionStore) -> None:
    lease = await store.claim("s", run_start(store), None, "run 1")
    for fact in _REQUESTS:
        try:
            (request,) = await add(store, "s", fact)
            await add(store, "s", Redaction(request.id))
        except SessionInUse as error:
            raise AssertionError(f"{fact.kind} is a request, which anyone may append: {error}") from error
        await add(store, "s", user("more"), lease=lease)


async def a_late_request_finds_another_tail(store: SessionStore) -> None:
    entries = run_start(store)
    lease = await store.claim("s", entries, None, "run 1")
    late = next_entries("s", await store.tail_of("s"), [Custom("note", {})], store.environment)
    (more,) = await add(store, "s", user("more"), lease=lease)
    error = await refusal(Conflict, store.append("s", late, entries[-1].id), "a request after an entry before the last")
    assert error.tail == more.id, f"Conflict.tail must be the last entry {more.id!r}, got {error.tail!r}: {error}"


async def nobody_else_may_append_anything_but_requests(store: SessionStore) -> None:
    entries = run_start(store)
    lease = await store.claim("s", entries, None, "run 1")
    tail = await store.tail_of("s")
    note, message = Custom("note", {}), user("hello")
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
    await add(store, "s", assistant(ToolCall("c1", "clock", {})), ApprovalRequired("c1", "clock", {}), lease=lease)
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
    await add(store, "s", Custom("seen by the run", {}), lease=lease)


async def requests_of_many_are_stored_once_each(store: SessionStore) -> None:
    """The owner of the lease and others append at the same time; one that finds another tail tries again."""
    lease = await store.claim("s", run_start(store), None, "run 1")

    async def work() -> list[str]:
        made: list[str] = []
        for number in range(10):
            while True:
                try:
                    (entry,) = await add(store, "s", user(f"{number}"), lease=lease)
                except (SessionInUse, LeaseLost) as error:
                    raise AssertionError(f"requests of others must not cost the owner its lease: {error}") from error
                except Conflict:  # another writer was first
                    continue
                made.append(entry.id)
                break
            await asyncio.sleep(0)  # a turn for the others, also in a store that never waits
        return made

    async with asyncio.timeout(HANG_S):
        working = asyncio.create_task(work())
        notes = (requests.note(store, "s", "note", {"number": number}) for number in range(20))
        others = await asyncio.gather(*notes)
        mine = await working
    expected = sorted([*mine, *(entry.id for entry in others)])
    stored = [entry.id for entry in await store.entries("s", after_seq=3)]
    assert sorted(stored) == expected, f"30 entries were acknowledged, {len(stored)} are stored: {stored}"
    assert (await store.tail_of("s")).seq == 33, "seq has a gap, or an entry is stored twice"


CHECKS = (
    anyone_may_append_requests_to_a_live_run,
    nobody_else_may_append_anything_but_requests,
    a_late_request_finds_another_tail,
    requests_follow_the_last_entry,
    requests_of_many_are_stored_once_each,
)
