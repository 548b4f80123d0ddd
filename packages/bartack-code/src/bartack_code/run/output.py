"""What `bartack run` prints: the answer on stdout and everything else on stderr, or every event as JSON on stdout.

The answer is the one that the run ended with. Only on a terminal is text shown as it arrives, because an attempt that
fails cannot be taken back: a pipe gets the whole answer at the end, or nothing. What the model writes before it calls a
tool is not the answer, and goes to stderr there.

Output is written in a thread, because its reader may be slow while the run has a lease to renew.
"""

import asyncio
import sys
from typing import Any

from bartack.app.notices import arguments_text, end_notice, notice
from bartack.app.safe_text import encodable, json_bytes, safe_line, safe_text
from bartack.cli.output import note
from bartack.events import DeltaReceived, EntryAppended, Event, RunFinished, RunResult, ToolChanged
from bartack.formats.repair import INTERRUPTED
from bartack.nouns.deltas import Delta, Failed, Start, TextDelta
from bartack.nouns.entries import Entry
from bartack.nouns.messages import Message
from bartack.nouns.tables import AgentStatus
from bartack.nouns.tool_states import Errored, Running
from bartack_code.run.event_json import event_json, finished_json

_ERROR = 200  # characters of a tool's error


class JsonOutput:
    """Every event as a line of JSON on stdout; see `bartack_code.run.event_json`."""

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
    """The answer on stdout, and notices on stderr unless `quiet`."""

    def __init__(self, *, stream: bool = True, quiet: bool = False, as_value: bool = False) -> None:
        """With `stream`, a terminal shows text as it arrives; with `as_value`, the output is printed as JSON."""
        self._stdout = _Stdout()
        self._is_live = stream and self._stdout.is_terminal and not as_value
        self._is_quiet = quiet
        self._as_value = as_value
        self._is_mid_line = False
        self._starts_answer = False  # the next text is the first of an answer
        self._started: set[str] = set()

    async def show(self, event: Event) -> None:
        """Print the text of an event, or a notice about it."""
        match event:
            case DeltaReceived() if self._is_live:
                await self._show_delta(event.delta.delta)
            case EntryAppended(entry=Entry(fact=Message(role="assistant") as message)) if not self._is_live:
                if message.tool_calls and message.text.strip():
                    self.note(message.text)
            case ToolChanged():
                self._show_tool(event)
            case RunFinished():
                pass
            case _ if (text := notice(event)) is not None:
                self.note(f"[{text.text}]")

    def end(self, result: RunResult | None, error: Failed | None) -> None:
        """Print the answer, if there is one and it has not been shown."""
        is_complete = result is not None and result.status is AgentStatus.COMPLETED
        if result is not None and is_complete and self._as_value:
            self._write(json_bytes(result.value).decode())
        elif result is not None and is_complete and not self._is_live and result.message is not None:
            self._write(result.message.text)
        if self._is_mid_line:
            self._write("\n")
        ending = None if result is None or error is not None else end_notice(result)
        if ending is not None and ending.level == "warning":
            self.note(f"warning: {ending.text}")

    def note(self, text: str, *, is_dim: bool = False) -> None:
        """Print a line about the run to stderr."""
        if self._is_quiet:
            return
        if self._is_mid_line and self._stdout.is_terminal:
            self._write("\n")
        note(safe_line(text), is_dim=is_dim)

    async def _show_delta(self, delta: Delta) -> None:
        match delta:
            case Start():
                self._starts_answer = True
            case TextDelta(text_delta=text) if text:
                await asyncio.to_thread(self._write_answer, text)
            case _:
                pass

    def _show_tool(self, event: ToolChanged) -> None:
        call = f"{event.tool_name} {arguments_text(event.state.input)}".rstrip()
        match event.state:
            case Running() if event.tool_call_id not in self._started:
                self._started.add(event.tool_call_id)
                self.note(f"[{call}]")
            case Errored() if event.tool_call_id in self._started or event.state.error == INTERRUPTED:
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
        if not text:
            return
        self._is_mid_line = not text.endswith("\n")
        if self._stdout.is_terminal:
            text = encodable(safe_text(text), self._stdout.encoding)
            self._stdout.write(text.encode(self._stdout.encoding, "replace"))
        else:
            self._stdout.write(text.encode("utf-8", "replace"))


Output = JsonOutput | TextOutput  # receives the events of a run; every method may raise `OutputClosed`


class _Stdout:
    """The standard output at this moment, unbuffered. Later `sys.stdout` is redirected for tools."""

    def __init__(self) -> None:
        self._file = sys.stdout
        self.is_terminal = self._file.isatty()
        self.encoding = self._file.encoding or "utf-8"

    def write(self, data: bytes) -> None:
        self._file.buffer.write(data)
        self._file.buffer.flush()
