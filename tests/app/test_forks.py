"""Forks of Claude Code, which do not name what they were copied from."""

import json
import os
from pathlib import Path

from bartack.app.transcripts import found_at, read_transcripts


def note(minute: int) -> str:
    return json.dumps({"type": "queue-operation", "timestamp": f"2026-01-01T00:{minute:02}:00Z", "sessionId": "s"})


def said(uuid: str, minute: int, session: str = "s", **fields: object) -> str:
    time = f"2026-01-01T00:{minute:02}:00Z"
    message = {"role": "user", "content": uuid}
    return json.dumps(
        {"type": "user", "uuid": uuid, "timestamp": time, "sessionId": session, "message": message} | fields
    )


def write(path: Path, *lines: str) -> None:
    path.write_text("".join(line + "\n" for line in lines))


def origin(path: Path) -> object:
    return (read_transcripts(found_at(path, "claude-code"))[0].header.metadata or {}).get("forkedFrom")


def test_a_copy_that_was_begun_later_is_a_fork(tmp_path: Path) -> None:
    first, fork, again, other = (tmp_path / f"{name}.jsonl" for name in ("original", "fork", "again", "other"))
    write(first, note(0), said("a", 1), said("b", 2), said("later", 30))
    write(fork, note(10), said("a", 1), said("b", 2), said("c", 11))
    write(again, note(20), said("a", 1), said("b", 2), said("c", 11), said("d", 21))  # of the fork
    write(tmp_path / "beside.jsonl", note(25), said("a", 1), said("b", 2), said("e", 26))  # of the first one
    write(other, note(0), said("x", 1))
    assert origin(first) is None
    assert origin(fork) == "claude-code:original"
    assert origin(again) == "claude-code:fork"
    assert origin(tmp_path / "beside.jsonl") == "claude-code:original"
    assert origin(other) is None
    os.utime(tmp_path, (0, 0))  # as if it had changed
    first.unlink()
    assert origin(fork) is None


def test_a_fork_of_a_compacted_session_begins_with_the_compaction(tmp_path: Path) -> None:
    first, fork, other = (tmp_path / f"{name}.jsonl" for name in ("original", "fork", "other"))
    boundary = {"type": "system", "subtype": "compact_boundary"}
    write(first, note(0), said("a", 1), said("b", 2, **boundary), said("c", 3))
    write(fork, note(10), said("b", 2, **boundary), said("c", 3), said("d", 11))
    write(other, note(20), said("x", 2, **boundary), said("d", 11))
    assert origin(first) is None
    assert origin(fork) == "claude-code:original"
    assert origin(other) is None


def test_a_fork_can_name_its_origin(tmp_path: Path) -> None:
    path = tmp_path / "fork.jsonl"
    write(path, said("a", 1, forkedFrom={"sessionId": "named", "messageUuid": "a"}))
    assert origin(path) == "claude-code:named"
    write(path, said("a", 1, "old"), said("b", 2, "fork"))
    assert origin(path) == "claude-code:old"
    write(path, '{"type": "mode"}', said("a", 1))
    assert origin(path) is None


def test_files_without_ids_are_no_forks(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}.jsonl", note(0))
    assert origin(tmp_path / "a.jsonl") is None
