"""Lists, search and totals, the same in every store."""

import pytest

from bartack.nouns.deltas import Failed, Usage
from bartack.nouns.entries import Redaction, RunEnded, SessionHeader, StreamFailed
from bartack.nouns.errors import ErrorCode, StoreError
from bartack.nouns.messages import Message, Meta, ModelRef, assistant, tool_message, user
from bartack.nouns.parts import ToolCall, ToolResult
from bartack.store import SessionStore, Spend, next_entries, search
from tests.store.stores import add


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


async def test_redacted_content_is_never_returned(store: SessionStore) -> None:
    """Also if the redaction is on another branch."""
    await store.create_session("s", SessionHeader(title="secret title"))
    secret, after = await add(store, "s", user("the secret word"), user("after"))
    await add(store, "s", Redaction(secret.id))
    tail = await store.tail_of("s")
    other = next_entries("s", tail, [user("elsewhere")], store.environment, parent_id=after.id)
    await store.append("s", other, tail.entry_id)
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


async def test_totals_are_grouped_by_session_and_model(store: SessionStore) -> None:
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


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Don't snow_fall 3.5%", ["don", "t", "snow", "fall", "3", "5"]),
        ("STRASSE straße", ["strasse", "strasse"]),
        ("今日は rain", ["今", "日", "は", "rain"]),
        ("ꆈꌠ ሰላም", ["ꆈꌠ", "ሰላም"]),  # between Han and Hangul, but written with spaces
        ("", []),
    ],
)
def test_words_are_case_folded_letters_and_digits(text: str, found: list[str]) -> None:
    assert search.words(text) == found


def test_a_snippet_is_the_text_around_the_first_match() -> None:
    text = "a " * 100 + "needle\n\n  and" + " b" * 100
    assert search.snippet(text, [["needle"]]) == "…" + "a " * 30 + "needle and" + " b" * 23 + "…"
    assert search.snippet("short", []) == "short"
