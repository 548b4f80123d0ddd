"""Following a session, listing, searching, counting usage, and redacted content."""

import asyncio

from msgspec.structs import replace

from bartack.nouns.deltas import TOKEN_COUNTS, Failed, Usage
from bartack.nouns.entries import Entry, Redaction, RunEnded, SessionHeader, StreamFailed
from bartack.nouns.errors import ErrorCode, StoreError
from bartack.nouns.messages import Message, Meta, ModelRef, assistant, tool_message, user
from bartack.nouns.parts import ToolCall, ToolResult
from bartack.store.maintenance import check
from bartack.store.requests import rename
from bartack.store.session_store import RESERVED, SessionStore, Spend, next_entries
from bartack.testing.store_steps import HANG_S, add, refusal, sample_session, texts_of


async def entries_can_be_read_from_any_seq(store: SessionStore) -> None:
    entries = sample_session()
    await store.append("s", entries, None)
    assert await store.entries("s", 3) == entries[3:], "entries(after_seq=3) must begin with seq 4"
    assert await store.entries("s", 3, 2) == entries[3:5], "entries(limit=2) must return two entries"
    assert await store.entries("s", 100) == [], "entries after the last seq must be empty"


# -- following


async def a_follower_gets_every_entry_once(store: SessionStore) -> None:
    await store.create_session("s")

    async def listen(start: int) -> list[int]:
        seqs = []
        async for entry in store.follow("s", start):
            seqs.append(entry.seq)
            if entry.seq >= 31:
                break
        return seqs

    async with asyncio.timeout(HANG_S):
        listeners = {start: asyncio.create_task(listen(start)) for start in (0, 1, 15)}
        for number in range(30):
            await add(store, "s", user(str(number)))
        for start, listener in listeners.items():
            seqs = await listener
            assert seqs == list(range(start + 1, 32)), f"a follower from seq {start} got {seqs}"


async def followers_end_when_the_store_is_closed(store: SessionStore) -> None:
    await store.create_session("s")
    received: asyncio.Queue[Entry] = asyncio.Queue()

    async def listen() -> None:
        async for entry in store.follow("s"):
            received.put_nowait(entry)

    async with asyncio.timeout(HANG_S):
        listener = asyncio.create_task(listen())
        assert (await received.get()).seq == 1, "a follower must start with the first entry"
        await store.close()
        await store.close()
        await listener
        assert received.empty(), "a follower got an entry that was never appended"
        assert await anext(store.follow("s"), None) is None, "a follower of a closed store must end at once"


# -- lists and search


async def sessions_are_listed_newest_first_in_pages(store: SessionStore) -> None:
    for number in range(7):
        await store.create_session(f"s{number}", SessionHeader(title=f"No. {number}"))
    await add(store, "s3", user("hello"))
    await store.create_session(f"{RESERVED}records")  # not listed
    pages = await _pages(store, 3)
    assert pages == [["s3", "s6", "s5"], ["s4", "s2", "s1"], ["s0"]], f"pages of three sessions: {pages}"
    reserved_ids = [info.id for info in (await store.sessions(3, reserved=True)).items]
    assert reserved_ids == [f"{RESERVED}records"], f"the reserved sessions are {reserved_ids}"
    (info,) = (await store.sessions(1)).items
    assert (info.title, info.entries) == ("No. 3", 2), f"a session with two entries is listed as {info}"
    assert info.tail == await store.tail_of("s3"), f"the listed tail is {info.tail}"
    assert info.created < info.updated, "updated must be the time of the last entry"
    odd = "s3/é%_\\"
    for session_id in ("S3", odd, "s3/x"):
        await store.create_session(session_id)
    for prefix, expected in {"s3": [["s3/x", odd], ["s3"]], odd: [[odd]], "S": [["S3"]], "%": [[]]}.items():
        pages = await _pages(store, 2, prefix)
        assert pages == expected, f"pages of two sessions with the prefix {prefix!r}: {pages}"
    await refusal(StoreError, store.sessions(3, "nonsense"), "an invalid cursor")
    await refusal(StoreError, store.sessions(0), "a page of no sessions")


async def _pages(store: SessionStore, limit: int, prefix: str = "") -> list[list[str]]:
    page = await store.sessions(limit, prefix=prefix)
    pages = [[info.id for info in page.items]]
    while page.cursor is not None:
        page = await store.sessions(limit, page.cursor, prefix=prefix)
        pages.append([info.id for info in page.items])
    return pages


