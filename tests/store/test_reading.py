"""Lists, search, totals, following and leases, asked of every kind of store in the same words."""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from bartack.nouns.deltas import Failed, Usage
from bartack.nouns.entries import Redaction, RunEnded, SessionHeader, StreamFailed
from bartack.nouns.errors import Conflict, ErrorCode, StoreError
from bartack.nouns.messages import Message, Meta, ModelRef, assistant, tool_message, user
from bartack.nouns.parts import ToolCall, ToolResult
from bartack.store import SessionStore, next_entries
from bartack.store.session_store import Spend
from tests.store.stores import Open, add, said

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
    with pytest.raises(StoreError, match="Invalid cursor"):
        await store.sessions(3, "nonsense")
    with pytest.raises(StoreError, match="at least 1"):
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
    other = next_entries("s", place.tail, [user("elsewhere")], store.environment, parent_id=after.id)
    await store.append("s", other, place.tail.entry_id)
    loaded = await store.load("s")
    assert [entry.fact.text for entry in loaded if isinstance(entry.fact, Message)] == [
        "[redacted]",
        "after",
        "elsewhere",
    ]
    assert await store.search("word") == ()
    assert (await store.entries("s"))[1] == secret
    followed = [await anext(follower) for follower in [store.follow("s", after=1)]]
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
        async for entry in store.follow("s", after):
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
        return len([entry async for entry in store.follow("s")])

    listener = asyncio.create_task(listen())
    await asyncio.sleep(0.05)
    await store.close()
    await store.close()
    async with asyncio.timeout(5):
        assert await listener == 1


async def test_a_follower_sees_what_another_store_on_the_same_place_appends(open_kept: Open) -> None:
    mine, other = await open_kept(), await open_kept()
    await mine.create_session("s")
    follower = mine.follow("s", after=1)
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
    with pytest.raises(Conflict, match=r"Session 's' is in use by 'one' \(lease expires in \d+ s\)"):
        await store.acquire_lease("s", "two")
    (entry,) = next_entries("s", await store.tail_of("s"), [user("hi")], store.environment)
    tail = await store.append("s", [entry], entry.parent_id, lease=lease)
    renewed = await store.renew_lease(lease, ttl=600)
    assert (renewed.epoch, renewed.expires_at > lease.expires_at + timedelta(seconds=60)) == (lease.epoch, True)
    await store.release_lease(lease)
    await store.release_lease(lease)
    with pytest.raises(Conflict, match="was lost"):
        await store.append("s", said(entry), tail.entry_id, lease=lease)
    second = await store.acquire_lease("s", "two")
    assert second.epoch == lease.epoch + 1
    with pytest.raises(StoreError, match="needs an owner"):
        await store.acquire_lease("s", "")


async def test_a_paused_owner_cannot_write_after_another_took_over(store: SessionStore) -> None:
    header = await store.create_session("s")
    other = await store.create_session("t")
    old = await store.acquire_lease("s", "old", ttl=0.001)
    await asyncio.sleep(0.01)
    new = await store.acquire_lease("s", "new")
    with pytest.raises(Conflict, match="was lost"):
        await store.append("s", said(header), header.id, lease=old)
    with pytest.raises(Conflict, match="was lost"):
        await store.renew_lease(old)
    await store.release_lease(old)
    assert await store.load("s") == [header]
    await store.append("s", said(header), header.id, lease=new)
    with pytest.raises(StoreError, match="The lease is for session 's'"):
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
