"""Information about a project for the model: its instruction files, and the state of its environment.

Instructions are in AGENTS.md, or in CLAUDE.md where there is none, from the working directory upward to the top of the
git work tree; outside of one, to the user's home, or else in the working directory only. So a file left by
another user in a shared folder such as /tmp is not read. The chat uses them in folders that the user trusts
(`bartack_code.workspace.trust`).
"""

import os
import platform
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import NamedTuple

from bartack.app.safe_text import valid_text
from bartack.tools.sandbox import read_regular_file
from bartack.tools.snapshots import GitSnapshots

NAMES = ("AGENTS.md", "CLAUDE.md")
EXTENSION_PLACES = {
    "commands": (".bartack/commands", ".claude/commands"),
    "skills": (".bartack/skills", ".claude/skills", ".agents/skills"),
    "agents": (".bartack/agents", ".claude/agents"),
}
"""Where a project has commands, skills and sub-agents (`bartack_code.workspace.extensions`)."""
HOOK_FILE = ".bartack/hooks.toml"
_MAX_CHARS = 40_000  # limit for one file, about 10,000 tokens
_MAX_CHANGED = 20  # files that are named

INIT_PROMPT = """\
Look at this project: its README, its build files, and how its source and tests are laid out. Then write {name} in \
this directory: the instructions that an agent needs before it changes something here. Include how to build, to run \
the tests (all of them, and a single one) and to check the style; how the source is organised; and the conventions \
that are not obvious. Keep it under 60 lines, state only what you have seen, and do not list every file.{existing}"""
_EXISTING = " {name} exists: read it first, keep what is right, and improve it."


class ProjectFile(NamedTuple):
    """A file with instructions."""

    path: Path
    text: str
    is_memory: bool = False  # The user's own, for all projects; see `bartack_code.workspace.memory`.


def named_instructions(directory: Path) -> dict[Path, list[Path]]:
    """What each folder of the project has for the model: instructions, extensions and hooks, the outermost first.
    Nothing is opened. Extensions in the user's home are the user's own."""
    home = Path.home().resolve()
    extensions = [place for places in EXTENSION_PLACES.values() for place in places]
    named: dict[Path, list[Path]] = {}
    for folder in folders_of_project(directory.resolve(), home):
        places = [*NAMES, HOOK_FILE, *([] if folder == home else extensions)]
        paths = [folder / place for place in places if os.path.lexists(folder / place)]
        if paths:
            named[folder] = paths
    return named


def project_files(directory: Path, home: Path | None = None) -> list[ProjectFile]:
    """The files with instructions that apply in this directory, the outermost first."""
    files = []
    folders = folders_of_project(directory.resolve(), home or Path.home())
    for folder in folders:
        for name in NAMES:
            text = text_of_file(folder / name, folders[0])
            if text:
                files.append(ProjectFile(folder / name, text))
                break
    return files


def folders_of_project(directory: Path, home: Path) -> list[Path]:
    """The folders that are read, the outermost first."""
    above = [directory, *directory.parents]
    top = next((folder for folder in above if (folder / ".git").exists()), None)
    if top is None:
        top = home.resolve() if directory.is_relative_to(home.resolve()) else directory
    return [folder for folder in reversed(above) if folder.is_relative_to(top)]


def text_of_file(path: Path, top: Path) -> str:
    """The text of a file; empty if there is none that can be read.

    Only a regular file below `top` counts: a repository could contain a link to a private key, which would be sent to
    the provider, or to a device, which would never end.
    """
    try:
        real_path = path.resolve(strict=True)
    except (OSError, RuntimeError):  # RuntimeError: a loop of links
        return ""
    data = read_regular_file(real_path, 4 * _MAX_CHARS) if real_path.is_relative_to(top) else None
    text = "" if data is None else data.decode("utf-8", "replace")
    return text.strip() if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS].strip()}\n[... cut here ...]"


def project_instructions(base: str, directory: Path, files: Iterable[ProjectFile], today: date) -> str:
    """The instructions for a model that works in this directory."""
    blocks = [base, environment_text(directory, today)]
    for file in files:
        subject = "the user for all projects" if file.is_memory else "this project"
        blocks.append(f"Instructions of {subject}, from {valid_text(str(file.path))}:\n\n{file.text}")
    return "\n\n".join(filter(None, blocks))


def environment_text(directory: Path, today: date) -> str:
    """Directory, platform, date and the state of git, as they are now."""
    lines = [
        f"Working directory: {valid_text(str(directory))}",
        f"Platform: {platform.system()} {platform.machine()}",
        f"Date: {today:%A, %d %B %Y}",
        f"Git: {git_state(directory)}",
    ]
    return "The environment at the start of this chat:\n" + "\n".join(lines)


def git_state(directory: Path) -> str:
    """The branch and the files that have changed, in one line for each.

    Asked without the configuration of the repository, in which an unpacked archive can name programs for git to run.
    """
    snapshots = GitSnapshots(directory)
    branch = snapshots.branch()
    if branch is None:
        return "not a repository"
    changed = snapshots.status()
    snapshots.close()
    if changed is None:
        return f"branch {branch}"
    if not changed:
        return f"branch {branch}, nothing changed"
    remainder = [f"... and {len(changed) - _MAX_CHANGED} more"] if len(changed) > _MAX_CHANGED else []
    return "\n".join([f"branch {branch}, {len(changed)} changed:", *changed[:_MAX_CHANGED], *remainder])


def init_prompt(directory: Path) -> str:
    """The request to write a file with instructions for this directory, or to improve the one that is there."""
    existing = [name for name in NAMES if (directory / name).exists()]
    name = existing[0] if existing else NAMES[0]
    return INIT_PROMPT.format(name=name, existing=_EXISTING.format(name=name) if existing else "")
