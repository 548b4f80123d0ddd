"""Damage to a SQLite store: what the check finds, and that a database behind its acknowledgements is noticed."""

import os
import re
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import pytest

from bartack.nouns.deltas import MessageDelta, TextDelta
from bartack.nouns.entries import MessageDeltaBatch, Redaction
from bartack.nouns.errors import ErrorCode, StoreError
from bartack.nouns.messages import user
from bartack.store.backup import restore
from bartack.store.maintenance import check
from bartack.store.sqlite import SqliteStore
from bartack.store.sqlite.file import log_of
from lab import bit_flips
from tests.sample_session import SESSION
from tests.store.stores import add


async def filled(path: Path) -> None:
    """A closed store with one of everything."""
    store = await SqliteStore.open(path)
    await store.append("s", SESSION, None)
    await add(store, "s", user("x" * 70_000), Redaction(entry_id=SESSION[-1].id))
    await store.create_session("other")
    lease = await store.acquire_lease("s", "owner")
    deltas = (MessageDelta("run", 0, TextDelta("hi"), store.environment.now()),)
    await store.write_journal(lease, MessageDeltaBatch(deltas=deltas, generation=1, number=0))
    await store.close()


def alter(path: Path, sql: str) -> None:
    """Change the database as no program may: without its triggers."""
    connection = apsw.Connection(str(path))
    triggers = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute(sql)
    for _, created in triggers:
        connection.execute(str(created))
    connection.close()


DAMAGE = {
    "UPDATE entry SET text = replace(text, 'Paris', 'Basel')": "does not match its checksum",
    "UPDATE entry SET checksum = x'00' WHERE session = 1 AND seq = 3": "does not match its checksum",
    "UPDATE entry SET id = 'other' WHERE session = 1 AND seq = 3": "is stored as",
    "UPDATE entry SET needs_restore = 1 - needs_restore": "recorded wrongly",
    "DELETE FROM entry WHERE session = 1 AND text LIKE '%redaction%'": "is not the recorded tail",
    "DELETE FROM entry WHERE session = 1 AND seq = 5": "does not match its checksum",
    "UPDATE session SET tail_seq = 99 WHERE number = 1": "is not the recorded tail",
    "UPDATE session SET checksum = x'00' WHERE number = 1": "is not the recorded tail",
    "UPDATE session SET title = 'other' WHERE number = 1": "the recorded title is 'other'",
    "UPDATE session SET created = '2020' WHERE number = 1": "the recorded created is '2020'",
    "UPDATE session SET updated = '2020' WHERE number = 1": "the recorded updated is '2020'",
    "UPDATE session SET lease = replace(lease, 'owner', 'other') WHERE number = 1": "the lease is damaged",
    "UPDATE journal SET text = replace(text, 'hi', 'ho')": "batch 0 of the journal is damaged",
    "UPDATE journal SET number = 5": "batch 5 of the journal is damaged",
    "UPDATE blob SET data = x'00'": "was altered",
    "DELETE FROM blob": "is missing",
    "DELETE FROM blob_use": "the index of blobs is wrong",
    "UPDATE result SET seq = 1": "the index of results is wrong",
    "DELETE FROM result": "the index of results is wrong",
    "INSERT INTO branch VALUES (1, 5, 1)": "the index of branches is wrong about 5",
    "DELETE FROM redaction": "the index of redactions is wrong",
    "UPDATE spend SET calls = 7": "the recorded usage of model",
    "UPDATE spend SET cost_usd = 7": "the recorded usage of model",
    "DELETE FROM search WHERE rowid = (SELECT min(rowid) FROM search)": "the search index is wrong about entry",
    "INSERT INTO search (rowid, words) VALUES (99, 'x')": "the search index contains an entry that does not exist",
    "DELETE FROM session WHERE number = 2": "entry has rows of a session that does not exist",
    "INSERT INTO purging VALUES (1)": "a deletion was not finished",
    "CREATE TRIGGER more AFTER INSERT ON entry BEGIN SELECT 1; END": "the trigger more does not belong to the store",
    "DROP INDEX session_by_time": "the index session_by_time was altered, or is missing",
    "INSERT INTO schema_version VALUES (0)": "the recorded schema versions are [0, 1, 2]",
}


@pytest.mark.parametrize(("sql", "expected"), DAMAGE.items(), ids=DAMAGE.keys())
async def test_the_check_finds_damage_to_any_table(fast_path: Path, sql: str, expected: str) -> None:
    path = fast_path / "a.db"
    await filled(path)
    alter(path, sql)
    store = await SqliteStore.open(path)
    messages = [finding.message for finding in await check(store)]
    assert any(expected in message for message in messages), messages
    if "DELETE FROM session" not in sql:
        assert len(await store.entries("other")) == 1
        await add(store, "other", user("the other session is usable"))
    await store.close()


async def test_the_check_finds_nothing_in_an_intact_store(fast_path: Path) -> None:
    await filled(fast_path / "a.db")
    alter(fast_path / "a.db", "SELECT 1")
    store = await SqliteStore.open(fast_path / "a.db")
    assert [finding for finding in await check(store) if finding.fault != "dangling_call"] == []
    await store.close()


