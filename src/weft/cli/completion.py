"""`weft completion`: the script that teaches a shell to complete `weft`, and what that script asks.

The script calls `weft` with the words before the cursor and `_WEFT_COMPLETE` set to the name of the shell; `weft.cli.app`
leads that call to `complete`. The answer is a line that says what it is, `words` or `files`, and after `words` a line for
each of them, quoted as the shell wants it. After `files` the shell completes file names by its own means.

Which words there are, typer knows, from the same declarations that read the command line. A command's module is imported
only once its name is complete.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any, Literal, NamedTuple, get_args

import typer
from typer.core import TyperGroup
from typer.main import get_command

# typer has no public name for what finds the option or argument under the cursor. Only completing depends on this one.
from typer._click import Command as ClickCommand
from typer._click import Context as ClickContext
from typer._click import Parameter
from typer._click.shell_completion import CompletionItem, _resolve_context, _resolve_incomplete, split_arg_string

from weft.cli.app import COMMANDS, Command, take_debug
from weft.cli.command import new_app
from weft.cli.sessions_print import safe

app = new_app("Print the completion script of a shell.")

Shell = Literal["bash", "zsh", "fish"]

_BASH = r"""
_weft_completion() {
    local kind line
    COMPREPLY=()
    {
        IFS= read -r kind
        while IFS= read -r line; do
            COMPREPLY+=("$line")
        done
    } < <(_WEFT_COMPLETE=bash "$1" "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    # compopt is missing in bash 3, and refuses to work where nothing is being completed.
    if [[ $kind == words ]]; then
        compopt +o default 2>/dev/null
    fi
    if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[:/] ]]; then
        compopt -o nospace 2>/dev/null
    fi
    return 0
}

complete -o default -F _weft_completion weft
"""

_ZSH = r"""
#compdef weft

_weft() {
    local -a answer
    answer=("${(@f)$(_WEFT_COMPLETE=zsh "${words[1]}" "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ ${answer[1]} == words ]]; then
        answer=("${(@)answer[2,-1]}")
        (( ${#answer} )) && _describe -V weft answer
    else
        _files
    fi
}

if [[ ${funcstack[1]} == _weft ]]; then
    _weft "$@"
else
    compdef _weft weft
fi
"""

_FISH = r"""
function __weft_completion
    set -l words (commandline --current-process --tokenize --cut-at-cursor)
    set -l program $words[1]
    set -e words[1]
    set -l current (commandline --current-token --cut-at-cursor)
    set -lx _WEFT_COMPLETE fish
    set -l answer ($program $words "$current" 2>/dev/null)
    if test "$answer[1]" = words
        set -e answer[1]
        printf '%s\n' $answer
    else
        __fish_complete_path "$current"
    end
end

complete --command weft --no-files --arguments '(__weft_completion)'
"""

_SCRIPTS: Mapping[Shell, str] = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


@app.command()
def completion(shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="The shell.")]) -> None:
    """Print the completion script of a shell.

    It completes commands, options, the names of models and the ids of sessions. To have it in every new shell:

    \b
    bash: add to ~/.bashrc           eval "$(weft completion bash)"
    zsh:  add to ~/.zshrc            eval "$(weft completion zsh)"    (after compinit)
    fish: run once                   weft completion fish > ~/.config/fish/completions/weft.fish
    """
    print(_SCRIPTS[shell].lstrip(), end="")


# -- answering the scripts


class Answer(NamedTuple):
    """What can stand at the cursor: these words; with none and `files`, the name of a file."""

    words: Sequence[tuple[str, str]]
    files: bool


def complete(shell: str, words: Sequence[str], commands: Mapping[str, Command] = COMMANDS) -> int:
    """Print the answer to a completion script. `words` are those after `weft`, up to the one under the cursor."""
    if shell not in get_args(Shell):
        return 1
    before, typed, cut = _TYPED[shell](words)
    answer = answered(before, typed, commands)
    print("files" if answer.files else "words")
    for word, meaning in answer.words:
        if word.isprintable():  # a line is a word
            print(_LINES[shell](cut, word, safe(meaning)))
    return 0


def answered(before: Sequence[str], typed: str, commands: Mapping[str, Command] = COMMANDS) -> Answer:
    """What can stand at the place of `typed`, after the words before it."""
    _, kept = take_debug(before)
    context = _resolve_context(_Weft(commands), {}, "weft", kept)
    place, value = _resolve_incomplete(context, kept, typed)
    items = place.shell_complete(context, value)
    words = [(str(item.value), item.help or "") for item in items if item.type == "plain"]
    return Answer(words, files=not words and isinstance(place, Parameter) and _may_be_file(place))


def _may_be_file(place: Parameter) -> bool:
    """Whether it takes a path: a place of a session's id or a model, a number or a choice does not."""
    return place.metavar not in {"SESSION", "VENDOR:MODEL"} and not getattr(place, "is_flag", False)


class _Weft(TyperGroup):
    """All commands as one group, each imported when it is asked for."""

    def __init__(self, commands: Mapping[str, Command]) -> None:
        super().__init__(name="weft")
        self._table = commands

    def get_command(self, ctx: ClickContext, cmd_name: str) -> ClickCommand | None:
        row = self._table.get(cmd_name)
        return None if row is None else get_command(import_module(row.module).app)

    def list_commands(self, ctx: ClickContext) -> list[str]:
        return list(self._table)

    def shell_complete(self, ctx: ClickContext, incomplete: str) -> list[CompletionItem]:
        """From the table, because importing every command for its summary would take seconds."""
        rows = [(name, row.summary) for name, row in self._table.items()]
        if incomplete.startswith("-"):
            rows = [
                ("--help", "Show the front page."),
                ("--version", "Show the version."),
                ("--debug", "Show tracebacks."),
            ]
        return [CompletionItem(word, help=meaning) for word, meaning in rows if word.startswith(incomplete)]
