"""What is specific to the SQLite store: its file, its triggers, its migrations."""

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest
from msgspec.structs import replace

from bartack.environment import Environment
from bartack.nouns.deltas import Usage
from bartack.nouns.errors import Conflict, ErrorCode, NotFound, StoreError
from bartack.nouns.messages import Meta, ModelRef, assistant, user
from bartack.store import Tail, next_entries
from bartack.store.jsonl import JsonlStore
from bartack.store.maintenance import check
from bartack.store.sqlite import SqliteStore
from bartack.store.sqlite.file import check_library
from bartack.store.sqlite.schema import APPLICATION_ID, MIGRATIONS, migrate, version_of
from bartack.store.sqlite.writer import Writer
from bartack.store.writer_thread import WriteJob
from tests.sample_session import SESSION
from tests.store.stores import add, following


async def filled(path: Path) -> None:
    store = await SqliteStore.open(path)
    await store.append("s", SESSION, None)
    await add(store, "s", user("x" * 70_000))
    await store.close()


# -- triggers


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE entry SET text = '{}' WHERE session = 1 AND seq = 2",
        "UPDATE entry SET seq = 99 WHERE session = 1 AND seq = 2",
        "DELETE FROM entry WHERE session = 1 AND seq = 13",
        "DELETE FROM entry",
        "UPDATE result SET call_id = 'x'",
        "DELETE FROM result",
        "DELETE FROM branch",
        "DELETE FROM redaction",
        "UPDATE blob SET data = x'00'",
        "DELETE FROM blob",
        "DELETE FROM blob_use",
        "REPLACE INTO entry SELECT number, session, seq, id, '{}', 0, x'' FROM entry WHERE session = 1 AND seq = 2",
        "INSERT INTO entry VALUES (NULL, 1, 99, 'gap', '{}', 0, x'')",
        "INSERT INTO entry VALUES (NULL, 1, 3, 'again', '{}', 0, x'')",
        "INSERT INTO entry VALUES (NULL, 1, 15, 'e1', '{}', 0, x'')",
        "INSERT INTO entry VALUES (NULL, 1, 0, 'zero', '{}', 0, x'')",
        "INSERT INTO result VALUES (1, 'c1', 99)",
    ],
)
async def test_the_database_refuses_changes_by_other_programs(tmp_path: Path, sql: str) -> None:
    """D-5.3, D-5.4, 004-invariants.3"""
    await filled(tmp_path / "a.db")
    connection = apsw.Connection(str(tmp_path / "a.db"))
    connection.execute("INSERT INTO branch VALUES (1, 5, 1); INSERT INTO redaction VALUES (1, 'e1')")
    before = connection.execute("SELECT * FROM entry").fetchall()
    with pytest.raises(apsw.ConstraintError):
        connection.execute(sql)
    assert connection.execute("SELECT * FROM entry").fetchall() == before
    connection.close()


async def test_an_append_refused_by_the_database_does_not_affect_its_group(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "a.db")
    for name in ("a", "b", "c"):
        await store.create_session(name)
    before = await store.tail_of("b")
    connection = apsw.Connection(str(tmp_path / "a.db"))  # another program, which does not update the session's tail
    connection.execute("INSERT INTO entry SELECT NULL, number, 2, 'foreign', '{}', 0, x'' FROM session WHERE id = 'b'")
    connection.close()
    outcomes = await asyncio.gather(
        *(add(store, name, user(f"from {name}")) for name in ("a", "b", "c")), return_exceptions=True
    )
    assert [isinstance(outcome, Conflict) for outcome in outcomes] == [False, True, False]
    assert [(await store.tail_of(name)).seq for name in ("a", "c")] == [2, 2]
    assert await store.tail_of("b") == before
    assert sorted(hit.session_id for hit in await store.search("from")) == ["a", "c"]
    await store.close()


# -- opening


async def test_the_files_are_accessible_to_the_owner_only(tmp_path: Path) -> None:
    old_mask = os.umask(0)
    try:
        await filled(tmp_path / "new" / "a.db")
        os.chmod(tmp_path / "new" / "a.db", 0o644)  # noqa: PTH101 - by path, like the store
        store = await SqliteStore.open(tmp_path / "new" / "a.db")
        await add(store, "s", user("hi"))
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in files_in(tmp_path / "new")}
        await store.close()
    finally:
        os.umask(old_mask)
    assert modes == {"a.db": 0o600, "a.db-wal": 0o600, "a.db-shm": 0o600, "a.db-lock": 0o600}
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


