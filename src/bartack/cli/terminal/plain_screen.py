"""`PlainScreen`: a run for a terminal that cannot move its cursor, or for a file. It only appends, in one colour."""

import time
from collections.abc import Callable

from rich.console import Console

from bartack.agent.events import ApprovalRequested, DeltaReceived, EntryAppended, Event, RunFinished, ToolChanged
from bartack.cli.terminal.calls import Call, Calls
from bartack.cli.terminal.notices import notice
from bartack.cli.terminal.safe_text import encodable, safe_line, safe_text
from bartack.cli.terminal.thought import Thoughts
from bartack.cli.terminal.tool_lines import arguments_text, left_as, outcome
from bartack.nouns.deltas import Delta, Done, Failed, TextDelta, ThinkingDelta, ToolCallStart
from bartack.nouns.tool_states import Completed, Errored, Running

__all__ = ["PlainScreen"]

_MORE = "..."


class PlainScreen:
    """Text as it comes, and a line in brackets for everything else."""

    def __init__(
        self, console: Console, *, thinking: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._calls = Calls(clock)
        self._thoughts = Thoughts(clock, are_unfolded=thinking)
        self._is_mid_line = False
        self._is_first = True  # nothing stands there yet
        self._held: list[str] | None = None

    def show(self, event: Event) -> None:
        match event:
            case DeltaReceived():
                self._delta(event.delta.delta)
            case ToolChanged():
                self._tool(event)
            case ApprovalRequested() | EntryAppended():
                self._calls.note(event)
            case _:
                self._notice(event)

    def tick(self) -> None:
        """Nothing here moves."""

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
        self._finish_thought()
        self._line(safe_text(text))

    def close(self) -> None:
        self._finish_thought()
        for call in self._calls.end():
            self._line(self._told(call, left_as(call)))
        self._end_line()
        self.resume()

    def toggle_thinking(self) -> bool:
        return self._thoughts.toggle()

    def last_thinking(self) -> str | None:
        return self._thoughts.last_text

    def _delta(self, delta: Delta) -> None:
        match delta:
            case TextDelta(text_delta=text) if text:
                self._finish_thought()
                self._write(safe_text(text.replace("\r", "")))  # a line's end may come in two pieces
            case ThinkingDelta():
                if self._thoughts.add(delta):
                    self._end_line()
            case ToolCallStart():
                self._finish_thought()
                self._end_line()
                self._calls.start(delta)
            case Done():
                self._finish_thought()
                self._end_line()
            case Failed():
                self._finish_thought()
                for call in self._calls.cut():
                    self._line(self._told(call, left_as(call)))
            case _:
                pass

    def _notice(self, event: Event) -> None:
        if isinstance(event, RunFinished):
            self.close()
        if (said := notice(event)) is not None:
            self._finish_thought()
            self._line(f"[{said[1]}]")

    def _tool(self, event: ToolChanged) -> None:
        known = next((call for call in self._calls.open if call.id == event.tool_call_id), None)
        was_running = known is not None and isinstance(known.state, Running)
        call = self._calls.change(event.tool_call_id, event.tool_name, event.state)
        if call is None:
            return
        if isinstance(call.state, Running) and not was_running:
            self._line(self._told(call, _MORE))
        elif isinstance(call.state, Completed):
            self._line(self._told(call, ", ".join(["ok", *outcome(call)])))
        elif isinstance(call.state, Errored):
            self._line(self._told(call, f"{', '.join(['error', *outcome(call)])}: {safe_line(call.state.error)}"))

    def _told(self, call: Call, word: str) -> str:
        said = arguments_text(call.arguments, _MORE)
        return f"[{' '.join(part for part in (safe_line(call.name), said, word) if part)}]"

    def _finish_thought(self) -> None:
        thought = self._thoughts.end()
        if thought is None:
            return
        self._line(f"[{thought.summary}]")
        if self._thoughts.are_unfolded and thought.text:
            self._line(thought.text)

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
