"""The contract of appending (bartack.store.session_store), in every store."""

import asyncio

import pytest
from msgspec.structs import replace

from bartack.nouns import wire
from bartack.nouns.entries import (
    BranchSummary,
    Custom,
    Entry,
    Fact,
    Redaction,
    RunStarted,
    Session,
    SessionHeader,
    branch,
    heads,
)
from bartack.nouns.errors import Conflict, ErrorCode, NotFound, StoreError
from bartack.nouns.messages import Message, assistant, tool_message, user
from bartack.nouns.parts import Image, Text, ToolCall, ToolResult
from bartack.store import SessionStore, Tail, next_entries
from tests.sample_session import SESSION
from tests.store.stores import HANG_S, Open, add, following


async def test_appended_entries_load_byte_for_byte(store: SessionStore) -> None:
    """000-2.3, 001-6.4: the complete stored message entry is the source of truth."""
    tail = await store.append("s", SESSION, None)
    assert tail == Tail(SESSION[-1].id, SESSION[-1].seq)
    loaded = await store.load("s")
    assert loaded == SESSION
    assert list(loaded.texts) == [wire.encode(entry) for entry in SESSION]
    assert loaded[2:4] == SESSION[2:4]
    assert repr(loaded) == "Entries('s', 13 entries)"


async def test_a_session_is_rebuilt_from_its_entries(store: SessionStore) -> None:
    """004-session.1, 004-session.2, 004-relations.1, 002-non-goals.5."""
    header = await store.create_session("s", SessionHeader(metadata={"from": "test"}))
    await add(store, "s", RunStarted(), user("hi"))
    session = Session.of(await store.load("s"))
    assert (session.session_id, session.metadata) == ("s", {"from": "test"})
    assert [message.text for message in session.messages] == ["hi"]
    assert session.entries[0] == header


async def test_appended_entries_survive_reopening(open_persistent: Open) -> None:
    """D-5.2: durable when it returns."""
    store = await open_persistent()
    await store.append("s", SESSION, None)
    await store.close()
    again = await open_persistent()
    assert await again.load("s") == SESSION
    assert (await again.sessions()).items[0].entries == len(SESSION)
    await add(again, "s", user("more"))
    await again.close()


async def test_a_wrong_expected_tail_raises_conflict_with_the_actual_tail(store: SessionStore) -> None:
    """D-5.2.1."""
    header = await store.create_session()
    first = following(header, user("one"))
    await store.append(header.session_id, first, header.id)
    with pytest.raises(Conflict) as caught:
        await store.append(header.session_id, following(header, user("two")), header.id)
    assert caught.value.tail == first[0].id
    with pytest.raises(Conflict):
        await store.append(header.session_id, following(first[0]), "unknown")
    with pytest.raises(Conflict, match="The next seq of session"):
        await store.append(header.session_id, following(header, user("two")), first[0].id)
    assert await store.load(header.session_id) == [header, *first]


async def test_repeating_an_append_has_no_effect(store: SessionStore) -> None:
    """D-5.2.2."""
    header = await store.create_session()
    entries = following(header, user("one"), user("two"))
    tail = await store.append(header.session_id, entries, header.id)
    assert await store.append(header.session_id, entries, header.id) == tail
    later = following(entries[-1], user("three"))
    await store.append(header.session_id, later, entries[-1].id)
    assert await store.append(header.session_id, entries, header.id) == tail
    assert await store.append(header.session_id, (*entries, *later), header.id) == Tail(later[0].id, 4)
    assert await store.load(header.session_id) == [header, *entries, *later]


async def test_an_append_may_start_with_entries_already_stored(store: SessionStore) -> None:
    header = await store.create_session()
    entries = following(header, user("one"), user("two"))
    await store.append(header.session_id, entries[:1], header.id)
    assert await store.append(header.session_id, entries, header.id) == Tail(entries[1].id, 3)
    assert await store.load(header.session_id) == [header, *entries]


async def test_a_taken_id_with_other_content_raises_conflict(store: SessionStore) -> None:
    header = await store.create_session()
    (entry,) = following(header, user("one"))
    await store.append(header.session_id, [entry], header.id)
    other = replace(entry, fact=Custom("else", {}))
    with pytest.raises(Conflict):
        await store.append(header.session_id, [other], header.id)
    moved = replace(other, seq=3, parent_id=entry.id)
    with pytest.raises(Conflict, match="already stored with other content"):
        await store.append(header.session_id, [moved], entry.id)
    assert await store.load(header.session_id) == [header, entry]