def files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_a_file_of_another_program_is_refused_and_unchanged(tmp_path: Path) -> None:
    text, database = tmp_path / "notes.txt", tmp_path / "other.db"
    text.write_text("not a database, " * 100)
    connection = apsw.Connection(str(database))
    connection.execute("CREATE TABLE mine (x)")
    connection.close()
    for path, why in ((text, "not a SQLite database"), (database, "not a Bartack store"), (tmp_path, "is not a file")):
        before = path.read_bytes() if path.is_file() else b""
        mode = path.stat().st_mode
        with pytest.raises(StoreError, match=why):
            await SqliteStore.open(path)
        assert not path.is_file() or path.read_bytes() == before
        assert path.stat().st_mode == mode
    assert {path.name for path in files_in(tmp_path)} == {"notes.txt", "other.db"}
    with pytest.raises(StoreError) as caught:
        await SqliteStore.open(text)
    assert caught.value.code is ErrorCode.STORAGE_UNSUPPORTED


async def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    await filled(tmp_path / "a.db")
    connection = apsw.Connection(str(tmp_path / "a.db"))
    connection.execute("INSERT INTO schema_version VALUES (99)")
    connection.close()
    with pytest.raises(StoreError, match="schema version 99"):
        await SqliteStore.open(tmp_path / "a.db")
    jsonl = await JsonlStore.open(tmp_path / "j")
    await jsonl.close()
    (tmp_path / "j" / "bartack-store.json").write_text('{"schemaVersion":99}')
    with pytest.raises(StoreError, match="schema version 99"):
        await JsonlStore.open(tmp_path / "j")
    with pytest.raises(StoreError, match="File exists"):
        await JsonlStore.open(tmp_path / "a.db")


@pytest.mark.parametrize("version", range(len(MIGRATIONS) + 1))
async def test_stores_of_every_version_open(tmp_path: Path, version: int) -> None:
    connection = apsw.Connection(str(tmp_path / "a.db"))
    migrate(connection, MIGRATIONS[:version])
    assert version_of(connection) == version
    connection.close()
    store = await SqliteStore.open(tmp_path / "a.db")
    await store.append("s", SESSION, None)
    assert await store.load("s") == SESSION
    await store.close()


def test_a_migration_is_atomic_and_happens_once() -> None:
    steps = [*MIGRATIONS, "CREATE TABLE later (x) STRICT; SELECT nonsense", "CREATE TABLE latest (x INT) STRICT"]
    connection = apsw.Connection(":memory:")
    with pytest.raises(apsw.SQLError):
        migrate(connection, steps)
    assert version_of(connection) == len(MIGRATIONS)
    steps[-2] = "CREATE TABLE later (x INT) STRICT"
    migrate(connection, steps)
    migrate(connection, steps)
    assert version_of(connection) == len(steps)
    assert connection.pragma("application_id") == APPLICATION_ID
    connection.close()


