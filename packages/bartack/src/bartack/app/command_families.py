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
   option as the next word, and it must not look like an option: where the option needs no value, the program takes the
   next word for an operand or an option (`git diff -U --output=/any/file`).
4. git must find the repository of the project. In another one below it, which an archive or a model may have put there,
   the configuration names programs for git to run; even a folder without ``.git`` can be one. Nor may the index name
   one if the command looks into it.
5. The program itself must not be a file of the project, as it is if a folder of the project is in PATH.

A shell grammar is not needed for this: a construct that the two regular expressions below do not know is refused, while
a parser that recovers from errors would have to be asked for everything it skipped.
"""

import re
from collections.abc import Collection
from enum import Enum
from pathlib import Path, PurePosixPath
from shutil import which
from typing import NamedTuple

from bartack.tools.snapshots import names_repositories, repositories_in

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
    example: str
    """A command that the family covers."""
    excluded: str
    """A command that looks like one of the family, and is asked about."""
    flags: frozenset[str]
    """Options without a value."""
    valued: frozenset[str]
    """Options whose value follows an equals sign, as the next word, or, after a single letter, directly."""
    operands: Operands
    most_operands: int | None = None
    required: frozenset[str] = frozenset()
    """Options without which the command would do something else."""
    follows_links: bool = False
    """Whether the command follows links that it finds in a folder, so that operands must not be folders."""
    runs_project_code: bool = False
    """Whether the command executes code of the project, as test runners do, or is told by its files what to write."""

    @property
    def text(self) -> str:
        """What the family covers, in words."""
        options = " ".join(sorted(self.flags | self.valued)) or "no options"
        effect = "; it executes code of this project, or obeys its configuration" if self.runs_project_code else ""
        return f"{self.name} with {self.operands.value}, and: {options}{effect}"


def _family(
    example: str,
    excluded: str,
    flags: str = "",
    valued: str = "",
    operands: Operands = Operands.PATHS,
    *,
    words: int = 1,
    **more: object,
) -> Family:
    """The family that the first `words` of the example name."""
    name = " ".join(example.split(" ")[:words])
    sets = frozenset(flags.split()), frozenset(valued.split())
    return Family(name, example, excluded, *sets, operands, **more)  # type: ignore[arg-type]


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
        _family(
            "ls -la src",
            "ls /etc",
            "-a -A -l -h -1 -t -r -R -S -d -F -i -s -n -p --all --almost-all --human-readable --recursive",
        ),
        _family("cat README.md", "cat ~/.ssh/id_rsa", "-n -b -A -E -T -s -v"),
        _family("head -n 20 README.md", "head /etc/passwd", "-q -v", "-n -c --lines --bytes"),
        _family("tail -n 20 README.md", "tail -f README.md", "-q -v", "-n -c --lines --bytes"),
        _family("wc -l README.md", "wc --files0-from=names", "-l -w -c -m -L --lines --words --bytes --chars"),
        _family("file README.md", "file -m magic README.md", "-b -i --brief --mime --mime-type"),
        _family("stat README.md", "stat /etc/passwd", "", "-c --format"),
        _family("du -sh src", "du -sh /", "-s -h -a -c -k -m --summarize --human-readable", "-d --max-depth"),
        _family("tree -L 2 src", "tree -o names", "-a -d -f -s -h -i --dirsfirst", "-L -P -I"),
        _family(
            "diff -u a.txt b.txt", "diff -r src old", "-u -q -w -b -B -i -y --brief --unified", "-U", follows_links=True
        ),
        _family("cmp a.txt b.txt", "cmp a.txt /etc/passwd", "-s -l -b"),
        _family("nl README.md", "nl /etc/passwd", "", "-b -w"),
        _family(
            "sort -u names.txt",
            "sort -o names.txt names.txt",
            "-n -r -u -f -b -h -V -g -c -d --numeric-sort --reverse --unique",
            "-k -t",
        ),
        _family(
            "uniq -c names.txt",
            "uniq names.txt other.txt",
            "-c -d -u -i --count --repeated --unique",
            "-f -s -w",
            most_operands=1,
        ),
        _family("cut -d, -f1 names.csv", "cut -f1 /etc/passwd", "-s", "-d -f -c -b --delimiter --fields"),
        _family("tr -d x", "tr a b < names.txt", "-d -s -c -C", operands=Operands.TEXT),
        _family(
            "sed -n 1,40p README.md", "sed -i 1d README.md", "-n", operands=Operands.LINES, required=frozenset(("-n",))
        ),
        _family("basename src/main.py", "basename $HOME", "-a", "-s", operands=Operands.TEXT),
        _family("dirname src/main.py", "dirname $HOME", operands=Operands.TEXT),
        _family("realpath src", "realpath /etc"),
        _family("pwd", "pwd > names.txt", "-P -L", operands=Operands.NONE),
        _family("echo done", "echo $HOME", "-n -e -E", operands=Operands.TEXT),
        _family("true", "true & make", operands=Operands.NONE),
        _family("which python", "which $HOME", "-a", operands=Operands.TEXT),
        _family("date -u", "date -s 2020-01-01", "-u --utc", operands=Operands.NONE),
        # Searching. `grep -f`, `rg --pre` and `find -exec` are left out: they read any file, or run programs.
        _family(
            "find . -name main.py",
            "find . -delete",
            "-print -print0 -empty -not -o -a -depth",
            "-name -iname -path -ipath -type -maxdepth -mindepth -size -mtime -mmin -newer",
        ),
        _family(
            "grep -rn main src",
            "grep -f names.txt README.md",
            "-r -n -i -l -L -c -o -v -w -x -E -F -P -H -h -s -q -a -I --recursive --line-number --ignore-case --count "
            "--only-matching --invert-match --word-regexp --files-with-matches --no-messages --with-filename "
            "--no-filename --extended-regexp --fixed-strings --perl-regexp",
            "-A -B -C -m --include --exclude --exclude-dir --max-count --context",
            operands=Operands.PATTERN,
        ),
        _family(
            "rg -n main src",
            "rg --pre ./program main",
            "-n -i -S -l -c -o -v -w -x -F -U -H -N -s --hidden --no-ignore --files-with-matches --count --line-number "
            "--ignore-case --smart-case --fixed-strings --multiline --word-regexp --no-heading --heading --vimgrep",
            "-A -B -C -m -g -t -T --glob --type --type-not --max-count --max-depth --context --color --sort",
            operands=Operands.PATTERN,
        ),
        # Version control.
        _family(
            "git status -s",
            "git -c core.fsmonitor=./program status",
            "-s -b -z --short --branch --porcelain --long --ignored",
            "--untracked-files",
            words=2,
        ),
        _family(
            "git diff --stat", "git diff --ext-diff", _GIT_DIFF, _GIT_DIFF_VALUED, operands=Operands.REVISIONS, words=2
        ),
        _family(
            "git show HEAD",
            "git show --textconv",
            _GIT_DIFF + _GIT_LOG,
            _GIT_DIFF_VALUED + " --format --pretty",
            operands=Operands.REVISIONS,
            words=2,
        ),
        _family(
            "git log --oneline -5",
            "git log --output=names.txt",
            _GIT_DIFF + _GIT_LOG,
            f"{_GIT_DIFF_VALUED} {_GIT_LOG_VALUED}",
            operands=Operands.REVISIONS,
            words=2,
        ),
        _family(
            "git shortlog -sn",
            "git shortlog --output=names.txt",
            "-s -n -e --summary --numbered",
            "--since --until",
            operands=Operands.REVISIONS,
            words=2,
        ),
        _family(
            "git blame README.md",
            "git blame --contents /etc/passwd README.md",
            "-w -s -l -e -f -n --show-name --show-email",
            "-L",
            operands=Operands.REVISIONS,
            words=2,
        ),
        _family(
            "git branch -a",
            "git branch -D main",
            "-a -r -v -vv --all --remotes --list --show-current",
            operands=Operands.NONE,
            words=2,
        ),
        _family("git remote -v", "git remote update", "-v --verbose", operands=Operands.NONE, words=2),
        _family("git stash list", "git stash drop", operands=Operands.NONE, words=3),
        _family("git tag -l", "git tag -d v1", "-l --list", operands=Operands.NONE, words=2),
        _family(
            "git ls-files -m",
            "git ls-files -X names.txt",
            "-m -o -d -s -c --modified --others --exclude-standard --deleted --stage --cached",
            words=2,
        ),
        _family(
            "git rev-parse HEAD",
            "git rev-parse --parseopt",
            "--short --abbrev-ref --show-toplevel --git-dir --is-inside-work-tree --verify --quiet",
            operands=Operands.REVISIONS,
            words=2,
        ),
        _family(
            "git describe --tags",
            "git describe /etc/passwd",
            "--tags --always --dirty --all --long",
            operands=Operands.REVISIONS,
            words=2,
        ),
        _family(
            "git merge-base main HEAD",
            "git merge-base --fork-point main",
            "--all --is-ancestor",
            operands=Operands.REVISIONS,
            words=2,
        ),
        _family(
            "git grep -n main",
            "git grep -O./program main",
            "-n -i -l -L -c -w -v -E -F -P -h -H -I --line-number --ignore-case --files-with-matches --count --cached",
            "-A -B -C",
            operands=Operands.PATTERN,
            words=2,
        ),
        # Tests and checks of this project. Options that load other code or configuration (-p, -c, --rootdir, -exec)
        # and those that write elsewhere (--junitxml, -o) are left out.
        _family(
            "pytest -q tests",
            "pytest -p plugin",
            "-x -q -v -vv -s -l --lf --ff --last-failed --failed-first --collect-only --co --no-header --exitfirst "
            "--quiet --verbose -rA -ra -rf -rs --sw --stepwise",
            "-k -m -n --maxfail --tb --durations --deselect --color --timeout",
            runs_project_code=True,
        ),
        _family(
            "python -m pytest -q tests",
            "python -m pytest -p plugin",
            "-x -q -v -vv -s -l --lf --ff --collect-only --exitfirst --quiet --verbose -ra -rA",
            "-k -m -n --maxfail --tb --durations --deselect --color",
            runs_project_code=True,
            words=3,
        ),
        # Without operands: they name modules, also those that are installed elsewhere.
        _family(
            "python -m unittest -v",
            "python -m unittest module",
            "-v -q -f -b --verbose --quiet --failfast",
            "-k",
            operands=Operands.NONE,
            runs_project_code=True,
            words=3,
        ),
        _family(
            "ruff check src",
            "ruff check --fix src",
            "--no-fix --diff --quiet --statistics --preview",
            "--select --ignore --output-format",
            runs_project_code=True,
            words=2,
        ),
        _family(
            "ruff format --check src",
            "ruff format src",
            "--check --diff --quiet",
            required=frozenset(("--check",)),
            runs_project_code=True,
            words=2,
        ),
        _family(
            "black --check src",
            "black src",
            "--check --diff --quiet -q",
            "-l --line-length",
            required=frozenset(("--check",)),
            runs_project_code=True,
        ),
        _family(
            "mypy --strict src",
            "mypy --config-file other.ini src",
            "--strict --pretty --no-color-output --show-error-codes",
            runs_project_code=True,
        ),
        _family("pyright src", "pyright --pythonpath ./program src", "--stats --verbose", runs_project_code=True),
        _family(
            "tsc --noEmit",
            "tsc --outDir build",
            "--noEmit --pretty",
            operands=Operands.NONE,
            required=frozenset(("--noEmit",)),
            runs_project_code=True,
        ),
        _family(
            "cargo check --workspace",
            "cargo check --config other.toml",
            "--all --workspace --all-targets --tests -q -v",
            "-p --package",
            runs_project_code=True,
            words=2,
        ),
        _family(
            "cargo clippy --all-targets",
            "cargo clippy --fix",
            "--all --workspace --all-targets -q -v",
            "-p --package",
            runs_project_code=True,
            words=2,
        ),
        _family(
            "cargo test --workspace",
            "cargo test --manifest-path other.toml",
            "--all --workspace --lib --bins --tests --doc --no-run -q -v --release",
            "-p --package --test",
            operands=Operands.TEXT,
            runs_project_code=True,
            words=2,
        ),
        _family("go vet ./...", "go vet -vettool=./program ./...", runs_project_code=True, words=2),
        _family(
            "go test ./... -run Main",
            "go test -exec ./program ./...",
            "-v -race -short -cover",
            "-run -count -timeout -bench",
            runs_project_code=True,
            words=2,
        ),
    )
}

_MOST_DIRECTORIES = 16  # each `cd` doubles the directories that the commands after it may run in
_RECURSIVE = re.compile(r"-[^-]*r|--recursive")
_NEGATIVE_NUMBER = re.compile(r"-[0-9]+")
# For these fields of a format, git runs the program that checks signatures. The character before the G belongs to
# the field: it says what to do with an empty one.
_SIGNATURE = re.compile(r"%[-+ ]?G")
# For these, git runs another git in the repositories that the index names.
_LOOKS_INTO_REPOSITORIES = frozenset(("git status", "git diff", "git show", "git log", "git describe"))
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
    if not _is_inside(".", root, [directory]):
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
        if family.follows_links and any((folder / path).is_dir() for folder in directories for path in paths):
            return False
        if not family.runs_project_code and _is_program_of(root, words[0]):
            return False
        if words[0] == "git" and not all(_is_in_own_repository(folder, root) for folder in directories):
            return False
        if family.name in _LOOKS_INTO_REPOSITORIES and _has_nested_repositories(root):
            return False
    return True


def _is_program_of(root: Path, program: str) -> bool:
    """Whether the shell would find a program in the project, or relative to the directory that it runs in."""
    location = which(program)
    if location is None:
        return False
    file, root = Path(location), root.resolve()
    places = file.resolve(), file.parent.resolve()
    return not file.is_absolute() or any(place.is_relative_to(root) for place in places)


def _is_in_own_repository(folder: Path, root: Path) -> bool:
    """Whether git does not find another repository before it comes to the root of the project."""
    folder, root = folder.resolve(), root.resolve()
    below = (place for place in (folder, *folder.parents) if place != root and place.is_relative_to(root))
    return root not in repositories_in(root) and not any(map(repositories_in, below))


def _has_nested_repositories(root: Path) -> bool:
    """Whether the repository that git finds from the root may name others inside its work tree."""
    root = root.resolve()
    repositories = next(filter(None, map(repositories_in, (root, *root.parents))), [])
    return any(map(names_repositories, repositories))


def _family_of(words: list[str]) -> Family | None:
    """The family of a simple command by its program and subcommand, whatever its options."""
    for length in (3, 2, 1):
        if family := FAMILIES.get(" ".join(words[:length])):
            return family
    return None


def _paths(words: list[str], family: Family) -> tuple[list[str], list[str]] | None:
    """The operands that may name files, and the values of options that a program might take for such; None if the
    family does not list an option or an operand of the command."""
    arguments = words[family.name.count(" ") + 1 :]
    split = _operands_and_values(arguments, family)
    if split is None or (words[0] == "git" and any(map(_SIGNATURE.search, arguments))):
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
            is_recursive = any(_RECURSIVE.match(argument) for argument in arguments)
            return operands[1:] or ["."] * is_recursive, values
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
            # A word that looks like an option is one, if the option before it needs no value.
            if index == len(words) or (words[index].startswith("-") and not _NEGATIVE_NUMBER.fullmatch(words[index])):
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