async def test_a_refused_append_stores_nothing(store: SessionStore) -> None:
    header = await store.create_session()
    call = assistant(ToolCall("c", "clock", {}))
    entries = await add(store, header.session_id, call, tool_message(ToolResult("c", "noon")))
    late = following(entries[-1], user("fine"), tool_message(ToolResult("c", "midnight")))
    with pytest.raises(Conflict, match="'c' already has a result"):
        await store.append(header.session_id, late, entries[-1].id)
    assert len(await store.load(header.session_id)) == 3
    assert await store.search("fine") == ()


async def test_a_tool_call_gets_one_result_per_session(store: SessionStore) -> None:
    """D-5.4: also on another branch, within one append, and for tools run by the provider."""
    header = await store.create_session()
    session_id = header.session_id
    (call, _) = await add(
        store, session_id, assistant(ToolCall("c", "clock", {})), tool_message(ToolResult("c", "noon"))
    )
    tail = await store.tail_of(session_id)
    again = next_entries(session_id, tail, [tool_message(ToolResult("c", "two"))], store.environment, parent_id=call.id)
    with pytest.raises(Conflict):
        await store.append(session_id, again, tail.entry_id)
    inner = assistant(ToolCall("c", "clock", {}, executed_by="provider", result=ToolResult("c", "three")))
    with pytest.raises(Conflict):
        await add(store, session_id, inner)
    with pytest.raises(Conflict, match="two results"):
        await add(store, session_id, tool_message(ToolResult("d", "1")), tool_message(ToolResult("d", "2")))
    other = await store.create_session()
    await add(store, other.session_id, tool_message(ToolResult("c", "another session")))


async def test_a_session_is_a_tree(store: SessionStore) -> None:
    """D-5.5: branches from any entry, several heads, and a summary of the branch that was left."""
    header = await store.create_session()
    session_id = header.session_id
    one, two = await add(store, session_id, user("one"), user("two"))
    tail = await store.tail_of(session_id)
    assert tail == Tail(two.id, 3)
    facts: list[Fact] = [BranchSummary("Two was discussed.", two.id), user("three")]
    second = next_entries(session_id, tail, facts, store.environment, parent_id=one.id)
    await store.append(session_id, second, two.id)
    third = next_entries(session_id, Tail(second[1].id, 5), [user("four")], store.environment, parent_id=two.id)
    await store.append(session_id, third, second[1].id)
    everything = [header, one, two, *second, *third]
    assert await store.entries(session_id) == everything
    assert await store.heads(session_id) == heads(everything) == (second[1].id, third[0].id)
    for entry in everything:
        assert await store.load(session_id, head=entry.id) == branch(everything, entry.id)
    assert await store.load(session_id) == [header, one, two, *third]


async def test_entries_can_be_read_from_any_seq(store: SessionStore) -> None:
    await store.append("s", SESSION, None)
    assert await store.entries("s", 3) == SESSION[3:]
    assert await store.entries("s", 3, 2) == SESSION[3:5]
    assert await store.entries("s", 100) == []


async def test_missing_sessions_and_entries_raise_not_found(store: SessionStore) -> None:
    header = await store.create_session("s")
    (stranger,) = following(replace(header, session_id="no"))
    for call in (
        store.load("no"),
        store.entries("no"),
        store.heads("no"),
        store.tail_of("no"),
        store.totals("no"),
        store.load("s", head="no"),
        store.acquire_lease("no", "me"),
        store.drop_session("no"),
        store.inspect("no"),
        store.append("no", [stranger], header.id),
        store.append("no", [stranger], None),
        store.append("s", [replace(following(header)[0], parent_id="no")], header.id),
        store.append("s", following(header, Redaction("no")), header.id),
    ):
        with pytest.raises(NotFound):
            await call
    with pytest.raises(NotFound):
        await anext(store.follow("no"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"session_id": "other"}, "belongs to session 'other'"),
        ({"seq": 7}, "seq 7, expected 3"),
        ({"id": ""}, "no id"),
        ({"parent_id": None}, "no parent"),
        ({"id": "twice"}, "occurs twice in one append"),
        ({"fact": Custom("nan", {"x": float("nan")})}, "cannot be stored"),
        ({"fact": Custom("surrogate", {"x": "\ud800"})}, "cannot be stored"),
    ],
)
async def test_an_invalid_append_is_refused(store: SessionStore, change: dict[str, object], why: str) -> None:
    header = await store.create_session("s")
    first, second = following(header, user("one"), user("two"))
    first = replace(first, id="twice")
    entries = [first, replace(second, **{"parent_id": "twice", **change})]
    with pytest.raises(StoreError, match=why) as caught:
        await store.append("s", entries, header.id)
    assert caught.value.code is ErrorCode.INVALID_VALUE
    assert await store.load("s") == [header]


