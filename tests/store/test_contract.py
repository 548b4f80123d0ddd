"""What every store promises (weft.store.session_store), asked of every kind in the same words."""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from tests.session import SESSION
from tests.store.stores import Open, add, said
from weft import wire
from weft.deltas import Failed, Usage
from weft.entries import (
    BranchSummary,
    Custom,
    Entry,
    Fact,
    Redaction,
    RunEnded,
    RunStarted,
    SessionHeader,
    StreamFailed,
    branch,
    heads,
    session_of,
)
from weft.errors import Conflict, ErrorCode, NotFound, StoreError
from weft.messages import Message, Meta, ModelRef, assistant, tool_message, user
from weft.parts import Image, Text, ToolCall, ToolResult
from weft.store import SessionStore, Tail, next_entries
from weft.store.session_store import Spend


async def test_what_was_appended_is_loaded_byte_for_byte(store: SessionStore) -> None:
    """000-2.3, 001-6.4: the stored message entry, whole, is the truth."""
    tail = await store.append("s", SESSION, None)
    assert tail == Tail(SESSION[-1].id, SESSION[-1].seq)
    loaded = await store.load("s")
    assert loaded == SESSION
    assert list(loaded.texts) == [wire.encode(entry) for entry in SESSION]
    assert loaded[2:4] == SESSION[2:4]
    assert repr(loaded) == "Entries('s', 13 entries)"


async def test_a_session_amounts_to_its_entries(store: SessionStore) -> None:
    """004-session.1, 004-session.2, 004-relations.1, 002-non-goals.5."""
    header = await store.create_session("s", SessionHeader(metadata={"from": "test"}))
    await add(store, "s", RunStarted(), user("hi"))
    session = session_of(await store.load("s"))
    assert (session.session_id, session.metadata) == ("s", {"from": "test"})
    assert [message.text for message in session.messages] == ["hi"]
    assert session.entries[0] == header


async def test_what_was_appended_is_there_after_reopening(open_kept: Open) -> None:
    """D-5.2: durable when it returns."""
    store = await open_kept()
    await store.append("s", SESSION, None)
    await store.close()
    again = await open_kept()
    assert await again.load("s") == SESSION
    assert (await again.sessions()).items[0].entries == len(SESSION)
    await add(again, "s", user("more"))
    await again.close()


async def test_a_wrong_expected_tail_is_a_conflict_that_names_the_real_one(store: SessionStore) -> None:
    """D-5.2.1."""
    header = await store.create_session()
    first = said(header, user("one"))
    await store.append(header.session_id, first, header.id)
    with pytest.raises(Conflict) as caught:
        await store.append(header.session_id, said(header, user("two")), header.id)
    assert caught.value.tail == first[0].id
    with pytest.raises(Conflict):
        await store.append(header.session_id, said(first[0]), "nobody")
    with pytest.raises(Conflict, match="comes next"):
        await store.append(header.session_id, said(header, user("two")), first[0].id)
    assert await store.load(header.session_id) == [header, *first]


async def test_appending_the_same_again_changes_nothing(store: SessionStore) -> None:
    """D-5.2.2."""
    header = await store.create_session()
    entries = said(header, user("one"), user("two"))
    tail = await store.append(header.session_id, entries, header.id)
    assert await store.append(header.session_id, entries, header.id) == tail
    later = said(entries[-1], user("three"))
    await store.append(header.session_id, later, entries[-1].id)
    assert await store.append(header.session_id, entries, header.id) == tail
    assert await store.append(header.session_id, (*entries, *later), header.id) == Tail(later[0].id, 4)
    assert await store.load(header.session_id) == [header, *entries, *later]


async def test_an_append_may_repeat_what_is_there_and_go_on(store: SessionStore) -> None:
    header = await store.create_session()
    entries = said(header, user("one"), user("two"))
    await store.append(header.session_id, entries[:1], header.id)
    assert await store.append(header.session_id, entries, header.id) == Tail(entries[1].id, 3)
    assert await store.load(header.session_id) == [header, *entries]


async def test_a_known_id_with_other_content_is_a_conflict(store: SessionStore) -> None:
    header = await store.create_session()
    (entry,) = said(header, user("one"))
    await store.append(header.session_id, [entry], header.id)
    other = replace(entry, fact=Custom("else", {}))
    with pytest.raises(Conflict):
        await store.append(header.session_id, [other], header.id)
    moved = replace(other, seq=3, parent_id=entry.id)
    with pytest.raises(Conflict, match="other content"):
        await store.append(header.session_id, [moved], entry.id)
    assert await store.load(header.session_id) == [header, entry]


