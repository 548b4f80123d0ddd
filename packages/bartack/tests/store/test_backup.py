"""Backups, restoring them, reading stores that cannot be written, and what is left of damaged ones."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bartack.nouns import wire
from bartack.nouns.entries import Entry
from bartack.nouns.errors import StoreError
from bartack.nouns.messages import Message, user
from bartack.store import MemoryStore, SessionStore, files, open_store
from bartack.store.backup import backup, restore, salvage
from bartack.store.jsonl import JsonlStore
from bartack.store.maintenance import check
from bartack.store.transfer import import_lines
from tests.sample_session import SESSION
from tests.store.stores import add, opener


async def fill(store: SessionStore) -> dict[str, list[Entry]]:
    await store.append("s", SESSION, None)
    await store.create_session("t/1")
    await add(store, "t/1", user("long " * 20_000), user("short"))
    return {name: list(await store.entries(name)) for name in ("s", "t/1")}


async def contents(store: SessionStore) -> dict[str, list[Entry]]:
    return {info.id: list(await store.entries(info.id)) for info in (await store.sessions()).items}


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
async def test_a_backup_of_files_is_a_store_and_can_be_restored(tmp_path: Path, kind: str) -> None:
    store = await open_store(f"{kind}:{tmp_path / 'store'}")
    expected = await fill(store)
    await store.acquire_lease("s", "a run")
    await backup(store, tmp_path / "copies" / "one")
    await add(store, "t/1", user("later"))
    await store.close()
    with pytest.raises(StoreError, match="already exists"):
        await restore(tmp_path / "copies" / "one", f"{kind}:{tmp_path / 'store'}")
    await restore(tmp_path / "copies" / "one", f"{kind}:{tmp_path / 'restored'}")
    for place in ("copies/one", "restored"):
        copy = await open_store(f"{kind}:{tmp_path / place}")
        assert await contents(copy) == expected
        assert await check(copy) == []
        await add(copy, "t/1", user("continued"))
        await copy.close()


@pytest.mark.parametrize("kind", ["memory", "postgres"])
async def test_a_backup_of_other_stores_is_an_export(tmp_path: Path, kind: str) -> None:
    store = await opener(kind, tmp_path)()
    expected = await fill(store)
    await backup(store, tmp_path / "export.jsonl")
    with pytest.raises(StoreError, match="already exists"):
        await backup(store, tmp_path / "export.jsonl")
    await store.close()
    await restore(tmp_path / "export.jsonl", f"sqlite:{tmp_path / 'restored'}")
    copy = await open_store(f"sqlite:{tmp_path / 'restored'}")
    assert await contents(copy) == expected
    await copy.close()


async def test_a_backup_can_only_be_restored_to_its_kind_of_store(tmp_path: Path) -> None:
    store = await open_store(f"jsonl:{tmp_path / 'store'}")
    await backup(store, tmp_path / "copy")
    await store.close()
    with pytest.raises(StoreError, match="backup of a jsonl store"):
        await restore(tmp_path / "copy", f"sqlite:{tmp_path / 'restored'}")


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
async def test_a_backup_is_consistent_while_others_write(tmp_path: Path, kind: str) -> None:
    """Each round appends to both sessions, in order: no copy has more of the second."""
    store = await open_store(f"{kind}:{tmp_path / 'store'}")
    for name in ("first", "second"):
        await store.create_session(name)
    done = asyncio.Event()

    async def write() -> None:
        number = 0
        while not done.is_set():
            number += 1
            for name in ("first", "second"):
                await add(store, name, user(f"{number} " + "x" * 70_000 if number % 5 == 0 else f"{number}"))

    writer = asyncio.create_task(write())
    for number in range(5):
        await backup(store, tmp_path / f"copy{number}")
    done.set()
    await writer
    await store.close()
    for number in range(5):
        copy = await open_store(f"{kind}:{tmp_path / f'copy{number}'}")
        first, second = await copy.entries("first"), await copy.entries("second")
        assert len(first) - len(second) in (0, 1)
        assert await check(copy) == []
        await copy.close()


# -- read-only stores


@pytest.fixture
def read_only_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that becomes read-only with ``mount -o remount,ro``."""
    folder = tmp_path / "mount"
    folder.mkdir()
    try:
        done = subprocess.run(["mount", "-t", "tmpfs", "none", str(folder)], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("no mount command")
    if done.returncode:
        pytest.skip(f"cannot mount: {done.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


async def test_a_jsonl_store_on_a_read_only_mount_can_be_read_and_copied(
    read_only_folder: Path, tmp_path: Path
) -> None:
    store = await JsonlStore.open(read_only_folder / "store")
    expected = await fill(store)
    await store.close()
    await asyncio.to_thread(subprocess.run, ["mount", "-o", "remount,ro", str(read_only_folder)], check=True)
    store = await JsonlStore.open(read_only_folder / "store", read_only=True)
    assert await contents(store) == expected
    assert [hit.session_id for hit in await store.search("short")] == ["t/1"]
    assert await check(store) == []
    with pytest.raises(StoreError, match="was opened read-only"):
        await store.create_session("new")
    await backup(store, tmp_path / "copy")
    await store.close()


async def test_a_read_only_store_must_exist(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="There is no store"):
        await open_store(f"jsonl:{tmp_path}", read_only=True)
    assert not await asyncio.to_thread(lambda: list(tmp_path.iterdir()))


# -- other processes


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
async def test_a_backup_leaves_alone_what_appears_at_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    store = await open_store(f"{kind}:{tmp_path / 'store'}")
    await fill(store)
    target = tmp_path / "copies" / "one"
    make_folder = files.make_folder

    def make_folder_too_late(folder: Path) -> None:
        make_folder(target)
        (target / "of another program").write_bytes(b"precious")
        make_folder(folder)

    monkeypatch.setattr(f"bartack.store.{kind}.store.make_folder", make_folder_too_late)
    with pytest.raises(StoreError, match="already exists"):
        await backup(store, target)
    assert [path.name for path in await asyncio.to_thread(lambda: list(target.iterdir()))] == ["of another program"]
    await store.close()


async def test_a_session_that_is_replaced_during_a_backup_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await JsonlStore.open(tmp_path / "store")
    expected = await fill(store)
    loop = asyncio.get_running_loop()

    async def replace_session() -> None:
        await store.drop_session("s")
        await store.create_session("s")
        await add(store, "s", *(user(f"new {number}") for number in range(200)))

    def make_folder_meanwhile(folder: Path) -> None:
        if folder == tmp_path:  # after the extent of each session is recorded, and before any is copied
            asyncio.run_coroutine_threadsafe(replace_session(), loop).result()
        files.make_folder(folder)

    monkeypatch.setattr("bartack.store.jsonl.store.make_folder", make_folder_meanwhile)
    await backup(store, tmp_path / "copy")
    await store.close()
    copy = await JsonlStore.open(tmp_path / "copy")
    assert await contents(copy) == {"t/1": expected["t/1"]}
    assert await check(copy) == []
    await copy.close()


# -- salvage


async def test_a_file_that_vanishes_is_left_out(tmp_path: Path) -> None:
    store = await JsonlStore.open(tmp_path / "store")
    expected = await fill(store)
    await store.close()
    (tmp_path / "store" / "gone.jsonl").symlink_to("nowhere")  # listed, and not found when it is read
    assert await salvaged(tmp_path / "store") == expected
    with pytest.raises(StoreError, match="No such file"):
        await salvaged(tmp_path / "nowhere")


async def salvaged(path: Path) -> dict[str, list[Entry]]:
    sessions: dict[str, list[Entry]] = {}
    async for entry in salvage(path):
        sessions.setdefault(entry.session_id, []).append(entry)
    return sessions


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
async def test_everything_can_be_salvaged_from_an_intact_store(tmp_path: Path, kind: str) -> None:
    store = await open_store(f"{kind}:{tmp_path / 'store'}")
    expected = await fill(store)
    await store.close()
    assert await salvaged(tmp_path / "store") == expected


async def test_a_damaged_database_gives_up_what_can_be_read(tmp_path: Path) -> None:
    store = await open_store(f"sqlite:{tmp_path / 'store'}")
    await fill(store)
    await store.close()
    data = bytearray((tmp_path / "store").read_bytes())
    data[100:4096] = os.urandom(3996)  # without its schema, SQLite reads nothing
    (tmp_path / "store").write_bytes(data)
    with pytest.raises(StoreError):
        await open_store(f"sqlite:{tmp_path / 'store'}")
    sessions = await salvaged(tmp_path / "store")
    texts = [entry.fact.text for entry in sessions["t/1"] if isinstance(entry.fact, Message)]
    assert "short" in texts
    assert [entry.seq for entry in sessions["s"]] == list(range(1, len(sessions["s"]) + 1))
    target = MemoryStore()
    for entries in sessions.values():
        await import_lines(target, [wire.encode(entry) for entry in entries])


async def test_a_damaged_file_gives_up_its_other_lines(tmp_path: Path) -> None:
    store = await open_store(f"jsonl:{tmp_path / 'store'}")
    expected = await fill(store)
    await store.close()
    path = tmp_path / "store" / "s.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[4] = lines[4][:50] + b"\0" * 200
    path.write_bytes(b"".join(lines))
    entries = (await salvaged(path))["s"]
    assert [entry.seq for entry in entries] == list(range(1, len(SESSION) + 1))
    assert [entry == original for entry, original in zip(entries, expected["s"], strict=True)].count(False) <= 2
