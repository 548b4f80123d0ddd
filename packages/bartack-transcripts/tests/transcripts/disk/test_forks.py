"""Forks of Claude Code, which do not name what they were copied from."""

import json
import os
from pathlib import Path

from bartack_transcripts.disk.files import found_at, read_transcripts


def note(minute: int) -> str:
    return json.dumps({"type": "queue-operation", "timestamp": f"2026-01-01T00:{minute:02}:00Z", "sessionId": "s"})


def said(uuid: str, minute: int, session: str, **fields: object) -> str:
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
    first, fork, again, unrelated = (tmp_path / f"{name}.jsonl" for name in ("original", "fork", "again", "other"))

    def copied(session: str, *uuids: str) -> list[str]:
        minutes = {"a": 1, "b": 2, "c": 11, "d": 21, "e": 26, "later": 30, "x": 1}
        return [said(uuid, minutes[uuid], session) for uuid in uuids]

    write(first, note(0), *copied("s1", "a", "b", "later"))
    write(fork, note(10), *copied("s2", "a", "b", "c"))
    write(again, note(20), *copied("s3", "a", "b", "c", "d"))  # a copy of the fork
    write(tmp_path / "beside.jsonl", note(25), *copied("s4", "a", "b", "e"))  # a copy of the original
    write(tmp_path / "backup.jsonl", note(1), *copied("s1", "a", "b"))  # the same session
    write(unrelated, note(0), *copied("s5", "x"))
    assert origin(first) is None
    assert origin(fork) == "claude-code:s1"
    assert origin(again) == "claude-code:s2"
    assert origin(tmp_path / "beside.jsonl") == "claude-code:s1"
    assert origin(tmp_path / "backup.jsonl") is None
    assert origin(unrelated) is None
    os.utime(tmp_path, (0, 0))  # the folder looks changed
    first.unlink()
    (tmp_path / "backup.jsonl").unlink()
    assert origin(fork) is None


def test_a_fork_of_a_compacted_session_begins_with_the_compaction(tmp_path: Path) -> None:
    first, fork, unrelated = (tmp_path / f"{name}.jsonl" for name in ("original", "fork", "other"))
    boundary = {"type": "system", "subtype": "compact_boundary"}
    write(first, note(0), said("a", 1, "s1"), said("b", 2, "s1", **boundary), said("c", 3, "s1"))
    write(fork, note(10), said("b", 2, "s2", **boundary), said("c", 3, "s2"), said("d", 11, "s2"))
    write(unrelated, note(20), said("x", 2, "s3", **boundary), said("d", 11, "s3"))
    assert origin(first) is None
    assert origin(fork) == "claude-code:s1"
    assert origin(unrelated) is None


def test_a_fork_can_name_its_origin(tmp_path: Path) -> None:
    path = tmp_path / "fork.jsonl"
    write(path, said("a", 1, "s", forkedFrom={"sessionId": "named", "messageUuid": "a"}))
    assert origin(path) == "claude-code:named"
    write(path, said("a", 1, "old"), said("b", 2, "fork"))
    assert origin(path) == "claude-code:old"
    write(path, '{"type": "mode"}', said("a", 1, "s"))
    assert origin(path) is None


def test_files_without_ids_are_no_forks(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}.jsonl", note(0))
    assert origin(tmp_path / "a.jsonl") is None


def test_an_origin_that_is_deleted_meanwhile_is_not_named(tmp_path: Path) -> None:
    first, fork = tmp_path / "original.jsonl", tmp_path / "fork.jsonl"
    write(first, note(0), said("a", 1, "s1"), said("b", 2, "s1"))
    write(fork, note(10), said("a", 1, "s2"), said("c", 11, "s2"))
    assert origin(fork) == "claude-code:s1"
    listed_at = tmp_path.stat().st_mtime_ns
    first.unlink()
    os.utime(tmp_path, ns=(listed_at, listed_at))  # as if it were deleted right after the folder was listed
    assert origin(fork) is None
