"""Damaged and hostile databases of other programs."""

import json
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bartack.nouns.errors import BartackError
from bartack.nouns.messages import Message
from bartack_transcripts.disk.files import found_at, read_transcripts
from bartack_transcripts.formats import Transcript

PAGE = 4096
SESSIONS, MESSAGES = 20, 15


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database of opencode with sessions of 15 messages each, on some 200 pages."""
    path = tmp_path / "opencode.db"
    with closing(sqlite3.connect(path)) as opened:
        opened.executescript(
            """
            CREATE TABLE session (id text PRIMARY KEY, parent_id, title, directory, time_created, time_updated);
            CREATE TABLE message (id text PRIMARY KEY, session_id, time_created, data);
            CREATE TABLE part (id text PRIMARY KEY, message_id, session_id, data);
            """
        )
        for session in range(SESSIONS):
            own = f"ses_{session:03}"
            opened.execute("INSERT INTO session VALUES (?, NULL, ?, '/work', ?, 2)", (own, f"Title {session}", session))
            for number in range(MESSAGES):
                row = json.dumps({"role": "user", "time": {"created": number}})
                text = json.dumps({"type": "text", "text": f"{session}/{number} " + "x" * 2000})
                id = f"{session:03}{number:03}"
                opened.execute("INSERT INTO message VALUES (?, ?, ?, ?)", (f"msg_{id}", own, number, row))
                opened.execute("INSERT INTO part VALUES (?, ?, ?, ?)", (f"prt_{id}", f"msg_{id}", own, text))
        opened.commit()
    return path


def read(path: Path) -> list[Transcript]:
    return read_transcripts(found_at(path, "opencode"))


def texts(transcripts: list[Transcript]) -> set[str]:
    facts = (fact for transcript in transcripts for step in transcript.steps for fact in step.facts)
    return {fact.text.split()[0] for fact in facts if isinstance(fact, Message)}


def test_what_is_on_healthy_pages_is_read_and_the_damage_is_reported(path: Path) -> None:
    all_texts = texts(read(path))
    assert len(all_texts) == SESSIONS * MESSAGES
    data = bytearray(path.read_bytes())
    number = next(number for number in range(5, len(data) // PAGE) if data[number * PAGE] == 13)  # the leaf of a table
    data[number * PAGE : (number + 1) * PAGE] = bytes(PAGE)
    path.write_bytes(data)
    transcripts = read(path)
    assert len(transcripts) == SESSIONS
    assert len(all_texts) - 50 < len(texts(transcripts)) < len(all_texts)
    (problem,) = transcripts[0].report.problems
    assert "malformed" in problem.what
    assert problem.file in ("message", "part")
    assert transcripts[0].report.total("damaged") == 1


def test_a_database_that_is_cut_off_is_read_up_to_there(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    transcripts = read(path)
    assert 0 < len(texts(transcripts)) < SESSIONS * MESSAGES
    assert "database" in [problem.file for problem in transcripts[0].report.problems]


def test_whatever_is_damaged_reading_ends_with_rows_or_with_a_reason(path: Path) -> None:
    data, chance = path.read_bytes(), Random(5)
    counts = []
    for _ in range(60):
        damaged = bytearray(data)
        for _ in range(chance.choice([1, 20, 200])):
            place = chance.randrange(PAGE if chance.random() < 0.2 else len(data))
            damaged[place] = chance.randrange(256)
        path.write_bytes(damaged)
        with suppress(BartackError):
            counts.append(len(texts(read(path))))
    assert sum(counts) > 0.5 * 60 * SESSIONS * MESSAGES


def test_a_view_and_a_value_without_end_are_not_read(path: Path) -> None:
    with closing(sqlite3.connect(path)) as opened:
        numbers = "WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n)"
        opened.execute(f"CREATE VIEW todo AS {numbers} SELECT id AS position, 's' AS session_id FROM n")
        opened.execute("CREATE TABLE session_input (id, session_id, admitted_seq, b AS (zeroblob(900000000)))")
        opened.execute("INSERT INTO session_input VALUES ('a', 'ses_000', 1)")
        opened.commit()
    transcripts = read(path)
    assert len(texts(transcripts)) == SESSIONS * MESSAGES
    assert [problem.file for problem in transcripts[0].report.problems] == ["session_input"]


@pytest.mark.parametrize(("table", "column"), [("message", "time_created"), ("session_message", "id")])
def test_a_table_without_a_column_it_is_read_by_is_reported(table: str, column: str, path: Path) -> None:
    with closing(sqlite3.connect(path)) as opened:
        opened.execute("CREATE TABLE session_message (id, session_id, seq)")
        opened.execute("INSERT INTO session_message VALUES ('a', 'ses_000', 1)")
        opened.execute("CREATE TABLE todo (session_id)")  # without rows
        opened.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO other")
        opened.commit()
    transcripts = read(path)
    assert len(transcripts) == SESSIONS
    (problem,) = transcripts[0].report.problems
    assert (problem.file, problem.what.partition(";")[0]) == (table, f"no such column: {column}")


def test_a_log_that_is_deleted_while_it_is_read_does_not_matter(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last program that closes a database writes the rest of the log to it, and deletes the log."""
    log = path.with_name(f"{path.name}-wal")
    all_texts = texts(read(path))
    open_file, deletions = Path.open, 0

    def vanish(file: Path, *arguments: Any, **options: Any) -> Any:
        nonlocal deletions
        if file == log and log.exists():
            log.unlink()
            deletions += 1
        return open_file(file, *arguments, **options)

    log.write_bytes(b"x" * 100)
    monkeypatch.setattr(Path, "open", vanish)
    assert texts(read(path)) == all_texts
    assert deletions == 1


def test_a_database_that_is_deleted_while_it_is_read_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = found_at(path, "opencode")
    path.with_name(f"{path.name}-wal").write_bytes(b"x" * 100)

    def vanish(*_: object) -> None:
        path.unlink()
        path.stat()

    monkeypatch.setattr("shutil.copyfile", vanish)
    with pytest.raises(FileNotFoundError):
        read_transcripts(source)
