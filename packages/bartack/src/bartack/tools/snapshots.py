"""`GitSnapshots`: the state of a git work tree as one hash, and what has changed since an earlier one or since HEAD.

A snapshot is the hash of a git tree with all files that git does not ignore, committed or not. Nothing in the
repository is changed. A temporary git directory holds the index and new objects, and reads the repository's own objects
as alternates. So the configuration of the repository, which can make git run programs, has no effect either, and
neither has that of the user. Repositories inside the work tree are left out, because git would obey theirs.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from weakref import finalize

from bartack.nouns.messages import FileDiff
from bartack.tools.sandbox import read_regular_file
from bartack.tools.shell import safe_environment

__all__ = ["GitSnapshots", "names_repositories", "repositories_in"]

_TIMEOUT_S = 20.0  # a work tree that takes longer has no snapshots; not measured
_MAX_LINK_BYTES = 10_000
_MAX_INDEX_BYTES = 500_000_000  # about four million files
_NESTED = "160000 "  # how git lists a repository inside the work tree
_NESTED_MODE = 0o160000.to_bytes(4, "big")  # how it stands in the index
_NO_CONFIG = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}


class GitSnapshots:
    """Snapshots of the work tree that contains a directory. Not for several threads at once."""

    def __init__(self, root: Path, forbidden: Iterable[Path] = ()) -> None:
        """The `forbidden` files and directories are never read."""
        self._root = root.resolve()
        self._left_out = [path.resolve() for path in forbidden]
        self._removal: Callable[[], object] | None = None  # removes the temporary git directory
        self._environment: dict[str, str] | None = None
        self._is_usable = True

    def take(self) -> str | None:
        """The snapshot; None if the directory is not in a git work tree, or git is missing or too slow."""
        if not self._is_usable:
            return None
        try:
            if self._environment is None:
                self._environment = self._prepared()
            # A new repository is not asked for anything when it is added, but from then on git would run a git of its
            # own there, which obeys the configuration.
            nested = (f":(top,exclude,literal){path}" for path in self._nested())
            self._git("add", "--all", "--", *self._pathspecs(), *nested)
            return self._git("write-tree").strip()
        except (OSError, subprocess.SubprocessError):
            self._is_usable = False  # it would fail again before every model call
            return None

    def changes(self, since: str) -> tuple[FileDiff, ...] | None:
        """The files that differ from an earlier snapshot; None if that was not taken here."""
        snapshot = self.take()
        if snapshot is None:
            return None
        try:
            lines = self._git("diff-tree", "-r", "-z", "--numstat", "--no-renames", since, snapshot)
        except (OSError, subprocess.SubprocessError):
            return None
        return tuple(_file_diff(line) for line in lines.split("\0") if line)

    def status(self) -> list[str] | None:
        """The files that differ from HEAD, as ``git status --porcelain`` prints them; None as for `take`.

        Submodules are left out: git would read their configuration, too.
        """
        try:
            if self._environment is None:
                self._environment = self._prepared()
            lines = self._git("status", "--porcelain", "--ignore-submodules=all", "--untracked-files=normal")
        except (OSError, subprocess.SubprocessError):
            return None
        return lines.splitlines()

    def branch(self) -> str | None:
        """The name of the branch, or the commit without one; None if the directory is not in a git work tree."""
        for words in (("symbolic-ref", "--quiet", "--short", "HEAD"), ("rev-parse", "--short", "HEAD")):
            try:
                return self._ask(*words).strip()
            except subprocess.CalledProcessError:
                continue
            except (OSError, subprocess.SubprocessError):
                break
        return None

    def nested_repositories(self) -> list[str]:
        """The paths of the repositories in the index, from the top of the work tree; none without a work tree."""
        try:
            if self._environment is None:
                self._environment = self._prepared()
            return self._nested()
        except (OSError, subprocess.SubprocessError):
            return []

    def close(self) -> None:
        """Remove the temporary git directory."""
        self._environment = None
        if self._removal is not None:
            self._removal()

    def _prepared(self) -> dict[str, str]:
        """The environment for git, with a directory of our own whose index begins as that of the repository."""
        top, objects, index = self._ask(
            "rev-parse", "--show-toplevel", "--git-path", "objects", "--git-path", "index"
        ).splitlines()
        # The configuration may name another work tree, whose files are none of the repository's business.
        if not (self._root.is_relative_to(top) and os.path.lexists(Path(top, ".git"))):
            raise subprocess.SubprocessError(f"{self._root} is not in the work tree of its repository")
        own = Path(tempfile.mkdtemp(prefix="bartack-snapshots-"))
        self._removal = finalize(self, shutil.rmtree, own, ignore_errors=True)  # even if `close` is never called
        environment = safe_environment(os.environ) | _NO_CONFIG
        _run(["git", "init", "--quiet", "--bare", str(own)], environment)
        index_data = read_regular_file(self._root / index, _MAX_INDEX_BYTES)
        if index_data is not None:  # a new repository has none; with it, unchanged files need not be read
            (own / "index").write_bytes(index_data)
        with suppress(subprocess.CalledProcessError):  # no commits yet
            (own / "HEAD").write_text(self._ask("rev-parse", "--verify", "--quiet", "HEAD"))
        return environment | {
            "GIT_DIR": str(own),
            "GIT_WORK_TREE": top,
            "GIT_INDEX_FILE": str(own / "index"),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str((self._root / objects).resolve()),
        }

    def _ask(self, *words: str) -> str:
        """What git prints about the repository itself; only for commands that run nothing of its configuration."""
        return _run(["git", "-C", str(self._root), *words], safe_environment(os.environ) | _NO_CONFIG)

    def _pathspecs(self) -> list[str]:
        inside = [path for path in self._left_out if path.is_relative_to(self._root)]
        return [f":(literal){self._root}", *(f":(exclude,literal){path}" for path in inside)]

    def _nested(self) -> list[str]:
        entries = self._git("ls-files", "--stage", "-z", "--", ":(top)").split("\0")
        return [entry.partition("\t")[2] for entry in entries if entry.startswith(_NESTED)]

    def _git(self, *words: str) -> str:
        assert self._environment is not None
        return _run(["git", *words], self._environment)


def repositories_in(folder: Path) -> list[Path]:
    """The folders with the index and the configuration of a repository that git may find with its top here: ``.git``,
    or where a file with that name leads, and the folder itself, which git tries after a ``.git`` that is none."""
    candidates: list[Path] = []
    file = folder / ".git"
    if os.path.lexists(file):
        data = read_regular_file(file, _MAX_LINK_BYTES)
        candidates.append(file if data is None else folder / os.fsdecode(data).removeprefix("gitdir:").strip())
    # The file commondir names the folder that has the objects and the configuration.
    names = {name for name in ("HEAD", "objects", "refs", "commondir") if os.path.lexists(folder / name)}
    if names >= {"HEAD", "objects", "refs"} or names >= {"HEAD", "commondir"}:
        candidates.append(folder)
    return candidates


def names_repositories(repository: Path) -> bool:
    """Whether the index of a repository may name other repositories, inside its work tree.

    Commands such as ``git status`` look into these, and obey their configuration. The index is searched as it is, since
    git may be missing; that a hash in it contains the same bytes is very unlikely, and does no harm.
    """
    indexes = (repository / "index", *repository.glob("sharedindex.*"))  # the second, where the index is split
    return any(_NESTED_MODE in (read_regular_file(index, _MAX_INDEX_BYTES) or b"") for index in indexes)


def _run(words: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        words,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=_TIMEOUT_S,
        check=True,
    )
    return done.stdout.decode("utf-8", "replace")


def _file_diff(line: str) -> FileDiff:
    added, removed, name = line.split("\t", 2)
    return FileDiff(
        file=name,
        additions=None if added == "-" else int(added),
        deletions=None if removed == "-" else int(removed),
    )
