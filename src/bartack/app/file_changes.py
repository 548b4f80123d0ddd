"""The change that a call of write_file or edit_file would make to its file, as a diff, for all user interfaces.

`planned_change` reads the file, `diff_rows` compares the two texts. A diff is whole: nothing of the new text is left
out, only unchanged lines that are not next to a change.
"""

from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any, Literal, NamedTuple

from bartack.nouns.errors import ToolError
from bartack.tools.file_operations import edited
from bartack.tools.runtime import EditFile
from bartack.tools.sandbox import SandboxedDirectory

CONTEXT = 3  # unchanged lines around a change
_MAX_BYTES = 10_000_000  # of a file that is compared; the limit of edit_file
_MAX_COMPARED = 25_000_000  # pairs of lines; two larger texts are shown as removed and added as a whole
NO_NEWLINE = "(no newline at the end)"


class FileChange(NamedTuple):
    """A file before and after a call."""

    path: str
    before: str | None  # None for a new file
    after: str
    problem: str | None = None  # why the call would fail, or cannot be compared; then `before` is not known


class DiffRow(NamedTuple):
    """A line of a diff: unchanged, removed or added, with its number in the old or new text; or a gap."""

    kind: Literal[" ", "-", "+", "gap"]
    number: int
    text: str


def planned_change(
    directory: SandboxedDirectory, tool: str, arguments: Mapping[str, Any], *, unsaved: str | None = None
) -> FileChange | None:
    """The change that this call would make to the files as they are now; None if it is another kind of call.

    `unsaved` is the text that an editor has of the file, which then counts instead of the file.
    """
    match tool, arguments:
        case "write_file", {"path": str(path), "text": str(text)}:
            before, problem = _content(directory, path) if unsaved is None else (unsaved, None)
            return FileChange(path, before, text, problem)
        case "edit_file", {"path": str(path), "old": str(old), "new": str(new)}:
            before, problem = _content(directory, path) if unsaved is None else (unsaved, None)
            if before is None:
                return FileChange(path, None, "", problem or "the file does not exist")
            everywhere = arguments.get("everywhere") is True
            try:
                after, _ = edited(before, EditFile(path=path, old=old, new=new, everywhere=everywhere))
            except ToolError as error:
                return FileChange(path, before, before, error.message)
            return FileChange(path, before, after)
        case _:
            return None


def _content(directory: SandboxedDirectory, path: str) -> tuple[str | None, str | None]:
    """The text of a file, or why it is not known; neither for a file that does not exist."""
    try:
        with directory.file(path) as (fd, info):
            if info.st_size > _MAX_BYTES:
                return None, f"the existing file is too large to compare ({info.st_size} bytes)"
            with open(fd, "rb", closefd=False) as file:
                return file.read(_MAX_BYTES).decode(), None
    except UnicodeDecodeError:
        return None, "the existing file is not UTF-8 text"
    except ToolError as error:
        return None, None if isinstance(error.cause, FileNotFoundError) else error.message


def diff_rows(before: str, after: str, context: int = CONTEXT) -> list[DiffRow]:
    """The changed lines with those around them; empty if the texts are equal."""
    old, new = _lines(before, after)
    rows: list[DiffRow] = []
    end = 0  # of the old lines that are shown or skipped so far
    blocks = list(_changes(old, new))
    for index, (start, stop, new_start, new_stop) in enumerate(blocks):
        first = max(end, start - context)
        if first > end:
            rows.append(DiffRow("gap", first - end, ""))
        shift = new_start - start
        rows += [DiffRow(" ", at + shift + 1, old[at]) for at in range(first, start)]
        rows += [DiffRow("-", at + 1, old[at]) for at in range(start, stop)]
        rows += [DiffRow("+", at + 1, new[at]) for at in range(new_start, new_stop)]
        following = blocks[index + 1][0] if index + 1 < len(blocks) else len(old)
        end = min(following, stop + context)
        shift = new_stop - stop
        rows += [DiffRow(" ", at + shift + 1, old[at]) for at in range(stop, end)]
    if rows and end < len(old):
        rows.append(DiffRow("gap", len(old) - end, ""))
    return rows


def counts(rows: list[DiffRow]) -> tuple[int, int]:
    """The number of added and of removed lines."""
    return sum(row.kind == "+" for row in rows), sum(row.kind == "-" for row in rows)


def _lines(before: str, after: str) -> tuple[list[str], list[str]]:
    """The lines of both texts. A carriage return before the line feed is left out where every line has one."""
    has_crlf = all(text.count("\n") == text.count("\r\n") for text in (before, after) if text)
    found = []
    for text in (before, after):
        lines = (text.replace("\r\n", "\n") if has_crlf else text).split("\n")
        last = lines.pop()
        found.append([*lines, f"{last} {NO_NEWLINE}"] if last else lines)
    return found[0], found[1]


def _changes(old: list[str], new: list[str]) -> Iterator[tuple[int, int, int, int]]:
    """The ranges of lines that differ. Equal lines at both ends are found first: most changes are small."""
    same = 0
    while same < min(len(old), len(new)) and old[same] == new[same]:
        same += 1
    left = 0
    while left < min(len(old), len(new)) - same and old[-1 - left] == new[-1 - left]:
        left += 1
    a, b = old[same : len(old) - left], new[same : len(new) - left]
    if len(a) * len(b) > _MAX_COMPARED:
        yield same, same + len(a), same, same + len(b)
        return
    for tag, start, stop, new_start, new_stop in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if tag != "equal":
            yield start + same, stop + same, new_start + same, new_stop + same
