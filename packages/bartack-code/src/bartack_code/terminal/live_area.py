"""How lines reach the terminal: finished ones are printed once, changing ones are redrawn in an area below them, and
what tools print is captured and printed above it.

While the live area is open, everything printed with its console appears above it: the area is erased, the new lines are
printed, and it is redrawn below them, in a single write, so nothing flickers. The area is always lower than the window,
so no line of it can scroll away and stay behind.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from threading import Lock

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.control import Control
from rich.segment import ControlType, Segment, SegmentLines

from bartack_code.terminal.rendering import Line

_TEXT = "text"  # the kind whose blocks are also separated from each other
_OTHER = "other"  # anything the printer does not print itself


class Printer:
    """Prints finished lines, with a blank line between different kinds of them."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._last: str | None = None  # the kind printed last
        self._held: list[Line] | None = None

    def spaced(self, lines: list[Line], kind: str) -> list[Line]:
        """The lines, after a blank one if this kind needs it after what was printed last."""
        has_gap = self._last is not None and (kind != self._last or kind == _TEXT)
        return [[], *lines] if lines and has_gap else lines

    def put(self, lines: list[Line], kind: str) -> None:
        """Print the lines, or keep them while on hold."""
        if not lines:
            return
        lines = self.spaced(lines, kind)
        self._last = kind
        if self._held is not None:
            self._held += lines
        else:
            self.console.print(SegmentLines(lines, new_lines=True), crop=False)

    def make_room(self) -> None:
        """Print a blank line before something that others print, unless that is the first thing."""
        if self._last is not None:
            self.console.print()
        self._last = _OTHER

    def hold(self) -> None:
        """Keep new lines until `release`, for example while a question is on the screen."""
        self._held = self._held or []

    def release(self) -> None:
        """Print what was kept."""
        lines, self._held = self._held, None
        if lines:
            self.console.print(SegmentLines(lines, new_lines=True), crop=False)


class LiveArea(RenderHook):
    """Shows the last lines that `draw` returns, below everything printed."""

    def __init__(self, console: Console, draw: Callable[[], list[Line]]) -> None:
        self._console = console
        self._draw = draw
        self._is_open = False
        self._shown: list[Line] = []
        self._next: list[Line] | None = None  # already drawn, to be shown by the next print
        self._widths: list[int] = []  # how wide the lines are that are shown

    def refresh(self) -> None:
        """Redraw the area if it changed. The first lines open it."""
        lines = self._lines()
        if lines == self._shown:
            return
        if not self._is_open:
            self._is_open = True
            self._console.push_render_hook(self)
            self._console.show_cursor(False)
        self._next = lines
        self._console.print(Control())

    def close(self) -> None:
        """Erase the area and leave the cursor at its start."""
        if not self._is_open:
            return
        self._is_open = False
        self._console.pop_render_hook()
        self._console.control(self._eraser())
        self._console.show_cursor(True)
        self._shown, self._widths = [], []

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Called by the console for each print: erases the area before it and redraws it after."""
        return [self._eraser(), *renderables, self]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self._shown, self._next = self._lines() if self._next is None else self._next, None
        self._widths = [Segment.get_line_length(line) for line in self._shown]
        for index, line in enumerate(self._shown):
            if index:
                yield Segment.line()
            yield from line

    def _lines(self) -> list[Line]:
        width, height = self._console.size
        lines = [Segment.adjust_line_length(line, width, pad=False) for line in self._draw()]
        return lines[-max(height - 1, 1) :]

    def _eraser(self) -> Control:
        if not self._widths:
            return Control()
        width, height = self._console.size
        # Terminals rewrap lines when they get narrower, so the area may occupy more rows than it has lines.
        rows = sum(max(1, -(-wide // max(width, 1))) for wide in self._widths)
        up = (ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)
        return Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2), *(up * (min(rows, height) - 1)))


class CapturedOutput(StringIO):
    """Takes what tools print in any thread, and passes whole lines on in the event loop.

    There is one per chat: a logger that a tool creates in one run keeps it, and what it logs between runs is shown in
    the next one.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = Lock()
        self._written = ""
        self._wake: Callable[[], object] | None = None  # set while a run is shown

    def write(self, text: str) -> int:
        with self._lock:
            self._written += text
            if self._wake is not None and "\n" in text:
                self._wake()
        return len(text)

    @contextmanager
    def capture(self, show: Callable[[str], None]) -> Iterator[None]:
        """Pass the lines that this process prints to `show`. Anything that still needs the real stdout must have kept
        it. The output of child processes is not captured."""
        loop = asyncio.get_running_loop()
        self._wake = lambda: loop.call_soon_threadsafe(self._pass_on, show)
        with redirect_stdout(self), redirect_stderr(self):
            try:
                yield
            finally:
                with self._lock:
                    self._wake = None
                self._pass_on(show, is_end=True)

    def _pass_on(self, show: Callable[[str], None], *, is_end: bool = False) -> None:
        with self._lock:
            lines, end, incomplete = self._written.rpartition("\n")
            if is_end and incomplete:
                lines, end, incomplete = lines + end + incomplete, "\n", ""
            self._written = incomplete
        if end:
            show(lines)
