"""The disk fails or is full at every operation: a typed error, nothing half-written, and later appends succeed."""

import asyncio
import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from bartack.nouns.entries import Entry
from bartack.nouns.errors import StoreError
from bartack.nouns.messages import user
from bartack.store import SessionStore, Tail, next_entries
from bartack.store.jsonl import JsonlStore
from bartack.store.sqlite import SqliteStore
from tests.store.disks import FailingDisk, on_disk
from tests.store.stores import add, opener

ALL = frozenset({"read", "write", "truncate", "sync"})


async def append_twice(store: SessionStore, header: Entry) -> tuple[list[Entry], list[Entry], int]:
    """Append two entries twice: the acknowledged entries, the attempted ones, and the number of failures."""
    acknowledged: list[Entry] = []
    tried: list[Entry] = []
    failed = 0
    for number in range(2):
        last = [header, *acknowledged][-1]
        facts = [user(f"{number}"), user("x" * 5000)]
        entries = next_entries(header.session_id, Tail(last.id, last.seq), facts, store.environment)
        tried += entries
        try:
            await store.append(header.session_id, entries, last.id)
            acknowledged += entries
        except StoreError:
            failed += 1
            break  # the outcome is unknown: a caller would now append the same entries again
    return acknowledged, tried, failed


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "until fixed"])
@pytest.mark.parametrize("error", [apsw.IOError, apsw.FullError])
async def test_a_disk_error_at_any_operation_loses_nothing(
    fast_path: Path, error: type[apsw.Error], lasting: bool
) -> None:
    name = f"failing {error.__name__} {lasting}"
    disk = FailingDisk(name, error, ALL if error is apsw.IOError else frozenset({"write"}), lasting=lasting)
    failures = 0
    for operation in range(200):
        path = fast_path / f"{operation}.db"
        store = await on_disk(name).open(path)
        header = await store.create_session("s")
        disk.left = operation
        acknowledged, tried, failed = await append_twice(store, header)
        if disk.lasting and failed:
            with pytest.raises(StoreError) as refused:  # nothing is acknowledged until the disk works again
                await store.append("s", tried[len(acknowledged) :], [header, *acknowledged][-1].id)
            assert refused.type is StoreError
        is_done = disk.left is not None and not failed
        disk.left = None
        await check_intact(store, header, acknowledged, tried)
        await store.close()
        again = await SqliteStore.open(path)
        assert (await again.load("s"))[: 1 + len(acknowledged)] == [header, *acknowledged]
        assert (await again.inspect()).findings == ()
        await again.close()
        failures += failed
        if is_done:
            break
    else:
        raise AssertionError("every operation failed")
    assert failures >= 4
    assert set(disk.failures) >= ({"write", "sync"} if error is apsw.IOError else {"write"})
    disk.unregister()


async def check_intact(store: SessionStore, header: Entry, acknowledged: list[Entry], tried: list[Entry]) -> None:
    """The disk works again: acknowledged entries are stored, others wholly or not at all; a retry stores them once."""
    stored = list(await store.load("s"))
    assert stored in ([header, *acknowledged], [header, *tried])
    if len(tried) > len(acknowledged):
        unknown = tried[len(acknowledged) :]
        await store.append("s", unknown, ([header, *acknowledged])[-1].id)
    assert await store.load("s") == [header, *tried]
    await add(store, "s", user("more"))


async def test_a_disk_error_fails_the_whole_group_and_retries_succeed(tmp_path: Path) -> None:
    disk = FailingDisk("failing group", apsw.IOError, frozenset({"sync"}), lasting=False)
    store = await on_disk("failing group").open(tmp_path / "a.db")
    headers = [await store.create_session(f"s{number}") for number in range(16)]
    batches = [
        next_entries(header.session_id, Tail(header.id, 1), [user("hi")], store.environment) for header in headers
    ]

    async def append_all() -> list[Tail | BaseException]:
        appends = (store.append(batch[0].session_id, batch, batch[0].parent_id) for batch in batches)
        return await asyncio.gather(*appends, return_exceptions=True)

    disk.left = 0
    outcomes = await append_all()
    assert any(isinstance(outcome, StoreError) for outcome in outcomes)
    assert all(isinstance(outcome, Tail) for outcome in await append_all())
    for header, batch in zip(headers, batches, strict=True):
        assert await store.load(header.session_id) == [header, *batch]
    await store.close()
    disk.unregister()


@pytest.mark.parametrize("call", ["write", "fsync"])
async def test_a_line_that_was_not_synced_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """D-5.2. JSONL: a system call fails after some bytes of the append were written."""
    store = await JsonlStore.open(tmp_path)
    header = await store.create_session("s")
    (entry,) = next_entries("s", Tail(header.id, 1), [user("hi")], store.environment)
    before = (tmp_path / "s.jsonl").read_bytes()
    real_write, real_fsync = os.write, os.fsync
    failing = {"write": 2, "fsync": 1}

    def write(descriptor: int, data: memoryview) -> int:
        failing["write"] -= 1
        if call == "write" and failing["write"] == 0:
            raise OSError(errno.ENOSPC, "no room")
        return real_write(descriptor, data[:10] if call == "write" else data)

    def fsync(descriptor: int) -> None:
        failing["fsync"] -= 1
        if call == "fsync" and failing["fsync"] == 0:
            raise OSError(errno.EIO, "broken")
        real_fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(StoreError, match=r"s\.jsonl: (No space left|Input/output error)"):
            await store.append("s", [entry], header.id)
    assert (tmp_path / "s.jsonl").read_bytes() == before
    assert await store.load("s") == [header]
    await store.append("s", [entry], header.id)
    assert await store.load("s") == [header, entry]
    await store.close()


async def test_bytes_that_could_not_be_removed_are_never_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSONL: the sync fails, and then truncating the file fails too."""
    store = await JsonlStore.open(tmp_path)
    header = await store.create_session("s")
    (entry,) = next_entries("s", Tail(header.id, 1), [user("hi")], store.environment)

    def fail(*_: int) -> None:
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        patch.setattr(os, "ftruncate", fail)
        for _ in range(2):
            with pytest.raises(StoreError):
                await store.append("s", [entry], header.id)
    assert await store.load("s") == [header]
    await store.append("s", [entry], header.id)
    assert await store.load("s") == [header, entry]
    await store.close()
    again = await JsonlStore.open(tmp_path)
    assert await again.load("s") == [header, entry]
    await again.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("no mount command")
    if done.returncode:
        pytest.skip(f"cannot mount a small file system: {done.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
async def test_a_full_disk_is_an_error_until_there_is_space_again(small_disk: Path, kind: str) -> None:
    store = await opener(kind, small_disk)()
    header = await store.create_session("s")
    acknowledged = [header]
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    failed = 0
    for number in range(200):
        facts = [user(f"{number} " + "y" * 20_000)]
        last = acknowledged[-1]
        entries = next_entries("s", Tail(last.id, last.seq), facts, store.environment)
        try:
            await store.append("s", entries, last.id)
            acknowledged += entries
        except StoreError as error:
            failed += "full" in str(error) or "space" in str(error)
            if failed == 3:
                break
    assert failed == 3
    assert await store.load("s") == acknowledged
    filler.unlink()
    acknowledged += await add(store, "s", user("space again"))
    assert await store.load("s") == acknowledged
    await store.close()
    again = await opener(kind, small_disk)()
    assert await again.load("s") == acknowledged
    await again.close()
