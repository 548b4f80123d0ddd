"""`Printer`: finished lines go to the terminal, with blank lines between things of different kinds.

While it holds, nothing is printed: a human is asked something, and whatever ends meanwhile is told afterwards.
"""

from rich.console import Console

from bartack.cli.terminal.rendering import Line, Lines

__all__ = ["Printer"]

_APART = "text"  # the kind whose pieces stand apart from each other too
_OTHER = "other"  # what this does not print itself


class Printer:
    """Prints once and for all."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._last: str | None = None  # the kind of what was printed last
        self._held: list[Line] | None = None

    def apart(self, lines: list[Line], kind: str) -> list[Line]:
        """The lines with a blank one before them, where this kind of thing wants one after what was printed last."""
        has_gap = self._last is not None and (kind != self._last or kind == _APART)
        return [[], *lines] if lines and has_gap else lines

    def put(self, lines: list[Line], kind: str) -> None:
        """Print the lines; pieces of one kind follow each other directly."""
        if not lines:
            return
        lines = self.apart(lines, kind)
        self._last = kind
        if self._held is not None:
            self._held += lines
        else:
            self.console.print(Lines(lines), crop=False)

    def interject(self) -> None:
        """Something else is printed next: a blank line before it, unless it is the first."""
        if self._last is not None:
            self.console.print()
        self._last = _OTHER

    def hold(self) -> None:
        """Keep what comes."""
        self._held = self._held or []

    def release(self) -> None:
        """Print what was kept, and go on."""
        held, self._held = self._held, None
        if held:
            self.console.print(Lines(held), crop=False)
