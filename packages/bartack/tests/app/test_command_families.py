"""Families of commands: what a rule covers is what its table lists, whatever a command line looks like."""

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.app.command_families import FAMILIES, Family, families_in, is_covered, simple_commands
from bartack.tools.shell import shell_words
from tests.app.attack_lines import ATTACKS, attacked_project


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return attacked_project(tmp_path_factory.mktemp("families"))


@pytest.mark.parametrize("kind", ATTACKS)
def test_no_attack_is_covered_even_when_every_family_is_allowed(kind: str, project: Path) -> None:
    assert [line for line in ATTACKS[kind] if is_covered(line, FAMILIES, project, project)] == []


def test_the_table_of_attacks_is_long_enough_to_mean_something() -> None:
    assert len({line for lines in ATTACKS.values() for line in lines}) >= 1900


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_a_family_shows_what_it_covers_and_what_it_does_not(family: Family, project: Path) -> None:
    assert is_covered(family.example, [family.name], project, project)
    assert not is_covered(family.excluded, FAMILIES, project, project)


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("git log", ["git log"]),
        ("git log --oneline -20", ["git log"]),
        ("git --no-pager log -n 5 --author='A B' main..dev -- notes.txt", ["git log"]),
        ("git log -p | head -50", ["git log"]),
        ("git status -sb 2>/dev/null", ["git status"]),
        ("git diff --stat HEAD~1", ["git diff"]),
        ("git show HEAD:notes.txt", ["git show"]),
        ("git branch -avv", ["git branch"]),
        ("git grep -n foo -- sub", ["git grep"]),
        ("ls -la sub", ["ls"]),
        ("cat notes.txt", ["cat"]),
        ("head -n20 notes.txt", ["head"]),
        ("grep -rn 'foo bar' sub notes.txt", ["grep"]),
        ("grep -rnA 3 foo sub", ["grep"]),
        ("find . -name '*.py' -type f", ["find"]),
        ("sed -n 1,40p notes.txt", ["sed"]),
        ("cd sub && pytest -x -k 'a and not b' tests/test_x.py::test_y", ["pytest"]),
        ("ruff check . && mypy --strict sub", ["ruff check", "mypy"]),
        ("python -m pytest -q 2>&1 | tail -n 5", ["python -m pytest"]),
        ("go test ./... -run TestX", ["go test"]),
        ("cargo test --workspace name", ["cargo test"]),
        ("echo done; pwd", ["echo", "pwd"]),
    ],
)
def test_everyday_commands_are_covered_by_the_families_that_are_offered(
    line: str, names: list[str] | None, project: Path
) -> None:
    families = families_in(line)
    assert (None if families is None else [family.name for family in families]) == names
    if names is not None:
        assert is_covered(line, names, project, project)
        outside_filters = [name for name in names if name not in ("echo", "pwd")]
        assert not outside_filters or not is_covered(line, [], project, project)


def test_a_filter_needs_a_rule_only_for_files(project: Path) -> None:
    assert is_covered("git log | grep -i fix | sort | uniq -c | wc -l", ["git log"], project, project)
    assert not is_covered("git log; cat notes.txt", ["git log"], project, project)
    for recursive in ("grep -r fix", "grep -nr fix", "grep --recursive fix"):
        assert not is_covered(f"git log; {recursive}", ["git log"], project, project)
        assert is_covered(recursive, ["grep"], project, project)
    assert is_covered("cd sub", [], project, project)
    assert families_in("cd sub") is None


def test_git_is_asked_about_in_another_repository_below_the_project(project: Path) -> None:
    (project / ".git").mkdir(exist_ok=True)
    assert is_covered("git status", FAMILIES, project, project)
    assert is_covered("git status", FAMILIES, project, project / "sub")
    for folder in ("bare", "bare/refs", "nested", "worktree"):
        assert not is_covered("git status", FAMILIES, project, project / folder)
        assert is_covered("ls", FAMILIES, project, project / folder)


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True)


@pytest.mark.parametrize("is_split", [False, True])
def test_git_is_asked_about_where_it_looks_into_another_repository(is_split: bool, tmp_path: Path) -> None:
    root, nested, ran = tmp_path / "project", tmp_path / "project" / "nested", tmp_path / "ran"
    for folder in (root, nested):
        git(tmp_path, "init", "--quiet", str(folder))
        (folder / "a.txt").write_text("a")
        git(folder, "add", "a.txt")
        git(folder, "commit", "--quiet", "--message=a")
    looking = ["git status", "git diff", "git describe --always --dirty", "git log -p", "git show"]
    for line in looking:
        assert is_covered(line, FAMILIES, root, root)
    git(nested, "config", "core.fsmonitor", f"touch {ran}; true")
    git(root, "add", "nested")
    if is_split:
        git(root, "update-index", "--split-index")
    (nested / "a.txt").write_text("changed")
    for line in looking:
        assert not is_covered(line, FAMILIES, root, root)
        assert not is_covered(line, FAMILIES, root / "sub", root / "sub")
    for line in ("git branch -a", "git grep -n a", "git ls-files -m"):
        assert is_covered(line, FAMILIES, root, root)
        subprocess.run(line, shell=True, cwd=root, check=True, capture_output=True)
    assert not ran.exists()
    git(root, "status")
    assert ran.exists()  # so the attack is a real one


