"""Checking, mending, moving and purging sessions, in every store."""

from pathlib import Path

import pytest

from bartack.nouns import wire
from bartack.nouns.entries import Custom, Redaction, SessionHeader
from bartack.nouns.errors import Conflict, ErrorCode, NotFound, StoreError
from bartack.nouns.messages import Message, assistant, tool_message, user
from bartack.nouns.parts import Image, ToolCall, ToolResult
from bartack.store import Finding, SessionStore, next_entries
from bartack.store.entries import UNREADABLE
from bartack.store.jsonl import JsonlStore
from bartack.store.maintenance import REPAIRED, check, purge, repair
from bartack.store.transfer import export_session, import_lines
from tests.sample_session import SESSION
from tests.store.stores import KINDS, Open, add, opener


def faults(findings: list[Finding]) -> list[tuple[int | None, str]]:
    return [(finding.seq, finding.fault) for finding in findings]


def bytes_under(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


async def lines_of(store: SessionStore, session_id: str) -> list[bytes]:
    return [line async for line in export_session(store, session_id)]


async def test_a_good_store_has_no_findings(store: SessionStore) -> None:
    await store.append("s", SESSION, None)
    await store.create_session("t")
    assert await check(store) == []


async def test_open_calls_and_orphan_results_are_found_and_open_calls_closed(store: SessionStore) -> None:
    await store.create_session("s")
    await add(store, "s", assistant(ToolCall("c", "clock", {}), ToolCall("d", "clock", {})))
    await add(store, "s", tool_message(ToolResult("c", "noon")), tool_message(ToolResult("x", "orphan")))
    found = await check(store)
    assert faults(found) == [(4, "orphan_result"), (2, "dangling_call")]
    assert [finding.repairable for finding in found] == [False, True]
    before = list((await store.entries("s")).texts)
    assert faults(await repair(store, "s")) == [(4, "orphan_result")]
    entries = await store.entries("s")
    assert list(entries.texts[:4]) == before
    closing = entries[-1].fact
    assert isinstance(closing, Message)
    assert [(result.tool_call_id, result.error_code) for result in closing.tool_results] == [
        ("d", ErrorCode.TOOL_INTERRUPTED)
    ]
    assert faults(await repair(store, "s")) == [(4, "orphan_result")]
    assert len(await store.entries("s")) == 5


async def test_mending_other_branches_leaves_the_newest_the_newest(store: SessionStore) -> None:
    await store.create_session("s")
    one, _ = await add(store, "s", user("one"), assistant(ToolCall("c", "clock", {})))
    place = await store.branch("s", one.id)
    newest = next_entries("s", place.tail, [user("two")], store.environment, parent_id=one.id)
    await store.append("s", newest, place.tail.entry_id)
    assert await repair(store, "s") == []
    loaded = await store.load("s")
    assert [entry.id for entry in loaded[:3]] == [(await store.entries("s"))[0].id, one.id, newest[0].id]
    assert isinstance(loaded[3].fact, Custom)
    assert loaded[3].fact.name == REPAIRED


async def test_nobody_mends_a_session_while_a_run_has_it(store: SessionStore) -> None:
    await store.create_session("s")
    await store.acquire_lease("s", "a run")
    with pytest.raises(Conflict):
        await repair(store, "s")


# -- a file that something happened to


async def damaged(folder: Path, change: dict[int, bytes | None]) -> JsonlStore:
    """A store with the session, some of whose lines (by place) were replaced or removed."""
    store = await JsonlStore.open(folder)
    await store.append("s", SESSION, None)
    await store.close()
    path = folder / "s.jsonl"
    lines = [line.rstrip(b" \n") + b"\n" for line in path.read_bytes().splitlines()]
    kept = [change.get(place, line) for place, line in enumerate(lines)]
    path.write_bytes(b"".join(line for line in kept if line is not None))
    return await JsonlStore.open(folder)


async def test_a_damaged_line_does_not_brick_its_session(tmp_path: Path) -> None:
    store = await damaged(tmp_path, {3: b'{"id":"e3", ...\n'})
    assert faults(await check(store)) == [(4, "bad_json"), (5, "broken_parent")]
    loaded = await store.load("s")
    assert len(loaded) == len(SESSION)
    fact = loaded[3].fact
    assert isinstance(fact, Custom)
    assert (fact.name, loaded[3].seq) == (UNREADABLE, 4)
    await add(store, "s", user("on we go"))
    assert len(await store.load("s")) == len(SESSION) + 1
    await store.close()


async def test_a_kind_of_a_newer_version_is_kept_and_shown_as_unreadable(tmp_path: Path) -> None:
    newer = wire.encode(SESSION[1]).replace(b'"run_started"', b'"run_teleported"')
    store = await damaged(tmp_path, {1: newer + b"\n"})
    assert faults(await check(store)) == [(2, "bad_json")]
    loaded = await store.load("s")
    assert (loaded[1].id, loaded[1].timestamp) == (SESSION[1].id, SESSION[1].timestamp)
    assert loaded.texts[1] == newer
    await store.close()


async def test_a_lost_line_is_a_gap(tmp_path: Path) -> None:
    store = await damaged(tmp_path, {1: None})
    assert faults(await check(store)) == [(3, "gap"), (3, "broken_parent")]
    await add(store, "s", user("on we go"))
    assert (await store.load("s"))[-1].seq == 14
    await store.close()


async def test_a_file_without_its_beginning_opens(tmp_path: Path) -> None:
    store = await damaged(tmp_path, {0: None})
    assert faults(await check(store)) == [(2, "gap"), (2, "broken_parent")]
    assert len(await store.load("s")) == len(SESSION) - 1
    assert (await store.sessions()).items[0].title is None
    await store.close()


async def test_repeated_and_foreign_lines_are_found(tmp_path: Path) -> None:
    second, foreign = wire.encode(SESSION[1]), wire.encode(SESSION[2]).replace(b'"s"', b'"other"', 1)
    store = await damaged(tmp_path, {1: second + b"\n" + second + b"\n", 2: foreign + b"\n"})
    assert faults(await check(store))[:3] == [(2, "repeat"), (2, "repeat"), (3, "wrong_session")]
    await store.close()


@pytest.mark.parametrize("torn", [b'{"id":"x', b"\0" * 40 + b"\n", b"{}\n", wire.encode(SESSION[0]) + b" \n"])
async def test_a_torn_end_is_kept_beside_the_file_and_the_session_goes_on(tmp_path: Path, torn: bytes) -> None:
    store = await damaged(tmp_path, {})
    await store.close()
    path = tmp_path / "s.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    store = await JsonlStore.open(tmp_path)
    assert await store.load("s") == SESSION
    assert [(finding.fault, finding.repairable) for finding in await check(store)] == [("torn", True)]
    assert await repair(store, "s") == []
    assert (tmp_path / "s.torn-1").read_bytes() == torn
    path.write_bytes(whole + b"second")
    await add(store, "s", user("on we go"))
    assert (tmp_path / "s.torn-2").read_bytes() == b"second"
    assert path.read_bytes().startswith(whole)
    assert len(await store.load("s")) == len(SESSION) + 1
    await store.close()


async def test_a_session_whose_very_first_line_is_torn_can_be_created(tmp_path: Path) -> None:
    store = await JsonlStore.open(tmp_path)
    (tmp_path / "s.jsonl").write_bytes(b'{"id"')
    with pytest.raises(NotFound):
        await store.load("s")
    header = await store.create_session("s")
    assert await store.load("s") == [header]
    assert (tmp_path / "s.torn-1").read_bytes() == b'{"id"'
    await store.close()


async def test_a_lost_or_changed_body_is_found(tmp_path: Path) -> None:
    store = await JsonlStore.open(tmp_path)
    await store.create_session("s")
    await add(store, "s", user("x" * 70_000), user("y" * 70_000))
    lost, changed = sorted((tmp_path / "blobs").iterdir())
    lost.unlink()
    changed.write_bytes(b"z")
    assert sorted(finding.message.split()[-1] for finding in await store.inspect("s")) == ["altered", "missing"]
    with pytest.raises(StoreError, match="is missing") as caught:
        await store.load("s")
    assert caught.value.code is ErrorCode.STORAGE_CORRUPT
    await store.close()


# -- moving


@pytest.mark.parametrize("source", KINDS)
@pytest.mark.parametrize("target", KINDS)
async def test_export_and_import_lose_nothing_between_any_two_stores(tmp_path: Path, source: str, target: str) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "to").mkdir()
    one, two = await opener(source, tmp_path / "from")(), await opener(target, tmp_path / "to")()
    await one.append("s", SESSION, None)
    await one.create_session("t", SessionHeader(title="T"))
    await add(one, "t", user("x" * 100_000, Image("image/png", data=b"\x00" * 90_000)), Custom("c", {"$blob": "no"}))
    lines = [line for session_id in ("s", "t") for line in await lines_of(one, session_id)]
    imported = await import_lines(two, [*lines, b"\n"])
    assert (imported.sessions, imported.entries) == (("s", "t"), len(SESSION) + 3)
    assert [line for session_id in ("s", "t") for line in await lines_of(two, session_id)] == lines
    await import_lines(two, lines)
    assert len(await two.load("s")) == len(SESSION)
    assert await two.totals() == await one.totals()
    assert await two.search("rain") == await one.search("rain")
    await one.close()
    await two.close()