async def test_an_append_that_is_refused_leaves_nothing(store: SessionStore) -> None:
    header = await store.create_session()
    call = assistant(ToolCall("c", "clock", {}))
    entries = await add(store, header.session_id, call, tool_message(ToolResult("c", "noon")))
    late = said(entries[-1], user("fine"), tool_message(ToolResult("c", "midnight")))
    with pytest.raises(Conflict, match="'c' has a result"):
        await store.append(header.session_id, late, entries[-1].id)
    assert len(await store.load(header.session_id)) == 3
    assert await store.search("fine") == ()


async def test_a_call_ends_once_in_a_session(store: SessionStore) -> None:
    """D-5.4: also on another branch, in one append, and where the provider ran the tool itself."""
    header = await store.create_session()
    session_id = header.session_id
    (call, _) = await add(
        store, session_id, assistant(ToolCall("c", "clock", {})), tool_message(ToolResult("c", "noon"))
    )
    place = await store.branch(session_id, call.id)
    again = next_entries(session_id, place.tail, [tool_message(ToolResult("c", "two"))], store.edge, parent_id=call.id)
    with pytest.raises(Conflict):
        await store.append(session_id, again, place.tail.entry_id)
    inner = assistant(ToolCall("c", "clock", {}, executed_by="provider", result=ToolResult("c", "three")))
    with pytest.raises(Conflict):
        await add(store, session_id, inner)
    with pytest.raises(Conflict, match="two results"):
        await add(store, session_id, tool_message(ToolResult("d", "1")), tool_message(ToolResult("d", "2")))
    other = await store.create_session()
    await add(store, other.session_id, tool_message(ToolResult("c", "another session")))


async def test_a_session_is_a_tree(store: SessionStore) -> None:
    """D-5.5: branches from any entry, several heads, and a summary of what was left."""
    header = await store.create_session()
    session_id = header.session_id
    one, two = await add(store, session_id, user("one"), user("two"))
    place = await store.branch(session_id, one.id)
    assert (place.parent_id, place.tail) == (one.id, Tail(two.id, 3))
    facts: list[Fact] = [BranchSummary("they said two", two.id), user("three")]
    left = next_entries(session_id, place.tail, facts, store.edge, parent_id=one.id)
    await store.append(session_id, left, two.id)
    third = next_entries(session_id, Tail(left[1].id, 5), [user("four")], store.edge, parent_id=two.id)
    await store.append(session_id, third, left[1].id)
    everything = [header, one, two, *left, *third]
    assert await store.entries(session_id) == everything
    assert await store.heads(session_id) == heads(everything) == (left[1].id, third[0].id)
    for entry in everything:
        assert await store.load(session_id, head=entry.id) == branch(everything, entry.id)
    assert await store.load(session_id) == [header, one, two, *third]


async def test_entries_come_from_any_seq_on(store: SessionStore) -> None:
    await store.append("s", SESSION, None)
    assert await store.entries("s", 3) == SESSION[3:]
    assert await store.entries("s", 3, 2) == SESSION[3:5]
    assert await store.entries("s", 100) == []


async def test_what_is_not_there_is_not_found(store: SessionStore) -> None:
    header = await store.create_session("s")
    (stranger,) = said(replace(header, session_id="no"))
    for ask in (
        store.load("no"),
        store.entries("no"),
        store.heads("no"),
        store.tail_of("no"),
        store.totals("no"),
        store.branch("no", "e"),
        store.branch("s", "no"),
        store.load("s", head="no"),
        store.acquire_lease("no", "me"),
        store.drop_session("no"),
        store.inspect("no"),
        store.append("no", [stranger], header.id),
        store.append("no", [stranger], None),
        store.append("s", [replace(said(header)[0], parent_id="no")], header.id),
        store.append("s", said(header, Redaction("no")), header.id),
    ):
        with pytest.raises(NotFound):
            await ask
    with pytest.raises(NotFound):
        await anext(store.tail("no"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"session_id": "other"}, "of session 'other'"),
        ({"seq": 7}, "seq 7 where 3 follows"),
        ({"id": ""}, "no id"),
        ({"parent_id": None}, "no parent"),
        ({"id": "twice"}, "twice in one append"),
        ({"fact": Custom("nan", {"x": float("nan")})}, "cannot be stored"),
        ({"fact": Custom("surrogate", {"x": "\ud800"})}, "cannot be stored"),
    ],
)
async def test_an_append_that_can_never_land_is_refused(
    store: SessionStore, change: dict[str, object], why: str
) -> None:
    header = await store.create_session("s")
    first, second = said(header, user("one"), user("two"))
    first = replace(first, id="twice")
    entries = [first, replace(second, **{"parent_id": "twice", **change})]
    with pytest.raises(StoreError, match=why) as caught:
        await store.append("s", entries, header.id)
    assert caught.value.code is ErrorCode.INVALID_VALUE
    assert await store.load("s") == [header]


