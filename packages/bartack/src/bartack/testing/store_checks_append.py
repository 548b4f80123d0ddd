"""Appending entries, what an append refuses, and repeated appends. A refused append leaves nothing behind."""

import asyncio
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from bartack.nouns import wire
from bartack.nouns.entries import BranchSummary, Custom, Entry, Redaction, RunStarted, Session, SessionHeader
from bartack.nouns.entries import branch as branch_of
from bartack.nouns.entries import heads as heads_of
from bartack.nouns.errors import Conflict, ErrorCode, LeaseLost, NotFound, SessionInUse, StoreError
from bartack.nouns.messages import assistant, tool_message, user
from bartack.nouns.parts import Image, Text, ToolCall, ToolResult
from bartack.store.session_store import SessionStore, Tail, next_entries
from bartack.testing.store_steps import HANG_S, add, following, refusal, sample_session, texts_of


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
    entries = following(header, *(Custom(name="part", data={"number": number}) for number in range(5)))
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
    question, followup = await add(store, "s", user("one"), user("two"))
    tail = Tail(followup.id, followup.seq)
    facts = BranchSummary(summary="left", from_entry_id=followup.id), user("three")
    second = next_entries("s", tail, facts, store.environment, parent_id=question.id)
    await store.append("s", second, followup.id)
    third = next_entries("s", Tail(second[1].id, 5), [user("four")], store.environment, parent_id=followup.id)
    await store.append("s", third, second[1].id)
    everything = [header, question, followup, *second, *third]
    assert await store.entries("s") == everything, "entries must return all branches in order of seq"
    heads = await store.heads("s")
    assert heads == heads_of(everything), f"the entries without children are {heads_of(everything)}, got {heads}"
    for entry in everything:
        loaded = await store.load("s", head=entry.id)
        assert loaded == branch_of(everything, entry.id), f"load(head=...) returned another branch than that of {entry}"
    assert await store.load("s") == [header, question, followup, *third], "load must return the branch of the tail"


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
    entries = await add(store, "s", message, Custom(name="tricky", data=data), user(Image("image/png", data=picture)))
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
        acknowledged = [entry for mine in await asyncio.gather(*map(write, range(64))) for entry in mine]
    loaded = await store.load("s")
    seqs = [entry.seq for entry in loaded]
    assert seqs == list(range(1, 64 * 3 + 2)), f"64 writers of 3 entries each left the seqs {seqs}"
    assert loaded == [header, *sorted(acknowledged, key=lambda entry: entry.seq)], "an acknowledged entry is lost"


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


async def an_append_with_a_wrong_tail_is_refused(store: SessionStore) -> None:
    header = await store.create_session("s")
    first = following(header, user("one"))
    await store.append("s", first, header.id)
    late = following(header, user("two"))
    error = await refusal(Conflict, store.append("s", late, header.id), "an append after an entry that is not the last")
    assert error.tail == first[0].id, f"Conflict.tail must be the last entry {first[0].id!r}, got {error.tail!r}"
    assert not isinstance(error, SessionInUse | LeaseLost), f"no lease is involved, got {type(error).__name__}"
    await refusal(Conflict, store.append("s", following(first[0]), "unknown"), "an append after an unknown entry")
    await refusal(Conflict, store.append("s", late, first[0].id), "an append with a seq that is taken")
    assert await store.load("s") == [header, *first], "a refused append changed the session"


async def repeating_an_append_has_no_effect(store: SessionStore) -> None:
    header = await store.create_session("s")
    entries = following(header, user("one"), user("two"))
    tail = await store.append("s", entries, header.id)
    assert await _again(store, entries, header.id) == tail, "the same append again returned another tail"
    later = following(entries[-1], user("three"))
    await store.append("s", later, entries[-1].id)
    assert await _again(store, entries, header.id) == tail, "an older append again returned another tail"
    tail_of_both = await _again(store, (*entries, *later), header.id)
    assert tail_of_both == Tail(later[0].id, 4), f"both appends as one returned {tail_of_both}"
    assert await store.load("s") == [header, *entries, *later], "a repeated append changed the session"


async def _again(store: SessionStore, entries: tuple[Entry, ...], expected_tail: str) -> Tail:
    try:
        return await store.append("s", entries, expected_tail)
    except Conflict as error:
        raise AssertionError(f"an append of entries that are stored already must succeed, got: {error}") from error


async def an_append_may_start_with_stored_entries(store: SessionStore) -> None:
    header = await store.create_session("s")
    entries = following(header, user("one"), user("two"))
    await store.append("s", entries[:1], header.id)
    tail = await _again(store, entries, header.id)
    assert tail == Tail(entries[1].id, 3), f"append returned {tail}"
    assert await store.load("s") == [header, *entries], "only the entries that are new must be added"


async def a_taken_id_with_other_content_is_refused(store: SessionStore) -> None:
    header = await store.create_session("s")
    (entry,) = following(header, user("one"))
    await store.append("s", [entry], header.id)
    altered = replace(entry, fact=Custom(name="else", data={}))
    await refusal(Conflict, store.append("s", [altered], header.id), "a stored entry with other content")
    moved = replace(altered, seq=3, parent_id=entry.id)
    await refusal(Conflict, store.append("s", [moved], entry.id), "a new entry with the id of a stored one")
    assert await store.load("s") == [header, entry], "a refused append changed the session"


