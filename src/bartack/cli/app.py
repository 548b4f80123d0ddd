"""The table of commands, and the front page drawn from it. In: the words after `bartack`. Out: an exit code.

A command is a module with an `app` made by `bartack.cli.command.new_app`, and one row in COMMANDS. The module is imported
when its command is called, and typer with it, because `bartack --help` may take three times `python -c "import rich"`.
Measured (bench/start_up.py has the page itself), in units of that: msgspec alone 1.9, msgspec and typer 3.2, a page of
typer with rich 6.8, one of cyclopts 7.1.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import NamedTuple

from bartack.nouns.errors import BartackError, ErrorCode


class Command(NamedTuple):
    """Where a command lives, and its line on the front page."""

    module: str
    summary: str


COMMANDS: Mapping[str, Command] = {
    "chat": Command("bartack.cli.chat.command", "Talk with a model in the terminal."),
    "run": Command("bartack.cli.run", "Ask a model once, for scripts."),
    "completion": Command("bartack.cli.completion", "Print the completion script of a shell."),
    "decode": Command("bartack.cli.decode", "Show what recorded provider streams say."),
    "doctor": Command("bartack.cli.doctor", "Check the installation, keys, models and stores."),
    "models": Command("bartack.cli.models", "Fetch, list and remove the weights of local models."),
    "schema": Command("bartack.cli.schema", "Print the JSON Schema of every noun."),
    "sessions": Command("bartack.cli.sessions", "List, search, move, check and purge stored sessions."),
    "show": Command("bartack.cli.show", "Show a stored session."),
}

FRONT_PAGE = """\
Usage: bartack [--debug] COMMAND [ARGUMENTS]

The message core for LLM agents: read, show, repair and run conversations.
{commands}
Options:
  --debug    Show the traceback of an error.
  --version  Show the version.
  --help     Show this page; after a command, the page of that command.
"""


def run(words: Sequence[str], commands: Mapping[str, Command] = COMMANDS) -> int:
    """The exit code of one command line. Raises ImportError as it is, and with --debug everything."""
    debug, kept = take_debug(words)
    try:
        if "_BARTACK_COMPLETE" in os.environ:  # a shell asks what may come next
            from bartack.cli.completion import complete  # noqa: PLC0415 - slow, and only shells need it

            return complete(os.environ["_BARTACK_COMPLETE"], words)
        return dispatch(kept, commands)
    except ImportError:
        raise
    except Exception as error:  # the rim: whatever is left is reported here, and fails the command
        if debug:
            raise
        complain(sentence(error), hint(error))
        return getattr(error, "exit_status", 1)


def dispatch(words: Sequence[str], commands: Mapping[str, Command]) -> int:
    match words:
        case [] | ["--help" | "-h"]:
            print(front_page(commands), end="")
        case ["--version"]:
            print(f"bartack {version()}")
        case [name, *rest] if name in commands:
            import_module(commands[name].module).app(rest, prog_name=f"bartack {name}")
        case [name, *_]:
            complain(f"there is no {kind(name)} {name!r}", advice(name, commands))
            return 2
    return 0


def front_page(commands: Mapping[str, Command]) -> str:
    width = max(map(len, commands), default=0)
    lines = [f"  {name:{width}}  {command.summary}\n" for name, command in commands.items()]
    return FRONT_PAGE.format(commands="".join(["\nCommands:\n", *lines]) if lines else "")


def take_debug(words: Sequence[str]) -> tuple[bool, list[str]]:
    """Whether --debug stands anywhere before `--`, and the words without it."""
    end = words.index("--") if "--" in words else len(words)
    kept = [word for word in words[:end] if word != "--debug"]
    return len(kept) < end, [*kept, *words[end:]]


def sentence(error: Exception) -> str:
    """What went wrong, on one line. An error that is not ours, nor the system's, is named by its class too."""
    if isinstance(error, BartackError) and error.code is ErrorCode.INVALID_CONFIG:
        text = error.message  # where in a value the fault is says nothing about words of the command line
    elif isinstance(error, OSError) and error.filename and error.strerror:
        text = f"{error.filename}: {error.strerror}"
    else:
        text = str(error)
    text = " ".join(text.split())
    return text if isinstance(error, BartackError | OSError) and text else f"{type(error).__name__}: {text}"


def hint(error: Exception) -> str:
    """What to do about it: the error's last note, if whoever raised it left one."""
    notes = getattr(error, "__notes__", ())
    return notes[-1] if notes else "the same with --debug shows where it happened"


def complain(fault: str, hint: str) -> None:
    from bartack.cli.terminal.safe_text import safe_line  # noqa: PLC0415 - only who fails needs it

    if sys.stderr is not None:  # it may be closed, and then print would take stdout
        print(f"bartack: {safe_line(fault)}\nhint: {safe_line(hint)}", file=sys.stderr)


def kind(word: str) -> str:
    return "option" if word.startswith("-") else "command"


def advice(name: str, commands: Mapping[str, Command]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - a slow import that only a typing error needs

    close = get_close_matches(name, commands, n=1)
    return f"did you mean 'bartack {close[0]}'?" if close else "bartack --help lists what there is"


def version() -> str:
    from importlib.metadata import version as installed  # noqa: PLC0415 - a slow import that only --version needs

    return installed("bartack")
