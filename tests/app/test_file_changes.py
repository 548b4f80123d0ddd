"""What a call of a file tool would change."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.app import file_changes
from bartack.app.file_changes import DiffRow, FileChange, counts, diff_rows, planned_change
from bartack.tools.sandbox import SandboxedDirectory

TEXTS = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=12).map("\n".join)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[SandboxedDirectory]:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    opened = SandboxedDirectory(tmp_path, [tmp_path / "secret"])
    yield opened
    opened.close()


def test_a_file_is_new_or_overwritten(directory: SandboxedDirectory) -> None:
    new = planned_change(directory, "write_file", {"path": "b.txt", "text": "x\n"})
    assert new == FileChange("b.txt", None, "x\n")
    old = planned_change(directory, "write_file", {"path": "a.txt", "text": "x\n"})
    assert old == FileChange("a.txt", "one\ntwo\nthree\n", "x\n")


def test_an_edit_is_applied_to_the_file_as_it_is(directory: SandboxedDirectory) -> None:
    edit = {"path": "a.txt", "old": "two", "new": "2", "everywhere": False}
    assert planned_change(directory, "edit_file", edit) == FileChange("a.txt", "one\ntwo\nthree\n", "one\n2\nthree\n")
    wide = planned_change(directory, "edit_file", {"path": "a.txt", "old": "e", "new": "E", "everywhere": True})
    assert wide is not None
    assert wide.after == "onE\ntwo\nthrEE\n"
    missing = planned_change(directory, "edit_file", {**edit, "old": "zwei"})
    assert missing is not None
    assert missing.problem is not None
    assert "was not found" in missing.problem
    nowhere = planned_change(directory, "edit_file", {**edit, "path": "b.txt"})
    assert nowhere == FileChange("b.txt", None, "", "the file does not exist")


def test_files_that_cannot_be_compared_are_reported(
    directory: SandboxedDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "image").write_bytes(b"\xff\x00")
    binary = planned_change(directory, "write_file", {"path": "image", "text": "x"})
    assert binary == FileChange("image", None, "x", "the existing file is not UTF-8 text")
    monkeypatch.setattr(file_changes, "_MAX_BYTES", 3)
    large = planned_change(directory, "write_file", {"path": "a.txt", "text": "x"})
    assert large is not None
    assert large.problem == "the existing file is too large to compare (14 bytes)"
    outside = planned_change(directory, "write_file", {"path": "../x", "text": "x"})
    assert outside is not None
    assert "is outside" in str(outside.problem)
    assert planned_change(directory, "write_file", {"path": 3}) is None
    assert planned_change(directory, "run_command", {"command": "ls"}) is None


@given(TEXTS, TEXTS, st.integers(0, 4))
def test_a_diff_leads_from_one_text_to_the_other(before: str, after: str, context: int) -> None:
    rows = diff_rows(before, after, context)
    assert bool(rows) == (before != after)
    old, new = _lines(before), _lines(after)
    at = 0
    built: list[str] = []
    for row in rows:
        if row.kind == "gap":
            built += old[at : at + row.number]
            at += row.number
        elif row.kind == "+":
            assert new[row.number - 1] == row.text
            built.append(row.text)
        else:
            assert old[at] == row.text
            assert row.number == (at + 1 if row.kind == "-" else len(built) + 1)
            built += [row.text] if row.kind == " " else []
            at += 1
    assert (built if rows else new) == new
    added, removed = counts(rows)
    assert added - removed == len(new) - len(old)


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    last = lines.pop()
    return [*lines, f"{last} {file_changes.NO_NEWLINE}"] if last else lines


def test_line_ends_are_shown_only_where_they_differ() -> None:
    assert diff_rows("a\r\nb\r\n", "a\r\nc\r\n", 0) == [
        DiffRow("gap", 1, ""),
        DiffRow("-", 2, "b"),
        DiffRow("+", 2, "c"),
    ]
    assert DiffRow("+", 1, "a") in diff_rows("a\r\n", "a\n")


def test_two_large_texts_are_shown_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_changes, "_MAX_COMPARED", 3)
    assert [row.kind for row in diff_rows("s\na\nb\n", "s\nb\na\n")] == [" ", "-", "-", "+", "+"]
