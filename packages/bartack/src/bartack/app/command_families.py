"""Families of commands that a user may allow as a whole, such as "git log with options that only read".

A rule that compares the beginning of a command line allows far more than it shows: `git log` also starts
`git log --output=/any/file`, and `make test` also starts `make test '--eval=$(shell ...)'`. So a family lists what may
stand in a command, and everything else is asked about:

1. `simple_commands` splits a command line as POSIX sh does. It accepts nothing but words, quotes without expansion,
   the operators ``&& || ; |`` and three harmless redirections. A shell reads such a line the same way whatever the
   files, variables and options of the shell are. Any other character ends the attempt, and the user is asked.
2. Each simple command must belong to a family: same program and subcommand, only options that the family lists, spelled
   in full (git and GNU programs also accept abbreviations, which could mean something else), and operands of its kind.
3. Operands that name files must lie in the project, also after following links. So must a value that follows its
   option as the next word: some programs take it for an operand, because the option needs no value.
4. git must find the repository of the project. In another one below it, which an archive or a model may have put there,
   the configuration names programs for git to run; even a folder without ``.git`` can be one.

A shell grammar is not needed for this: a construct that the two regular expressions below do not know is refused, while
a parser that recovers from errors would have to be asked for everything it skipped.
"""

import re
from collections.abc import Collection
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import NamedTuple

__all__ = ["FAMILIES", "Family", "Operands", "families_in", "is_covered", "simple_commands"]

# One piece of a word, exactly as POSIX sh reads it: plain characters, or quotes without anything that is expanded.
# A tilde after a letter, as in HEAD~1, is plain: shells expand it only at the beginning of a word, or after = or :.
_PIECE = re.compile(r"""((?:[\w\-./:,+@%^=]|(?<=\w)~)+)|'([^'\x00-\x1f\x7f]*)'|"([^"$`\\!\x00-\x1f\x7f]*)\"""")
# A redirection counts only as a word of its own, so that `x2>&1` cannot be mistaken for one.
_REDIRECTION = re.compile(r"(?:2>&1|2>/dev/null|>/dev/null)(?=[ \t;|&]|$)")
_OPERATOR = re.compile(r"&&|\|\||;|\|(?!&)")
_BLANK = re.compile(r"[ \t]+")


def simple_commands(line: str) -> list[list[str]] | None:
    """The words of each simple command in a command line; None if the shell would do more than run these commands."""
    commands: list[list[str]] = [[]]
    position, in_word = 0, False
    while position < len(line):
        if blank := _BLANK.match(line, position):
            position, in_word = blank.end(), False
        elif not in_word and (redirection := _REDIRECTION.match(line, position)):
            position = redirection.end()
        elif operator := _OPERATOR.match(line, position):
            commands.append([])
            position, in_word = operator.end(), False
        elif piece := _PIECE.match(line, position):
            text = next(group for group in piece.groups() if group is not None)
            if not in_word:
                commands[-1].append("")
            commands[-1][-1] += text
            position, in_word = piece.end(), True
        else:
            return None
    # An empty command is a syntax error, or an operator at the end; an assignment would change the next command.
    if any(not words or not words[0] or "=" in words[0] for words in commands):
        return None
    # Output is not a terminal, so git starts no pager anyway.
    return [["git", *words[2:]] if words[:2] == ["git", "--no-pager"] else words for words in commands]


class Operands(Enum):
    """What may stand in a command besides options."""

    NONE = "nothing"
    TEXT = "any text"
    PATHS = "files of this project"
    PATTERN = "a pattern, then files of this project"
    REVISIONS = "revisions and files of this project"
    LINES = "line numbers for printing, then files of this project"


class Family(NamedTuple):
    """Commands that are allowed together."""

    name: str
    """The program and the subcommand, separated by a space."""
    flags: frozenset[str]
    """Options without a value."""
    valued: frozenset[str]
    """Options whose value follows an equals sign, as the next word, or, after a single letter, directly."""
    operands: Operands
    most_operands: int | None = None
    required: frozenset[str] = frozenset()
    """Options without which the command would do something else."""
    runs_project_code: bool = False
    """Whether the command executes code of the project, as test runners do, or is told by its files what to write."""

    @property
    def text(self) -> str:
        """What the family covers, in words."""
        options = " ".join(sorted(self.flags | self.valued)) or "no options"
        effect = "; it executes code of this project, or obeys its configuration" if self.runs_project_code else ""
        return f"{self.name} with {self.operands.value}, and: {options}{effect}"


def _family(
    name: str, flags: str = "", valued: str = "", operands: Operands = Operands.PATHS, **more: object
) -> Family:
    return Family(name, frozenset(flags.split()), frozenset(valued.split()), operands, **more)  # type: ignore[arg-type]


