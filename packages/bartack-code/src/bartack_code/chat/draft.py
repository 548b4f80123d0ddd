"""What is typed while an answer arrives: a text that can be edited, the messages that steer the run, and those that
wait for it to end.

Keys come in as prompt_toolkit reads them; lines for the bottom of the screen come out.
"""

import asyncio
import unicodedata
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from bartack.agent import Run
from bartack.app.safe_text import safe_line, safe_text, valid_text
from bartack.nouns.errors import BartackError
from bartack.nouns.messages import Message
from bartack_code.chat.pastes import Pastes
from bartack_code.terminal.rendering import Line, unwrapped
from bartack_code.terminal.style import FAINT, symbols_for

_SHOWN_WAITING = 3  # messages; more are counted
_SHOWN_LINES = 6  # lines of the text around the cursor


@dataclass(eq=False)
class _Waiting:
    text: str
    message: Message | None = None  # None until its files have been read


class Steering:
    """The messages that join one run before its next model call, and can be taken back until then.

    `read` makes a message of a text, and `show_error` reports why it cannot.
    """

    def __init__(
        self, run: Run, read: Callable[[str], Awaitable[Message]], show_error: Callable[[BartackError], None]
    ) -> None:
        self._run = run
        self._read = read
        self._show_error = show_error
        self._tasks: dict[_Waiting, asyncio.Task[None]] = {}  # they read the files of each message

    def add(self, text: str, full_text: str) -> None:
        """Let a message join the run. `text` is shown until it does; `full_text` has the pastes in full."""
        waiting = _Waiting(text)
        self._tasks[waiting] = asyncio.create_task(self._pass_on(waiting, full_text))

    async def _pass_on(self, waiting: _Waiting, full_text: str) -> None:
        try:
            waiting.message = await self._read(full_text)
        except BartackError as error:
            self._show_error(error)
        else:
            self._run.steer(waiting.message)

    @property
    def texts(self) -> list[str]:
        """The messages that have not joined the run yet."""
        return [waiting.text for waiting in self._tasks if self._is_waiting(waiting)]

    def _is_waiting(self, waiting: _Waiting) -> bool:
        return waiting.message is None or any(message is waiting.message for message in self._run.steering)

    def take_back(self) -> str | None:
        """Remove and return the last message; None if all have joined the run."""
        for waiting in reversed(list(self._tasks)):
            if self._is_waiting(waiting):
                self._tasks.pop(waiting).cancel()
                if waiting.message is not None:
                    self._run.withdraw(waiting.message)
                return waiting.text
        return None

    async def close(self) -> list[str]:
        """The messages that have not joined the run, once it has ended."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        return self.texts


class Draft:
    """See the module."""

    def __init__(self, pastes: Pastes) -> None:
        self._pastes = pastes
        self.queued: list[str] = []
        self.steering: Steering | None = None  # steers the run that Enter adds to; None if there is none
        self.is_closed = False  # Ctrl-D exits once the queue is empty
        self._buffer = Buffer(multiline=True)
        self._is_escaped = False  # the last key was Escape, which is also how Alt is sent
        self._edits: dict[Keys, Callable[[], object]] = {
            Keys.ControlJ: self._new_line,
            Keys.ControlM: self._enter,
            Keys.ControlH: self._backspace,
            Keys.Delete: self._buffer.delete,
            Keys.Left: self._buffer.cursor_left,
            Keys.Right: self._buffer.cursor_right,
            Keys.Up: self._up,
            Keys.Down: self._buffer.cursor_down,
            Keys.ControlA: self._to_line_start,
            Keys.Home: self._to_line_start,
            Keys.ControlE: self._to_line_end,
            Keys.End: self._to_line_end,
            Keys.ControlU: self._delete_to_line_start,
            Keys.ControlK: self._delete_to_line_end,
            Keys.ControlW: self._delete_word,
            Keys.ControlD: self._close,
        }

    @property
    def text(self) -> str:
        """The text that was not sent or queued yet."""
        return valid_text(self._buffer.text)

    def press(self, presses: Iterable[KeyPress]) -> None:
        """Take keys: edit the text, steer the run with it (Enter), or queue it (Alt-Enter)."""
        for press in presses:
            was_escaped, self._is_escaped = self._is_escaped, press.key is Keys.Escape
            if was_escaped and press.key is Keys.ControlM:
                self._queue()
            elif isinstance(press.key, Keys) and press.key in self._edits:
                self._edits[press.key]()
            elif press.key is Keys.BracketedPaste:
                self._buffer.insert_text(self._pastes.fold(press.data))
            elif not isinstance(press.key, Keys) and unicodedata.category(press.key) != "Cc":
                self._buffer.insert_text(press.data)

    def take(self) -> str | None:
        """Remove and return the message that was queued first."""
        return self.queued.pop(0) if self.queued else None

    def take_all(self) -> str:
        """Remove and return everything as one text to edit."""
        texts = [*self.queued, *([self.text] if self._buffer.text else [])]
        self.queued.clear()
        self._buffer.reset()
        return "\n".join(texts)

    def take_text(self) -> str:
        """Remove and return the text that was not queued."""
        text = self.text
        self._buffer.reset()
        return text

    # -- editing

    def _enter(self) -> None:
        if self._buffer.document.text_before_cursor.endswith("\\"):
            self._buffer.delete_before_cursor()
            self._new_line()
        elif self.steering is None or self.text.lstrip().startswith(("/", "!")):  # commands wait for the prompt
            self._queue()
        elif text := self.take_text().strip():
            self.steering.add(text, self._pastes.unfold(text))

    def _queue(self) -> None:
        if text := self.take_text().strip():
            self.queued.append(text)

    def _backspace(self) -> None:
        self._buffer.delete_before_cursor(self._pastes.last_length(self._buffer.document.text_before_cursor))

    def _new_line(self) -> None:
        self._buffer.insert_text("\n")

    def _up(self) -> None:
        """The line above; in an empty text, the last message that has not been sent, to be edited."""
        if self._buffer.text:
            self._buffer.cursor_up()
        elif self.queued:
            self._buffer.insert_text(self.queued.pop())
        elif self.steering is not None and (text := self.steering.take_back()) is not None:
            self._buffer.insert_text(text)

    def _to_line_start(self) -> None:
        self._buffer.cursor_position += self._buffer.document.get_start_of_line_position()

    def _to_line_end(self) -> None:
        self._buffer.cursor_position += self._buffer.document.get_end_of_line_position()

    def _delete_to_line_start(self) -> None:
        self._buffer.delete_before_cursor(-self._buffer.document.get_start_of_line_position())

    def _delete_to_line_end(self) -> None:
        self._buffer.delete(self._buffer.document.get_end_of_line_position())

    def _delete_word(self) -> None:
        offset = self._buffer.document.find_start_of_previous_word()
        self._buffer.delete_before_cursor(-offset if offset else 0)

    def _close(self) -> None:
        self.is_closed = not self._buffer.text

    # -- showing

    def lines(self, console: Console) -> list[Line]:
        """The messages that wait and the text with its cursor; nothing if there is neither."""
        symbols, width = symbols_for(console), max(console.width - 1, 1)
        steering = [] if self.steering is None else self.steering.texts
        waiting = [f"next step: {safe_line(text)}" for text in steering]
        waiting += [f"queued: {safe_line(text)}" for text in self.queued]
        texts = [Text(_cut(f"  {line}", width), style=FAINT) for line in waiting]
        if len(texts) > _SHOWN_WAITING:
            remainder = Text(f"  {symbols.ellipsis} {len(texts) - _SHOWN_WAITING} more waiting", style=FAINT)
            texts = [*texts[:_SHOWN_WAITING], remainder]
        if texts and not self._buffer.text:
            texts.append(Text(_cut("  Up: edit the last one", width), style=FAINT))
        return unwrapped(console, [*texts, *self._text_lines(symbols.prompt, width)])

    def _text_lines(self, symbol: str, width: int) -> list[Text]:
        if not self._buffer.text:
            return []
        document = self._buffer.document
        row, column = document.cursor_position_row, document.cursor_position_col
        first = max(0, min(row - _SHOWN_LINES // 2, len(document.lines) - _SHOWN_LINES))
        rows = []
        for number, line in enumerate(document.lines[first : first + _SHOWN_LINES], first):
            start = f"{symbol} " if number == 0 else "  "
            if number != row:
                rows.append(Text(_cut(start + safe_text(line), width)))
                continue
            before, cursor, behind = (
                safe_text(line[:column]),
                safe_text(line[column : column + 1]) or " ",
                line[column + 1 :],
            )
            room = width - len(start) - cell_len(cursor)
            while cell_len(before) > room:
                before = before[1:]
            tail = _cut(safe_text(behind), max(room - cell_len(before), 0))
            rows.append(Text.assemble(start, before, (cursor, "reverse"), tail))
        return rows


def _cut(text: str, width: int) -> str:
    return text if cell_len(text) <= width else set_cell_size(text, width)
