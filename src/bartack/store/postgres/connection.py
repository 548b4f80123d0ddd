"""Connections to a PostgreSQL server, and its errors as `StoreError`.

A server that may lose acknowledged entries is refused, unless the address names the weak setting
(``?synchronous_commit=off``).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypeVar, cast

import asyncpg  # type: ignore[import-untyped]

from bartack.nouns.errors import ErrorCode, StoreError
from bartack.store.address import WEAK_SETTINGS, PostgresAddress, invalid_postgres_address
from bartack.store.errors import closed

__all__ = ["SERVER_ERRORS", "Connection", "Database", "is_retryable", "quoted", "server_error"]

T = TypeVar("T")
Record = Any  # asyncpg's rows: values by name and by position

# asyncpg raises InternalClientError for a call between the server's last message and the end of the connection.
SERVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
_LOST = (
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.exceptions.OperatorInterventionError,  # the server is shutting down or starting up
    asyncpg.InterfaceError,  # among others: the connection is closed
    asyncpg.exceptions.TooManyConnectionsError,
    OSError,
)
_ROLLED_BACK = (asyncpg.exceptions.TransactionRollbackError, asyncpg.exceptions.LockNotAvailableError)

_CONNECT_S = 10.0
_COMMAND_S = 60.0  # a server that is silent for this long is considered gone
_IDLE_MS = "30000"  # limits how long a client that stops in the middle of a transaction holds its locks
_READERS = 8  # with the writer and the listener, 10 of the 100 connections that a server allows by default


class Connection(Protocol):
    """The part of asyncpg's untyped connections that is used here."""

    async def execute(self, query: str, *args: object) -> str: ...
    async def fetch(self, query: str, *args: object) -> Sequence[Record]: ...
    async def fetchrow(self, query: str, *args: object) -> Record | None: ...
    async def fetchval(self, query: str, *args: object) -> Any: ...
    def transaction(self, *, isolation: str | None = None, readonly: bool = False) -> "Transaction": ...
    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None: ...
    def add_termination_listener(self, callback: Callable[..., None]) -> None: ...
    def is_closed(self) -> bool: ...
    def terminate(self) -> None: ...
    async def close(self, *, timeout: float) -> None: ...  # noqa: ASYNC109 - asyncpg's name


class Transaction(AbstractAsyncContextManager[None], Protocol):
    """A transaction, or a savepoint inside one."""

    async def start(self) -> None: ...
    async def commit(self) -> None: ...
    async def rollback(self) -> None: ...


def quoted(name: str) -> str:
    """A quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _is_lost(error: BaseException) -> bool:
    """Whether the connection was lost; a new one may work. (A server that is slow is not tried again.)"""
    return isinstance(error, _LOST) and not isinstance(error, TimeoutError)


def is_retryable(error: BaseException) -> bool:
    """Whether the same transaction may succeed at once: it lost a race, or its connection before the commit."""
    return _is_lost(error) or isinstance(error, _ROLLED_BACK)


def server_error(error: BaseException, doing: str) -> StoreError:
    text = " ".join(str(error).split()) or type(error).__name__
    return StoreError(f"PostgreSQL error while {doing}: {text}", retryable=is_retryable(error), cause=error)


class _Reader(asyncpg.Connection):  # type: ignore[misc]  # asyncpg has no types
    """A connection of the pool. It is left as it was found, so there is nothing to reset after each use."""

    def get_reset_query(self) -> str:
        return ""


class Database:
    """The connections of one store. An invalid URL is a `StoreError`, here or in `connect`."""

    def __init__(self, url: str) -> None:
        self.url, self.schema, self._allowed = PostgresAddress.parse(url)
        self._pool: Any = None

    async def connect(self) -> Connection:
        """A new connection to a server that does not lose acknowledged entries; raises `StoreError`."""
        try:
            connection = cast(Connection, await asyncpg.connect(self.url, **self._options))
        except SERVER_ERRORS as error:
            if isinstance(error, asyncpg.exceptions.ClientConfigurationError) and "URI" in str(error):
                raise invalid_postgres_address() from None
            raise server_error(error, "connecting") from error
        except ValueError:
            raise invalid_postgres_address() from None
        try:
            await self._check(connection)
        except SERVER_ERRORS as error:
            connection.terminate()
            raise server_error(error, "reading its settings") from error
        except StoreError:
            connection.terminate()
            raise
        return connection

    @property
    def _options(self) -> dict[str, Any]:
        return {
            "timeout": _CONNECT_S,
            "command_timeout": _COMMAND_S,
            "server_settings": {
                "search_path": quoted(self.schema),
                "application_name": f"bartack/{self.schema}"[:63],
                "idle_in_transaction_session_timeout": _IDLE_MS,
            },
        }

    async def _check(self, connection: Connection) -> None:
        settings = ", ".join(f"current_setting('{setting}') AS {setting}" for setting in WEAK_SETTINGS)
        (found,) = await connection.fetch(f"SELECT {settings}")
        for setting, weak in WEAK_SETTINGS.items():
            if found[setting] == weak and f"{setting}={weak}" not in self._allowed:
                raise StoreError(
                    f"The PostgreSQL server has {setting}={weak} and may lose acknowledged entries. Change it, or add "
                    f"?{setting}={weak} to the address to accept that.",
                    code=ErrorCode.INVALID_CONFIG,
                )

    async def has_tables(self) -> bool:
        """Whether the schema contains any tables; nothing is created."""
        connection = await self.connect()
        try:
            tables = "SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = $1)"
            return bool(await connection.fetchval(tables, self.schema))
        except SERVER_ERRORS as error:
            raise server_error(error, "looking for the store") from error
        finally:
            connection.terminate()

    async def open_pool(self) -> None:
        """Prepare the pool for `read` and `write`; its connections are opened when needed."""
        self._pool = await asyncpg.create_pool(
            self.url, min_size=0, max_size=_READERS, connection_class=_Reader, **self._options
        )

    async def read(self, work: Callable[[Connection], Awaitable[T]], doing: str, *, tries: int = 2) -> T:
        """The result of `work`, which is repeated on a new connection if the first one turns out to be dead."""
        while True:
            tries -= 1
            try:
                async with self._acquired() as connection:
                    return await work(connection)
            except SERVER_ERRORS as error:
                if _is_lost(error) and self._pool is not None:
                    await self._pool.expire_connections()  # if one is dead, so are the others
                if tries == 0 or not is_retryable(error):
                    raise server_error(error, doing) from error

    async def write(self, work: Callable[[Connection], Awaitable[T]], doing: str) -> T:
        """The result of `work`, each of whose statements is a transaction and durable when this returns."""
        await self.read(_ping, doing)  # finds a dead connection before anything is in progress
        return await self.read(work, doing, tries=1)

    @asynccontextmanager
    async def _acquired(self) -> AsyncIterator[Connection]:
        if self._pool is None:
            raise closed()
        async with self._pool.acquire(timeout=_COMMAND_S) as connection:
            yield connection

    async def close(self) -> None:
        """Close all connections."""
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                await asyncio.wait_for(pool.close(), _CONNECT_S)
            except SERVER_ERRORS:  # the server is down
                pool.terminate()


async def _ping(connection: Connection) -> None:
    await connection.execute("SELECT 1")
