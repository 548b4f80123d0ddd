"""What a human types, by prompt_toolkit: prompts of one or many lines with history, choices, and text to edit.

Enter sends; Alt-Enter, Ctrl-J or a backslash at the end of a line begin a new one; pasted lines stay together. On a
dumb terminal prompt_toolkit appends what is typed and moves no cursor.

Between prompts the terminal shows nothing that is typed, so that an answer is not disturbed. What is typed while an
answer is given is kept for the next prompt, Enter included; a question about a tool call never takes it, because who
typed it had not seen the question.
"""

import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import create_app_session, run_in_terminal
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import AnyFormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output.plain_text import PlainTextOutput
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import is_dumb_terminal

from bartack.cli.attachments import valid_text
from bartack.cli.terminal.safe_text import safe_text

__all__ = ["Keyboard", "quiet"]

_MENU = 6  # lines
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
        mark: str,
        history: Path,
        status: Callable[[], str],
        commands: Mapping[str, str],
        toggle_thinking: Callable[[], None],
    ) -> None:
        """`mark` stands before what is typed, `status` is the line below it; `commands` are words that begin with a
        slash, and what they do."""
        self._mark = f"{mark} "
        self._status = status
        with _terminal():
            self._session: PromptSession[str] = PromptSession(
                history=_history(history),
                completer=_SlashCompleter(commands),
                complete_while_typing=True,
                key_bindings=_bindings(toggle_thinking),
                multiline=True,
                prompt_continuation=_continuation,
                bottom_toolbar=self._toolbar,
                style=_STYLE,
                enable_suspend=True,
            )
            self._asking: PromptSession[str] = PromptSession(style=_STYLE)
            self._editing: PromptSession[str] = PromptSession(
                style=_STYLE, multiline=True, key_bindings=_bindings(None)
            )
        self._ahead: list[KeyPress] = []  # typed while there was no prompt

    def _toolbar(self) -> AnyFormattedText:
        return [("class:bottom-toolbar", self._status())]

    async def line(self, default: str = "") -> str:
        """What the user says next; nothing if Ctrl-C threw it away. Raises `KeyboardInterrupt` for Ctrl-C in an empty
        line, and `EOFError` for Ctrl-D there."""
        ahead, self._ahead = self._ahead, []
        store_typeahead(self._session.app.input, ahead)
        try:
            return await _asked(self._session, "class:prompt", self._mark, default)
        except KeyboardInterrupt:
            if not self._session.default_buffer.text:
                raise
            return ""

    async def choice(self, question: str) -> str:
        """A short answer, on one line. Raises as `line` does."""
        self._put_aside(get_typeahead(self._asking.app.input))
        return (await _asked(self._asking, "class:question", question)).strip()

    async def edited(self, question: str, text: str) -> str:
        """The text as the user changed it; Enter sends, Alt-Enter begins a new line. Raises as `line` does."""
        return await _asked(self._editing, "class:question", question, text)

    @contextmanager
    def listening(self, toggle_thinking: Callable[[], object]) -> Iterator[None]:
        """While no prompt is shown: Ctrl-O toggles, and all other keys are kept for the next `line`."""
        source = self._session.app.input

        def hear() -> None:
            for press in source.read_keys():
                if press.key is Keys.ControlO:
                    toggle_thinking()
                else:
                    self._put_aside([press])

        self._put_aside(get_typeahead(source))  # what came in one piece with the last line
        with source.attach(hear):
            yield

    def _put_aside(self, presses: list[KeyPress]) -> None:
        self._ahead += [press for press in presses if press.key is not Keys.CPRResponse]  # the terminal typed that


def _terminal() -> AbstractContextManager[object]:
    """What prompts that are made inside write to. On a dumb terminal that is text and nothing else."""
    return create_app_session(output=PlainTextOutput(sys.stdout) if is_dumb_terminal() else None)


def _continuation(width: int, line_number: int, wrap_count: int) -> AnyFormattedText:
    return [("class:continuation", "  " if wrap_count else ". ")]


async def _asked(session: PromptSession[str], style: str, question: str, default: str = "") -> str:
    # A dumb terminal is not shown the text that a prompt begins with, unless it belongs to the question.
    shown = question + safe_text(default).replace("\n", "\r\n") if is_dumb_terminal() else question
    room = session.output.get_size().rows - 3  # for the completions, above the status line
    # Ctrl-C is a key here. The signal stays with the chat: prompt_toolkit would leave it with nobody afterwards. Faults
    # stay with the loop: prompt_toolkit would wait for Enter after one, for ever where the window was closed.
    said = await session.prompt_async(
        [(style, shown)],
        default=default,
        reserve_space_for_menu=max(0, min(room, _MENU)),
        handle_sigint=False,
        set_exception_handler=False,
    )
    return valid_text(said)


class _KeptHistory(FileHistory):
    """What was said, in a file. A disk that is full or read-only is no reason not to talk."""

    def store_string(self, string: str) -> None:
        with suppress(OSError):
            super().store_string(string)


def _history(path: Path) -> History:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600, exist_ok=True)
        path.open("rb").close()
    except OSError:
        return InMemoryHistory()
    return _KeptHistory(str(path))


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
            event.app.create_background_task(_above_the_prompt(toggle_thinking))

    return keys


async def _above_the_prompt(work: Callable[[], None]) -> None:
    await run_in_terminal(work)


@contextmanager
def quiet() -> Iterator[None]:
    """Keys are not echoed between prompts, and Enter stays what the next prompt takes for Enter; Ctrl-C still is a
    signal. Whoever comes back after Ctrl-Z finds it so again."""
    try:
        import termios  # noqa: PLC0415 - POSIX only
    except ImportError:
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    silent = termios.tcgetattr(descriptor)
    silent[0] &= ~termios.ICRNL
    silent[3] &= ~(termios.ECHO | termios.ICANON)

    def hush(*_: object) -> None:
        with suppress(termios.error):  # the window was closed, which wakes whoever was stopped there
            if termios.tcgetattr(descriptor)[3] & termios.ICANON:  # else a prompt has it, or nobody changed it
                termios.tcsetattr(descriptor, termios.TCSANOW, silent)

    hush()
    old = signal.signal(signal.SIGCONT, hush)
    try:
        yield
    finally:
        signal.signal(signal.SIGCONT, old)
        with suppress(termios.error):  # the window was closed
            termios.tcsetattr(descriptor, termios.TCSANOW, before)