def test_git_with_a_repository_that_needs_no_folder_of_its_own_is_asked_about(tmp_path: Path) -> None:
    """git takes a folder for a repository, if it looks like one, where ``.git`` is none."""
    (tmp_path / ".git").mkdir()
    assert is_covered("git status", FAMILIES, tmp_path, tmp_path)
    for name in ("objects", "refs"):
        (tmp_path / name).mkdir()
    (tmp_path / "HEAD").write_text("ref: refs/heads/main")
    assert not is_covered("git status", FAMILIES, tmp_path, tmp_path)


def test_many_changes_of_directory_are_not_covered(project: Path) -> None:
    assert not is_covered("cd sub && " * 40 + "ls", FAMILIES, project, project)


def test_a_command_runs_in_the_directory_it_is_asked_for(project: Path) -> None:
    assert is_covered("ls link2", ["ls"], project, project / "sub")
    assert not is_covered("ls link", ["ls"], project, project / "sub")
    assert not is_covered("ls", ["ls"], project, project / "link")
    assert not is_covered("ls", ["ls"], project, Path("/"))


@pytest.mark.parametrize("folder", ["bin", "."])
def test_a_program_of_the_project_is_not_covered(
    folder: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of the project may be in PATH; what a model writes there is not the program that the rule names."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ls").write_text("#!/bin/sh")
    (tmp_path / "bin" / "ls").chmod(0o755)
    assert is_covered("ls", ["ls"], tmp_path, tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "bin") if folder == "bin" else ".")
    monkeypatch.chdir(tmp_path / "bin")
    assert not is_covered("ls", ["ls"], tmp_path, tmp_path)
    assert is_covered("ls", ["ls"], project, project) == (folder == "bin")


def test_git_takes_an_option_for_the_value_of_another_option(tmp_path: Path) -> None:
    """So the rules do not: the attacks on options with an optional value are real ones."""
    written = tmp_path / "written"
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    subprocess.run(["git", "-C", str(tmp_path), "diff", "-U", f"--output={written}"], check=True)
    assert written.exists()
    assert not is_covered(f"git diff -U --output={written}", FAMILIES, tmp_path, tmp_path)
    assert is_covered("git diff -U 3", FAMILIES, tmp_path, tmp_path)
    assert is_covered("head -n -3 a.txt", FAMILIES, tmp_path, tmp_path)


def test_what_is_covered_is_shown() -> None:
    assert FAMILIES["git branch"].text == (
        "git branch with nothing, and: --all --list --remotes --show-current -a -r -v -vv"
    )
    assert "executes code of this project" in FAMILIES["pytest"].text


def test_an_option_without_its_value_is_not_covered(project: Path) -> None:
    assert not is_covered("head -n", ["head"], project, project)
    assert is_covered("head -n 3 notes.txt", ["head"], project, project)


def test_a_loop_of_links_is_not_covered(project: Path, tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert not is_covered("cat a", ["cat"], tmp_path, tmp_path)


_PIECES = st.sampled_from(["x", "'a b'", '"c d"', "x'y'\"z\"", "-3", "ä=ö", "''", "2>&1", "a:b", "n~1", ">/dev/null"])
_PRINT = 'p() { cat >/dev/null </dev/null; printf \'%s\\n\' "$#" "$@" >>"$OUT"; }\n'


@given(st.lists(st.tuples(st.lists(_PIECES, max_size=4), st.sampled_from(["|", "&&", ";"])), min_size=1, max_size=3))
def test_simple_commands_are_those_of_the_shell(parts: list[tuple[list[str], str]]) -> None:
    line = " ".join(f"{operator} p {' '.join(pieces)}" for pieces, operator in parts)[2:].strip()
    commands = simple_commands(line)
    assert commands is not None
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "words")
        environment = {"OUT": str(output), "PATH": "/usr/bin:/bin"}
        words = [word for _, *arguments in commands for word in (str(len(arguments)), *arguments)]
        for shell in ("/bin/sh", shell_words("")[0]):
            output.unlink(missing_ok=True)
            subprocess.run([shell, "-c", _PRINT + line], env=environment, capture_output=True, check=True)
            printed = output.read_text().splitlines()
            assert sorted(printed) == sorted(words)  # the commands of a pipeline run side by side
