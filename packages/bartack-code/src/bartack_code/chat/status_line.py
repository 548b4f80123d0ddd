"""The line below the prompt: facts about the chat, as far as they fit, or what a program of the user makes of them.

The program is ``status_line`` of the configuration file. It gets a JSON object on stdin, with null for what is not
known: ``model directory sessionId mode contextTokens contextWindow inputTokens outputTokens costUsd``. The first line
that it prints takes the place of the facts. It runs at the start of a chat and after each answer, with the user's
environment and outside the sandbox, and the line is the previous one until it has ended.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.cells import cell_len, set_cell_size

from bartack.app.safe_text import safe_line
from bartack.app.sessions import short_ids
from bartack.app.usage import SessionUsage, format_context, format_cost, format_tokens
from bartack_code.workspace.hooks import run_user_program

__all__ = ["StatusProgram", "status_facts", "status_pieces"]

_TIMEOUT_S = 5.0
_MAX_CHARS = 1_000  # wider than any window


class StatusProgram:
    """Runs the program in the background, and keeps its latest line."""

    def __init__(self, command: str, directory: Path, changed: Callable[[], None]) -> None:
        """`changed` is called for each new line. Without a `command`, nothing runs."""
        self._command = command
        self._directory = directory
        self._changed = changed
        self._running: asyncio.Task[None] | None = None
        self.line = ""
        """What is shown instead of the facts, if anything."""

    def refresh(self, state: Mapping[str, Any]) -> None:
        """Run the program again, without waiting for it."""
        if self._command:
            if self._running is not None:
                self._running.cancel()
            self._running = asyncio.create_task(self._refresh(state))

    async def close(self) -> None:
        """End the program if it is still running."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})

    async def _refresh(self, state: Mapping[str, Any]) -> None:
        try:
            ended = await run_user_program(self._command, self._directory, state, timeout_s=_TIMEOUT_S)
        except TimeoutError:
            self.line = f"status_line did not end within {_TIMEOUT_S:g} s"
        except OSError as error:  # the directory is gone, or there are too many processes
            self.line = f"status_line cannot run: {error.strerror}"
        else:
            first = next(iter(ended.output.strip().splitlines()), "")[:_MAX_CHARS]
            self.line = f"status_line failed with exit code {ended.exit_code}" if ended.exit_code else safe_line(first)
        self._changed()


def status_facts(model: str, usage: SessionUsage, *, window: int | None, session: str | None) -> list[str]:
    """Model, context, tokens, cost and session, as far as they are known."""
    pieces = [
        safe_line(model),
        format_context(usage.context_tokens, window),
        format_tokens(usage.spend),
        format_cost(usage.spend),
        f"session {safe_line(short_ids([session])[0])}" if session else "new session",
    ]
    return [piece for piece in pieces if piece]


def status_pieces(facts: Sequence[str], *, width: int, first: str = "", last: str = "") -> str:
    """The facts on one line, as far as they fit; the first one is always there."""
    pieces = [piece for piece in (first, *facts, last) if piece]
    line = f" {pieces[0]}"
    for piece in pieces[1:]:
        if cell_len(line) + 3 + cell_len(piece) < width:
            line += f" · {piece}"
    return line if cell_len(line) <= width else set_cell_size(line, width)
