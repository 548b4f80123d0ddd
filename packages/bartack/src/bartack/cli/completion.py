"""`bartack completion`: shell completion scripts, and the answers to their calls.

A script runs `bartack` with the words before the cursor and `_BARTACK_COMPLETE` set to the name of the shell;
`bartack.cli.entry` passes that call to `complete`. The answer starts with a line `words` or `files`. After `words`
comes one line per word, quoted for the shell; after `files` the shell completes file names itself.

The words come from typer, which has the declarations of all options. It has no public name for the function
that finds the option or argument under the cursor, so `typer._click` is imported here, and nowhere else. The module of
a command is imported only once its name is complete.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import typer
from typer._click import Command as ClickCommand
from typer._click import Context as ClickContext
from typer._click import Parameter
from typer._click.shell_completion import CompletionItem, _resolve_context, _resolve_incomplete, split_arg_string
from typer.core import TyperGroup
from typer.main import get_command

from bartack.cli.entry import installed_commands, take_debug
from bartack.cli.options import new_app

app = new_app("Print a shell completion script.")

Shell = Literal["bash", "zsh", "fish"]
_OPTIONS = {"--help": "Show the front page.", "--version": "Show the version.", "--debug": "Show tracebacks."}


@app.command()
def completion(shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="Shell: bash, zsh or fish.")]) -> None:
    """Print a completion script for commands, options, models and sessions.

    To enable it in every new shell:

    \b
    bash: add to ~/.bashrc           eval "$(bartack completion bash)"
    zsh:  add to ~/.zshrc            eval "$(bartack completion zsh)"    (after compinit)
    fish: run once                   bartack completion fish > ~/.config/fish/completions/bartack.fish
    """
    print(Path(__file__).with_name(f"completion.{shell}").read_text(encoding="utf-8"), end="")


# -- answers to the scripts


class TypedLine(NamedTuple):
    """The line up to the cursor: the words before, the one under it, and how many of its characters the shell keeps."""

    before: list[str]
    word: str
    prefix_length: int = 0
    in_quotes: bool = False


class Candidates(NamedTuple):
    """What may follow at the cursor: words, each with a description; or with `files`, a file name."""

    words: Sequence[tuple[str, str]]
    files: bool = False


def complete(shell: str, words: Sequence[str]) -> int:
    """Answer a completion script. `words` are the arguments up to the one under the cursor."""
    typed = _join_bash_words(words) if shell == "bash" else TypedLine(list(words[:-1]), "".join(words[-1:]))
    quote = _QUOTES.get(shell)
    if quote is None:
        return 1
    offered = candidates(typed.before, typed.word)
    print("files" if offered.files else "words")
    name, equals, _ = typed.word.partition("=")
    option = f"{name}=" if equals and name.startswith("--") else ""  # candidates replace what follows ``--model=``
    for word, meaning in offered.words:
        if word.isprintable():  # one line per word
            remainder = (option + word)[typed.prefix_length :]
            description = "".join(sign if sign.isprintable() else " " for sign in meaning)
            print(remainder if typed.in_quotes else quote(remainder, description))
    return 0


def candidates(before: Sequence[str], word: str) -> Candidates:
    """What may replace `word`, after the words before it."""
    _, args = take_debug(before)
    context = _resolve_context(_Bartack(name="bartack"), {}, "bartack", args)
    parameter, value = _resolve_incomplete(context, args, word)
    items = [item for item in parameter.shell_complete(context, value) if item.type == "plain"]
    words = [(str(item.value), (item.help or "").partition(". ")[0]) for item in items]
    return Candidates(words, files=not words and isinstance(parameter, Parameter) and _names_file(parameter))


def _names_file(parameter: Parameter) -> bool:
    """Whether the parameter takes a path, judging by its type or its metavar."""
    kind = getattr(parameter, "type_descriptor", None)
    has_path_name = any(name in (parameter.metavar or "") for name in ("FILE", "FOLDER", "DIR", "PATH", "URL"))
    return has_path_name or (kind is not None and bool(kind.is_file or kind.is_path))


_BREAKS = frozenset(":=")  # bash splits words at these, unless COMP_WORDBREAKS was changed


def _join_bash_words(words: Sequence[str]) -> TypedLine:
    """The words that bash split, joined again and without quotes. It replaces only the last piece."""
    joined: list[str] = []
    glued = False  # whether the next word continues this one
    for word in words:
        is_break = bool(word) and _BREAKS.issuperset(word)
        if joined and word and (is_break or glued):  # an empty word follows a space
            joined[-1] += word
        else:
            joined.append(word)
        glued = is_break
    piece = "".join(words[-1:])
    last = "" if glued else _unquote(piece)
    word = _unquote("".join(joined[-1:]))
    return TypedLine(list(map(_unquote, joined[:-1])), word, len(word) - len(last), piece.startswith(("'", '"')))


def _unquote(word: str) -> str:
    """The word as the shell reads it, also if its quote is still open."""
    return "".join(split_arg_string(word)[:1])


def _for_bash(word: str, _: str) -> str:
    return re.sub(r"([^\w@%+=:,./-])", r"\\\1", word)


def _for_zsh(word: str, meaning: str) -> str:
    """A comma before a word that is not complete yet, a full stop before one that a space may follow."""
    escaped = word.replace("\\", "\\\\").replace(":", "\\:")
    return ("," if word.endswith((":", "/")) else ".") + (f"{escaped}:{meaning}" if meaning else escaped)


def _for_fish(word: str, meaning: str) -> str:
    return f"{word}\t{meaning}"


_QUOTES: Mapping[str, Callable[[str, str], str]] = {"bash": _for_bash, "zsh": _for_zsh, "fish": _for_fish}


# -- the commands as one typer group


class _Bartack(TyperGroup):
    """All commands as one group, each imported on demand."""

    def get_command(self, ctx: ClickContext, cmd_name: str) -> ClickCommand | None:
        command = installed_commands().get(cmd_name)
        return None if command is None else get_command(import_module(command.module).app)

    def list_commands(self, ctx: ClickContext) -> list[str]:
        return list(installed_commands())

    def shell_complete(self, ctx: ClickContext, incomplete: str) -> list[CompletionItem]:
        """Taken from the table, because importing every command for its summary would take seconds."""
        summaries = {name: command.summary for name, command in installed_commands().items()}
        rows = (_OPTIONS if incomplete.startswith("-") else summaries).items()
        return [CompletionItem(word, help=meaning) for word, meaning in rows if word.startswith(incomplete)]
