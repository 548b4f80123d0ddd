"""Appending and reading back: batches, branches, large content, and many writers at once."""

import asyncio

from bartack.nouns import wire
from bartack.nouns.entries import BranchSummary, Custom, Entry, RunStarted, Session, SessionHeader
from bartack.nouns.entries import branch as branch_of
from bartack.nouns.entries import heads as heads_of
from bartack.nouns.errors import Conflict, NotFound
from bartack.nouns.messages import user
from bartack.nouns.parts import Image, Text
from bartack.store.session_store import SessionStore, Tail, next_entries
from bartack.testing.store_steps import HANG_S, add, following, refusal, sample_session, texts_of

__all__ = ["CHECKS"]


async def entries_load_byte_for_byte(store: SessionStore) -> None:
    entries = sample_session()
    tail = await store.append("s", entries, None)
    assert tail == Tail(entries[-1].id, entries[-1].seq), f"append returned {tail}, not the last of its entries"
    loaded = await store.load("s")
    assert loaded == entries, "load returned other entries than were appended"
    assert list(loaded.texts) == [wire.encode(entry) for entry in entries], "the JSON of an entry has changed"
    assert loaded[2:4] == entries[2:4], "a slice of the loaded entries is wrong"


async def a_batch_is_stored_completely(store: SessionStore) -> None:
    header = await store.create_session("s")
    entries = following(header, *(Custom("part", {"number": number}) for number in range(5)))
    tail = await store.append("s", entries, header.id)
    assert tail.seq == 6, f"five entries after the first end at seq 6, append returned {tail}"
    stored = [entry.seq for entry in await store.entries("s")]
    assert stored == [1, 2, 3, 4, 5, 6], f"an append of five entries left the seqs {stored}"


async def a_session_is_rebuilt_from_its_entries(store: SessionStore) -> None:
    header = await store.create_session("s", SessionHeader(metadata={"from": "test"}))
    await add(store, "s", RunStarted(), user("hi"))
    session = Session.of(await store.load("s"))
    assert (session.session_id, session.metadata) == ("s", {"from": "test"}), "the header is not the one it got"
    assert [message.text for message in session.messages] == ["hi"], "the messages are not the ones appended"
    assert session.entries[0] == header, "create_session returned another entry than it stored"


async def the_tail_is_the_last_entry(store: SessionStore) -> None:
    header = await store.create_session("s")
    assert await store.tail_of("s") == Tail(header.id, 1), "the tail of a new session is its header"
    for number in range(3):
        (entry,) = following((await store.entries("s"))[-1], user(f"{number}"))
        await store.append("s", [entry], entry.parent_id)
        tail = await store.tail_of("s")
        assert tail == Tail(entry.id, entry.seq), f"tail_of returned {tail} after {entry.id!r} was appended"


async def a_session_is_a_tree(store: SessionStore) -> None:
    header = await store.create_session("s")
    one, two = await add(store, "s", user("one"), user("two"))
    tail = Tail(two.id, two.seq)
    facts = BranchSummary("left", two.id), user("three")
    second = next_entries("s", tail, facts, store.environment, parent_id=one.id)
    await store.append("s", second, two.id)
    third = next_entries("s", Tail(second[1].id, 5), [user("four")], store.environment, parent_id=two.id)
    await store.append("s", third, second[1].id)
    everything = [header, one, two, *second, *third]
    assert await store.entries("s") == everything, "entries must return all branches in order of seq"
    heads = await store.heads("s")
    assert heads == heads_of(everything), f"the entries without children are {heads_of(everything)}, got {heads}"
    for entry in everything:
        loaded = await store.load("s", head=entry.id)
        assert loaded == branch_of(everything, entry.id), f"load(head=...) returned another branch than that of {entry}"
    assert await store.load("s") == [header, one, two, *third], "load must return the branch of the tail"


async def appending_does_not_change_earlier_entries(store: SessionStore) -> None:
    entries = sample_session()
    await store.append("s", entries[:4], None)
    before = await store.load("s")
    await store.append("s", entries[4:], entries[3].id)
    assert (await store.load("s"))[:4] == before == entries[:4], "an entry reads differently after another append"


