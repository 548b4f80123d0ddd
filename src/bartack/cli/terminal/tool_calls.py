"""The tool calls of a run: their state, tracked from its events, and the lines that show them."""

from collections.abc import Callable
from typing import Any

from msgspec import UNSET
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from bartack.agent.events import ApprovalRequested, EntryAppended, SubagentEvent, ToolChanged
from bartack.app.notices import arguments_text, exit_code, exit_text, format_duration, format_seconds
from bartack.app.plan import PLAN_TOOL, steps_of
from bartack.app.safe_text import safe_line, safe_text
from bartack.cli.terminal.rendering import INDENT, Line, indented, lines_of, plain, unwrapped
from bartack.cli.terminal.style import BAD, FAINT, GOOD, NAME, NOTE, symbols_for
from bartack.nouns.deltas import ToolCallArgs, ToolCallStart
from bartack.nouns.entries import ApprovalDecided, ToolProgress
from bartack.nouns.messages import Message
from bartack.nouns.tool_states import Completed, Errored, Pending, Running, ToolState
from bartack.session.tool_state import NO_OUTPUT
from bartack.stream.partial_json import PartialJson

_HEAD_LINES = 2  # of an output that is folded
_TAIL_LINES = 3  # at its end, where totals and errors are
_FAILED_TAIL_LINES = 8  # at the end of a command that failed
_LINE_CHARS = 4_000  # considered of one line
_INNER_CALLS = 5  # of a sub-agent
UNFOLD = "Ctrl-T"  # the key that shows whole outputs
_SHORTEST = 0.05  # seconds; a shorter duration is not shown


# -- tracking


class TrackedCall:
    """The known state of one tool call."""

    def __init__(self, call_id: str, name: str, now: float, *, by_provider: bool = False) -> None:
        self.id = call_id
        self.name = name
        self.by_provider = by_provider
        self.started_at = now  # first the time it was announced, then the time it started to run
        self.state: ToolState | None = None  # None while the model is still writing it
        self.is_open = True  # until it has a result or is dropped
        self.awaits_approval = False
        self.has_run = by_provider
        self.has_just_started = False  # with its last change of state
        self.progress = ""  # the last progress message
        self.partial_arguments = PartialJson()
        self.inner: CallTracker | None = None  # the calls of a sub-agent
        self.inner_done: list[TrackedCall] = []

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments, or those the model has written so far."""
        if self.state is not None:
            return self.state.input
        value = self.partial_arguments.value
        return value if value is not UNSET and isinstance(value, dict) else {}

    @property
    def exit_code(self) -> int | None:
        """The exit code of a command; None for other tools, and as long as it runs."""
        return exit_code(self.state.metadata) if isinstance(self.state, Completed) else None

    @property
    def duration(self) -> float | None:
        """How many seconds it ran; None if it did not run, or ran at the provider."""
        if not isinstance(self.state, Completed | Errored) or not self.has_run or self.by_provider:
            return None
        time = self.state.time
        return None if time.end is None else (time.end - time.start).total_seconds()


class CallTracker:
    """All calls without a result, in the order in which they were made."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._open: dict[str, TrackedCall] = {}
        self._done: set[str] = set()

    @property
    def open(self) -> list[TrackedCall]:
        """The calls without a result."""
        return list(self._open.values())

    def start(self, delta: ToolCallStart) -> None:
        """The model starts writing a call. A repeated id is replaced once the message is complete."""
        self._done.discard(delta.tool_call_id)
        self._open[delta.tool_call_id] = TrackedCall(
            delta.tool_call_id, delta.tool_name, self._clock(), by_provider=delta.executed_by == "provider"
        )

    def add_arguments(self, delta: ToolCallArgs) -> None:
        """The model writes more of the arguments."""
        if call := self._open.get(delta.tool_call_id):
            call.partial_arguments.feed(delta.args_text_delta)

    def observe(self, event: ApprovalRequested | EntryAppended) -> None:
        """Take approvals, progress, and replaced ids from these events."""
        if isinstance(event, ApprovalRequested):
            self._set_approval(event.request.tool_call_id, awaits=True)
            return
        match event.entry.fact:
            case Message() as message:
                self._replace_ids(message)
            case ToolProgress() as progress:
                if call := self._open.get(progress.tool_call_id):
                    call.progress = progress.content
            case ApprovalDecided() as decided:
                self._set_approval(decided.tool_call_id, awaits=decided.decision == "pause")
            case _:
                pass

    def observe_inner(self, event: SubagentEvent) -> TrackedCall | None:
        """Take an event of a sub-agent; returns its call if the event changed the call's state."""
        call = self._open.get(event.tool_call_id)
        if call is None:
            return None
        if call.inner is None:
            call.inner = CallTracker(self._clock)
        match event.event:
            case SubagentEvent() as deeper:
                return call.inner.observe_inner(deeper)
            case ToolChanged() as changed:
                found = call.inner.update(changed.tool_call_id, changed.tool_name, changed.state)
                if found is not None and not found.is_open:
                    call.inner_done.append(found)
                return found
            case ApprovalRequested() | EntryAppended() as observed:
                call.inner.observe(observed)
            case _:
                pass
        return None

    def _set_approval(self, call_id: str, *, awaits: bool) -> None:
        if call := self._open.get(call_id):
            call.awaits_approval = awaits

    def _replace_ids(self, message: Message) -> None:
        for part in message.tool_calls:
            original = (part.metadata or {}).get("providerToolCallId")
            call = self._open.get(original) if isinstance(original, str) else None
            if call is not None and call.state is None and part.tool_call_id not in self._open:
                del self._open[call.id]
                call.id = part.tool_call_id
                self._open[call.id] = call

    def update(self, call_id: str, name: str, state: ToolState) -> TrackedCall | None:
        """Set the state of a call and return the call; None if it already had a result."""
        if call_id in self._done:
            return None
        call = self._open.get(call_id)
        if call is None:
            call = self._open[call_id] = TrackedCall(call_id, name, self._clock())
        call.has_just_started = isinstance(state, Running) and not isinstance(call.state, Running)
        if call.has_just_started:
            call.started_at = self._clock()
            call.has_run = True
        call.has_run = call.has_run or isinstance(state, Completed)
        call.awaits_approval = call.awaits_approval and isinstance(state, Pending)
        call.state = state
        if isinstance(state, Completed | Errored):
            self._done.add(call_id)
            self._close(call)
        return call

    def drop_unwritten(self) -> list[TrackedCall]:
        """Remove and return the calls that the model did not finish writing; they will never run."""
        return [self._close(call) for call in self.open if call.state is None]

    def drop_all(self) -> list[TrackedCall]:
        """Remove and return all calls without a result."""
        return [self._close(call) for call in self.open]

    def _close(self, call: TrackedCall) -> TrackedCall:
        call.is_open = False
        return self._open.pop(call.id)


