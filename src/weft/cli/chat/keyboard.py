"""What a human types, by prompt_toolkit: prompts of one or many lines with history, choices, and text to edit.

Enter sends; Alt-Enter, Ctrl-J or a backslash at the end of a line begin a new one; pasted lines stay together. On a
dumb terminal prompt_toolkit reads plain lines. Between prompts the terminal shows nothing that is typed, so that an
answer is not disturbed; it is kept for the next prompt.
"""

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import AnyFormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.styles import Style

__all__ = ["Keyboard", "quiet"]

_STYLE = Style.from_dict(
    {
        "prompt": "bold ansicyan",
        "continuation": "ansibrightblack",
        "bottom-toolbar": "noreverse ansibrightblack",
        "question": "bold ansiyellow",
    }
)


class Keyboard:
    """The prompts of one chat."""

    def __init__(
        self,
        *,
        history: Path | None,
        status: Callable[[], str],
        commands: Mapping[str, str],
        toggle_thinking: Callable[[], None],
    ) -> None:
        """`commands` are words that begin with a slash, and what they do; `status` is the line below the prompt."""
        self._status = status
        self._session: PromptSession[str] = PromptSession(
            history=_history(history),
            completer=_SlashCompleter(commands),
            complete_while_typing=True,
            key_bindings=_bindings(toggle_thinking),
            multiline=True,
            prompt_continuation=[("class:continuation", ". ")],
            bottom_toolbar=self._toolbar,
            style=_STYLE,
            enable_suspend=True,
        )
        self._asking: PromptSession[str] = PromptSession(style=_STYLE)

    def _toolbar(self) -> AnyFormattedText:
        return [("class:bottom-toolbar", self._status())]

    async def line(self, default: str = "") -> str:
        """What the user says next. Raises `KeyboardInterrupt` for Ctrl-C and `EOFError` for Ctrl-D."""
        return await self._session.prompt_async([("class:prompt", "> ")], default=default)

    async def choice(self, question: str, letters: str) -> tuple[str, str]:
        """One of the letters, and what was said after it; asked again until it is one. Raises as `line` does.

        A word that begins with a letter is that letter: "yes" is "y".
        """
        while True:
            word, _, rest = (await self._asking.prompt_async([("class:question", question)])).strip().partition(" ")
            if word and word[0].lower() in letters:
                return word[0].lower(), rest.strip()

    async def edited(self, question: str, text: str) -> str:
        """The text as the user changed it; Enter sends, Alt-Enter begins a new line. Raises as `line` does."""
        editor: PromptSession[str] = PromptSession(style=_STYLE, multiline=True, key_bindings=_bindings(None))
        return await editor.prompt_async([("class:question", question)], default=text)


def _history(path: Path | None) -> History:
    if path is None:
        return InMemoryHistory()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600, exist_ok=True)
    except OSError:  # a disk that is full or read-only is no reason not to talk
        return InMemoryHistory()
    return FileHistory(str(path))


class _SlashCompleter(Completer):
    """Completes the first word of a line that begins with a slash."""

    def __init__(self, commands: Mapping[str, str]) -> None:
        self._commands = commands

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        text = document.text_before_cursor
        if text.startswith("/") and " " not in text and "\n" not in text:
            for name, meaning in self._commands.items():
                if name.startswith(text):
                    yield Completion(name, start_position=-len(text), display_meta=meaning)


def _bindings(toggle_thinking: Callable[[], None] | None) -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    @keys.add("c-j")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    if toggle_thinking is not None:

        @keys.add("c-o")
        def _(event: KeyPressEvent) -> None:
            from prompt_toolkit.application import run_in_terminal  # noqa: PLC0415 - only where an application runs

            asyncio.ensure_future(run_in_terminal(toggle_thinking))  # noqa: RUF006 - the application waits for it

    return keys


@contextmanager
def quiet() -> Iterator[None]:
    """Keys are not echoed meanwhile; Ctrl-C still is a signal."""
    try:
        import termios  # noqa: PLC0415 - POSIX only
    except ImportError:
        yield
        return
    if not sys.stdin.isatty():
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    silent = termios.tcgetattr(descriptor)
    silent[0] &= ~termios.ICRNL  # Enter stays what the next prompt takes for Enter
    silent[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(descriptor, termios.TCSANOW, silent)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, before)
