"""What a permission covers: exactly what it names, and never more because of how a shell reads a command."""

from pathlib import Path
from typing import Any

import pytest

from bartack.app.permissions import PermissionFile, Rule, RuledCall, choices_for, covering
from bartack.nouns.errors import BartackError


@pytest.fixture(autouse=True)
def _own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARTACK_CONFIG", str(tmp_path / "config" / "config.toml"))


GIT_LOG = Rule(families=("git log",))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    (project / "src" / "pkg").mkdir(parents=True)
    (project / "sub").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (project / "src" / "out").symlink_to(tmp_path / "elsewhere")
    (project / "src" / "settings").symlink_to(project / ".git")
    return project


def command(line: str, root: Path | None = None, **arguments: Any) -> RuledCall:
    return RuledCall("run_command", {"command": line, **arguments}, root=root)


def edit(path: object, root: Path | None, tool: str = "edit_file") -> RuledCall:
    return RuledCall(tool, {"path": path, "old": "a", "new": "b"}, root=root)


def test_a_family_covers_its_commands_in_the_project(root: Path) -> None:
    assert GIT_LOG.covers(command("git log --oneline -3 | head", root))
    assert GIT_LOG.covers(command("git log src", root, directory="sub"))
    assert not GIT_LOG.covers(command("git log --output=x", root))
    assert not GIT_LOG.covers(command("git log; touch x", root))
    assert not GIT_LOG.covers(command("git log", root, directory=3))
    assert not GIT_LOG.covers(command("git log"))  # where it would run is not known
    assert not GIT_LOG.covers(RuledCall("run_command", {"command": "git log"}, "digest of a foreign tool", root))


def test_families_of_several_rules_cover_a_line_together(root: Path) -> None:
    rules = [Rule(command="make"), Rule(families=("ruff check",)), Rule(families=("pytest",))]
    assert covering(rules, command("ruff check . && pytest -q", root)) == Rule(families=("ruff check", "pytest"))
    assert covering(rules[:2], command("ruff check . && pytest -q", root)) is None
    assert covering(rules[:1], command("pytest", root)) is None


def test_an_exact_command_covers_itself_in_its_directory_only() -> None:
    rule = Rule(command="make test && ls")
    assert rule.covers(command("make test && ls"))
    assert rule.covers(command("make test && ls", directory=".", timeout_ms=5))
    assert not rule.covers(command("make test && ls", directory="sub"))
    assert not rule.covers(command("make test && ls "))
    assert Rule(command="ls", directory="sub").covers(command("ls", directory="sub"))
    assert not rule.covers(RuledCall("other_tool", {"command": "make test && ls"}))
    assert not rule.covers(RuledCall("run_command", {"command": 3}))
    assert not rule.covers(RuledCall("run_command", {"command": "make test && ls"}, "digest of a foreign tool"))


def test_a_tool_is_covered_as_long_as_its_definition_stays() -> None:
    rule = Rule(tool="fetch", digest="d1")
    assert rule.covers(RuledCall("fetch", {}, "d1"))
    assert not rule.covers(RuledCall("fetch", {}, "d2"))
    assert not rule.covers(RuledCall("fetch", {}))
    assert not rule.covers(RuledCall("fetch2", {}, "d1"))
    assert covering([GIT_LOG, rule], RuledCall("fetch", {}, "d1")) == rule
    assert covering([GIT_LOG], RuledCall("fetch", {}, "d1")) is None
    foreign = Rule(tool="write_file", digest="d")  # a tool of a server that happens to have this name
    assert foreign.covers(RuledCall("write_file", {"path": "/x"}, "d"))
    assert foreign.text == "every call of write_file"


@pytest.mark.parametrize("path", ["src/a.py", "src", "src/pkg/new/b.py", "./src/a.py", "src/x/../a.py"])
def test_a_path_covers_the_files_below_it(path: str, root: Path) -> None:
    assert Rule(tool="edit_file", path="src").covers(edit(path, root))
    assert Rule(tool="edit_file").covers(edit(path, root))
    assert not Rule(tool="write_file", path="src").covers(edit(path, root))


