"""What `bartack run` prints: the answer on stdout and everything else on stderr, or every event as JSON on stdout.

Output is written in a thread, because its reader may be slow while the run has a lease to renew. Once it can no longer
be written, `OutputClosed` is raised and stdout is detached, so that the interpreter has nothing left to flush.
"""

import asyncio
import os
import sys
from typing import Any

from bartack.agent.events import DeltaReceived, Event, RunFinished, RunResult, ToolChanged
from bartack.app.event_json import event_json, finished_json
from bartack.app.notices import arguments_text, end_notice, notice
from bartack.app.safe_text import encodable, json_bytes, safe_line, safe_text
from bartack.cli.output import note
from bartack.nouns.deltas import Failed, Start, TextDelta
from bartack.nouns.tool_states import Errored, Running

_ERROR = 200  # characters of a tool's error


class OutputClosed(Exception):
    """stdout can no longer be written to; the cause is an `OSError`."""


class JsonOutput:
    """Every event as a line of JSON on stdout; see `bartack.app.event_json`."""

    def __init__(self) -> None:
        self._stdout = _Stdout()

    async def show(self, event: Event) -> None:
        """Print one event."""
        if not isinstance(event, RunFinished):  # `end` prints it, with more detail
            await asyncio.to_thread(self._print, event_json(event))

    def end(self, result: RunResult | None, error: Failed | None) -> None:
        """Print how the run ended; `result` is None if it failed before it had one."""
        self._print(finished_json(result, error))

    def note(self, text: str, *, is_dim: bool = False) -> None:
        """Nothing: the events contain it."""

    def _print(self, line: dict[str, Any]) -> None:
        self._stdout.write(json_bytes(line) + b"\n")


class TextOutput:
    """The text of the answer on stdout as it arrives, and notices on stderr."""

    def __init__(self) -> None:
        self._stdout = _Stdout()
        self._is_mid_line = False
        self._starts_answer = False  # the next text is the first of an answer
        self._started: set[str] = set()

    async def show(self, event: Event) -> None:
        """Print the text of an event, or a notice about it."""
        if isinstance(event, DeltaReceived):
            match event.delta.delta:
                case Start():
                    self._starts_answer = True
                case TextDelta(text_delta=text) if text:
                    await asyncio.to_thread(self._write_answer, text)
                case _:
                    pass
        elif isinstance(event, ToolChanged):
            self._show_tool(event)
        elif not isinstance(event, RunFinished) and (shown := notice(event)) is not None:
            self.note(f"[{shown.text}]")

    def end(self, result: RunResult | None, error: Failed | None) -> None:
        """Finish the last line, and warn if the answer is incomplete."""
        if self._is_mid_line:
            self._write("\n")
        shown = None if result is None or error is not None else end_notice(result)
        if shown is not None and shown.level == "warning":
            self.note(f"warning: {shown.text}")

    def note(self, text: str, *, is_dim: bool = False) -> None:
        """Print a line about the run to stderr."""
        if self._is_mid_line and self._stdout.is_terminal:
            self._write("\n")
        note(safe_line(text), is_dim=is_dim)

    def _show_tool(self, event: ToolChanged) -> None:
        call = f"{event.tool_name} {arguments_text(event.state.input)}".rstrip()
        match event.state:
            case Running() if event.tool_call_id not in self._started:
                self._started.add(event.tool_call_id)
                self.note(f"[{call}]")
            case Errored() if event.tool_call_id in self._started:
                self.note(f"[{event.tool_name} failed: {event.state.error[:_ERROR]}]")
            case Errored():
                self.note(f"[{call} not run: {event.state.error[:_ERROR]}]")
            case _:
                pass

    def _write_answer(self, text: str) -> None:
        if self._starts_answer and self._is_mid_line:
            text = f"\n{text}"
        self._starts_answer = False
        self._write(text)

    def _write(self, text: str) -> None:
        self._is_mid_line = not text.endswith("\n")
        if self._stdout.is_terminal:
            text = encodable(safe_text(text), self._stdout.encoding)
            self._stdout.write(text.encode(self._stdout.encoding, "replace"))
        else:
            self._stdout.write(text.encode("utf-8", "replace"))


Output = JsonOutput | TextOutput  # where the events of a run go; every method may raise `OutputClosed`


class _Stdout:
    """The standard output at this moment, unbuffered. Later `sys.stdout` is redirected for tools."""

    def __init__(self) -> None:
        self._file = sys.stdout
        self.is_terminal = self._file is not None and self._file.isatty()
        self.encoding = getattr(self._file, "encoding", None) or "utf-8"

    def write(self, data: bytes) -> None:
        if self._file is None:  # closed before the process started
            return
        try:
            self._file.buffer.write(data)
            self._file.buffer.flush()
        except OSError as error:
            with open(os.devnull, "wb") as devnull:  # noqa: PTH123 - not a path of the file system
                os.dup2(devnull.fileno(), self._file.fileno())
            raise OutputClosed from error
