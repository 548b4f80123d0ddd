"""What the chat prints besides a run: stored messages, and tool calls that need approval.

A request for approval hides nothing. Control characters and invisible ones are escaped, long lines are wrapped rather
than cut, commands are shown in full, and arguments without a special presentation follow as JSON. Only long texts that
write_file or edit_file would write are shortened, with the number of the lines left out.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console
from rich.segment import Segment, SegmentLines
from rich.syntax import Syntax
from rich.text import Text as Styled

from bartack.app.notices import STOPPED
from bartack.app.safe_text import safe_line, safe_text, visible_text
from bartack.cli.terminal.live_area import Printer
from bartack.cli.terminal.markdown_stream import MarkdownStream
from bartack.cli.terminal.rendering import INDENT, Line, highlighted, indented, lines_of, plain, unwrapped
from bartack.cli.terminal.style import BAD, FAINT, FAINT_ITALIC, GOOD, NAME, NOTE, symbols_for
from bartack.cli.terminal.thinking import word_count
from bartack.cli.terminal.tool_calls import TrackedCall, call_line, output_lines
from bartack.nouns.entries import ApprovalRequired
from bartack.nouns.messages import Message
from bartack.nouns.parts import ContentPart, FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.tool_states import Pending
from bartack.session.tool_state import NO_OUTPUT, output_text

_SHOWN = 20  # lines of a text to be written


def show_message(console: Console, message: Message, *, thinking: bool = False) -> None:
    """Print the message and a blank line, but none between calls and their results. System messages are not shown."""
    printer = Printer(console)
    if message.role == "user":
        printer.put(_prompt(console, message), "prompt")
    elif message.role == "assistant":
        for part in message.parts:
            _print_part(printer, part, thinking=thinking)
        if message.meta is not None and message.meta.aborted:
            printer.put(lines_of(console, plain(STOPPED, FAINT)), "notice")
    elif message.role == "tool":
        for result in message.tool_results:
            printer.put(_result(console, result), "calls")
    has_calls = bool(message.parts) and isinstance(message.parts[-1], ToolCall)
    if message.role != "system" and not has_calls:
        printer.console.print()


def _prompt(console: Console, message: Message) -> list[Line]:
    symbol = f"{symbols_for(console).prompt} "
    text = "\n".join(_content_text(part) for part in message.parts if isinstance(part, ContentPart))
    lines = lines_of(console, plain(text, NAME), width=console.width - len(symbol))
    return [[Segment(" " * len(symbol) if index else symbol), *line] for index, line in enumerate(lines)]


def _content_text(part: ContentPart) -> str:
    match part:
        case Text():
            return safe_text(part.text)
        case Image():
            return f"[image {safe_line(part.url or part.mime_type)}]"
        case FileRef():
            return f"[file {safe_line(part.path)}]"


def _print_part(printer: Printer, part: Part, *, thinking: bool) -> None:
    console = printer.console
    match part:
        case Text():
            stream = MarkdownStream(printer)
            stream.feed(part.text)
            stream.finish()
        case Thinking() if part.text.strip():
            text = safe_text(part.text).strip()
            lines = unwrapped(console, [Styled(f"thought{word_count(text)}", style=FAINT)])
            printer.put(lines + (lines_of(console, plain(text, FAINT_ITALIC)) if thinking else []), "thinking")
        case ToolCall():
            call = TrackedCall(part.tool_call_id, part.tool_name, 0.0)
            call.state = Pending(part.arguments, part.raw_args_text or "")
            printer.put([call_line(console, call, symbol=symbols_for(console).call, style=FAINT, after="")], "calls")
            if part.result is not None:
                printer.put(_result(console, part.result), "calls")
        case _:
            pass


def _result(console: Console, result: ToolResult) -> list[Line]:
    """A symbol and the first lines of the output."""
    symbols, output = symbols_for(console), output_text(result)
    symbol = Styled.assemble((f"{symbols.bad if result.is_error else symbols.good} ", BAD if result.is_error else GOOD))
    lines = output_lines(console, output, style=BAD if result.is_error else FAINT)
    if not lines:
        return unwrapped(console, [symbol.append(NO_OUTPUT.strip("()"), style=FAINT)])
    first = unwrapped(console, [symbol])[0]
    return [[*first, Segment(" "), *lines[0][1:]], *lines[1:]]  # the symbol replaces the indentation


# -- requests for approval


def show_request(console: Console, request: ApprovalRequired) -> None:
    """Print the call and what it would do."""
    head = Styled.assemble((f"{symbols_for(console).ask} ", NOTE), (visible_text(safe_line(request.tool_name)), NAME))
    if request.reason:
        head.append(f"  {safe_line(request.reason)}", style=FAINT)
    arguments = dict(request.arguments)
    present = _PRESENTATIONS.get(request.tool_name)
    body = present(console, arguments) if present is not None else []
    if arguments:
        text = json.dumps(arguments, indent=2, ensure_ascii=False, default=str)
        body += _code(text, "json")
    console.print(SegmentLines([*lines_of(console, head), *_body(console, body)], new_lines=True), crop=False)


# Each presentation removes what it shows from the arguments. Values of an unexpected type stay, and are shown as JSON.


def _taken(arguments: dict[str, Any], *names: str) -> list[str] | None:
    if not all(isinstance(arguments.get(name), str) for name in names):
        return None
    return [arguments.pop(name) for name in names]


def _write_file(console: Console, arguments: dict[str, Any]) -> list[Styled]:
    if (taken := _taken(arguments, "path", "text")) is None:
        return []
    path, text = taken
    return [Styled(visible_text(path)), *_shortened(console, _code(text, Syntax.guess_lexer(path, text)))]


def _edit_file(console: Console, arguments: dict[str, Any]) -> list[Styled]:
    if (taken := _taken(arguments, "path", "old", "new")) is None:
        return []
    path, old, new = taken
    return [Styled(visible_text(path)), *_diff_lines(console, "-", old, BAD), *_diff_lines(console, "+", new, GOOD)]


def _run_command(console: Console, arguments: dict[str, Any]) -> list[Styled]:
    if (taken := _taken(arguments, "command")) is None:
        return []
    if arguments.get("directory") == ".":
        del arguments["directory"]
    lines = visible_text(taken[0]).split("\n")
    return [Styled(f"{'  ' if index else '$ '}{line}") for index, line in enumerate(lines)]


_PRESENTATIONS: dict[str, Callable[[Console, dict[str, Any]], list[Styled]]] = {
    "write_file": _write_file,
    "edit_file": _edit_file,
    "run_command": _run_command,
}


def _code(text: str, language: str) -> list[Styled]:
    return highlighted(visible_text(text).removesuffix("\n").split("\n"), language)


def _diff_lines(console: Console, sign: str, text: str, style: str) -> list[Styled]:
    lines = visible_text(text).removesuffix("\n").split("\n") if text else []
    return _shortened(console, [Styled(f"{sign} {line}", style=style) for line in lines])


def _shortened(console: Console, lines: list[Styled]) -> list[Styled]:
    left = len(lines) - _SHOWN
    if left <= 1:  # the line with the number would be as long as the one it replaces
        return lines
    return [*lines[:_SHOWN], Styled(f"{symbols_for(console).ellipsis} {left} more lines", style=FAINT)]


def _body(console: Console, texts: Iterable[Styled]) -> list[Line]:
    lines: list[Line] = []
    for text in texts:
        text.overflow = "fold"
        lines += indented(lines_of(console, text, width=console.width - INDENT))
    return lines
