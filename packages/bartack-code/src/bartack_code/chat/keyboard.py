"""Keyboard input with prompt_toolkit: multi-line prompts with history, choices, and text to edit.

Enter sends; Alt-Enter, Ctrl-J or a backslash at the end of a line start a new line; pasted lines stay together. On a
dumb terminal prompt_toolkit appends what is typed and does not move the cursor.

What is typed between prompts goes to a `Draft`, which the screen shows below the answer; Enter queues it as the next
message. A question about a tool call never takes it, because it was typed before the question was visible. What was
typed before the chat was ready counts too.

Tab completes commands, their arguments, and the paths of mentions.
"""

import asyncio
import os
import re
import select
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from prompt_toolkit import PromptSession
from prompt_toolkit.application import create_app_session, in_terminal, run_in_terminal
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.cursor_shapes import ModalCursorShapeConfig
from prompt_toolkit.document import Document
from prompt_toolkit.filters import vi_mode, vi_navigation_mode
from prompt_toolkit.formatted_text import AnyFormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input.typeahead import get_typeahead
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent, merge_key_bindings
from prompt_toolkit.keys import Keys
from prompt_toolkit.output.plain_text import PlainTextOutput
from prompt_toolkit.styles import DynamicStyle, Style
from prompt_toolkit.utils import is_dumb_terminal
from rich.console import Console

from bartack.app.safe_text import safe_text, valid_text
from bartack_code.chat.draft import Draft
from bartack_code.chat.pager import Pager, recorded
from bartack_code.chat.pastes import Pastes
from bartack_code.chat.picker import Picker
from bartack_code.terminal.style import is_plain, prompt_styles
from bartack_code.workspace.attachments import as_mention, completions

_MENU = 6  # lines for completions
_ESCAPE_S = 0.2  # a later byte is another key, even over a slow connection


