"""Several processes on one store: following, leases and journals of others, and kills with survivors."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from multiprocessing import get_context
from multiprocessing.connection import Connection

from bartack.nouns.deltas import Delta, MessageDelta, Start, TextDelta
from bartack.nouns.entries import MessageDeltaBatch
from bartack.nouns.errors import SessionInUse
from bartack.nouns.messages import user
from bartack.store.session_store import SessionStore
from bartack.testing.store_kills import kill_writers
from bartack.testing.store_steps import HANG_S, OpenStore, add, opened, refusal, run_start

__all__ = ["CHECKS"]

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
    await asyncio.sleep(10 * HANG_S)  # until it is killed


_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


async def _answer(store: SessionStore) -> None:
    """Claim a session and begin to write an answer to its journal."""
    lease = await store.claim("s", run_start(store), None, "a run in another process", ttl=600)
    deltas: list[Delta] = [Start("m", "req"), TextDelta("Hel"), TextDelta("lo")]
    for number, delta in enumerate(deltas):
        batch = MessageDeltaBatch((MessageDelta("run", number, delta, _NOON),), generation=3, number=number)
        await store.write_journal(lease, batch)


async def _message(store: SessionStore) -> None:
    await add(store, "s", user("from another process"))


async def a_follower_gets_entries_of_another_process(open_store: OpenStore) -> None:
    async with opened(open_store) as store:
        await store.create_session("s")
        follower = store.follow("s", after=1)
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
        deltas = [one.delta for batch in await store.read_journal("s") for one in batch.deltas]
        texts = [delta.text_delta for delta in deltas if isinstance(delta, TextDelta)]
        assert texts == ["Hel", "lo"], f"after 'Hel' and 'lo' were written, the journal has {texts}"


async def killed_processes_lose_nothing_and_block_no_others(open_store: OpenStore) -> None:
    report = await asyncio.to_thread(kill_writers, open_store, _KILLS)
    assert not report.faults, "\n".join([str(report), *report.faults[:20]])


CHECKS = (
    a_follower_gets_entries_of_another_process,
    a_lease_is_held_until_its_process_ends,
    the_journal_of_a_killed_process_is_kept,
    killed_processes_lose_nothing_and_block_no_others,
)
