"""Restoring the files that tools have changed."""

import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bartack.nouns.entries import Entry, RunEnded
from bartack.nouns.errors import ToolError
from bartack.nouns.messages import stamped, tool_message
from bartack.nouns.parts import ToolResult
from bartack.tools.runtime import EditFile, Operation, ReadFile, WriteFile
from bartack_code.workspace import checkpoints
from bartack_code.workspace.checkpoints import (
    CHECKPOINT,
    Checkpoint,
    CheckpointFolder,
    CheckpointRuntime,
    checkpoints_in,
    restore,
    restored_text,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Place:
    """A directory with its runtime, and the entries that record what was done."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "project"
        self.root.mkdir()
        self.contents = CheckpointFolder(folder / "kept")
        self.runtime = CheckpointRuntime(self.root, contents=self.contents)
        self.entries: list[Entry] = []

    async def do(self, operation: Operation) -> None:
        output = await self.runtime.execute(operation)
        message = tool_message(ToolResult(f"c{len(self.entries)}", str(output.content), metadata=output.metadata))
        fact = stamped(message, id=f"m{len(self.entries)}", timestamp=NOW)
        self.entries.append(
            Entry(id=f"e{len(self.entries)}", session_id="s", seq=len(self.entries) + 1, timestamp=NOW, fact=fact)
        )

    def undo(self) -> str:
        return restored_text(restore(self.runtime.directory, self.contents, checkpoints_in(self.entries)))


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    workplace = Place(tmp_path)
    await workplace.runtime.connect()
    yield workplace
    await workplace.runtime.close()


async def test_files_return_to_what_they_were_before_the_first_change(place: Place) -> None:
    (place.root / "a.txt").write_bytes(b"one\r\n\xff")
    (place.root / "b.txt").write_text("two\n")
    await place.do(WriteFile(path="a.txt", text="1\n"))
    await place.do(EditFile(path="b.txt", old="two", new="2"))
    await place.do(EditFile(path="./b.txt", old="2", new="zwei"))
    await place.do(WriteFile(path="sub/new.txt", text="new\n"))
    await place.do(ReadFile(path="a.txt"))
    assert place.undo() == "Restored: a.txt, b.txt. Deleted, as they were new: sub/new.txt."
    assert (place.root / "a.txt").read_bytes() == b"one\r\n\xff"
    assert (place.root / "b.txt").read_text() == "two\n"
    assert not (place.root / "sub" / "new.txt").exists()
    assert place.undo() == ""  # nothing is left to restore


async def test_a_file_that_was_changed_since_is_left_alone(place: Place) -> None:
    (place.root / "a.txt").write_text("one\n")
    await place.do(WriteFile(path="a.txt", text="1\n"))
    await place.do(WriteFile(path="b.txt", text="2\n"))
    (place.root / "a.txt").write_text("mine\n")
    (place.root / "b.txt").unlink()
    (place.root / "b.txt").mkdir()
    assert place.undo() == "Not restored, as they have been changed since: a.txt, b.txt."
    assert (place.root / "a.txt").read_text() == "mine\n"


async def test_a_change_of_the_user_between_two_changes_is_kept(place: Place) -> None:
    (place.root / "a.txt").write_text("one\n")
    await place.do(WriteFile(path="a.txt", text="1\n"))
    (place.root / "a.txt").write_text("1\nmine\n")
    await place.do(EditFile(path="a.txt", old="1", new="eins"))
    await place.do(EditFile(path="a.txt", old="eins", new="uno"))
    report = "Restored as of the last change that write_file and edit_file did not make: a.txt."
    assert place.undo() == report
    assert (place.root / "a.txt").read_text() == "1\nmine\n"
    assert place.undo() == report  # nothing more is undone


async def test_a_file_that_cannot_be_written_does_not_stop_the_others(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.do(WriteFile(path="a.txt", text="1\n"))
    await place.do(WriteFile(path="b.txt", text="2\n"))
    unlink = os.unlink

    def refuse(name: str, **where: Any) -> None:
        if name == "a.txt":
            raise PermissionError(13, "Permission denied", name)
        unlink(name, **where)

    monkeypatch.setattr(os, "unlink", refuse)
    assert place.undo() == "Deleted, as they were new: b.txt. Not restored, as they cannot be written: a.txt."


async def test_content_that_is_gone_or_damaged_is_not_written(place: Place, tmp_path: Path) -> None:
    (place.root / "a.txt").write_text("one\n")
    await place.do(WriteFile(path="a.txt", text="1\n"))
    (content_file,) = (tmp_path / "kept").iterdir()
    content_file.write_text("damaged")
    assert place.undo() == "Not restored, as their content is no longer kept: a.txt."
    content_file.unlink()
    assert place.undo() == "Not restored, as their content is no longer kept: a.txt."
    assert (place.root / "a.txt").read_text() == "1\n"


async def test_the_result_says_how_much_was_changed(place: Place) -> None:
    (place.root / "a.txt").write_text("1\n2\n3\n")
    output = await place.runtime.execute(WriteFile(path="a.txt", text="1\nzwei\n"))
    assert output.metadata is not None
    assert (output.metadata["additions"], output.metadata["deletions"]) == (1, 2)
    assert output.metadata[CHECKPOINT]["path"] == "a.txt"


async def test_large_files_and_a_full_disk_do_not_stop_a_tool(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.root / "a.txt").write_text("large")
    monkeypatch.setattr(checkpoints, "_MAX_BYTES", 3)
    await place.do(WriteFile(path="a.txt", text="1"))
    assert checkpoints_in(place.entries) == []
    (tmp_path / "kept").write_text("in the way")
    await place.do(WriteFile(path="a.txt", text="2"))
    await place.do(WriteFile(path="long.txt", text="more than three"))
    assert checkpoints_in(place.entries) == []
    with pytest.raises(ToolError, match="outside"):
        await place.runtime.execute(WriteFile(path="../x", text=""))


def test_entries_of_others_are_ignored() -> None:
    odd = tool_message(ToolResult("c", "", metadata={CHECKPOINT: {"path": 3}}))
    facts = [stamped(odd, id="m", timestamp=NOW), RunEnded(status="completed")]
    entries = [
        Entry(id=str(seq), session_id="s", seq=seq, timestamp=NOW, fact=fact)  # type: ignore[arg-type]
        for seq, fact in enumerate(facts, 1)
    ]
    assert checkpoints_in(entries) == []


def test_old_content_is_deleted(tmp_path: Path) -> None:
    contents = CheckpointFolder(tmp_path / "kept")
    contents.prune()
    expired, recent = contents.keep(b"old"), contents.keep(b"new")
    os.utime(tmp_path / "kept" / expired, (0, 0))
    contents.prune()
    assert contents.content(expired) is None
    assert contents.content(recent) == b"new"
    assert Checkpoint("p", None, expired).before is None


def test_content_that_another_chat_deletes_does_not_stop_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = CheckpointFolder(tmp_path / "kept")
    for digest in [contents.keep(content) for content in (b"a", b"b", b"c")]:
        os.utime(tmp_path / "kept" / digest, (0, 0))
    unlink = Path.unlink

    def delete_twice(path: Path) -> None:
        unlink(path)
        unlink(path)

    monkeypatch.setattr(Path, "unlink", delete_twice)  # both chats found it expired
    contents.prune()
    assert list((tmp_path / "kept").iterdir()) == []