async def large_and_tricky_content_is_kept(store: SessionStore) -> None:
    header = await store.create_session("s")
    picture = bytes(range(256)) * 1000
    message = user(Text('\\"{}\u2028é' * 20_000), Image("image/png", data=picture))
    data = {"$blob": "a" * 64, "$$blob": {"$blob": "x" * 70_000}, "list": ["$blob", '{"$blob":"', "$" * 70_000]}
    entries = await add(store, "s", message, Custom("tricky", data), user(Image("image/png", data=picture)))
    loaded = await store.load("s")
    assert loaded == [header, *entries], "large content was not restored"
    assert list(loaded.texts) == [wire.encode(entry) for entry in (header, *entries)], (
        "the JSON of an entry has changed"
    )
    assert await store.append("s", entries, header.id) == Tail(entries[-1].id, 4), (
        "the same entries were not recognised"
    )


async def concurrent_writers_of_one_session_lose_nothing(store: SessionStore) -> None:
    """Exactly one writer wins each seq; the others get a conflict and try again at the new tail."""
    header = await store.create_session("s")
    conflicts = [0] * 64

    async def write(writer: int) -> list[Entry]:
        tail = Tail(header.id, 1)
        mine: list[Entry] = []
        while len(mine) < 3:
            (entry,) = next_entries("s", tail, [user(f"{writer}/{len(mine)}")], store.environment)
            try:
                tail = await store.append("s", [entry], tail.entry_id)
                mine.append(entry)
            except Conflict:  # another writer has won
                conflicts[writer] += 1
                assert conflicts[writer] < 64 * 3, "a writer gets more conflicts than there are entries of others"
                tail = await store.tail_of("s")
        return mine

    async with asyncio.timeout(HANG_S):
        written = [entry for mine in await asyncio.gather(*map(write, range(64))) for entry in mine]
    loaded = await store.load("s")
    seqs = [entry.seq for entry in loaded]
    assert seqs == list(range(1, 64 * 3 + 2)), f"64 writers of 3 entries each left the seqs {seqs}"
    assert loaded == [header, *sorted(written, key=lambda entry: entry.seq)], "an acknowledged entry is lost"


async def concurrent_writers_of_different_sessions_get_no_errors(store: SessionStore) -> None:
    async def write(writer: int) -> None:
        header = await store.create_session(f"s{writer}")
        tail = Tail(header.id, 1)
        for number in range(5):
            entries = next_entries(f"s{writer}", tail, [user(f"{writer}/{number}")], store.environment)
            tail = await store.append(f"s{writer}", entries, tail.entry_id)

    async with asyncio.timeout(HANG_S):
        await asyncio.gather(*map(write, range(64)))
    assert len((await store.sessions(100)).items) == 64, "a session is missing from the list"
    for writer in range(64):
        texts = await texts_of(store, f"s{writer}")
        assert texts == [f"{writer}/{number}" for number in range(5)], f"session s{writer} has the messages {texts}"


async def a_dropped_session_is_deleted(store: SessionStore) -> None:
    entries = sample_session()
    await store.append("s", entries, None)
    await store.create_session("t")
    stale = store.drop_session("s", expected_tail=entries[0].id)
    await refusal(Conflict, stale, "dropping a session that has grown since it was chosen")
    await store.drop_session("s", expected_tail=entries[-1].id)
    await refusal(NotFound, store.load("s"), "load of a dropped session")
    assert await store.search("rain") == (), "search finds an entry of a dropped session"
    assert [info.id for info in (await store.sessions()).items] == ["t"], "a dropped session is listed"
    assert (await store.totals()).spend.calls == 0, "the usage of a dropped session is counted"
    await store.append("s", entries, None)
    assert await store.load("s") == entries, "a session with the id of a dropped one is not empty at first"


CHECKS = (
    entries_load_byte_for_byte,
    a_batch_is_stored_completely,
    a_session_is_rebuilt_from_its_entries,
    the_tail_is_the_last_entry,
    a_session_is_a_tree,
    appending_does_not_change_earlier_entries,
    large_and_tricky_content_is_kept,
    concurrent_writers_of_one_session_lose_nothing,
    concurrent_writers_of_different_sessions_get_no_errors,
    a_dropped_session_is_deleted,
)
