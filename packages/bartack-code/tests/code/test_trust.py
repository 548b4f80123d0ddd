"""Folders whose instructions the user has agreed to use."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from bartack.nouns.errors import BartackError
from bartack_code.workspace.trust import is_trusted, trust, trust_file, untrusted


@pytest.fixture(autouse=True)
def _own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARTACK_CONFIG", str(tmp_path / "config" / "config.toml"))


def test_trust_covers_a_folder_and_those_below_it(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "sub").mkdir(parents=True)
    assert not is_trusted(project)
    trust(project)
    trust(project)
    assert json.loads(trust_file().read_text()) == {str(project): True}
    assert is_trusted(project)
    assert is_trusted(project / "sub")
    assert not is_trusted(tmp_path)
    assert not is_trusted(tmp_path / "project2")
    (tmp_path / "link").symlink_to(project)
    assert is_trusted(tmp_path / "link")


def test_trust_in_the_home_of_the_user_does_not_cover_what_is_cloned_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / "clone").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    trust(home)
    trust(tmp_path)
    assert is_trusted(home)
    assert not is_trusted(home / "clone")


def test_trust_does_not_cover_a_repository_that_is_cloned_below_it(tmp_path: Path) -> None:
    clone = repository(tmp_path / "project" / "clones" / "evil")
    (clone / "sub").mkdir()
    trust(tmp_path / "project")
    assert is_trusted(tmp_path / "project" / "clones")
    assert not is_trusted(clone)
    assert not is_trusted(clone / "sub")
    configure(clone, "core.fsmonitor", "./evil")
    assert programs_of(clone) == ("core.fsmonitor",)
    trust(clone)
    assert is_trusted(clone / "sub")


def test_an_invalid_list_trusts_nothing_and_a_folder_in_its_place_is_an_error(tmp_path: Path) -> None:
    trust_file().parent.mkdir()
    trust_file().write_text("[")
    assert not is_trusted(tmp_path)
    trust_file().unlink()
    trust_file().mkdir()
    assert not is_trusted(tmp_path)
    with pytest.raises(BartackError, match=r"trusted folders .*cannot be written"):
        trust(tmp_path)


def repository(folder: Path) -> Path:
    subprocess.run(["git", "init", "--quiet", "--template=", str(folder)], check=True)
    return folder


def configure(folder: Path, name: str, value: str) -> None:
    subprocess.run(["git", "-C", str(folder), "config", name, value], check=True)


def programs_of(folder: Path) -> tuple[str, ...]:
    brought = untrusted(folder)
    return () if brought is None else brought.programs


def test_a_folder_with_instructions_is_asked_about_by_their_names(tmp_path: Path) -> None:
    project = repository(tmp_path / "project")
    (project / "sub").mkdir()
    assert untrusted(project) is None
    os.mkfifo(project / "AGENTS.md")  # whoever opens it waits
    (project / "sub" / "CLAUDE.md").symlink_to("missing")
    brought = untrusted(project / "sub")
    assert brought is not None
    assert brought.instructions == (project / "AGENTS.md", project / "sub" / "CLAUDE.md")
    assert brought.folders == (project, project / "sub")
    trust(project)
    assert untrusted(project / "sub") is None


def test_a_folder_with_extensions_or_hooks_is_asked_about_by_their_names(tmp_path: Path) -> None:
    project = repository(tmp_path / "project")
    (project / ".bartack").mkdir()
    os.mkfifo(project / ".bartack" / "hooks.toml")  # whoever opens it waits
    (project / ".claude" / "skills").mkdir(parents=True)
    brought = untrusted(project)
    assert brought is not None
    assert brought.instructions == (project / ".bartack" / "hooks.toml", project / ".claude" / "skills")
    assert brought.folders == (project,)
    trust(project)
    assert untrusted(project) is None


def test_a_plain_clone_brings_no_programs_along(tmp_path: Path) -> None:
    origin = repository(tmp_path / "origin")
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    subprocess.run(["git", "-C", str(origin), *identity, "commit", "--quiet", "--allow-empty", "-m", "a"], check=True)
    subprocess.run(["git", "clone", "--quiet", str(origin), str(tmp_path / "clone")], check=True)
    configure(tmp_path / "clone", "user.name", "A B")
    subprocess.run(["git", "-C", str(tmp_path / "clone"), "worktree", "add", "-q", str(tmp_path / "tree")], check=True)
    for folder in (origin, tmp_path / "clone", tmp_path / "tree"):
        assert untrusted(folder) is None


@pytest.mark.parametrize(
    "name",
    [
        "filter.evil.clean",
        "filter.evil.process",
        "diff.evil.textconv",
        "diff.evil.command",
        "diff.external",
        "core.fsmonitor",
        "core.pager",
        "core.editor",
        "core.hookspath",
        "core.sshcommand",
        "core.worktree",
        "core.attributesfile",
        "include.path",
        "includeif.gitdir:/.path",
        "alias.status",
        "gpg.program",
        "credential.helper",
        "merge.evil.driver",
        "submodule.evil.update",
        "remote.origin.uploadpack",
        "url.ext::sh.insteadof",
        "protocol.ext.allow",
        "sequence.editor",
        "pager.log",
        "uploadpack.packobjectshook",
        "gc.recentobjectshook",
        "init.templatedir",
        "pull.twohead",
    ],
)
def test_a_repository_that_names_programs_is_asked_about(tmp_path: Path, name: str) -> None:
    project = repository(tmp_path / "project")
    configure(project, name, "./evil")
    assert programs_of(project) == (name,)
    trust(project)
    assert untrusted(project) is None


def test_hooks_and_configuration_that_is_elsewhere_are_asked_about(tmp_path: Path) -> None:
    project = repository(tmp_path / "project")
    (project / ".git" / "hooks").mkdir()
    (project / ".git" / "hooks" / "pre-commit.sample").touch()
    assert untrusted(project) is None
    (project / ".git" / "hooks" / "pre-commit").touch()
    assert programs_of(project) == ("hooks/pre-commit",)
    elsewhere, outer = tmp_path / "elsewhere", tmp_path / "outer"
    (project / ".git").rename(elsewhere)
    (project / ".git").write_text("gitdir: ../elsewhere\n")
    assert programs_of(project) == ("hooks/pre-commit",)
    elsewhere.rename(outer)
    elsewhere.mkdir()
    (elsewhere / "commondir").write_text("../outer\n")
    (elsewhere / "config.worktree").write_text("[core]\nfsmonitor = ./evil\n")
    assert programs_of(project) == ("core.fsmonitor", "hooks/pre-commit")


def nest(inner: Path, outer: Path) -> None:
    """Name one repository in the index of another."""
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(inner), *identity, "commit", "-q", "--allow-empty", "-m", "a"], check=True)
    subprocess.run(["git", "-C", str(outer), "add", inner.name], check=True, capture_output=True)


def test_the_repositories_that_git_looks_into_are_asked_about(tmp_path: Path) -> None:
    project = repository(tmp_path / "project")
    sub, inner = repository(project / "sub"), repository(project / "sub" / "inner")
    nest(inner, sub)
    nest(sub, project)
    configure(inner, "core.fsmonitor", "./evil")
    assert programs_of(inner) == ("core.fsmonitor",)
    assert programs_of(project) == ("sub: inner: core.fsmonitor",)
    configure(sub, "filter.evil.clean", "./evil")
    assert programs_of(project) == ("sub: filter.evil.clean", "sub: inner: core.fsmonitor")
    trust(project)
    assert untrusted(project) is None


def test_repositories_inside_each_other_are_looked_at_to_a_limit(tmp_path: Path) -> None:
    folder = project = repository(tmp_path / "project")
    for _ in range(6):
        inner = repository(folder / "n")
        nest(inner, folder)
        folder = inner
    assert programs_of(project) == ("n: n: n: n: n: ...",)


def test_a_folder_that_is_a_repository_itself_is_asked_about(tmp_path: Path) -> None:
    project = tmp_path / "project"
    subprocess.run(["git", "init", "--quiet", "--template=", "--bare", str(project)], check=True)
    assert untrusted(project) is None
    configure(project, "core.fsmonitor", "./evil")
    (project / ".git").mkdir()  # git tries the folder after it
    assert programs_of(project) == ("core.fsmonitor",)


@pytest.mark.parametrize("kind", ["pipe", "device", "broken"])
def test_configuration_that_cannot_be_read_is_asked_about(tmp_path: Path, kind: str) -> None:
    project = repository(tmp_path / "project")
    config = project / ".git" / "config"
    config.unlink()
    if kind == "pipe":
        os.mkfifo(config)
    elif kind == "device":
        config.symlink_to("/dev/zero")
    else:
        config.write_text("[core\n")
    assert programs_of(project) == ("config",)


def test_without_git_nothing_obeys_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = repository(tmp_path / "project")
    configure(project, "core.fsmonitor", "./evil")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert untrusted(project) is None
