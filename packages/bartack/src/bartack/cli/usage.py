"""Wrong command lines: typer's exceptions -> one sentence and a hint. typer prints a usage line, in its terms."""

import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import NamedTuple

import typer

from bartack.app.errors import with_hint
from bartack.cli.options import UsageError
from bartack.nouns.errors import ErrorCode

_EXTRA = re.compile(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", re.DOTALL)
_PLAIN = [  # pydantic's messages in plain words
    (re.compile(r"Value error, "), ""),
    (re.compile(r"does not match the formats? .*"), "is not a valid time"),
    (re.compile(r"Input should be a valid integer.*"), "it must be an integer"),
    (re.compile(r"Input should be greater than or equal to "), "it must be at least "),
    (re.compile(r"Input should be less than or equal to "), "it must be at most "),
]
_NO_COMMAND = re.compile(r"No such command '(.*?)'", re.DOTALL)


def run_app(app: typer.Typer, words: Sequence[str], name: str) -> int:
    """Run a command and return its exit status. Raises `UsageError` with a hint, and what the command raises."""
    try:
        status = app(list(words), prog_name=name, standalone_mode=False)
    except typer.Abort:  # Ctrl-C or the end of the input at a question
        print("Stopped.", file=sys.stderr)
        return 1
    except typer.TyperException as error:
        if error.format_message().startswith("Usage: "):  # a group without a command: the message is its help page
            print(error.format_message(), file=sys.stderr)
            return 2
        report = usage_report(error, name)
        raise with_hint(UsageError(report.text, code=ErrorCode.INVALID_CONFIG), report.hint) from error
    return status if isinstance(status, int) else 0


class UsageReport(NamedTuple):
    """What is wrong with a command line, and what to do."""

    text: str
    hint: str


def usage_report(error: typer.TyperException, name: str) -> UsageReport:
    """The error of the command with this name in one sentence, and a hint."""
    context = getattr(error, "ctx", None)
    path = name if context is None else context.command_path
    help_hint = f"'{path} --help' explains the arguments."
    message = " ".join(error.format_message().split())
    option = getattr(error, "option_name", None)
    if option is not None and message.startswith("No such option"):
        params = context.command.get_params(context) if context else []
        option_names = [
            name for parameter in params for name in parameter.opts if name.startswith("-")
        ]  # not those of arguments
        close = get_close_matches(option, option_names, n=1, cutoff=0.7)
        return UsageReport(f"Unknown option {option!r}.", f"Did you mean {close[0]!r}?" if close else help_hint)
    if match := _EXTRA.match(message):
        return UsageReport(f"Unexpected argument {match[1]!r}.", f"Quote an argument with spaces. {help_hint}")
    if match := _NO_COMMAND.match(message):
        close = get_close_matches(match[1], context.command.commands if context else (), n=1)
        hint = f"Did you mean '{path} {close[0]}'?" if close else f"'{path} --help' lists the commands."
        return UsageReport(f"Unknown command {match[1]!r} of {path}.", hint)
    text = message.removeprefix("Invalid value: ")
    for pattern, plain in _PLAIN:
        text = pattern.sub(plain, text)
    text = f"{text[:1].upper()}{text[1:]}" if not text.startswith("--") else text
    return UsageReport(text if text.endswith((".", "?")) else f"{text}.", help_hint)