# What git prints, without options that write (--output), run programs (--ext-diff, --textconv, --show-signature, -O) or
# read files outside of the repository (--no-index, --contents).
_GIT_DIFF = """
    -p -u -s -w -b -z --stat --shortstat --numstat --name-only --name-status --summary --patch --no-patch --raw
    --cached --staged --minimal --patience --histogram --word-diff --color --no-color --no-renames --check
    --ignore-all-space --ignore-space-change --ignore-blank-lines --no-ext-diff --no-textconv --exit-code --quiet
"""
_GIT_DIFF_VALUED = " -U --unified --color --stat --diff-filter --word-diff --diff-algorithm"
_GIT_LOG = """
    --oneline --graph --all --branches --tags --remotes --decorate --no-decorate --merges --no-merges --first-parent
    --reverse --follow --date-order --topo-order --abbrev-commit --full-history
"""
_GIT_LOG_VALUED = (
    "-n -S -G --max-count --skip --since --until --after --before --author --grep --format --pretty --date"
)

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        # Files. `sort` without -o and --compress-program, `uniq` without its second operand, which is written.
        _family("ls", "-a -A -l -h -1 -t -r -R -S -d -F -i -s -n -p --all --almost-all --human-readable --recursive"),
        _family("cat", "-n -b -A -E -T -s -v"),
        _family("head", "-q -v", "-n -c --lines --bytes"),
        _family("tail", "-q -v", "-n -c --lines --bytes"),
        _family("wc", "-l -w -c -m -L --lines --words --bytes --chars"),
        _family("file", "-b -i --brief --mime --mime-type"),
        _family("stat", "", "-c --format"),
        _family("du", "-s -h -a -c -k -m --summarize --human-readable", "-d --max-depth"),
        _family("tree", "-a -d -f -s -h -i --dirsfirst", "-L -P -I"),
        _family("diff", "-u -q -w -b -B -i -y --brief --unified", "-U"),
        _family("cmp", "-s -l -b"),
        _family("nl", "", "-b -w"),
        _family("sort", "-n -r -u -f -b -h -V -g -c -d --numeric-sort --reverse --unique", "-k -t"),
        _family("uniq", "-c -d -u -i --count --repeated --unique", "-f -s -w", most_operands=1),
        _family("cut", "-s", "-d -f -c -b --delimiter --fields"),
        _family("tr", "-d -s -c -C", operands=Operands.TEXT),
        _family("sed", "-n", operands=Operands.LINES, required=frozenset(("-n",))),
        _family("basename", "-a", "-s", operands=Operands.TEXT),
        _family("dirname", operands=Operands.TEXT),
        _family("realpath"),
        _family("pwd", "-P -L", operands=Operands.NONE),
        _family("echo", "-n -e -E", operands=Operands.TEXT),
        _family("true", operands=Operands.NONE),
        _family("which", "-a", operands=Operands.TEXT),
        _family("date", "-u --utc", operands=Operands.NONE),
        # Searching. `grep -f`, `rg --pre` and `find -exec` are left out: they read any file, or run programs.
        _family(
            "find",
            "-print -print0 -empty -not -o -a -depth",
            "-name -iname -path -ipath -type -maxdepth -mindepth -size -mtime -mmin -newer",
        ),
        _family(
            "grep",
            "-r -n -i -l -L -c -o -v -w -x -E -F -P -H -h -s -q -a -I --recursive --line-number --ignore-case --count "
            "--only-matching --invert-match --word-regexp --files-with-matches --no-messages --with-filename "
            "--no-filename --extended-regexp --fixed-strings --perl-regexp",
            "-A -B -C -m --include --exclude --exclude-dir --max-count --context",
            operands=Operands.PATTERN,
        ),
        _family(
            "rg",
            "-n -i -S -l -c -o -v -w -x -F -U -H -N -s --hidden --no-ignore --files-with-matches --count --line-number "
            "--ignore-case --smart-case --fixed-strings --multiline --word-regexp --no-heading --heading --vimgrep",
            "-A -B -C -m -g -t -T --glob --type --type-not --max-count --max-depth --context --color --sort",
            operands=Operands.PATTERN,
        ),
        # Version control.
        _family("git status", "-s -b -z --short --branch --porcelain --long --ignored", "--untracked-files"),
        _family("git diff", _GIT_DIFF, _GIT_DIFF_VALUED, operands=Operands.REVISIONS),
        _family("git show", _GIT_DIFF + _GIT_LOG, _GIT_DIFF_VALUED + " --format --pretty", operands=Operands.REVISIONS),
        _family("git log", _GIT_DIFF + _GIT_LOG, f"{_GIT_DIFF_VALUED} {_GIT_LOG_VALUED}", operands=Operands.REVISIONS),
        _family("git shortlog", "-s -n -e --summary --numbered", "--since --until", operands=Operands.REVISIONS),
        _family("git blame", "-w -s -l -e -f -n --show-name --show-email", "-L", operands=Operands.REVISIONS),
        _family("git branch", "-a -r -v -vv --all --remotes --list --show-current", operands=Operands.NONE),
        _family("git remote", "-v --verbose", operands=Operands.NONE),
        _family("git stash list", operands=Operands.NONE),
        _family("git tag", "-l --list", operands=Operands.NONE),
        _family("git ls-files", "-m -o -d -s -c --modified --others --exclude-standard --deleted --stage --cached"),
        _family(
            "git rev-parse",
            "--short --abbrev-ref --show-toplevel --git-dir --is-inside-work-tree --verify --quiet",
            operands=Operands.REVISIONS,
        ),
        _family("git describe", "--tags --always --dirty --all --long", operands=Operands.REVISIONS),
        _family("git merge-base", "--all --is-ancestor", operands=Operands.REVISIONS),
        _family(
            "git grep",
            "-n -i -l -L -c -w -v -E -F -P -h -H -I --line-number --ignore-case --files-with-matches --count --cached",
            "-A -B -C",
            operands=Operands.PATTERN,
        ),
        # Tests and checks of this project. Options that load other code or configuration (-p, -c, --rootdir, -exec)
        # and those that write elsewhere (--junitxml, -o) are left out.
        _family(
            "pytest",
            "-x -q -v -vv -s -l --lf --ff --last-failed --failed-first --collect-only --co --no-header --exitfirst "
            "--quiet --verbose -rA -ra -rf -rs --sw --stepwise",
            "-k -m -n --maxfail --tb --durations --deselect --color --timeout",
            runs_project_code=True,
        ),
        _family(
            "python -m pytest",
            "-x -q -v -vv -s -l --lf --ff --collect-only --exitfirst --quiet --verbose -ra -rA",
            "-k -m -n --maxfail --tb --durations --deselect --color",
            runs_project_code=True,
        ),
        # Without operands: they name modules, also those that are installed elsewhere.
        _family(
            "python -m unittest",
            "-v -q -f -b --verbose --quiet --failfast",
            "-k",
            operands=Operands.NONE,
            runs_project_code=True,
        ),
        _family(
            "ruff check",
            "--no-fix --diff --quiet --statistics --preview",
            "--select --ignore --output-format",
            runs_project_code=True,
        ),
        _family("ruff format", "--check --diff --quiet", required=frozenset(("--check",)), runs_project_code=True),
        _family(
            "black",
            "--check --diff --quiet -q",
            "-l --line-length",
            required=frozenset(("--check",)),
            runs_project_code=True,
        ),
        _family("mypy", "--strict --pretty --no-color-output --show-error-codes", runs_project_code=True),
        _family("pyright", "--stats --verbose", runs_project_code=True),
        _family(
            "tsc",
            "--noEmit --pretty",
            operands=Operands.NONE,
            required=frozenset(("--noEmit",)),
            runs_project_code=True,
        ),
        _family("cargo check", "--all --workspace --all-targets --tests -q -v", "-p --package", runs_project_code=True),
        _family("cargo clippy", "--all --workspace --all-targets -q -v", "-p --package", runs_project_code=True),
        _family(
            "cargo test",
            "--all --workspace --lib --bins --tests --doc --no-run -q -v --release",
            "-p --package --test",
            operands=Operands.TEXT,
            runs_project_code=True,
        ),
        _family("go vet", runs_project_code=True),
        _family("go test", "-v -race -short -cover", "-run -count -timeout -bench", runs_project_code=True),
    )
}

