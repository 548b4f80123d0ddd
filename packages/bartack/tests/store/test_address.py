"""Store addresses: what they parse to, what is refused, what is shown, and which store they open."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from bartack.nouns.errors import ErrorCode, StoreError
from bartack.store import MemoryStore, StoreAddress, default_path, open_store
from bartack.store.address import PostgresAddress
from bartack.store.jsonl import JsonlStore
from bartack.store.postgres import PostgresStore
from bartack.store.sqlite import SqliteStore


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "kind", "canonical", "path"),
    [
        ("memory:", "memory", "memory:", None),
        ("memory", "memory", "memory:", None),
        ("jsonl:my sessions", "jsonl", "jsonl:my sessions", "my sessions"),
        ("sqlite:a.db", "sqlite", "sqlite:a.db", "a.db"),
        ("sqlite:///srv/a.db", "sqlite", "sqlite:/srv/a.db", "/srv/a.db"),
        ("a.db", "sqlite", "sqlite:a.db", "a.db"),
        ("./odd:name.db", "sqlite", "sqlite:odd:name.db", "odd:name.db"),
        ("c:name.db", "sqlite", "sqlite:c:name.db", "c:name.db"),
        ("postgres://u:p@h/db?schema=x", "postgres", "postgres://u:p@h/db?schema=x", None),
    ],
)
def test_addresses_are_parsed(text: str, kind: str, canonical: str, path: str | None) -> None:
    address = StoreAddress.parse(text)
    assert (address.kind, address.text) == (kind, canonical)
    assert address.path == (None if path is None else Path(path))
    assert StoreAddress.parse(address.text) == address


def test_the_home_folder_is_expanded(home: Path) -> None:
    for text in ("~/a", "sqlite:~/a", "jsonl:~/a"):
        assert StoreAddress.parse(text).path == home / "a"
    assert StoreAddress.parse(None).path == default_path() == home / "data" / "bartack" / "sessions.db"


@pytest.mark.parametrize(
    ("text", "display"),
    [
        ("postgresql://u:secret@h:1/db?sslmode=require", "postgresql://h:1/db"),
        ("postgres://h/db?password=sec@ret", "postgres://..."),
        ("postgresql://u:sec?ret@h/db", "postgresql://..."),
        ("postgresql://u:s@ec/ret@h/db", "postgresql://h/db"),
        ("jsonl:x", "jsonl:x"),
        ("sqlite:/srv/x.db", "/srv/x.db"),
    ],
)
def test_the_display_form_has_no_password(text: str, display: str) -> None:
    assert StoreAddress.parse(text).display == display


def test_a_postgres_url_is_split_into_driver_url_schema_and_weak_settings() -> None:
    url = "postgresql://u@h/db?sslmode=require&schema=mine&fsync=off"
    expected = PostgresAddress("postgresql://u@h/db?sslmode=require&fsync=off", "mine", frozenset({"fsync=off"}))
    assert PostgresAddress.parse(url) == expected
    assert PostgresAddress.parse("postgres:///db").schema == "bartack"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mysql://u:topsecret@h/d", 'Unknown store type "mysql://"'),
        ("sqlit:x.db", 'Unknown store type "sqlit:"'),
        ("POSTGRESQL://h/d", 'Unknown store type "POSTGRESQL://"'),
        ("sqlite:", "the path is missing"),
        ("jsonl", "the path is missing"),
        ("postgresql://h/d?schema=", "Invalid schema name ''"),
        (f"postgresql://h/d?schema={'x' * 64}", "Invalid schema name 'xxx"),
        ("postgresql://u:topsecret[x@h/d", "Invalid PostgreSQL address. Expected postgresql://USER@HOST/DATABASE"),
    ],
)
async def test_an_invalid_address_is_refused_and_creates_nothing(home: Path, text: str, message: str) -> None:
    with pytest.raises(StoreError) as caught:
        await open_store(text)
    assert message in caught.value.message
    assert "topsecret" not in caught.value.message
    assert (caught.value.code, caught.value.cause) == (ErrorCode.INVALID_CONFIG, None)
    assert not list(await asyncio.to_thread(os.listdir, home))


@pytest.mark.parametrize("address", ["u:sec?ret@127.0.0.1:1/none", "u:sec[ret@127.0.0.1:1/none", "u:s/ecret@h:1/none"])
async def test_an_invalid_postgres_url_is_not_repeated(address: str) -> None:
    with pytest.raises(StoreError) as caught:
        await PostgresStore.open(f"postgresql://{address}")
    assert caught.value.message == "Invalid PostgreSQL address. Expected postgresql://USER@HOST/DATABASE."
    assert (caught.value.code, caught.value.cause) == (ErrorCode.INVALID_CONFIG, None)


async def test_an_address_opens_its_store(home: Path) -> None:
    for address, kind in (
        ("memory:", MemoryStore),
        ("jsonl:j", JsonlStore),
        ("sqlite:~/a.db", SqliteStore),
        ("b.db", SqliteStore),
        (home / "c.db", SqliteStore),
        (None, SqliteStore),
    ):
        assert not await StoreAddress.parse(address).exists()
        store = await open_store(address)
        assert type(store) is kind
        await store.close()
        assert await StoreAddress.parse(address).exists() == (address != "memory:")
    assert {path.name for path in await asyncio.to_thread(lambda: list(home.iterdir()))} >= {
        "a.db",
        "b.db",
        "c.db",
        "j",
    }
    assert default_path().is_file()


async def test_an_empty_file_is_not_a_store_yet(home: Path) -> None:
    (home / "a.db").touch()
    assert not await StoreAddress.parse("a.db").exists()


@pytest.mark.parametrize(("address", "package"), [("a.db", "apsw"), ("postgresql://u@h/d", "asyncpg")])
async def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, address: str, package: str) -> None:
    for name in [name for name in sys.modules if name.startswith(("bartack.store.sqlite", "bartack.store.postgres"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(StoreError, match=rf"requires the package {package}: pip install 'bartack\[\w+\]'"):
        await open_store(address)


def test_the_default_store_needs_platformdirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    with pytest.raises(StoreError, match=r"platformdirs: pip install 'bartack\[sqlite\]'") as caught:
        StoreAddress.parse(None)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
