"""The journal, and following a session while an answer arrives."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from bartack.events import LiveDeltas, LiveEntry, LiveEvent, LiveReset
from bartack.nouns.deltas import Delta, MessageDelta, Start, TextDelta
from bartack.nouns.entries import Custom, MessageDeltaBatch
from bartack.nouns.errors import LeaseLost, StoreError
from bartack.nouns.messages import assistant
from bartack.store.session_store import Lease, SessionStore
from bartack.testing.store_steps import HANG_S, OpenStore, add, refusal, run_start

_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def _deltas(first: int, *texts: str) -> tuple[MessageDelta, ...]:
    """Text deltas with consecutive seqs; the first one of a stream is its start."""
    deltas: list[Delta] = [Start("m", "req")] if first == 0 else []
    deltas += map(TextDelta, texts)
    return tuple(MessageDelta("run", seq, delta, _NOON) for seq, delta in enumerate(deltas, first))


async def _start(store: SessionStore) -> Lease:
    return await store.claim("s", run_start(store), None, "run")


async def _write(store: SessionStore, lease: Lease, number: int, *batch: MessageDelta, generation: int = 3) -> None:
    await store.write_journal(lease, MessageDeltaBatch(deltas=batch, generation=generation, number=number))


class _LiveListener:
    """Follows a session event by event, and keeps the text of the answer in progress."""

    def __init__(self, events: AsyncIterator[LiveEvent], position: str) -> None:
        self._events = events
        self.position = position
        self.text = ""

    async def next(self) -> LiveEvent:
        event = await asyncio.wait_for(anext(self._events), HANG_S)
        self.position = event.position
        match event:
            case LiveReset():
                self.text = event.snapshot.text
            case LiveDeltas():
                self.text += "".join(
                    stamped.delta.text_delta for stamped in event.deltas if isinstance(stamped.delta, TextDelta)
                )
            case LiveEntry():
                pass
        return event

    async def expect(self, kind: type[LiveEvent], text: str, position: str) -> None:
        event = await self.next()
        assert isinstance(event, kind), f"expected {kind.__name__}, the reader got {event}"
        assert self.text == text, f"the reader has the text {self.text!r}, expected {text!r}"
        assert self.position == position, f"the position is {self.position!r}, expected {position!r}"

    async def expect_entries(self, *seqs: int) -> None:
        events = [await self.next() for _ in seqs]
        received = [event.entry.seq if isinstance(event, LiveEntry) else event for event in events]
        assert received == list(seqs), f"the reader got {received}, expected the entries {seqs}"


@asynccontextmanager
async def _reading(store: SessionStore, position: str = "") -> AsyncIterator[_LiveListener]:
    events = store.follow_live("s", position)
    try:
        yield _LiveListener(events, position)
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


async def a_reader_sees_the_answer_grow_and_then_its_entry(store: SessionStore) -> None:
    lease = await _start(store)
    async with _reading(store) as reader:
        await reader.expect_entries(1, 2, 3)
        await _write(store, lease, 0, *_deltas(0, "Hel"))
        await reader.expect(LiveReset, "Hel", "run:3:1")
        await _write(store, lease, 1, *_deltas(2, "lo", "!"))
        await reader.expect(LiveDeltas, "Hello!", "run:3:3")
        (answer,) = await add(store, "s", assistant("Hello!"), lease=lease)
        await store.clear_journal(lease)
        event = await reader.next()
        assert event == LiveEntry("4", answer), f"once it is stored, the answer itself must follow, got {event}"
    assert await store.read_journal("s") == (), "a cleared journal must be empty"


async def a_reader_that_joins_late_gets_the_answer_so_far(store: SessionStore) -> None:
    lease = await _start(store)
    await _write(store, lease, 0, *_deltas(0, "Hel"))
    await _write(store, lease, 1, *_deltas(2, "lo"))
    async with _reading(store, "3") as late:
        await late.expect(LiveReset, "Hello", "run:3:2")


async def a_new_attempt_replaces_the_journal(store: SessionStore) -> None:
    lease = await _start(store)
    await _write(store, lease, 0, *_deltas(0, "first try"))
    async with _reading(store, "3") as reader:
        await reader.next()
        await add(store, "s", Custom(name="a failed attempt", data={}), lease=lease)
        await _write(store, lease, 0, *_deltas(0, "second"), generation=4)
        await reader.expect_entries(4)
        await reader.expect(LiveReset, "second", "run:4:1")
    generations = [batch.generation for batch in await store.read_journal("s")]
    assert generations == [4], f"the journal must have the last generation only, got {generations}"


async def requests_of_others_do_not_disturb_an_answer(store: SessionStore) -> None:
    lease = await _start(store)
    await _write(store, lease, 0, *_deltas(0, "Hel"))
    async with _reading(store, "3") as reader:
        await reader.next()
        await add(store, "s", Custom(name="note", data={}))
        await reader.expect_entries(4)
        await _write(store, lease, 1, *_deltas(2, "lo"))
        await reader.expect(LiveDeltas, "Hello", "run:3:2:4")
    async with _reading(store, reader.position) as again:
        await _write(store, lease, 2, *_deltas(3, "!"))
        await again.expect(LiveDeltas, "!", "run:3:3:4")
    async with _reading(store, "4") as late:
        await late.expect(LiveReset, "Hello!", "run:3:3:4")


async def the_journal_of_a_stored_answer_is_ignored(store: SessionStore) -> None:
    """A crash may leave it behind."""
    lease = await _start(store)
    await _write(store, lease, 0, *_deltas(0, "Hel"))
    await add(store, "s", assistant("Hello"), lease=lease)
    async with _reading(store, "4") as late, _reading(store, "run:3:1") as reader:
        await reader.expect_entries(4)
        await add(store, "s", Custom(name="note", data={}))
        await late.expect_entries(5)


async def deltas_written_twice_are_read_once(store: SessionStore) -> None:
    lease = await _start(store)
    await _write(store, lease, 0, *_deltas(0, "Hel"))
    await _write(store, lease, 1, *_deltas(2, "lo"))
    await _write(store, lease, 1, *_deltas(2, "lo"))
    await _write(store, lease, 2, *_deltas(2, "lo", "!"))
    async with _reading(store, "3") as reader:
        await reader.expect(LiveReset, "Hello!", "run:3:3")


async def only_the_owner_writes_the_journal(store: SessionStore) -> None:
    lost_lease = await _start(store)
    await store.acquire_lease("s", "another run", takeover=True)
    await refusal(
        LeaseLost, _write(store, lost_lease, 0, *_deltas(0, "Hel")), "a batch of an owner that lost its lease"
    )
    await refusal(LeaseLost, store.clear_journal(lost_lease), "clearing the journal with a lost lease")
    await refusal(StoreError, _write(store, lost_lease, 0), "a batch without deltas")
    assert await store.read_journal("s") == (), "a refused batch was stored"


async def a_dropped_session_leaves_no_journal(store: SessionStore) -> None:
    lease = await _start(store)
    await _write(store, lease, 0, *_deltas(0, "Hel"))
    await store.drop_session("s")
    await refusal(StoreError, _write(store, lease, 1, *_deltas(2, "lo")), "a batch for a dropped session")
    await _start(store)
    assert await store.read_journal("s") == (), "a new session has the journal of a dropped one"


async def a_reader_continues_where_another_one_stopped(open_store: OpenStore) -> None:
    store, second_store = await open_store(), await open_store()
    try:
        lease = await _start(store)
        await _write(store, lease, 0, *_deltas(0, "Hel"))
        async with _reading(store) as first:
            await first.expect_entries(1, 2, 3)
            await first.next()
        await _write(store, lease, 1, *_deltas(2, "lo"))
        async with _reading(second_store, first.position) as second:
            await second.expect(LiveDeltas, "lo", "run:3:2")
    finally:
        await store.close()
        await second_store.close()