async def test_a_session_begins_with_its_header(store: SessionStore) -> None:
    (header,) = next_entries("s", None, [SessionHeader()], store.edge)
    with pytest.raises(StoreError, match="at least one entry"):
        await store.append("s", [], None)
    with pytest.raises(StoreError, match="begins with a session_header"):
        await store.append("s", [replace(header, fact=Custom("x", {}))], None)
    with pytest.raises(StoreError, match="session id"):
        await store.create_session("x" * 300)
    await store.create_session("s")
    with pytest.raises(Conflict, match="there already"):
        await store.create_session("s")


async def test_an_append_only_grows(store: SessionStore) -> None:
    """004-invariants.3: nothing that was read before is read differently later."""
    await store.append("s", SESSION[:4], None)
    before = await store.load("s")
    await store.append("s", SESSION[4:], SESSION[3].id)
    assert (await store.load("s"))[:4] == before == SESSION[:4]


# -- bodies


async def test_large_bodies_come_back_byte_for_byte(store: SessionStore) -> None:
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


# -- lists, search, totals


async def test_sessions_are_listed_newest_first_in_pages(store: SessionStore) -> None:
    ids = [(await store.create_session(f"s{n}", SessionHeader(title=f"No. {n}"))).session_id for n in range(7)]
    await add(store, "s3", user("hello"))
    pages = []
    cursor = None
    while True:
        page = await store.sessions(3, cursor)
        pages.append([info.id for info in page.items])
        cursor = page.cursor
        if cursor is None:
            break
    assert pages == [["s3", "s6", "s5"], ["s4", "s2", "s1"], ["s0"]]
    assert sorted(ids) == sorted(id for page in pages for id in page)
    (info,) = (await store.sessions(1)).items
    assert (info.title, info.entries, info.tail) == ("No. 3", 2, await store.tail_of("s3"))
    assert info.created < info.updated
    with pytest.raises(StoreError, match="not a cursor"):
        await store.sessions(3, "nonsense")
    with pytest.raises(StoreError, match="at least one"):
        await store.sessions(0)


async def test_search_finds_entries_by_all_their_words(store: SessionStore) -> None:
    await store.create_session("a", SessionHeader(title="Weather in Paris"))
    _, rain = await add(store, "a", user("Will it RAIN today?"), assistant("No rain, snow_fall."))
    await add(store, "a", assistant(ToolCall("c", "sky", {})), tool_message(ToolResult("c", "straße 今日は雨です")))
    await store.create_session("b")
    await add(store, "b", user("rain again"))
    assert [(hit.session_id, hit.seq) for hit in await store.search("rain")] == [("b", 2), ("a", 2), ("a", 3)]
    (hit,) = await store.search("fall rain")
    assert (hit.entry_id, hit.snippet) == (rain.id, "No rain, snow_fall.")
    assert [hit.seq for hit in await store.search("STRASSE")] == [5]
    assert [hit.seq for hit in await store.search("日は雨")] == [5]
    assert [hit.seq for hit in await store.search("paris")] == [1]
    for nothing in ("rai", "雨日", "", "...", '"', "rain AND", "OR", "*"):
        assert await store.search(nothing) == (), nothing
    assert [info.id for info in (await store.sessions(query="rain")).items] == ["b", "a"]
    assert [info.id for info in (await store.sessions(query="today")).items] == ["a"]
    assert (await store.sessions(query="...")).items == ()
    assert len(await store.search("rain", limit=2)) == 2


