"""Connections to a PostgreSQL server, and its errors as `StoreError`.

A server that may lose acknowledged entries is refused, unless the address names the weak setting
(``?synchronous_commit=off``).
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypeVar, cast

import asyncpg  # type: ignore[import-untyped]

from bartack.nouns.errors import ErrorCode, StoreError
from bartack.store.address import WEAK_SETTINGS, PostgresAddress, invalid_address_error
from bartack.store.errors import store_closed_error

__all__ = [
    "KEEPALIVES",
    "SERVER_ERRORS",
    "SERVER_KEEPALIVES",
    "SILENT_S",
    "Database",
    "PostgresConnection",
    "is_retryable",
    "quoted",
    "server_error",
]

T = TypeVar("T")
Record = Any  # asyncpg's rows: values by name and by position

# asyncpg raises InternalClientError for a call between the server's last message and the end of the connection.
SERVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
_LOST = (
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.exceptions.OperatorInterventionError,  # the server is shutting down or starting up
    asyncpg.InterfaceError,  # the connection is closed, among other reasons
    asyncpg.exceptions.TooManyConnectionsError,
    OSError,
)
_ROLLED_BACK = (asyncpg.exceptions.TransactionRollbackError, asyncpg.exceptions.LockNotAvailableError)

_CONNECT_S = 10.0
_COMMAND_S = 60.0  # the limit for one statement
_REWRITE_S = 86_400.0  # rewriting a table takes as long as the table is large
# If the network is cut, packets disappear and neither side gets an error. So both probe a connection that is quiet, and
# give it up if nothing is acknowledged: the client soon, to connect again as soon as possible, and the server to
# be rid of the connections of machines that are gone.
SILENT_S = 10
KEEPALIVES = {"IDLE": 5, "INTVL": 2, "CNT": 3}  # seconds, seconds, probes
SERVER_KEEPALIVES = {"tcp_keepalives_idle": "20", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}
_IDLE_MS = "30000"  # limits how long a client that stops in the middle of a transaction holds its locks
# Together with the writer and the listener, a store uses 10 of the 100 connections that a server allows by default.
_READERS = 8


class PostgresConnection(Protocol):
    """The part of asyncpg's untyped connections that is used here."""

    async def execute(self, query: str, *args: object, timeout: float | None = None) -> str: ...  # noqa: ASYNC109 - asyncpg's name
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


class _KeptAliveConnection(asyncpg.Connection):  # type: ignore[misc]  # asyncpg has no types
    """A connection that ends when the server falls silent."""

    def __init__(self, protocol: Any, transport: asyncio.Transport, *args: Any, **options: Any) -> None:
        super().__init__(protocol, transport, *args, **options)
        connected = transport.get_extra_info("socket")
        if connected.family in (socket.AF_INET, socket.AF_INET6):
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            limits = {f"TCP_KEEP{name}": value for name, value in KEEPALIVES.items()}
            for name, value in {**limits, "TCP_USER_TIMEOUT": SILENT_S * 1000}.items():
                if hasattr(socket, name):  # not on every platform
                    connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class _PooledConnection(_KeptAliveConnection):
    """A connection of the pool. It is left as it was found, so there is nothing to reset after each use."""

    def get_reset_query(self) -> str:
        return ""


class Database:
    """The connections of one store. An invalid URL is a `StoreError`, here or in `connect`."""

    def __init__(self, url: str) -> None:
        self.url, self.schema, self._allowed = PostgresAddress.parse(url)
        self._pool: Any = None
        self._reads: set[asyncio.Task[Any]] = set()

    async def connect(self) -> PostgresConnection:
        """A new connection to a server that does not lose acknowledged entries; raises `StoreError`."""
        try:
            opened = await asyncpg.connect(self.url, connection_class=_KeptAliveConnection, **self._options)
            connection = cast(PostgresConnection, opened)
        except TimeoutError as error:  # nothing was in progress
            raise StoreError("The PostgreSQL server does not respond.", retryable=True, cause=error) from error
        except SERVER_ERRORS as error:
            if isinstance(error, asyncpg.exceptions.ClientConfigurationError) and "URI" in str(error):
                raise invalid_address_error() from None
            raise server_error(error, "connecting") from error
        except ValueError:
            raise invalid_address_error() from None
        try:
            await self._check(connection)
        except BaseException as error:  # a cancellation, too
            connection.terminate()
            if isinstance(error, SERVER_ERRORS):
                raise server_error(error, "reading its settings") from error
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
                **SERVER_KEEPALIVES,
            },
        }

    async def _check(self, connection: PostgresConnection) -> None:
        settings = ", ".join(f"current_setting('{setting}') AS {setting}" for setting in WEAK_SETTINGS)
        (values,) = await connection.fetch(f"SELECT {settings}")
        for setting, weak in WEAK_SETTINGS.items():
            if values[setting] == weak and f"{setting}={weak}" not in self._allowed:
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

    async def rewrite(self) -> None:
        """Rewrite every table and its indexes, each in a transaction of its own, however long it takes."""
        connection = await self.connect()
        try:
            tables = "SELECT tablename FROM pg_tables WHERE schemaname = $1 ORDER BY tablename"
            for record in await connection.fetch(tables, self.schema):
                # New statistics too: the planner's hold samples of short texts.
                table = f"{quoted(self.schema)}.{quoted(record['tablename'])}"
                await connection.execute(f"VACUUM (FULL, ANALYZE) {table}", timeout=_REWRITE_S)
        except SERVER_ERRORS as error:
            raise server_error(error, "rewriting the tables") from error
        finally:
            connection.terminate()

    async def open_pool(self) -> None:
        """Prepare the pool for `read` and `write`; its connections are opened when needed."""
        self._pool = await asyncpg.create_pool(
            self.url, min_size=0, max_size=_READERS, connection_class=_PooledConnection, **self._options
        )

    async def read(self, work: Callable[[PostgresConnection], Awaitable[T]], doing: str) -> T:
        """The result of `work`, which is repeated on a new connection if the first one turns out to be dead.

        If the caller is cancelled, the work ends by itself: asyncpg would open another connection to cancel the query,
        and lose this one. Followers are cancelled often, and their queries take less time than that.
        """
        task = asyncio.create_task(self._attempted(work, doing, tries=2))
        self._reads.add(task)  # the loop has weak references only
        task.add_done_callback(self._read_ended)
        return await asyncio.shield(task)

    def _read_ended(self, task: "asyncio.Task[Any]") -> None:
        self._reads.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, because a cancelled caller does not

    async def _attempted(self, work: Callable[[PostgresConnection], Awaitable[T]], doing: str, *, tries: int) -> T:
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

    async def write(self, work: Callable[[PostgresConnection], Awaitable[T]], doing: str) -> T:
        """The result of `work`, each of whose statements is a transaction and durable when this returns."""
        await self.read(_ping, doing)  # finds a dead connection before anything is in progress
        return await self._attempted(work, doing, tries=1)

    @asynccontextmanager
    async def _acquired(self) -> AsyncIterator[PostgresConnection]:
        if self._pool is None:
            raise store_closed_error()
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


async def _ping(connection: PostgresConnection) -> None:
    await connection.execute("SELECT 1")
