"""What an append refuses, what a refused append leaves behind (nothing), and repeated appends."""

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from bartack.nouns.entries import Custom, Entry, Redaction, SessionHeader
from bartack.nouns.errors import Conflict, ErrorCode, LeaseLost, NotFound, SessionInUse, StoreError
from bartack.nouns.messages import assistant, tool_message, user
from bartack.nouns.parts import ToolCall, ToolResult
from bartack.store.session_store import SessionStore, Tail, next_entries
from bartack.testing.store_steps import add, following, refusal

__all__ = ["CHECKS"]


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
    both = await _again(store, (*entries, *later), header.id)
    assert both == Tail(later[0].id, 4), f"both appends as one returned {both}"
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
    other = replace(entry, fact=Custom("else", {}))
    await refusal(Conflict, store.append("s", [other], header.id), "a stored entry with other content")
    moved = replace(other, seq=3, parent_id=entry.id)
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
    redaction = following(header, Redaction("no"))
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
        "with a number that JSON does not have": {"fact": Custom("nan", {"x": float("nan")})},
        "with half a surrogate pair": {"fact": Custom("surrogate", {"x": "\ud800"})},
        "that is a tool message without a result": {"fact": replace(second.fact, role="tool", parts=())},
    }
    for what, change in changes.items():
        entries = [first, replace(second, **{"parent_id": "twice", **change})]
        error = await refusal(StoreError, store.append("s", entries, header.id), f"an entry {what}")
        assert error.code is ErrorCode.INVALID_VALUE, f"an entry {what} must be invalid_value, got {error.code}"
    await refusal(StoreError, store.append("s", [], header.id), "an append without entries")
    assert await store.load("s") == [header], "an invalid append changed the session"


async def a_session_starts_with_its_header(store: SessionStore) -> None:
    (header,) = next_entries("s", None, [SessionHeader()], store.environment)
    custom = replace(header, fact=Custom("x", {}))
    await refusal(StoreError, store.append("s", [custom], None), "a session whose first entry is not its header")
    await refusal(StoreError, store.create_session("x" * 300), "a session id of 300 bytes")
    newer = await refusal(StoreError, store.create_session("s", SessionHeader(version=99)), "a newer format version")
    assert newer.code is ErrorCode.STORAGE_UNSUPPORTED, f"a newer version must be storage_unsupported, got {newer.code}"
    await store.create_session("s")
    await refusal(Conflict, store.create_session("s"), "creating a session that exists")


CHECKS = (
    an_append_with_a_wrong_tail_is_refused,
    repeating_an_append_has_no_effect,
    an_append_may_start_with_stored_entries,
    a_taken_id_with_other_content_is_refused,
    a_refused_append_stores_nothing,
    a_tool_call_gets_one_result,
    missing_sessions_and_entries_are_not_found,
    an_invalid_append_is_refused,
    a_session_starts_with_its_header,
)
