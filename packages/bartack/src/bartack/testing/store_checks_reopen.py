"""Opening a store again, two stores at the same place, and several processes on one store.

These are for stores whose sessions outlive the store object. Other processes follow, hold leases, write journals, and
are killed while others continue.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from multiprocessing import get_context
from multiprocessing.connection import Connection

from bartack.nouns.deltas import Delta, MessageDelta, Start, TextDelta
from bartack.nouns.entries import Entry, MessageDeltaBatch
from bartack.nouns.errors import Conflict, LeaseLost, SessionInUse, StoreError
from bartack.nouns.messages import user
from bartack.store.session_store import SessionStore
from bartack.testing.store_faults import kill_writers
from bartack.testing.store_steps import (
    HANG_S,
    OpenStore,
    add,
    following,
    opened,
    refusal,
    run_start,
    sample_session,
    texts_of,
)

__all__ = ["PROCESSES"]


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
        taken_over = await again.acquire_lease("s", "two", takeover=True)
        assert taken_over.epoch > lease.epoch, (
            f"epoch must increase across reopening: got {taken_over.epoch} after {lease.epoch}"
        )


async def a_closed_store_refuses_everything(open_store: OpenStore) -> None:
    store = await open_store()
    await store.create_session("s")
    await store.close()
    await refusal(StoreError, store.load("s"), "load of a closed store")
    await refusal(StoreError, store.create_session("t"), "an append to a closed store")


async def two_stores_see_each_other(open_store: OpenStore) -> None:
    async with opened(open_store) as left_store, opened(open_store) as right_store:
        header = await left_store.create_session("s")
        (first,) = await add(right_store, "s", user("from the second"))
        assert (await left_store.tail_of("s")).entry_id == first.id, (
            "the first store does not see the tail of the second"
        )
        stale = left_store.append("s", following(header), header.id)
        error = await refusal(Conflict, stale, "an append of the first store, after one of the second")
        assert error.tail == first.id, f"Conflict.tail must be the last entry {first.id!r}, got {error.tail!r}"
        await add(left_store, "s", user("from the first"))
        assert await right_store.load("s") == await left_store.load("s"), "the two stores load different entries"
        await refusal(Conflict, right_store.create_session("s"), "creating a session that the other store has created")


async def two_stores_share_leases(open_store: OpenStore) -> None:
    async with opened(open_store) as left_store, opened(open_store) as right_store:
        await left_store.create_session("s")
        lease = await left_store.acquire_lease("s", "one")
        await refusal(SessionInUse, right_store.acquire_lease("s", "two"), "a second owner in the second store")
        await refusal(SessionInUse, add(right_store, "s", user("hello")), "a message of others to a live run")
        taken_over = await right_store.acquire_lease("s", "two", takeover=True)
        late = add(left_store, "s", user("late"), lease=lease)
        await refusal(LeaseLost, late, "an append of the first store, after a takeover in the second")
        await left_store.release_lease(lease)  # has no effect
        await right_store.renew_lease(taken_over)


async def one_of_two_stores_creates_a_session(open_store: OpenStore) -> None:
    async with opened(open_store) as left_store, opened(open_store) as right_store:
        attempts = [store.create_session("s") for store in (left_store, right_store, left_store, right_store)]
        outcomes = await asyncio.gather(*attempts, return_exceptions=True)
        created = [outcome for outcome in outcomes if isinstance(outcome, Entry)]
        assert len(created) == 1, f"four attempts to create one session: {outcomes}"
        assert all(isinstance(outcome, Entry | Conflict) for outcome in outcomes), f"not a Conflict: {outcomes}"
        assert await left_store.load("s") == await right_store.load("s") == created, "the session has another header"


async def writers_of_two_stores_lose_nothing(open_store: OpenStore) -> None:
    async def write(store: SessionStore, name: str) -> None:
        for number in range(20):
            while True:
                try:
                    await add(store, "s", user(f"{name}{number}"))
                    break
                except Conflict:  # another writer was first
                    pass

    async with opened(open_store) as left_store, opened(open_store) as right_store, asyncio.timeout(HANG_S):
        await left_store.create_session("s")
        await asyncio.gather(write(left_store, "a"), write(right_store, "b"), write(left_store, "c"))
        texts = await texts_of(right_store, "s")
        assert len(texts) == 60, f"three writers of 20 messages each left {len(texts)}"
        for name in "abc":
            mine = [text for text in texts if text.startswith(name)]
            assert mine == [f"{name}{number}" for number in range(20)], f"the messages of one writer are {mine}"


async def a_follower_gets_entries_of_another_store(open_store: OpenStore) -> None:
    async with opened(open_store) as reader, opened(open_store) as writer:
        await reader.create_session("s")
        follower = reader.follow("s", after_seq=1)
        async with asyncio.timeout(HANG_S):
            waiting = asyncio.ensure_future(anext(follower))
            (entry,) = await add(writer, "s", user("hi"))
            assert await waiting == entry, "a follower got another entry than was appended"


_KILLS = 6
_spawn = get_context("spawn")
Work = Callable[[SessionStore], Awaitable[None]]


@asynccontextmanager
async def _other_process(open_store: OpenStore, work: Work) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Runs `work` in another process, which then waits; yields a function that kills it."""
    mine, theirs = _spawn.Pipe()
    process = _spawn.Process(target=_run, args=(open_store, work, theirs), daemon=True)
    process.start()
    theirs.close()

    async def kill() -> None:
        process.kill()
        await asyncio.to_thread(process.join)

    try:
        outcome = await asyncio.to_thread(_receive, mine)
        assert outcome == "", f"another process failed: {outcome}"
        yield kill
    finally:
        await kill()
        mine.close()


