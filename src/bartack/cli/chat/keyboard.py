"""Keyboard input with prompt_toolkit: multi-line prompts with history, choices, and text to edit.

Enter sends; Alt-Enter, Ctrl-J or a backslash at the end of a line start a new line; pasted lines stay together. On a
dumb terminal prompt_toolkit appends what is typed and does not move the cursor.

Between prompts nothing that is typed is echoed, so that it does not disturb the answer. It is kept for the next prompt,
including Enter. A question about a tool call never takes it, because it was typed before the question was visible.
"""

import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import create_app_session, run_in_terminal
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.formatted_text import AnyFormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output.plain_text import PlainTextOutput
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import is_dumb_terminal

from bartack.app.safe_text import safe_text, valid_text

_MENU = 6  # lines for completions
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
        symbol: str,
        history: Path,
        status: Callable[[], str],
        commands: Mapping[str, str],
        toggle_thinking: Callable[[], None],
    ) -> None:
        """`symbol` starts the prompt, `status` gives the line below it, `commands` are completed with a summary."""
        self._prompt = f"{symbol} "
        # Prompts write plain text on a dumb terminal.
        with create_app_session(output=PlainTextOutput(sys.stdout) if is_dumb_terminal() else None):
            self._session: PromptSession[str] = PromptSession(
                history=_history(history),
                completer=WordCompleter(list(commands), meta_dict=commands, sentence=True),
                complete_while_typing=True,
                key_bindings=_bindings(toggle_thinking),
                multiline=True,
                prompt_continuation=_continuation,
                bottom_toolbar=lambda: [("class:bottom-toolbar", status())],
                style=_STYLE,
                enable_suspend=True,
            )
            self._asking: PromptSession[str] = PromptSession(style=_STYLE)
            self._editing: PromptSession[str] = PromptSession(
                style=_STYLE, multiline=True, key_bindings=_bindings(None)
            )
        self._typeahead: list[KeyPress] = []  # typed while there was no prompt

    async def line(self, default: str = "") -> str:
        """The next line; empty if Ctrl-C discarded it. Raises `KeyboardInterrupt` for Ctrl-C on an empty line, and
        `EOFError` for Ctrl-D there."""
        typeahead, self._typeahead = self._typeahead, []
        store_typeahead(self._session.app.input, typeahead)
        try:
            return await _read(self._session, "class:prompt", self._prompt, default)
        except KeyboardInterrupt:
            if not self._session.default_buffer.text:
                raise
            return ""

    async def choice(self, question: str) -> str:
        """A short answer on one line. Raises as `line` does."""
        self._keep(get_typeahead(self._asking.app.input))
        return (await _read(self._asking, "class:question", question)).strip()

    async def edited(self, text: str) -> str:
        """The text, edited by the user. Raises as `line` does."""
        return await _read(self._editing, "class:question", "", text)

    @contextmanager
    def listening(self, toggle_thinking: Callable[[], object]) -> Iterator[None]:
        """While there is no prompt: Ctrl-O toggles thinking, and all other keys are kept for the next `line`."""
        source = self._session.app.input

        def handle() -> None:
            for press in source.read_keys():
                if press.key is Keys.ControlO:
                    toggle_thinking()
                else:
                    self._keep([press])

        self._keep(get_typeahead(source))  # what arrived together with the last line
        with source.attach(handle):
            yield

    def _keep(self, presses: list[KeyPress]) -> None:
        self._typeahead += [press for press in presses if press.key is not Keys.CPRResponse]  # sent by the terminal


def _continuation(width: int, line_number: int, wrap_count: int) -> AnyFormattedText:
    return [("class:continuation", "  " if wrap_count else ". ")]


async def _read(session: PromptSession[str], style: str, question: str, default: str = "") -> str:
    # On a dumb terminal the default text is shown only as a part of the question.
    shown = question + safe_text(default).replace("\n", "\r\n") if is_dumb_terminal() else question
    room = session.output.get_size().rows - 3  # for the completions, above the status line
    # Ctrl-C is a key here, and the chat keeps its own signal handler, which prompt_toolkit would remove. It also keeps
    # the exception handler: that of prompt_toolkit waits for Enter, forever if the window was closed.
    text = await session.prompt_async(
        [(style, shown)],
        default=default,
        reserve_space_for_menu=max(0, min(room, _MENU)),
        handle_sigint=False,
        set_exception_handler=False,
    )
    return valid_text(text)


class _History(FileHistory):
    """Prompt history in a file. A full or read-only disk is ignored."""

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
    return _History(str(path))


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
    """Do not echo keys between prompts, and keep Enter as the key that the next prompt expects; Ctrl-C still sends a
    signal. This is restored after Ctrl-Z and fg."""
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

    def silence(*_: object) -> None:
        with suppress(termios.error):  # the window was closed, which wakes a stopped process
            if termios.tcgetattr(descriptor)[3] & termios.ICANON:  # otherwise a prompt is active, or it was not changed
                termios.tcsetattr(descriptor, termios.TCSANOW, silent)

    silence()
    old = signal.signal(signal.SIGCONT, silence)
    try:
        yield
    finally:
        signal.signal(signal.SIGCONT, old)
        with suppress(termios.error):  # the window was closed
            termios.tcsetattr(descriptor, termios.TCSANOW, before)