async def search_finds_entries_by_all_their_words(store: SessionStore) -> None:
    await store.create_session("a", SessionHeader(title="Weather in Paris"))
    _, rain = await add(store, "a", user("Will it RAIN today?"), assistant("No rain, snow_fall."))
    await add(store, "a", assistant(ToolCall("c", "sky", {})), tool_message(ToolResult("c", "straße 今日は雨です")))
    await store.create_session("b")
    await add(store, "b", user("rain again"))
    places = [(hit.session_id, hit.seq) for hit in await store.search("rain")]
    assert places == [("b", 2), ("a", 2), ("a", 3)], f"search for 'rain' found {places}"
    hits = await store.search("fall rain")
    assert [(hit.entry_id, hit.snippet) for hit in hits] == [(rain.id, "No rain, snow_fall.")], f"'fall rain': {hits}"
    for text, expected in {"STRASSE": [5], "日は雨": [5], "paris": [1]}.items():
        seqs = [hit.seq for hit in await store.search(text)]
        assert seqs == expected, f"search for {text!r} found the seqs {seqs}, expected {expected}"
    for text in ("rai", "雨日", "", "...", '"', "rain AND", "OR", "*"):
        assert await store.search(text) == (), f"search for {text!r} must find nothing"
    for text, ids in {"rain": ["b", "a"], "today": ["a"], "...": []}.items():
        listed = [info.id for info in (await store.sessions(query=text)).items]
        assert listed == ids, f"sessions(query={text!r}) listed {listed}"
    assert len(await store.search("rain", limit=2)) == 2, "search(limit=2) must return two hits"
    places = [(hit.session_id, hit.seq) for hit in await store.search("rain", limit=2, prefix="a")]
    assert places == [("a", 2), ("a", 3)], f"search(prefix='a') found {places}"
    listed = [info.id for info in (await store.sessions(1, query="rain", prefix="a")).items]
    assert listed == ["a"], f"sessions(query='rain', prefix='a') listed {listed}"


async def search_finds_phrases_and_beginnings_and_the_best_match_first(store: SessionStore) -> None:
    await store.create_session("a", SessionHeader(title="Weather"))
    await add(store, "a", user("It rains, and a rainbow follows. " + "Nothing else happened. " * 40))
    await add(store, "a", user("fall of snow"), assistant("Rain. Rain in the src/rain_fall.py of Ärzte."))
    for text, expected in {
        '"snow fall"': [],
        '"fall of" snow': [3],
        "rain*": [2, 4],
        "rainb*": [2],
        "src/rain_f*": [4],
        '"a rain"*': [2],
        "ärzt*": [4],
        "fall *": [3, 4],
        "*": [],
    }.items():
        seqs = [hit.seq for hit in await store.search(text)]
        assert seqs == expected, f"search for {text!r} found the seqs {seqs}, expected {expected}"
    hits = await store.search("rain*", best_first=True)
    assert [hit.seq for hit in hits] == [4, 2], f"the best matches for 'rain*' are {hits}"
    assert hits[0].title == "Weather", f"the title of the session is {hits[0].title!r}"
    assert hits[0].time is not None, "a hit must have the time of its entry"
    assert (hits[0].score or 0) > (hits[1].score or 0), f"the scores are {[hit.score for hit in hits]}"
    assert len(await store.search("rain*", limit=1, best_first=True)) == 1, "search(limit=1) must return one hit"
    (first, *_) = await store.search("rain*")
    assert first.score is None, "only a search for the best matches has scores"


async def a_session_can_be_renamed(store: SessionStore) -> None:
    await store.create_session("s", SessionHeader(title="First words"))
    await rename(store, "s", "Retries of uploads")
    renamed = await rename(store, "s", " Attempts\n of uploads ")
    await add(store, "s", user("more"))
    (info,) = (await store.sessions()).items
    assert info.title == "Attempts of uploads", f"a renamed session is called {info.title!r}"
    listed = [info.id for info in (await store.sessions(query="attempts")).items]
    assert listed == ["s"], f"a search for its new title lists {listed}"
    await add(store, "s", Redaction(entry_id=(await store.entries("s"))[0].id))
    (info,) = (await store.sessions()).items
    assert info.title == "Attempts of uploads", f"without its first title, a session is called {info.title!r}"
    await add(store, "s", Redaction(entry_id=renamed.id))
    (info,) = (await store.sessions()).items
    assert info.title is None, f"a redacted title is listed: {info.title!r}"
    assert await store.search("attempts") == (), "search finds a redacted title"
    findings = await check(store)
    assert findings == [], f"a renamed session has the findings {findings}"


