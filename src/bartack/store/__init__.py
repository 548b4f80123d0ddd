"""Sessions that are kept: one interface, four stores.

    store = await open_store("sqlite:sessions.db")
    header = await store.create_session()
    entries = next_entries(header.session_id, Tail(header.id, 1), [user("hi")], store.environment)
    await store.append(header.session_id, entries, expected_tail=header.id)     # durable when it returns
    for entry in await store.load(header.session_id): ...

What a store promises stands in `bartack.store.session_store`.
"""

from pathlib import Path

from bartack.environment import Environment
from bartack.nouns.errors import ErrorCode, StoreError
from bartack.store.memory import MemoryStore
from bartack.store.session_store import (
    Finding,
    Hit,
    Lease,
    ModelSpend,
    Page,
    Place,
    SessionInfo,
    SessionStore,
    Spend,
    Tail,
    Totals,
    next_entries,
)
from bartack.store.stored import Entries

__all__ = [
    "Entries",
    "Finding",
    "Hit",
    "Lease",
    "MemoryStore",
    "ModelSpend",
    "Page",
    "Place",
    "SessionInfo",
    "SessionStore",
    "Spend",
    "Tail",
    "Totals",
    "default_path",
    "next_entries",
    "open_store",
]


def default_path() -> Path:
    """The database in the user's data folder, where the platform wants it."""
    try:
        import platformdirs  # noqa: PLC0415 - an extra, needed only without a path
    except ImportError as error:
        raise StoreError(
            "without a path the store is in the user's data folder, and finding that needs platformdirs",
            code=ErrorCode.INVALID_CONFIG,
            cause=error,
        ) from error
    return Path(platformdirs.user_data_dir("bartack", appauthor=False)) / "sessions.db"


async def open_store(where: str | Path | None = None, *, environment: Environment | None = None) -> SessionStore:
    """The store at ``memory:``, ``jsonl:DIR``, ``sqlite:FILE``, ``postgresql://...`` or a path (a SQLite file).

    It is made if it is not there. Without a place it is the SQLite file in the user's data folder.
    """
    place = str(default_path() if where is None else where)
    scheme, _, rest = place.partition(":")
    match scheme:
        case "memory":
            return MemoryStore(environment=environment)
        case "jsonl":
            from bartack.store.jsonl import JsonlStore  # noqa: PLC0415 - each store pulls in its own needs

            return await JsonlStore.open(Path(rest), environment=environment)
        case "postgres" | "postgresql":
            from bartack.store.postgres import PostgresStore  # noqa: PLC0415 - asyncpg is an extra

            return await PostgresStore.open(place, environment=environment)
        case "sqlite":
            return await _open_sqlite(Path(rest), environment)
        case _:
            check_is_path(place)
            return await _open_sqlite(Path(place), environment)


def check_is_path(place: str) -> None:
    """`StoreError` for a place that looks like a kind of store that there is not: ``mysql://...``, ``sqlit:x.db``."""
    scheme, colon, rest = place.partition(":")
    if colon and len(scheme) > 1 and scheme.isalnum():  # a single letter is a drive
        kind = f"{scheme}://" if rest.startswith("//") else f"{scheme}:"
        raise StoreError(f"there are no stores of the kind {kind}", code=ErrorCode.INVALID_CONFIG)


async def _open_sqlite(path: Path, environment: Environment | None) -> SessionStore:
    try:
        from bartack.store.sqlite import SqliteStore  # noqa: PLC0415 - apsw is an extra
    except ImportError as error:
        raise StoreError(
            "a SQLite store needs apsw: pip install 'bartack[sqlite]'", code=ErrorCode.INVALID_CONFIG, cause=error
        ) from error
    return await SqliteStore.open(path, environment=environment)
