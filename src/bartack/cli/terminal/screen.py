"""One run on a terminal: its events in, lines out.

Whatever is finished is printed once and stays in the scrollback. What still changes (the last block of the answer,
thinking, running tool calls) is shown in a live area below, which is redrawn several times a second and disappears with
the end of the run.
"""

import time
from collections.abc import Callable
from typing import Protocol

from rich.console import Console
from rich.text import Text

from bartack.agent.events import (
    ApprovalRequested,
    DeltaReceived,
    EntryAppended,
    Event,
    RunFinished,
    StatusChanged,
    ToolChanged,
)
from bartack.app.notices import format_seconds, notice
from bartack.cli.terminal.live_area import LiveArea, Printer
from bartack.cli.terminal.markdown_stream import MarkdownStream
from bartack.cli.terminal.plain_screen import PlainScreen
from bartack.cli.terminal.rendering import INDENT, Line, indented, lines_of, plain, unwrapped
from bartack.cli.terminal.style import BAD, FAINT, FAINT_ITALIC, NOTE, symbols_for
from bartack.cli.terminal.thinking import ThinkingBlock, ThinkingTracker
from bartack.cli.terminal.tool_calls import CallTracker, TrackedCall, done_lines, open_lines
from bartack.nouns.deltas import Delta, Done, Failed, Start, TextDelta, ThinkingDelta, ToolCallArgs, ToolCallStart
from bartack.nouns.tables import AgentStatus

__all__ = ["LiveScreen", "Screen", "new_screen"]

_REDRAW = 1 / 12  # least number of seconds between two redraws
_SETTLE = 0.3  # seconds without a change after which the size of the window counts as settled
_SPIN = 1 / 8  # seconds per frame of the spinner
_WAIT = 0.5  # seconds before "waiting for the model" is shown; most answers start sooner
_COLLAPSED = 3  # lines of thinking shown while it lasts
_EXPANDED = 12
_STYLES = {"info": FAINT, "warning": NOTE, "error": BAD}  # of notices


class Screen(Protocol):
    """Shows a run."""

    def show(self, event: Event) -> None:
        """Show the next event of the run. Never raises for an event."""

    def tick(self) -> None:
        """Advance clocks and the spinner. To be called about 8 times a second."""

    def suspend(self) -> None:
        """Hide what changes, for a question to the user. What finishes in the meantime is printed afterwards."""

    def resume(self) -> None:
        """Continue after `suspend`."""

    def print(self, text: str) -> None:
        """Print text that is in no event, such as the output of a tool, on lines of its own."""

    def close(self) -> None:
        """End the screen, whether or not the run is complete. What was printed stays."""

    def toggle_thinking(self) -> bool:
        """Switch between a summary of thinking and its full text; gives whether it is the full text now."""

    def last_thinking(self) -> str | None:
        """The full text of the last thinking, safe to print; None if there was none."""


def new_screen(console: Console, *, thinking: bool = False) -> Screen:
    """A live screen, or a plain one if the terminal cannot move its cursor."""
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveScreen(console, thinking=thinking)
    return PlainScreen(console, thinking=thinking)