async def test_what_was_redacted_does_not_leave_the_store(store: SessionStore) -> None:
    """D-5.6.1."""
    await store.create_session("s")
    secret, _ = await add(store, "s", user("the secret"), user("fine"))
    await add(store, "s", Redaction(secret.id))
    lines = await lines_of(store, "s")
    assert b"secret" not in b"".join(lines)
    assert len(lines) == 4
    assert lines[2] == (await store.entries("s")).texts[2] + b"\n"


@pytest.mark.parametrize("line", [b"{", b"nonsense", b"[]", b'{"id":"x"}', b"\xff\xfe"])
async def test_a_malformed_line_is_named_and_nothing_is_imported(store: SessionStore, line: bytes) -> None:
    good = [wire.encode(entry) + b"\n" for entry in SESSION]
    with pytest.raises(StoreError, match="Line 3 is not an entry") as caught:
        await import_lines(store, [*good[:2], line + b"\n", *good[2:]])
    assert caught.value.code is ErrorCode.INVALID_VALUE
    assert (await store.sessions()).items == ()


async def test_an_import_that_contradicts_what_is_there_is_a_conflict(store: SessionStore) -> None:
    await store.append("s", SESSION, None)
    other = wire.encode(SESSION[0]).replace(b"Weather", b"Whether")
    with pytest.raises(Conflict):
        await import_lines(store, [other])


