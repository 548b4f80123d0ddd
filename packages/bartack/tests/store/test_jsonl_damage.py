"""Every flipped bit in a JSONL store is found, and lost ends are noticed; a crash raises no false alarm."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from bartack.nouns.deltas import MessageDelta, TextDelta
from bartack.nouns.entries import MessageDeltaBatch
from bartack.nouns.errors import ErrorCode, StoreError
from bartack.nouns.messages import user
from bartack.store.jsonl import JsonlStore
from bartack.store.jsonl.state import read_state, write_state
from bartack.store.maintenance import check, repair
from tests.store.stores import START, add
from tests.store.test_maintenance import faults

DELTAS = (MessageDelta("r", 1, TextDelta("Hi"), START),)
BLOB_STEP = 4099  # bits: a blob has half a million, and one hash covers them all


async def small_store(folder: Path, *, has_blob: bool) -> JsonlStore:
    store = await JsonlStore.open(folder)
    await store.create_session("s")
    await add(store, "s", user("x" * 65_537 if has_blob else "x"), user("hi"))
    lease = await store.acquire_lease("s", "a run")
    for number in range(2):
        await store.write_journal(lease, MessageDeltaBatch(deltas=DELTAS, generation=3, number=number))
    await store.release_lease(lease)
    return store


def all_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", ["s.jsonl", "s.state", "s.journal", "bartack-store.json", "blobs"])
async def test_every_flipped_bit_is_found(fast_path: Path, name: str) -> None:
    store = await small_store(fast_path, has_blob=name == "blobs")
    (path,) = [file for file in all_files(fast_path) if name in (file.name, file.parent.name)]
    intact = path.read_bytes()
    used = len(intact.rstrip(b" \n"))  # then a state is filled up with spaces, of which the first and last will do
    bits = [*range(0, 8 * used, BLOB_STEP if name == "blobs" else 1), 8 * used, 8 * len(intact) - 1]
    if name == "s.journal":
        bits = bits[:-2]  # without its newline the last batch is one that a crash cut off
    missed = []
    for bit in bits:
        if bit < 8 * len(intact):
            data = bytearray(intact)
            data[bit // 8] ^= 1 << bit % 8
            path.write_bytes(data)
            if not ((await store.inspect("s")).findings or await check(store)):
                missed.append(bit)
    assert not missed
    path.write_bytes(intact)
    assert await check(store) == []
    await store.close()


async def test_an_entry_with_a_damaged_seq_leaves_the_others_in_their_places(fast_path: Path) -> None:
    store = await JsonlStore.open(fast_path)
    await store.create_session("s")
    await add(store, "s", *(user(f"{number}") for number in range(4)))
    path = fast_path / "s.jsonl"
    intact = path.read_bytes()
    for damaged in (b"0", b"1", b"7"):
        path.write_bytes(intact.replace(b'"seq":3', b'"seq":' + damaged))
        opened = await JsonlStore.open(fast_path)
        assert list((await opened.entries("s")).seqs) == [1, 2, 3, 4, 5]
        assert (3, "checksum") in faults(await check(opened))
        await opened.close()
    await store.close()


def truncate(path: Path, size: int) -> None:
    os.truncate(path, size)


@pytest.mark.parametrize("lines", [1, 2, 4])
async def test_lost_lines_at_the_end_are_noticed_and_nothing_is_written_over_them(tmp_path: Path, lines: int) -> None:
    store = await JsonlStore.open(tmp_path)
    await store.create_session("s")
    for number in range(4):
        await add(store, "s", user(f"{number}"))
    path = tmp_path / "s.jsonl"
    remaining = path.read_bytes().splitlines(keepends=True)[:-lines]
    truncate(path, sum(map(len, remaining)))
    for opened in (store, await JsonlStore.open(tmp_path)):
        (finding,) = await check(opened)
        assert (finding.fault, finding.repairable) == ("damaged", True)
        assert "up to seq 5, is lost" in finding.message
        with pytest.raises(StoreError, match="is lost") as caught:
            await add(opened, "s", user("more"))
        assert caught.value.code is ErrorCode.STORAGE_CORRUPT
    assert await repair(store, "s") == []
    await add(store, "s", user("more"))
    assert await check(store) == []
    await opened.close()
    await store.close()


async def test_a_session_without_its_state_is_complete(tmp_path: Path) -> None:
    store = await small_store(tmp_path, has_blob=True)
    before = list(await store.load("s"))
    (tmp_path / "s.state").unlink()
    opened = await JsonlStore.open(tmp_path)
    assert await opened.load("s") == before
    assert await check(opened) == []
    await add(opened, "s", user("more"))
    assert len(await store.load("s")) == len(before) + 1
    assert await check(store) == []
    await opened.close()
    await store.close()


async def test_after_a_power_loss_a_state_that_is_too_old_raises_no_alarm(tmp_path: Path) -> None:
    store = await JsonlStore.open(tmp_path)
    await store.create_session("s")
    await add(store, "s", user("one"))
    state = tmp_path / "s.state"
    old_state = state.read_bytes()
    expected = [*await store.load("s"), *await add(store, "s", user("two"), user("three"))]
    await store.close()
    state.write_bytes(old_state)
    with_other_boot(state)
    path = tmp_path / "s.jsonl"
    path.write_bytes(path.read_bytes() + b'{"id":"torn')
    store = await JsonlStore.open(tmp_path)
    assert await store.load("s") == expected
    assert faults(await check(store)) == [(None, "torn")]
    assert (await store.sessions()).items[0].entries == 4
    await add(store, "s", user("more"))
    assert await check(store) == []
    assert len(await store.load("s")) == 5
    await store.close()


def with_other_boot(path: Path) -> None:
    """As if the machine had been started again since the state was written."""
    state = read_state(path)
    assert state is not None
    write_state(path, replace(state, boot="another"))


async def test_an_append_that_was_never_acknowledged_is_not_read(tmp_path: Path) -> None:
    """A process was killed after its sync, before its state."""
    store = await JsonlStore.open(tmp_path)
    header = await store.create_session("s")
    old_state = (tmp_path / "s.state").read_bytes()
    await add(store, "s", user("killed"))
    (tmp_path / "s.state").write_bytes(old_state)
    opened = await JsonlStore.open(tmp_path)
    assert await opened.load("s") == [header]
    assert faults(await check(opened)) == [(None, "torn")]
    added = await add(opened, "s", user("another"))
    assert await opened.load("s") == [header, *added]
    assert await check(opened) == []
    assert b"killed" in (tmp_path / "s.torn-1").read_bytes()
    await opened.close()
    await store.close()


async def test_a_damaged_version_file_is_reported_and_repaired(tmp_path: Path) -> None:
    store = await small_store(tmp_path, has_blob=True)
    (tmp_path / "bartack-store.json").write_bytes(b"?")
    opened = await JsonlStore.open(tmp_path)
    assert faults(await check(opened)) == [(None, "damaged")]
    assert (await opened.inspect(repair=True)).findings == ()
    await opened.close()
    await store.close()
