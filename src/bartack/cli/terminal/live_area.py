"""The lines at the bottom of the terminal that change; everything above them stays as it was printed.

While the area is open, whatever is printed with its console goes above it: the area is taken away, the new lines are
printed, and it is drawn again below them, all in one write, so nothing flickers. The area is never as high as the
window: no line of it can scroll away and stay behind.
"""

from collections.abc import Callable

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.control import Control
from rich.segment import ControlType, Segment

from bartack.cli.terminal.rendering import Line

__all__ = ["LiveArea"]


class LiveArea(RenderHook):
    """An area that shows the last lines of what `draw` gives."""

    def __init__(self, console: Console, draw: Callable[[], list[Line]]) -> None:
        self._console = console
        self._draw = draw
        self._is_open = False
        self._shown: list[Line] = []
        self._next: list[Line] | None = None  # drawn already, to be shown with this print
        self._widths: list[int] = []  # of the lines as they were drawn

    def refresh(self) -> None:
        """Draw it as it is now, if that is different; it opens when there is something to draw."""
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
        """Take it away; the cursor stands where it began."""
        if not self._is_open:
            return
        self._is_open = False
        self._console.pop_render_hook()
        self._console.control(self._erasing())
        self._console.show_cursor(True)
        self._shown, self._widths = [], []

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Called by the console for each print: around what is printed go the old area's end and the new area."""
        return [self._erasing(), *renderables, self]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self._shown, self._next = self._lines() if self._next is None else self._next, None
        self._widths = [Segment.get_line_length(line) for line in self._shown]
        for place, line in enumerate(self._shown):
            if place:
                yield Segment.line()
            yield from line

    def _lines(self) -> list[Line]:
        width, height = self._console.size
        lines = [Segment.adjust_line_length(line, width, pad=False) for line in self._draw()]
        return lines[-max(height - 1, 1) :]

    def _erasing(self) -> Control:
        if not self._widths:
            return Control()
        width, height = self._console.size
        # Terminals fold lines anew when they get narrower, so the area may stand on more rows than it had lines.
        rows = sum(max(1, -(-wide // max(width, 1))) for wide in self._widths)
        up = (ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)
        return Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2), *(up * (min(rows, height) - 1)))
