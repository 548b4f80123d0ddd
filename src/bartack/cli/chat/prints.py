"""What tools print while an answer is given: it goes to the screen of the run, where it disturbs nothing."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from threading import Lock

__all__ = ["Prints"]


class Prints(StringIO):
    """Takes what any thread writes; whole lines are shown in the event loop. One is enough for a chat: a logger that a
    tool made in one run keeps it, and what it says between runs waits for the next one."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = Lock()
        self._written = ""
        self._wake: Callable[[], object] | None = None  # there while a run is shown

    def write(self, text: str) -> int:
        with self._lock:
            self._written += text
            if self._wake is not None and "\n" in text:
                self._wake()
        return len(text)

    @contextmanager
    def shown_by(self, show: Callable[[str], None]) -> Iterator[None]:
        """While it lasts, `show` gets the lines that this process prints. Whatever else writes to the terminal has to
        hold the real stdout before. Programs that a tool starts are not heard."""
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
            lines, end, rest = self._written.rpartition("\n")
            if is_end and rest:
                lines, end, rest = lines + end + rest, "\n", ""
            self._written = rest
        if end:
            show(lines)
