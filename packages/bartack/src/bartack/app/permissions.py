"""Which tool calls a user has allowed without being asked: rules, what each one covers, and the file that keeps them.

A rule covers one exact command, families of commands, the files below a path, or one tool. Families
(`bartack.app.command_families`) list the options and operands that may stand in a command; no rule compares the
beginning of a command line. Some files are always asked about, because a program executes what they contain: those of
git and of Bartack, and start-up files of shells.

The file is one per directory, in the user's configuration folder and not in the directory itself: a repository must not
bring permissions along, and tools cannot write there.

    [[allow]]
    command = "make test"        # this command and nothing else

    [[allow]]
    families = ["git log"]       # git log with options that only print, on its own or piped into head, grep or sort

    [[allow]]
    command = "make image"
    unsandboxed = true           # also if the call asks to leave the sandbox

    [[allow]]
    tool = "edit_file"           # edits in src and below
    path = "src"

    [[allow]]
    tool = "fetch"               # every call of this tool
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import msgspec

from bartack.app.command_families import FAMILIES, families_in, is_covered
from bartack.app.errors import with_hint
from bartack.app.settings import KeptMode, config_path
from bartack.nouns.errors import BartackError, ErrorCode

COMMAND_TOOL = "run_command"
FILE_TOOLS = frozenset(("write_file", "edit_file"))
MEMORY_TOOL = "edit_memory"  # changes the instructions for all projects, so no rule covers it

# Files and folders whose content some program executes or obeys without asking: hooks and the pager of git, rules
# and commands of Bartack, tasks of editors, what shells read when they start, installed programs and libraries, and the
# instructions that agents follow in every later session.
_PROTECTED = frozenset(
    """
    .git .hg .svn .bartack .husky .vscode .idea .envrc .direnv .profile .login .bashrc .bash_profile .bash_login
    .bash_logout .bash_aliases .zshrc .zshenv .zprofile .zlogin .zlogout .kshrc .cshrc .tcshrc .inputrc .gitconfig
    .gitmodules .gitattributes .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs .pypirc .netrc .ssh .gnupg .config .local
    .claude .codex .cursor .gemini .opencode .zed .devcontainer .mcp.json .venv venv .tox .nox node_modules
    .tool-versions .mise.toml mise.toml .python-version .pre-commit-config.yaml lefthook.yml .cargo .vimrc .nvimrc
    .exrc .emacs .dir-locals.el .gdbinit .lldbinit .pdbrc .pythonrc .pythonstartup .xinitrc .xsession .xprofile
    .pam_environment .curlrc .wgetrc .screenrc .tmux.conf config.fish sitecustomize.py usercustomize.py
    .agents .windsurf .continue .aider.conf.yml .githooks .jj .bzr .bundle .fleet .nvim.lua .lvimrc .ghci .irbrc
    .pryrc .rprofile .sqliterc .psqlrc .mkshrc .xsessionrc agents.md claude.md claude.local.md gemini.md
    """.split()  # noqa: SIM905 - a list of words
)


class RuledCall(NamedTuple):
    """A tool call as rules see it."""

    tool: str
    arguments: Mapping[str, Any]
    digest: str | None = None
    """The digest of the tool's definition, if the tool comes from elsewhere and may change."""
    root: Path | None = None
    """The directory that the built-in tools work in; without it, families and paths cannot be checked."""


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is allowed: exactly one of `command`, `families` and `tool`."""

    command: str | None = None
    families: tuple[str, ...] = ()
    tool: str | None = None
    path: str | None = None
    """The file or folder, relative to the project, that a file tool may change."""
    directory: str = "."
    """The directory that an exact command runs in."""
    unsandboxed: bool = False
    """Whether commands may also run outside the sandbox."""
    digest: str | None = None
    """The digest of the definition of a tool from elsewhere, which may change."""

    def __post_init__(self) -> None:
        if sum((self.command is not None, bool(self.families), self.tool is not None)) != 1:
            raise ValueError("a rule has exactly one of command, families and tool")
        if unknown := [name for name in self.families if name not in FAMILIES]:
            raise ValueError(f"there is no family {unknown[0]!r}")
        if self.path is not None and self.tool not in FILE_TOOLS:
            raise ValueError(f"path needs one of the tools {', '.join(sorted(FILE_TOOLS))}")
        if self.unsandboxed and self.tool not in (None, COMMAND_TOOL):
            raise ValueError("unsandboxed needs a rule for commands")

    def covers(self, call: RuledCall) -> bool:
        """Whether this call is allowed."""
        if (_is_unsandboxed(call) and not self.unsandboxed) or call.tool == MEMORY_TOOL:
            return False
        if self.tool is not None:
            if (self.tool, self.digest) != (call.tool, call.digest):
                return False
            return call.tool not in FILE_TOOLS or call.digest is not None or _may_change(call, self.path or ".")
        command = _command(call)
        if command is None:
            return False
        if self.command is not None:
            return (self.command, self.directory) == (command, call.arguments.get("directory", "."))
        return _is_in_families(command, self.families, call)

    @property
    def text(self) -> str:
        """What the rule covers, in words, and what it does not."""
        leaving = ", also outside the sandbox" if self.unsandboxed else ""
        if self.command is not None:
            where = "" if self.directory == "." else f" in {self.directory}"
            return f"this exact command{where}{leaving}: {self.command}"
        if self.families:
            families = [FAMILIES[name] for name in self.families]
            examples = _listed([family.example for family in families], "and")
            excluded = _listed([family.excluded for family in families], "or")
            effect = "; executes code of this project" if any(family.runs_project_code for family in families) else ""
            names = _listed(self.families, "and")
            return f"{names} with harmless options{leaving}, such as {examples}, but not {excluded}{effect}"
        if self.tool not in FILE_TOOLS or self.digest is not None:
            return f"every call of {self.tool}{leaving}"
        where = "this project" if self.path in (None, ".") else self.path
        return f"{self.tool} in {where}, except files that programs execute or obey (such as .git)"

    @property
    def details(self) -> list[str]:
        """What exactly the families of the rule cover, one line each."""
        return [FAMILIES[name].text for name in self.families]


def is_protected(path: str) -> bool:
    """Whether a file is always asked about, whatever the rules say."""
    # Some file systems ignore invisible characters in a name.
    return not path.isprintable() or any(name.casefold() in _PROTECTED for name in PurePosixPath(path).parts)


def _listed(texts: Sequence[str], conjunction: str) -> str:
    *first, last = texts
    return f"{', '.join(first)} {conjunction} {last}" if first else last


def _is_unsandboxed(call: RuledCall) -> bool:
    is_command = call.tool == COMMAND_TOOL and call.digest is None
    return is_command and call.arguments.get("unsandboxed") not in (None, False)


def _command(call: RuledCall) -> str | None:
    command = call.arguments.get("command")
    return command if call.tool == COMMAND_TOOL and call.digest is None and isinstance(command, str) else None


def _is_in_families(command: str, families: Sequence[str], call: RuledCall) -> bool:
    directory = call.arguments.get("directory", ".")
    if call.root is None or not isinstance(directory, str):
        return False
    return is_covered(command, families, call.root, call.root / directory)


def _may_change(call: RuledCall, allowed: str) -> bool:
    """Whether a file tool changes a file below the allowed path, and none that is protected."""
    path = call.arguments.get("path")
    if call.root is None or not isinstance(path, str) or is_protected(path):
        return False
    root = call.root.resolve()
    try:
        file = (root / path).resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of links, or a NUL in the name
        return False
    return file.is_relative_to(root / allowed) and not is_protected(str(file.relative_to(root)))


class Choice(NamedTuple):
    """A rule that the user may make of a call, and whether it may be kept for the project."""

    rule: Rule
    may_persist: bool


def choices_for(call: RuledCall) -> list[Choice]:
    """The rules that would cover this call, from the narrowest to the widest."""
    rules: list[Rule] = []
    command, directory, path = _command(call), call.arguments.get("directory", "."), call.arguments.get("path")
    unsandboxed = _is_unsandboxed(call)
    if command is not None and isinstance(directory, str):
        rules.append(Rule(command=command, directory=directory, unsandboxed=unsandboxed))
        families = families_in(command)
        if families is not None:
            rules.append(Rule(families=tuple(family.name for family in families), unsandboxed=unsandboxed))
    if call.tool in FILE_TOOLS and call.digest is None and isinstance(path, str):
        rules += [Rule(tool=call.tool, path=path), Rule(tool=call.tool, path=".")]
    else:
        rules.append(Rule(tool=call.tool, digest=call.digest, unsandboxed=unsandboxed))
    # All commands of a project, forever, would be a permission for anything.
    return [Choice(rule, may_persist=rule.tool != COMMAND_TOOL) for rule in rules if rule.covers(call)]


def covering(rules: Sequence[Rule], call: RuledCall) -> Rule | None:
    """The first rule that covers this call, or the families of several that cover it together."""
    for rule in rules:
        if rule.covers(call):
            return rule
    unsandboxed = _is_unsandboxed(call)
    fitting = (rule for rule in rules if rule.unsandboxed or not unsandboxed)
    families = tuple(dict.fromkeys(name for rule in fitting for name in rule.families))
    combined = Rule(families=families, unsandboxed=unsandboxed) if families else None
    return combined if combined is not None and combined.covers(call) else None


# -- the file


class _Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mode: KeptMode | None = None
    allow: tuple[Rule, ...] = ()


class PermissionFile:
    """The rules that are kept for a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.resolve()
        name = re.sub(r"[^\w.-]+", "-", self._directory.name) or "root"
        self.path = permissions_folder() / f"{name}-{sha256(bytes(self._directory)).hexdigest()[:8]}.toml"

    def rules(self) -> tuple[Rule, ...]:
        """The rules as the file has them now. Raises `BartackError` if it is invalid."""
        return self._parsed(self._text())

    def mode(self) -> KeptMode | None:
        """The permission mode that is kept for the directory. Raises `BartackError` if the file is invalid."""
        return self._content(self._text()).mode

    def keep_mode(self, mode: KeptMode) -> None:
        """Use this permission mode in the directory from now on."""
        text = self._text()
        self._parsed(text)
        text = re.sub(r"(?m)\A(?P<comments>(?:[ \t]*#.*\n|\s*\n)*)mode *=.*\n", r"\g<comments>", text)
        comments = re.match(r"(?:[ \t]*#.*\n)*", text or self._heading)
        assert comments is not None
        remainder = (text or self._heading)[comments.end() :]
        self._write(f'{comments[0]}mode = "{mode}"\n{remainder}')

    def add(self, rule: Rule) -> None:
        """Append a rule, unless it is there. What the user has written stays as it is."""
        text = self._text()
        if rule in self._parsed(text):
            return
        if not text:
            text = self._heading
        fields = msgspec.to_builtins(rule)
        lines = "".join(f"{name} = {_toml_value(value)}\n" for name, value in fields.items())
        self._write(f"{text.rstrip()}\n\n[[allow]]\n{lines}")

    def remove(self, number: int) -> None:
        """Remove the rule with this number, counted from 0. Raises `BartackError` if the file has another layout."""
        text = self._text()
        rules = self._parsed(text)
        head, *blocks = re.split(r"(?m)^(?=[ \t]*\[\[allow\]\])", text)
        remaining = [block for index, block in enumerate(blocks) if index != number]
        changed = (head + "".join(remaining)).rstrip() + "\n"
        if self._parsed(changed) != (*rules[:number], *rules[number + 1 :]):
            raise self._file_error("has a layout in which a single rule cannot be removed")
        self._write(changed)

    def _text(self) -> str:
        try:
            return self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise self._file_error(f"cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise self._file_error("is not UTF-8 text") from error

    @property
    def _heading(self) -> str:
        return (
            f"# What bartack chat runs in {json.dumps(str(self._directory))} without asking.\n"
            "# Edit or delete rules as you like; /permissions lists them.\n"
        )

    def _parsed(self, text: str) -> tuple[Rule, ...]:
        return self._content(text).allow

    def _content(self, text: str) -> _Rules:
        try:
            return msgspec.convert(tomllib.loads(text), _Rules)
        except tomllib.TOMLDecodeError as error:
            raise self._file_error(f"is not valid TOML: {error}") from error
        except msgspec.ValidationError as error:
            raise self._file_error(f"is invalid: {error}") from error

    def _write(self, text: str) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise self._file_error(f"cannot be written: {error.strerror}") from error

    def _file_error(self, problem: str) -> BartackError:
        error = BartackError(f"The permission file {self.path} {problem}.", code=ErrorCode.INVALID_CONFIG)
        return with_hint(error, "Fix or delete it.")


def permissions_folder() -> Path:
    """The folder of all permission files."""
    return config_path().with_name("permissions")


def _toml_value(value: str | bool | Sequence[str]) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
