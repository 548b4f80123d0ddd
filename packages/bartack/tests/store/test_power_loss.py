"""Power is lost under a SQLite store: acknowledged entries are there, and with synchronous=NORMAL they are not."""

import asyncio
import inspect
import random
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bartack.nouns.deltas import MessageDelta, TextDelta
from bartack.nouns.entries import Entry, MessageDeltaBatch
from bartack.nouns.errors import StoreError
from bartack.nouns.messages import user
from bartack.store import Tail, next_entries
from bartack.store.sqlite import SqliteStore
from bartack.store.sqlite.file import Synchronous
from tests.store.disks import Operation, RecordingDisk, after_power_cut, on_disk, reordering
from tests.store.stores import add

CUTS = 100
WRITERS, APPENDS = 4, 60
DELTA = MessageDelta("run", 0, TextDelta("word"), datetime(2026, 1, 1, tzinfo=UTC))


async def recorded(folder: Path, synchronous: Synchronous) -> tuple[list[Operation], dict[str, list[Entry]]]:
    """What reached the disk while several writers appended and renewed leases, and what they appended.

    The note about commits is written beside SQLite, and not synced. At worst, all of it reaches the disk at once.
    """
    disk = RecordingDisk(f"recording {synchronous}")
    store = await on_disk(f"recording {synchronous}").open(folder / "a.db", synchronous=synchronous)
    sessions: dict[str, list[Entry]] = {}

    async def write(session_id: str) -> None:
        header = await store.create_session(session_id)
        mine = sessions[session_id] = [header]
        disk.operations.append(("acknowledged", session_id, 1))
        lease = await store.acquire_lease(session_id, "writer")
        tail = Tail(header.id, 1)
        for number in range(APPENDS):
            entries = next_entries(session_id, tail, [user(f"{number} " + "x" * 3000), user("y")], store.environment)
            mine += entries
            tail = await store.append(session_id, entries, tail.entry_id, lease=lease)
            disk.operations.append(("acknowledged", session_id, tail.seq))
            lease = await store.renew_lease(lease)
            note = (folder / "a.db-lock").read_bytes()
            disk.operations.extend([("write", "a.db-lock", 0, note), ("sync", "a.db-lock")])
        await store.release_lease(lease)

    await asyncio.gather(*(write(f"s{number}") for number in range(WRITERS)))
    operations = list(disk.operations)
    await store.close()
    disk.unregister()
    return operations, sessions


def write_files(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)


async def lost_after(cut: int, operations: list[Operation], sessions: dict[str, list[Entry]], folder: Path) -> int:
    """The number of acknowledged entries lost by this cut. The store must be intact and accept appends in any case."""
    performed = operations[:cut]
    write_files(folder, after_power_cut(performed, reordering(cut)))
    acknowledged = {name: seq for kind, name, *seqs in performed if kind == "acknowledged" for seq in seqs}
    store = await SqliteStore.open(folder / "a.db")
    stored = {info.id: await store.load(info.id) for info in (await store.sessions()).items}
    for session_id, entries in stored.items():
        assert entries == sessions[session_id][: len(entries)]
        assert len(entries) % 2 == 1  # a header, and pairs that were appended together
        lease = await store.acquire_lease(session_id, "next", takeover=True)  # the writer's process is this one
        await store.release_lease(lease)
        await add(store, session_id, user("more"))
    await store.close()
    return sum(max(0, seq - len(stored.get(name, ()))) for name, seq in acknowledged.items())


async def lost_in_cuts(folder: Path, synchronous: Synchronous, cuts: int) -> int:
    """The number of cuts that lost entries."""
    operations, sessions = await recorded(folder, synchronous)
    assert {operation[0] for operation in operations} >= {"write", "sync", "acknowledged"}
    assert any(operation[:2] == ("sync", "a.db") for operation in operations[len(operations) // 2 :])  # checkpoints
    chance = random.Random(7)
    cut_points = [chance.randrange(len(operations) // 20, len(operations)) for _ in range(cuts)]
    lost = 0
    for number, cut in enumerate(cut_points):
        try:
            lost += await lost_after(cut, operations, sessions, folder / f"cut{number}") > 0
        except StoreError:
            assert synchronous == "NORMAL"
            lost += 1
    return lost


async def test_a_power_loss_keeps_every_acknowledged_entry(fast_path: Path) -> None:
    """D-5.2"""
    default = inspect.signature(SqliteStore.open).parameters["synchronous"].default
    assert await lost_in_cuts(fast_path, default, CUTS) == 0


async def test_leases_do_not_wait_for_the_disk(fast_path: Path) -> None:
    """They are for processes that are alive, and a power loss leaves none. Whatever else is stored waits for it."""
    disk = RecordingDisk("counting")
    store = await on_disk("counting").open(fast_path / "a.db")

    def syncs() -> int:
        return disk.operations.count(("sync", "a.db-wal"))

    header = await store.create_session("s")
    before = syncs()
    lease = await store.acquire_lease("s", "writer")
    lease = await store.renew_lease(lease)
    assert syncs() == before
    (entry,) = next_entries("s", Tail(header.id, 1), [user("hi")], store.environment)
    await store.append("s", [entry], header.id, lease=lease)
    assert syncs() == before + 1
    await store.write_journal(lease, MessageDeltaBatch(deltas=(DELTA,), generation=2, number=0))
    assert syncs() == before + 2
    await store.release_lease(lease)
    assert syncs() == before + 2
    await store.close()
    disk.unregister()


async def test_with_synchronous_normal_a_power_loss_loses_entries(fast_path: Path) -> None:
    """The negative control: the test above can fail."""
    assert await lost_in_cuts(fast_path, "NORMAL", 20) > 5


def test_the_simulated_disk_may_keep_later_writes_and_lose_earlier_ones() -> None:
    operations: list[Operation] = [
        ("write", "f", 0, b"aaaa"),
        ("sync", "f"),
        ("write", "f", 2, b"bb"),
        ("write", "f", 6, b"cc"),
        ("truncate", "g", 0),
    ]
    choices = iter([False, True, True])
    assert after_power_cut(operations, lambda: next(choices)) == {"f": b"aaaa\0\0cc", "g": b""}
    with pytest.raises(StopIteration):
        next(choices)