class LiveScreen:
    """For terminals that can move the cursor."""

    def __init__(
        self, console: Console, *, thinking: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._clock = clock
        self._printer = Printer(console)
        self._answer = MarkdownStream(self._printer)
        self._calls = CallTracker(clock)
        self._thinking = ThinkingTracker(clock, is_expanded=thinking)
        self._asked_at: float | None = None  # when the model was asked, until it answers
        self._area = LiveArea(console, self._live_lines)
        self._is_suspended = False
        self._size = console.size
        self._settled_at: float | None = None  # when the size of the window will be settled
        self._drawn_at = clock() - _REDRAW

    def show(self, event: Event) -> None:
        self._watch_size()
        match event:
            case DeltaReceived():
                self._delta(event.delta.delta)
            case ToolChanged():
                self._finish_text()
                call = self._calls.update(event.tool_call_id, event.tool_name, event.state)
                self._print_calls([call] if call is not None and call.is_done else [])
            case ApprovalRequested() | EntryAppended():
                self._calls.observe(event)
            case StatusChanged():
                self._asked_at = self._clock() if event.status is AgentStatus.MODEL_RUNNING else None
            case _:
                self._notice(event)
        self._redraw()

    def tick(self) -> None:
        self._watch_size()
        self._redraw()

    def suspend(self) -> None:
        self._is_suspended = True
        self._area.close()
        self._printer.make_room()
        self._printer.hold()

    def resume(self) -> None:
        self._is_suspended = False
        self._watch_size()
        if self._settled_at is None:
            self._printer.release()
        self._redraw()

    def print(self, text: str) -> None:
        self._finish_text()
        self._printer.put(lines_of(self._console, plain(text, FAINT)), "printed")

    def close(self) -> None:
        self._is_suspended = False
        self._settled_at = self._asked_at = None
        self._finish_text()
        self._print_calls(self._calls.drop_all())
        self._area.close()
        self._printer.release()

    def toggle_thinking(self) -> bool:
        return self._thinking.toggle()

    def last_thinking(self) -> str | None:
        return self._thinking.last_text

    # -- events

    def _delta(self, delta: Delta) -> None:
        if not isinstance(delta, Start):
            self._asked_at = None
        match delta:
            case TextDelta(text_delta=text) if text:
                self._finish_thinking()
                self._answer.feed(text)
            case ThinkingDelta():
                if self._thinking.add(delta):
                    self._answer.finish()
            case ToolCallStart():
                self._finish_text()
                self._calls.start(delta)
            case ToolCallArgs():
                self._calls.add_arguments(delta)
            case Done():
                self._finish_text()
            case Failed():
                self._finish_text()
                self._print_calls(self._calls.drop_unwritten())
            case _:
                pass

    def _notice(self, event: Event) -> None:
        if isinstance(event, RunFinished):
            self.close()
        if (found := notice(event)) is not None:
            self._finish_text()
            self._printer.put(lines_of(self._console, plain(found.text, _STYLES[found.level])), "notice")

    def _print_calls(self, calls: list[TrackedCall]) -> None:
        for call in calls:
            self._printer.put(done_lines(self._console, call), "calls")

    def _finish_text(self) -> None:
        self._finish_thinking()
        self._answer.finish()

    def _finish_thinking(self) -> None:
        block = self._thinking.end()
        if block is None:
            return
        lines = unwrapped(self._console, [Text(block.summary, style=FAINT)])
        if self._thinking.is_expanded and block.text:
            lines += lines_of(self._console, plain(block.text, FAINT_ITALIC))
        self._printer.put(lines, "thinking")

    # -- the live area

    def _watch_size(self) -> None:
        """Draw and print nothing while the window is being resized, because the position of lines is unknown then."""
        now, size = self._clock(), self._console.size
        if size != self._size:
            self._size, self._settled_at = size, now + _SETTLE
            self._printer.hold()
        elif self._settled_at is not None and now >= self._settled_at:
            self._settled_at = None
            if not self._is_suspended:
                self._printer.release()

    def _redraw(self) -> None:
        now = self._clock()
        if self._is_suspended or self._settled_at is not None or now - self._drawn_at < _REDRAW:
            return
        self._drawn_at = now
        self._area.refresh()

    def _live_lines(self) -> list[Line]:
        """Thinking or the unfinished block, then the open calls; or a note that the model has not answered yet."""
        now, console = self._clock(), self._console
        spinner = symbols_for(console).spinner
        frame = spinner[int(now / _SPIN) % len(spinner)]
        lines: list[Line] = []
        if self._thinking.current is not None:
            lines += self._printer.spaced(self._thinking_lines(self._thinking.current, frame), "thinking")
        else:
            lines += self._answer.unfinished()
        calls = [line for call in self._calls.open for line in open_lines(console, call, now=now, frame=frame)]
        lines += [[], *calls] if lines and calls else self._printer.spaced(calls, "calls")
        if not lines and self._asked_at is not None and now - self._asked_at >= _WAIT:
            text = f"{frame} waiting for the model  {format_seconds(now - self._asked_at)}"
            lines = self._printer.spaced(unwrapped(console, [Text(text, style=FAINT)]), "waiting")
        return lines

    def _thinking_lines(self, block: ThinkingBlock, frame: str) -> list[Line]:
        head = unwrapped(self._console, [Text(f"{frame} thinking  {format_seconds(block.seconds)}", style=FAINT)])
        if not block.tail:
            return head
        tail = lines_of(self._console, plain(block.tail, FAINT), width=self._console.width - INDENT)
        return head + indented(tail[-(_EXPANDED if self._thinking.is_expanded else _COLLAPSED) :])
