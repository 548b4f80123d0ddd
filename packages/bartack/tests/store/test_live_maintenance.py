"""Backups and checks of stores that others write to meanwhile."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bartack.nouns.errors import NotFound, StoreError
from bartack.nouns.messages import assistant, user
from bartack.nouns.parts import ToolCall
from bartack.store import SessionStore, open_store
from bartack.store.backup import backup
from bartack.store.maintenance import check, check_all
from bartack.store.sqlite import SqliteStore, inspection
from bartack.store.sqlite import store as sqlite_store
from lab import maintenance
from tests.store.stores import PERSISTENT, OpenStore, add, opener


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_a_backup_advances_while_others_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "_COPIED", 5)
    store = await SqliteStore.open(tmp_path / "a.db")
    await store.create_session("s")
    await add(store, "s", *(user("x" * 30_000) for _ in range(20)))
    loop = asyncio.get_running_loop()
    shares: list[float] = []

    def commit_meanwhile(share: float) -> None:
        shares.append(share)
        assert len(shares) < 1000, "the copy does not end"
        asyncio.run_coroutine_threadsafe(add(store, "s", user(f"{len(shares)}")), loop).result()

    await backup(store, tmp_path / "b.db", on_progress=commit_meanwhile)
    assert len(shares) > 10
    assert shares == sorted(set(shares))  # it never began again
    assert shares[-1] == 1.0
    await store.close()
    copy = await SqliteStore.open(tmp_path / "b.db")
    assert len(await copy.entries("s")) == 21  # as it was when the copy began
    assert await check(copy) == []
    await copy.close()


@pytest.mark.parametrize("kind", ["memory", "jsonl", "sqlite", "postgres"])
async def test_a_backup_that_takes_too_long_leaves_nothing(tmp_path: Path, kind: str) -> None:
    store = await opener(kind, tmp_path)()
    await store.create_session("s")
    (tmp_path / "copies").mkdir()
    with pytest.raises(StoreError, match="not complete after 0 s"):
        await backup(store, tmp_path / "copies" / "one", limit_s=0.0)
    assert names_in(tmp_path / "copies") == []
    await backup(store, tmp_path / "copies" / "one")
    await store.close()


@pytest.mark.parametrize("kind", ["memory", "postgres"])
async def test_a_session_deleted_during_a_backup_is_left_out(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opener(kind, tmp_path)()
    await drop_others_at_first(store, monkeypatch, "entries")
    await backup(store, tmp_path / "export.jsonl")
    assert len((tmp_path / "export.jsonl").read_bytes().splitlines()) == 1
    await store.close()


async def test_a_session_deleted_during_a_check_is_left_out(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await drop_others_at_first(store, monkeypatch, "inspect")
    checked = await check_all(store)
    assert (checked.sessions, checked.findings) == (1, ())
    with pytest.raises(NotFound):
        await check_all(store, ["no such session"])


async def drop_others_at_first(store: SessionStore, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Create two sessions. When the method is first called for one of them, the other one is deleted."""
    sessions = {"a", "b"}
    for session_id in sessions:
        await store.create_session(session_id)
    method = getattr(store, name)

    async def call(session_id: str | None = None, *values: Any, **options: Any) -> Any:
        if session_id in sessions:
            others = sessions - {session_id}
            sessions.clear()
            for other_id in others:
                await store.drop_session(other_id)
        return await method(session_id, *values, **options)

    monkeypatch.setattr(store, name, call)


async def test_a_commit_during_a_check_is_no_rollback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await SqliteStore.open(tmp_path / "a.db")
    await store.create_session("s")
    loop = asyncio.get_running_loop()
    unrelated_rows = inspection._unrelated_rows

    def commit_meanwhile(connection: Any) -> Iterator[tuple[int | None, str]]:
        asyncio.run_coroutine_threadsafe(add(store, "s", user("meanwhile")), loop).result()
        yield from unrelated_rows(connection)

    monkeypatch.setattr(inspection, "_unrelated_rows", commit_meanwhile)
    assert await check(store) == []
    assert len(await store.entries("s")) == 2
    await store.close()


async def test_open_calls_of_a_live_session_are_no_finding(open_store: OpenStore) -> None:
    store = await open_store()
    for name in ("live", "left"):
        await store.create_session(name)
        lease = await store.acquire_lease(name, "a run")
        await add(store, name, assistant(ToolCall("c1", "look", {})), lease=lease)
        if name == "left":
            await store.release_lease(lease)
    checked = await check_all(store)
    assert checked.live == ("live",)
    assert [(finding.session_id, finding.fault) for finding in checked.findings] == [("left", "dangling_call")]
    await store.close()


async def test_a_store_that_cannot_be_written_is_checked_too(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "a.db")
    await store.create_session("live")
    lease = await store.acquire_lease("live", "a run")
    await add(store, "live", assistant(ToolCall("c1", "look", {})), lease=lease)
    reader = await open_store(f"sqlite:{tmp_path / 'a.db'}", read_only=True)
    checked = await check_all(reader)
    assert (checked.live, checked.findings) == (("live",), ())
    await reader.close()
    await store.close()


@pytest.mark.parametrize("kind", PERSISTENT)
async def test_maintenance_under_live_writers_finds_and_loses_nothing(fast_path: Path, kind: str) -> None:
    assert await maintenance.run_live(kind, fast_path, 1, is_control=False) == []


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize("action", ["import", "purge"])
@pytest.mark.parametrize("kind", PERSISTENT)
async def test_imports_and_purges_can_be_killed_at_system_calls(fast_path: Path, kind: str, action: str) -> None:
    """A few of them; `make lab NAME=maintenance` kills at every one."""
    kills, problems = await maintenance.run_kills(kind, fast_path, action, step=7, limit=3)
    assert kills
    assert problems == []
