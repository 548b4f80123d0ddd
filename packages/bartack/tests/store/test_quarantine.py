"""An import is stored in one step or not at all, wherever it fails. What it stores is foreign until it is adopted."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from bartack.environment import Environment
from bartack.nouns import wire
from bartack.nouns.entries import Entry, Fact, MessageQueued, SessionHeader
from bartack.nouns.errors import Conflict, NotFound, StoreError
from bartack.nouns.messages import user
from bartack.queues.run_queue import JOB_KEY
from bartack.store import SessionStore, next_entries, open_store
from bartack.store.backup import restore
from bartack.store.foreign import adopt, check_adopted, is_foreign, mark_foreign
from bartack.store.jsonl.importing import RECORD_FILE
from bartack.store.maintenance import purge
from bartack.store.session_store import SessionAppend
from bartack.store.transfer import import_lines
from tests.store import postgres_server

SECRET = "unmistakable"


def session_entries(session_id: str, count: int) -> list[Entry]:
    job = {JOB_KEY: {"id": "j", "session_id": session_id, "agent": "a"}}
    queued = MessageQueued(message=user(f"Do it: {SECRET} {'x' * 20_000}"), metadata=job)
    facts: list[Fact] = [
        SessionHeader(title=SECRET),
        queued,
        *(user(f"{SECRET} {number}") for number in range(count - 2)),
    ]
    return list(next_entries(session_id, None, facts, Environment()))


def lines_of(*entries: Entry) -> list[bytes]:
    return [wire.encode(entry) + b"\n" for entry in entries]


async def is_empty(store: SessionStore) -> bool:
    listed = [*(await store.sessions()).items, *(await store.sessions(reserved=True)).items]
    return not listed and not await store.search(SECRET) and not (await store.totals()).models


async def test_an_error_in_the_last_line_leaves_nothing(store: SessionStore) -> None:
    with pytest.raises(StoreError, match="Line 523 is not an entry"):
        await import_lines(store, [*lines_of(*session_entries("s", 522)), b"broken\n"])
    assert await is_empty(store)


def _own_parent(entries: list[Entry]) -> list[Entry]:
    return [*entries[:2], replace(entries[2], parent_id=entries[2].id), *entries[3:]]


def _later_parent(entries: list[Entry]) -> list[Entry]:
    return [*entries[:2], replace(entries[2], parent_id=entries[3].id), *entries[3:]]


def _repeated_id(entries: list[Entry]) -> list[Entry]:
    return [*entries[:3], replace(entries[3], id=entries[1].id)]


def _gap(entries: list[Entry]) -> list[Entry]:
    return [*entries[:2], *entries[3:]]


def _reserved(entries: list[Entry]) -> list[Entry]:
    return [replace(entry, session_id="bartack:queue:default") for entry in entries]


def _scattered(entries: list[Entry]) -> list[Entry]:
    return [*entries[:2], *session_entries("t", 3), *entries[2:]]


@pytest.mark.parametrize("forge", [_own_parent, _later_parent, _repeated_id, _gap, _reserved, _scattered])
async def test_a_forged_file_is_refused(store: SessionStore, forge: Callable[[list[Entry]], list[Entry]]) -> None:
    with pytest.raises(StoreError):
        await import_lines(store, lines_of(*forge(session_entries("s", 5))))
    assert await is_empty(store)


async def test_appends_to_several_sessions_are_stored_together_or_not_at_all(store: SessionStore) -> None:
    await store.create_session("old")
    tail = await store.tail_of("old")

    def appends() -> Iterator[SessionAppend]:
        (entry,) = next_entries("old", tail, [user(SECRET)], Environment())
        yield SessionAppend("old", [entry], tail.entry_id)
        yield SessionAppend("s", session_entries("s", 10), None)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        await store.append_all(["old", "s"], appends)
    assert [info.id for info in (await store.sessions()).items] == ["old"]
    assert await store.tail_of("old") == tail
    assert not await store.search(SECRET)
    await store.append("old", next_entries("old", tail, [user("Go on")], Environment()), tail.entry_id)


async def test_a_conflict_with_one_session_leaves_the_others_out(store: SessionStore) -> None:
    await store.create_session("t")
    with pytest.raises(Conflict):
        await import_lines(store, lines_of(*session_entries("s", 5), *session_entries("t", 5)))
    with pytest.raises(NotFound):
        await store.load("s")


async def test_what_is_imported_is_foreign_until_it_is_adopted(store: SessionStore) -> None:
    lines = lines_of(*session_entries("s", 5), *session_entries("t", 5))
    await import_lines(store, lines)
    assert [await is_foreign(store, name) for name in "st"] == [True, True]
    await adopt(store, "s")
    await adopt(store, "s")
    await check_adopted(store, "s")
    await import_lines(store, lines)  # adds nothing
    assert [await is_foreign(store, name) for name in "st"] == [False, True]
    with pytest.raises(NotFound):
        await adopt(store, "u")


async def test_a_purged_session_stays_foreign(store: SessionStore) -> None:
    await import_lines(store, lines_of(*session_entries("s", 5)))
    new_id = await purge(store, "s")
    assert new_id is not None
    assert await is_foreign(store, new_id)
    assert not await is_foreign(store, "s")
    await mark_foreign(store, new_id)  # has no effect
    await purge(store, new_id, everything=True)
    assert await is_empty(store)


_IMPORT = """
import asyncio, os, signal, sys
from pathlib import Path
from bartack.store import open_store
from bartack.store import transfer
from bartack.store.jsonl import importing

