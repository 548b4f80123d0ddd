"""`bartack chat --worktree`: a git worktree of its own for a chat, so that several can work on one project at once.

It is in ``.bartack/worktrees`` of the project, where git ignores it, on a new branch that starts at HEAD. A worktree in
which nothing was changed or committed is removed at the end of the chat, together with its branch.
"""

import os
import subprocess
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from bartack.app.errors import with_hint
from bartack.nouns.errors import BartackError, ErrorCode

__all__ = ["Worktree", "new_worktree"]

_FOLDER = Path(".bartack", "worktrees")


class Worktree(NamedTuple):
    """A worktree, its branch, and where that began."""

    path: Path
    branch: str
    base: str
    directory: Path
    """The directory in it that corresponds to the one in which it was created."""

    def remove_if_unused(self) -> bool:
        """Remove the worktree and its branch if nothing was changed or committed there; whether they are gone."""
        try:
            is_unused = _git(self.path, "rev-parse", "HEAD") == self.base and not _git(
                self.path, "status", "--porcelain", "--ignored"
            )
            if is_unused:
                top = self.path.parents[len(_FOLDER.parts)]
                _git(top, "worktree", "remove", str(self.path))
                _git(top, "branch", "--delete", "--force", self.branch)
        except BartackError:  # removed or moved by hand
            return False
        return is_unused


def new_worktree(directory: Path, now: datetime) -> Worktree:
    """A new worktree of the repository that contains the directory. Raises `BartackError` with a hint.

    Git may run programs that the repository's configuration names, so only for folders that the user trusts.
    """
    top = Path(_git(directory, "rev-parse", "--show-toplevel"))
    base = _git(top, "rev-parse", "--verify", "HEAD")
    folder = top / _FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    stem = f"chat-{now:%Y%m%d-%H%M%S}"
    names = (f"{stem}{f'-{number}' * (number > 1)}" for number in range(1, 1_000))
    name = next(name for name in names if not (folder / name).exists())
    _git(top, "worktree", "add", "--quiet", "-b", name, str(folder / name), base)
    inside = directory.resolve().relative_to(top.resolve())
    (folder / name / inside).mkdir(parents=True, exist_ok=True)  # it may have no committed files
    return Worktree(folder / name, name, base, folder / name / inside)


def _git(directory: Path, *words: str) -> str:
    """What git prints. Raises `BartackError` if it fails."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(directory), *words]
    try:
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    except FileNotFoundError as error:
        missing = BartackError("--worktree needs git.", code=ErrorCode.INVALID_CONFIG)
        raise with_hint(missing, "Install git.") from error
    except subprocess.CalledProcessError as error:
        reason = error.stderr.strip().removeprefix("fatal: ")
        failed = BartackError(f"git {words[0]} failed: {reason}", code=ErrorCode.INVALID_CONFIG)
        raise with_hint(failed, "--worktree needs a git repository with a commit.") from error
    return done.stdout.strip()
