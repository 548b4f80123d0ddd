"""Finds the text that an edit means where its whitespace is not exactly that of the file.

Models copy code with other indentation, or lose blanks at the ends of lines. Such a text is compared line by line
without the whitespace at both ends, and replaced if exactly one place of the file matches. The indentation of the new
text is then shifted by as much as that of the old one was off. Anything less similar is never replaced: the nearest
lines are only named in the error.
"""

from difflib import SequenceMatcher
from typing import NamedTuple

__all__ = ["LooseMatch", "loose_matches", "nearest_lines", "reindented"]

_MAX_LINES = 20_000  # the nearest lines of a longer file are not looked for
_LEAST_SIMILAR = 0.5


class LooseMatch(NamedTuple):
    """A place that matches without regard to the whitespace around lines."""

    start: int
    end: int
    text: str


def loose_matches(text: str, target: str) -> list[LooseMatch]:
    """The places whose lines are those of the target but for the whitespace at their ends."""
    wanted = [line.strip() for line in target.strip("\n").splitlines()]
    if not any(wanted):
        return []
    lines = text.splitlines(keepends=True)
    stripped = [line.strip() for line in lines]
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    matches = []
    for first in range(len(lines) - len(wanted) + 1):
        last = first + len(wanted)
        if stripped[first:last] == wanted:
            start, end = starts[first], starts[last]
            if not target.endswith("\n"):
                end -= len(lines[last - 1]) - len(lines[last - 1].rstrip("\r\n"))
            matches.append(LooseMatch(start, end, text[start:end]))
    return matches


def reindented(new_text: str, target: str, matched: str) -> str:
    """The new text, indented as the file is and not as the target was."""
    assumed, actual = _indentation(target), _indentation(matched)
    if assumed == actual:
        return new_text
    lines = new_text.split("\n")
    return "\n".join(
        actual + line.removeprefix(assumed) if line.strip() and line.startswith(assumed) else line for line in lines
    )


def nearest_lines(text: str, target: str) -> tuple[int, str] | None:
    """The lines that are most similar to the target, and the number of the first one; None if none are similar."""
    lines, wanted = text.splitlines(), target.strip("\n").splitlines()
    if not wanted or not lines or len(lines) > _MAX_LINES:
        return None
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted[0].strip())
    best, best_ratio = 0, 0.0
    for number, line in enumerate(lines):
        matcher.set_seq1(line.strip())
        if matcher.real_quick_ratio() > best_ratio and matcher.quick_ratio() > best_ratio:
            ratio = matcher.ratio()
            if ratio > best_ratio:
                best, best_ratio = number, ratio
    if best_ratio < _LEAST_SIMILAR:
        return None
    return best + 1, "\n".join(lines[best : best + len(wanted)])


def _indentation(text: str) -> str:
    """The whitespace before the first line that is not blank."""
    line = next((line for line in text.split("\n") if line.strip()), "")
    return line[: len(line) - len(line.lstrip())]