_MOST_DIRECTORIES = 16  # each `cd` doubles the directories that the commands after it may run in
_LINE_RANGE = re.compile(r"(\d+|\$)(,(\d+|\+\d+|\$))?p?(;(\d+|\$)(,(\d+|\+\d+|\$))?p?)*")


# Families whose commands only filter their input or print their arguments, unless they are given files.
_FILTERS = frozenset("cat cut echo grep head nl pwd sed sort tail tr true uniq wc".split())  # noqa: SIM905 - a list of words


def families_in(line: str) -> list[Family] | None:
    """The families that a rule must allow for this command line, whatever its options; None if no rule can."""
    commands = simple_commands(line)
    if commands is None:
        return None
    families: list[Family] = []
    for words in commands:
        if words[0] == "cd":
            continue
        family = _family_of(words)
        if family is None:
            return None
        if family not in families:
            families.append(family)
    return [family for family in families if family.name not in _FILTERS] or families or None


def is_covered(line: str, allowed: Collection[str], root: Path, directory: Path) -> bool:
    """Whether every command of a line, run in `directory`, belongs to an allowed family; `root` is the project's."""
    commands = simple_commands(line)
    if commands is None:
        return False
    # A `cd` may have no effect, because it fails or because it is part of a pipeline. So what follows must be harmless
    # in each directory that it may run in.
    directories = [directory]
    for words in commands:
        if words[0] == "cd":
            if len(words) != 2 or words[1].startswith("-") or not _is_inside(words[1], root, directories):
                return False
            if len(directories) > _MOST_DIRECTORIES:
                return False
            directories += [folder / words[1] for folder in directories]
            continue
        family = _family_of(words)
        split = None if family is None else _paths(words, family)
        if family is None or split is None:
            return False
        paths, values = split
        if not all(_is_inside(path, root, directories) for path in (*paths, *values)):
            return False
        if family.name not in allowed and (paths or family.name not in _FILTERS):
            return False
        if words[0] == "git" and not all(_is_in_own_repository(folder, root) for folder in directories):
            return False
    return True


