"""Locks that a process releases by mistake, and stores in forked processes."""

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bartack import Agent
from bartack.models import ScriptedModel
from bartack.nouns.errors import StoreError
from bartack.nouns.messages import user
from bartack.store import SessionStore
from bartack.store.sqlite import SqliteStore
from lab.repository import ROOT
from tests.store.stores import PERSISTENT, add, opener


async def other_process(*arguments: str) -> str:
    """The output of another process that runs this."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        "-m",
        "tests.store.other_process",
        *arguments,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await child.communicate()
    assert child.returncode == 0, err.decode()
    return out.decode()


async def entries_lost(path: Path, guarded: str) -> int:
    """The number of acknowledged entries that are lost."""
    durable = int(await other_process("lose_locks", str(path), guarded))
    store = await SqliteStore.open(path)
    stored = len(await store.load("s"))
    await store.close()
    return durable - stored


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has open file description locks")
async def test_released_locks_lose_entries_only_without_the_guard(tmp_path: Path) -> None:
    """The second half is the negative control."""
    assert await entries_lost(tmp_path / "guarded.db", "guarded") == 0
    lost = await entries_lost(tmp_path / "plain.db", "plain")
    if lost == 0 and sqlite3.sqlite_version_info > (3, 45):
        pytest.skip(f"SQLite {sqlite3.sqlite_version} of this Python checks for other processes")
    assert lost > 0


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("kind", PERSISTENT)
def test_a_forked_process_gets_an_error_instead_of_waiting_forever(kind: str, fast_path: Path) -> None:
    open_store = opener(kind, fast_path)

    async def opened() -> SessionStore:
        store = await open_store()
        await store.create_session("s")
        return store

    with asyncio.Runner() as runner:
        store = runner.run(opened())
        assert _in_a_fork(lambda: asyncio.run(_errors_of(store))) == "StoreError StoreError StoreError"
        runner.run(add(store, "s", user("still usable here")))
        runner.run(store.close())


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_has_a_copy_of_the_sessions_in_memory() -> None:
    agent = Agent(ScriptedModel(["Hello.", "Hello again."]))
    session = agent.run_sync("Hello").session_id
    assert _in_a_fork(lambda: agent.run_sync("Hello", session=session).output) == "Hello again."
    assert agent.run_sync("Hello", session=session).output == "Hello again."


def _in_a_fork(work: Callable[[], str]) -> str:
    """What the work returns in a forked process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # only this thread exists here, and nothing of pytest may run
        try:
            os.write(writing, work().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as out:
        text = out.read().decode()
    os.waitpid(child, 0)
    return text


async def _errors_of(store: SessionStore) -> str:
    errors = []
    for call in (store.create_session("t"), store.load("s"), store.acquire_lease("s", "owner")):
        try:
            await call
        except StoreError as error:
            errors.append(type(error).__name__)
    return " ".join(errors)
