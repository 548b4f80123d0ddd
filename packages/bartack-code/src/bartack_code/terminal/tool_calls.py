"""The tool calls of a run: `CallTracker` keeps what its changes say about them, and the functions draw them."""

from collections.abc import Callable
from typing import Any

from msgspec import UNSET
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from bartack.app.notices import arguments_text, exit_code, exit_text, format_duration, format_seconds
from bartack.app.safe_text import safe_line, safe_text
from bartack.display.changes import (
    AttemptFailed,
    CallAsked,
    CallDecided,
    CallDropped,
    CallEnded,
    CallGrew,
    CallProgressed,
    CallReady,
    CallRunning,
    CallStarted,
    Change,
    StepFinished,
    SubagentChanged,
)
from bartack.nouns.errors import ErrorCode
from bartack.nouns.parts import ToolResult
from bartack.session.tool_state import NO_OUTPUT, output_text
from bartack.stream.partial_json import PartialJson
from bartack.tools.output import WHOLE_OUTPUT
from bartack_code.terminal.rendering import INDENT, Line, indented, lines_of, plain, unwrapped
from bartack_code.terminal.style import BAD, FAINT, GOOD, NAME, NOTE, symbols_for
from bartack_code.workspace.plan import PLAN_TOOL, steps_of

# A folded output keeps its first and its last lines. Totals and errors are at the end, so a failure keeps more of it.
_HEAD_LINES = 2
_TAIL_LINES = 3
_FAILED_TAIL_LINES = 8
_PROGRESS_LINES = 2  # before the last one
_LINE_CHARS = 4_000  # the rest of a longer line is never looked at
_INNER_CALLS = 5  # the last ones of a sub-agent are shown
UNFOLD = "Ctrl-T"  # the key that shows whole outputs
_SHORTEST = 0.05  # seconds; a shorter duration is not shown


# -- tracking


