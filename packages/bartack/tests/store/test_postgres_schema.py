"""Text that PostgreSQL does not accept as it is: NUL, backslashes, ids and words longer than an index allows."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from bartack.nouns.entries import Custom, Redaction, SessionHeader
from bartack.nouns.errors import Conflict, StoreError
from bartack.nouns.messages import assistant, tool_message
from bartack.nouns.parts import ToolCall, ToolResult
from bartack.store import Tail, next_entries
from bartack.store.postgres import PostgresStore
from bartack.store.postgres.schema import escape, key_of, numbers_of, unescape
from tests.store.postgres_server import address
from tests.store.stores import add


@pytest.fixture
async def store(fast_path: Path) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(address(str(fast_path)))
    yield store
    await store.close()


ODD = ["", "a", "\0", "\\", "\\0", "\\\0", "\\\\0", "a\0b\\c", "é\0", "x" * 5000, "\\#" + "0" * 64, "\u2028"]


def test_escaping_is_reversible_and_keys_are_unique() -> None:
    assert [unescape(escape(text)) for text in ODD] == ODD
    assert not any("\0" in escape(text) for text in ODD)
    assert len({*map(key_of, ODD), key_of("\ud800"), key_of("\udc00"), key_of("x" * 5001)}) == len(ODD) + 3


def test_each_word_has_one_number() -> None:
    assert numbers_of(["a", "b", "a"]) == sorted({*numbers_of(["a"]), *numbers_of(["b"])})
    assert all(-(2**31) <= number < 2**31 for number in numbers_of(map(str, range(1000))))


async def test_odd_ids_titles_and_words_are_stored(store: PostgresStore) -> None:
    odd = 'a\0b\\c"\u2028' + "i" * 3000
    header = await store.create_session("s\0\\", SessionHeader(title="t\0\\"))
    (entry,) = next_entries(
        "s\0\\", Tail(header.id, 1), [Custom(name=odd, data={odd: odd})], store.environment, run_id=odd
    )
    await store.append("s\0\\", [entry], header.id)
    await add(store, "s\0\\", assistant(ToolCall(odd, odd, {})), tool_message(ToolResult(odd, "long " + "w" * 5000)))
    with pytest.raises(Conflict, match="already has a result"):
        await add(store, "s\0\\", tool_message(ToolResult(odd, "again")))
    assert (await store.load("s\0\\"))[1] == entry
    (info,) = (await store.sessions()).items
    assert (info.id, info.title) == ("s\0\\", "t\0\\")
    assert [hit.seq for hit in await store.search("w" * 5000)] == [4]
    assert await store.search("w" * 4999) == ()
    for missing in ("\ud800", "x" * 100_000):
        with pytest.raises(StoreError, match="does not exist"):
            await store.load(missing)


async def test_long_ids_are_heads_and_can_be_redacted(store: PostgresStore) -> None:
    header = await store.create_session("s")
    long = Custom(name="x", data={"secret": 1})
    (entry,) = next_entries("s", Tail(header.id, 1), [long], store.environment)
    entry = replace(entry, id="e" * 5000)
    await store.append("s", [entry], header.id)
    assert await store.heads("s") == (entry.id,)
    assert await store.tail_of("s") == Tail(entry.id, 2)
    await add(store, "s", Redaction(entry_id=entry.id))
    assert (await store.load("s"))[1].fact == Custom(name="x", data={})
