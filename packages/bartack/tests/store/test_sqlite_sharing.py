"""A SQLite file that other processes crash on, stop on, move away or back up, or that cannot be written at all."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import apsw
import pytest

from bartack.nouns.errors import StoreError
from bartack.nouns.messages import user
from bartack.store import Tail, next_entries, open_store
from bartack.store.files import Guard, WriteLock
from bartack.store.maintenance import check
from bartack.store.sqlite import SqliteStore
from bartack.store.sqlite.file import connect, is_up_to_date
from bartack.store.sqlite.schema import migrate
from lab.repository import ROOT
from tests.sample_session import SESSION
from tests.store.stores import HANG_S, add, following
from tests.store.test_processes import other_process


@asynccontextmanager
async def running(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Another process that runs this, killed at the end."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.store.other_process", *arguments),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def line_from(child: asyncio.subprocess.Process, expected: bytes) -> None:
    assert child.stdout is not None
    assert await child.stdout.readline() == expected


def let_go(child: asyncio.subprocess.Process) -> None:
    assert child.stdin is not None
    child.stdin.write(b"\n")


async def seq_after_opening(path: Path) -> int:
    store = await SqliteStore.open(path)
    try:
        return (await store.tail_of("s")).seq
    finally:
        await store.close()


# -- crashed and stopped processes


async def test_opening_waits_while_another_process_recovers_the_log(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    await other_process("crash", str(path))
    async with asyncio.timeout(HANG_S), running("recover_slowly", str(path)) as child:
        await line_from(child, b"recovering\n")
        opens = [asyncio.create_task(seq_after_opening(path)) for _ in range(3)]
        done, _ = await asyncio.wait(opens, timeout=0.5)  # without the wait, they fail at once
        let_go(child)
        assert done == set()
        assert await asyncio.gather(*opens) == [3, 3, 3]


@pytest.mark.skipif(sys.platform == "win32", reason="needs flock")
async def test_readers_do_not_wait_for_a_stopped_writer(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    await other_process("crash", str(path))
    async with asyncio.timeout(HANG_S), running("stop_while_writing", str(path)) as child:
        await line_from(child, b"holding\n")
        store = await SqliteStore.open(path, wait_s=0.2)
        assert [info.id for info in (await store.sessions()).items] == ["s"]
        assert len(await store.load("s")) == 3
        assert len(await store.search("there")) == 1
        for _ in range(3):
            with pytest.raises(StoreError, match="It may be stopped") as refused:
                await add(store, "s", user("blocked"))
            assert refused.value.retryable
        let_go(child)
        await child.wait()
        await add(store, "s", user("free"))
        await store.close()
    assert await seq_after_opening(path) == 4


@pytest.mark.skipif(sys.platform == "win32", reason="needs flock")
def test_a_lock_that_came_too_late_is_released_again(tmp_path: Path) -> None:
    first, second = WriteLock(tmp_path / "lock"), WriteLock(tmp_path / "lock")
    with first.held():
        for _ in range(2):  # the second attempt joins the wait of the first
            with pytest.raises(StoreError, match="has held the write lock"), second.held(wait_s=0.01):
                pass
    with first.held(wait_s=HANG_S):  # the late lock of the second is not kept
        pass
    for lock in (second, first, second):
        with lock.held(wait_s=HANG_S):
            pass
    first.close()
    second.close()


# -- a file that is no longer there


def _replace(path: Path) -> None:
    path.rename(path.with_name("old.db"))
    path.write_bytes(b"")


MOVES: dict[str, Callable[[Path], object]] = {
    "renamed": lambda path: path.rename(path.with_name("other.db")),
    "deleted": lambda path: path.unlink(),
    "replaced": _replace,
    "log deleted": lambda path: path.with_name("a.db-wal").unlink(),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES.keys())
async def test_a_moved_or_deleted_file_is_noticed_before_the_next_acknowledgement(
    tmp_path: Path, move: Callable[[Path], object]
) -> None:
    store = await SqliteStore.open(tmp_path / "a.db")
    header = await store.create_session("s")
    move(tmp_path / "a.db")
    for _ in range(2):
        with pytest.raises(StoreError, match="was renamed, replaced or deleted while the store was open"):
            await store.append("s", following(header), header.id)
        with pytest.raises(StoreError, match="was renamed, replaced or deleted while the store was open"):
            await store.load("s")
    await store.close()


# -- reading without writing


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[Callable[[], Path]]:
    """Makes the folder with the store read-only, for root too."""
    folder = tmp_path / "frozen"
    folder.mkdir()
    is_root = os.geteuid() == 0

    def freeze() -> Path:
        if not is_root:
            folder.chmod(0o500)
            return folder
        for command in (["mount", "--bind", str(folder), str(folder)], ["mount", "-o", "remount,ro,bind", str(folder)]):
            try:
                done = subprocess.run(command, capture_output=True, check=False)
            except FileNotFoundError:
                pytest.skip("root can write anywhere, and there is no mount command")
            if done.returncode:
                pytest.skip("root can write anywhere, and nothing can be mounted read-only")
        return folder

    yield freeze
    if is_root:
        subprocess.run(["umount", folder], capture_output=True, check=False)
    else:
        folder.chmod(0o700)


@pytest.mark.parametrize("state", ["closed", "crashed", "crashed without index"])
async def test_a_store_on_a_read_only_file_system_can_be_read(
    tmp_path: Path, frozen: Callable[[], Path], state: str
) -> None:
    path = tmp_path / "frozen" / "a.db"
    await other_process("crash", str(path))
    if state == "closed":
        await seq_after_opening(path)
    elif state == "crashed without index":
        path.with_name("a.db-shm").unlink()
    before = sorted(file.name for file in frozen().iterdir())
    store = await open_store(f"sqlite:{path}", read_only=True)
    assert [info.id for info in (await store.sessions()).items] == ["s"]
    assert [hit.seq for hit in await store.search("there")] == [3]
    assert await check(store) == []
    with pytest.raises(StoreError, match="was opened read-only"):
        await store.create_session("new")
    await store.close()
    assert sorted(file.name for file in path.parent.iterdir()) == before


async def test_a_read_only_store_sees_what_others_append(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with pytest.raises(StoreError, match="cannot be opened"):
        await open_store(path, read_only=True)
    assert not path.exists()
    writer = await SqliteStore.open(path)
    await writer.create_session("s")
    reader = await open_store(path, read_only=True)
    await add(writer, "s", user("hi"))
    assert (await reader.tail_of("s")).seq == 2
    await reader.close()
    await add(writer, "s", user("again"))
    await writer.close()


# -- backup


async def test_a_backup_is_a_complete_store_as_of_one_moment(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "a.db")
    await store.append("s", SESSION, None)
    header = await store.create_session("busy")
    is_copied = asyncio.Event()

    async def write() -> int:
        tail = Tail(header.id, 1)
        while not is_copied.is_set():
            facts = [user("one"), user("two")]
            entries = next_entries("busy", tail, facts, store.environment)
            tail = await store.append("busy", entries, tail.entry_id)
        return tail.seq

    writing = asyncio.create_task(write())
    await store.backup(tmp_path / "copies" / "b.db")
    is_copied.set()
    last = await writing
    await store.close()
    assert [file.name for file in (tmp_path / "copies").iterdir()] == ["b.db"]
    copy = await SqliteStore.open(tmp_path / "copies" / "b.db")
    assert await copy.load("s") == SESSION
    assert (await copy.tail_of("busy")).seq % 2 == 1
    assert (await copy.tail_of("busy")).seq <= last
    assert await check(copy, "busy") == []
    await add(copy, "busy", user("more"))
    with pytest.raises(StoreError, match="already exists"):
        await copy.backup(tmp_path / "copies" / "b.db")
    await copy.close()


@pytest.mark.skipif(sys.platform == "win32", reason="has no pread")
async def test_stores_of_one_process_do_not_move_the_position_of_their_shared_descriptor(tmp_path: Path) -> None:
    """One that reads while another is being opened would read another place, and report a damaged file."""
    stores = [await SqliteStore.open(tmp_path / "a.db") for _ in range(2)]
    header = await stores[0].create_session("s")
    guard = Guard.of(tmp_path / "a.db", HANG_S)
    try:
        os.lseek(guard.descriptor, 7, os.SEEK_SET)
        (entry,) = next_entries("s", Tail(header.id, 1), [user("hi")], stores[1].environment)
        await stores[1].append("s", [entry], header.id)
        third = await SqliteStore.open(tmp_path / "a.db")
        assert os.lseek(guard.descriptor, 0, os.SEEK_CUR) == 7
        await third.close()
    finally:
        guard.release()
    for store in stores:
        await store.close()


def test_a_store_that_is_created_while_its_file_is_looked_at_is_not_foreign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    path.touch()
    creator = connect(path, synchronous="FULL", wait_s=HANG_S, vfs=None)
    statements: list[str] = []

    def trace(_: object, sql: str, __: object) -> bool:
        if "application_id" in sql or "count(*)" in sql:
            statements.append(sql)
            if len(statements) == 2:
                migrate(creator)
        return True

    def follow_statements(connection: apsw.Connection) -> None:
        connection.exec_trace = trace

    monkeypatch.setattr(apsw, "connection_hooks", [*apsw.connection_hooks, follow_statements])
    assert is_up_to_date(path, HANG_S)
    assert len(statements) > 2
    creator.close()
