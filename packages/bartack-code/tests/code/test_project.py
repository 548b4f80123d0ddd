"""Instructions and environment of a project, as sent to the model."""

import os
import re
import subprocess
from datetime import date
from pathlib import Path

import pytest

from bartack_code.workspace.project import environment_text, git_state, init_prompt, project_files, project_instructions


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
    instructions = project_instructions(
        "Be brief.", tmp_path, project_files(tmp_path, tmp_path / "x"), date(2026, 1, 31)
    )
    assert instructions.startswith("Be brief.\n\n")
    assert instructions.endswith("AGENTS.md:\n\nUse tabs.")


def test_the_state_of_git_is_described(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "-b", "main", str(tmp_path)], check=True)
    assert git_state(tmp_path) == "branch main, nothing changed"
    for number in range(25):
        (tmp_path / f"{number}.txt").touch()
    state = git_state(tmp_path)
    assert state.startswith("branch main, 25 changed:\n?? 0.txt\n")
    assert state.endswith("... and 5 more")
    assert git_state(tmp_path / "nowhere") == "not a repository"
    subprocess.run(["git", "-C", str(tmp_path), "add", "--all"], check=True)
    assert git_state(tmp_path).startswith("branch main, 25 changed:\nA  0.txt\n")
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    subprocess.run(["git", "-C", str(tmp_path), *identity, "commit", "-qm", "first"], check=True)
    assert git_state(tmp_path) == "branch main, nothing changed"
    subprocess.run(["git", "-C", str(tmp_path), "checkout", "-q", "--detach"], check=True)
    (tmp_path / "0.txt").write_text("changed")
    assert re.fullmatch(r"branch [0-9a-f]{7,}, 1 changed:\n M 0.txt", git_state(tmp_path))


def test_git_runs_no_program_that_a_repository_names(tmp_path: Path) -> None:
    """The configuration of an unpacked archive may name filters, hooks, a monitor of files and a pager."""
    project, marker = tmp_path / "project", tmp_path / "executed"
    subprocess.run(["git", "init", "-q", "-b", "main", str(project)], check=True)
    (project / "a.txt").write_text("one")
    subprocess.run(["git", "-C", str(project), "add", "--all"], check=True)
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    subprocess.run(["git", "-C", str(project), *identity, "commit", "-qm", "first"], check=True)
    (project / ".gitattributes").write_text("* filter=evil diff=evil\n")
    evil = f"sh -c 'touch {marker}; cat'"
    for name in ("filter.evil.clean", "filter.evil.process", "core.fsmonitor", "core.pager", "diff.evil.textconv"):
        subprocess.run(["git", "-C", str(project), "config", name, evil], check=True)
    (project / ".git" / "hooks" / "post-index-change").write_text(f"#!/bin/sh\ntouch {marker}\n")
    (project / ".git" / "hooks" / "post-index-change").chmod(0o755)
    (project / "a.txt").write_text("two")
    assert git_state(project).startswith("branch main, 2 changed:\n M a.txt")
    assert not marker.exists()
    subprocess.run(["git", "-C", str(project), "status"], check=False, capture_output=True)
    assert marker.exists()  # so it was the isolation that stopped it


@pytest.mark.parametrize(
    "target", ["/proc/self/environ", "/dev/stdin", "/dev/zero", "secret", "fifo", "loop", "folder"]
)
def test_instructions_are_regular_files_of_the_project(target: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (tmp_path / "secret").write_text("private key")
    os.mkfifo(project / "fifo")
    (project / "folder").mkdir()
    (project / "loop").symlink_to("AGENTS.md")
    (project / "AGENTS.md").symlink_to(tmp_path / "secret" if target == "secret" else target)
    assert project_files(project) == []


def test_a_link_inside_the_project_is_followed(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "CLAUDE.md").write_text("Be kind.")
    (tmp_path / "AGENTS.md").symlink_to("CLAUDE.md")
    assert [file.text for file in project_files(tmp_path)] == ["Be kind."]


def test_the_request_to_write_instructions_keeps_what_is_there(tmp_path: Path) -> None:
    assert "write AGENTS.md in this directory" in init_prompt(tmp_path)
    (tmp_path / "CLAUDE.md").touch()
    assert "CLAUDE.md exists: read it first" in init_prompt(tmp_path)
