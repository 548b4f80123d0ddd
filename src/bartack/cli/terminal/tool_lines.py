"""Tool calls as lines: one for the call, and below it a little of what it says or said."""

import json
from collections.abc import Mapping
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from bartack.cli.terminal.calls import Call
from bartack.cli.terminal.looks import BAD, FAINT, GOOD, NAME, NOTE, marks_for, seconds, whole_seconds
from bartack.cli.terminal.rendering import INDENT, Line, indented, lines_of, plain, unwrapped
from bartack.cli.terminal.safe_text import safe_line, safe_text
from bartack.nouns.tool_states import Completed, Errored, Pending, Running
from bartack.session.tool_state import NO_OUTPUT

__all__ = ["arguments_text", "call_line", "cut", "ended_lines", "left_as", "open_lines", "outcome", "output_lines"]

_SHOWN = 4  # lines of an output or an error
_VALUE = 60  # characters of one argument
_ENOUGH = 4_000  # characters of an output that are looked at for those lines
_NOTICED = 0.05  # seconds; less is no time


def arguments_text(arguments: Mapping[str, Any], more: str) -> str:
    """The arguments on one line; of a text with several lines only how many there are."""
    return " ".join(f"{safe_line(str(key))}={_value_text(value, more)}" for key, value in arguments.items())


def _value_text(value: Any, more: str) -> str:
    if isinstance(value, str):
        lines = value.count("\n") + (not value.endswith("\n"))
        return f"({lines} lines)" if lines > 1 else f'"{cut(safe_line(value[: 4 * _VALUE]), _VALUE, more)}"'
    return cut(safe_line(json.dumps(value, ensure_ascii=False, default=str)[: 4 * _VALUE]), _VALUE, more)


def cut(text: str, width: int, more: str) -> str:
    """The text in at most this many columns."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(width - cell_len(more), 0)).rstrip() + more


def call_line(console: Console, call: Call, *, mark: str, style: str, after: str) -> Line:
    """`✓ name arguments  after`, as wide as the window at most: the arguments give way."""
    more = marks_for(console).more
    line = Text.assemble((f"{mark} ", style), (safe_line(call.name) or "?", NAME))
    room = console.width - line.cell_len - cell_len(after) - (2 if after else 0) - 1
    said = arguments_text(call.arguments, more)
    if said and room > len(more):
        line.append(f" {cut(said, room, more)}")
    if after:
        line.append(f"  {after}", style=FAINT if style != NOTE else NOTE)
    return unwrapped(console, [line])[0]


def open_lines(console: Console, call: Call, *, now: float, frame: str) -> list[Line]:
    """A call that is not over."""
    marks = marks_for(console)
    if call.waits:
        return [call_line(console, call, mark=marks.ask, style=NOTE, after=left_as(call))]
    if isinstance(call.state, Pending):
        return [call_line(console, call, mark=marks.call, style=FAINT, after="")]
    after = whole_seconds(now - call.began) if isinstance(call.state, Running) and now - call.began >= 1 else ""
    lines = [call_line(console, call, mark=frame, style=FAINT, after=after)]
    if said := _progress(call, marks.more):
        lines += indented(unwrapped(console, [Text(cut(said, console.width - INDENT, marks.more), style=FAINT)]))
    return lines


def _progress(call: Call, more: str) -> str:
    if not isinstance(call.state, Running):
        return ""
    title = safe_line(call.state.title or "")
    told = safe_line(call.progress[-_ENOUGH:])
    numbers = arguments_text(call.state.metadata or {}, more)
    return " ".join(word for word in (title, told, numbers) if word)


def outcome(call: Call) -> list[str]:
    """What is said about a call that is over, in words: its time, and how long its output is."""
    words = []
    if call.duration is not None and call.duration >= _NOTICED:
        words.append(seconds(call.duration))
    if isinstance(call.state, Errored) and not call.ran:
        words.append("not run")
    if isinstance(call.state, Completed):
        count = len(call.state.output.rstrip("\n").split("\n"))
        words += ["no output"] if call.state.output == NO_OUTPUT else [f"{count} lines"] if count > 1 else []
    return words


def left_as(call: Call) -> str:
    """What became of a call that has no outcome when its run is over."""
    return "waits for you" if call.waits else "stopped" if call.ran else "not run"


def ended_lines(console: Console, call: Call) -> list[Line]:
    """A call that is over, and the beginning of its output or error; or one that the end of its run left open."""
    marks, after = marks_for(console), "  ".join(outcome(call))
    if isinstance(call.state, Completed):
        head = call_line(console, call, mark=marks.good, style=GOOD, after=after)
        return [head, *output_lines(console, call.state.output)]
    if isinstance(call.state, Errored):
        head = call_line(console, call, mark=marks.bad, style=BAD, after=after)
        return [head, *output_lines(console, call.state.error, style=BAD)]
    mark, style = (marks.ask, NOTE) if call.waits else (marks.bad, FAINT)
    return [call_line(console, call, mark=mark, style=style, after=left_as(call))]


def output_lines(console: Console, output: str, *, style: str = FAINT) -> list[Line]:
    """The first lines of an output, cut to the window, and how many more there are; of an error they are wrapped."""
    if output == NO_OUTPUT:
        return []
    more, width = marks_for(console).more, max(console.width - INDENT, 1)
    count = len(output.rstrip("\n").split("\n"))
    lines = safe_text(output[:_ENOUGH].rstrip()).split("\n")
    if style == BAD:
        wrapped = lines_of(console, plain("\n".join(lines[:_SHOWN]), style), width=width)[:_SHOWN]
        return indented(wrapped)
    shown = lines if count <= _SHOWN else lines[: _SHOWN - 1]
    left = count - len(shown)
    texts = [cut(line, width, more) for line in shown] + ([f"{more} {left} more lines"] if left > 0 else [])
    return indented(unwrapped(console, (Text(text, style=style) for text in texts)))