async def test_a_session_starts_with_its_header(store: SessionStore) -> None:
    (header,) = next_entries("s", None, [SessionHeader()], store.environment)
    with pytest.raises(StoreError, match="at least one entry"):
        await store.append("s", [], None)
    with pytest.raises(StoreError, match="must be a session_header"):
        await store.append("s", [replace(header, fact=Custom("x", {}))], None)
    with pytest.raises(StoreError, match="Invalid session id"):
        await store.create_session("x" * 300)
    await store.create_session("s")
    with pytest.raises(Conflict, match="already exists"):
        await store.create_session("s")


async def test_appending_does_not_change_earlier_entries(store: SessionStore) -> None:
    """004-invariants.3: what was read before reads the same later."""
    await store.append("s", SESSION[:4], None)
    before = await store.load("s")
    await store.append("s", SESSION[4:], SESSION[3].id)
    assert (await store.load("s"))[:4] == before == SESSION[:4]


# -- blobs


async def test_blobs_are_restored_byte_for_byte(store: SessionStore) -> None:
    header = await store.create_session()
    picture = bytes(range(256)) * 1000
    tricky = '\\"{}\u2028é' * 20_000
    fact = user(Text(tricky), Image("image/png", data=picture))
    data = {"$blob": "a" * 64, "$$blob": {"$blob": "x" * 70_000}, "list": ["$blob", '{"$blob":"', "$" * 70_000]}
    entries = await add(store, header.session_id, fact, Custom("tricky", data), user(Image("image/png", data=picture)))
    loaded = await store.load(header.session_id)
    assert loaded == [header, *entries]
    assert list(loaded.texts) == [wire.encode(entry) for entry in (header, *entries)]
    assert await store.append(header.session_id, entries, header.id) == Tail(entries[-1].id, 4)


# -- concurrency


async def test_64_writers_on_one_session_lose_nothing(store: SessionStore) -> None:
    """Exactly one writer wins each seq; the others get a conflict and retry at the new tail."""
    header = await store.create_session("s")
    conflicts = 0

    async def write(writer: int) -> list[Entry]:
        nonlocal conflicts
        tail = Tail(header.id, 1)
        mine: list[Entry] = []
        while len(mine) < 3:
            (entry,) = next_entries("s", tail, [user(f"{writer}/{len(mine)}")], store.environment)
            try:
                tail = await store.append("s", [entry], tail.entry_id)
                mine.append(entry)
            except Conflict:
                conflicts += 1
                tail = await store.tail_of("s")
        return mine

    async with asyncio.timeout(HANG_S):
        written = [entry for mine in await asyncio.gather(*map(write, range(64))) for entry in mine]
    loaded = await store.load("s")
    assert loaded == [header, *sorted(written, key=lambda entry: entry.seq)]
    assert [entry.seq for entry in loaded] == list(range(1, 64 * 3 + 2))
    assert conflicts > 0


async def test_64_writers_on_different_sessions_get_no_errors(store: SessionStore) -> None:
    async def write(writer: int) -> None:
        header = await store.create_session(f"s{writer}")
        tail = Tail(header.id, 1)
        for number in range(5):
            entries = next_entries(f"s{writer}", tail, [user(f"{writer}/{number}")], store.environment)
            tail = await store.append(f"s{writer}", entries, tail.entry_id)

    await asyncio.gather(*map(write, range(64)))
    assert len((await store.sessions(100)).items) == 64
    for writer in range(64):
        facts = [entry.fact for entry in await store.load(f"s{writer}")]
        assert [fact.text for fact in facts if isinstance(fact, Message)] == [f"{writer}/{n}" for n in range(5)]


async def test_a_closed_store_raises_store_error(open_persistent: Open) -> None:
    store = await open_persistent()
    await store.create_session("s")
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.load("s")
    with pytest.raises(StoreError, match="closed"):
        await store.create_session("t")


async def test_a_dropped_session_is_deleted_and_its_id_can_be_reused(store: SessionStore) -> None:
    await store.append("s", SESSION, None)
    await store.create_session("t")
    await store.drop_session("s")
    with pytest.raises(NotFound):
        await store.load("s")
    assert await store.search("rain") == ()
    assert [info.id for info in (await store.sessions()).items] == ["t"]
    assert (await store.totals()).spend.calls == 0
    await store.append("s", SESSION, None)
    assert await store.load("s") == SESSION
