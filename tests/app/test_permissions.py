"""What a permission covers: exactly what it names, and never more because of how a shell reads a command."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.app.permissions import (
    PermissionFile,
    Rule,
    choices_for,
    covering,
    plain_words,
    suggested_prefix,
)
from bartack.nouns.errors import BartackError


@pytest.fixture(autouse=True)
def _own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARTACK_CONFIG", str(tmp_path / "config" / "config.toml"))


def covers(rule: Rule, command: str, **arguments: Any) -> bool:
    return rule.covers("run_command", {"command": command, **arguments})


GIT_LOG = Rule(prefix="git log")


@pytest.mark.parametrize(
    "command",
    ["git log", "git log --oneline -3", "  git\tlog  ", "git 'log' \"--author=A B\"", "git log a=b", "''git log"],
)
def test_a_prefix_covers_commands_that_start_with_its_words(command: str) -> None:
    assert covers(GIT_LOG, command)


@pytest.mark.parametrize(
    "command",
    [
        "git logs",
        "git",
        "git -C / log",
        "git log && rm x",
        "git log & rm x",
        "git log; rm x",
        "git log | sh",
        "git log || rm x",
        "git log $(rm x)",
        "git log `rm x`",
        'git log "$(rm x)"',
        'git log "`rm x`"',
        "git log $X",
        "git log > file",
        "git log >file",
        "git log < file",
        "git log <<EOF\nEOF",
        "git log\nrm x",
        "git log\rrm x",
        "git log \\\nx",
        "git log \\; x",
        "git log *",
        "git log ?",
        "git log [a]",
        "git log {a,b}",
        "git log ~",
        "git log # note",
        "git log (x)",
        "GIT_PAGER=sh git log",
        "'GIT_PAGER'=sh git log",
        "! git log",
        "git log 'open",
        'git log "open',
        "git log 'a\nb'",
        "git log \x00",
        "git log \x0b rm",
        "",
        " ",
    ],
)
def test_a_prefix_never_covers_what_is_more_than_words(command: str) -> None:
    assert not covers(GIT_LOG, command)


def test_an_exact_command_covers_itself_in_its_directory_only() -> None:
    rule = Rule(command="make test && ls")
    assert covers(rule, "make test && ls")
    assert covers(rule, "make test && ls", directory=".", timeout_ms=5)
    assert not covers(rule, "make test && ls", directory="sub")
    assert not covers(rule, "make test && ls ")
    assert covers(Rule(command="ls", directory="sub"), "ls", directory="sub")
    assert not rule.covers("other_tool", {"command": "make test && ls"})
    assert not rule.covers("run_command", {"command": 3})
    assert not rule.covers("run_command", {"command": "make test && ls"}, "digest of a foreign tool of this name")


def test_a_tool_is_covered_as_long_as_its_definition_stays() -> None:
    rule = Rule(tool="fetch", digest="d1")
    assert rule.covers("fetch", {}, "d1")
    assert not rule.covers("fetch", {}, "d2")
    assert not rule.covers("fetch", {}, None)
    assert not rule.covers("fetch2", {}, "d1")
    assert covering([GIT_LOG, rule], "fetch", {}, "d1") == rule
    assert covering([GIT_LOG], "fetch", {}, "d1") is None


@given(st.lists(st.sampled_from(["git", "log", "'a b'", '"c d"', "x'y'\"z\"", "-3", "ä=ö", "''"]), min_size=1))
def test_plain_words_are_those_of_the_shell(pieces: list[str]) -> None:
    command = " ".join(["echo", *pieces])
    words = plain_words(command)
    assert words is not None
    assert words[1:] == [piece.replace("'", "").replace('"', "") for piece in pieces]


def test_the_shell_agrees(tmp_path: Path) -> None:
    commands = ["printf %s: a 'b c' \"d e\"", "printf %s: x'y'\"z\"w ''", "printf %s: ä=ö a:b,c+d@e%f^g ./h"]
    for command in commands:
        words = plain_words(command)
        assert words is not None
        shell = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True, cwd=tmp_path)
        assert shell.stdout == "".join(f"{word}:" for word in words[2:])


@given(st.text(alphabet="git log;&|$`'\"\\\n<>(){}*?#~!=a", max_size=20))
def test_a_prefix_needs_words_whatever_is_written(tail: str) -> None:
    if covers(GIT_LOG, f"git log {tail}"):
        outside = "".join(piece for index, piece in enumerate(tail.split("'")) if index % 2 == 0)
        assert not set(";&|$`\n<>(){}*?#~") & set("".join(outside.split('"')[::2]))


@pytest.mark.parametrize(
    ("command", "prefix"),
    [
        ("git log --oneline", "git log"),
        ("npm run test", "npm run test"),
        ("uv run pytest -q", "uv run pytest"),
        ("uv run python x.py", None),
        ("uv run --with x pytest", None),
        ("cargo run", None),
        ("git -C sub status", None),
        ("git -c alias.x=y x", None),
        ("git reset HEAD", None),
        ("go test ./...", "go test"),
        ("ls -la src", "ls"),
        ("pytest tests/x.py", "pytest"),
        ("cat notes.txt", "cat"),
        ("/usr/bin/make test", "/usr/bin/make test"),
        ("ls; rm x", None),
        ("bash -c ls", None),
        ("python3.11 x.py", None),
        ("/usr/bin/env ls", None),
        ("rm -rf build", None),
        ("find . -delete", None),
        ("tar xf a.tar", None),
        ("'a b' c", None),
    ],
)
def test_a_prefix_is_suggested_only_where_it_does_not_cover_everything(command: str, prefix: str | None) -> None:
    assert suggested_prefix(command) == prefix


def test_the_choices_describe_what_they_cover_from_narrow_to_wide() -> None:
    found = choices_for("run_command", {"command": "git log -3"})
    assert [choice.rule.text for choice in found] == [
        "this exact command: git log -3",
        "commands that start with: git log",
        "every call of run_command",
    ]
    assert [choice.may_persist for choice in found] == [True, True, False]
    assert [choice.rule.text for choice in choices_for("run_command", {"command": "sh x", "directory": "sub"})] == [
        "this exact command in sub: sh x",
        "every call of run_command",
    ]
    assert choices_for("fetch", {}, "d")[0].rule == Rule(tool="fetch", digest="d")
    for choice in found:
        assert choice.rule.covers("run_command", {"command": "git log -3"})


def test_rules_are_kept_in_a_file_that_can_be_edited(tmp_path: Path) -> None:
    project = tmp_path / "my project"
    project.mkdir()
    file = PermissionFile(project)
    assert file.rules() == ()
    odd = Rule(command='echo "a"\n\x7f\tä \\')
    for rule in (GIT_LOG, odd, Rule(tool="fetch", digest="d"), GIT_LOG):
        file.add(rule)
    assert file.rules() == (GIT_LOG, odd, Rule(tool="fetch", digest="d"))
    assert file.path.parent == tmp_path / "config" / "permissions"
    assert file.path.name.startswith("my-project-")
    file.path.write_text(file.path.read_text() + "# mine\n[[allow]]\nprefix = 'ls'\n")
    file.remove(1)
    assert file.rules() == (GIT_LOG, Rule(tool="fetch", digest="d"), Rule(prefix="ls"))
    assert str(project) in file.path.read_text()
    assert "# mine" in file.path.read_text()
    assert PermissionFile(tmp_path).rules() == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[allow]\n", "not valid TOML"),
        ("[[allow]]\ncommand = 'a'\ntool = 'b'\n", "exactly one of"),
        ("[[allow]]\n", "exactly one of"),
        ("[[allow]]\nprefix = 'a; b'\n", "not made of plain words"),
        ("[[allow]]\nprefixes = 'a'\n", "unknown field"),
        ("[[allow]]\ntool = 3\n", "Expected `str"),
    ],
)
def test_an_invalid_file_is_an_error_that_names_it(tmp_path: Path, text: str, problem: str) -> None:
    file = PermissionFile(tmp_path)
    file.path.parent.mkdir(parents=True)
    file.path.write_text(text)
    with pytest.raises(BartackError, match=problem) as raised:
        file.rules()
    assert str(file.path) in str(raised.value)
    with pytest.raises(BartackError):
        file.add(GIT_LOG)
    assert file.path.read_text() == text


def test_other_problems_with_the_file_are_errors_too(tmp_path: Path) -> None:
    file = PermissionFile(tmp_path)
    file.path.parent.mkdir(parents=True)
    file.path.write_bytes(b"\xff")
    with pytest.raises(BartackError, match="not UTF-8"):
        file.rules()
    file.path.write_text("allow = [{prefix = 'ls'}]\n")
    with pytest.raises(BartackError, match="layout"):
        file.remove(0)
    file.path.unlink()
    file.path.mkdir()
    with pytest.raises(BartackError, match="cannot be read"):
        file.rules()
    folder = file.path.parent
    file.path.rmdir()
    folder.rmdir()
    folder.write_text("in the way")
    with pytest.raises(BartackError, match=r"cannot be (read|written)"):
        file.add(GIT_LOG)
