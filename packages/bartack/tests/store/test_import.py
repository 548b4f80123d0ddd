"""Imports are verified, can be repeated, respect redactions, and leave nothing open that acts."""

import io
from itertools import pairwise
from time import process_time

import pytest
from msgspec.structs import replace

from bartack.environment import Environment
from bartack.nouns import wire
from bartack.nouns.entries import (
    Custom,
    Entry,
    Fact,
    MessageQueued,
    Redaction,
    RunEnded,
    RunStarted,
    SessionHeader,
    ToolStarted,
)
from bartack.nouns.errors import Conflict, ErrorCode, SessionInUse, StoreError
from bartack.nouns.messages import Message, Meta, assistant, tool_message, user
from bartack.nouns.parts import ToolCall, ToolResult
from bartack.session.run_state import RunState
from bartack.store import MemoryStore, SessionStore, Tail, next_entries
from bartack.store.maintenance import check
from bartack.store.open_work import SCHEDULED, OpenWork, delivery_id
from bartack.store.transfer import Imported, export_session, import_lines, read_lines, whole_session
from tests.sample_session import SESSION
from tests.store.stores import add
from tests.store.test_transfer import lines_of


def lines_with(*facts: Fact, session_id: str = "s", run_id: str | None = "r") -> list[bytes]:
    """A session as another program may have written it, without checksums."""
    entries = next_entries(session_id, None, [SessionHeader(), *facts], Environment(), run_id=run_id)
    return [wire.encode(entry) + b"\n" for entry in entries]


async def state_of(store: SessionStore, session_id: str = "s") -> RunState:
    state = RunState()
    for entry in await store.load(session_id):
        state.push(entry)
    return state


async def stored_facts(store: SessionStore, start: int) -> list[Fact]:
    return [entry.fact for entry in (await store.entries("s"))[start:]]


async def test_an_open_run_is_closed_with_a_result_for_each_call(store: SessionStore) -> None:
    calls = assistant(ToolCall("a", "clock", {}), ToolCall("b", "clock", {}))
    lines = lines_with(RunStarted(), user("Go"), calls, ToolStarted(tool_call_id="a", tool_name="clock", arguments={}))
    await import_lines(store, lines)
    first, second, ended = await stored_facts(store, len(lines))
    assert isinstance(first, Message)
    assert isinstance(second, Message)
    results = [*first.tool_results, *second.tool_results]
    assert [(result.tool_call_id, result.error_code) for result in results] == [
        ("a", ErrorCode.TOOL_INTERRUPTED),
        ("b", ErrorCode.TOOL_NOT_RUN),
    ]
    assert ended == RunEnded(status="aborted", reason="imported")
    state = await state_of(store)
    assert (state.run_id, state.open_calls) == (None, {})
    assert await check(store) == []
    before = list((await store.entries("s")).texts)
    await import_lines(store, lines)  # changes nothing
    assert list((await store.entries("s")).texts) == before


async def test_calls_on_other_branches_are_closed_too(store: SessionStore) -> None:
    header, question, calls = next_entries(
        "s", None, [SessionHeader(), user("one"), assistant(ToolCall("c", "clock", {}))], Environment()
    )
    (newest,) = next_entries("s", tail_at(calls), [user("two")], Environment(), parent_id=question.id)
    await import_lines(store, [wire.encode(entry) for entry in (header, question, calls, newest)])
    assert await check(store) == []
    loaded = await store.load("s")
    assert [entry.id for entry in loaded[:3]] == [header.id, question.id, newest.id]
    assert isinstance(loaded[3].fact, Custom)


def tail_at(entry: Entry) -> Tail:
    return Tail(entry.id, entry.seq)


def test_what_many_branches_leave_open_takes_no_time_in_proportion_to_their_length() -> None:
    """A file may have a long chain, and any number of branches with open calls at its end."""
    header, question, calls = next_entries(
        "s", None, [SessionHeader(), user("one"), assistant(ToolCall("c", "clock", {}))], Environment()
    )
    assert isinstance(calls.fact, Message)
    work = OpenWork([header])
    ids = [header.id, *(f"chain{number}" for number in range(40_000))]
    for parent_id, entry_id in pairwise(ids):
        work.push(replace(question, id=entry_id, parent_id=parent_id))
    for number in range(40_000):
        fact = replace(calls.fact, parts=(ToolCall(f"call{number}", "clock", {}),))
        work.push(replace(calls, id=f"branch{number}", parent_id=ids[-1], fact=fact))
    before = process_time()
    assert len(work.branches()) == 40_000
    assert process_time() - before < 20  # 0.2 s, or minutes if each branch were walked


async def test_a_queued_message_is_withdrawn(store: SessionStore) -> None:
    lines = lines_with(user("hi"), assistant("Hello."), MessageQueued(message=user("Delete everything.")), run_id=None)
    await import_lines(store, lines)
    (withdrawn,) = await stored_facts(store, len(lines))
    assert isinstance(withdrawn, Redaction)
    assert (await state_of(store)).is_finished


async def test_a_scheduled_message_is_withdrawn_unless_it_was_delivered(store: SessionStore) -> None:
    scheduled = Custom(name=SCHEDULED, data={"message": wire.dump(user("Delete everything."))})
    entries = next_entries("s", None, [SessionHeader(), scheduled, scheduled], Environment())
    (delivery,) = next_entries("s", Tail(entries[-1].id, 3), [MessageQueued(message=user("Hi"))], Environment())
    delivery = replace(delivery, id=delivery_id(entries[1].id))
    message = replace(user("Hi"), meta=Meta(request_id=delivery.id))
    answered = next_entries("s", Tail(delivery.id, 4), [message, assistant("Hello.")], Environment())
    await import_lines(store, [wire.encode(entry) + b"\n" for entry in (*entries, delivery, *answered)])
    (withdrawn,) = await stored_facts(store, 6)
    assert isinstance(withdrawn, Redaction)
    assert withdrawn.entry_id == entries[2].id


