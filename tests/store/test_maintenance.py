"""Checking, repairing and purging sessions, in every store."""

from pathlib import Path

import pytest

from bartack.nouns.entries import Custom, Redaction, SessionHeader
from bartack.nouns.errors import Conflict, ErrorCode, NotFound
from bartack.nouns.messages import Message, assistant, tool_message, user
from bartack.nouns.parts import ToolCall, ToolResult
from bartack.session.outline import REPAIRED
from bartack.store import Finding, SessionStore, next_entries
from bartack.store.maintenance import check, check_all, purge, repair
from tests.store.stores import OpenStore, add


def faults(findings: list[Finding]) -> list[tuple[int | None, str]]:
    return [(finding.seq, finding.fault) for finding in findings]


def bytes_under(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


async def test_dangling_calls_and_orphan_results_are_found_and_calls_closed(store: SessionStore) -> None:
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


async def test_repairing_older_branches_keeps_the_newest_branch_newest(store: SessionStore) -> None:
    await store.create_session("s")
    one, _ = await add(store, "s", user("one"), assistant(ToolCall("c", "clock", {})))
    tail = await store.tail_of("s")
    newest = next_entries("s", tail, [user("two")], store.environment, parent_id=one.id)
    await store.append("s", newest, tail.entry_id)
    assert await repair(store, "s") == []
    loaded = await store.load("s")
    assert [entry.id for entry in loaded[:3]] == [(await store.entries("s"))[0].id, one.id, newest[0].id]
    assert isinstance(loaded[3].fact, Custom)
    assert loaded[3].fact.name == REPAIRED


async def test_a_session_in_use_is_not_repaired(store: SessionStore) -> None:
    await store.create_session("s")
    await store.acquire_lease("s", "a run")
    with pytest.raises(Conflict):
        await repair(store, "s")


async def test_a_session_in_use_does_not_keep_others_from_being_repaired(store: SessionStore) -> None:
    for name in ("free", "used"):
        await store.create_session(name)
        await add(store, name, assistant(ToolCall("c1", "look", {})))
    await store.acquire_lease("used", "a run")
    checked = await check_all(store, do_repair=True)
    assert checked.repaired == ("free",)
    assert [finding.session_id for finding in checked.findings] == ["used", "used"]
    assert "in use by a run" in checked.findings[1].message


async def test_a_purge_rewrites_the_session_without_redacted_content(store: SessionStore) -> None:
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


async def test_purging_everything_deletes_the_session(store: SessionStore) -> None:
    await store.create_session("s")
    await add(store, "s", user("x" * 70_000))
    assert await purge(store, "s", everything=True) is None
    assert (await store.sessions()).items == ()
    with pytest.raises(NotFound):
        await purge(store, "s")


async def test_a_session_in_use_is_not_purged(store: SessionStore) -> None:
    await store.create_session("s")
    await store.acquire_lease("s", "a run")
    with pytest.raises(Conflict):
        await purge(store, "s")
    with pytest.raises(Conflict):
        await store.drop_session("s", expected_tail="another")


async def test_no_bytes_of_a_purged_session_stay_on_disk(open_persistent: OpenStore, fast_path: Path) -> None:
    store = await open_persistent()
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
        return  # test_postgres.py looks into the tables of the server instead
    for word, is_there in ((b"quagga", False), (b"q" * 70_000, False), (b"okapi", True), (b"k" * 3_000, True)):
        assert any(word in data for data in on_disk) == is_there, word
