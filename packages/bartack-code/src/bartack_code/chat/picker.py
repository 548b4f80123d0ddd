"""A full-screen list of sessions with a preview: type to search, arrows to choose, Enter to open.

Words are looked for in titles, directories and ids at once, and in the messages of all sessions a moment later.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Point
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import ConditionalContainer, HSplit, Layout, VSplit, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.output import Output
from rich.cells import cell_len, set_cell_size

from bartack.nouns.errors import BartackError

_WIDE = 100  # columns from which the preview is beside the list
_PAUSE_S = 0.2  # messages are searched once no key was pressed for so long
_HINT = "Type to search · Up/Down · Enter: open · Esc: back"
_SHORT_HINT = "Enter: open · Esc: back"


class Listed(NamedTuple):
    """A session in the list. All texts are safe to print."""

    id: str
    short: str
    title: str
    directory: str
    updated: datetime


class Picker:
    """The state of the list: what was typed, what matches, and what is selected."""

    def __init__(
        self,
        sessions: Sequence[Listed],
        *,
        preview: Callable[[str], Awaitable[list[str]]],
        search: Callable[[str], Awaitable[set[str]]],
    ) -> None:
        """`preview` returns the lines of a session, `search` the ids of sessions whose messages contain these words."""
        self._sessions = list(sessions)
        self._preview = preview
        self._search = search
        self._found: set[str] = set()  # ids of sessions whose messages match
        self._loading: asyncio.Task[None] | None = None
        self.query = ""
        self.index = 0
        self.preview_lines: list[str] = []

    # -- the list

    @property
    def matches(self) -> list[Listed]:
        """The sessions that match what was typed."""
        words = self.query.lower().split()
        return [
            session
            for session in self._sessions
            if session.id in self._found
            or all(word in f"{session.title} {session.directory} {session.id}".lower() for word in words)
        ]

    @property
    def selected(self) -> Listed | None:
        """The session that Enter opens."""
        matches = self.matches
        return matches[min(self.index, len(matches) - 1)] if matches else None

    def move(self, step: int) -> None:
        """Select another session."""
        self.index = max(0, min(self.index + step, len(self.matches) - 1))

    def type(self, query: str) -> None:
        """Search for something else."""
        self.query, self.index, self._found = query, 0, set()

    def rows(self, width: int, height: int) -> list[tuple[bool, str]]:
        """The visible rows: whether each is selected, and its text in this many columns."""
        matches = self.matches
        first = max(0, min(self.index - height // 2, len(matches) - height))
        longest = max((len(session.short) for session in self._sessions), default=0)
        return [
            (first + number == self.index, _row(session, longest, width))
            for number, session in enumerate(matches[first : first + height])
        ]

    # -- the screen

    async def choose(self, source: Input, output: Output) -> str | None:
        """Show the list; returns the id of the chosen session, or None."""
        size = output.get_size

        def list_text() -> StyleAndTextTuples:
            columns, rows = size().columns, size().rows
            is_wide = columns >= _WIDE
            width = columns // 2 if is_wide else columns
            height = max(rows - 2 if is_wide else (rows - 2) // 2, 1)
            return [
                ("reverse" if is_selected else "", f"{text}\n") for is_selected, text in self.rows(width - 1, height)
            ] or [("", "No session matches.")]

        def preview_text() -> StyleAndTextTuples:
            rows = size().rows - 2 if size().columns >= _WIDE else (size().rows - 2) // 2
            return to_formatted_text(ANSI("\n".join(self.preview_lines[-max(rows, 1) :])))

        def hint() -> str:
            return f" {_HINT if len(_HINT) + 2 < size().columns else _SHORT_HINT}"

        def fixed(text: Callable[[], StyleAndTextTuples]) -> Window:
            return Window(FormattedTextControl(text, get_cursor_position=lambda: Point(0, 0)), wrap_lines=False)

        is_wide = Condition(lambda: size().columns >= _WIDE)
        body = HSplit(
            [
                Window(FormattedTextControl(lambda: f" search: {self.query}"), height=1, style="bold"),
                ConditionalContainer(
                    VSplit([fixed(list_text), Window(width=1, char="│"), fixed(preview_text)]), filter=is_wide
                ),
                ConditionalContainer(
                    HSplit([fixed(list_text), Window(height=1, char="─"), fixed(preview_text)]), filter=~is_wide
                ),
                Window(FormattedTextControl(hint), height=1, style="reverse"),
            ]
        )
        application: Application[str | None] = Application(
            layout=Layout(body), key_bindings=self._bindings(), full_screen=True, input=source, output=output
        )
        self._load(application)
        try:
            return await application.run_async(handle_sigint=False, set_exception_handler=False)
        finally:
            if self._loading is not None:
                self._loading.cancel()
                with suppress(asyncio.CancelledError):
                    await self._loading

    def _load(self, application: "Application[str | None]") -> None:
        """Search the messages and load the preview, in the background."""

        async def load() -> None:
            if self.query:
                await asyncio.sleep(_PAUSE_S)
                with suppress(BartackError):
                    self._found = await self._search(self.query)
            selected = self.selected
            with suppress(BartackError):  # deleted in the meantime
                self.preview_lines = [] if selected is None else await self._preview(selected.id)
            application.invalidate()

        if self._loading is not None:
            self._loading.cancel()
        self._loading = asyncio.create_task(load())

    def _bindings(self) -> KeyBindings:
        keys = KeyBindings()

        def bind(change: Callable[[KeyPressEvent], None], *names: str) -> None:
            def run(event: KeyPressEvent) -> None:
                change(event)
                self._load(event.app)

            for name in names:
                keys.add(name)(run)

        bind(lambda event: self.move(-1), "up", "c-p")
        bind(lambda event: self.move(1), "down", "c-n")
        bind(lambda event: self.move(-10), "pageup")
        bind(lambda event: self.move(10), "pagedown")
        bind(lambda event: self.type(self.query[:-1]), "backspace")
        bind(lambda event: self.type(""), "c-u")
        bind(lambda event: self.type(self.query + (event.data if event.data.isprintable() else "")), Keys.Any)

        @keys.add("enter")
        def open_it(event: KeyPressEvent) -> None:
            event.app.exit(result=None if self.selected is None else self.selected.id)

        @keys.add("c-z")
        def suspend(event: KeyPressEvent) -> None:
            event.app.suspend_to_background()

        @keys.add("escape", eager=True)
        @keys.add("c-c")
        @keys.add("c-d")
        def leave(event: KeyPressEvent) -> None:
            event.app.exit(result=None)

        return keys


def _row(session: Listed, id_width: int, width: int) -> str:
    """` 01a1e5df  2026-01-31 10:00  title  directory`, as far as it fits."""
    start = f" {session.short:<{id_width}}  {session.updated.astimezone():%m-%d %H:%M}  "
    room = width - cell_len(start)
    title = session.title or "(no title)"
    if session.directory and cell_len(title) + cell_len(session.directory) + 2 <= room:
        title = f"{title}  {session.directory}"
    return set_cell_size(start + title, max(width, 1))