async def test_redacted_content_is_nowhere_to_be_found(store: SessionStore) -> None:
    """Also where the redaction was said on another branch."""
    await store.create_session("s", SessionHeader(title="secret title"))
    secret, after = await add(store, "s", user("the secret word"), user("after"))
    await add(store, "s", Redaction(secret.id))
    place = await store.branch("s", after.id)
    other = next_entries("s", place.tail, [user("elsewhere")], store.edge, parent_id=after.id)
    await store.append("s", other, place.tail.entry_id)
    loaded = await store.load("s")
    assert [entry.fact.text for entry in loaded if isinstance(entry.fact, Message)] == [
        "[redacted]",
        "after",
        "elsewhere",
    ]
    assert await store.search("word") == ()
    assert (await store.entries("s"))[1] == secret
    followed = [await anext(follower) for follower in [store.tail("s", after=1)]]
    assert isinstance(followed[0].fact, Message)
    assert followed[0].fact.text == "[redacted]"
    assert (await store.sessions()).items[0].title == "secret title"
    await add(store, "s", Redaction((await store.entries("s"))[0].id))
    assert (await store.sessions()).items[0].title is None
    assert await store.search("title") == ()


async def test_totals_are_kept_by_session_and_model(store: SessionStore) -> None:
    one, two = ModelRef("anthropic", "claude"), ModelRef("openai", "gpt")
    usage = Usage(20, 7, cache_read_tokens=5, cache_write_tokens=1, reasoning_tokens=3)
    failed = StreamFailed(Failed(ErrorCode.OVERLOADED), usage=Usage(9, 0), model=two)
    for session_id in ("a", "b"):
        await store.create_session(session_id)
        await add(store, session_id, assistant("x", meta=Meta(model=one, usage=usage, cost_usd=0.25)), failed)
    await add(store, "b", assistant("y", meta=Meta(usage=Usage(1, 1, cost=0.5))), assistant("z", meta=Meta()))
    await add(store, "b", RunEnded("completed", usage=usage, cost_usd=9.0))
    claude = Spend(
        calls=1,
        input_tokens=20,
        output_tokens=7,
        cache_read_tokens=5,
        cache_write_tokens=1,
        reasoning_tokens=3,
        cost_usd=0.25,
    )
    gpt = Spend(calls=1, input_tokens=9, unpriced=1)
    nameless = Spend(calls=1, input_tokens=1, output_tokens=1, cost_usd=0.5)
    totals = await store.totals("a")
    assert [(each.model, each.spend) for each in totals.models] == [(one, claude), (two, gpt)]
    assert totals.spend == claude + gpt
    everything = await store.totals()
    assert [(each.model, each.spend) for each in everything.models] == [
        (None, nameless),
        (one, claude + claude),
        (two, gpt + gpt),
    ]
    assert (await store.sessions(1)).items[0].spend == claude + gpt + nameless


# -- following


async def test_a_follower_misses_nothing_and_gets_nothing_twice(store: SessionStore) -> None:
    await store.create_session("s")
    got: list[int] = []

    async def listen(after: int, until: int) -> list[int]:
        got = []
        async for entry in store.tail("s", after):
            got.append(entry.seq)
            if entry.seq == until:
                break
        return got

    async with asyncio.timeout(10):
        listeners = [asyncio.create_task(listen(after, 31)) for after in (0, 1, 15)]
        for number in range(30):
            await add(store, "s", user(str(number)))
        got = await listeners[0]
        assert got == list(range(1, 32))
        assert await listeners[1] == list(range(2, 32))
        assert await listeners[2] == list(range(16, 32))


async def test_a_follower_ends_when_the_store_closes(open_store: Open) -> None:
    store = await open_store()
    await store.create_session("s")

    async def listen() -> int:
        return len([entry async for entry in store.tail("s")])

    listener = asyncio.create_task(listen())
    await asyncio.sleep(0.05)
    await store.close()
    await store.close()
    async with asyncio.timeout(5):
        assert await listener == 1


async def test_a_follower_sees_what_another_store_on_the_same_place_appends(open_kept: Open) -> None:
    mine, other = await open_kept(), await open_kept()
    await mine.create_session("s")
    follower = mine.tail("s", after=1)
    async with asyncio.timeout(5):
        waiting = asyncio.ensure_future(anext(follower))
        await asyncio.sleep(0.02)
        (entry,) = await add(other, "s", user("hi"))
        assert await waiting == entry
    await mine.close()
    await other.close()


# -- leases


