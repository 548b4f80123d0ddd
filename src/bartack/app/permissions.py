"""Which tool calls a user has allowed without being asked: rules, what each one covers, and the file that keeps them.

A rule covers one exact command, the commands that start with certain words, or one tool. Commands are matched by words
only if the shell would read them as nothing but words: a command with an operator, a substitution, a redirection, a
glob, an assignment or a line break never matches a prefix, and the user is asked.

The file is one per directory, in the user's configuration folder and not in the directory itself: a repository must not
bring permissions along, and tools cannot write there.

    [[allow]]
    command = "make test"        # this command and nothing else

    [[allow]]
    prefix = "git log"           # git log, git log --oneline, but not git logs or git log | sh

    [[allow]]
    tool = "write_file"          # every call of this tool
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import msgspec

from bartack.app.errors import with_hint
from bartack.app.settings import config_path
from bartack.nouns.errors import BartackError, ErrorCode

COMMAND_TOOL = "run_command"

# One piece of a word, exactly as POSIX sh reads it: plain characters, or quotes without anything that is expanded.
_PIECE = re.compile(r"""([\w\-./:,+@%^=]+)|'([^'\x00-\x1f\x7f]*)'|"([^"$`\\!\x00-\x1f\x7f]*)\"""")
_BLANK = re.compile(r"[ \t]+")
# Programs that execute their arguments. A rule for one of these as a prefix would allow anything.
_RUNNERS = frozenset(
    """
    sh bash dash zsh ksh fish env sudo doas su xargs eval exec command builtin nohup nice ionice time timeout setsid
    stdbuf chroot unshare flock taskset script expect screen tmux watch entr at batch crontab ssh parallel find fd awk
    gawk mawk sed perl ruby irb node tsx ts-node deno bun php lua tclsh R Rscript julia java python python3 ipython npx
    pnpx bunx uvx pipx busybox source . osascript powershell pwsh docker podman kubectl strace ltrace gdb lldb vi vim
    nvim emacs ed ex less more man tee tar rsync sqlite psql mysql
    """.split()  # noqa: SIM905 - a list of words
)
# Programs that destroy, for which only exact commands are offered.
_DESTROYERS = frozenset(
    "rm rmdir mv cp dd install chmod chown ln kill killall pkill shutdown reboot mkfs truncate shred".split()  # noqa: SIM905
)
# Programs whose options before the subcommand decide what it does, such as `git -c alias.x=!sh x`.
_WITH_SUBCOMMANDS = frozenset("git hg svn gh npm pnpm yarn cargo go uv poetry pdm hatch pip gem bundle brew".split())  # noqa: SIM905
# Subcommands that run what follows them, or destroy.
_WIDE_SUBCOMMANDS = frozenset(("run", "exec", "dlx", "x", "tool", "tx"))
_GIT_CHANGES = "bisect checkout clean config filter-branch push rebase reset restore rm submodule"
_DESTROYING = {"git": frozenset(_GIT_CHANGES.split())}
_WORD = re.compile(r"[\w\-./:,+@%^=]+")
_SUBCOMMAND = re.compile(r"[a-z][a-z0-9:_-]*")


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is allowed: exactly one of `command`, `prefix` and `tool`."""

    command: str | None = None
    prefix: str | None = None
    tool: str | None = None
    directory: str = "."  # that an exact command runs in
    digest: str | None = None  # of the definition of a tool from elsewhere, which may change

    def __post_init__(self) -> None:
        if sum(value is not None for value in (self.command, self.prefix, self.tool)) != 1:
            raise ValueError("a rule has exactly one of command, prefix and tool")
        if self.prefix is not None and not plain_words(self.prefix):
            raise ValueError(f"the prefix {self.prefix!r} is not made of plain words")

    def covers(self, tool: str, arguments: Mapping[str, Any], digest: str | None = None) -> bool:
        """Whether this call is allowed; `digest` is that of the tool's definition."""
        if self.tool is not None:
            return (self.tool, self.digest) == (tool, digest)
        command = arguments.get("command")
        if tool != COMMAND_TOOL or digest is not None or not isinstance(command, str):
            return False
        if self.command is not None:
            return (self.command, self.directory) == (command, arguments.get("directory", "."))
        wanted, words = plain_words(self.prefix or ""), plain_words(command)
        return wanted is not None and words is not None and words[: len(wanted)] == wanted

    @property
    def text(self) -> str:
        """What the rule covers, in words."""
        if self.command is not None:
            where = "" if self.directory == "." else f" in {self.directory}"
            return f"this exact command{where}: {self.command}"
        if self.prefix is not None:
            return f"commands that start with: {self.prefix}"
        return f"every call of {self.tool}"


