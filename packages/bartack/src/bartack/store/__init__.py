"""Session storage: one interface, four stores.

    store = await open_store("sqlite:sessions.db")
    header = await store.create_session()
    entries = next_entries(header.session_id, Tail(header.id, 1), [user("hi")], store.environment)
    await store.append(header.session_id, entries, expected_tail=header.id)     # durable when it returns
    for entry in await store.load(header.session_id): ...

`bartack.store.session_store` is the contract of a store. An append goes from `append_only` through `append` (everything
that is checked) to the store's own folder (`sqlite`, `postgres`, `jsonl`), where it becomes durable.
"""

from collections.abc import Awaitable
from pathlib import Path

from bartack.environment import Environment
from bartack.nouns.errors import ErrorCode, StoreError
from bartack.store.address import StoreAddress, default_path
from bartack.store.entries import Entries
from bartack.store.memory import MemoryStore
from bartack.store.session_store import (
    Finding,
    Hit,
    Lease,
    ModelSpend,
    Page,
    SessionInfo,
    SessionStore,
    Spend,
    Tail,
    Totals,
    next_entries,
)

__all__ = [
    "Entries",
    "Finding",
    "Hit",
    "Lease",
    "MemoryStore",
    "ModelSpend",
    "Page",
    "SessionInfo",
    "SessionStore",
    "Spend",
    "StoreAddress",
    "Tail",
    "Totals",
    "default_path",
    "next_entries",
    "open_store",
]


async def open_store(
    address: str | Path | None = None, *, environment: Environment | None = None, read_only: bool = False
) -> SessionStore:
    """Open the store at an address, creating it if needed (see `bartack.store.address`; None is the default store).

    A `read_only` store must exist. It refuses everything that writes, and may be on a read-only file system.

    Raises:
        StoreError: The address is invalid, a required package is not installed, or the store cannot be opened.
    """
    where = StoreAddress.parse(address)
    try:
        match where:
            case StoreAddress(kind="jsonl", path=Path() as folder):
                from bartack.store.jsonl import JsonlStore  # noqa: PLC0415 - each store imports its own dependencies

                store: Awaitable[SessionStore] = JsonlStore.open(folder, environment=environment, read_only=read_only)
            case StoreAddress(kind="sqlite", path=Path() as file):
                from bartack.store.sqlite import SqliteStore  # noqa: PLC0415 - apsw is an extra

                store = SqliteStore.open(file, environment=environment, read_only=read_only)
            case StoreAddress(kind="postgres"):
                from bartack.store.postgres import PostgresStore  # noqa: PLC0415 - asyncpg is an extra

                store = PostgresStore.open(where.text, environment=environment, read_only=read_only)
            case StoreAddress(kind="memory"):
                return MemoryStore(environment=environment)
            case _:  # a kind without a case must not open a store that forgets everything
                raise StoreError(f"No store can be opened at {where.text!r}.")
    except ModuleNotFoundError as error:
        raise StoreError(
            f"This store requires the package {error.name}: pip install 'bartack[{where.kind}]'.",
            code=ErrorCode.MISSING_DEPENDENCY,
            cause=error,
        ) from error
    return await store
