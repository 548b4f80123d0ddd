"""The table of commands and the front page made from it. In: the command-line arguments. Out: an exit status.

A command is a module with an `app` made by `bartack.cli.options.new_app`, and one row in COMMANDS. The module, and
typer with it, is imported only when its command runs, because `bartack --help` may take at most three times as long as
`python -c "import rich"`. Measured in units of that (see bench/start_up.py): msgspec alone 1.9, msgspec and typer 3.2,
a help page by typer with rich 6.8, one by cyclopts 7.1.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import NamedTuple

from bartack.app.errors import error_hint, error_text
from bartack.cli.stdout import PIPE_CLOSED, OutputClosed


class Command(NamedTuple):
    """The module of a command, and its line on the front page."""

    module: str
    summary: str


COMMANDS: Mapping[str, Command] = {
    "chat": Command("bartack.cli.chat.command", "Chat with a model in the terminal."),
    "run": Command("bartack.cli.run", "Run one prompt and print the answer, for scripts."),
    "init": Command("bartack.cli.init", "Write a configuration file, check keys, fetch the local model."),
    "acp": Command("bartack.cli.acp", "Run as the agent of an editor."),
    "completion": Command("bartack.cli.completion", "Print a shell completion script."),
    "decode": Command("bartack.cli.decode", "Decode recorded provider streams."),
    "doctor": Command("bartack.cli.doctor", "Check the installation, keys, models and store."),
    "export": Command("bartack.cli.exports", "Export a session to another agent, or as a document."),
    "import": Command("bartack.cli.imports", "Import sessions of other agents."),
    "mcp": Command("bartack.cli.mcp", "Configure MCP servers, or serve sessions as one."),
    "models": Command("bartack.cli.models", "Download, list and remove local models."),
    "schema": Command("bartack.cli.schema", "Print the JSON Schema of the canonical JSON."),
    "serve": Command("bartack.cli.serve", "Serve a web page and an API for sessions."),
    "sessions": Command("bartack.cli.sessions", "List, search, export, import, check and purge sessions."),
    "show": Command("bartack.cli.show", "Print a stored session, or a transcript of another agent."),
    "worker": Command("bartack.cli.worker", "Run a worker that executes queued runs."),
    "workers": Command("bartack.cli.workers", "Show workers and queued runs."),
}

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


def run(words: Sequence[str], commands: Mapping[str, Command] = COMMANDS) -> int:
    """Run one command line and return its exit status. Raises ImportError, and with --debug every error."""
    debug, kept = take_debug(words)
    try:
        if "_BARTACK_COMPLETE" in os.environ:  # called by a completion script
            from bartack.cli.completion import complete  # noqa: PLC0415 - slow, and needed only here

            status = complete(os.environ["_BARTACK_COMPLETE"], words)
        else:
            status = _dispatch(kept, commands)
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
        explained = f"'bartack {kept[0]} --help' explains the arguments." if status == 2 else None
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


def _dispatch(words: Sequence[str], commands: Mapping[str, Command]) -> int:
    has_command = bool(words) and (not words[0].startswith("-") or words[0] in _OWN_OPTIONS)
    match words if has_command or not _is_interactive() else ["chat", *words]:
        case [] | ["--help" | "-h"]:
            print(front_page(commands), end="")
        case ["--version"]:
            from importlib.metadata import version  # noqa: PLC0415 - slow, and needed only here

            print(f"bartack {version('bartack')}")
        case [name, *rest] if name in commands:
            app = import_module(commands[name].module).app
            from bartack.cli.usage import run_app  # noqa: PLC0415 - imports typer, as commands do

            return run_app(app, rest, f"bartack {name}")
        case [name, *_]:
            kind = "option" if name.startswith("-") else "command"
            _report(f"Unknown {kind} {name!r}.", _suggestion(name, commands))
            return 2
    return 0


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
    kept = [word for word in words[:end] if word != "--debug"]
    return len(kept) < end, [*kept, *words[end:]]


def _report(text: str, hint: str) -> None:
    from bartack.app.safe_text import safe_line  # noqa: PLC0415 - needed only here

    if sys.stderr is not None:  # if it is closed, print would use stdout
        print(f"bartack: {safe_line(text)}\nhint: {safe_line(hint)}", file=sys.stderr)


def _suggestion(name: str, commands: Mapping[str, Command]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - slow, and needed only here

    close = get_close_matches(name, commands, n=1)
    return f"Did you mean 'bartack {close[0]}'?" if close else "'bartack --help' lists the commands and options."
