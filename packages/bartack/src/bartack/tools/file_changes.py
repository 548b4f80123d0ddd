"""The change that write_file or edit_file would make to its file: the preview of such a call, for all user interfaces.

`planned_change` compares the content of the file with what the call would leave. The digests of both bind the change to
exactly these contents; the diff is what a person reads. A diff is whole: nothing of the new text is left out, only
unchanged lines that are not next to a change.
"""

from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from hashlib import sha256
from typing import Any, Literal, NamedTuple

import msgspec

from bartack.nouns.entries import ApprovalRequired
from bartack.tools.file_operations import FileContent, changed_text
from bartack.tools.runtime import EditFile, WriteFile

__all__ = [
    "NO_NEWLINE",
    "DiffRow",
    "FileChange",
    "change_in",
    "changed_passages",
    "counts",
    "diff_rows",
    "planned_change",
]

CONTEXT = 3  # unchanged lines around a change
_MAX_COMPARED = 25_000_000  # pairs of lines; two larger texts are shown as removed and added as a whole
NO_NEWLINE = "(no newline at the end)"


class DiffRow(NamedTuple):
    """A line of a diff: unchanged, removed or added, with its number in the old or new text; or a gap."""

    kind: Literal[" ", "-", "+", "gap"]
    number: int
    text: str


class FileChange(msgspec.Struct, frozen=True, kw_only=True, tag="file_change", tag_field="kind"):
    """A file before and after a call."""

    path: str
    before: str  # the SHA-256 of its content, or "absent"
    after: str  # the SHA-256 of the content that the call leaves
    diff: tuple[DiffRow, ...]
    note: str | None = None  # why the diff does not show what is replaced

    def as_json(self) -> dict[str, Any]:
        """The preview of the call."""
        preview: dict[str, Any] = msgspec.to_builtins(self)
        return preview


def change_in(question: ApprovalRequired) -> FileChange | None:
    """The change that the question is about; None if it is about something else."""
    try:
        return msgspec.convert(question.preview, FileChange)
    except msgspec.ValidationError:
        return None


def planned_change(operation: WriteFile | EditFile, content: FileContent) -> FileChange:
    """The change that the operation makes to a file with this content; `ToolError` if it cannot be made."""
    after, _ = changed_text(operation, content)
    rows = diff_rows(content.text or "", after)
    digest = sha256(after.encode()).hexdigest()
    return FileChange(path=operation.path, before=content.digest, after=digest, diff=tuple(rows), note=content.note)


def diff_rows(old_text: str, new_text: str, context: int = CONTEXT) -> list[DiffRow]:
    """The changed lines with those around them; empty if the texts are equal."""
    old_lines, new_lines = _lines(old_text, new_text)
    rows: list[DiffRow] = []
    end = 0  # how many old lines are shown or skipped so far
    blocks = list(_changes(old_lines, new_lines))
    for index, (start, stop, new_start, new_stop) in enumerate(blocks):
        first = max(end, start - context)
        if first > end:
            rows.append(DiffRow("gap", first - end, ""))
        shift = new_start - start
        rows += [DiffRow(" ", number + shift + 1, old_lines[number]) for number in range(first, start)]
        rows += [DiffRow("-", number + 1, old_lines[number]) for number in range(start, stop)]
        rows += [DiffRow("+", number + 1, new_lines[number]) for number in range(new_start, new_stop)]
        following = blocks[index + 1][0] if index + 1 < len(blocks) else len(old_lines)
        end = min(following, stop + context)
        shift = new_stop - stop
        rows += [DiffRow(" ", number + shift + 1, old_lines[number]) for number in range(stop, end)]
    if rows and end < len(old_lines):
        rows.append(DiffRow("gap", len(old_lines) - end, ""))
    return rows


def counts(rows: Sequence[DiffRow]) -> tuple[int, int]:
    """The number of added and of removed lines."""
    return sum(row.kind == "+" for row in rows), sum(row.kind == "-" for row in rows)


def changed_passages(rows: Iterable[DiffRow]) -> list[tuple[str, str]]:
    """The old and the new text of each passage of a diff, for programs that compare texts themselves."""
    passages = [("", "")]
    for row in rows:
        if row.kind == "gap":
            passages.append(("", ""))
            continue
        line, is_last = row.text.removesuffix(f" {NO_NEWLINE}"), row.text.endswith(f" {NO_NEWLINE}")
        old_text, new_text = passages[-1]
        line += "" if is_last else "\n"
        passages[-1] = (old_text + line * (row.kind != "+"), new_text + line * (row.kind != "-"))
    return [passage for passage in passages if passage != ("", "")]


def _lines(old_text: str, new_text: str) -> tuple[list[str], list[str]]:
    """The lines of both texts. A carriage return before the line feed is left out where every line has one."""
    has_crlf = all(text.count("\n") == text.count("\r\n") for text in (old_text, new_text) if text)
    sides = []
    for text in (old_text, new_text):
        lines = (text.replace("\r\n", "\n") if has_crlf else text).split("\n")
        last = lines.pop()
        sides.append([*lines, f"{last} {NO_NEWLINE}"] if last else lines)
    return sides[0], sides[1]


def _changes(old_lines: list[str], new_lines: list[str]) -> Iterator[tuple[int, int, int, int]]:
    """The ranges of lines that differ. Equal lines at both ends are found first: most changes are small."""
    same = 0
    while same < min(len(old_lines), len(new_lines)) and old_lines[same] == new_lines[same]:
        same += 1
    same_at_end = 0
    while (
        same_at_end < min(len(old_lines), len(new_lines)) - same
        and old_lines[-1 - same_at_end] == new_lines[-1 - same_at_end]
    ):
        same_at_end += 1
    a, b = old_lines[same : len(old_lines) - same_at_end], new_lines[same : len(new_lines) - same_at_end]
    if len(a) * len(b) > _MAX_COMPARED:
        yield same, same + len(a), same, same + len(b)
        return
    for tag, start, stop, new_start, new_stop in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if tag != "equal":
            yield start + same, stop + same, new_start + same, new_stop + same
