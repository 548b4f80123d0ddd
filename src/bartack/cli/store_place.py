"""Where sessions are kept, for those who only look: a store is found here without being made.

Opening a store makes it (bartack.store.open_store). `bartack doctor` and a press of the Tab key ask first.
"""

from pathlib import Path
from typing import Literal, NamedTuple

from bartack.store import check_is_path, default_path

__all__ = ["StorePlace", "is_there", "place_of_store"]

Kind = Literal["memory", "jsonl", "sqlite", "postgres"]


class StorePlace(NamedTuple):
    """A place as `bartack.store.open_store` takes it, and how it may be shown: without user, password and parameters."""

    kind: Kind
    url: str
    shown: str


def place_of_store(said: str | None) -> StorePlace:
    """What a flag, the environment or the file said, read; without that the file in the user's data folder.

    A kind that does not exist is a `StoreError`.
    """
    place = str(default_path()) if said is None else said
    scheme, _, rest = place.partition(":")
    match scheme:
        case "memory":
            return StorePlace("memory", place, place)
        case "jsonl":
            folder = Path(rest).expanduser()
            return StorePlace("jsonl", f"jsonl:{folder}", f"jsonl:{folder}")
        case "postgres" | "postgresql":
            address, _, parameters = rest.partition("?")
            # Either sign may stand in a password, and then nobody knows where that ends.
            host = "..." if "@" in parameters else address.rpartition("@")[2].lstrip("/")
            return StorePlace("postgres", place, f"{scheme}://{host}")
        case "sqlite":
            path = Path(rest).expanduser()
        case _:
            check_is_path(place)
            path = Path(place).expanduser()
    return StorePlace("sqlite", f"sqlite:{path}", str(path))


async def is_there(place: StorePlace) -> bool:
    """Whether something is at this place that can be opened and was not made by that; `StoreError` if it is away."""
    match place.kind:
        case "memory":
            return False
        case "jsonl":
            return _is_store_folder(Path(place.url.removeprefix("jsonl:")))
        case "sqlite":
            return _is_begun(Path(place.url.removeprefix("sqlite:")))
        case "postgres":
            return await _has_tables(place.url)


def _is_store_folder(path: Path) -> bool:
    return (path / "bartack-store.json").exists() or (path.exists() and not path.is_dir())


def _is_begun(path: Path) -> bool:
    """An empty file is as good as none: opening it makes the tables."""
    return path.exists() and not (path.is_file() and path.stat().st_size == 0)


async def _has_tables(url: str) -> bool:
    from bartack.store.postgres.connection import TROUBLE, Link, failure  # noqa: PLC0415 - asyncpg is an extra

    link = Link(url)
    connection = await link.connect()
    try:
        found = await connection.fetchval("SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = $1)", link.schema)
    except TROUBLE as error:
        raise failure(error, "looking for the store") from error
    finally:
        connection.terminate()
    return bool(found)