class Keyboard:
    """The prompts of one chat. `bind` adds what depends on the conversation, which itself needs the keyboard."""

    def __init__(
        self, *, symbol: str, history: Path, pastes: Pastes, theme: Callable[[], str], vi: bool = False
    ) -> None:
        """`symbol` starts the prompt, and `theme` returns the name of the current theme. With `vi`, the prompt has the
        keys of vi, and the shape of the cursor shows whether they insert text."""
        style = DynamicStyle(lambda: _style(theme()))
        self.draft = Draft(pastes)
        self._is_listening = False  # true between prompts
        self._prompt = f"{symbol} "
        # Prompts write plain text on a dumb terminal.
        with create_app_session(output=PlainTextOutput(sys.stdout) if is_dumb_terminal() else None):
            self._session: PromptSession[str] = PromptSession(
                history=_history(history, pastes),
                complete_while_typing=False,
                key_bindings=_bindings(),
                multiline=True,
                prompt_continuation=_continuation,
                style=style,
                enable_suspend=True,
                vi_mode=vi,
                cursor=ModalCursorShapeConfig() if vi else None,
            )
            if vi:  # otherwise Esc would take effect half a second later
                self._session.app.ttimeoutlen = _ESCAPE_S
            self._asking: PromptSession[str] = PromptSession(
                style=style, enable_suspend=True, key_bindings=_leaving_keys()
            )
            # Otherwise the key after Esc would count as pressed with Alt, however late it comes.
            self._asking.app.timeoutlen = self._asking.app.ttimeoutlen = _ESCAPE_S
            self._editing: PromptSession[str] = PromptSession(
                style=style, multiline=True, key_bindings=_bindings(), enable_suspend=True, vi_mode=vi
            )

    def bind(self, *, status: Callable[[], str] | None, completer: Completer, keys: KeyBindings) -> None:
        """`status` returns the line below the prompt, `completer` completes what is typed there, and `keys` have an
        effect there."""
        self._session.completer = completer
        self._session.key_bindings = merge_key_bindings([_bindings(), keys])
        if status is not None:
            self._session.complete_while_typing = True  # a menu that changes is not for a screen reader
            self._session.bottom_toolbar = lambda: [("class:bottom-toolbar", status())]

    async def line(self, default: str = "") -> str:
        """The next line; empty if Ctrl-C discarded it. Raises `KeyboardInterrupt` for Ctrl-C on an empty line, and
        `EOFError` for Ctrl-D there. It starts with what was typed before it."""
        typed = self.draft.take_text()
        try:
            return await _read(self._session, "class:prompt", self._prompt, "\n".join(filter(None, (default, typed))))
        except KeyboardInterrupt:
            if not self._session.default_buffer.text:
                raise
            return ""

    async def choice(self, question: str) -> str:
        """A short answer on one line. Raises as `line` does."""
        self.take_typed()
        try:
            return (await _read(self._asking, "class:question", question)).strip()
        finally:
            self._mark_pastes()

    async def edit(self, text: str) -> str:
        """The text, edited by the user. Raises as `line` does."""
        try:
            return await _read(self._editing, "class:question", "", text)
        finally:
            self._mark_pastes()

    async def page(
        self, console: Console, draw: Callable[[Console], None], title: str, *, at_end: bool = False
    ) -> None:
        """Show what `draw` prints in a pager, or print it where there can be none."""
        if is_plain(console):
            draw(console)
        else:
            pager = Pager(recorded(console, draw), title, at_end=at_end)
            try:
                await pager.show(self._session.app.input, self._session.app.output)
            finally:
                self._mark_pastes()

    async def pick(self, picker: Picker) -> str | None:
        """The session that the user chooses."""
        return await picker.choose(self._session.app.input, self._session.app.output)

    @contextmanager
    def listening(self, keys: Mapping[Keys, Callable[[], object]], changed: Callable[[], object]) -> Iterator[None]:
        """While there is no prompt: these keys have their own effect, and all others change the draft."""
        source = self._session.app.input

        def handle() -> None:
            for press in source.read_keys():
                if isinstance(press.key, Keys) and press.key in keys:
                    keys[press.key]()
                else:
                    self._keep([press])
            changed()

        self.take_typed()
        self._is_listening = True
        self._mark_pastes()
        try:
            with source.attach(handle):
                yield
        finally:
            self._is_listening = False
            self._mark_pastes()

    @contextmanager
    def released(self) -> Iterator[None]:
        """While the process is stopped: the terminal belongs to the shell."""
        self._mark_pastes(is_released=True)
        yield
        self._mark_pastes()

    def _mark_pastes(self, *, is_released: bool = False) -> None:
        """Have the terminal mark pastes while there is no prompt, so that their lines stay together. A prompt does this
        itself, and undoes it at its end."""
        output = self._session.app.output
        if self._is_listening and not is_released:
            output.enable_bracketed_paste()
        else:
            output.disable_bracketed_paste()
        output.flush()

    def type(self, text: str) -> None:
        """Take text that was typed before the first prompt. The terminal has turned Enter into a line feed."""
        presses: list[KeyPress] = []
        parser = Vt100Parser(presses.append)
        parser.feed_and_flush(text.replace("\n", "\r"))
        self._keep(presses)

    def take_typed(self) -> None:
        """Add to the draft what arrived together with the last key of a prompt. prompt_toolkit keeps it for the next
        prompt, which may be minutes away."""
        self._keep(get_typeahead(self._session.app.input))

    def redraw(self) -> None:
        """Draw the prompt again, because its status line has changed."""
        self._session.app.invalidate()

    def remember(self, line: str) -> None:
        """Add a line that no prompt has read to the history."""
        self._session.history.append_string(line)

    def _keep(self, presses: list[KeyPress]) -> None:
        self.draft.press(presses)


@cache
def _style(theme: str) -> Style:
    """The same object each time: prompt_toolkit erases and redraws the prompt whenever its style changes."""
    return Style.from_dict(prompt_styles(theme))


def _continuation(width: int, line_number: int, wrap_count: int) -> AnyFormattedText:
    return [("class:continuation", "  " if wrap_count else ". ")]


async def _read(session: PromptSession[str], style: str, question: str, default: str = "") -> str:
    # On a dumb terminal the default text is shown only as a part of the question.
    prompt = question + safe_text(default).replace("\n", "\r\n") if is_dumb_terminal() else question
    room = session.output.get_size().rows - 3  # rows left for completions above the status line
    # Ctrl-C is a key here, and the chat keeps its own signal handler, which prompt_toolkit would remove. It also keeps
    # the exception handler: that of prompt_toolkit waits for Enter, forever if the window was closed.
    text = await session.prompt_async(
        [(style, prompt)],
        default=default,
        reserve_space_for_menu=max(0, min(room, _MENU)),
        handle_sigint=False,
        set_exception_handler=False,
    )
    return valid_text(text)


class _PromptHistory(FileHistory):
    """Prompt history in a file, with pastes in full. A full or read-only disk is ignored."""

    def __init__(self, path: Path, pastes: Pastes) -> None:
        super().__init__(str(path))
        self._pastes = pastes

    def store_string(self, string: str) -> None:
        with suppress(OSError):
            super().store_string(self._pastes.unfold(string))


def _history(path: Path, pastes: Pastes) -> History:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600, exist_ok=True)
        path.open("rb").close()
    except OSError:
        return InMemoryHistory()
    return _PromptHistory(path, pastes)


