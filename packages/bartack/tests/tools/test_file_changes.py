"""What a call of a file tool would change."""

from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bartack.nouns.entries import ApprovalRequired
from bartack.nouns.errors import ToolError
from bartack.tools import file_changes, file_operations
from bartack.tools.file_changes import (
    DiffRow,
    FileChange,
    change_in,
    changed_passages,
    counts,
    diff_rows,
    planned_change,
)
from bartack.tools.file_operations import FileContent, content_of, stored_content
from bartack.tools.runtime import EditFile, WriteFile
from bartack.tools.sandbox import ABSENT, SandboxedDirectory

TEXTS = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=12).map("\n".join)


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def test_a_file_is_new_or_overwritten() -> None:
    operation = WriteFile(path="b.txt", text="x\n")
    new_file = planned_change(operation, FileContent(ABSENT))
    assert new_file == FileChange(path="b.txt", before=ABSENT, after=digest("x\n"), diff=(DiffRow("+", 1, "x"),))
    existing_file = planned_change(operation, content_of(b"one\n"))
    rows = (DiffRow("-", 1, "one"), DiffRow("+", 1, "x"))
    assert existing_file == FileChange(path="b.txt", before=digest("one\n"), after=digest("x\n"), diff=rows)
    question = ApprovalRequired(
        tool_call_id="c1", tool_name="write_file", arguments={}, preview=existing_file.as_json()
    )
    assert change_in(question) == existing_file
    assert change_in(replace(question, preview={"text": "x"})) is None
    assert change_in(replace(question, preview=None)) is None


def test_an_edit_is_applied_to_the_content() -> None:
    content = content_of(b"one\ntwo\nthree\n")
    edit = EditFile(path="a.txt", old="two", new="2")
    assert planned_change(edit, content).after == digest("one\n2\nthree\n")
    wide = EditFile(path="a.txt", old="e", new="E", everywhere=True)
    assert planned_change(wide, content).after == digest("onE\ntwo\nthrEE\n")
    with pytest.raises(ToolError, match="was not found"):
        planned_change(EditFile(path="a.txt", old="zwei", new="2"), content)
    with pytest.raises(ToolError, match="does not exist"):
        planned_change(edit, FileContent(ABSENT))


def test_files_that_cannot_be_compared_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "image").write_bytes(b"\xff\x00")
    directory = SandboxedDirectory(tmp_path)
    write = WriteFile(path="image", text="x")
    binary = planned_change(write, stored_content(directory, "image"))
    assert (binary.note, binary.before) == ("the existing file is not UTF-8 text", sha256(b"\xff\x00").hexdigest())
    assert [row.kind for row in binary.diff] == ["+"]
    monkeypatch.setattr(file_operations, "_MAX_EDIT_BYTES", 1)
    large = stored_content(directory, "image")
    assert (large.note, large.digest) == ("the existing file is too large to compare (2 bytes)", binary.before)
    with pytest.raises(ToolError, match="is outside"):
        stored_content(directory, "../x")
    directory.close()


def test_the_passages_of_a_diff_are_texts() -> None:
    old_text, new_text = "a\nb\n" + "same\n" * 9 + "c", "a\nB\n" + "same\n" * 9 + "C\n"
    rows = diff_rows(old_text, new_text, 1)
    assert changed_passages(rows) == [("a\nb\nsame\n", "a\nB\nsame\n"), ("same\nc", "same\nC\n")]
    assert changed_passages(diff_rows("", "x")) == [("", "x")]


@given(TEXTS, TEXTS, st.integers(0, 4))
def test_a_diff_leads_from_one_text_to_the_other(old_text: str, new_text: str, context: int) -> None:
    rows = diff_rows(old_text, new_text, context)
    assert bool(rows) == (old_text != new_text)
    old_lines, new_lines = _lines(old_text), _lines(new_text)
    position = 0
    built: list[str] = []
    for row in rows:
        if row.kind == "gap":
            built += old_lines[position : position + row.number]
            position += row.number
        elif row.kind == "+":
            assert new_lines[row.number - 1] == row.text
            built.append(row.text)
        else:
            assert old_lines[position] == row.text
            assert row.number == (position + 1 if row.kind == "-" else len(built) + 1)
            built += [row.text] if row.kind == " " else []
            position += 1
    assert (built if rows else new_lines) == new_lines
    added, removed = counts(rows)
    assert added - removed == len(new_lines) - len(old_lines)


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