@pytest.mark.parametrize(
    "path",
    ["a.py", "src2/a.py", "src/../a.py", "../project/a.py", "/etc/passwd", "src/out/a.py", "src\0", 3, None],
)
def test_a_path_covers_nothing_else(path: object, root: Path) -> None:
    assert not Rule(tool="edit_file", path="src").covers(edit(path, root))
    assert not Rule(tool="edit_file").covers(edit("src/a.py", None))


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".git/hooks/pre-commit",
        "src/.git/config",
        ".GIT/config",
        "src/../.git/config",
        "src/settings/config",  # a link to .git
        ".bartack/config.toml",
        ".bashrc",
        "src/.zshrc",
        ".envrc",
        "AGENTS.md",
        "src/CLAUDE.md",
        ".vscode/tasks.json",
        ".venv/bin/ruff",
        "node_modules/.bin/tsc",
        ".gitattributes",
        ".config/fish/config.fish",
        ".pre-commit-config.yaml",
        "src/.vimrc",
        ".cargo/config.toml",
        "sitecustomize.py",
        ".agents/skills/a/SKILL.md",
        ".githooks/pre-push",
        ".Rprofile",
        ".g\u200cit/config",  # some file systems ignore the invisible character
    ],
)
def test_what_programs_execute_is_always_asked_about(path: str, root: Path) -> None:
    for tool in ("edit_file", "write_file"):
        for rule in (
            Rule(tool=tool),
            Rule(tool=tool, path="."),
            Rule(tool=tool, path=".git"),
            Rule(tool=tool, path=path),
        ):
            assert not rule.covers(edit(path, root, tool))
        assert choices_for(edit(path, root, tool)) == []


def test_a_loop_of_links_is_asked_about(root: Path) -> None:
    (root / "a").symlink_to(root / "b")
    (root / "b").symlink_to(root / "a")
    assert not Rule(tool="edit_file").covers(edit("a", root))


def test_the_choices_describe_what_they_cover_from_narrow_to_wide(root: Path) -> None:
    choices = choices_for(command("git log -3", root))
    assert [choice.rule.text for choice in choices] == [
        "this exact command: git log -3",
        "git log with harmless options, such as git log --oneline -5, but not git log --output=names.txt",
        "every call of run_command",
    ]
    assert [choice.may_persist for choice in choices] == [True, True, False]
    assert (
        choices[1].rule.details[0].startswith("git log with revisions and files of this project, and: --abbrev-commit")
    )
    assert [choice.rule.text for choice in choices_for(command("git log --output=x", root, directory="sub"))] == [
        "this exact command in sub: git log --output=x",
        "every call of run_command",
    ]
    assert [choice.rule.text for choice in choices_for(edit("src/a.py", root))] == [
        "edit_file in src/a.py, except files that programs execute or obey (such as .git)",
        "edit_file in this project, except files that programs execute or obey (such as .git)",
    ]
    assert choices_for(RuledCall("fetch", {}, "d"))[0].rule == Rule(tool="fetch", digest="d")
    for choice in choices:
        assert choice.rule.covers(command("git log -3", root))


def test_a_rule_for_several_families_shows_each_of_them() -> None:
    assert Rule(families=("git log", "pytest")).text == (
        "git log and pytest with harmless options, such as git log --oneline -5 and pytest -q tests, but not "
        "git log --output=names.txt or pytest -p plugin; executes code of this project"
    )


@pytest.mark.parametrize("line", ["make", "git log", "git log | head"])
def test_a_rule_does_not_cover_leaving_the_sandbox_unless_it_says_so(line: str, root: Path) -> None:
    inside, leaving = command(line, root, unsandboxed=False), command(line, root, unsandboxed=True)
    rules = [choice.rule for choice in choices_for(inside)]
    assert rules == [choice.rule for choice in choices_for(command(line, root))]
    assert all(rule.covers(inside) for rule in rules)
    assert covering(rules, leaving) is None
    wider = [choice.rule for choice in choices_for(leaving)]
    assert len(wider) == len(rules)
    assert all("also outside the sandbox" in rule.text for rule in wider)
    assert all(rule.covers(inside) and rule.covers(leaving) for rule in wider)
    assert covering([GIT_LOG, Rule(families=("pytest",), unsandboxed=True)], leaving) is None
    with pytest.raises(ValueError, match="unsandboxed needs a rule for commands"):
        Rule(tool="edit_file", unsandboxed=True)


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
    file.path.write_text(file.path.read_text() + "# mine\n[[allow]]\nfamilies = ['ls', 'cat']\n")
    file.remove(1)
    assert file.rules() == (GIT_LOG, Rule(tool="fetch", digest="d"), Rule(families=("ls", "cat")))
    assert str(project) in file.path.read_text()
    assert "# mine" in file.path.read_text()
    assert PermissionFile(tmp_path).rules() == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[allow]\n", "not valid TOML"),
        ("[[allow]]\ncommand = 'a'\ntool = 'b'\n", "exactly one of"),
        ("[[allow]]\n", "exactly one of"),
        ("[[allow]]\nfamilies = ['git push']\n", "no family 'git push'"),
        ("[[allow]]\ntool = 'fetch'\npath = 'src'\n", "path needs one of the tools"),
        ("[[allow]]\nprefix = 'a'\n", "unknown field"),
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
    file.path.write_text("allow = [{families = ['ls']}]\n")
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