async def redacted_content_is_never_returned(store: SessionStore) -> None:
    """Also if the redaction is on another branch; only `entries` returns what is stored."""
    await store.create_session("s", SessionHeader(title="secret title"))
    secret, following = await add(store, "s", user("the secret word"), user("after"))
    await add(store, "s", Redaction(entry_id=secret.id))
    tail = await store.tail_of("s")
    branch = next_entries("s", tail, [user("elsewhere")], store.environment, parent_id=following.id)
    await store.append("s", branch, tail.entry_id)
    texts = await texts_of(store, "s")
    assert texts == ["[redacted]", "after", "elsewhere"], f"after a redaction, load returned {texts}"
    assert await store.search("word") == (), "search finds redacted content"
    assert (await store.entries("s"))[1] == secret, "entries must return what was appended"
    followed = (await anext(store.follow("s", after_seq=1))).fact
    assert isinstance(followed, Message), f"the entry with seq 2 is a message, a follower got {followed}"
    assert followed.text == "[redacted]", f"a follower got the redacted text {followed.text!r}"
    await add(store, "s", Redaction(entry_id=(await store.entries("s"))[0].id))
    assert (await store.sessions()).items[0].title is None, "the title of a redacted header is listed"
    assert await store.search("title") == (), "search finds a redacted title"


# -- usage


async def usage_is_counted_by_session_and_model(store: SessionStore) -> None:
    claude_model, gpt_model = ModelRef("anthropic", "claude"), ModelRef("openai", "gpt")
    usage = Usage(20, 7, cache_read_tokens=5, cache_write_tokens=1, reasoning_tokens=3)
    failed = StreamFailed(error=Failed(ErrorCode.OVERLOADED), usage=Usage(9, 0), model=gpt_model)
    for session_id in ("a", "b"):
        await store.create_session(session_id)
        await add(store, session_id, assistant("x", meta=Meta(model=claude_model, usage=usage, cost_usd=0.25)), failed)
    await add(store, "b", assistant("y", meta=Meta(usage=Usage(1, 1, cost=0.5))), assistant("z", meta=Meta()))
    await add(store, "b", RunEnded(status="completed", usage=usage, cost_usd=9.0))
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
    by_model = [(usage_of_model.model, usage_of_model.spend) for usage_of_model in totals.models]
    assert by_model == [(claude_model, claude), (gpt_model, gpt)], f"usage of session 'a' by model: {by_model}"
    assert totals.spend == claude + gpt, f"usage of session 'a': {totals.spend}"
    by_model = [(usage_of_model.model, usage_of_model.spend) for usage_of_model in (await store.totals()).models]
    expected = [(None, nameless), (claude_model, claude + claude), (gpt_model, gpt + gpt)]
    assert by_model == expected, f"usage of the store by model: {by_model}"
    listed = (await store.sessions(1)).items[0].spend
    assert listed == claude + gpt + nameless, f"usage of session 'b' in the list: {listed}"


async def every_token_count_is_added_up(store: SessionStore) -> None:
    for field in (name for name in TOKEN_COUNTS if name != "total_tokens"):  # a total is the sum of two others
        await store.create_session(field)
        meta = Meta(model=ModelRef("p", "m"), usage=replace(Usage(0, 0), **{field: 7}))
        await add(store, field, assistant("one", meta=meta), assistant("two", meta=meta))
        totals = await store.totals(field)
        counted = [getattr(spend, field) for spend in (totals.spend, *(model.spend for model in totals.models))]
        assert counted == [14, 14], f"{field}: 7 and 7 were counted as {counted}"
        assert (totals.spend.calls, totals.spend.unpriced) == (2, 2), f"two calls were counted as {totals.spend}"


async def an_intact_store_has_no_findings(store: SessionStore) -> None:
    await store.append("s", sample_session(), None)
    await store.create_session("t")
    await add(store, "t", user("x" * 70_000))
    findings = await check(store)
    assert findings == [], f"an intact store has the findings {findings}"
