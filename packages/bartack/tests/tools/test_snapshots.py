"""Snapshots of a git work tree: the same files give the same name, and the repository is not touched."""

import gc
import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from bartack.nouns.config import RuntimeConfig
from bartack.nouns.messages import FileDiff
from bartack.tools import LocalRuntime
from bartack.tools.snapshots import GitSnapshots


def git(folder: Path, *words: str) -> str:
    names = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    return subprocess.run(["git", "-C", str(folder), *names, *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "a.txt").write_text("one\ntwo\n")
    (folder / ".gitignore").write_text("*.log\n")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder


def state_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted((folder / ".git").rglob("*")) if path.is_file()}


def test_a_snapshot_names_the_files_that_git_does_not_ignore(repository: Path) -> None:
    """003-3.6.1"""
    before = state_of(repository)
    snapshots = GitSnapshots(repository)
    first = snapshots.take()
    assert first == git(repository, "rev-parse", "HEAD^{tree}").strip()
    (repository / "debug.log").write_text("ignored")
    assert snapshots.take() == first
    (repository / "new.txt").write_text("x\n")
    second = snapshots.take()
    assert second not in (None, first)
    (repository / "new.txt").unlink()
    assert snapshots.take() == first == GitSnapshots(repository).take()
    assert state_of(repository) == before
    snapshots.close()


def test_changes_are_counted_in_lines(repository: Path) -> None:
    """003-3.8.1"""
    snapshots = GitSnapshots(repository)
    first = snapshots.take()
    assert first is not None
    (repository / "a.txt").write_text("one\n2\nthree\n")
    (repository / "b c.txt").write_text("x\n")
    (repository / "d.bin").write_bytes(bytes(range(256)))
    assert snapshots.changes(first) == (
        FileDiff(file="a.txt", additions=2, deletions=1),
        FileDiff(file="b c.txt", additions=1, deletions=0),
        FileDiff(file="d.bin"),
    )
    assert snapshots.changes("0" * 40) is None
    snapshots.close()


def test_a_repository_cannot_make_git_run_a_program(repository: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    git(repository, "config", "filter.evil.clean", f"touch {ran}; cat")
    git(repository, "config", "core.fsmonitor", f"touch {ran}")
    (repository / ".gitattributes").write_text("* filter=evil\n")
    (repository / "a.txt").write_text("changed\n")
    snapshots = GitSnapshots(repository)
    assert snapshots.take() is not None
    snapshots.close()
    assert not ran.exists()


@pytest.mark.parametrize("is_tracked", [True, False])
def test_a_repository_inside_another_cannot_make_git_run_a_program(
    repository: Path, tmp_path: Path, is_tracked: bool
) -> None:
    ran, nested = tmp_path / "ran", repository / "nested"
    git(repository, "init", "--quiet", "nested")
    (nested / "b.txt").write_text("b")
    git(nested, "add", "--all")
    git(nested, "commit", "--quiet", "-m", "first")
    if is_tracked:
        git(repository, "add", "nested")
    git(nested, "config", "core.fsmonitor", f"touch {ran}")
    snapshots = GitSnapshots(repository)
    assert snapshots.status() == ([] if is_tracked else ["?? nested/"])
    first = snapshots.take()
    assert first is not None
    (nested / "b.txt").write_text("changed")
    (repository / "a.txt").write_text("changed\n")
    assert snapshots.changes(first) == (FileDiff(file="a.txt", additions=1, deletions=2),)
    snapshots.close()
    assert not ran.exists()
    git(repository, "status", "--ignored")
    assert ran.exists() == is_tracked  # so it was the isolation that stopped it


def test_another_work_tree_that_the_configuration_names_is_not_listed(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "letter.txt").touch()
    for folder in (tmp_path, tmp_path / "private"):
        git(repository, "config", "core.worktree", str(folder))
        snapshots = GitSnapshots(repository)
        assert snapshots.status() is None
        assert snapshots.take() is None
        snapshots.close()


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_an_index_that_is_no_regular_file_is_not_read(repository: Path, kind: str) -> None:
    index = repository / ".git" / "index"
    index.unlink()
    os.mkfifo(index) if kind == "pipe" else index.symlink_to("/dev/zero")
    snapshots = GitSnapshots(repository)
    assert snapshots.take() is not None
    snapshots.close()


def test_forbidden_files_are_not_read(repository: Path) -> None:
    snapshots = GitSnapshots(repository, [repository / "sessions.db"])
    first = snapshots.take()
    (repository / "sessions.db").write_text("x")
    assert snapshots.take() == first
    snapshots.close()


def test_nothing_is_left_behind_even_without_close(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = repository.parent / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    snapshots = GitSnapshots(repository)
    assert snapshots.take() is not None
    assert len(list(folder.iterdir())) == 1
    del snapshots
    gc.collect()
    assert list(folder.iterdir()) == []


def test_without_a_work_tree_there_are_no_snapshots(tmp_path: Path) -> None:
    snapshots = GitSnapshots(tmp_path)
    assert snapshots.take() is None
    assert snapshots.changes("0" * 40) is None
    snapshots.close()


def test_a_new_repository_and_a_folder_inside_one_have_snapshots(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    inner = tmp_path / "inner"
    inner.mkdir()
    snapshots = GitSnapshots(inner)
    empty = snapshots.take()
    (tmp_path / "outside.txt").write_text("x")
    assert snapshots.take() == empty
    (inner / "inside.txt").write_text("x")
    assert snapshots.take() != empty
    snapshots.close()


async def test_a_runtime_has_snapshots_only_if_asked(repository: Path) -> None:
    """003-3.6.1"""
    assert not RuntimeConfig().snapshots
    quiet = LocalRuntime(repository)
    assert (await quiet.snapshot(), await quiet.changes("0" * 40)) == (None, None)
    runtime = LocalRuntime(repository, snapshots=True)
    await runtime.connect()
    first = await runtime.snapshot()
    assert first is not None
    (repository / "a.txt").write_text("x\n")
    assert await runtime.changes(first) == (FileDiff(file="a.txt", additions=1, deletions=2),)
    await runtime.close()
    assert await runtime.snapshot() is not None  # closed runtimes may be connected again
    await runtime.close()
