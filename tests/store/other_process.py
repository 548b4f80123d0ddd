"""What tests run in other processes: ``python -m tests.store.other_process FUNCTION ARGUMENTS...``."""

import asyncio
import os
import sqlite3
import sys
from pathlib import Path

from bartack.nouns.errors import Conflict
from bartack.nouns.messages import user
from bartack.store import Tail, next_entries, open_store
from bartack.store.sqlite import SqliteStore


async def write(address: str, name: str, count: str) -> None:
    """Append to a private session and to "shared", where others write too; prints the number of conflicts."""
    store = await open_store(address)
    header = await store.create_session(name)
    tail, conflicts = Tail(header.id, 1), 0
    for number in range(int(count)):
        tail = await store.append(name, next_entries(name, tail, [user(f"{number}")], store.environment), tail.entry_id)
        while True:
            shared = await store.tail_of("shared")
            entries = next_entries("shared", shared, [user(f"{name}/{number}")], store.environment)
            try:
                await store.append("shared", entries, shared.entry_id)
                break
            except Conflict:
                conflicts += 1
    await store.close()
    print(conflicts)


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


if __name__ == "__main__":
    function, *arguments = sys.argv[1:]
    asyncio.run(globals()[function](*arguments))