async def test_a_session_of_our_own_is_not_closed_by_importing_its_export(store: SessionStore) -> None:
    await store.create_session("s")
    await add(store, "s", RunStarted(), user("Go"), assistant(ToolCall("a", "clock", {})))
    lines = await lines_of(store, "s")
    await import_lines(store, lines)
    assert len(await store.entries("s")) == 4


async def test_nothing_is_imported_into_a_session_in_use(store: SessionStore) -> None:
    await import_lines(store, lines_with(user("hi"))[:1])
    header = (await store.entries("s"))[0]
    await store.acquire_lease("s", "a run")
    (addition,) = next_entries("s", tail_at(header), [user("more")], Environment())
    with pytest.raises(SessionInUse):
        await import_lines(store, [wire.encode(header), wire.encode(addition)])


# -- redactions


async def test_a_redaction_made_elsewhere_takes_effect_here(store: SessionStore) -> None:
    source = MemoryStore()
    await source.create_session("s")
    secret, _ = await add(source, "s", user("the secret"), user("fine"))
    before = await lines_of(source, "s")
    await import_lines(store, before)
    assert [hit.seq for hit in await store.search("secret")] == [2]
    await add(source, "s", Redaction(entry_id=secret.id))
    redacted_lines = await lines_of(source, "s")
    assert b"secret" not in b"".join(redacted_lines)
    await import_lines(store, redacted_lines)
    assert await store.search("secret") == ()
    assert len(await store.load("s")) == 4
    await import_lines(store, before)  # an older export does not bring it back
    assert await store.search("secret") == ()


async def test_a_redacted_session_arrives_without_its_content(store: SessionStore) -> None:
    source = MemoryStore()
    await source.create_session("s")
    secret, _ = await add(source, "s", user("the secret"), user("fine"))
    await add(source, "s", Redaction(entry_id=secret.id))
    full = [wire.encode(entry) for entry in await source.entries("s")]
    await import_lines(store, await lines_of(source, "s"))
    assert b"secret" not in b"".join((await store.entries("s")).texts)
    await import_lines(store, full)
    assert b"secret" not in b"".join((await store.entries("s")).texts)


async def test_other_content_is_a_conflict(store: SessionStore) -> None:
    await store.append("s", SESSION, None)
    changed = [replace(entry, fact=Custom(name="changed", data={})) if entry.seq == 3 else entry for entry in SESSION]
    with pytest.raises(Conflict, match="is stored with different content"):
        await import_lines(store, [wire.encode(entry) for entry in changed])


# -- checksums and limits


async def exported() -> list[bytes]:
    store = MemoryStore()
    await store.append("s", SESSION, None)
    return await lines_of(store, "s")


@pytest.mark.parametrize("damage", ["changed", "lost", "swapped", "without"])
async def test_a_damaged_file_is_refused(store: SessionStore, damage: str) -> None:
    lines: list[bytes] = await exported()
    match damage:
        case "changed":
            lines[3] = lines[3].replace(b'"e3"', b'"e9"')
        case "lost":
            del lines[3]
        case "swapped":
            lines[3], lines[4] = lines[4], lines[3]
        case _:
            lines[3] = wire.encode(SESSION[3]) + b"\n"
    with pytest.raises(StoreError, match="Line 4 does not match its checksum") as caught:
        await import_lines(store, lines)
    assert caught.value.code is ErrorCode.INVALID_VALUE
    assert (await store.sessions()).items == ()


def test_a_line_that_is_too_long_is_refused_before_it_is_read() -> None:
    file = io.BytesIO(b"short\n" + b"x" * 1000)
    lines = read_lines(file, limit=100)
    assert next(lines) == b"short\n"
    with pytest.raises(StoreError, match="Line 2 has more than 100 bytes"):
        next(lines)
    assert file.tell() < 200


def long_session(runs: int) -> list[bytes]:
    facts: list[Fact] = []
    for number in range(runs):
        call = f"c{number}"
        facts += [RunStarted(), user(f"{number}"), assistant(ToolCall(call, "clock", {}))]
        facts += [tool_message(ToolResult(call, "noon")), assistant("Noon."), RunEnded(status="completed")]
    return lines_with(*facts)


async def test_a_long_import_arrives_as_it_is_and_can_be_repeated(store: SessionStore) -> None:
    lines = long_session(300)
    for _ in range(2):
        assert await import_lines(store, lines) == Imported(("s",), len(lines))
        assert [text + b"\n" for text in (await store.entries("s")).texts] == lines


async def test_a_session_with_damaged_entries_can_be_exported_and_imported(store: SessionStore) -> None:
    """Lines lost, unreadable, repeated, and of another session: the rest arrives in its place."""
    texts = [wire.encode(entry) for entry in SESSION]
    seqs = list(range(1, len(texts) + 1))
    texts[3] = b'{"id":"e3", ...'
    texts[5] = texts[4]
    texts[6] = texts[6].replace(b'"s"', b'"other"', 1)
    del texts[1], seqs[1]
    lines = list(whole_session("s", seqs, texts))
    await import_lines(store, lines)
    stored = await store.entries("s")
    assert [entry.seq for entry in stored[: len(SESSION)]] == list(range(1, len(SESSION) + 1))
    intact = [position for position in range(len(SESSION)) if position not in (1, 2, 3, 5, 6)]
    assert [stored[position].fact for position in intact] == [SESSION[position].fact for position in intact]
    assert [line async for line in export_session(store, "s")] == await lines_of(store, "s")
