"""`PlainScreen`: a run on a terminal without cursor movement, or in a file. It only appends, without color."""

import time
from collections.abc import Callable

from rich.console import Console

from bartack.agent.events import ApprovalRequested, DeltaReceived, EntryAppended, Event, RunFinished, ToolChanged
from bartack.app.notices import arguments_text, notice
from bartack.app.safe_text import encodable, safe_line, safe_text
from bartack.cli.terminal.thinking import ThinkingTracker
from bartack.cli.terminal.tool_calls import CallTracker, TrackedCall, open_status, outcome
from bartack.nouns.deltas import Delta, Done, Failed, TextDelta, ThinkingDelta, ToolCallStart
from bartack.nouns.tool_states import Completed, Errored, Running

__all__ = ["PlainScreen"]

_ELLIPSIS = "..."


class PlainScreen:
    """Text as it arrives, and a line in brackets for everything else."""

    def __init__(
        self, console: Console, *, thinking: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._calls = CallTracker(clock)
        self._thinking = ThinkingTracker(clock, is_expanded=thinking)
        self._is_mid_line = False
        self._is_first = True  # nothing is printed yet
        self._held: list[str] | None = None

    def show(self, event: Event) -> None:
        match event:
            case DeltaReceived():
                self._delta(event.delta.delta)
            case ToolChanged():
                self._tool(event)
            case ApprovalRequested() | EntryAppended():
                self._calls.observe(event)
            case _:
                self._notice(event)

    def tick(self) -> None:
        """Nothing: no line changes."""

    def suspend(self) -> None:
        self._end_line()
        if not self._is_first:
            self._write("\n")
        self._is_first = False
        self._held = self._held or []

    def resume(self) -> None:
        held, self._held = self._held, None
        self._write("".join(held or ()))

    def print(self, text: str) -> None:
        self._finish_thinking()
        self._line(safe_text(text))

    def close(self) -> None:
        self._finish_thinking()
        for call in self._calls.drop_all():
            self._line(self._call_text(call, open_status(call)))
        self._end_line()
        self.resume()

    def toggle_thinking(self) -> bool:
        return self._thinking.toggle()

    def last_thinking(self) -> str | None:
        return self._thinking.last_text

    def _delta(self, delta: Delta) -> None:
        match delta:
            case TextDelta(text_delta=text) if text:
                self._finish_thinking()
                self._write(safe_text(text.replace("\r", "")))  # a line end may arrive in two pieces
            case ThinkingDelta():
                if self._thinking.add(delta):
                    self._end_line()
            case ToolCallStart():
                self._finish_thinking()
                self._end_line()
                self._calls.start(delta)
            case Done():
                self._finish_thinking()
                self._end_line()
            case Failed():
                self._finish_thinking()
                for call in self._calls.drop_unwritten():
                    self._line(self._call_text(call, open_status(call)))
            case _:
                pass

    def _notice(self, event: Event) -> None:
        if isinstance(event, RunFinished):
            self.close()
        if (found := notice(event)) is not None:
            self._finish_thinking()
            self._line(f"[{found.text}]")

    def _tool(self, event: ToolChanged) -> None:
        known = next((call for call in self._calls.open if call.id == event.tool_call_id), None)
        was_running = known is not None and isinstance(known.state, Running)
        call = self._calls.update(event.tool_call_id, event.tool_name, event.state)
        if call is None:
            return
        if isinstance(call.state, Running) and not was_running:
            self._line(self._call_text(call, _ELLIPSIS))
        elif isinstance(call.state, Completed):
            self._line(self._call_text(call, ", ".join(["ok", *outcome(call)])))
        elif isinstance(call.state, Errored):
            self._line(self._call_text(call, f"{', '.join(['error', *outcome(call)])}: {safe_line(call.state.error)}"))

    def _call_text(self, call: TrackedCall, status: str) -> str:
        arguments = arguments_text(call.arguments, _ELLIPSIS)
        return f"[{' '.join(filter(None, (safe_line(call.name), arguments, status)))}]"

    def _finish_thinking(self) -> None:
        block = self._thinking.end()
        if block is None:
            return
        self._line(f"[{block.summary}]")
        if self._thinking.is_expanded and block.text:
            self._line(block.text)

    def _line(self, text: str) -> None:
        self._end_line()
        self._write(f"{text}\n")

    def _end_line(self) -> None:
        if self._is_mid_line:
            self._write("\n")

    def _write(self, text: str) -> None:
        if not text:
            return
        self._is_mid_line, self._is_first = not text.endswith("\n"), False
        if self._held is not None:
            self._held.append(text)
        else:
            self._console.out(encodable(text, self._console.encoding), end="", highlight=False)
