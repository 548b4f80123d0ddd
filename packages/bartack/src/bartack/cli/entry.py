"""The commands and the front page made from them. In: the command-line arguments. Out: an exit status.

A command is a module with an `app` made by `bartack.cli.options.new_app`, and one row in a table of commands: COMMANDS
here, or that of another package, which the entry-point group ``bartack.commands`` names:

    [project.entry-points."bartack.commands"]
    bartack-server = "bartack_server.commands:COMMANDS"

The module, and typer with it, is imported only when its command runs, because `bartack --help` may take at most three
times as long as `python -c "import rich"` (see bench/start_up.py). Reading entry points takes about as long as the rest
of the front page, so a command of our own packages is found without them.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

from bartack.app.errors import error_hint, error_text
from bartack.app.extras import COMMAND_PACKAGES
from bartack.cli.output import PIPE_CLOSED, OutputClosed

GROUP = "bartack.commands"


class Command(NamedTuple):
    """The module of a command, and its line on the front page."""

    module: str
    summary: str


COMMANDS: Mapping[str, Command] = {
    "completion": Command("bartack.cli.completion", "Print a shell completion script."),
    "decode": Command("bartack.cli.decode", "Decode recorded provider streams."),
    "mcp": Command("bartack.cli.mcp", "Configure MCP servers, or serve sessions as one."),
    "models": Command("bartack.cli.models", "Download, list and remove local models."),
    "schema": Command("bartack.cli.schema", "Print the JSON Schema of the canonical JSON."),
    "sessions": Command("bartack.cli.sessions", "List, search, export, import, check and purge sessions."),
    "usage": Command("bartack.cli.usage", "Show the tokens and costs of all sessions."),
}

_FIRST = ("chat", "run", "init")  # the other commands follow in alphabetical order
_OWN_OPTIONS = ("--help", "-h", "--version")

FRONT_PAGE = """\
Usage: bartack [--debug] [COMMAND] [ARGUMENTS]

Chat with and script LLM agents, and inspect and repair their sessions. In a terminal, 'bartack' and
'bartack -c' are short for 'bartack chat' and 'bartack chat -c'.
{commands}
Options:
  --debug    Show tracebacks.
  --version  Show the version.
  --help     Show this page, or the help of a command.
