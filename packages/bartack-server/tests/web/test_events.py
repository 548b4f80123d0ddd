"""Live events: every viewer gets everything once, from wherever it begins, and none of them affects the run."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest
from starlette.types import Message

from bartack import MemoryStore, MessageAssembler, MessageDelta, assistant
from bartack.events import LiveEvent, LiveReset
from bartack.nouns.wire import dump, load
from bartack.store.requests import note
from bartack_server.web import event_stream, hub
from bartack_server.web.event_stream import EventStream, FrameCache
from tests.web.agents import GATE, Gate
from tests.web.serving import Client, Event, is_entry

END = is_entry("run_ended")


def text_of(events: list[Event]) -> list[str]:
    """The stored answers, as text."""
    entries = [event.data for event in events if event.event == "entry" and event.data["kind"] == "message"]
    answers = [entry["payload"] for entry in entries if entry["payload"]["role"] == "assistant"]
    return ["".join(part["payload"].get("text", "") for part in answer["parts"]) for answer in answers]


async def test_a_viewer_gets_every_entry_once_and_in_order(client: Client) -> None:
    await client.post("/sessions/s/runs", text="hello")
    async with client.events("s") as stream:
        events = await stream.until(END)
    entries = [event.data for event in events if event.event == "entry"]
    assert [entry["seq"] for entry in entries] == list(range(1, len(entries) + 1))
    assert text_of(events) == ["You said: hello"]


async def test_deltas_arrive_before_the_answer_is_complete_and_add_up_to_it(client: Client, gate: Gate) -> None:
    await client.post("/sessions/s/runs", text="slow walk")
    async with client.events("s") as stream:
        before = await stream.until(lambda event: event.event in ("deltas", "reset"))
        gate.open()
        events = before + await stream.until(END)
    assembler = MessageAssembler()
    final = next(event.data["payload"] for event in events if is_assistant(event))
    deltas = [load(MessageDelta, delta) for event in events if event.event == "deltas" for delta in event.data]
    if any(event.event == "reset" for event in events):
        snapshot = next(event.data for event in reversed(events) if event.event == "reset")
        assert GATE not in snapshot["parts"][0]["payload"]["text"] or final["parts"][0] == snapshot["parts"][0]
    else:
        for delta in deltas:
            assembler.consume(delta)
        assert dump(assembler.snapshot())["parts"] == final["parts"]


def is_assistant(event: Event) -> bool:
    return event.event == "entry" and event.data["kind"] == "message" and event.data["payload"]["role"] == "assistant"


async def test_a_viewer_continues_after_any_event_without_gap_or_repeat(client: Client, gate: Gate) -> None:
    await client.post("/sessions/s/runs", text="slow walk")
    async with client.events("s") as stream:
        events = await stream.until(lambda event: event.event in ("deltas", "reset"))
        gate.open()
        events += await stream.until(END)
    for number, event in enumerate(events[:-1]):
        async with client.events("s", event.id) as stream:
            again = await stream.until(END)
        later = [later_event.data for later_event in events[number + 1 :] if later_event.event == "entry"]
        assert [repeated.data for repeated in again if repeated.event == "entry"] == later


async def test_a_position_may_be_given_in_the_address_as_well(client: Client) -> None:
    await client.post("/sessions/s/runs", text="hello")
    async with client.events("s") as stream:
        events = await stream.until(END)
    async with client.events("s", position=events[-2].id) as stream:
        assert [event.id for event in await stream.until(END)] == [events[-1].id]


async def test_viewers_that_join_at_different_times_see_the_same(client: Client, gate: Gate) -> None:
    await client.post("/sessions/s/runs", text="slow walk")
    async with client.events("s") as first:
        beginning = await first.until(lambda event: event.event in ("deltas", "reset"))
        async with client.events("s") as second, client.events("s", beginning[-1].id) as third:
            gate.open()
            results = await asyncio.gather(first.until(END), second.until(END), third.until(END))
    assert [text_of(events) for events in results] == [[f"Slowly: walk {GATE} and the rest of the answer."]] * 3


async def test_a_viewer_that_leaves_does_not_stop_the_run(client: Client, gate: Gate) -> None:
    await client.post("/sessions/s/runs", text="slow walk")
    async with client.events("s") as stream:
        await stream.until(lambda event: event.event in ("deltas", "reset"))
    assert (await client.get("/sessions/s"))["state"] == "running"
    gate.open()
    async with client.events("s") as stream:
        assert len(text_of(await stream.until(END))) == 1


async def test_a_viewer_that_falls_behind_the_ring_reads_on_from_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "_RING", 2)
    store = MemoryStore()
    await store.create_session("s")
    live = hub.LiveHub(store)
    slow, fast = live.follow("s", "1"), live.follow("s", "1")
    positions = {"slow": await added(store, slow, fast)}
    for number in range(20):
        await note(store, "s", "n", {"number": number})
        await anext(fast)
    assert live.viewers("s") == 2
    while len(positions["slow"]) < 21:
        positions["slow"] += [event.position for event in await anext(slow)]
    assert positions["slow"] == [str(seq) for seq in range(2, 23)]
    await slow.aclose()
    await fast.aclose()
    assert live.viewers("s") == 0


async def added(store: MemoryStore, *viewers: AsyncGenerator[Sequence[LiveEvent], None]) -> list[str]:
    """The positions that the first viewer gets after an entry was added, once every viewer has it."""
    await note(store, "s", "n", {})
    batches = [await anext(viewer) for viewer in viewers]
    return [event.position for event in batches[0]]


async def test_an_invalid_position_and_an_unknown_session_are_refused(client: Client) -> None:
    await client.post("/sessions/s/runs", text="hello")
    for position in ("a:b:c:d:e", "99", "run:99:1", "run:1:1:99"):  # some of another server's
        headers = {"last-event-id": position}
        status, value, _ = await client.send("GET", "/api/sessions/s/events", headers=headers)
        assert (status, value["error"]["code"]) == (400, "invalid_value")
    status, value, _ = await client.send("GET", "/api/sessions/none/events")
    assert (status, value["error"]["code"]) == (404, "not_found")


def test_the_frames_that_are_kept_for_other_viewers_take_limited_memory() -> None:
    frames = FrameCache(max_bytes=10_000)
    small, large = (LiveReset(str(number), assistant("x" * size)) for number, size in enumerate((1_000, 20_000)))
    assert frames.frame(small) is frames.frame(small)
    assert frames.frame(large) == frames.frame(large)
    for number in range(30):
        frames.frame(LiveReset(str(number), assistant("x" * 1_000)))
        assert frames.size <= 10_000


async def connected() -> Message:
    """A viewer that stays."""
    await asyncio.Event().wait()
    raise AssertionError


async def large_frames() -> AsyncGenerator[Sequence[bytes], None]:
    yield [b"a" * 300_000, b"b" * 7]


async def sent(frames: AsyncGenerator[Sequence[bytes], None], method: str = "GET", delay_s: float = 0) -> list[bytes]:
    """The pieces that a viewer gets which takes this long for each."""
    pieces: list[bytes] = []

    async def send(message: Message) -> None:
        pieces.append(message.get("body", b""))
        await asyncio.sleep(delay_s)

    await EventStream(frames, asyncio.Event())({"type": "http", "method": method}, connected, send)
    return pieces


async def test_a_viewer_that_does_not_read_holds_no_more_than_a_piece_of_what_it_is_sent() -> None:
    pieces = await sent(large_frames())
    assert b"".join(pieces).endswith(b"a" * 300_000 + b"b" * 7)
    assert max(map(len, pieces)) <= 65536


async def test_a_heartbeat_never_cuts_a_frame_that_a_slow_viewer_receives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "_HEARTBEAT_S", 0.01)
    assert b"a" * 300_000 + b"b" * 7 in b"".join(await sent(large_frames(), delay_s=0.05))


async def test_a_head_request_gets_no_stream() -> None:
    assert b"".join(await sent(large_frames(), "HEAD")) == b""


async def test_a_stream_that_fails_unexpectedly_is_ended_and_reported() -> None:
    async def broken() -> AsyncGenerator[Sequence[bytes], None]:
        yield [b"a"]
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await sent(broken())
