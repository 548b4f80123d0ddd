"""The journal, and following a session while an answer arrives, in every store."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime

import pytest

from bartack.nouns.deltas import Delta, MessageDelta, Start, TextDelta
from bartack.nouns.entries import Custom, Entry, Fact, MessageDeltaBatch, RunStarted, SessionHeader
from bartack.nouns.errors import LeaseLost, NotFound, StoreError
from bartack.nouns.messages import assistant, user
from bartack.store import Lease, SessionStore, next_entries
from bartack.store.live import LiveDeltas, LiveEntry, LiveEvent, LiveReset, Position
from tests.store.stores import Open

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def deltas(first: int, *texts: str) -> tuple[MessageDelta, ...]:
    """Text deltas with rising seqs; the first one of a stream is its start."""
    made: list[Delta] = [Start("m", "req")] if first == 0 else []
    made += map(TextDelta, texts)
    return tuple(MessageDelta("run", seq, delta, NOON) for seq, delta in enumerate(made, first))


async def start(store: SessionStore) -> Lease:
    entries = next_entries("s", None, [SessionHeader(), RunStarted(), user("hi")], store.environment, run_id="run")
    return await store.claim("s", entries, None, "run")


async def add(store: SessionStore, fact: Fact, lease: Lease | None = None) -> Entry:
    tail = await store.tail_of("s")
    (entry,) = next_entries("s", tail, [fact], store.environment, run_id="run")
    await store.append("s", [entry], tail.entry_id, lease=lease)
    return entry


async def write(store: SessionStore, lease: Lease, number: int, *batch: MessageDelta, generation: int = 3) -> None:
    await store.write_journal(lease, MessageDeltaBatch(batch, generation=generation, number=number))


class Reader:
    """Follows a session event by event."""

    def __init__(self, store: SessionStore, position: str = "") -> None:
        self._events = store.follow_live("s", position)
        self.text = ""
        self.position = position

    async def __aenter__(self) -> "Reader":
        return self

    async def __aexit__(self, *_: object) -> None:
        async with aclosing(self._events):  # type: ignore[type-var]
            pass

    async def next(self) -> LiveEvent:
        event = await asyncio.wait_for(anext(self._events), 60)
        self.position = event.position
        match event:
            case LiveReset():
                self.text = event.snapshot.text
            case LiveDeltas():
                self.text += "".join(one.delta.text_delta for one in event.deltas if isinstance(one.delta, TextDelta))
            case LiveEntry():
                pass
        return event

    async def entries(self, count: int) -> list[int]:
        found = [await self.next() for _ in range(count)]
        return [event.entry.seq for event in found if isinstance(event, LiveEntry)]


@pytest.fixture
async def reader(store: SessionStore) -> AsyncIterator[Reader]:
    async with Reader(store) as reader:
        yield reader


async def test_a_reader_sees_the_answer_grow_and_then_its_entry(store: SessionStore, reader: Reader) -> None:
    lease = await start(store)
    assert await reader.entries(3) == [1, 2, 3]
    await write(store, lease, 0, *deltas(0, "Hel"))
    assert isinstance(await reader.next(), LiveReset)
    assert (reader.text, reader.position) == ("Hel", "run:3:1")
    await write(store, lease, 1, *deltas(2, "lo", "!"))
    assert isinstance(await reader.next(), LiveDeltas)
    assert (reader.text, reader.position) == ("Hello!", "run:3:3")
    answer = await add(store, assistant("Hello!"), lease)
    await store.clear_journal(lease)
    assert await reader.next() == LiveEntry("4", answer)
    assert await store.read_journal("s") == ()


async def test_a_reader_continues_where_another_one_stopped(open_persistent: Open) -> None:
    store, other = await open_persistent(), await open_persistent()
    lease = await start(store)
    await write(store, lease, 0, *deltas(0, "Hel"))
    async with Reader(store) as first:
        assert await first.entries(3) == [1, 2, 3]
        await first.next()
    await write(store, lease, 1, *deltas(2, "lo"))
    async with Reader(other, first.position) as second:
        event = await second.next()
        assert isinstance(event, LiveDeltas)
        assert [one.seq for one in event.deltas] == [2]
    await store.close()
    await other.close()


async def test_a_reader_that_joins_late_gets_the_answer_so_far(store: SessionStore) -> None:
    lease = await start(store)
    await write(store, lease, 0, *deltas(0, "Hel"))
    await write(store, lease, 1, *deltas(2, "lo"))
    async with Reader(store, "3") as late:
        assert isinstance(await late.next(), LiveReset)
        assert late.text == "Hello"


async def test_a_new_attempt_resets_the_answer(store: SessionStore) -> None:
    lease = await start(store)
    await write(store, lease, 0, *deltas(0, "first try"))
    async with Reader(store, "3") as reader:
        await reader.next()
        await add(store, Custom("a failed attempt", {}), lease)
        await write(store, lease, 0, *deltas(0, "second"), generation=4)
        events = [await reader.next(), await reader.next()]
        assert [type(event) for event in events] == [LiveEntry, LiveReset]
        assert (reader.text, reader.position) == ("second", "run:4:1")
    assert [batch.generation for batch in await store.read_journal("s")] == [4]


async def test_requests_of_others_do_not_disturb_an_answer(store: SessionStore) -> None:
    lease = await start(store)
    await write(store, lease, 0, *deltas(0, "Hel"))
    async with Reader(store, "3") as reader:
        await reader.next()
        await add(store, Custom("note", {}))
        assert await reader.entries(1) == [4]
        assert reader.position == "run:3:1:4"
        await write(store, lease, 1, *deltas(2, "lo"))
        assert isinstance(await reader.next(), LiveDeltas)
        assert (reader.text, reader.position) == ("Hello", "run:3:2:4")
    async with Reader(store, reader.position) as again:
        await write(store, lease, 2, *deltas(3, "!"))
        event = await again.next()
        assert isinstance(event, LiveDeltas)
        assert [one.seq for one in event.deltas] == [3]
    async with Reader(store, "4") as late:
        assert isinstance(await late.next(), LiveReset)
        assert late.text == "Hello!"


async def test_the_journal_of_a_stored_answer_is_ignored(store: SessionStore) -> None:
    """A crash may leave it behind."""
    lease = await start(store)
    await write(store, lease, 0, *deltas(0, "Hel"))
    await add(store, assistant("Hello"), lease)
    async with Reader(store, "4") as late, Reader(store, "run:3:1") as following:
        assert await following.entries(1) == [4]
        await add(store, Custom("note", {}))
        assert await late.entries(1) == [5]


async def test_deltas_written_twice_are_read_once(store: SessionStore) -> None:
    lease = await start(store)
    await write(store, lease, 0, *deltas(0, "Hel"))
    await write(store, lease, 1, *deltas(2, "lo"))
    await write(store, lease, 1, *deltas(2, "lo"))
    await write(store, lease, 2, *deltas(2, "lo", "!"))
    async with Reader(store, "3") as reader:
        await reader.next()
        assert reader.text == "Hello!"


async def test_only_the_owner_of_the_lease_writes_the_journal(store: SessionStore) -> None:
    old = await start(store)
    await store.acquire_lease("s", "another run", takeover=True)
    with pytest.raises(LeaseLost):
        await write(store, old, 0, *deltas(0, "Hel"))
    with pytest.raises(LeaseLost):
        await store.clear_journal(old)
    with pytest.raises(StoreError, match="at least one delta"):
        await write(store, old, 0)


async def test_a_dropped_session_leaves_no_journal(store: SessionStore) -> None:
    lease = await start(store)
    await write(store, lease, 0, *deltas(0, "Hel"))
    await store.drop_session("s")
    with pytest.raises((NotFound, LeaseLost)):
        await write(store, lease, 1, *deltas(2, "lo"))
    await start(store)
    assert await store.read_journal("s") == ()


@pytest.mark.parametrize("position", ["x", "run:1", "run:a:1", "a:b:c:d:e", "run:1:2:x"])
def test_an_invalid_position_is_refused(position: str) -> None:
    with pytest.raises(StoreError, match="Invalid position"):
        Position.parse(position)


@pytest.mark.parametrize("position", ["0", "7", "run:3:1", "run:3:1:4"])
def test_a_position_is_text_that_can_be_read_back(position: str) -> None:
    assert str(Position.parse(position)) == position
