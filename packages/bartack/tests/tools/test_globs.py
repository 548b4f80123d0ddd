"""Ignore rules, compared with git itself, and globs."""

import subprocess
from pathlib import Path
from shutil import which

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bartack.tools.globs import is_ignored, matches_glob, parse_ignore_rules

PATHS = ("a", "b.log", "x/a", "x/b.log", "x/y/a", "x/y/b.log", "x/y/z/c", "[a]", "a b", "!a", "#a", "d/x/a")
LINES = (
    "a", "/a", "a/", "x/", "/x", "x/a", "x/*", "x/**", "**/a", "x/**/a", "**/y/**", "*.log", "!b.log", "!x/y/b.log",
    "?", "[ab]", "[!a]", "[a-c]*", "\\#a", "\\!a", "# comment", "", "a b", "a\\ b", "a  ", "y/", "*", "!*/", "*/y",
    "\\[a\\]", "[", "x/y/*/c", "**", "/**/c", "!/a",
)  # fmt: skip


@pytest.fixture(scope="module")
def work_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if which("git") is None:
        pytest.skip("needs git")
    root = tmp_path_factory.mktemp("tree")
    subprocess.run(["git", "init", "-q", root], check=True)
    for path in PATHS:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    return root


def ignored_by_us(text: str) -> set[str]:
    rules = tuple(parse_ignore_rules(text, ""))

    def is_out(path: str) -> bool:
        parts = path.split("/")
        above = ["/".join(parts[:depth]) for depth in range(1, len(parts))]
        return any(is_ignored(rules, folder, is_directory=True) for folder in above) or is_ignored(
            rules, path, is_directory=False
        )

    return {path for path in PATHS if is_out(path)}


def ignored_by_git(root: Path, text: str) -> set[str]:
    (root / ".gitignore").write_text(text)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--others", "--exclude-per-directory=.gitignore"],
        cwd=root, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(PATHS) - set(listed.stdout.split("\0"))


@pytest.mark.parametrize("line", LINES)
def test_each_rule_ignores_what_git_ignores(work_tree: Path, line: str) -> None:
    assert ignored_by_us(line) == ignored_by_git(work_tree, line)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(LINES), max_size=6))
def test_several_rules_ignore_what_git_ignores(work_tree: Path, lines: list[str]) -> None:
    text = "\n".join(lines)
    assert ignored_by_us(text) == ignored_by_git(work_tree, text)


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.py", "a/b.py", True),
        ("a/*.py", "a/b/c.py", False),
        ("a/**/c.py", "a/c.py", True),
        ("**", "a/b", True),
        ("{a,b{c,d}}.py", "bd.py", True),
        ("{a,b{c,d}}.py", "b.py", False),
        ("{a}.py", "{a}.py", True),
        ("[z-a].py", "[z-a].py", True),
        ("a?c", "a/c", False),
        ("[!b]", "c", True),
        ("A.py", "a.py", False),
    ],
)
def test_globs(pattern: str, path: str, expected: bool) -> None:
    assert matches_glob(pattern, path) is expected