def _receive(connection: Connection) -> str:
    try:
        return str(connection.recv()) if connection.poll(HANG_S) else f"not ready within {HANG_S:.0f} s"
    except EOFError:
        return "it ended early"


def _run(open_store: OpenStore, work: Work, connection: Connection) -> None:
    asyncio.run(_run_and_wait(open_store, work, connection))


async def _run_and_wait(open_store: OpenStore, work: Work, connection: Connection) -> None:
    store = await open_store()
    try:
        await work(store)
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}")
        raise
    connection.send("")
    await asyncio.sleep(10 * HANG_S)  # it is killed long before


_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


async def _answer(store: SessionStore) -> None:
    """Claim a session and begin to write an answer to its journal."""
    lease = await store.claim("s", run_start(store), None, "a run in another process", ttl=600)
    deltas: list[Delta] = [Start("m", "req"), TextDelta("Hel"), TextDelta("lo")]
    for number, delta in enumerate(deltas):
        batch = MessageDeltaBatch(deltas=(MessageDelta("run", number, delta, _NOON),), generation=3, number=number)
        await store.write_journal(lease, batch)


async def _message(store: SessionStore) -> None:
    await add(store, "s", user("from another process"))


async def a_follower_gets_entries_of_another_process(open_store: OpenStore) -> None:
    async with opened(open_store) as store:
        await store.create_session("s")
        follower = store.follow("s", after_seq=1)
        waiting = asyncio.ensure_future(anext(follower))
        async with _other_process(open_store, _message), asyncio.timeout(HANG_S):
            entry = await waiting
        assert (entry.seq, await store.load("s", head=entry.id)) == (2, await store.load("s")), f"got {entry}"


async def a_lease_is_held_until_its_process_ends(open_store: OpenStore) -> None:
    async with opened(open_store) as store, _other_process(open_store, _answer) as kill:
        error = await refusal(SessionInUse, store.acquire_lease("s", "me"), "a lease that a live process has")
        assert error.owner == "a run in another process", f"SessionInUse.owner is {error.owner!r}"
        await kill()
        try:
            lease = await store.acquire_lease("s", "me")
        except SessionInUse as in_use:
            raise AssertionError(f"the lease of a killed process must not keep others out: {in_use}") from in_use
        await add(store, "s", user("mine"), lease=lease)


async def the_journal_of_a_killed_process_is_kept(open_store: OpenStore) -> None:
    async with opened(open_store) as store, _other_process(open_store, _answer) as kill:
        await kill()
        deltas = [stamped.delta for batch in await store.read_journal("s") for stamped in batch.deltas]
        texts = [delta.text_delta for delta in deltas if isinstance(delta, TextDelta)]
        assert texts == ["Hel", "lo"], f"after 'Hel' and 'lo' were written, the journal has {texts}"


async def killed_processes_lose_nothing_and_block_no_others(open_store: OpenStore) -> None:
    report = await asyncio.to_thread(kill_writers, open_store, _KILLS)
    assert not report.faults, "\n".join([str(report), *report.faults[:20]])


PROCESSES = (
    a_follower_gets_entries_of_another_process,
    a_lease_is_held_until_its_process_ends,
    the_journal_of_a_killed_process_is_kept,
    killed_processes_lose_nothing_and_block_no_others,
)
