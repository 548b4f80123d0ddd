"""The store under test, once for each kind."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from bartack.store import SessionStore
from tests.store import postgres_server
from tests.store.stores import KEPT, KINDS, Open, opener


@pytest.fixture(scope="session", autouse=True)
def postgres_schemas() -> Iterator[None]:
    """Those that tests made on the PostgreSQL server go when all tests are done."""
    yield
    postgres_server.drop_schemas()


@pytest.fixture
def fast_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one, for tests that open hundreds of stores and pull no plugs."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@pytest.fixture(params=KINDS)
def open_store(request: pytest.FixtureRequest, fast_path: Path) -> Open:
    """How to open one and the same store, of every kind."""
    return opener(request.param, fast_path)


@pytest.fixture(params=KEPT)
def open_kept(request: pytest.FixtureRequest, fast_path: Path) -> Open:
    """The same for the kinds that outlive their process."""
    return opener(request.param, fast_path)


@pytest.fixture
async def store(open_store: Open) -> AsyncIterator[SessionStore]:
    """An empty store of every kind."""
    store = await open_store()
    yield store
    await store.close()
