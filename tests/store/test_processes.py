"""Several processes on one store: many writers, one that loses its locks, one that is killed."""

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from bartack.nouns.messages import Message
from bartack.store import open_store
from bartack.store.maintenance import check
from bartack.store.sqlite import SqliteStore

ROOT = Path(__file__).parents[2]


async def other_process(*words: str) -> str:
    """What another process, doing this, printed."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        "-m",
        "tests.store.other_process",
        *words,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await child.communicate()
    assert child.returncode == 0, err.decode()
    return out.decode()


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
async def test_8_processes_on_one_store_lose_nothing_and_meet_no_error(tmp_path: Path, kind: str) -> None:
    place = f"{kind}:{tmp_path / 'sessions'}"
    store = await open_store(place)
    await store.create_session("shared")
    async with asyncio.timeout(60):
        await asyncio.gather(*(other_process("write", place, f"p{number}", "10") for number in range(8)))
    shared = [entry.fact.text for entry in await store.load("shared") if isinstance(entry.fact, Message)]
    assert sorted(shared) == sorted(f"p{process}/{number}" for process in range(8) for number in range(10))
    for process in range(8):
        mine = [entry.fact.text for entry in await store.load(f"p{process}") if isinstance(entry.fact, Message)]
        assert mine == [f"{number}" for number in range(10)]
    assert await check(store) == []
    await store.close()


async def entries_lost(path: Path, guarded: str) -> int:
    """How many of the entries that were acknowledged are lost."""
    durable = int(await other_process("lose_locks", str(path), guarded))
    store = await SqliteStore.open(path)
    there = len(await store.load("s"))
    await store.close()
    return durable - there


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has locks of open file descriptions")
async def test_locks_that_are_cancelled_lose_nothing_with_the_guard_and_much_without(tmp_path: Path) -> None:
    """The second half is the negative control."""
    assert await entries_lost(tmp_path / "guarded.db", "guarded") == 0
    lost = await entries_lost(tmp_path / "plain.db", "plain")
    if lost == 0 and sqlite3.sqlite_version_info > (3, 45):
        pytest.skip(f"the SQLite {sqlite3.sqlite_version} of this Python looks for other processes by itself")
    assert lost > 0


@pytest.mark.parametrize(
    ("kind", "words", "status"),
    [("sqlite", ["--kills", "5"], 0), ("jsonl", ["--kills", "5"], 0), ("sqlite", ["--kills", "3", "--lie"], 1)],
)
def test_a_killed_writer_loses_nothing_that_was_acknowledged(kind: str, words: list[str], status: int) -> None:
    """`make crash` kills it two hundred times. The last case, whose writer lies, is the negative control."""
    script = ROOT / "scripts" / "crash.py"
    done = subprocess.run(
        [sys.executable, str(script), "--store", kind, *words], capture_output=True, check=False, timeout=120
    )
    assert done.returncode == status, (done.stdout + done.stderr).decode()
    assert b"acknowledged entries" in done.stdout