async def a_refused_append_stores_nothing(store: SessionStore) -> None:
    await store.create_session("s")
    entries = await add(store, "s", assistant(ToolCall("c", "clock", {})), tool_message(ToolResult("c", "noon")))
    late = following(entries[-1], user("fine"), tool_message(ToolResult("c", "midnight")))
    await refusal(Conflict, store.append("s", late, entries[-1].id), "a second result for a tool call")
    assert len(await store.load("s")) == 3, "the first entries of a refused append were stored"
    assert await store.search("fine") == (), "an entry of a refused append is found by search"


async def a_tool_call_gets_one_result(store: SessionStore) -> None:
    await store.create_session("s")
    call, _ = await add(store, "s", assistant(ToolCall("c", "clock", {})), tool_message(ToolResult("c", "noon")))
    tail = await store.tail_of("s")
    on_a_branch = next_entries("s", tail, [tool_message(ToolResult("c", "two"))], store.environment, parent_id=call.id)
    await refusal(Conflict, store.append("s", on_a_branch, tail.entry_id), "a second result on another branch")
    inner = assistant(ToolCall("c", "clock", {}, executed_by="provider", result=ToolResult("c", "three")))
    await refusal(Conflict, add(store, "s", inner), "a second result from the provider")
    await add(store, "s", assistant(ToolCall("d", "clock", {})))
    twice = tool_message(ToolResult("d", "1")), tool_message(ToolResult("d", "2"))
    await refusal(Conflict, add(store, "s", *twice), "two results in one append")
    await store.create_session("t")
    await add(store, "t", assistant(ToolCall("c", "clock", {})), tool_message(ToolResult("c", "in another session")))


async def missing_sessions_and_entries_are_not_found(store: SessionStore) -> None:
    header = await store.create_session("s")
    (stranger,) = following(replace(header, session_id="no"))
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "load": lambda: store.load("no"),
        "entries": lambda: store.entries("no"),
        "heads": lambda: store.heads("no"),
        "tail_of": lambda: store.tail_of("no"),
        "totals": lambda: store.totals("no"),
        "acquire_lease": lambda: store.acquire_lease("no", "me"),
        "lease_of": lambda: store.lease_of("no"),
        "drop_session": lambda: store.drop_session("no"),
        "inspect": lambda: store.inspect("no"),
        "append": lambda: store.append("no", [stranger], header.id),
        "append without a tail": lambda: store.append("no", [stranger], None),
        "follow": lambda: anext(store.follow("no")),
    }
    for name, call in calls.items():
        await refusal(NotFound, call(), f"{name} on a session that does not exist")
    await refusal(NotFound, store.load("s", head="no"), "load with a head that does not exist")
    orphan = replace(following(header)[0], parent_id="no")
    await refusal(NotFound, store.append("s", [orphan], header.id), "an entry whose parent does not exist")
    redaction = following(header, Redaction(entry_id="no"))
    await refusal(NotFound, store.append("s", redaction, header.id), "a redaction of an entry that does not exist")
    assert await store.load("s") == [header], "a refused append changed the session"


async def an_invalid_append_is_refused(store: SessionStore) -> None:
    header = await store.create_session("s")
    first, second = following(header, user("one"), user("two"))
    first = replace(first, id="twice")
    changes: dict[str, dict[str, object]] = {
        "of another session": {"session_id": "other"},
        "with a gap before its seq": {"seq": 7},
        "without an id": {"id": ""},
        "without a parent": {"parent_id": None},
        "with an id that occurs twice in the append": {"id": "twice"},
        "with a number that JSON does not have": {"fact": Custom(name="nan", data={"x": float("nan")})},
        "with half a surrogate pair": {"fact": Custom(name="surrogate", data={"x": "\ud800"})},
        "that is a tool message without a result": {"fact": replace(second.fact, role="tool", parts=())},
    }
    for defect, change in changes.items():
        entries = [first, replace(second, **{"parent_id": "twice", **change})]
        error = await refusal(StoreError, store.append("s", entries, header.id), f"an entry {defect}")
        assert error.code is ErrorCode.INVALID_VALUE, f"an entry {defect} must be invalid_value, got {error.code}"
    await refusal(StoreError, store.append("s", [], header.id), "an append without entries")
    assert await store.load("s") == [header], "an invalid append changed the session"


async def a_session_starts_with_its_header(store: SessionStore) -> None:
    (header,) = next_entries("s", None, [SessionHeader()], store.environment)
    custom = replace(header, fact=Custom(name="x", data={}))
    await refusal(StoreError, store.append("s", [custom], None), "a session whose first entry is not its header")
    await refusal(StoreError, store.create_session("x" * 300), "a session id of 300 bytes")
    newer = await refusal(StoreError, store.create_session("s", SessionHeader(version=99)), "a newer format version")
    assert newer.code is ErrorCode.STORAGE_UNSUPPORTED, f"a newer version must be storage_unsupported, got {newer.code}"
    await store.create_session("s")
    await refusal(Conflict, store.create_session("s"), "creating a session that exists")