class TrackedCall:
    """What is known of one tool call.

    The model writes it, its answer is stored, it may await approval, it runs, and it ends with a result. It can end
    without one at any time, if the answer or the run fails.
    """

    def __init__(self, name: str, moment: float, *, by_provider: bool = False) -> None:
        self.name = name
        self.by_provider = by_provider
        self.started_at = moment  # first the time it was announced, then the time it started to run
        self.arguments_so_far = PartialJson()
        self.complete_arguments: dict[str, Any] | None = None
        self.is_stored = False  # its answer is stored; before that, it may be taken back
        self.awaits_approval = False
        self.is_running = False
        self.has_run = by_provider
        self.title = ""
        self.progress = ""  # the last progress message
        self.metadata: dict[str, Any] = {}
        self.result: ToolResult | None = None
        self.is_open = True  # it has no result yet, and was not dropped
        self.duration: float | None = None  # seconds; None if it did not run, or ran at the provider
        self.inner: CallTracker | None = None  # the calls of a sub-agent
        self.inner_done: list[TrackedCall] = []

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments, or those the model has written so far."""
        if self.complete_arguments is not None:
            return self.complete_arguments
        value = self.arguments_so_far.value
        return value if value is not UNSET and isinstance(value, dict) else {}

    @property
    def has_succeeded(self) -> bool:
        """Whether it has a result that is not an error. A command with an exit code has one, too."""
        return self.result is not None and not self.result.is_error

    @property
    def has_failed(self) -> bool:
        """Whether it has a result that is an error."""
        return self.result is not None and self.result.is_error

    @property
    def exit_code(self) -> int | None:
        """The exit code of a command; None for other tools, and as long as it runs."""
        return exit_code(self.metadata) if self.has_succeeded else None

    @property
    def output(self) -> str:
        """The result as text; empty if there is none."""
        return "" if self.result is None else output_text(self.result)


class CallTracker:
    """All calls without a result, in the order in which they were made."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._open: dict[str, TrackedCall] = {}
        self._nested: set[str] = set()  # the keys of calls that are shown as those of a sub-agent

    @property
    def open(self) -> list[TrackedCall]:
        """The calls without a result."""
        return list(self._open.values())

    def apply(self, change: Change) -> list[TrackedCall]:
        """Take account of a change; returns the calls that began to run, ended, or were dropped."""
        match change:
            case CallStarted(is_nested=True):
                self._nested.add(change.key)
            case CallEnded(is_nested=True):
                self._nested.discard(change.key)
            case CallStarted():
                self._open[change.key] = TrackedCall(change.tool_name, self._clock(), by_provider=change.by_provider)
            case CallRunning():
                return self._run(change)
            case CallEnded():
                return [self._end(change)]
            case StepFinished():
                for key in change.keys.values():
                    if call := self._open.get(key):
                        call.is_stored = True
            case AttemptFailed():
                return [self._close(key) for key, call in list(self._open.items()) if not call.is_stored]
            case CallGrew() | CallReady() | CallDropped() | CallAsked() | CallDecided() | CallProgressed():
                return self._update(change)
            case _:
                pass
        return []

    def _run(self, change: CallRunning) -> list[TrackedCall]:
        """A call that another process had begun is not open yet."""
        if change.key in self._nested:
            return []
        call = self._open.setdefault(change.key, TrackedCall(change.tool_name, self._clock()))
        call.complete_arguments, call.awaits_approval = change.arguments, False
        call.title = change.title or call.title
        if call.is_running:
            return []
        call.is_stored = call.is_running = call.has_run = True
        call.started_at = self._clock()
        return [call]

    def _end(self, change: CallEnded) -> TrackedCall:
        if change.key not in self._open:
            self._open[change.key] = TrackedCall(change.tool_name, self._clock())
        call = self._close(change.key)
        call.complete_arguments, call.result, call.awaits_approval = change.arguments, change.result, False
        call.metadata |= change.result.metadata or {}
        is_interrupted = change.result.error_code is ErrorCode.TOOL_INTERRUPTED  # it ran in a process that died
        call.has_run = call.has_run or is_interrupted or not change.result.is_error
        call.duration = change.seconds if call.has_run and not call.by_provider else None
        return call

    def _update(
        self, change: CallGrew | CallReady | CallDropped | CallAsked | CallDecided | CallProgressed
    ) -> list[TrackedCall]:
        call = self._open.get(change.key)
        if call is None:
            return []
        match change:
            case CallGrew():
                call.arguments_so_far.feed(change.text)
            case CallReady():
                call.complete_arguments = change.arguments
            case CallDropped():
                return [self._close(change.key)]
            case CallAsked():
                call.awaits_approval = True
            case CallDecided():
                call.awaits_approval = change.decision.decision == "pause"
            case CallProgressed():
                if not change.by_subagent:
                    call.progress, call.title = change.content, change.title or call.title
                    call.metadata |= change.metadata or {}
        return []

    def apply_inner(self, change: SubagentChanged) -> list[TrackedCall]:
        """Take account of a change in a sub-agent; returns its calls as `apply` does."""
        call = self._open.get(change.key)
        if call is None:
            return []
        if call.inner is None:
            call.inner = CallTracker(self._clock)
        if isinstance(change.change, SubagentChanged):
            return call.inner.apply_inner(change.change)
        changed = call.inner.apply(change.change)
        call.inner_done += [inner for inner in changed if inner.result is not None]
        return changed

    def drop_all(self) -> list[TrackedCall]:
        """Remove and return all calls without a result."""
        return [self._close(key) for key in list(self._open)]

    def _close(self, key: str) -> TrackedCall:
        call = self._open.pop(key)
        call.is_open = False
        return call


# -- lines


def call_line(console: Console, call: TrackedCall, *, symbol: str, style: str, remark: str, indent: int = 0) -> Line:
    """`✓ name arguments  remark`, at most as wide as the window with this indentation; the arguments are shortened."""
    ellipsis = symbols_for(console).ellipsis
    line = Text.assemble((f"{symbol} ", style), (safe_line(call.name) or "?", NAME))
    room = console.width - indent - line.cell_len - cell_len(remark) - (2 if remark else 0) - 1
    arguments = "" if call.name == PLAN_TOOL else arguments_text(call.arguments, ellipsis)
    if arguments and room > len(ellipsis):
        line.append(f" {_cut(arguments, room, ellipsis)}")
    if remark:
        line.append(f"  {remark}", style=style if style in {NOTE, BAD} else FAINT)
    return unwrapped(console, [line])[0]