async def test_a_damaged_lease_counts_as_free(fast_path: Path) -> None:
    path = fast_path / "a.db"
    await filled(path)
    alter(path, "UPDATE session SET lease = '{}'")
    store = await SqliteStore.open(path)
    assert (await store.acquire_lease("s", "new")).owner == "new"
    await store.close()


async def test_a_store_whose_version_is_lost_is_not_opened(tmp_path: Path) -> None:
    await filled(tmp_path / "store")
    alter(tmp_path / "store", "DELETE FROM schema_version")
    with pytest.raises(StoreError, match="has no version") as error:
        await SqliteStore.open(tmp_path / "store")
    assert error.value.code is ErrorCode.STORAGE_CORRUPT


async def test_a_store_whose_count_is_lost_is_not_written_to(tmp_path: Path) -> None:
    await filled(tmp_path / "store")
    alter(tmp_path / "store", "DELETE FROM store")
    store = await SqliteStore.open(tmp_path / "store")
    assert any("the table store is damaged" in finding.message for finding in await check(store))
    with pytest.raises(StoreError, match="the table store is damaged"):
        await store.create_session("new")
    await store.close()


async def test_numbers_that_become_null_are_found(tmp_path: Path) -> None:
    """One bit in the header of a record changes the type of a value to one that its column does not allow."""
    path = tmp_path / "store"
    await filled(path)
    data = path.read_bytes()
    header = re.escape(bytes([0, 9, 1, 2 * len(SESSION[1].id) + 13]))  # the types of number, session, seq and id
    messages: list[str] = []
    for match in re.finditer(header, data):
        path.write_bytes(data[: match.start() + 2] + b"\0" + data[match.start() + 3 :])
        store = await SqliteStore.open(path)
        messages += [finding.message for finding in await check(store)]
        await store.close()
    assert any(message.startswith("cannot be read: '<' not supported") for message in messages)


def test_flipped_bits_are_found_or_have_no_effect() -> None:
    """`lab/bit_flips.py` flips more of them."""
    counts, missed = bit_flips.run(701)
    assert missed == []
    assert counts["found"] > counts["harmless"] > 0


def test_flipped_bits_are_missed_without_the_check() -> None:
    """The negative control."""
    _, missed = bit_flips.run(503, blind=True)
    assert missed


# -- rolled back


def copies(path: Path, *suffixes: str) -> dict[str, bytes]:
    return {suffix: path.with_name(f"{path.name}{suffix}").read_bytes() for suffix in suffixes}


def put(path: Path, files: dict[str, bytes]) -> None:
    for suffix, data in files.items():
        path.with_name(f"{path.name}{suffix}").write_bytes(data)


async def older_log(path: Path) -> None:
    """Put an older log beside a newer database: 261 entries become 61."""
    store = await SqliteStore.open(path)
    await store.create_session("s")
    await add(store, "s", *[user(f"{number}") for number in range(60)])
    older = copies(path, "-wal")
    for number in range(200):
        await add(store, "s", user(f"{number}"))
    newer = copies(path, "")
    await store.close()
    put(path, {**newer, **older})


async def older_copy(path: Path) -> None:
    """Put an older copy of the whole file in place."""
    store = await SqliteStore.open(path)
    await store.create_session("s")
    await store.close()
    older = copies(path, "")
    store = await SqliteStore.open(path)
    await add(store, "s", user("lost"))
    await store.close()
    put(path, older)


async def cut_log(path: Path) -> None:
    """Lose the end of the log."""
    store = await SqliteStore.open(path)
    await store.create_session("s")
    await add(store, "s", user("lost"))
    files = copies(path, "", "-wal")
    await store.close()
    put(path, {**files, "-wal": files["-wal"][:-4096]})


@pytest.mark.parametrize("damage", [older_log, older_copy, cut_log])
async def test_a_database_behind_its_acknowledgements_is_noticed(
    tmp_path: Path, damage: Callable[[Path], Awaitable[None]]
) -> None:
    path = tmp_path / "a.db"
    await damage(path)
    store = await SqliteStore.open(path)
    (finding,) = (await store.inspect()).findings
    assert "the database was rolled back" in finding.message
    assert finding.repairable
    with pytest.raises(StoreError, match="the database was rolled back") as refused:
        await store.create_session("new")
    assert refused.value.code is ErrorCode.STORAGE_CORRUPT
    assert (await store.sessions()).items  # what is left can be read
    assert (await store.inspect(repair=True)).findings == ()
    await store.create_session("new")
    await store.close()
    again = await SqliteStore.open(path)
    await again.create_session("newer")
    assert (await again.inspect()).findings == ()
    await again.close()