@pytest.mark.parametrize(
    ("version", "is_good"), [("3.40.1", False), ("3.51.2", False), ("3.51.3", True), ("4.0", True)]
)
def test_an_old_sqlite_library_is_refused(version: str, is_good: bool) -> None:
    if is_good:
        check_library(version)
    else:
        with pytest.raises(StoreError, match="can lose committed data"):
            check_library(version)


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder with a store in it that not even root can write to."""
    folder = tmp_path / "readonly"
    folder.mkdir()
    asyncio.run(filled(folder / "a.db"))
    if os.geteuid() != 0:
        folder.chmod(0o500)
        yield folder
        folder.chmod(0o700)
        return
    binds = (["mount", "--bind", str(folder), str(folder)], ["mount", "-o", "remount,ro,bind", str(folder)])
    try:
        done = [subprocess.run(command, capture_output=True, check=False).returncode for command in binds]
    except FileNotFoundError:
        pytest.skip("root can write anywhere, and there is no mount command")
    if any(done):
        pytest.skip("root can write anywhere, and nothing can be mounted read-only")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_read_only_folder_is_one_clear_error(read_only: Path) -> None:
    async def open_all() -> None:
        for path in ("a.db", "new.db", "below/new.db"):
            with pytest.raises(StoreError, match=f"{path} is not writable") as caught:
                await SqliteStore.open(read_only / path)
            assert caught.value.code is ErrorCode.STORAGE_FAILED
        with pytest.raises(StoreError, match="sessions is not writable"):
            await JsonlStore.open(read_only / "sessions")

    asyncio.run(open_all())


async def test_a_locked_file_is_a_retryable_error(tmp_path: Path) -> None:
    patient = await SqliteStore.open(tmp_path / "a.db")
    header = await patient.create_session("s")
    impatient = await SqliteStore.open(tmp_path / "a.db", wait_s=0.2)
    (entry,) = following(header)
    lock_holder = apsw.Connection(str(tmp_path / "a.db"))
    lock_holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError) as caught:
        await impatient.append("s", [entry], header.id)
    assert caught.value.retryable
    assert await impatient.load("s") == [header]
    lock_holder.execute("ROLLBACK")
    lock_holder.close()
    await patient.append("s", [entry], header.id)
    assert await impatient.load("s") == [header, entry]
    await impatient.close()
    await patient.close()


async def test_an_append_cancelled_before_its_group_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SqliteStore, "group_limit", 1)  # the second append cannot join the group of the first
    store = await SqliteStore.open(tmp_path / "a.db")
    await store.create_session("s")
    lock_holder = apsw.Connection(str(tmp_path / "a.db"))
    lock_holder.execute("BEGIN IMMEDIATE")
    first = asyncio.create_task(store.create_session("first"))
    second = asyncio.create_task(store.create_session("second"))
    await asyncio.sleep(0)  # now both are queued
    second.cancel()
    lock_holder.execute("ROLLBACK")
    lock_holder.close()
    await first
    with pytest.raises(asyncio.CancelledError):
        await second
    with pytest.raises(NotFound):
        await store.load("second")
    await store.close()


async def test_without_a_clock_since_the_boot_a_lease_expires_although_the_clock_was_set_back(tmp_path: Path) -> None:
    noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
    later = await SqliteStore.open(
        tmp_path / "a.db", environment=Environment(now=lambda: noon + timedelta(hours=1), boot_s=lambda: None)
    )
    await later.create_session("s")
    lease = await later.acquire_lease("s", "dead")
    await later.close()
    store = await SqliteStore.open(tmp_path / "a.db", environment=Environment(now=lambda: noon, boot_s=lambda: None))
    assert (await store.acquire_lease("s", "next")).epoch == lease.epoch + 1
    await store.close()


async def test_appends_of_one_round_of_the_event_loop_are_one_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    commit = Writer._commit

    def count(self: Writer, jobs: Sequence[WriteJob]) -> None:
        sizes.append(len(jobs))
        commit(self, jobs)

    monkeypatch.setattr(Writer, "_commit", count)
    store = await SqliteStore.open(tmp_path / "a.db")
    await asyncio.gather(*(store.create_session(f"{number}") for number in range(100)))
    assert sizes == [100]
    await store.close()


async def test_a_session_that_another_process_changed_is_looked_up_again(tmp_path: Path) -> None:
    """The writer remembers sessions from its last transaction."""
    first_store, second_store = await SqliteStore.open(tmp_path / "a.db"), await SqliteStore.open(tmp_path / "a.db")
    header = await first_store.create_session("s")
    first = following(header, user("one"))
    await second_store.append("s", first, header.id)
    with pytest.raises(Conflict) as caught:
        await first_store.append("s", following(header, user("two")), header.id)
    assert caught.value.tail == first[0].id
    await first_store.append("s", first, header.id)  # stored already
    await second_store.drop_session("s")
    with pytest.raises(NotFound):
        await first_store.append("s", following(first[0]), first[0].id)
    await first_store.close()
    await second_store.close()


async def test_an_entry_id_that_is_taken_is_a_conflict_that_leaves_no_trace(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "a.db")
    header = await store.create_session("s")
    first = following(header, user("one"))
    await store.append("s", first, header.id)
    conflicting = [*following(first[0], user("fine"), user("taken"))]
    conflicting[1] = replace(conflicting[1], id=header.id)
    with pytest.raises(Conflict) as caught:
        await store.append("s", conflicting, first[0].id)
    assert caught.value.tail == first[0].id
    assert await store.search("fine") == ()
    assert await store.load("s") == [header, *first]
    assert (await store.inspect()).findings == (await store.inspect("s")).findings == ()
    await store.close()


async def test_the_file_has_the_application_id_bart(tmp_path: Path) -> None:
    await filled(tmp_path / "a.db")
    assert (tmp_path / "a.db").read_bytes()[68:72] == b"BART" == APPLICATION_ID.to_bytes(4, "big")


async def test_two_stores_in_one_process_can_share_a_file(tmp_path: Path) -> None:
    first_store, second_store = await SqliteStore.open(tmp_path / "a.db"), await SqliteStore.open(tmp_path / "a.db")
    await first_store.create_session("s")
    await second_store.close()
    await add(first_store, "s", user("hi"))
    third = await SqliteStore.open(tmp_path / "a.db")
    assert len(await third.load("s")) == 2
    await first_store.close()
    await third.close()
    assert sorted(path.name for path in files_in(tmp_path)) == ["a.db", "a.db-lock"]


KILLED_DURING_CREATION = """
import os, signal, sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.pragma("cache_size", 1)
connection.execute("BEGIN IMMEDIATE; CREATE TABLE half (made); INSERT INTO half VALUES (zeroblob(1000000))")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_store_opens_after_its_creation_was_killed(tmp_path: Path) -> None:
    """There is a journal to roll back, which a read-only connection cannot do."""
    path = tmp_path / "a.db"
    subprocess.run([sys.executable, "-c", KILLED_DURING_CREATION, path], check=False)
    assert path.with_name("a.db-journal").exists()

    async def opened() -> int:
        store = await SqliteStore.open(path)
        entry = await store.create_session("s")
        await store.close()
        return entry.seq

    assert asyncio.run(opened()) == 1