def _leaving_keys() -> KeyBindings:
    """Esc leaves a question, as Ctrl-C does."""
    keys = KeyBindings()

    @keys.add(Keys.Escape)
    def leave(event: KeyPressEvent) -> None:
        event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

    return keys


def _bindings() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter", filter=~vi_mode)
    @keys.add("c-j")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


def prompt_keys(
    *,
    toggle_thinking: Callable[[], None],
    show_transcript: Callable[[], Awaitable[None]],
    paste_image: Callable[[], str | None],
    next_mode: Callable[[], None],
    pastes: Pastes,
) -> KeyBindings:
    """The keys of the chat at its prompt. `paste_image` returns the mention of the image in the clipboard."""
    keys = KeyBindings()

    @keys.add("c-o")
    def unfold(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        message = pastes.unfold(buffer.text)
        if message != buffer.text:
            buffer.document = Document(message)
        else:
            event.app.create_background_task(_above_the_prompt(toggle_thinking))

    @keys.add("backspace", filter=~vi_navigation_mode)
    def delete(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        buffer.delete_before_cursor(pastes.last_length(buffer.document.text_before_cursor))

    @keys.add("c-t")
    def view(event: KeyPressEvent) -> None:
        event.app.create_background_task(_instead_of_the_prompt(show_transcript))

    @keys.add("s-tab")
    def change_mode(event: KeyPressEvent) -> None:
        next_mode()  # the status line below the prompt shows it

    @keys.add("c-v")
    def image(event: KeyPressEvent) -> None:
        mention = paste_image()
        if mention is None:
            event.app.output.bell()
        else:
            event.current_buffer.insert_text(f"{mention} ")

    @keys.add(Keys.BracketedPaste)
    def paste(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text(pastes.fold(event.data))

    return keys


async def _above_the_prompt(work: Callable[[], None]) -> None:
    await run_in_terminal(work)


async def _instead_of_the_prompt(work: Callable[[], Awaitable[None]]) -> None:
    async with in_terminal():
        await work()


@contextmanager
def quiet(typed: Callable[[str], None]) -> Iterator[None]:
    """Do not echo keys between prompts, and keep Enter as the key that the next prompt expects; Ctrl-C still sends a
    signal. This is restored after Ctrl-Z and fg. What was typed before is passed to `typed`."""
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
    typed(_pending(descriptor))
    previous_handler = signal.signal(signal.SIGCONT, silence)
    try:
        yield
    finally:
        signal.signal(signal.SIGCONT, previous_handler)
        with suppress(termios.error):  # the window was closed
            termios.tcsetattr(descriptor, termios.TCSANOW, before)


def _pending(descriptor: int) -> str:
    """What has been typed and not read yet."""
    data = b""
    while select.select([descriptor], [], [], 0)[0] and (read := os.read(descriptor, 4096)):
        data += read
    return data.decode("utf-8", "replace")


# -- completion at the prompt

_MENTION = re.compile(r'(?:^|\s)@("?)([^\s"]*)$|(?:^|\s)@(")([^"\n]*)$')
Offers = Iterable[tuple[str, str]]  # what can be inserted, and what it means


class CommandCompletion(NamedTuple):
    """A command: its summary, and a function that returns the arguments it can have."""

    summary: str
    arguments: Callable[[], Awaitable[Offers]]


class ChatCompleter(Completer):
    """Completes what is before the cursor."""

    def __init__(self, commands: Mapping[str, CommandCompletion], directory: Path) -> None:
        self._commands = commands
        self._directory = directory

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Nothing: completions are found in the event loop, because arguments may be in the store."""
        return ()

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """The completions."""
        text = document.text_before_cursor
        if mention := _MENTION.search(text):
            is_quoted = bool(mention[1] or mention[3])
            typed = mention[2] if mention[2] is not None else mention[4]
            for path in await asyncio.to_thread(completions, typed, self._directory):
                quoted = path if is_quoted else as_mention(path).removeprefix("@")
                end = quoted[:1] if quoted != path and path.endswith("/") else ""  # left open for what follows
                yield Completion(quoted.removesuffix(end), start_position=-len(typed), display=path)
            return
        async for typed, offers in self._offers(text):
            for word, meaning in offers:
                if word.lower().startswith(typed.lower()):
                    yield Completion(word, start_position=-len(typed), display_meta=meaning)

    async def _offers(self, text: str) -> AsyncIterator[tuple[str, Offers]]:
        """What is typed of a word, and the words that it may become."""
        if text.startswith("/") and " " not in text:
            yield text, [(name, command.summary) for name, command in self._commands.items()]
        elif text.startswith("/") and "\n" not in text:
            name, _, typed = text.partition(" ")
            if name in self._commands:
                yield typed.lstrip(), await self._commands[name].arguments()
