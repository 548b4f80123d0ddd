"""Every kind of store, and shortcuts to fill one."""

from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bartack.environment import Environment
from bartack.store import open_store
from bartack.testing.store_steps import HANG_S, OpenStore, add, following
from tests.store import postgres_server

__all__ = ["HANG_S", "KINDS", "PERSISTENT", "START", "OpenStore", "add", "following", "opener"]

KINDS = ("memory", "jsonl", "sqlite", "postgres")
PERSISTENT = ("jsonl", "sqlite", "postgres")

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def opener(kind: str, folder: Path, environment: Environment | None = None) -> OpenStore:
    """Opens the store of this kind in this folder. A test that needs a missing PostgreSQL server is skipped here."""
    match kind:
        case "memory":
            address = "memory:"
        case "postgres":
            address = postgres_server.address(str(folder))
        case _:
            address = f"{kind}:{folder / 'sessions'}"
    return partial(open_store, address, environment=environment)
