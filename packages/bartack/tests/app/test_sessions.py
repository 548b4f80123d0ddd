"""The turns and branches of a session, and whether its last run is unfinished."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bartack import Entry, MemoryStore, Text, assistant, user
from bartack.app.sessions import (
    branch_to,
    branch_with,
    directory_of,
    ensure_session,
    find_session,
    has_unfinished_run,
    home_path,
    model_of,
    other_heads,
    short_ids,
    turns_of,
)
from bartack.nouns.entries import Fact, RunEnded, RunStarted, SessionHeader
from bartack.nouns.errors import NotFound
from bartack.nouns.messages import Message, ModelRef
from bartack.store import Tail, next_entries
from bartack.store.requests import redact
from tests.sample_session import chain

MODEL = ModelRef("openai", "test")
STARTED, ENDED = RunStarted(model=MODEL), RunEnded(status="completed")


def session(*questions: str) -> list[Entry]:
    facts: list[Fact] = [SessionHeader()]
    for question in questions:
        facts += [STARTED, user(question), assistant("Yes."), ENDED]
    return chain(*facts)


def test_a_turn_is_a_user_message_with_everything_up_to_the_next_one() -> None:
    turns = turns_of(session("one", "two"))
    assert [turn.message.text for turn in turns] == ["one", "two"]
    assert [(turn.before, turn.end) for turn in turns] == [("e0", "e4"), ("e4", "e8")]


def test_undo_goes_back_before_the_turn_even_if_its_run_was_interrupted() -> None:
    entries = session("one", "two")[:-2]  # run_started and the message
    assert turns_of(entries)[-1].before == "e4"
    assert turns_of(entries)[-1].end == "e6"


def test_a_message_queued_during_a_run_is_a_turn_of_its_own() -> None:
    entries = chain(SessionHeader(), STARTED, user("one"), assistant("Hm."), user("two"), assistant("Yes."), ENDED)
    assert [(turn.message.text, turn.before, turn.end) for turn in turns_of(entries)] == [
        ("one", "e0", "e3"),
        ("two", "e3", "e6"),
    ]


def test_a_synthetic_message_starts_no_turn() -> None:
    synthetic: Message = user(Text("Go on.", synthetic=True))
    entries = chain(SessionHeader(), STARTED, user("one"), assistant("Hm."), synthetic, assistant("Yes."), ENDED)
    assert [(turn.before, turn.end) for turn in turns_of(entries)] == [("e0", "e6")]
    assert turns_of([]) == []


def test_a_branch_leads_from_the_first_entry_to_its_head() -> None:
    trunk = session("one", "two")
    sibling = replace(trunk[5], id="b5", parent_id="e4", seq=10)
    end = replace(trunk[6], id="b6", parent_id="b5", seq=11)
    entries = [*trunk, sibling, end]
    assert [entry.id for entry in branch_to("b6", entries)] == ["e0", "e1", "e2", "e3", "e4", "b5", "b6"]
    assert branch_to("nowhere", entries) == []
    assert other_heads(["e8", "b6"], branch_to("b6", entries)) == ["e8"]
    assert other_heads(["e8", "b6"], branch_to("e4", entries)) == ["b6", "e8"]  # newest first


def test_a_run_is_unfinished_until_its_end_is_stored() -> None:
    entries = session("one", "two")
    assert [has_unfinished_run(entries[:length]) for length in range(len(entries) + 1)] == [
        *(False, False),
        *(True, True, True, False),
        *(True, True, True, False),
    ]


# -- ids


async def test_the_first_characters_of_an_id_are_enough() -> None:
    store = MemoryStore()
    agents = ("codex:03c3/agent-1", "codex:03c3")  # a sub-agent, and the session that called it
    for name in ("01a1e5df-4a8a-7cab", "01a1e5df-5b9b-7cab", "02b2f6e0-0000-7cab", "trip", "trip-2", *agents):
        await store.create_session(name, SessionHeader(metadata={"directory": "/x"}))
    assert await find_session(store, "02b2") == "02b2f6e0-0000-7cab"
    assert await find_session(store, "01a1e5df-4") == "01a1e5df-4a8a-7cab"
    assert await find_session(store, "trip") == "trip"
    assert await find_session(store, "codex:03") == "codex:03c3"
    assert await find_session(store, "codex:03/agent") == "codex:03c3/agent-1"
    with pytest.raises(NotFound, match="Several sessions start with '01a1e5'"):
        await find_session(store, "01a1e5")
    for name in ("02b", "nothing", ""):
        with pytest.raises(NotFound):
            await find_session(store, name)
    assert await ensure_session(store, "02b2f6e0", prompt="Hi", program="x") == "02b2f6e0-0000-7cab"
    with pytest.raises(NotFound, match="Several sessions start with '01a1e5df'"):
        await ensure_session(store, "01a1e5df", prompt="Hi", program="x")
    for name in ("tri", "trip", "0badcafe"):  # ids chosen by the user
        assert await ensure_session(store, name, prompt="Hi", program="x") == name
    assert await directory_of(store, "trip") == "/x"
    await redact(store, "trip", (await store.tail_of("trip")).entry_id)
    assert await directory_of(store, "trip") is None
    assert await model_of(store, "trip") is None
    await store.close()


@given(st.sets(st.text("01ab-", min_size=1, max_size=40), max_size=8))
def test_short_ids_are_prefixes_that_name_one_session(ids: set[str]) -> None:
    ordered = sorted(ids, key=hash)
    for id, short in zip(ordered, short_ids(ordered), strict=True):
        assert id.startswith(short)
        if short != id and id[len(short)] != "-":  # a dash at the end is left out
            assert [candidate for candidate in ids if candidate.startswith(short)] == [id]


def test_ids_are_as_short_as_can_be() -> None:
    assert short_ids(["01a1e5df-4a8a-7cab-83a0-d579ff475fb3"]) == ["01a1e5df"]
    same_minute = ["01a1e5df-4a8a-7cab-83a0-d579ff475fb3", "01a1e5df-4a9b-7cab-83a0-d579ff475fb3"]
    assert short_ids(same_minute) == ["01a1e5df-4a8", "01a1e5df-4a9"]
    assert short_ids(["my trip to Paris"]) == ["my trip to Paris"]
    imported = [
        "codex:01a1e5df-4a8a-7cab-83a0",
        "codex:01a1e5df-4a8a-7cab-83a0/agent-a8e557d3a23d662ee",
        "pi:01a1e5df-4",
    ]
    assert short_ids(imported) == ["codex:01a1e5df", "codex:01a1e5df/agent-a8", "pi:01a1e5df-4"]


def test_the_home_directory_is_a_tilde() -> None:
    home = str(Path.home())
    assert home_path(f"{home}/x") == "~/x"
    assert home_path(home) == "~"
    assert home_path(f"{home}x/y") == f"{home}x/y"


async def test_an_entry_is_on_the_newest_branch_that_contains_it() -> None:
    store = MemoryStore()
    header = await store.create_session("s")
    entries = next_entries("s", Tail(header.id, 1), [user("a"), assistant("b")], store.environment)
    tail = await store.append("s", entries, header.id)
    (other,) = next_entries("s", tail, [assistant("c")], store.environment, parent_id=entries[0].id)
    await store.append("s", [other], tail.entry_id)
    assert await branch_with(store, "s", entries[1].id) == await branch_with(store, "s", "3") == entries[1].id
    for shared in ("1", "2", entries[0].id, "4"):
        assert await branch_with(store, "s", shared) == other.id
    for missing in ("0", "5", "x"):
        with pytest.raises(NotFound):
            await branch_with(store, "s", missing)
