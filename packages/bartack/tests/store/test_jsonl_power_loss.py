"""A JSONL store after simulated power losses: nothing acknowledged is lost, and what a crash leaves is no damage."""

import asyncio
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bartack.nouns.entries import MessageDeltaBatch
from bartack.nouns.errors import NotFound
from bartack.nouns.messages import user
from bartack.store.jsonl import JsonlStore, file, state
from bartack.store.maintenance import check_all
from tests.store.stores import add
from tests.store.test_jsonl_damage import DELTAS

CUTS = 150
SECTOR = 512
# In order: ("write", file, offset, data), ("truncate", file, size), ("rename", file, new name), ("delete", file),
# ("sync", file or "" for the folder), and ("acknowledged", number of entries).
Operation = tuple[Any, ...]


@contextmanager
def recorded(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[list[Operation]]:
    """The operations of this process on the files of a folder, in order."""
    operations: list[Operation] = []

    def name_of(place: Any) -> str | None:
        path = Path(f"/proc/self/fd/{place}").readlink() if isinstance(place, int) else Path(place)
        if path in (folder, folder / "blobs"):
            return ""
        return str(path.relative_to(folder)) if path.is_relative_to(folder) else None

    def record(call: str, operation_of: Callable[..., Operation | None]) -> None:
        original = getattr(os, call)

        def recording(place: Any, *values: Any, **options: Any) -> Any:
            name = name_of(place)
            operation = None if name is None else operation_of(place, name, *values)
            result = original(place, *values, **options)
            if operation is not None:
                operations.append(operation)
            return result

        patch.setattr(os, call, recording)

    def opened(place: Any, name: str, flags: int, *_: Any) -> Operation | None:
        is_new = flags & os.O_CREAT and not Path(place).exists()
        return ("truncate", name, 0) if is_new or flags & os.O_TRUNC else None

    def written(place: int, name: str, data: bytes) -> Operation:
        is_appended = fcntl.fcntl(place, fcntl.F_GETFL) & os.O_APPEND
        offset = os.fstat(place).st_size if is_appended else os.lseek(place, 0, os.SEEK_CUR)
        return ("write", name, offset, bytes(data))

    fcntl = pytest.importorskip("fcntl")
    record("open", opened)
    record("write", written)
    record("pwrite", lambda place, name, data, offset: ("write", name, offset, bytes(data)))
    record("ftruncate", lambda place, name, size: ("truncate", name, size))
    record("fsync", lambda place, name: ("sync", name))
    record("replace", lambda place, name, target: ("rename", name, name_of(target)))
    record("unlink", lambda place, name: ("delete", name))
    yield operations


def after_power_cut(operations: list[Operation], chance: random.Random) -> dict[str, bytes]:
    """The files that a disk may contain: synced operations took place; of the others, some, and some only in part."""
    durable: dict[str, bytearray] = {}
    waiting: dict[str, list[Operation]] = {}
    for operation in operations:
        kind, name = operation[:2]
        if kind == "sync":
            for write in waiting.pop(name, []):
                apply(durable, write)
        elif kind != "acknowledged":
            waiting.setdefault("" if kind in ("rename", "delete") else name, []).append(operation)
    share = chance.choice([0.0, 0.5, 1.0])
    for unsynced in waiting.values():
        for operation in unsynced:
            if chance.random() < share:
                apply(durable, torn(operation, chance))
    return {name: bytes(content) for name, content in durable.items()}


def torn(operation: Operation, chance: random.Random) -> Operation:
    """The operation, or a write of which only some sectors, the beginning, or only the size reached the disk."""
    if operation[0] != "write":
        return operation
    kind, name, offset, data = operation
    match chance.randrange(4):
        case 0:
            return kind, name, offset, data[: chance.randrange(len(data) + 1)]
        case 1:
            return kind, name, offset, bytes(len(data))
        case 2 if len(data) > SECTOR:
            return kind, name, offset, data[: chance.randrange(1, len(data) // SECTOR) * SECTOR]
        case _:
            return operation


def apply(files: dict[str, bytearray], operation: Operation) -> None:
    match operation:
        case ("rename", name, target):
            if name in files:
                files[target] = files.pop(name)
        case ("delete", name):
            files.pop(name, None)
        case ("truncate", name, size):
            content = files.setdefault(name, bytearray())
            del content[size:]
        case (_, name, offset, data):
            content = files.setdefault(name, bytearray())
            content.extend(bytes(max(0, offset - len(content))))
            content[offset : offset + len(data)] = data


async def write(folder: Path, operations: list[Operation]) -> list[list[bytes]]:
    """Append and write journals. Returns the texts of the session after each append."""
    store = await JsonlStore.open(folder)
    await store.create_session("s")
    texts: list[list[bytes]] = []
    for number in range(12):
        facts = [user(f"{number} {part} " + "x" * (70_000 if number == 5 else number * 200)) for part in range(2)]
        await add(store, "s", *facts[: 1 + number % 2])
        texts.append(list((await store.entries("s")).texts))
        operations.append(("acknowledged", len(texts)))
        lease = await store.acquire_lease("s", "a run")
        for batch in range(3):
            generation = (await store.tail_of("s")).seq
            await store.write_journal(lease, MessageDeltaBatch(deltas=DELTAS, generation=generation, number=batch))
        await store.release_lease(lease)
    await store.close()
    return texts


async def test_after_a_power_loss_nothing_is_lost_or_called_damaged(
    fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_boot(monkeypatch, "before")
    folder = fast_path / "store"
    with monkeypatch.context() as patch, recorded(folder, patch) as operations:
        texts = await write(folder, operations)
    set_boot(monkeypatch, "after")
    chance = random.Random(30)
    faults: set[str] = set()
    for number in range(CUTS):
        done = operations[: chance.randrange(len(operations) + 1)]
        acknowledged = sum(operation[0] == "acknowledged" for operation in done)
        damaged = fast_path / f"cut{number}"
        for name, content in after_power_cut(done, chance).items():
            path = damaged / name
            path.parent.mkdir(parents=True, exist_ok=True)
            await asyncio.to_thread(path.write_bytes, content)
        store = await JsonlStore.open(damaged)
        expected = texts[acknowledged - 1] if acknowledged else []
        try:
            assert list((await store.entries("s")).texts)[: len(expected)] == expected
        except NotFound:
            assert not expected
        findings = (await check_all(store)).findings
        assert all(finding.fault == "torn" for finding in findings), (number, findings)
        faults.update(finding.fault for finding in findings)
        if expected:
            lease = await store.acquire_lease("s", "the next run", takeover=True)
            await add(store, "s", user("continued"), lease=lease)
        else:
            await check_all(store, do_repair=True)
        assert (await check_all(store)).findings == ()
        await store.close()
    assert faults == {"torn"}  # some cuts do leave something behind


def set_boot(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for module in (state, file):
        monkeypatch.setattr(module, "boot_id", lambda: name)
