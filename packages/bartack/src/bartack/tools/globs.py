"""Glob patterns and `.gitignore` rules, both compiled to regular expressions over paths with slashes.

A glob is read the way models and shells write it. ``*`` stays inside one name, ``**`` spans any number of directories,
including none, ``{a,b}`` is either of the two, and a leading ``./`` means nothing. A pattern without a slash matches
names at any depth; one with a slash matches whole paths. `.gitignore` has the same wildcards, so that one translation
serves both; its rules add an order (the last match decides), negation, and patterns for directories only.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

__all__ = ["IgnoreRule", "is_ignored", "matches_glob", "parse_ignore_rules", "spans_directories"]

_MAX_ALTERNATIVES = 1_000  # a pattern with braces may have this many


def matches_glob(pattern: str, *paths: str) -> bool:
    """Whether one of the paths matches the pattern."""
    compiled = _compiled_glob(pattern)
    return any(compiled.fullmatch(path) is not None for path in paths)


def spans_directories(pattern: str) -> bool:
    """Whether a pattern can match files in directories below the one it is applied to."""
    return "/" in pattern.removeprefix("./").lstrip("/") or "**" in pattern


class IgnoreRule(NamedTuple):
    """A line of an ignore file."""

    regex: re.Pattern[str]
    is_negated: bool
    directories_only: bool


def parse_ignore_rules(text: str, folder: str) -> Iterator[IgnoreRule]:
    """The rules of the `.gitignore` in a folder, which is given by its path from the top, "" for the top itself."""
    base = f"{re.escape(folder)}/" if folder else ""
    for line in text.splitlines():
        pattern = re.sub(r"(?<!\\)\s+$", "", line)
        if not pattern or pattern.startswith("#"):
            continue
        is_negated = pattern.startswith("!")
        pattern = pattern.removeprefix("!")
        directories_only, pattern = pattern.endswith("/"), pattern.rstrip("/")
        anywhere = "" if "/" in pattern else "(?:.*/)?"
        body = _translated(pattern.removeprefix("/"))
        try:
            yield IgnoreRule(re.compile(f"{base}{anywhere}{body}", re.DOTALL), is_negated, directories_only)
        except re.error:  # a range that is the wrong way round, which matches nothing useful in git either
            continue


def is_ignored(rules: Sequence[IgnoreRule], path: str, *, is_directory: bool) -> bool:
    """What the last rule says that matches the path; a path that no rule matches is not ignored."""
    for rule in reversed(rules):
        if (is_directory or not rule.directories_only) and rule.regex.fullmatch(path):
            return not rule.is_negated
    return False


@cache
def _compiled_glob(pattern: str) -> re.Pattern[str]:
    alternatives = []
    for alternative in _without_braces(pattern):
        path = re.sub(r"^(?:\./+)+", "", alternative).lstrip("/")
        path = f"{path}**" if path.endswith("/") else path
        anywhere = "" if "/" in path else "(?:.*/)?"
        alternatives.append(f"{anywhere}{_translated(path)}")
    try:
        return re.compile("|".join(alternatives), re.DOTALL)
    except re.error:  # such as the range [z-a]
        return re.compile(f"(?:.*/)?{re.escape(pattern)}")


def _without_braces(pattern: str) -> list[str]:
    """The patterns that braces stand for. Braces that are not closed, or have no comma, are ordinary characters."""
    patterns = [pattern]
    finished: list[str] = []
    while patterns and len(patterns) + len(finished) < _MAX_ALTERNATIVES:
        current = patterns.pop()
        group = re.search(r"\{([^{}]*,[^{}]*)\}", current)  # the innermost braces first
        if group is None:
            finished.append(current)
            continue
        for choice in group[1].split(","):
            patterns.append(current[: group.start()] + choice + current[group.end() :])
    return finished + patterns


_TOKEN = re.compile(
    r"""
    (?P<folders> (?:^|(?<=/)) \*\*/+ )        # **/ : any directories, or none
  | (?P<below> (?:^|(?<=/)) \*\* $ )          # a/** : everything below a
  | (?P<star> \*+ )
  | (?P<any> \? )
  | (?P<set> \[ [!^]? \]? [^\]/]* \] )
  | \\ (?P<escaped> . )
  | (?P<plain> . )
    """,
    re.VERBOSE | re.DOTALL,
)


def _translated(pattern: str) -> str:
    return "".join(_regex_for(token) for token in _TOKEN.finditer(pattern))


def _regex_for(token: re.Match[str]) -> str:
    match token.lastgroup:
        case "folders":
            return "(?:[^/]+/)*"
        case "below":
            return ".+"
        case "star":
            return "[^/]*"
        case "any":
            return "[^/]"
        case "set":
            inside = token["set"][1:-1]
            negation = "^/" if inside[0] in "!^" else ""
            members = (inside[1:] if negation else inside).replace("\\", "\\\\").replace("[", "\\[")
            return f"[{negation}{members.replace(']', chr(92) + ']')}]"
        case _:
            return re.escape(token["escaped"] or token["plain"])
