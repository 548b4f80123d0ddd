"""Instructions and environment of a project, as sent to the model."""

import subprocess
from datetime import date
from pathlib import Path

from bartack.app.project import environment_text, git_state, init_prompt, project_files, project_instructions


def test_instructions_are_read_upward_to_the_top_of_the_repository(tmp_path: Path) -> None:
    inner = tmp_path / "repo" / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "AGENTS.md").write_text("outside")
    (tmp_path / "repo" / ".git").mkdir()
    (tmp_path / "repo" / "CLAUDE.md").write_text("top\n")
    (tmp_path / "repo" / "a" / "AGENTS.md").write_text("")
    (inner / "AGENTS.md").write_text("inner")
    (inner / "CLAUDE.md").write_text("not read")
    assert [file.text for file in project_files(inner)] == ["top", "inner"]


def test_outside_a_repository_home_is_the_limit(tmp_path: Path) -> None:
    inner = tmp_path / "home" / "a"
    inner.mkdir(parents=True)
    (tmp_path / "AGENTS.md").write_text("of another user")
    (tmp_path / "home" / "AGENTS.md").write_text("mine")
    (inner / "AGENTS.md").write_text("inner")
    assert [file.text for file in project_files(inner, tmp_path / "home")] == ["mine", "inner"]
    assert [file.text for file in project_files(inner, tmp_path / "elsewhere")] == ["inner"]
    (inner / "AGENTS.md").write_text("x" * 100_000)
    assert project_files(inner, tmp_path / "elsewhere")[0].text.endswith("[... cut here ...]")


def test_the_environment_is_described(tmp_path: Path) -> None:
    text = environment_text(tmp_path, date(2026, 1, 31))
    assert f"Working directory: {tmp_path}" in text
    assert "Date: Saturday, 31 January 2026" in text
    assert "Git: not a repository" in text
    (tmp_path / "AGENTS.md").write_text("Use tabs.")
    whole = project_instructions("Be brief.", tmp_path, project_files(tmp_path, tmp_path / "x"), date(2026, 1, 31))
    assert whole.startswith("Be brief.\n\n")
    assert whole.endswith("AGENTS.md:\n\nUse tabs.")


def test_the_state_of_git_is_described(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "-b", "main", str(tmp_path)], check=True)
    assert git_state(tmp_path) == "branch main, nothing changed"
    for number in range(25):
        (tmp_path / f"{number}.txt").touch()
    state = git_state(tmp_path)
    assert state.startswith("branch main, 25 changed:\n?? 0.txt\n")
    assert state.endswith("... and 5 more")
    assert git_state(tmp_path / "nowhere") == "not available"


def test_the_request_to_write_instructions_keeps_what_is_there(tmp_path: Path) -> None:
    assert "write AGENTS.md in this directory" in init_prompt(tmp_path)
    (tmp_path / "CLAUDE.md").touch()
    assert "CLAUDE.md exists: read it first" in init_prompt(tmp_path)
