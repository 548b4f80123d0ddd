"""A tool call that needs approval, shown so that the user sees what it would do.

Nothing may be hidden. Control characters and invisible ones are escaped, long lines are wrapped rather than cut,
commands are shown in full, and arguments without a special presentation follow as JSON. Only long texts that write_file
or edit_file would write are shortened, with the number of the lines left out.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from bartack.app.safe_text import safe_line, visible_text
from bartack.cli.terminal.rendering import INDENT, Line, Lines, highlighted, indented, lines_of
from bartack.cli.terminal.style import BAD, FAINT, GOOD, NAME, NOTE, symbols_for
from bartack.nouns.entries import ApprovalRequired

_SHOWN = 20  # lines of a text to be written


def show_request(console: Console, request: ApprovalRequired) -> None:
    """Print the call and what it would do."""
    head = Text.assemble((f"{symbols_for(console).ask} ", NOTE), (visible_text(safe_line(request.tool_name)), NAME))
    if request.reason:
        head.append(f"  {safe_line(request.reason)}", style=FAINT)
    arguments = dict(request.arguments)
    present = _PRESENTATIONS.get(request.tool_name)
    body = present(console, arguments) if present is not None else []
    if arguments:
        text = json.dumps(arguments, indent=2, ensure_ascii=False, default=str)
        body += _code(text, "json")
    console.print(Lines([*lines_of(console, head), *_body(console, body)]), crop=False)


# Each presentation removes what it shows from the arguments. Values of an unexpected type stay, and are shown as JSON.


def _taken(arguments: dict[str, Any], *names: str) -> list[str] | None:
    if not all(isinstance(arguments.get(name), str) for name in names):
        return None
    return [arguments.pop(name) for name in names]


def _write_file(console: Console, arguments: dict[str, Any]) -> list[Text]:
    if (taken := _taken(arguments, "path", "text")) is None:
        return []
    path, text = taken
    return [Text(visible_text(path)), *_shortened(console, _code(text, Syntax.guess_lexer(path, text)))]


def _edit_file(console: Console, arguments: dict[str, Any]) -> list[Text]:
    if (taken := _taken(arguments, "path", "old", "new")) is None:
        return []
    path, old, new = taken
    return [Text(visible_text(path)), *_diff_lines(console, "-", old, BAD), *_diff_lines(console, "+", new, GOOD)]


def _run_command(console: Console, arguments: dict[str, Any]) -> list[Text]:
    if (taken := _taken(arguments, "command")) is None:
        return []
    if arguments.get("directory") == ".":
        del arguments["directory"]
    lines = visible_text(taken[0]).split("\n")
    return [Text(f"{'  ' if index else '$ '}{line}") for index, line in enumerate(lines)]


_PRESENTATIONS: dict[str, Callable[[Console, dict[str, Any]], list[Text]]] = {
    "write_file": _write_file,
    "edit_file": _edit_file,
    "run_command": _run_command,
}


def _code(text: str, language: str) -> list[Text]:
    return highlighted(visible_text(text).removesuffix("\n").split("\n"), language)


def _diff_lines(console: Console, sign: str, text: str, style: str) -> list[Text]:
    lines = visible_text(text).removesuffix("\n").split("\n") if text else []
    return _shortened(console, [Text(f"{sign} {line}", style=style) for line in lines])


def _shortened(console: Console, lines: list[Text]) -> list[Text]:
    left = len(lines) - _SHOWN
    if left <= 1:  # the line with the number would be as long as the one it replaces
        return lines
    return [*lines[:_SHOWN], Text(f"{symbols_for(console).ellipsis} {left} more lines", style=FAINT)]


def _body(console: Console, texts: Iterable[Text]) -> list[Line]:
    lines: list[Line] = []
    for text in texts:
        text.overflow = "fold"
        lines += indented(lines_of(console, text, width=console.width - INDENT))
    return lines
