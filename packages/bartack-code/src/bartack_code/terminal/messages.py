"""What the chat prints besides a run: stored messages, and tool calls that need approval.

A request for approval hides nothing. Control characters and invisible ones are escaped, long lines are wrapped rather
than cut, commands are shown in full, files as a whole diff, and arguments without a special presentation as JSON.
Only what is larger than the window is cut, with a note of how much there is, and the pager shows all of it.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.cells import chop_cells
from rich.console import Console
from rich.segment import Segment, SegmentLines
from rich.syntax import Syntax
from rich.text import Text as Styled

from bartack.app.notices import STOPPED, exit_code, exit_text, plural
from bartack.app.safe_text import safe_line, safe_text
from bartack.display.question_text import preview_lines
from bartack.display.visible_text import visible_blanks, visible_text
from bartack.nouns.entries import ApprovalRequired
from bartack.nouns.messages import Message
from bartack.nouns.parts import ContentPart, FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult
from bartack.session.tool_state import NO_OUTPUT, output_text
from bartack.tools.file_changes import NO_NEWLINE, DiffRow, FileChange, change_in, counts
from bartack.tools.sandbox import ABSENT
from bartack_code.terminal.live_area import Printer
from bartack_code.terminal.markdown_stream import MarkdownStream
from bartack_code.terminal.rendering import INDENT, Line, highlighted, indented, lines_of, plain, unwrapped
from bartack_code.terminal.style import BAD, FAINT, FAINT_ITALIC, GOOD, NAME, NOTE, symbols_for
from bartack_code.terminal.thinking import word_count
from bartack_code.terminal.tool_calls import TrackedCall, call_line, output_lines

_BELOW = 4  # lines of a window that a request leaves free: a note, the question, and what is typed


def show_message(console: Console, message: Message, *, thinking: bool = False, unfolded: bool = False) -> None:
    """Print the message and a blank line, but none between calls and their results. System messages are not shown.

    Outputs are folded to a few lines, unless `unfolded`.
    """
    printer = Printer(console)
    if message.role == "user":
        printer.put(prompt_lines(console, message), "prompt")
    elif message.role == "assistant":
        for part in message.parts:
            _print_part(printer, part, thinking=thinking, unfolded=unfolded)
        if message.meta is not None and message.meta.aborted:
            printer.put(lines_of(console, plain(STOPPED, FAINT)), "notice")
    elif message.role == "tool":
        for result in message.tool_results:
            printer.put(_result(console, result, unfolded=unfolded), "calls")
    has_calls = bool(message.parts) and isinstance(message.parts[-1], ToolCall)
    if message.role != "system" and not has_calls:
        printer.console.print()


def prompt_lines(console: Console, message: Message) -> list[Line]:
    """A message of the user, as at the prompt."""
    symbol = f"{symbols_for(console).prompt} "
    text = "\n".join(_content_text(part) for part in message.parts if isinstance(part, ContentPart))
    lines = lines_of(console, plain(text, NAME), width=console.width - len(symbol))
    return [[Segment(" " * len(symbol) if index else symbol), *line] for index, line in enumerate(lines)]


def _content_text(part: ContentPart) -> str:
    match part:
        case Text():
            return safe_text(part.text)
        case Image():
            return f"[image {safe_line(part.name or part.url or part.mime_type)}]"
        case FileRef():
            return f"[file {safe_line(part.path)}]"


def _print_part(printer: Printer, part: Part, *, thinking: bool, unfolded: bool) -> None:
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
            call = TrackedCall(part.tool_name, 0.0)
            call.complete_arguments = part.arguments
            printer.put([call_line(console, call, symbol=symbols_for(console).call, style=FAINT, remark="")], "calls")
            if part.result is not None:
                printer.put(_result(console, part.result, unfolded=unfolded), "calls")
        case _:
            pass


def _result(console: Console, result: ToolResult, *, unfolded: bool) -> list[Line]:
    """A symbol and the output. A command that failed is marked as failed, with its exit code."""
    symbols, output, code = symbols_for(console), output_text(result), exit_code(result.metadata)
    is_bad = result.is_error or bool(code)
    symbol = Styled.assemble((f"{symbols.bad if is_bad else symbols.good} ", BAD if is_bad else GOOD))
    lines = output_lines(console, output, is_error=result.is_error, has_failed=is_bad, unfolded=unfolded)
    first = unwrapped(console, [symbol])[0]
    if code:
        return [*unwrapped(console, [symbol.append(exit_text(code), style=BAD)]), *lines]
    if not lines:
        return unwrapped(console, [symbol.append(NO_OUTPUT.strip("()"), style=FAINT)])
    return [[*first, Segment(" "), *lines[0][1:]], *lines[1:]]  # the symbol replaces the indentation


# -- requests for approval


def show_request(console: Console, request: ApprovalRequired, *, in_full: bool = False) -> bool:
    """Print the call and what it would do; False if that is cut, because it is larger than the window. It is not cut
    with `in_full`."""
    head = Styled.assemble((f"{symbols_for(console).ask} ", NOTE), (visible_text(safe_line(request.tool_name)), NAME))
    if request.reason:
        head.append(f"  {safe_line(request.reason)}", style=FAINT)
    arguments, preview = dict(request.arguments), dict(request.preview or {})
    present, change = _PRESENTATIONS.get(request.tool_name), change_in(request)
    if change is not None:
        body = _changed_file(console, change, arguments)
    else:
        body = present(console, arguments) if present is not None else []
        body += _place(preview, arguments)
    if arguments:
        text = json.dumps(arguments, indent=2, ensure_ascii=False, default=str)
        body += _code(console, text, "json")
    if change is None:
        body += [Styled(visible_text(line)) for line in preview_lines(request, preview)]
    lines = [*lines_of(console, head), *_body(console, body)]
    total, limit = len(lines), max(console.height - _BELOW, 1)
    is_whole = in_full or total <= limit
    if not is_whole:
        size = sum(len(segment.text) for line in lines for segment in line)
        note = f"showing {limit} of {total:,} lines ({size:,} characters); v shows all"
        lines = [*lines[:limit], *indented(unwrapped(console, [Styled(note, style=NOTE)]))]
    console.print(SegmentLines(lines, new_lines=True), crop=False)
    return is_whole


def _changed_file(console: Console, change: FileChange, arguments: dict[str, Any]) -> list[Styled]:
    """The path, whether the file is new, and the diff."""
    is_overwriting = "text" in arguments
    for name in ("path", "text", "old", "new", "everywhere", "edits"):
        arguments.pop(name, None)
    rows = change.diff
    added, removed = counts(rows)
    path = Styled(visible_text(change.path), style=NAME)
    if change.note is not None:
        return [path, Styled(safe_line(change.note), style=BAD), *_rows(console, rows)]
    if change.before == ABSENT:
        note = f"new file, {plural(added, 'line')}"
    elif not rows:
        note = "no change"
    else:
        note = f"{'overwrites the file, ' if is_overwriting else ''}+{added} -{removed}"
    return [path.append(f"  {note}", style=NOTE), *_rows(console, rows)]


_ROW_STYLES = {" ": FAINT, "-": BAD, "+": GOOD}


def _rows(console: Console, rows: Sequence[DiffRow]) -> list[Styled]:
    """`12 - text` for each row, and the number of the lines left out at a gap. The rest of a long line is below its
    beginning, where it cannot be taken for another row."""
    width = max((len(str(row.number)) for row in rows if row.kind != "gap"), default=1)
    columns = max(console.width - INDENT - width - len(" - "), 1)
    ellipsis, alike = symbols_for(console).ellipsis, _alike(rows)
    texts: list[Styled] = []
    for row in rows:
        if row.kind == "gap":
            texts.append(Styled(f"{ellipsis:>{width}}   {plural(row.number, 'unchanged line')}", style=FAINT))
            continue
        text = visible_blanks(row.text) if row.kind != " " and _dense(row.text) in alike else row.text
        head = f"{row.number:>{width}} {row.kind} "
        for piece in chop_cells(visible_text(text), columns) or [""]:
            texts.append(Styled(head + piece, style=_ROW_STYLES[row.kind]))
            head = " " * len(head)
    return texts


def _alike(rows: Sequence[DiffRow]) -> set[str]:
    """The changed lines that differ in nothing but white space, which must then be visible."""
    removed, added = ({_dense(row.text) for row in rows if row.kind == kind} for kind in "-+")
    return removed & added


def _dense(text: str) -> str:
    return "".join(text.removesuffix(f" {NO_NEWLINE}").split())


# Each presentation removes what it shows from the arguments. Values of an unexpected type stay, and are shown as JSON.


def _take_texts(arguments: dict[str, Any], *names: str) -> list[str] | None:
    if not all(isinstance(arguments.get(name), str) for name in names):
        return None
    return [arguments.pop(name) for name in names]


def _write_file(console: Console, arguments: dict[str, Any]) -> list[Styled]:
    if (values := _take_texts(arguments, "path", "text")) is None:
        return []
    path, text = values
    return [Styled(visible_text(path)), *_code(console, text, Syntax.guess_lexer(path, text))]


def _edit_file(console: Console, arguments: dict[str, Any]) -> list[Styled]:
    if (values := _take_texts(arguments, "path", "old", "new")) is None:
        return []
    path, removed, added = values
    return [Styled(visible_text(path)), *_diff_lines("-", removed, BAD), *_diff_lines("+", added, GOOD)]


def _run_command(console: Console, arguments: dict[str, Any]) -> list[Styled]:
    if (values := _take_texts(arguments, "command")) is None:
        return []
    if arguments.get("directory") == ".":
        del arguments["directory"]
    lines = visible_text(values[0]).split("\n")
    # A mark before every line, also where a long one continues: the model writes them, and one could look like what
    # stands below the command.
    width = max(console.width - INDENT - 2, 1)
    folded = [(index, chop_cells(line, width) or [""]) for index, line in enumerate(lines)]
    return [
        Styled(f"{'… ' if part else '> ' if index else '$ '}{text}")
        for index, texts in folded
        for part, text in enumerate(texts)
    ]


def _place(preview: dict[str, Any], arguments: dict[str, Any]) -> list[Styled]:
    """Where a command would run: its directory, the runtime, and the sandbox. What is shown is removed from both."""
    if preview.get("kind") != "command":
        return []
    lines = []
    del preview["kind"]
    match preview:
        case {"directory": str(directory), "runtime": {"name": str(runtime)}}:
            arguments.pop("directory", None)
            del preview["directory"], preview["runtime"]
            place = visible_text(f"in {directory} ({runtime})").replace("\n", "\\n")
            lines.append(Styled(place, style=FAINT))
    match preview:
        case {"sandbox": str(walls)}:
            arguments.pop("unsandboxed", None)
            del preview["sandbox"]
            is_outside = walls == "none"
            text = "outside the sandbox" if is_outside else f"in the sandbox ({safe_line(walls.partition(':')[0])})"
            lines.append(Styled(text, style=BAD if is_outside else FAINT))
    return lines


_PRESENTATIONS: dict[str, Callable[[Console, dict[str, Any]], list[Styled]]] = {
    "write_file": _write_file,
    "edit_file": _edit_file,
    "run_command": _run_command,
}


def _code(console: Console, text: str, language: str) -> list[Styled]:
    return highlighted(console, visible_text(text).removesuffix("\n").split("\n"), language)


def _diff_lines(sign: str, text: str, style: str) -> list[Styled]:
    lines = visible_text(text).removesuffix("\n").split("\n") if text else []
    return [Styled(f"{sign} {line}", style=style) for line in lines]


def _body(console: Console, texts: Iterable[Styled]) -> list[Line]:
    """The lines, with a mark where a long one continues: what the model wrote must not look like a line of its own."""
    mark = f"{symbols_for(console).ellipsis} "
    width = console.width - INDENT
    lines: list[Line] = []
    for text in texts:
        text.overflow = "fold"
        folded = lines_of(console, text, width=width)
        if len(folded) > 1:
            first, *others = lines_of(console, text, width=width - len(mark))
            folded = [first, *([Segment(mark), *other] for other in others)]
        lines += indented(folded)
    return lines