address, path, point = sys.argv[1], sys.argv[2], sys.argv[3]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

count = 0
real = transfer._SessionImport.appends
def appends(self, entries):
    global count
    for append in real(self, entries):
        count += 1
        if point == f"batch {count}":
            die()
        yield append
transfer._SessionImport.appends = appends
write_state, states = importing.write_state, 0
def counted(*values):
    global states
    states += 1
    if point == f"state {states}":
        die()
    write_state(*values)
importing.write_state = counted
if point == "commit":
    importing.ImportRecord.commit = die
if point == "finish":
    importing.os.truncate = die
    importing.ImportRecord.finish = lambda record: die() if record._path.exists() else None

async def main():
    store = await open_store(address)
    with open(path, "rb") as file:
        await transfer.import_lines(store, transfer.read_lines(file))
    await store.close()

asyncio.run(main())
"""
POINTS = ["batch 1", "batch 2", "batch 4", "commit", "state 1", "state 3", "finish"]


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
@pytest.mark.parametrize("point", POINTS)
async def test_a_killed_import_leaves_everything_or_nothing(tmp_path: Path, kind: str, point: str) -> None:
    path, address = tmp_path / "file.jsonl", f"{kind}:{tmp_path / 'store'}"
    store = await open_store(address)
    await store.create_session("old")
    await store.close()
    path.write_bytes(b"".join(lines_of(*session_entries("s", 1200), *session_entries("t", 700))))
    arguments = [sys.executable, "-c", _IMPORT, address, str(path), point]
    killed = subprocess.run(arguments, env=os.environ, check=False, capture_output=True)  # noqa: ASYNC221
    assert killed.returncode in ((-signal.SIGKILL,) if kind == "jsonl" or "batch" in point else (0,)), killed.stderr
    is_stored = killed.returncode == 0 or point.startswith("state") or point == "finish"
    store = await open_store(address)
    listed = sorted(info.id for info in (await store.sessions()).items)
    assert listed == (["old", "s", "t"] if is_stored else ["old"])
    assert [await is_foreign(store, name) for name in "st"] == [is_stored, is_stored]
    if not is_stored:
        assert not await store.search(SECRET)
        if kind == "jsonl":
            left = [file for file in (tmp_path / "store").rglob("*") if file.is_file()]
            assert not any(SECRET.encode() in file.read_bytes() for file in left)
            assert not (tmp_path / "store" / RECORD_FILE).exists()
    with path.open("rb") as file:
        await import_lines(store, file)
    assert len(await store.entries("s")) > 1200
    assert (await store.inspect()).findings == ()
    await store.close()


@pytest.mark.parametrize("content", [b"", b"broken\n"])
async def test_a_failed_restore_to_a_database_does_not_keep_the_next_one_from_it(
    tmp_path: Path, content: bytes
) -> None:
    address = postgres_server.address(str(tmp_path))
    (tmp_path / "backup").write_bytes(content)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"contains no session|not an entry"):
            await restore(tmp_path / "backup", address)
    (tmp_path / "backup").write_bytes(b"".join(lines_of(*session_entries("s", 3))))
    await restore(tmp_path / "backup", address)
    with pytest.raises(StoreError, match="already exists"):
        await restore(tmp_path / "backup", address)


@pytest.mark.parametrize("content", [b"", b"broken\n"])
@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
async def test_a_failed_restore_leaves_no_store(tmp_path: Path, kind: str, content: bytes) -> None:
    (tmp_path / "backup").write_bytes(content)
    with pytest.raises(StoreError):
        await restore(tmp_path / "backup", f"{kind}:{tmp_path / 'store'}")
    assert os.listdir(tmp_path) == ["backup"]  # noqa: PTH208 - no thread is needed for it
