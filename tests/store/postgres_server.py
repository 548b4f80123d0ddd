"""The PostgreSQL server that tests use, and schemas on it that live as long as a test run.

WEFT_TEST_POSTGRES names the server. Without one, the tests that need it are skipped.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from hashlib import sha256
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import pytest

SERVER = os.environ.get("WEFT_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/postgres")
PREFIX = f"weft_test_{os.getpid()}_"  # two runs at once must not drop each other's


def address(name: str, query: str = "&synchronous_commit=off") -> str:
    """The address of a store of this name, for this run only; without a server the test is skipped.

    Commits do not wait for the disk, which most tests have no use for; those that pull plugs have a server of their own.
    """
    fault = _fault()
    if fault is not None:
        pytest.skip(f"no PostgreSQL server at {SERVER} ({fault}); WEFT_TEST_POSTGRES names one")
    schema = PREFIX + sha256(name.encode()).hexdigest()[:16]
    return f"{SERVER}{'&' if '?' in SERVER else '?'}schema={schema}{query}"


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
