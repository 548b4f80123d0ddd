"""The way to a PostgreSQL server: connections that are checked, and failures as `StoreError`.

The address is a URL as libpq writes it, with one word of our own: ``?schema=NAME`` is where the tables are (default
``bartack``). A server that may lose what it said was stored is refused. Who wants such a one asks for it by name, in the
URL (``?synchronous_commit=off``) or in `allow`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypeVar, cast

import asyncpg  # type: ignore[import-untyped]

from bartack.nouns.errors import ErrorCode, StoreError
from bartack.store.address import WEAK_SETTINGS, PostgresAddress, invalid_postgres_address

__all__ = ["TROUBLE", "Connection", "Link", "failure", "is_lost", "is_retried", "quoted"]

T = TypeVar("T")
Record = Any  # asyncpg's rows: values by name and by place

# What a server can do to us. asyncpg says InternalClientError where it is asked between a server's farewell and the end
# of the connection.
TROUBLE = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
_LOST = (
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.exceptions.OperatorInterventionError,  # it shuts down, or is not up yet
    asyncpg.InterfaceError,  # among them: the connection is closed
    OSError,
)
_ROLLED_BACK = (asyncpg.exceptions.TransactionRollbackError, asyncpg.exceptions.LockNotAvailableError)

_CONNECT_S = 10.0
_COMMAND_S = 60.0  # a server that is silent for so long is gone
_IDLE_MS = "30000"  # a machine that stops in the middle of a transaction does not hold its locks for ever
_READERS = 8  # connections at most; with the writer and the listener ten of a server's hundred


class Connection(Protocol):
    """What is used of asyncpg's connections, which carry no types."""

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
    """A transaction, or inside one a savepoint."""

    async def start(self) -> None: ...
    async def commit(self) -> None: ...
    async def rollback(self) -> None: ...


def quoted(name: str) -> str:
    """A name as SQL takes it, whatever it holds."""
    return '"' + name.replace('"', '""') + '"'


def is_lost(error: BaseException) -> bool:
    """Whether the server or the way to it went away; a new connection may work."""
    return isinstance(error, _LOST) and not isinstance(error, TimeoutError)  # who is slow is not asked again


def is_retried(error: BaseException) -> bool:
    """Whether the same transaction may work at once: it lost a race, or its connection before it was committed."""
    return is_lost(error) or isinstance(error, _ROLLED_BACK)


def failure(error: BaseException, doing: str) -> StoreError:
    """The error as callers see it."""
    text = " ".join(str(error).split()) or type(error).__name__
    return StoreError(f"PostgreSQL, {doing}: {text}", retryable=is_retried(error), cause=error)


class _Reader(asyncpg.Connection):  # type: ignore[misc]  # it has no types
    """A connection of the pool. Nothing is left open on one, so there is nothing to reset after each use."""

    def get_reset_query(self) -> str:
        return ""


class Link:
    """The connections of one store. An invalid URL is a `StoreError`, here or in `connect`."""

    def __init__(self, url: str, allow: Collection[str] = ()) -> None:
        self.url, self.schema, allowed = PostgresAddress.parse(url)
        self._allow = {*allow, *allowed}
        self._pool: Any = None

    async def connect(self) -> Connection:
        """A new connection that is safe to write with; `StoreError`."""
        try:
            connection = cast(Connection, await asyncpg.connect(self.url, **self._options))
        except TROUBLE as error:
            if isinstance(error, asyncpg.exceptions.ClientConfigurationError) and "URI" in str(error):
                raise invalid_postgres_address() from None
            raise failure(error, "connecting") from error
        except ValueError:
            raise invalid_postgres_address() from None
        try:
            await self._check(connection)
        except TROUBLE as error:
            connection.terminate()
            raise failure(error, "asking for its settings") from error
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
            if found[setting] == weak and f"{setting}={weak}" not in self._allow:
                raise StoreError(
                    f"the server has {setting}={weak} and may lose what it acknowledged; "
                    f"if that is wanted, allow {setting}={weak} by name",
                    code=ErrorCode.INVALID_CONFIG,
                )

    async def has_tables(self) -> bool:
        """Whether the schema contains any tables; nothing is created."""
        connection = await self.connect()
        try:
            tables = "SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = $1)"
            return bool(await connection.fetchval(tables, self.schema))
        except TROUBLE as error:
            raise failure(error, "looking for the store") from error
        finally:
            connection.terminate()

    async def open_pool(self) -> None:
        """Connections for reading, made as they are needed."""
        self._pool = await asyncpg.create_pool(
            self.url, min_size=0, max_size=_READERS, connection_class=_Reader, **self._options
        )

    async def read(self, work: Callable[[Connection], Awaitable[T]], doing: str, *, tries: int = 2) -> T:
        """What `work` gives. It is done again on a new connection if the old one turns out to be dead."""
        while True:
            tries -= 1
            try:
                async with self._acquired() as connection:
                    return await work(connection)
            except TROUBLE as error:
                if is_lost(error) and self._pool is not None:
                    await self._pool.expire_connections()  # where one is dead the others are
                if tries == 0 or not is_retried(error):
                    raise failure(error, doing) from error

    async def write(self, work: Callable[[Connection], Awaitable[T]], doing: str) -> T:
        """What `work` gives, in one transaction, which lasts when this returns."""

        async def whole(connection: Connection) -> T:
            async with connection.transaction():
                return await work(connection)

        await self.read(_ask, doing)  # so that a dead connection is met before anything is under way
        return await self.read(whole, doing, tries=1)

    @asynccontextmanager
    async def _acquired(self) -> AsyncIterator[Connection]:
        if self._pool is None:
            raise StoreError("the store is closed")
        async with self._pool.acquire(timeout=_COMMAND_S) as connection:
            yield connection

    async def close(self) -> None:
        """Give all connections back."""
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                await asyncio.wait_for(pool.close(), _CONNECT_S)
            except TROUBLE:  # it is down: nothing to say goodbye to
                pool.terminate()


async def _ask(connection: Connection) -> None:
    await connection.execute("SELECT 1")