# -- lines


def call_line(console: Console, call: TrackedCall, *, symbol: str, style: str, after: str, indent: int = 0) -> Line:
    """`✓ name arguments  after`, at most as wide as the window with this indentation; the arguments are shortened."""
    ellipsis = symbols_for(console).ellipsis
    line = Text.assemble((f"{symbol} ", style), (safe_line(call.name) or "?", NAME))
    room = console.width - indent - line.cell_len - cell_len(after) - (2 if after else 0) - 1
    arguments = "" if call.name == PLAN_TOOL else arguments_text(call.arguments, ellipsis)
    if arguments and room > len(ellipsis):
        line.append(f" {_cut(arguments, room, ellipsis)}")
    if after:
        line.append(f"  {after}", style=style if style in {NOTE, BAD} else FAINT)
    return unwrapped(console, [line])[0]


def _cut(text: str, width: int, ellipsis: str) -> str:
    """The text in at most this many columns."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(width - cell_len(ellipsis), 0)).rstrip() + ellipsis


def open_lines(console: Console, call: TrackedCall, *, now: float, frame: str) -> list[Line]:
    """A call without a result; `frame` is the current frame of the spinner."""
    symbols = symbols_for(console)
    if call.awaits_approval:
        return [call_line(console, call, symbol=symbols.ask, style=NOTE, after=open_status(call))]
    if isinstance(call.state, Pending):
        return [call_line(console, call, symbol=symbols.call, style=FAINT, after="")]
    elapsed = now - call.started_at
    after = format_seconds(elapsed) if isinstance(call.state, Running) and elapsed >= 1 else ""
    lines = [call_line(console, call, symbol=frame, style=FAINT, after=after)]
    if isinstance(call.state, Running):
        title, message = safe_line(call.state.title or ""), safe_line(call.progress[-_LINE_CHARS:])
        numbers = arguments_text(call.state.metadata or {}, symbols.ellipsis)
        progress = " ".join(filter(None, (title, message, numbers)))
        if progress:
            text = Text(_cut(progress, console.width - INDENT, symbols.ellipsis), style=FAINT)
            lines += indented(unwrapped(console, [text]))
    if call.name == PLAN_TOOL:
        return [*lines, *step_lines(console, call)]
    return [*lines, *inner_lines(console, call, now=now, frame=frame)]


def inner_lines(console: Console, call: TrackedCall, *, now: float, frame: str) -> list[Line]:
    """The last calls of a sub-agent, indented, and the number of those before them."""
    if call.inner is None:
        return []
    done = call.inner_done[-_INNER_CALLS:]
    left = len(call.inner_done) - len(done)
    ellipsis = symbols_for(console).ellipsis
    lines = unwrapped(console, [Text(f"{ellipsis} {left} earlier calls", style=FAINT)]) if left else []
    lines += [_result_line(console, one) for one in done]
    lines += [line for one in call.inner.open for line in open_lines(console, one, now=now, frame=frame)]
    return indented(lines)


def _result_line(console: Console, call: TrackedCall) -> Line:
    symbols, is_bad = symbols_for(console), isinstance(call.state, Errored) or bool(call.exit_code)
    symbol, style = (symbols.bad, BAD) if is_bad else (symbols.good, GOOD)
    return call_line(console, call, symbol=symbol, style=style, after="  ".join(outcome(call)), indent=INDENT)


def step_lines(console: Console, call: TrackedCall) -> list[Line]:
    """The steps of a plan, one on each line."""
    symbols, styles = symbols_for(console).steps, {"todo": "", "doing": NAME, "done": FAINT}
    lines: list[Line] = []
    for step in steps_of(call.arguments):
        text = Text(f"{symbols[step.status]} {safe_line(step.text)}", style=styles[step.status], overflow="fold")
        lines += lines_of(console, text, width=max(console.width - INDENT, 1))
    return indented(lines)


def open_status(call: TrackedCall) -> str:
    """The status of a call that has no result at the end of its run."""
    return "awaiting approval" if call.awaits_approval else "stopped" if call.has_run else "not run"


def outcome(call: TrackedCall) -> list[str]:
    """Facts about a call with a result: the exit code of a failed command, its duration, the length of its output."""
    facts = [exit_text(call.exit_code)] if call.exit_code else []
    if call.duration is not None and call.duration >= _SHORTEST:
        facts.append(format_duration(call.duration))
    if isinstance(call.state, Errored) and not call.has_run:
        facts.append("not run")
    if isinstance(call.state, Completed):
        metadata = call.state.metadata
        if isinstance(metadata.get("additions"), int) and isinstance(metadata.get("deletions"), int):
            facts.append(f"+{metadata['additions']} -{metadata['deletions']}")
        count = len(call.state.output.rstrip("\n").split("\n"))
        facts += ["no output"] if call.state.output == NO_OUTPUT else [f"{count} lines"] if count > 1 else []
    return facts


def done_lines(console: Console, call: TrackedCall) -> list[Line]:
    """A call at its end: with its result, shortened, or with its status if it has none."""
    symbols, after = symbols_for(console), "  ".join(outcome(call))
    if isinstance(call.state, Completed):
        has_failed = bool(call.exit_code)
        symbol, style = (symbols.bad, BAD) if has_failed else (symbols.good, GOOD)
        if call.name == PLAN_TOOL:
            return [call_line(console, call, symbol=symbol, style=style, after=""), *step_lines(console, call)]
        head = call_line(console, call, symbol=symbol, style=style, after=after)
        inner = inner_lines(console, call, now=0.0, frame=symbols.call)
        return [head, *inner, *output_lines(console, call.state.output, has_failed=has_failed)]
    if isinstance(call.state, Errored):
        head = call_line(console, call, symbol=symbols.bad, style=BAD, after=after)
        return [head, *output_lines(console, call.state.error, is_error=True)]
    symbol, style = (symbols.ask, NOTE) if call.awaits_approval else (symbols.bad, FAINT)
    return [call_line(console, call, symbol=symbol, style=style, after=open_status(call))]


def output_lines(
    console: Console, output: str, *, is_error: bool = False, has_failed: bool = False, unfolded: bool = False
) -> list[Line]:
    """The first and last lines of an output, cut at the window's edge, with the number of the others between them; or
    all of it, `unfolded`. Errors are wrapped."""
    if output == NO_OUTPUT:
        return []
    width, style = max(console.width - INDENT, 1), BAD if is_error else FAINT
    if unfolded:
        return indented(lines_of(console, plain(output.rstrip(), style), width=width))
    folded = folded_output(output, symbols_for(console).ellipsis, has_failed=has_failed or is_error)
    if is_error:
        return indented(lines_of(console, plain("\n".join(folded), style), width=width)[-_FAILED_TAIL_LINES:])
    texts = (Text(_cut(line, width, symbols_for(console).ellipsis), style=style) for line in folded)
    return indented(unwrapped(console, texts))


def folded_output(output: str, ellipsis: str, *, has_failed: bool = False) -> list[str]:
    """The first and last lines of an output, safe to print, with the number of the others between them."""
    lines = output.rstrip("\n").split("\n")
    tail = _FAILED_TAIL_LINES if has_failed else _TAIL_LINES
    left = len(lines) - _HEAD_LINES - tail
    if left <= 1:  # the line with the number would be as long as the one it replaces
        return [_safe(line) for line in lines]
    note = f"{ellipsis} {left} more lines ({UNFOLD})"
    head, end = lines[:_HEAD_LINES], lines[-tail:]
    return [*map(_safe, head), note, *map(_safe, end)]


def _safe(line: str) -> str:
    """A line of an output, safe to print. A progress bar that overwrites itself leaves its last state."""
    shown = line.rstrip("\r").rpartition("\r")[2]
    return safe_text(shown[:_LINE_CHARS]).replace("\n", " ").rstrip()