def _cut(text: str, width: int, ellipsis: str) -> str:
    """The text in at most this many columns."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(width - cell_len(ellipsis), 0)).rstrip() + ellipsis


def open_lines(console: Console, call: TrackedCall, *, moment: float, frame: str) -> list[Line]:
    """A call without a result; `frame` is the current frame of the spinner."""
    symbols = symbols_for(console)
    if call.awaits_approval:
        return [call_line(console, call, symbol=symbols.ask, style=NOTE, remark=open_status(call))]
    if call.is_stored and not call.is_running:
        return [call_line(console, call, symbol=symbols.call, style=FAINT, remark="")]
    elapsed = moment - call.started_at
    remark = format_seconds(elapsed) if call.is_running and elapsed >= 1 else ""
    lines = [call_line(console, call, symbol=frame, style=FAINT, remark=remark)]
    if call.is_running and call.inner is None:
        *earlier, message = map(_safe, call.progress[-_LINE_CHARS:].split("\n"))
        numbers = arguments_text(call.metadata, symbols.ellipsis)
        last = " ".join(filter(None, (safe_line(call.title), message, numbers)))
        for progress in filter(None, (*earlier[-_PROGRESS_LINES:], last)):
            text = Text(_cut(progress, console.width - INDENT, symbols.ellipsis), style=FAINT)
            lines += indented(unwrapped(console, [text]))
    if call.name == PLAN_TOOL:
        return [*lines, *step_lines(console, call)]
    return [*lines, *inner_lines(console, call, moment=moment, frame=frame)]


def inner_lines(console: Console, call: TrackedCall, *, moment: float, frame: str) -> list[Line]:
    """The last calls of a sub-agent, indented, and the number of those before them."""
    if call.inner is None:
        return []
    done = call.inner_done[-_INNER_CALLS:]
    earlier = len(call.inner_done) - len(done)
    ellipsis = symbols_for(console).ellipsis
    lines = unwrapped(console, [Text(f"{ellipsis} {earlier} earlier calls", style=FAINT)]) if earlier else []
    lines += [_result_line(console, inner) for inner in done]
    lines += [line for inner in call.inner.open for line in open_lines(console, inner, moment=moment, frame=frame)]
    return indented(lines)


def _result_line(console: Console, call: TrackedCall) -> Line:
    symbols, is_bad = symbols_for(console), call.has_failed or bool(call.exit_code)
    symbol, style = (symbols.bad, BAD) if is_bad else (symbols.good, GOOD)
    return call_line(console, call, symbol=symbol, style=style, remark="  ".join(outcome(call)), indent=INDENT)


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
    if call.has_failed and not call.has_run:
        facts.append("not run")
    if call.has_succeeded:
        metadata = call.metadata
        if isinstance(metadata.get("additions"), int) and isinstance(metadata.get("deletions"), int):
            facts.append(f"+{metadata['additions']} -{metadata['deletions']}")
        match metadata.get(WHOLE_OUTPUT):
            case {"lines": int(count)}:
                pass
            case _:
                count = len(call.output.rstrip("\n").split("\n"))
        facts += ["no output"] if call.output == NO_OUTPUT else [f"{count} lines"] if count > 1 else []
    return facts


def done_lines(console: Console, call: TrackedCall) -> list[Line]:
    """A call at its end: with its result, shortened, or with its status if it has none."""
    symbols, remark = symbols_for(console), "  ".join(outcome(call))
    if call.has_succeeded:
        has_failed = bool(call.exit_code)
        symbol, style = (symbols.bad, BAD) if has_failed else (symbols.good, GOOD)
        if call.name == PLAN_TOOL:
            return [call_line(console, call, symbol=symbol, style=style, remark=""), *step_lines(console, call)]
        head = call_line(console, call, symbol=symbol, style=style, remark=remark)
        inner = inner_lines(console, call, moment=0.0, frame=symbols.call)
        return [head, *inner, *output_lines(console, call.output, has_failed=has_failed)]
    if call.has_failed:
        head = call_line(console, call, symbol=symbols.bad, style=BAD, remark=remark)
        return [head, *output_lines(console, call.output, is_error=True)]
    symbol, style = (symbols.ask, NOTE) if call.awaits_approval else (symbols.bad, FAINT)
    return [call_line(console, call, symbol=symbol, style=style, remark=open_status(call))]


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
    hidden = len(lines) - _HEAD_LINES - tail
    if hidden <= 1:  # the line with the number would be as long as the one it replaces
        return [_safe(line) for line in lines]
    note = f"{ellipsis} {hidden} more lines ({UNFOLD})"
    head, end = lines[:_HEAD_LINES], lines[-tail:]
    return [*map(_safe, head), note, *map(_safe, end)]


def _safe(line: str) -> str:
    """A line of an output, safe to print. A progress bar that overwrites itself leaves its last state."""
    last_state = line.rstrip("\r").rpartition("\r")[2]
    return safe_text(last_state[:_LINE_CHARS]).replace("\n", " ").rstrip()
