"""What a human is asked about a tool call: all that it would do, readable.

Nothing may hide here. Characters that a terminal would obey or not show are spelled out, long lines are folded and not
cut, commands are shown whole, and arguments that have no place of their own in the picture follow as they are. Only of
a long text that write_file or edit_file would put into a file the end is left out, and how many lines that are is said.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from bartack.cli.terminal.looks import BAD, FAINT, GOOD, NAME, NOTE, marks_for
from bartack.cli.terminal.rendering import INDENT, Line, Lines, highlighted, indented, lines_of
from bartack.cli.terminal.safe_text import safe_line, visible_text
from bartack.nouns.entries import ApprovalRequired

__all__ = ["show_request"]

_SHOWN = 20  # lines of a text for a file


def show_request(console: Console, request: ApprovalRequired) -> None:
    """Print what the call is and would do."""
    head = Text.assemble((f"{marks_for(console).ask} ", NOTE), (visible_text(safe_line(request.tool_name)), NAME))
    if request.reason:
        head.append(f"  {safe_line(request.reason)}", style=FAINT)
    arguments = dict(request.arguments)
    picture = _PICTURES.get(request.tool_name)
    body = picture(console, arguments) if picture is not None else []
    if arguments:
        text = json.dumps(arguments, indent=2, ensure_ascii=False, default=str)
        body += _code(text, "json")
    console.print(Lines([*lines_of(console, head), *_body(console, body)]), crop=False)


# Each picture takes out of the arguments what it shows; what is of another type than it should be is left there.


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
    return [Text(visible_text(path)), *_side(console, "-", old, BAD), *_side(console, "+", new, GOOD)]


def _run_command(console: Console, arguments: dict[str, Any]) -> list[Text]:
    if (taken := _taken(arguments, "command")) is None:
        return []
    if arguments.get("directory") == ".":
        del arguments["directory"]
    lines = visible_text(taken[0]).split("\n")
    return [Text(f"{'  ' if place else '$ '}{line}") for place, line in enumerate(lines)]


_PICTURES: dict[str, Callable[[Console, dict[str, Any]], list[Text]]] = {
    "write_file": _write_file,
    "edit_file": _edit_file,
    "run_command": _run_command,
}


def _code(text: str, language: str) -> list[Text]:
    return highlighted(visible_text(text).removesuffix("\n").split("\n"), language)


def _side(console: Console, mark: str, text: str, style: str) -> list[Text]:
    lines = visible_text(text).removesuffix("\n").split("\n") if text else []
    return _shortened(console, [Text(f"{mark} {line}", style=style) for line in lines])


def _shortened(console: Console, lines: list[Text]) -> list[Text]:
    left = len(lines) - _SHOWN
    if left <= 1:  # a line that says that one more is there would be no shorter
        return lines
    return [*lines[:_SHOWN], Text(f"{marks_for(console).more} {left} more lines", style=FAINT)]


def _body(console: Console, texts: Iterable[Text]) -> list[Line]:
    lines: list[Line] = []
    for text in texts:
        text.overflow = "fold"
        lines += indented(lines_of(console, text, width=console.width - INDENT))
    return lines
