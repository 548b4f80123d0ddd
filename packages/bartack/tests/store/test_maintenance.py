"""Checking, repairing and purging sessions, in every store."""

import os
from pathlib import Path
from typing import Any

import pytest

from bartack.nouns.entries import Custom, Redaction, SessionHeader, ToolProgress
from bartack.nouns.errors import Conflict, ErrorCode, NotFound, StoreError
from bartack.nouns.messages import Message, assistant, tool_message, user
from bartack.nouns.parts import ToolCall, ToolResult
from bartack.session.outline import REPAIRED
from bartack.session.redaction import subagent_sessions
from bartack.store import Finding, MemoryStore, SessionStore, next_entries
from bartack.store.foreign import is_foreign, mark_foreign
from bartack.store.maintenance import check, check_all, files_with, purge, repair
from bartack.store.requests import redact
from tests.store.stores import OpenStore, add


def faults(findings: list[Finding]) -> list[tuple[int | None, str]]:
    return [(finding.seq, finding.fault) for finding in findings]


def bytes_under(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


async def test_dangling_calls_and_orphan_results_are_found_and_calls_closed(store: SessionStore) -> None:
    await store.create_session("s")
    await add(store, "s", assistant(ToolCall("c", "clock", {}), ToolCall("d", "clock", {})))
    await add(store, "s", tool_message(ToolResult("c", "noon")), tool_message(ToolResult("x", "orphan")))
    problems = await check(store)
    assert faults(problems) == [(4, "orphan_result"), (2, "dangling_call")]
    assert [finding.repairable for finding in problems] == [False, True]
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
    question, _ = await add(store, "s", user("one"), assistant(ToolCall("c", "clock", {})))
    tail = await store.tail_of("s")
    newest = next_entries("s", tail, [user("two")], store.environment, parent_id=question.id)
    await store.append("s", newest, tail.entry_id)
    assert await repair(store, "s") == []
    loaded = await store.load("s")
    assert [entry.id for entry in loaded[:3]] == [(await store.entries("s"))[0].id, question.id, newest[0].id]
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
    assert checked.live == ("used",)
    assert checked.findings == ()


async def test_a_purge_rewrites_the_session_without_redacted_content(store: SessionStore) -> None:
    header = await store.create_session("s", SessionHeader(title="T"))
    secret, fine = await add(store, "s", user("the secret"), user("fine"))
    await add(store, "s", Redaction(entry_id=secret.id))
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


async def with_subagents(store: SessionStore) -> tuple[str, str]:
    """The sessions of two sub-agents: that of the session "s", and that of the sub-agent itself."""
    outer_id = f"s/{store.environment.new_id()}"
    inner_id = f"{outer_id}/{store.environment.new_id()}"
    for name, below in (("s", outer_id), (outer_id, inner_id), (inner_id, "s/mine"), ("s/mine", "s")):
        await store.create_session(name)
        await add(
            store,
            name,
            user(f"the secret of {name}"),
            assistant(ToolCall(f"{name}-call", "helper", {}), ToolCall(f"{name}-other", "helper", {})),
            ToolProgress(tool_call_id=f"{name}-call", content="Started.", metadata={"sessionId": below}),
            tool_message(ToolResult(f"{name}-call", "Done.", metadata={"sessionId": below})),
            tool_message(ToolResult(f"{name}-other", "Done.", metadata={"sessionId": "s/mine"})),  # it is forged
        )
    return outer_id, inner_id


async def test_a_purge_rewrites_the_sessions_of_sub_agents_too(store: SessionStore) -> None:
    outer_id, inner_id = await with_subagents(store)
    await mark_foreign(store, inner_id)
    call = (await store.entries("s"))[2]
    await redact(store, "s", call.id)  # and all of the sessions below
    new_id = await purge(store, "s")
    assert new_id is not None
    moved_ids = [name.replace("s", new_id, 1) for name in ("s", outer_id, inner_id)]
    assert {info.id for info in (await store.sessions()).items} == {*moved_ids, "s/mine"}
    assert [await is_foreign(store, name) for name in (*moved_ids, inner_id)] == [False, False, True, False]
    texts = [b"".join((await store.entries(name)).texts) for name in moved_ids]
    assert [b"the secret" in text for text in texts] == [True, False, False]
    assert (await check_all(store)).findings == ()
    assert "the secret of s/mine" in repr(tuple(await store.load("s/mine")))


async def test_a_purged_session_still_names_the_sessions_of_its_sub_agents(store: SessionStore) -> None:
    outer_id, _ = await with_subagents(store)
    new_id = await purge(store, "s")
    assert new_id is not None
    entries = tuple(await store.load(new_id))
    moved_id = outer_id.replace("s", new_id, 1)
    assert subagent_sessions(entries, {entry.id for entry in entries}) == [moved_id, "s/mine"]
    assert outer_id not in repr(entries)
    call = entries[2]
    await redact(store, new_id, call.id)
    assert "the secret" not in repr(tuple(await store.load(moved_id)))


async def test_purging_everything_deletes_the_sessions_of_sub_agents(store: SessionStore) -> None:
    await with_subagents(store)
    await purge(store, "s", everything=True)
    assert [info.id for info in (await store.sessions()).items] == ["s/mine"]


async def test_the_session_of_a_sub_agent_may_be_missing(store: SessionStore) -> None:
    outer_id, inner_id = await with_subagents(store)
    await store.drop_session(outer_id)  # as after a purge that was killed
    await purge(store, "s", everything=True)
    assert {info.id for info in (await store.sessions()).items} == {inner_id, "s/mine"}


class UnwritableStore(MemoryStore):
    """A store that cannot be rewritten at the moment."""

    async def erase_deleted(self) -> None:
        raise StoreError("a reader prevents it")


@pytest.mark.parametrize("everything", [False, True])
async def test_a_purge_that_cannot_rewrite_the_store_says_what_became_of_the_session(everything: bool) -> None:
    store = UnwritableStore()
    await store.create_session("s")
    with pytest.raises(StoreError, match=r"a reader prevents it.* until the next purge") as caught:
        await purge(store, "s", everything=everything)
    session_ids = [info.id for info in (await store.sessions()).items]
    assert len(session_ids) == (0 if everything else 1)
    assert all(repr(session_id) in caught.value.message for session_id in session_ids)


async def test_a_session_in_use_is_not_purged(store: SessionStore) -> None:
    await store.create_session("s")
    await store.acquire_lease("s", "a run")
    with pytest.raises(Conflict):
        await purge(store, "s")
    with pytest.raises(Conflict):
        await store.drop_session("s", expected_tail="another")


async def test_no_bytes_of_a_purged_session_stay_on_disk(open_persistent: OpenStore, fast_path: Path) -> None:
    store = await open_persistent()
    shared_text = "k" * 70_000
    await store.create_session("s", SessionHeader(title="zebra"))
    secret, _ = await add(store, "s", user("quagga " + "q" * 70_000), user(shared_text))
    await add(store, "s", Redaction(entry_id=secret.id), Custom(name="c", data={"okapi": "1"}))
    await store.create_session("t")
    await add(store, "t", user(shared_text))
    new_id = await purge(store, "s")
    assert new_id is not None
    assert len(await store.load("t")) == 2
    await store.close()
    on_disk = bytes_under(fast_path)
    if not on_disk:
        return  # test_postgres.py looks into the tables of the server instead
    for word, is_there in ((b"quagga", False), (b"q" * 70_000, False), (b"okapi", True), (b"k" * 3_000, True)):
        assert any(word in data for data in on_disk) == is_there, word


@pytest.mark.parametrize("everything", [False, True])
async def test_no_bytes_of_earlier_page_splits_stay_on_disk(
    open_persistent: OpenStore, fast_path: Path, everything: bool
) -> None:
    """Entries of several sessions alternate, so that pages were split and moved long before the purge."""
    store = await open_persistent()
    for name in ("s", "t"):
        await store.create_session(name, SessionHeader(title=f"{name} pangolin"))
    secrets = [header.id for header in await store.entries("s")]
    for number in range(120):
        secret, _ = await add(store, "s", user(f"pangolin{number} " + "p" * (number * 37 % 3000)), user("fine"))
        secrets.append(secret.id)
        await add(store, "t", user("t" * (number * 53 % 2500)))
    await add(store, "s", *(Redaction(entry_id=secret) for secret in secrets))
    await purge(store, "s", everything=everything)
    await purge(store, "t", everything=True)
    if store.path is not None:
        assert files_with(store.path, "pangolin") == []  # while the store is open, its log included
        assert len(files_with(store.path, "fine")) == (not everything)
    await store.close()
    assert not any(b"pangolin" in data for data in bytes_under(fast_path))


def test_a_folder_that_vanishes_while_files_are_searched_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / "store" / "blobs").mkdir(parents=True)
    (tmp_path / "store" / "a.jsonl").write_bytes(b"secret")
    list_folder = os.scandir

    def vanish(path: str | Path) -> Any:
        if Path(path) == folder and folder.exists():
            folder.rmdir()
        return list_folder(path)

    monkeypatch.setattr(os, "scandir", vanish)
    assert files_with(tmp_path / "store", "secret") == [tmp_path / "store" / "a.jsonl"]
    assert not folder.exists()


def test_files_are_searched_across_blocks_and_as_json(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_bytes(b"x" * (1024 * 1024 - 3) + b"secret")
    (tmp_path / "store.db-wal").write_bytes(rb"a \"quoted\" word, and caf\u00e9")
    (tmp_path / "other").write_bytes(b"secret")
    path = tmp_path / "store.db"
    assert files_with(path, "secret") == [path]
    assert files_with(path, 'a "quoted"') == files_with(path, "café") == [tmp_path / "store.db-wal"]
    assert files_with(path, "absent") == []
