"""One agent run in a terminal: its events in, what stands there out.

What is finished is printed once and stays in the scrollback. What still changes (the last block of the answer,
thinking, calls that run) stands in a small area below, which is drawn again some times a second and goes with the run.
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
from bartack.cli.terminal.answer import Answer
from bartack.cli.terminal.calls import Call, Calls
from bartack.cli.terminal.live_area import LiveArea
from bartack.cli.terminal.looks import FAINT, FAINT_ITALIC, marks_for, whole_seconds
from bartack.cli.terminal.notices import notice
from bartack.cli.terminal.plain_screen import PlainScreen
from bartack.cli.terminal.printer import Printer
from bartack.cli.terminal.rendering import INDENT, Line, indented, lines_of, plain, unwrapped
from bartack.cli.terminal.request import show_request
from bartack.cli.terminal.stored import show_message
from bartack.cli.terminal.thought import Thought, Thoughts
from bartack.cli.terminal.tool_lines import ended_lines, open_lines
from bartack.nouns.deltas import Delta, Done, Failed, Start, TextDelta, ThinkingDelta, ToolCallArgs, ToolCallStart
from bartack.nouns.tables import AgentStatus

__all__ = ["LiveScreen", "PlainScreen", "Screen", "new_screen", "show_message", "show_request"]

_REDRAW = 1 / 12  # seconds between two drawings at least
_SETTLE = 0.3  # seconds after which a window that changed its size is taken to be done with it
_SPIN = 1 / 8  # seconds for a step of the spinner
_FOLDED = 3  # lines of thinking that are seen while it goes on
_UNFOLDED = 12


class Screen(Protocol):
    """What shows a run."""

    def show(self, event: Event) -> None:
        """Take the next event of the run; never raises for one."""

    def tick(self) -> None:
        """Some time has passed: clocks and the spinner move on. To be called about 8 times a second."""

    def suspend(self) -> None:
        """Take away what changes, for something else to be asked, apart from what was said; what ends meanwhile is
        told afterwards."""

    def resume(self) -> None:
        """Go on after `suspend`."""

    def print(self, text: str) -> None:
        """Text that no event tells, on lines of its own: what a tool prints while it works."""

    def close(self) -> None:
        """The run is over, or was cut: what was said stays, what changes is gone."""

    def toggle_thinking(self) -> bool:
        """Show thinking in full from here on, or fold it; gives whether it is shown now."""

    def last_thinking(self) -> str | None:
        """All of the last thinking, safe to print; None if there was none."""


def new_screen(console: Console, *, thinking: bool = False) -> Screen:
    """The screen that suits the console: one that only appends where a terminal cannot move its cursor."""
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveScreen(console, thinking=thinking)
    return PlainScreen(console, thinking=thinking)


class LiveScreen:
    """For terminals."""

    def __init__(
        self, console: Console, *, thinking: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._clock = clock
        self._printer = Printer(console)
        self._answer = Answer(self._printer)
        self._calls = Calls(clock)
        self._thoughts = Thoughts(clock, are_unfolded=thinking)
        self._asked_at: float | None = None  # the model was asked and has not said a word
        self._area = LiveArea(console, self._changing)
        self._is_suspended = False
        self._size = console.size
        self._settled_at: float | None = None  # when the window will have kept its size for long enough
        self._drawn_at = clock() - _REDRAW

    def show(self, event: Event) -> None:
        self._watch_size()
        match event:
            case DeltaReceived():
                self._delta(event.delta.delta)
            case ToolChanged():
                self._finish_text()
                call = self._calls.change(event.tool_call_id, event.tool_name, event.state)
                self._print_calls([call] if call is not None and call.is_over else [])
            case ApprovalRequested() | EntryAppended():
                self._calls.note(event)
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
        self._printer.interject()
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
        self._print_calls(self._calls.end())
        self._area.close()
        self._printer.release()

    def toggle_thinking(self) -> bool:
        return self._thoughts.toggle()

    def last_thinking(self) -> str | None:
        return self._thoughts.last_text

    # -- what the model says

    def _delta(self, delta: Delta) -> None:
        if not isinstance(delta, Start):
            self._asked_at = None
        match delta:
            case TextDelta(text_delta=text) if text:
                self._finish_thought()
                self._answer.feed(text)
            case ThinkingDelta():
                if self._thoughts.add(delta):
                    self._answer.finish()
            case ToolCallStart():
                self._finish_text()
                self._calls.start(delta)
            case ToolCallArgs():
                self._calls.write(delta)
            case Done():
                self._finish_text()
            case Failed():
                self._finish_text()
                self._print_calls(self._calls.cut())
            case _:
                pass

    def _notice(self, event: Event) -> None:
        if isinstance(event, RunFinished):
            self.close()
        said = notice(event)
        if said is not None:
            style, words = said
            self._finish_text()
            self._printer.put(lines_of(self._console, plain(words, style)), "notice")

    def _print_calls(self, calls: list[Call]) -> None:
        for call in calls:
            self._printer.put(ended_lines(self._console, call), "calls")

    def _finish_text(self) -> None:
        self._finish_thought()
        self._answer.finish()

    def _finish_thought(self) -> None:
        thought = self._thoughts.end()
        if thought is None:
            return
        lines = unwrapped(self._console, [Text(thought.summary, style=FAINT)])
        if self._thoughts.are_unfolded and thought.text:
            lines += lines_of(self._console, plain(thought.text, FAINT_ITALIC))
        self._printer.put(lines, "thought")

    # -- what changes

    def _watch_size(self) -> None:
        """While the window changes its size nothing is drawn or printed: where a line stands is not sure until then."""
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

    def _changing(self) -> list[Line]:
        """The lines of the area: thinking or the last block, then the calls; or that the model is waited for."""
        now, console = self._clock(), self._console
        marks = marks_for(console)
        frame = marks.spinner[int(now / _SPIN) % len(marks.spinner)]
        lines: list[Line] = []
        if self._thoughts.current is not None:
            lines += self._printer.apart(self._thinking(self._thoughts.current, frame), "thought")
        else:
            lines += self._answer.unfinished()
        calls = [line for call in self._calls.open for line in open_lines(console, call, now=now, frame=frame)]
        lines += [[], *calls] if lines and calls else self._printer.apart(calls, "calls")
        if not lines and self._asked_at is not None and now - self._asked_at >= 0.5:  # most answer sooner
            words = f"{frame} waiting for the model  {whole_seconds(now - self._asked_at)}"
            lines = self._printer.apart(unwrapped(console, [Text(words, style=FAINT)]), "waiting")
        return lines

    def _thinking(self, thought: Thought, frame: str) -> list[Line]:
        head = unwrapped(self._console, [Text(f"{frame} thinking  {whole_seconds(thought.seconds)}", style=FAINT)])
        if not thought.tail:
            return head
        tail = lines_of(self._console, plain(thought.tail, FAINT), width=self._console.width - INDENT)
        return head + indented(tail[-(_UNFOLDED if self._thoughts.are_unfolded else _FOLDED) :])
