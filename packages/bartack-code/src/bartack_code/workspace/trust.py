"""Which folders the user trusts: their instruction files become a part of what the model is told, and tools may change
files and run commands there.

A cloned repository is written by others, and its instructions reach the model before the user has read them. An
unpacked archive may bring the configuration of a repository along, too, in which git finds programs to run. So the user
is asked once for a folder that has either. Until then, nothing of it is used, and tools only read. The list is in the
user's configuration folder, where no repository can add itself. Trust covers the folders below, as the instructions do,
up to the next repository, which others may have written. Trust in the user's home covers only the files there: most of
what is unpacked is below it.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from bartack.app.errors import with_hint
from bartack.app.settings import config_path
from bartack.nouns.errors import BartackError, ErrorCode
from bartack.tools.mcp.saved_files import change_file, read_file
from bartack.tools.sandbox import read_regular_file
from bartack.tools.shell import safe_environment
from bartack.tools.snapshots import GitSnapshots, named_folder, names_repositories, repositories_in
from bartack_code.workspace.project import named_instructions

__all__ = ["Untrusted", "is_trusted", "trust", "trust_file", "untrusted"]

# What `git init`, `git clone` and everyday commands write into the configuration of a repository. Whatever else is in
# it may name a program (filters, hooks, aliases, pagers, helpers), or another file with more configuration.
_HARMLESS_CONFIGURATION = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|autocrlf|eol)"
    r"|remote\..*\.(url|pushurl|fetch|tagopt|mirror|prune)|branch\..*\.(remote|merge|rebase|pushremote|description)"
    r"|user\.(name|email|signingkey)|submodule\.(.*\.(url|active)|active)|(push|fetch)\.\w+|pull\.(rebase|ff)"
    r"|init\.defaultbranch|gc\.(auto\w*|pruneexpire|.*reflogexpire\w*)|maintenance\.(auto\w*|strategy)"
    r"|extensions\.(objectformat|partialclone|refstorage|worktreeconfig)|lfs\.repositoryformatversion"
)
_MAX_CONFIGURATION_BYTES = 1_000_000
_MOST_NESTED = 4  # how deep repositories are looked for inside others; what is deeper counts as a program


class Untrusted(NamedTuple):
    """What a directory would bring along if it were trusted."""

    folders: tuple[Path, ...]
    """The folders to trust."""
    instructions: tuple[Path, ...]
    """Files and folders with instructions, commands, skills, sub-agents and hooks."""
    programs: tuple[str, ...]
    """What in the repository names programs that git runs."""


def untrusted(directory: Path) -> Untrusted | None:
    """What the user has to be asked about before it is used; None if there is nothing, or all of it is trusted. Only
    names are read of the instructions, and git is not run in the repository."""
    named = {folder: paths for folder, paths in named_instructions(directory).items() if not is_trusted(folder)}
    top = next((top for top in (directory.resolve(), *directory.resolve().parents) if repositories_in(top)), None)
    programs = () if top is None or is_trusted(top) else _programs_of(top)
    folders = [*named, *([top] if top is not None and programs else [])]
    instructions = tuple(path for paths in named.values() for path in paths)
    return Untrusted(tuple(dict.fromkeys(folders)), instructions, programs) if folders else None


def _programs_of(top: Path, depth: int = 0) -> tuple[str, ...]:
    """The settings of a repository that may name programs, and its hooks; also those of the repositories inside it
    that its index names, because git looks into these."""
    programs: list[str] = []
    for repository in repositories_in(top):
        common = named_folder(repository / "commondir") or repository
        settings = [*_settings_in(common / "config"), *_settings_in(repository / "config.worktree")]
        programs += (name for name in settings if not _HARMLESS_CONFIGURATION.fullmatch(name))
        with suppress(OSError):
            hooks = (hook.name for hook in (common / "hooks").iterdir() if hook.suffix != ".sample")
            programs += sorted(f"hooks/{name}" for name in hooks)
        if names_repositories(repository):
            programs += _nested_programs(top, depth)
    return tuple(programs)


def _nested_programs(top: Path, depth: int) -> Iterator[str]:
    snapshots = GitSnapshots(top)
    for path in snapshots.nested_repositories():
        programs = _programs_of(top / path, depth + 1) if depth < _MOST_NESTED else ("...",)
        yield from (f"{path}: {program}" for program in programs)
    snapshots.close()


def _settings_in(file: Path) -> list[str]:
    """The names in a file with configuration, as git reads it. A file that cannot be read counts as one."""
    data = read_regular_file(file, _MAX_CONFIGURATION_BYTES)
    if data is None:
        return [file.name] if os.path.lexists(file) else []
    try:
        listed = subprocess.run(
            ["git", "config", "--file", "-", "--no-includes", "--null", "--name-only", "--list"],
            input=data,
            cwd="/",
            env=safe_environment(os.environ) | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"},
            capture_output=True,
            check=True,
        )
    except FileNotFoundError:  # without git, nothing obeys the file
        return []
    except subprocess.CalledProcessError:
        return [file.name]
    return list(dict.fromkeys(listed.stdout.decode("utf-8", "replace").split("\0")[:-1]))


def trust_file() -> Path:
    """The file that lists the trusted folders. If it cannot be read, no folder is trusted."""
    return config_path().with_name("trusted.json")


def is_trusted(folder: Path) -> bool:
    """Whether the user trusts this folder, or one above it in the same repository."""
    trusted, home = read_file(trust_file()), Path.home().resolve()
    covering = folder.resolve()
    while trusted.get(str(covering)) is not True:
        if _is_another_repository(covering) or home.is_relative_to(covering.parent):
            return False
        covering = covering.parent
    return True


def _is_another_repository(folder: Path) -> bool:
    """Whether a folder is the top of a repository that is not also above it. A worktree below its repository is none:
    the repository names its worktrees, so that no unpacked file can claim to be one."""
    file = folder / ".git"
    own = named_folder(file)
    if own is None:
        return os.path.lexists(file)
    own = Path(os.path.realpath(own))
    is_below = own.parent.name == "worktrees" and own.parents[1].name == ".git" and own.parents[2] in folder.parents
    named = named_folder(own / "gitdir")
    return not (is_below and named is not None and os.path.realpath(named) == str(file))


def trust(folder: Path) -> None:
    """Trust a folder from now on. Raises `BartackError` if the list cannot be written."""
    try:
        change_file(trust_file(), lambda trusted: trusted.update({str(folder.resolve()): True}))
    except OSError as error:
        problem = f"The list of trusted folders {trust_file()} cannot be written: {error.strerror}."
        raise with_hint(BartackError(problem, code=ErrorCode.INVALID_CONFIG), "Fix or delete it.") from error
