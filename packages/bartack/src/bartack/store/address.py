"""Store addresses, parsed in one place for `open_store`, the command line and the agent's configuration:

- ``memory:``, sessions that end with the process
- ``jsonl:DIR``, a folder of JSON Lines files
- ``sqlite:FILE`` or a plain path, a SQLite database
- ``postgresql://USER@HOST/DATABASE``, a PostgreSQL server; ``?schema=NAME`` selects the schema (default: bartack)
"""

import stat
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from bartack.nouns.errors import ErrorCode, StoreError

__all__ = ["ADDRESS_FORMS", "WEAK_SETTINGS", "PostgresAddress", "StoreAddress", "default_path"]

_POSTGRES_FORM = "postgresql://USER@HOST/DATABASE"
ADDRESS_FORMS = f"memory:, jsonl:DIR, sqlite:FILE, a path, or {_POSTGRES_FORM}"


def default_path() -> Path:
    """The SQLite file in the user's data folder that is used when no address is given."""
    try:
        import platformdirs  # noqa: PLC0415 - an extra, needed only without an address
    except ImportError as error:
        raise _invalid_config_error(
            "The default store requires platformdirs: pip install 'bartack[sqlite]', or pass a store address.", error
        ) from error
    return Path(platformdirs.user_data_dir("bartack", appauthor=False)) / "sessions.db"


class StoreAddress(NamedTuple):
    """A parsed address. `text` opens the store and may contain a password; `display` is safe to print."""

    kind: Literal["memory", "jsonl", "sqlite", "postgres"]
    text: str
    display: str
    path: Path | None = None  # the folder of a JSONL store, the file of a SQLite store

    @classmethod
    def parse(cls, address: str | Path | None) -> "StoreAddress":
        """Parse an address (None: the default store), expanding ``~``; raises `StoreError` (``invalid_config``)."""
        text = str(default_path() if address is None else address)
        scheme, colon, location = text.partition(":")
        match scheme:
            case "memory":
                return cls("memory", "memory:", "memory:")
            case "jsonl" | "sqlite" if not location:
                raise _invalid_config_error(
                    f'"{text}" is not a store address: the path is missing (as in {scheme}:sessions).'
                )
            case "jsonl":
                path = Path(location).expanduser()
                return cls("jsonl", f"jsonl:{path}", f"jsonl:{path}", path)
            case "postgres" | "postgresql":
                PostgresAddress.parse(text)
                return cls("postgres", text, f"{scheme}://{_host_of(location)}")
            case "sqlite":
                path = Path(location).expanduser()
            case _:
                if colon and len(scheme) > 1 and scheme.isalnum():  # a single letter is a drive on Windows
                    kind = f"{scheme}://" if location.startswith("//") else f"{scheme}:"
                    raise _invalid_config_error(f'Unknown store type "{kind}". Use {ADDRESS_FORMS}.')
                path = Path(text).expanduser()
        return cls("sqlite", f"sqlite:{path}", str(path), path)

    async def exists(self) -> bool:
        """Whether there is something to open at this address. Nothing is created."""
        match self:
            case StoreAddress(kind="postgres"):
                from bartack.store.postgres.connection import Database  # noqa: PLC0415 - asyncpg is an extra

                return await Database(self.text).has_tables()
            case StoreAddress(kind="jsonl", path=Path() as path):
                from bartack.store.jsonl.folder import VERSION_FILE  # noqa: PLC0415 - imports asyncio

                return (path / VERSION_FILE).exists() or (path.exists() and not path.is_dir())
            case StoreAddress(kind="sqlite", path=Path() as path):  # an empty file has no tables yet
                try:
                    status = path.stat()
                except (FileNotFoundError, NotADirectoryError):
                    return False
                return not (stat.S_ISREG(status.st_mode) and status.st_size == 0)
            case _:
                return False


# Values with which a PostgreSQL server may lose an acknowledged entry in a crash.
WEAK_SETTINGS = {"synchronous_commit": "off", "fsync": "off", "full_page_writes": "off"}


class PostgresAddress(NamedTuple):
    """A ``postgresql://`` URL, split into the URL for the driver, the schema, and the weak settings it accepts."""

    url: str
    schema: str
    allowed: frozenset[str]  # such as "synchronous_commit=off"

    @classmethod
    def parse(cls, text: str) -> "PostgresAddress":
        """Parse a URL in libpq's form, plus our own ``?schema=NAME``; raises `StoreError`."""
        try:
            parts = urlsplit(text)
        except ValueError:
            raise invalid_address_error() from None
        parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
        schema = parameters.pop("schema", "bartack")
        if not schema or "\0" in schema or len(schema.encode()) > 63:  # PostgreSQL truncates longer names
            raise _invalid_config_error(f"Invalid schema name {schema!r}: it must have 1 to 63 bytes.")
        allowed = frozenset(f"{name}={value}" for name, value in parameters.items() if name in WEAK_SETTINGS)
        return cls(urlunsplit(parts._replace(query=urlencode(parameters))), schema, allowed)


def _host_of(location: str) -> str:
    """Host, port and database, without user, password and parameters."""
    address, _, parameters = location.partition("?")
    # "@" and "?" may be part of a password, so that its end cannot be determined.
    return "..." if "@" in parameters else address.rpartition("@")[2].lstrip("/")


def invalid_address_error() -> StoreError:
    """The error for a malformed URL. It has no cause and no value: both may contain the password."""
    return _invalid_config_error(f"Invalid PostgreSQL address. Expected {_POSTGRES_FORM}.")


def _invalid_config_error(message: str, cause: Exception | None = None) -> StoreError:
    return StoreError(message, code=ErrorCode.INVALID_CONFIG, cause=cause)
