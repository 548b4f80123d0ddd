"""Damage to one session of a persistent store, as `bartack.testing.check_damage` requires it to be handled."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]
import pytest

from bartack.testing import check_damage
from tests.store import postgres_server
from tests.store.stores import opener
from tests.store.test_sqlite_damage import alter

ALTERED, CUT, LOST, BODY = "an altered text", "text that is not JSON", "a lost entry", "a lost body"


def damage_jsonl(folder: Path, how: str, session_id: str) -> None:
    path = folder / "sessions" / f"{session_id}.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    match how:
        case "an altered text":
            lines[2] = lines[2].replace(b"needle", b"noodle")
        case "text that is not JSON":
            lines[2] = lines[2].replace(b'"seq"', b'"seq')
        case "a lost entry":
            del lines[2]
        case _:
            bodies = folder.joinpath("sessions", "blobs").iterdir()
            (body,) = [file for file in bodies if file.read_bytes().startswith(session_id.encode())]
            body.unlink()
    path.write_bytes(b"".join(lines))


SQL = {
    ALTERED: "UPDATE {entry} SET text = replace(text, 'needle', 'noodle') WHERE text LIKE '%needle in {session}%'",
    CUT: "UPDATE {entry} SET text = replace(text, '\"seq\"', '\"seq') WHERE text LIKE '%needle in {session}%'",
    LOST: "DELETE FROM {entry} WHERE text LIKE '%needle in {session}%'",
    BODY: "DELETE FROM {blob} WHERE {data} LIKE '{session}%'",
}


def damage_sqlite(folder: Path, how: str, session_id: str) -> None:
    names = {"entry": "entry", "blob": "blob", "data": "CAST(data AS TEXT)"}
    alter(folder / "sessions", SQL[how].format(session=session_id, **names))


async def damage_postgres(folder: Path, how: str, session_id: str) -> None:
    schema = postgres_server.schema_of(postgres_server.address(str(folder)))
    connection = await asyncpg.connect(postgres_server.SERVER, server_settings={"search_path": schema})
    async with connection.transaction():
        await connection.execute("SET LOCAL session_replication_role = replica")  # without triggers
        names = {"entry": "entries", "blob": "blobs", "data": "convert_from(data, 'UTF8')"}
        await connection.execute(SQL[how].format(session=session_id, **names))
    await connection.close()


DAMAGE = {"jsonl": damage_jsonl, "sqlite": damage_sqlite, "postgres": damage_postgres}


@pytest.mark.parametrize("how", [ALTERED, CUT, LOST, BODY])
@pytest.mark.parametrize("kind", DAMAGE)
async def test_damage_to_one_entry_is_found_and_the_rest_stays_usable(fast_path: Path, kind: str, how: str) -> None:
    await check_damage(opener(kind, fast_path), partial(DAMAGE[kind], fast_path, how))


def nothing(folder: Path, session_id: str) -> None:
    pass


def both_sessions(folder: Path, session_id: str) -> None:
    for damaged_id in (session_id, "intact"):
        damage_jsonl(folder, ALTERED, damaged_id)


def two_entries(folder: Path, session_id: str) -> None:
    damage_jsonl(folder, LOST, session_id)
    damage_jsonl(folder, LOST, session_id)


def the_whole_session(folder: Path, session_id: str) -> None:
    for path in folder.joinpath("sessions").glob(f"{session_id}.*"):
        path.unlink()


@pytest.mark.parametrize(
    ("damage", "violation"),
    [
        (nothing, "does not find the damage"),
        (both_sessions, "finds damage in a session that has none"),
        (two_entries, r"one entry was damaged, but entries does not return those with seq \[3, 4\]"),
        (the_whole_session, "does not find the damage|no longer listed"),
    ],
)
async def test_a_store_that_lost_more_fails_the_check(
    fast_path: Path, damage: Callable[[Path, str], None], violation: str
) -> None:
    """The negative controls: damage that looks like a store that does not find or contain it."""
    with pytest.raises(AssertionError, match=violation):
        await check_damage(opener("jsonl", fast_path), partial(damage, fast_path))