async def test_one_owner_at_a_time(store: SessionStore) -> None:
    await store.create_session("s")
    lease = await store.acquire_lease("s", "one", ttl=60)
    with pytest.raises(Conflict, match="'one' holds"):
        await store.acquire_lease("s", "two")
    (entry,) = next_entries("s", await store.tail_of("s"), [user("hi")], store.edge)
    tail = await store.append("s", [entry], entry.parent_id, lease=lease)
    renewed = await store.renew_lease(lease, ttl=600)
    assert (renewed.epoch, renewed.expires_at > lease.expires_at + timedelta(seconds=60)) == (lease.epoch, True)
    await store.release_lease(lease)
    await store.release_lease(lease)
    with pytest.raises(Conflict, match="is over"):
        await store.append("s", said(entry), tail.entry_id, lease=lease)
    second = await store.acquire_lease("s", "two")
    assert second.epoch == lease.epoch + 1
    with pytest.raises(StoreError, match="an owner"):
        await store.acquire_lease("s", "")


async def test_a_paused_owner_cannot_write_after_another_took_over(store: SessionStore) -> None:
    header = await store.create_session("s")
    other = await store.create_session("t")
    old = await store.acquire_lease("s", "old", ttl=0.001)
    await asyncio.sleep(0.01)
    new = await store.acquire_lease("s", "new")
    with pytest.raises(Conflict, match="is over"):
        await store.append("s", said(header), header.id, lease=old)
    with pytest.raises(Conflict, match="is over"):
        await store.renew_lease(old)
    await store.release_lease(old)
    assert await store.load("s") == [header]
    await store.append("s", said(header), header.id, lease=new)
    with pytest.raises(StoreError, match="the lease is for session 's'"):
        await store.append("t", said(other), other.id, lease=new)
    with pytest.raises(Conflict):
        await store.append("t", said(other), other.id, lease=replace(new, session_id="t"))


async def test_the_same_owner_fences_out_its_former_self(store: SessionStore) -> None:
    header = await store.create_session("s")
    before = await store.acquire_lease("s", "me")
    after = await store.acquire_lease("s", "me")
    with pytest.raises(Conflict):
        await store.append("s", said(header), header.id, lease=before)
    await store.append("s", said(header), header.id, lease=after)


# -- many at once


async def test_64_writers_on_one_session_lose_nothing(store: SessionStore) -> None:
    """Exactly one wins each seq; the others are told the real tail and go on from there."""
    header = await store.create_session("s")
    conflicts = 0

    async def write(writer: int) -> list[Entry]:
        nonlocal conflicts
        tail = Tail(header.id, 1)
        mine: list[Entry] = []
        while len(mine) < 3:
            (entry,) = next_entries("s", tail, [user(f"{writer}/{len(mine)}")], store.edge)
            try:
                tail = await store.append("s", [entry], tail.entry_id)
                mine.append(entry)
            except Conflict:
                conflicts += 1
                tail = await store.tail_of("s")
        return mine

    async with asyncio.timeout(60):
        written = [entry for mine in await asyncio.gather(*map(write, range(64))) for entry in mine]
    loaded = await store.load("s")
    assert loaded == [header, *sorted(written, key=lambda entry: entry.seq)]
    assert [entry.seq for entry in loaded] == list(range(1, 64 * 3 + 2))
    assert conflicts > 0


async def test_64_writers_on_different_sessions_meet_no_error(store: SessionStore) -> None:
    async def write(writer: int) -> None:
        header = await store.create_session(f"s{writer}")
        tail = Tail(header.id, 1)
        for number in range(5):
            entries = next_entries(f"s{writer}", tail, [user(f"{writer}/{number}")], store.edge)
            tail = await store.append(f"s{writer}", entries, tail.entry_id)

    await asyncio.gather(*map(write, range(64)))
    assert len((await store.sessions(100)).items) == 64
    for writer in range(64):
        facts = [entry.fact for entry in await store.load(f"s{writer}")]
        assert [fact.text for fact in facts if isinstance(fact, Message)] == [f"{writer}/{n}" for n in range(5)]


async def test_a_closed_store_says_so(open_kept: Open) -> None:
    store = await open_kept()
    await store.create_session("s")
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.load("s")
    with pytest.raises(StoreError, match="closed"):
        await store.create_session("t")


async def test_a_dropped_session_is_gone_and_its_id_is_free(store: SessionStore) -> None:
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
