"""A stored message, as shown when a session is continued."""

from rich.console import Console
from rich.segment import Segment
from rich.text import Text as Styled

from bartack.app.notices import STOPPED
from bartack.app.safe_text import safe_line, safe_text
from bartack.cli.terminal.live_area import Printer
from bartack.cli.terminal.markdown_stream import MarkdownStream
from bartack.cli.terminal.rendering import Line, lines_of, plain, unwrapped
from bartack.cli.terminal.style import BAD, FAINT, FAINT_ITALIC, GOOD, NAME, symbols_for
from bartack.cli.terminal.thinking import word_count
from bartack.cli.terminal.tool_calls import TrackedCall, call_line, output_lines
from bartack.nouns.messages import Message
from bartack.nouns.parts import ContentPart, FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.tool_states import Pending
from bartack.session.tool_state import NO_OUTPUT, output_text


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
