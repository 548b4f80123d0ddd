"""One run on a terminal: its events in, lines out.

`RunReader` turns the events into changes, and a screen draws them. Notices come straight from their events.

`LiveScreen` prints whatever is finished once, so that it stays in the scrollback. What still changes (the last block of
the answer, thinking, running tool calls) is shown in a live area below, which is redrawn several times a second and
disappears with the end of the run. `PlainScreen` is for terminals without cursor movement and for files: it only
appends, without color.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from rich.console import Console
from rich.text import Text

from bartack import events
from bartack.app.notices import Notice, arguments_text, format_seconds, notice
from bartack.app.safe_text import encodable, safe_line, safe_text
from bartack.display.changes import (
    AttemptFailed,
    CallStarted,
    Change,
    MessageAdded,
    StepFinished,
    StepStarted,
    StepVoided,
    SubagentChanged,
    TextGrew,
    TextStarted,
)
from bartack.display.run_reader import RunReader
from bartack.nouns.entries import Entry
from bartack.nouns.messages import Message
from bartack.nouns.tables import AgentStatus
from bartack_code.terminal.live_area import LiveArea, Printer
from bartack_code.terminal.markdown_stream import MarkdownStream
from bartack_code.terminal.messages import prompt_lines
from bartack_code.terminal.rendering import INDENT, Line, indented, lines_of, plain, unwrapped
from bartack_code.terminal.style import BAD, FAINT, FAINT_ITALIC, NOTE, is_plain, symbols_for
from bartack_code.terminal.thinking import ThinkingTracker
from bartack_code.terminal.tool_calls import (
    CallTracker,
    TrackedCall,
    done_lines,
    folded_output,
    open_lines,
    open_status,
    outcome,
)
from bartack_code.workspace.plan import PLAN_TOOL, steps_of

_REDRAW = 1 / 12  # least number of seconds between two redraws
_SETTLE = 0.3  # seconds without a change after which the size of the window counts as settled
_SPIN = 1 / 8  # seconds per frame of the spinner
_WAIT = 0.5  # seconds before "waiting for the model" is shown; most answers start sooner
_COLLAPSED = 3  # lines of thinking shown while it lasts
_EXPANDED = 12
_NOTICE_STYLES = {"info": FAINT, "warning": NOTE, "error": BAD}


class Screen(ABC):
    """Shows a run."""

    def __init__(
        self,
        console: Console,
        *,
        thinking: bool = False,
        clock: Callable[[], float] = time.monotonic,
        earlier: Iterable[Entry] = (),
    ) -> None:
        """`earlier` are the entries of a run that is resumed."""
        self._console = console
        self._clock = clock
        entries = tuple(earlier)
        self._reader = RunReader(entries, from_start=not entries)
        self._calls = CallTracker(clock)
        self._thinking = ThinkingTracker(clock, is_expanded=thinking)

    def show(self, event: events.Event) -> None:
        """Show the next event of the run. Never raises for an event."""
        for change in self._reader.read(event):
            self.draw(change)
        if isinstance(event, events.RunFinished):
            self.close()
        if (line := notice(event)) is not None:
            self._finish_text()
            self._print_notice(line)

    def draw(self, change: Change) -> None:
        """Show the next change."""
        match change:
            case TextGrew(kind="text"):
                self._finish_thinking()
                self._add_text(change.text)
            case TextGrew():
                self._thinking.add(change.text)
                self._finish_answer()
            case TextStarted(kind="thinking"):
                self._thinking.start_part()
            case CallStarted() | StepFinished() | StepVoided() | AttemptFailed():
                self._finish_text()
            case MessageAdded():
                self._finish_text()
                self._print_message(change.message)
            case SubagentChanged():
                for call in self._calls.apply_inner(change):
                    self._print_inner_call(change.agent, call)
            case _:
                pass
        for call in self._calls.apply(change):
            self._finish_text()
            self._print_call(call)

    @abstractmethod
    def tick(self) -> None:
        """Advance clocks and the spinner. To be called about 8 times a second."""

    @abstractmethod
    def suspend(self) -> None:
        """Hide what changes, for a question to the user. What finishes in the meantime is printed afterwards."""

    @abstractmethod
    def resume(self) -> None:
        """Continue after `suspend`."""

    @abstractmethod
    def print(self, text: str) -> None:
        """Print text that is in no event, such as the output of a tool, on separate lines."""

    def close(self) -> None:
        """End the screen, whether or not the run is complete. What was printed stays."""
        self._finish_text()
        for call in self._calls.drop_all():
            self._print_call(call)

    def toggle_thinking(self) -> bool:
        """Switch between a summary of thinking and its full text; returns whether it is the full text now."""
        self._thinking.is_expanded = not self._thinking.is_expanded
        return self._thinking.is_expanded

    def last_thinking(self) -> str | None:
        """The full text of the last thinking, safe to print; None if there was none."""
        return self._thinking.text or None

    def _finish_text(self) -> None:
        self._finish_thinking()
        self._finish_answer()

    def _finish_thinking(self) -> None:
        summary = self._thinking.end()
        if summary is not None:
            self._print_thinking(summary, self._thinking.text if self._thinking.is_expanded else "")

    @abstractmethod
    def _add_text(self, text: str) -> None: ...

    @abstractmethod
    def _finish_answer(self) -> None: ...

    @abstractmethod
    def _print_thinking(self, summary: str, text: str) -> None: ...

    @abstractmethod
    def _print_message(self, message: Message) -> None:
        """A message of the user that joined the run."""

    @abstractmethod
    def _print_call(self, call: TrackedCall) -> None:
        """A call that began to run, or has ended."""

    @abstractmethod
    def _print_notice(self, line: Notice) -> None: ...

    @abstractmethod
    def _print_inner_call(self, agent: str, call: TrackedCall) -> None:
        """A call of a sub-agent that began to run, or has ended."""


def new_screen(
    console: Console,
    *,
    thinking: bool = False,
    footer: Callable[[], list[Line]] | None = None,
    earlier: Iterable[Entry] = (),
) -> Screen:
    """A live screen with these lines at its bottom, or a plain one if the terminal cannot move its cursor.

    `earlier` are the entries of a run that is resumed.
    """
    if is_plain(console):
        return PlainScreen(console, thinking=thinking, earlier=earlier)
    return LiveScreen(console, thinking=thinking, footer=footer, earlier=earlier)


class PlainScreen(Screen):
    """Text as it arrives, and a line in brackets for everything else."""

    _is_mid_line = False
    _is_first = True  # nothing is printed yet
    _held: list[str] | None = None
    _joined = ""  # the end of the text so far, if it continues an emoji

    def tick(self) -> None:
        """Nothing: no line changes."""

    def suspend(self) -> None:
        self._finish_answer()
        if not self._is_first:
            self._write("\n")
        self._is_first = False
        self._held = self._held or []

    def resume(self) -> None:
        texts, self._held = self._held, None
        self._write("".join(texts or ()))

    def print(self, text: str) -> None:
        self._finish_thinking()
        self._line(safe_text(text))

    def close(self) -> None:
        super().close()
        self.resume()

    def _add_text(self, text: str) -> None:
        # A line end may arrive in two pieces, and so may an emoji that is joined from several.
        text, self._joined = self._joined + text.replace("\r", ""), ""
        if text.endswith("\u200d"):
            text, self._joined = text[:-2], text[-2:]
        self._write(safe_text(text))

    def _finish_answer(self) -> None:
        text, self._joined = self._joined, ""
        self._write(safe_text(text))
        if self._is_mid_line:
            self._write("\n")

    def _print_thinking(self, summary: str, text: str) -> None:
        self._line(f"[{summary}]")
        if text:
            self._line(text)

    def _print_message(self, message: Message) -> None:
        self._finish_answer()
        self._line(f"> {safe_text(message.text)}")

    def _print_call(self, call: TrackedCall) -> None:
        if call.is_open:
            status = "..."
        elif call.has_succeeded:
            status = ", ".join(["failed" if call.exit_code else "ok", *outcome(call)])
        elif call.has_failed:
            status = f"{', '.join(['error', *outcome(call)])}: {safe_line(call.output)}"
        else:
            status = open_status(call)
        self._line(f"[{' '.join(filter(None, (safe_line(call.name), arguments_text(call.arguments), status)))}]")
        self._print_details(call)

    def _print_inner_call(self, agent: str, call: TrackedCall) -> None:
        if not call.is_open:
            status = "error" if call.has_failed else "failed" if call.exit_code else "ok"
            words = (f"{safe_line(agent)}:", safe_line(call.name), arguments_text(call.arguments), status)
            self._line(f"  [{' '.join(filter(None, words))}]")

    def _print_details(self, call: TrackedCall) -> None:
        if call.has_succeeded and call.name == PLAN_TOOL:
            for step in steps_of(call.arguments):
                self._line(f"  {symbols_for(self._console).steps[step.status]} {safe_line(step.text)}")
        if call.exit_code is not None:
            for line in folded_output(call.output, "...", has_failed=bool(call.exit_code)):
                self._line(f"  {line}".rstrip())

    def _print_notice(self, line: Notice) -> None:
        self._line(f"[{line.text}]")

    def _line(self, text: str) -> None:
        self._finish_answer()
        self._write(f"{text}\n")

    def _write(self, text: str) -> None:
        if not text:
            return
        self._is_mid_line, self._is_first = not text.endswith("\n"), False
        if self._held is not None:
            self._held.append(text)
        else:
            self._console.out(encodable(text, self._console.encoding), end="", highlight=False)


class LiveScreen(Screen):
    """Finished lines, and a live area below them, which ends with the footer."""

    def __init__(
        self,
        console: Console,
        *,
        thinking: bool = False,
        clock: Callable[[], float] = time.monotonic,
        footer: Callable[[], list[Line]] | None = None,
        earlier: Iterable[Entry] = (),
    ) -> None:
        super().__init__(console, thinking=thinking, clock=clock, earlier=earlier)
        self._footer = footer
        self._printer = Printer(console)
        self._answer = MarkdownStream(self._printer)
        self._asked_at: float | None = None  # when the model was asked, until it answers
        self._area = LiveArea(console, self._live_lines)
        self._is_suspended = False
        self._size = console.size
        self._settled_at: float | None = None  # when the size of the window will be settled
        self._drawn_at = clock() - _REDRAW

    def show(self, event: events.Event) -> None:
        self._watch_size()
        if isinstance(event, events.StatusChanged):
            self._asked_at = self._clock() if event.status is AgentStatus.MODEL_RUNNING else None
        super().show(event)
        self._redraw()

    def draw(self, change: Change) -> None:
        if not isinstance(change, StepStarted):
            self._asked_at = None
        super().draw(change)

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
        super().close()
        self._area.close()
        self._printer.release()

    def _add_text(self, text: str) -> None:
        self._answer.feed(text)

    def _finish_answer(self) -> None:
        self._answer.finish()

    def _print_thinking(self, summary: str, text: str) -> None:
        lines = unwrapped(self._console, [Text(summary, style=FAINT)])
        if text:
            lines += lines_of(self._console, plain(text, FAINT_ITALIC))
        self._printer.put(lines, "thinking")

    def _print_message(self, message: Message) -> None:
        self._printer.put(prompt_lines(self._console, message), "prompt")

    def _print_call(self, call: TrackedCall) -> None:
        if not call.is_open:
            self._printer.put(done_lines(self._console, call), "calls")

    def _print_inner_call(self, agent: str, call: TrackedCall) -> None:
        """It is shown below the call of the sub-agent."""

    def _print_notice(self, line: Notice) -> None:
        self._printer.put(lines_of(self._console, plain(line.text, _NOTICE_STYLES[line.level])), "notice")

    # -- the live area

    def _watch_size(self) -> None:
        """Draw and print nothing while the window is being resized, because the position of lines is unknown then."""
        moment, size = self._clock(), self._console.size
        if size != self._size:
            self._size, self._settled_at = size, moment + _SETTLE
            self._printer.hold()
        elif self._settled_at is not None and moment >= self._settled_at:
            self._settled_at = None
            if not self._is_suspended:
                self._printer.release()

    def _redraw(self) -> None:
        moment = self._clock()
        if self._is_suspended or self._settled_at is not None or moment - self._drawn_at < _REDRAW:
            return
        self._drawn_at = moment
        self._area.refresh()

    def _live_lines(self) -> list[Line]:
        """Thinking or the unfinished block, then the open calls; or a note that the model has not answered yet."""
        moment, console = self._clock(), self._console
        spinner = symbols_for(console).spinner
        frame = spinner[int(moment / _SPIN) % len(spinner)]
        if self._thinking.is_active:
            lines = self._printer.spaced(self._thinking_lines(frame), "thinking")
        else:
            lines = self._answer.unfinished()
        calls = [line for call in self._calls.open for line in open_lines(console, call, moment=moment, frame=frame)]
        lines = [*lines, *([[], *calls] if lines and calls else self._printer.spaced(calls, "calls"))]
        if not lines and self._asked_at is not None and moment - self._asked_at >= _WAIT:
            text = f"{frame} waiting for the model  {format_seconds(moment - self._asked_at)}"
            lines = self._printer.spaced(unwrapped(console, [Text(text, style=FAINT)]), "waiting")
        footer = [] if self._footer is None else self._footer()
        return [*lines, *([[], *footer] if lines else self._printer.spaced(footer, "footer"))] if footer else lines

    def _thinking_lines(self, frame: str) -> list[Line]:
        text = f"{frame} thinking  {format_seconds(self._thinking.seconds)}"
        head = unwrapped(self._console, [Text(text, style=FAINT)])
        if not self._thinking.tail:
            return head
        tail = lines_of(self._console, plain(self._thinking.tail, FAINT), width=self._console.width - INDENT)
        return head + indented(tail[-(_EXPANDED if self._thinking.is_expanded else _COLLAPSED) :])
