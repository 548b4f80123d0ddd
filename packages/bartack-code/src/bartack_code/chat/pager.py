"""A full-screen view of a text that is longer than the window, such as a diff or all of a session.

The text is printed to a console like any other, so it looks the same here. Where the cursor cannot be moved, and for
screen readers, it is printed to the terminal instead.
"""

import re
from collections.abc import Callable
from io import StringIO

from prompt_toolkit.application import Application, get_app
from prompt_toolkit.data_structures import Point
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import HSplit, Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.output import Output
from rich.console import Console

from bartack_code.terminal.style import DEFAULT_THEME, ChatConsole

_KEYS = "Up/Down, Space, b: scroll · g/G: start/end · q: back"
_SHORT_KEYS = "Space/b: scroll · q: back"
_LINE_END = re.compile(r"\r?\n")


def recorded(console: Console, draw: Callable[[Console], None]) -> list[str]:
    """The lines that `draw` prints to a console like this one, with their escape sequences for colors."""
    recording = ChatConsole(
        display=console.display if isinstance(console, ChatConsole) else "full",
        theme_name=console.theme_name if isinstance(console, ChatConsole) else DEFAULT_THEME,
        file=StringIO(),
        force_terminal=console.is_terminal,
        width=console.width,
        color_system=console.color_system,
        no_color=console.no_color,
        legacy_windows=False,
        highlight=False,
    )
    draw(recording)
    assert isinstance(recording.file, StringIO)
    lines = _LINE_END.split(recording.file.getvalue())
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


class Pager:
    """Lines and a position in them. `show` runs until the user goes back."""

    def __init__(self, lines: list[str], title: str, *, at_end: bool = False) -> None:
        self._lines = lines
        self._title = title
        self.offset = 0
        self._wants_end = at_end

    def scroll(self, lines: int, height: int) -> None:
        """Move by this many lines, as far as there are any."""
        self._wants_end = False
        self.offset = max(0, min(self.offset + lines, len(self._lines) - height))

    def visible(self, height: int) -> list[str]:
        """The lines in a window of this height."""
        if self._wants_end:
            self.offset = max(0, len(self._lines) - height)
        return self._lines[self.offset : self.offset + height]

    def status(self, width: int, height: int) -> str:
        """The line at the bottom."""
        last = min(self.offset + height, len(self._lines))
        where = f" {self._title} · {last} of {len(self._lines)} lines · "
        return f"{where}{_KEYS if len(where) + len(_KEYS) < width else _SHORT_KEYS}"[:width]

    async def show(self, source: Input, output: Output) -> None:
        """Show the lines on the whole screen."""
        application: Application[None] = Application(
            layout=Layout(
                HSplit(
                    [
                        Window(FormattedTextControl(self._text, get_cursor_position=lambda: Point(0, 0))),
                        Window(FormattedTextControl(self._bar), height=1, style="reverse"),
                    ]
                )
            ),
            key_bindings=self._bindings(),
            full_screen=True,
            input=source,
            output=output,  # sys.stdout may be redirected for tools
        )
        await application.run_async(handle_sigint=False, set_exception_handler=False)

    def _text(self) -> StyleAndTextTuples:
        return to_formatted_text(ANSI("\n".join(self.visible(_height()))))

    def _bar(self) -> str:
        return self.status(get_app().output.get_size().columns, _height())

    def _bindings(self) -> KeyBindings:
        keys = KeyBindings()
        moves: dict[str, Callable[[int], int]] = {
            "up k": lambda height: -1,
            "down j enter": lambda height: 1,
            "pageup b c-b": lambda height: 1 - height,
            "pagedown space c-f": lambda height: height - 1,
            "home g": lambda height: -len(self._lines),
            "end G": lambda height: len(self._lines),
        }

        def move(step: Callable[[int], int]) -> Callable[[KeyPressEvent], None]:
            return lambda event: self.scroll(step(_height()), _height())

        for names, step in moves.items():
            for name in names.split():
                keys.add(name)(move(step))
        for name in ("q", "c-c", "c-d", "c-t", "escape"):
            keys.add(name, eager=name == "escape")(lambda event: event.app.exit())

        @keys.add("c-z")
        def suspend(event: KeyPressEvent) -> None:
            event.app.suspend_to_background()

        @keys.add(Keys.Any)
        def _(event: KeyPressEvent) -> None:
            """Other keys do nothing."""

        return keys


def _height() -> int:
    return max(get_app().output.get_size().rows - 1, 1)