async def test_a_note_that_lags_means_nothing(tmp_path: Path) -> None:
    """A process that dies between the commit and the note leaves it older than the database."""
    store = await SqliteStore.open(tmp_path / "a.db")
    await store.create_session("s")
    old_note = (tmp_path / "a.db-lock").read_bytes()
    await add(store, "s", user("hi"))
    await store.close()
    (tmp_path / "a.db-lock").write_bytes(old_note)
    store = await SqliteStore.open(tmp_path / "a.db")
    assert (await store.inspect()).findings == ()
    await add(store, "s", user("hi"))
    await store.close()


async def test_the_note_of_a_deleted_store_means_nothing(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "a.db")
    for _ in range(5):
        await store.create_session()
    await store.close()
    (tmp_path / "a.db").unlink()
    store = await SqliteStore.open(tmp_path / "a.db")
    assert (await store.inspect()).findings == ()
    await store.create_session("new")
    await store.close()


async def test_a_damaged_note_is_a_finding(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "a.db")
    await store.create_session("s")
    (tmp_path / "a.db-lock").write_text("nonsense")
    (finding,) = (await store.inspect()).findings
    assert "whether the database was rolled back cannot be checked" in finding.message
    await store.create_session("t")  # which writes another note
    assert (await store.inspect()).findings == ()
    await store.close()


async def test_a_backup_copied_over_the_store_is_noticed(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "a.db")
    await store.create_session("s")
    await store.backup(tmp_path / "b.db")
    await add(store, "s", user("lost"))
    await store.close()
    shutil.copy(tmp_path / "b.db", tmp_path / "a.db")
    store = await SqliteStore.open(tmp_path / "a.db")
    with pytest.raises(StoreError, match="a backup of it, or another store") as refused:
        await add(store, "s", user("hi"))
    assert refused.value.code is ErrorCode.STORAGE_CORRUPT
    assert len(await store.entries("s")) == 1  # it can be read
    (finding,) = (await store.inspect()).findings
    assert finding.repairable
    assert (await store.inspect(repair=True)).findings == ()
    await add(store, "s", user("hi"))
    await store.close()


async def test_a_backup_beside_the_log_of_the_store_is_not_written_to(tmp_path: Path) -> None:
    """The pages of the log would replace those of another file: no repair can accept that."""
    path = tmp_path / "a.db"
    store = await SqliteStore.open(path)
    await store.create_session("s")
    await store.backup(tmp_path / "b.db")
    await add(store, "s", user("in the log"))
    log = copies(path, "-wal")
    await store.close()
    put(path, {"": (tmp_path / "b.db").read_bytes(), **log})
    store = await SqliteStore.open(path)
    for _ in range(2):
        with pytest.raises(StoreError, match="truncated or overwritten"):
            await store.create_session("t")
        with pytest.raises(StoreError, match="truncated or overwritten"):
            await store.inspect(repair=True)
    await store.close()


async def test_a_restored_store_has_nothing_of_the_one_it_replaces(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = await SqliteStore.open(path)
    await store.create_session("s")
    await store.backup(tmp_path / "b.db")
    await add(store, "s", user("in the log"))
    log = copies(path, "-wal")
    await store.close()
    path.unlink()
    put(path, log)
    await restore(tmp_path / "b.db", f"sqlite:{path}")
    store = await SqliteStore.open(path)
    assert len(await store.entries("s")) == 1
    await add(store, "s", user("hi"))
    assert await check(store) == []
    await store.close()


def cut_in_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def empty_log(path: Path) -> None:
    os.truncate(log_of(path), 0)


def overwrite_with_backup(path: Path) -> None:
    shutil.copyfile(path.with_name("b.db"), path)


@pytest.mark.parametrize("damage", [cut_in_half, empty, empty_log, overwrite_with_backup])
async def test_nothing_is_acknowledged_after_a_file_was_damaged_in_place(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    path = tmp_path / "a.db"
    store = await SqliteStore.open(path)
    await store.create_session("s")
    await add(store, "s", *(user("x" * 20_000) for _ in range(50)))
    await store.erase_deleted()  # moves everything from the log to the file
    await store.backup(tmp_path / "b.db")
    await add(store, "s", user("in the log"))
    damage(path)
    for _ in range(3):
        with pytest.raises(StoreError, match="truncated or overwritten") as refused:
            await store.create_session()
        assert refused.value.code is ErrorCode.STORAGE_CORRUPT
    await store.close()


@pytest.mark.parametrize("pages", [1, 3, 20])
async def test_a_process_killed_while_it_moves_pages_is_no_damage(tmp_path: Path, pages: int) -> None:
    """The first pages are in the file, and its header names more of them than it has yet."""
    path = tmp_path / "a.db"
    store = await SqliteStore.open(path)
    await store.create_session("s")
    before = path.stat().st_size
    await add(store, "s", *(user("x" * 20_000) for _ in range(20)))
    files = copies(path, "", "-wal")
    await store.backup(tmp_path / "whole")
    await store.close()
    whole = path.read_bytes()
    assert len(whole) > before + 20 * 4096
    put(path, {**files, "": (whole[: pages * 4096] + files[""][pages * 4096 :])})
    for _ in range(2):
        store = await SqliteStore.open(path)
        await store.create_session()
        assert await check(store) == []
        await store.close()
