"""Custom commands, skills and sub-agents: Markdown files of a project or of the user, with a header of ``key: value``.

They are read from Bartack's own folders and from those that other agents use, so that people need not copy them:

======== =============================================== ====================================================
         in the project                                  of the user
======== =============================================== ====================================================
commands .bartack/commands .claude/commands              the folder of config.toml, ~/.claude
skills   .bartack/skills .claude/skills .agents/skills   the folder of config.toml, ~/.claude, ~/.agents
agents   .bartack/agents .claude/agents                  the folder of config.toml, ~/.claude
======== =============================================== ====================================================

A command is ``NAME.md``, or ``FOLDER/NAME.md`` for ``/FOLDER:NAME``; a skill is ``NAME/SKILL.md``. Of two with the
same name, the one of the project counts, and in it the one nearest to the working directory. Those of a project are
used only in folders that the user trusts. Links that lead out of the project are not followed.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from bartack.app.settings import config_path
from bartack.tools import ToolDefinition, tool
from bartack.tools.output import ToolOutput
from bartack_code.workspace.project import EXTENSION_PLACES, folders_of_project, text_of_file

__all__ = ["Extension", "Extensions", "expanded", "load_extensions", "skill_text", "skill_tool"]

_USER = {
    "commands": (".claude/commands",),
    "skills": (".claude/skills", ".agents/skills"),
    "agents": (".claude/agents",),
}
_HEADER = re.compile(r"\A---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_FIELD = re.compile(r"([A-Za-z][\w-]*):[ \t]*(.*)")
_ARGUMENT = re.compile(r"\$(ARGUMENTS|[1-9])")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_MAX_FILES = 200  # per kind


class Extension(NamedTuple):
    """A command, a skill or a sub-agent."""

    name: str
    path: Path
    fields: Mapping[str, str]
    text: str

    @property
    def description(self) -> str:
        """What its header says about it, or its first line."""
        first_line = next(iter(self.text.strip().splitlines()), "")
        return " ".join((self.fields.get("description") or first_line.lstrip("# ")).split())


class Extensions(NamedTuple):
    """All of them by name, and the folders of the project that contain some, such as its ``.claude``."""

    commands: Mapping[str, Extension]
    skills: Mapping[str, Extension]
    agents: Mapping[str, Extension]
    project_folders: tuple[Path, ...] = ()


def load_extensions(directory: Path, home: Path, *, project: bool) -> Extensions:
    """The extensions for work in this directory; those of the project only with `project`."""
    folders = folders_of_project(directory.resolve(), home)
    by_kind: dict[str, dict[str, Extension]] = {}
    project_folders: dict[Path, None] = {}
    for kind, places in EXTENSION_PLACES.items():
        named = by_kind[kind] = {}
        for folder in (folder for folder in reversed(folders) if project and folder != home.resolve()):
            for place in places:
                for extension in _files_in(folder / place, kind, folders[0]):
                    project_folders[folder / extension.path.relative_to(folder).parts[0]] = None
                    named.setdefault(extension.name, extension)
        own = [(config_path().parent / kind, config_path().parent), *((home / place, home) for place in _USER[kind])]
        for own_place, top in own:
            for extension in _files_in(own_place, kind, top.resolve()):
                named.setdefault(extension.name, extension)
    return Extensions(by_kind["commands"], by_kind["skills"], by_kind["agents"], tuple(project_folders))


def _files_in(folder: Path, kind: str, top: Path) -> Iterator[Extension]:
    patterns = {"commands": ("*.md", "*/*.md"), "skills": ("*/SKILL.md",), "agents": ("*.md",)}[kind]
    try:
        paths = sorted(path for pattern in patterns for path in folder.glob(pattern))[:_MAX_FILES]
    except OSError:
        return
    for path in paths:
        text = text_of_file(path, top)
        fields, body = _split(text)
        if kind == "skills":
            name = path.parent.name
        else:
            name = ":".join((*path.relative_to(folder).parent.parts, path.stem))
        if text and all(_NAME.fullmatch(part) for part in name.split(":")):
            yield Extension(name, path, fields, body)


def _split(text: str) -> tuple[dict[str, str], str]:
    """The fields of the header, and the text below it. Only plain values are read, which all known files have."""
    header = _HEADER.match(text)
    if header is None:
        return {}, text
    fields: dict[str, str] = {}
    name = ""
    for line in header[1].splitlines():
        if field := _FIELD.fullmatch(line.rstrip()):
            name, value = field[1].lower(), field[2].strip()
            fields[name] = "" if value in (">", "|", ">-", "|-") else value.strip("\"'")
        elif name and line.startswith((" ", "\t")):  # a value that continues, or an item of a list
            item = line.strip()
            joined = f"{fields[name]}, {item[2:]}" if item.startswith("- ") else f"{fields[name]} {item}"
            fields[name] = joined.strip(", ")
    return fields, text[header.end() :]


def expanded(command: Extension, arguments: str) -> str:
    """The message of a command: its text with ``$ARGUMENTS`` and ``$1`` replaced, or with the arguments at the end."""
    try:
        words = shlex.split(arguments)
    except ValueError:  # an unclosed quotation mark
        words = arguments.split()

    def value(match: re.Match[str]) -> str:
        number = match[1]
        if number == "ARGUMENTS":
            return arguments
        return words[int(number) - 1] if int(number) <= len(words) else ""

    text = _ARGUMENT.sub(value, command.text).strip()
    has_place = _ARGUMENT.search(command.text) is not None
    return text if has_place or not arguments else f"{text}\n\n{arguments}"


# -- skills

_SKILLS_HEADING = "Skills, each with instructions for a kind of task. Before such a task, read them with use_skill:"


def skill_text(skills: Mapping[str, Extension]) -> str:
    """The list of skills for the instructions; empty if there are none. Their texts are read when they are needed."""
    lines = [f"- {skill.name}: {skill.description[:500]}" for skill in skills.values()]
    return "\n".join([_SKILLS_HEADING, *lines]) if lines else ""


def skill_tool(skills: Mapping[str, Extension]) -> ToolDefinition:
    """A tool with which a model reads a skill."""

    @tool(idempotent=True)
    async def use_skill(name: str) -> ToolOutput:
        """Read the instructions of a skill.

        Args:
            name: The name of the skill, from the list of skills.
        """
        skill = skills.get(name)
        if skill is None:
            return ToolOutput(f"There is no skill {name!r}. Skills: {', '.join(skills)}.", is_error=True)
        return ToolOutput(f"{skill.text.strip()}\n\n[files of this skill: {skill.path.parent}]", title=name)

    return use_skill
