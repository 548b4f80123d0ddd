"""Several stores on one JSONL folder, as several processes have them: none decides from what it remembers."""

import asyncio
import errno
import io
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from bartack.nouns.errors import Conflict, StoreError
from bartack.nouns.messages import user
from bartack.store import Tail, next_entries
from bartack.store.jsonl import JsonlStore
from bartack.store.maintenance import check
from tests.sample_session import SESSION
from tests.store.stores import add
from tests.store.test_maintenance import faults


async def two_stores(folder: Path) -> tuple[JsonlStore, JsonlStore]:
    return await JsonlStore.open(folder), await JsonlStore.open(folder)


async def test_a_torn_end_that_another_store_set_aside_is_not_cut_off_again(tmp_path: Path) -> None:
    first_store, second_store = await two_stores(tmp_path)
    header = await first_store.create_session("s")
    with (tmp_path / "s.jsonl").open("ab") as file:
        file.write(b"x" * 5000)
    assert await first_store.load("s") == [header]  # it has seen the torn end
    stored = [header, *await add(second_store, "s", user("short")), *await add(first_store, "s", user("more"))]
    assert await second_store.load("s") == stored
    assert await first_store.load("s") == stored
    assert await check(first_store) == []
    await first_store.close()
    await second_store.close()


async def test_bytes_left_by_a_failed_sync_are_not_cut_off_once_others_built_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_store, second_store = await two_stores(tmp_path)
    header = await first_store.create_session("s")
    entries = next_entries("s", Tail(header.id, 1), [user("unknown outcome")], first_store.environment)

    def fail(*_: int) -> None:
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        patch.setattr(os, "ftruncate", fail)
        with pytest.raises(StoreError):
            await first_store.append("s", entries, header.id)
    added = await add(second_store, "s", user("acknowledged"))
    added += await add(first_store, "s", user("more"))
    for store in (first_store, second_store):
        loaded = await store.load("s")
        assert [entry.id for entry in loaded if entry.id != entries[0].id] == [header.id, *(e.id for e in added)]
    assert await check(second_store) == []
    await first_store.close()
    await second_store.close()


def refused(real: Any) -> Any:
    """The function, which cannot open any session file."""

    def opened(path: Any, *arguments: Any, **options: Any) -> Any:
        if str(path).endswith(".jsonl"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))
        return real(path, *arguments, **options)

    return opened


async def test_a_session_whose_file_could_not_be_opened_still_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await JsonlStore.open(tmp_path)
    header = await store.create_session("s")
    entries = next_entries("s", Tail(header.id, 1), [user("hi")], store.environment)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refused(os.open))
        patch.setattr(io, "open", refused(io.open))
        with pytest.raises(StoreError, match="Too many open files"):
            await store.append("s", entries, header.id)
    with pytest.raises(Conflict):
        await store.create_session("s")
    await store.append("s", entries, header.id)
    assert await store.load("s") == [header, *entries]
    await store.close()


def files_beside_sessions(folder: Path) -> list[Path]:
    return [file for file in folder.iterdir() if file.is_file() and file.suffix != ".jsonl"]


async def test_deleting_files_of_ours_does_not_let_two_writers_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_store = await JsonlStore.open(tmp_path)
    header = await first_store.create_session("s")
    syncing, may_finish = threading.Event(), threading.Event()
    real_fsync = os.fsync

    def fsync(descriptor: int) -> None:
        if not syncing.is_set():
            syncing.set()
            may_finish.wait()
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    entries = next_entries("s", Tail(header.id, 1), [user("first")], first_store.environment)
    first = asyncio.create_task(first_store.append("s", entries, header.id))
    await asyncio.to_thread(syncing.wait)
    for file in files_beside_sessions(tmp_path):
        file.unlink()
    two = asyncio.create_task(JsonlStore.open(tmp_path))
    competing = next_entries("s", Tail(header.id, 1), [user("second")], first_store.environment)

    async def append_to_second() -> None:
        await (await two).append("s", competing, header.id)

    second = asyncio.create_task(append_to_second())
    done, _ = await asyncio.wait([second], timeout=0.5)
    assert not done  # it waits for the lock, however slow the machine is
    may_finish.set()
    await first
    with pytest.raises(Conflict):
        await second
    assert await first_store.load("s") == [header, *entries]
    await first_store.close()
    await (await two).close()


