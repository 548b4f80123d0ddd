"""The PostgreSQL server that tests use, and schemas on it that live as long as a test run.

BARTACK_TEST_POSTGRES names the server. Without one, the tests that need it are skipped.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import pytest

SERVER = os.environ.get("BARTACK_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/postgres")
PREFIX = f"bartack_test_{os.getpid()}_"  # two runs at once must not drop each other's


def address(name: str, query: str = "&synchronous_commit=off") -> str:
    """The address of a store of this name, for this run only; without a server the test is skipped.

    Commits do not wait for the disk, which most tests have no use for; those that pull plugs have their own server. To
    make a schema takes long, so one whose name is a folder that is gone is emptied and used again.
    """
    fault = _fault()
    if fault is not None:
        pytest.skip(f"no PostgreSQL server at {SERVER} ({fault}); BARTACK_TEST_POSTGRES names one")
    if name not in _schemas:
        is_folder = Path(name).is_absolute()
        gone = next(
            (used for used in _schemas if is_folder and Path(used).is_absolute() and not Path(used).exists()), None
        )
        schema = f"{PREFIX}{len(_schemas)}" if gone is None else _schemas.pop(gone)
        if gone is not None:
            _run(lambda: _empty(schema))
        _schemas[name] = schema
    schema = _schemas[name]
    return f"{SERVER}{'&' if '?' in SERVER else '?'}schema={schema}{query}"


_schemas: dict[str, str] = {}  # by name


async def _empty(schema: str) -> None:
    connection = await asyncpg.connect(SERVER, timeout=5, server_settings={"synchronous_commit": "off"})
    try:
        tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", schema)
        names = [record["tablename"] for record in tables if record["tablename"] != "schema_version"]
        deletes = "".join(f"DELETE FROM {schema}.{name};" for name in names)
        await connection.execute(f"SET session_replication_role = replica; {deletes}")  # past the triggers
    finally:
        await connection.close()


def schema_of(url: str) -> str:
    return url.rpartition("schema=")[2].partition("&")[0]


def drop_schemas() -> None:
    """Remove every schema of this run."""
    if _fault.cache_info().currsize and _fault() is None:
        _run(_drop)


def _run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """On a thread of its own, since a test's own loop may be running here."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(work())).result()


@cache
def _fault() -> str | None:
    try:
        _run(_connect_once)
    except (OSError, asyncpg.PostgresError, TimeoutError) as error:
        return str(error) or type(error).__name__
    return None


async def _connect_once() -> None:
    await (await asyncpg.connect(SERVER, timeout=5)).close()


async def _drop() -> None:
    connection = await asyncpg.connect(SERVER, timeout=5, server_settings={"synchronous_commit": "off"})
    names = await connection.fetch("SELECT nspname FROM pg_namespace WHERE starts_with(nspname, $1)", PREFIX)
    for record in names:  # one by one: each takes a lock for every table
        await connection.execute(f"DROP SCHEMA {record['nspname']} CASCADE")
    await connection.close()
