"""The store under test, once for each kind."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from bartack.store import SessionStore
from tests.store import postgres_server
from tests.store.stores import KINDS, PERSISTENT, OpenStore, opener


@pytest.fixture(scope="session", autouse=True)
def postgres_schemas() -> Iterator[None]:
    """Drops the PostgreSQL schemas of this process after its last test."""
    yield
    postgres_server.drop_schemas()


@pytest.fixture
def fast_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory if possible, for tests that open hundreds of stores and simulate no power loss."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@pytest.fixture(params=KINDS)
def open_store(request: pytest.FixtureRequest, fast_path: Path) -> OpenStore:
    """Opens the same store again and again, for every kind of store."""
    return opener(request.param, fast_path)


@pytest.fixture(params=PERSISTENT)
def open_persistent(request: pytest.FixtureRequest, fast_path: Path) -> OpenStore:
    """The same for the stores that outlive their process."""
    return opener(request.param, fast_path)


@pytest.fixture
async def store(open_store: OpenStore) -> AsyncIterator[SessionStore]:
    """An empty store, of every kind."""
    store = await open_store()
    yield store
    await store.close()
