"""Live events: every viewer gets everything once, from wherever it begins, and none of them affects the run."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest

from bartack import MemoryStore, MessageAssembler, MessageDelta
from bartack.nouns.wire import dump, load
from bartack.store.live import LiveEvent
from bartack.store.requests import note
from bartack.web import hub
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
    deltas = [load(MessageDelta, one) for event in events if event.event == "deltas" for one in event.data]
    if any(event.event == "reset" for event in events):
        shown = next(event.data for event in reversed(events) if event.event == "reset")
        assert GATE not in shown["parts"][0]["payload"]["text"] or final["parts"][0] == shown["parts"][0]
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
        later = [one.data for one in events[number + 1 :] if one.event == "entry"]
        assert [one.data for one in again if one.event == "entry"] == later


async def test_a_position_may_be_given_in_the_address_as_well(client: Client) -> None:
    await client.post("/sessions/s/runs", text="hello")
    async with client.events("s") as stream:
        events = await stream.until(END)
    async with client.events("s", position=events[-2].id) as stream:
        assert [event.id for event in await stream.until(END)] == [events[-1].id]


async def test_viewers_that_join_at_different_times_see_the_same(client: Client, gate: Gate) -> None:
    await client.post("/sessions/s/runs", text="slow walk")
    async with client.events("s") as first:
        seen = await first.until(lambda event: event.event in ("deltas", "reset"))
        async with client.events("s") as second, client.events("s", seen[-1].id) as third:
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
    seen = {"slow": await added(store, slow, fast)}
    for number in range(20):
        await note(store, "s", "n", {"number": number})
        await anext(fast)
    assert live.viewers("s") == 2
    while len(seen["slow"]) < 21:
        seen["slow"] += [event.position for event in await anext(slow)]
    assert seen["slow"] == [str(seq) for seq in range(2, 23)]
    await slow.aclose()
    await fast.aclose()
    assert live.viewers("s") == 0


async def added(store: MemoryStore, *viewers: AsyncGenerator[Sequence[LiveEvent], None]) -> list[str]:
    """The positions that the first viewer gets after an entry was added, once every viewer has it."""
    await note(store, "s", "n", {})
    seen = [await anext(viewer) for viewer in viewers]
    return [event.position for event in seen[0]]


async def test_an_invalid_position_and_an_unknown_session_are_refused(client: Client) -> None:
    await client.post("/sessions/s/runs", text="hello")
    headers = {"last-event-id": "a:b:c:d:e"}
    status, value, _ = await client.send("GET", "/api/sessions/s/events", headers=headers)
    assert (status, value["error"]["code"]) == (400, "invalid_value")
    status, value, _ = await client.send("GET", "/api/sessions/none/events")
    assert (status, value["error"]["code"]) == (404, "not_found")