async def test_a_session_that_is_dropped_together_with_an_append_leaves_nothing_behind(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "s.db")
    await store.append("s", SESSION, None)
    answer = assistant("guava", meta=Meta(model=ModelRef("p", "m"), usage=Usage(1, 2)))
    entries = next_entries("s", Tail(SESSION[-1].id, SESSION[-1].seq), [answer], store.environment)
    await asyncio.gather(store.append("s", entries, SESSION[-1].id), store.drop_session("s"))
    connection = apsw.Connection(str(tmp_path / "s.db"))
    for table in ("session", "entry", "spend", "search WHERE search MATCH 'guava'"):
        assert connection.execute(f"SELECT count(*) FROM {table}").get == 0
    connection.close()
    assert (await store.totals()).models == ()
    await store.close()


async def test_a_reader_that_is_stopped_delays_the_removal_of_content_but_not_of_the_records_of_workers(
    tmp_path: Path,
) -> None:
    store = await SqliteStore.open(tmp_path / "db", wait_s=0.2)
    for name in ("s", "bartack:worker:1"):
        await store.create_session(name)
    stopped = apsw.Connection(str(tmp_path / "db"), flags=apsw.SQLITE_OPEN_READONLY)
    stopped.execute("BEGIN")
    stopped.execute("SELECT count(*) FROM session").fetchall()
    await store.drop_session("bartack:worker:1")
    with pytest.raises(StoreError, match="a reader prevents"):
        await store.drop_session("s")
    stopped.close()
    await store.close()


async def test_an_append_that_the_database_refuses_leaves_the_session_as_it_was_for_the_next_one(
    tmp_path: Path,
) -> None:
    store = await SqliteStore.open(tmp_path / "s.db")
    await store.append("s", SESSION, None)
    tail = SESSION[-1].id
    (entry,) = next_entries("s", Tail(tail, SESSION[-1].seq), [user("good")], store.environment)
    refused, tail_after = await asyncio.gather(
        store.append("s", [replace(entry, id=SESSION[2].id)], tail),
        store.append("s", [entry], tail),
        return_exceptions=True,
    )
    assert isinstance(refused, Conflict)
    assert tail_after == await store.tail_of("s") == Tail(entry.id, entry.seq)
    assert (await store.load("s"))[-1] == entry
    await store.close()


async def test_a_text_of_several_megabytes_is_stored_once_and_returned(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "s.db")
    header = await store.create_session("s")
    text = 'a "line" of text\n' * 150_000  # written in pieces
    entries = next_entries("s", Tail(header.id, 1), [user(text), user(text)], store.environment)
    await store.append("s", entries, header.id)
    assert list(await store.entries("s", 1)) == list(entries)
    assert await check(store, "s") == []
    await store.close()
    assert (tmp_path / "s.db").stat().st_size < 1.5 * len(text)
