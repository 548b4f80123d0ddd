"""`Steering`: messages typed during a run that join it before its next model call, and can be taken back until then."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bartack.agent import Run
from bartack.nouns.errors import BartackError
from bartack.nouns.messages import Message


@dataclass(eq=False)
class _Waiting:
    text: str
    message: Message | None = None  # None until its files have been read


class Steering:
    """The messages that steer one run. `read` makes a message of a text, and `show_error` reports why it cannot."""

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
