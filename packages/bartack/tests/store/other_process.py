"""What tests run in other processes: ``python -m tests.store.other_process FUNCTION ARGUMENTS...``."""

import asyncio
import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

import apsw

from bartack.nouns.messages import user
from bartack.store import Tail, next_entries
from bartack.store.sqlite import SqliteStore


async def open_and_close(path: str) -> None:
    """Act as another program, with Python's own SQLite, which on closing believes it is the last user of the file."""
    connection = sqlite3.connect(path)
    connection.execute("SELECT count(*) FROM entry").fetchall()
    connection.close()


async def lose_locks(path: str, guarded: str) -> None:
    """Append, open and close the file directly, run another process on it, append, die. Prints the durable seq."""
    SqliteStore.guarded = guarded == "guarded"
    store = await SqliteStore.open(path)
    header = await store.create_session("s")
    tail = Tail(header.id, 1)
    for number in range(20):
        if number == 10:
            Path(path).open("rb").close()  # noqa: ASYNC230 - the mistake under test
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.store.other_process", "open_and_close", path
            )
            assert await child.wait() == 0
        tail = await store.append("s", next_entries("s", tail, [user(f"{number}")], store.environment), tail.entry_id)
    print(tail.seq, flush=True)
    os._exit(0)


async def recover_slowly(path: str) -> None:
    """Open a database whose log must be recovered, and stop in the middle of that until a line arrives."""

    class SlowFile(apsw.VFSFile):
        is_log = False

        def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802 - SQLite's name
            if self.is_log and offset >= 32:
                self.is_log = False
                print("recovering", flush=True)
                sys.stdin.readline()
            return super().xRead(amount, offset)

    class SlowDisk(apsw.VFS):
        def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
            file = SlowFile("", name, flags)
            file.is_log = bool(flags[0] & apsw.SQLITE_OPEN_WAL)
            return file

    disk = SlowDisk("slow", base="")
    connection = apsw.Connection(path, vfs="slow")
    connection.pragma("schema_version")
    connection.close()
    disk.unregister()


async def stop_while_writing(path: str) -> None:
    """Hold the write lock with a transaction open, like a stopped process, until a line arrives."""

    def hold(_: object) -> None:
        print("holding", flush=True)
        sys.stdin.readline()

    store = await SqliteStore.open(path)
    await store._write(hold)
    await store.close()


async def crash(path: str) -> None:
    """Append and die, so that the write-ahead log stays."""
    store = await SqliteStore.open(path)
    header = await store.create_session("s")
    entries = next_entries("s", Tail(header.id, 1), [user("hi"), user("there")], store.environment)
    await store.append("s", entries, header.id)
    os._exit(0)


if __name__ == "__main__":
    function, *arguments = sys.argv[1:]
    asyncio.run(globals()[function](*arguments))