async def test_a_session_that_was_dropped_and_recreated_is_read_again(tmp_path: Path) -> None:
    first_store, second_store = await two_stores(tmp_path)
    await first_store.create_session("s")
    await add(first_store, "s", user("old"))
    assert len(await first_store.load("s")) == 2
    path = tmp_path / "s.jsonl"
    inode = path.stat().st_ino
    for _ in range(50):  # the file is likely to get the same inode again at once
        await second_store.drop_session("s")
        await second_store.create_session("s")
        if path.stat().st_ino == inode:
            break
    await add(second_store, "s", user("a new and longer text than before"), user("more"))
    assert await first_store.load("s") == await second_store.load("s")
    await add(first_store, "s", user("by the first store"))
    assert await check(second_store) == []
    assert len(await second_store.load("s")) == 4
    await first_store.close()
    await second_store.close()


@pytest.mark.parametrize("lost", [1, 30, 1000])
async def test_a_session_that_lost_its_last_bytes_is_listed_and_reported(tmp_path: Path, lost: int) -> None:
    store = await JsonlStore.open(tmp_path)
    await store.append("s", SESSION, None)
    path = tmp_path / "s.jsonl"
    os.truncate(path, path.stat().st_size - lost)
    for opened in (store, await JsonlStore.open(tmp_path)):
        assert [info.id for info in (await opened.sessions()).items] == ["s"]
        assert await check(opened) != []
        assert len(await opened.load("s")) >= len(SESSION) - 5
        await opened.close()


async def test_a_session_that_was_never_completed_is_reported(tmp_path: Path) -> None:
    store = await JsonlStore.open(tmp_path)
    (tmp_path / "s.jsonl").write_bytes(b'{"id":"x"')
    assert [(finding.session_id, finding.fault) for finding in await check(store)] == [("s", "torn")]
    await store.close()


async def test_appends_do_not_wait_for_a_long_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await JsonlStore.open(tmp_path)
    await store.create_session("slow")
    await add(store, "slow", user("words"))
    await store.create_session("s")
    await store.close()
    store = await JsonlStore.open(tmp_path)
    reading, may_finish = threading.Event(), threading.Event()

    def slow(real: Any) -> Any:
        def opened(path: Any, *arguments: Any, **options: Any) -> Any:
            if str(path).endswith("slow.jsonl"):
                reading.set()
                may_finish.wait()
            return real(path, *arguments, **options)

        return opened

    monkeypatch.setattr(os, "open", slow(os.open))
    monkeypatch.setattr(io, "open", slow(io.open))
    search = asyncio.create_task(store.search("words"))
    await asyncio.to_thread(reading.wait)
    await add(store, "s", user("meanwhile"))
    assert len(await store.load("s")) == 2
    may_finish.set()
    assert [hit.session_id for hit in await search] == ["slow"]
    await store.close()


async def test_damage_to_one_session_leaves_the_others_listed_searched_and_checked(tmp_path: Path) -> None:
    store = await JsonlStore.open(tmp_path)
    for name in ("fine", "lease", "blob"):
        await store.create_session(name)
        await add(store, name, user(f"words of {name}"), user("x" * 70_000 + name))
        await store.release_lease(await store.acquire_lease(name, "a run"))
    (tmp_path / "folder.jsonl").mkdir()
    for path in files_beside_sessions(tmp_path):
        if path.name.startswith("lease."):
            path.write_bytes(b"{")
    for path in (tmp_path / "blobs").iterdir():
        if path.read_bytes().endswith(b"blob"):
            path.unlink()
    for opened in (store, await JsonlStore.open(tmp_path)):
        assert {info.id for info in (await opened.sessions()).items} == {"fine", "lease", "blob"}
        assert {hit.session_id for hit in await opened.search("words")} == {"fine", "lease", "blob"}
        assert (await opened.totals()).spend.calls == 0
        problems = await check(opened)
        assert {finding.session_id for finding in problems} == {"lease", "blob", "folder"}
        assert len(await opened.load("blob")) == 3
        await opened.close()


async def test_a_lost_blob_hides_only_its_entry(tmp_path: Path) -> None:
    store = await JsonlStore.open(tmp_path)
    header = await store.create_session("s")
    first, second = await add(store, "s", user("x" * 70_000), user("fine"))
    (blob,) = (tmp_path / "blobs").iterdir()
    blob.unlink()
    loaded = await store.load("s")
    assert [entry.id for entry in loaded] == [header.id, first.id, second.id]
    assert (loaded[1].fact.kind, loaded[2].fact) == ("custom", second.fact)
    assert (2, "damaged") in faults(await check(store, "s"))
    await add(store, "s", user("more"))
    assert len(await store.load("s")) == 4
    await store.close()
