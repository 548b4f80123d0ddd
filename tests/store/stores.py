"""Every kind of store, and shortcuts to fill one."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

from bartack.environment import Environment
from bartack.nouns.entries import Entry, Fact
from bartack.nouns.messages import user
from bartack.store import MemoryStore, SessionStore, Tail, next_entries
from bartack.store.jsonl import JsonlStore
from bartack.store.postgres import PostgresStore
from bartack.store.sqlite import SqliteStore
from tests.store import postgres_server

Open = Callable[[], Awaitable[SessionStore]]

KINDS = ("memory", "jsonl", "sqlite", "postgres")
PERSISTENT = ("jsonl", "sqlite", "postgres")
HANG_S = 300.0  # only ends a test that hangs: no test depends on how fast the machine is

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def counting_environment() -> Environment:
    """A clock that advances one second per call, and random bits that count."""
    seconds, bits = count(), count(1)
    return Environment(now=lambda: START + timedelta(seconds=next(seconds)), random=lambda: next(bits))


def opener(kind: str, folder: Path, environment: Environment | None = None) -> Open:
    """Opens the store of this kind in this folder. A test that needs a missing PostgreSQL server is skipped here."""
    environment = environment or Environment()
    address = postgres_server.address(str(folder)) if kind == "postgres" else ""

    async def open_it() -> SessionStore:
        match kind:
            case "memory":
                return MemoryStore(environment=environment)
            case "jsonl":
                return await JsonlStore.open(folder / "sessions", environment=environment)
            case "sqlite":
                return await SqliteStore.open(folder / "sessions.db", environment=environment)
            case "postgres":
                return await PostgresStore.open(address, environment=environment)
            case _:
                raise AssertionError(kind)

    return open_it


def following(entry: Entry, *facts: Fact, run_id: str | None = None) -> tuple[Entry, ...]:
    """Entries after this one, which is the last of its session."""
    tail = Tail(entry.id, entry.seq)
    return next_entries(entry.session_id, tail, facts or (user("hi"),), Environment(), run_id=run_id)


async def add(store: SessionStore, session_id: str, *facts: Fact) -> tuple[Entry, ...]:
    """Append these facts to the session."""
    tail = await store.tail_of(session_id)
    entries = next_entries(session_id, tail, facts, store.environment)
    await store.append(session_id, entries, tail.entry_id)
    return entries