def plain_words(command: str) -> list[str] | None:
    """The words of a command that is nothing but words; None if the shell would do more than split and unquote it."""
    words: list[str] = []
    at, is_open = 0, False
    while at < len(command):
        if blank := _BLANK.match(command, at):
            at, is_open = blank.end(), False
        elif piece := _PIECE.match(command, at):
            text = next(group for group in piece.groups() if group is not None)
            if not is_open:
                words.append("")
            words[-1] += text
            at, is_open = piece.end(), True
        else:
            return None
    return None if not words or "=" in words[0] or not words[0] else words


def suggested_prefix(command: str) -> str | None:
    """The words that a rule for commands like this one would start with; None if such a rule would cover too much."""
    words = plain_words(command)
    if words is None or not all(map(_WORD.fullmatch, words[:2])):
        return None
    program = PurePosixPath(words[0]).name
    if _runs_or_destroys(program):
        return None
    if len(words) == 1 or not _SUBCOMMAND.fullmatch(words[1]):
        return None if program in _WITH_SUBCOMMANDS else words[0]
    if words[1] in _DESTROYING.get(program, ()):
        return None
    if words[1] not in _WIDE_SUBCOMMANDS:
        return " ".join(words[:2])
    # `uv run pytest`: what is run counts.
    inner = words[2] if len(words) > 2 else ""
    return " ".join(words[:3]) if _WORD.fullmatch(inner) and not _runs_or_destroys(inner) else None


def _runs_or_destroys(program: str) -> bool:
    """Whether a prefix for this program would cover everything, or what cannot be undone."""
    name = PurePosixPath(program).name
    return name in _RUNNERS or name.rstrip("0123456789.") in _RUNNERS | _DESTROYERS or name.startswith("-")


class Choice(NamedTuple):
    """A rule that the user may make of a call, and whether it may be kept for the project."""

    rule: Rule
    may_persist: bool


def choices_for(tool: str, arguments: Mapping[str, Any], digest: str | None = None) -> list[Choice]:
    """The rules that would cover this call, from the narrowest to the widest."""
    found: list[Choice] = []
    command, directory = arguments.get("command"), arguments.get("directory", ".")
    if tool == COMMAND_TOOL and digest is None and isinstance(command, str) and isinstance(directory, str):
        found.append(Choice(Rule(command=command, directory=directory), may_persist=True))
        prefix = suggested_prefix(command)
        if prefix is not None:
            found.append(Choice(Rule(prefix=prefix), may_persist=True))
    # All commands of a project, forever, would be a permission for anything.
    found.append(Choice(Rule(tool=tool, digest=digest), may_persist=tool != COMMAND_TOOL))
    return found


# -- the file


class _Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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

    def add(self, rule: Rule) -> None:
        """Append a rule, unless it is there. What the user has written stays as it is."""
        text = self._text()
        if rule in self._parsed(text):
            return
        if not text:
            text = (
                f"# What bartack chat runs in {json.dumps(str(self._directory))} without asking.\n"
                "# Edit or delete rules as you like; /permissions lists them.\n"
            )
        fields = msgspec.to_builtins(rule)
        lines = "".join(f"{name} = {_toml_text(value)}\n" for name, value in fields.items())
        self._write(f"{text.rstrip()}\n\n[[allow]]\n{lines}")

    def remove(self, number: int) -> None:
        """Remove the rule with this number, counted from 0. Raises `BartackError` if the file has another layout."""
        text = self._text()
        rules = self._parsed(text)
        head, *blocks = re.split(r"(?m)^(?=[ \t]*\[\[allow\]\])", text)
        kept = [block for index, block in enumerate(blocks) if index != number]
        changed = (head + "".join(kept)).rstrip() + "\n"
        if self._parsed(changed) != (*rules[:number], *rules[number + 1 :]):
            raise self._invalid("has a layout in which a single rule cannot be removed")
        self._write(changed)

    def _text(self) -> str:
        try:
            return self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise self._invalid(f"cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise self._invalid("is not UTF-8 text") from error

    def _parsed(self, text: str) -> tuple[Rule, ...]:
        try:
            return msgspec.convert(tomllib.loads(text), _Rules).allow
        except tomllib.TOMLDecodeError as error:
            raise self._invalid(f"is not valid TOML: {error}") from error
        except msgspec.ValidationError as error:
            raise self._invalid(f"is invalid: {error}") from error

    def _write(self, text: str) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise self._invalid(f"cannot be written: {error.strerror}") from error

    def _invalid(self, problem: str) -> BartackError:
        error = BartackError(f"The permission file {self.path} {problem}.", code=ErrorCode.INVALID_CONFIG)
        return with_hint(error, "Fix or delete it.")


def permissions_folder() -> Path:
    """The folder of all permission files."""
    return config_path().with_name("permissions")


def _toml_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def covering(rules: Sequence[Rule], tool: str, arguments: Mapping[str, Any], digest: str | None) -> Rule | None:
    """The first rule that covers this call."""
    return next((rule for rule in rules if rule.covers(tool, arguments, digest)), None)