# -- purging


async def test_a_purge_rewrites_the_session_without_what_was_redacted(store: SessionStore) -> None:
    header = await store.create_session("s", SessionHeader(title="T"))
    secret, fine = await add(store, "s", user("the secret"), user("fine"))
    await add(store, "s", Redaction(secret.id))
    new_id = await purge(store, "s")
    assert new_id is not None
    with pytest.raises(NotFound):
        await store.load("s")
    entries = await store.entries(new_id)
    assert [entry.id for entry in entries[:3]] == [header.id, secret.id, fine.id]
    assert b"the secret" not in b"".join(entries.texts)
    assert await check(store) == []


async def test_purging_everything_leaves_nothing(store: SessionStore) -> None:
    await store.create_session("s")
    await add(store, "s", user("x" * 70_000))
    assert await purge(store, "s", everything=True) is None
    assert (await store.sessions()).items == ()
    with pytest.raises(NotFound):
        await purge(store, "s")


async def test_a_session_that_a_run_writes_to_is_not_purged(store: SessionStore) -> None:
    await store.create_session("s")
    await store.acquire_lease("s", "a run")
    with pytest.raises(Conflict):
        await purge(store, "s")
    with pytest.raises(Conflict):
        await store.drop_session("s", expected_tail="another")


async def test_nothing_of_a_purged_session_stays_on_the_disk(open_kept: Open, fast_path: Path) -> None:
    store = await open_kept()
    kept = "k" * 70_000
    await store.create_session("s", SessionHeader(title="zebra"))
    secret, _ = await add(store, "s", user("quagga " + "q" * 70_000), user(kept))
    await add(store, "s", Redaction(secret.id), Custom("c", {"okapi": "1"}))
    await store.create_session("t")
    await add(store, "t", user(kept))
    new_id = await purge(store, "s")
    assert new_id is not None
    assert len(await store.load("t")) == 2
    await store.close()
    on_disk = bytes_under(fast_path)
    if not on_disk:
        return  # the disk of a server is not ours to look at: test_postgres.py asks its tables
    for word, is_there in ((b"quagga", False), (b"q" * 70_000, False), (b"okapi", True), (b"k" * 3_000, True)):
        assert any(word in data for data in on_disk) == is_there, word