def _is_in_own_repository(folder: Path, root: Path) -> bool:
    """Whether git does not find another repository before it comes to the root of the project."""
    folder, root = folder.resolve(), root.resolve()
    below = [place for place in (folder, *folder.parents) if place != root and place.is_relative_to(root)]
    return not any((place / ".git").exists() for place in below) and not any(map(_is_bare, (*below, root)))


def _is_bare(folder: Path) -> bool:
    """Whether git takes a folder for a repository without a work tree."""
    return all((folder / name).exists() for name in ("HEAD", "objects", "refs"))


def _family_of(words: list[str]) -> Family | None:
    """The family of a simple command by its program and subcommand, whatever its options."""
    for length in (3, 2, 1):
        if family := FAMILIES.get(" ".join(words[:length])):
            return family
    return None


def _paths(words: list[str], family: Family) -> tuple[list[str], list[str]] | None:
    """The operands that may name files, and the values of options that a program might take for such; None if the
    family does not list an option or an operand of the command."""
    split = _operands_and_values(words[family.name.count(" ") + 1 :], family)
    if split is None:
        return None
    operands, values = split
    if family.most_operands is not None and len(operands) > family.most_operands:
        return None
    match family.operands:
        case Operands.NONE:
            return None if operands else ([], values)
        case Operands.TEXT:
            return [], values
        case Operands.PATTERN:
            return operands[1:], values
        case Operands.LINES:
            return (operands[1:], values) if operands and _LINE_RANGE.fullmatch(operands[0]) else None
        case Operands.PATHS:
            # Test runners and linters read further options from a file that is named like this.
            return None if any(operand.startswith("@") for operand in operands) else (operands, values)
        case Operands.REVISIONS:
            return operands, values


def _operands_and_values(words: list[str], family: Family) -> tuple[list[str], list[str]] | None:
    """The operands of a command, and the values that follow their options as words; None if it has an option that the
    family does not list, or lacks a required one."""
    operands: list[str] = []
    values: list[str] = []
    options: set[str] = set()
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if word == "--":
            operands += words[index:]
            # A program may pass these on to another one, for which they are options (`cargo test -- --logfile x`).
            if any(operand.startswith("-") for operand in words[index:]):
                return None
            break
        if not word.startswith("-") or word == "-":
            operands.append(word)
            continue
        takes_next = _takes_next_word(word, family)
        if takes_next is None:
            return None
        options.add(word)
        if takes_next:
            if index == len(words):
                return None
            values.append(words[index])
            index += 1
    return (operands, values) if family.required <= options else None


def _takes_next_word(word: str, family: Family) -> bool | None:
    """Whether the next word is the value of this option; None if the family does not list the option."""
    if word in family.valued and word not in family.flags:
        return True
    if word in family.flags:
        return False
    name, separator, _ = word.partition("=")
    if separator:
        return False if name in family.valued else None
    if word[1:].isdecimal() and "-n" in family.valued:  # -20, as head and git log take it
        return False
    if word.startswith("--"):
        return None
    if word[:2] in family.valued:  # -n20
        return False
    cluster = [f"-{letter}" for letter in word[1:]]  # -la
    if all(flag in family.flags for flag in cluster):
        return False
    if cluster[-1] in family.valued and all(flag in family.flags for flag in cluster[:-1]):  # -rnA 3
        return True
    return None


def _is_inside(operand: str, root: Path, directories: list[Path]) -> bool:
    """Whether an operand, if it names a file, names one in the project."""
    if PurePosixPath(operand).is_absolute() or ".." in re.split(r"[/:]", operand):
        return False
    # In `tests/test_x.py::test_y`, only the first part is a file.
    names = {operand, operand.partition("::")[0]}
    try:
        return all((folder / name).resolve().is_relative_to(root.resolve()) for folder in directories for name in names)
    except (OSError, RuntimeError):  # a loop of links
        return False