"""


def run(words: Sequence[str], commands: Mapping[str, Command] | None = None) -> int:
    """Run one command line and return its exit status. Raises ImportError, and with --debug every error.

    The commands are those of all installed packages unless others are passed.
    """
    debug, command_words = take_debug(words)
    if debug:
        from bartack.cli.output import print_tracebacks  # noqa: PLC0415 - needed only here

        print_tracebacks()
    try:
        if "_BARTACK_COMPLETE" in os.environ:  # called by a completion script
            from bartack.cli.completion import complete  # noqa: PLC0415 - slow, and needed only here

            status = complete(os.environ["_BARTACK_COMPLETE"], words)
        else:
            status = _dispatch(command_words, commands)
        sys.stdout.flush()
        return status
    except ImportError:
        raise
    except OutputClosed as error:
        if error.is_pipe:
            return PIPE_CLOSED
        _report(
            f"Cannot write to stdout: {error.reason}.", error_hint(error) or "Send the output to another file or disk."
        )
        return 1
    except Exception as error:  # the outermost level: every other error is reported here
        if debug:
            raise
        if _is_encoding(error) and not all(map(_is_text, words)):
            _report("An argument is not valid UTF-8.", "Check the characters of each argument, and the locale (LANG).")
            return 2
        status = getattr(error, "exit_status", 1)
        explained = f"'bartack {command_words[0]} --help' explains the arguments." if status == 2 else None
        _report(error_text(error), error_hint(error) or explained or _hint_for(error))
        return status


def _is_encoding(error: Exception) -> bool:
    return isinstance(error, UnicodeEncodeError) or isinstance(error.__cause__, UnicodeEncodeError)


def _is_text(word: str) -> bool:
    """Python reads the bytes of an argument that are not UTF-8 as surrogates."""
    return word.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in word)


def _hint_for(error: Exception) -> str:
    if isinstance(error, FileNotFoundError) and error.filename:
        return "Check the path; a relative one starts at the current directory."
    if isinstance(error, IsADirectoryError) and error.filename:
        return "Name a file in it."
    if isinstance(error, PermissionError) and error.filename:
        return "Check the permissions of the file and its folder."
    return "Re-run with --debug for a traceback."


def _dispatch(words: Sequence[str], commands: Mapping[str, Command] | None) -> int:
    has_command = bool(words) and (not words[0].startswith("-") or words[0] in _OWN_OPTIONS)
    match words if has_command or not _is_interactive() else ["chat", *words]:
        case [] | ["--help" | "-h"]:
            print(front_page(installed_commands() if commands is None else commands), end="")
        case ["--version"]:
            from importlib.metadata import version  # noqa: PLC0415 - slow, and needed only here

            print(f"bartack {version('bartack')}")
        case [name, *arguments]:
            command = _find_command(name) if commands is None else commands.get(name)
            if command is not None:
                return _run_command(name, command, arguments)
            if commands is None and name in COMMAND_PACKAGES:
                package = COMMAND_PACKAGES[name]
                _report(f"'bartack {name}' needs the package {package}.", f"Run: pip install {package}")
            else:
                kind = "option" if name.startswith("-") else "command"
                _report(f"Unknown {kind} {name!r}.", _suggestion(name, commands))
            return 2
    return 0


def _find_command(name: str) -> Command | None:
    """The command of this name in any installed package."""
    if name in COMMANDS:
        return COMMANDS[name]
    package = COMMAND_PACKAGES.get(name, "").replace("-", "_")
    if not package:
        return installed_commands().get(name)
    if find_spec(package) is None:
        return None
    table: Mapping[str, Command] = import_module(f"{package}.commands").COMMANDS
    return table[name]


def installed_commands() -> Mapping[str, Command]:
    """The commands of all installed packages, in the order of the front page."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow, and needed only here

    commands = dict(COMMANDS)
    for entry_point in entry_points(group=GROUP):
        commands |= entry_point.load()
    first = [name for name in _FIRST if name in commands]
    return {name: commands[name] for name in [*first, *sorted(commands.keys() - set(first))]}


def _run_command(name: str, command: Command, arguments: Sequence[str]) -> int:
    for library in ("typer", "rich"):
        if find_spec(library) is None:
            raise ModuleNotFoundError(name=library)
    app = import_module(command.module).app
    from bartack.cli.options import run_app  # noqa: PLC0415 - imports typer, as commands do

    return run_app(app, arguments, f"bartack {name}")


def _is_interactive() -> bool:
    """Whether a person is at both ends, and `bartack` alone can start the chat."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def front_page(commands: Mapping[str, Command]) -> str:
    """The page that `bartack --help` prints."""
    width = max(map(len, commands), default=0)
    lines = [f"  {name:{width}}  {command.summary}\n" for name, command in commands.items()]
    return FRONT_PAGE.format(commands="".join(["\nCommands:\n", *lines]) if lines else "")


def take_debug(words: Sequence[str]) -> tuple[bool, list[str]]:
    """Whether --debug is among the arguments before `--`, and the arguments without it."""
    end = words.index("--") if "--" in words else len(words)
    remaining = [word for word in words[:end] if word != "--debug"]
    return len(remaining) < end, [*remaining, *words[end:]]


def _report(text: str, hint: str) -> None:
    from bartack.app.safe_text import safe_line  # noqa: PLC0415 - needed only here

    if sys.stderr is not None:  # if it is closed, print would use stdout
        print(f"bartack: {safe_line(text)}\nhint: {safe_line(hint)}", file=sys.stderr)


def _suggestion(name: str, commands: Mapping[str, Command] | None) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - slow, and needed only here

    close = get_close_matches(name, installed_commands() if commands is None else commands, n=1)
    return f"Did you mean 'bartack {close[0]}'?" if close else "'bartack --help' lists the commands and options."
