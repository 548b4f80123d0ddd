"""What `bartack run` prints: events of a run in, the answer on stdout and everything else on stderr; or all of it as JSON.

Output is written in a thread: whoever reads it may be slow, and the run has a lease to renew meanwhile. When it cannot
be written any more, `OutputLost` says so and stdout is let go of, so that nothing is left for the interpreter to flush.
"""

import asyncio
import os
import sys
from contextlib import suppress
from typing import Any, Protocol

from bartack.agent.events import (
    Compacted,
    DeltaReceived,
    Event,
    ModelSwitched,
    Retrying,
    RunFinished,
    RunResult,
    ToolChanged,
)
from bartack.cli.event_json import event_json, finished_json
from bartack.cli.safe_json import json_bytes
from bartack.cli.terminal.safe_text import encodable, safe_line, safe_text
from bartack.formats.losses import Loss
from bartack.nouns.deltas import Failed, Start, TextDelta
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import ModelRef
from bartack.nouns.tool_states import Errored, Running, ToolState

__all__ = ["JsonOutput", "Output", "OutputLost", "TextOutput", "loss_text", "note"]

_VALUE = 60  # characters of one argument that a line shows
_ERROR = 200  # characters of a tool's error that a line shows
_CUT_SHORT = {
    "length": "the answer was cut off at its length limit",
    "content_filter": "the provider's filter cut the answer off",
    "refusal": "the model refused to answer",
}


class OutputLost(Exception):
    """Nobody can be told the answer any more; the cause is an `OSError`."""


class Output(Protocol):
    """Where the events of one run go."""

    async def see(self, event: Event) -> None:
        """Show an event; `OutputLost` where that cannot be done."""

    def end(self, result: RunResult | None, error: Failed | None) -> None:
        """Show how the run ended; without a result it failed before there was one. `OutputLost` as above."""

    def tell(self, text: str, *, is_dim: bool = False) -> None:
        """Say something about the run to whoever looks on."""


class JsonOutput:
    """Every event as a line of JSON on stdout; `bartack.cli.event_json` says what it holds."""

    def __init__(self) -> None:
        self._stdout = _Stdout()

    async def see(self, event: Event) -> None:
        """Print the event. The last line is left to `end`, which knows more."""
        if not isinstance(event, RunFinished):
            await asyncio.to_thread(self._print, event_json(event))

    def end(self, result: RunResult | None, error: Failed | None) -> None:
        """Print the last line."""
        self._print(finished_json(result, error))

    def tell(self, text: str, *, is_dim: bool = False) -> None:
        """Nothing: the events say it."""

    def _print(self, line: dict[str, Any]) -> None:
        self._stdout.write(json_bytes(line) + b"\n")


class TextOutput:
    """The text of the answers on stdout as it comes, and the rest on stderr."""

    def __init__(self) -> None:
        self._stdout = _Stdout()
        self._is_mid_line = False
        self._begins = False  # the next text is the first of an answer
        self._started: set[str] = set()

    async def see(self, event: Event) -> None:
        """Show what a person wants to know of it."""
        match event:
            case DeltaReceived():
                match event.delta.delta:
                    case Start():
                        self._begins = True
                    case TextDelta(text_delta=text) if text:
                        await asyncio.to_thread(self._write, text)
                    case _:
                        pass
            case ToolChanged():
                self._tell_tool(event)
            case Retrying():
                what = event.error.message or event.error.error_code
                self.tell(f"[{what}; asked again in {event.delay_ms / 1000:.1f} s]")
            case ModelSwitched():
                self.tell(f"[{_name(event.model)} answers{_instead(event.previous)}]")
                for loss in event.report.losses:
                    self.tell(f"[{loss_text(loss)}]")
            case Compacted():
                self.tell("[older turns are told to the model as a summary]")
            case _:
                pass

    def end(self, result: RunResult | None, error: Failed | None) -> None:
        """Finish the last line, and say what is missing of the answer."""
        if self._is_mid_line:
            self._write_bytes("\n")
        said = None if result is None or result.reason is None else _CUT_SHORT.get(result.reason)
        if said is not None and error is None:
            self.tell(f"warning: {said}")

    def tell(self, text: str, *, is_dim: bool = False) -> None:
        """A line on stderr; on a terminal it begins a line of its own."""
        if self._is_mid_line and self._stdout.is_terminal:
            self._write_bytes("\n")
        note(text, is_dim=is_dim)

    def _tell_tool(self, event: ToolChanged) -> None:
        match event.state:
            case Running() if event.tool_call_id not in self._started:
                self._started.add(event.tool_call_id)
                self.tell(f"[{_call(event.tool_name, event.state)}]")
            case Errored() if event.tool_call_id in self._started:
                self.tell(f"[{event.tool_name} failed: {event.state.error[:_ERROR]}]")
            case Errored():
                self.tell(f"[{_call(event.tool_name, event.state)} did not run: {event.state.error[:_ERROR]}]")
            case _:
                pass

    def _write(self, text: str) -> None:
        if self._begins and self._is_mid_line:
            text = f"\n{text}"
        self._begins = False
        self._write_bytes(text)

    def _write_bytes(self, text: str) -> None:
        self._is_mid_line = not text.endswith("\n")
        if self._stdout.is_terminal:
            text = encodable(safe_text(text), self._stdout.encoding)
            self._stdout.write(text.encode(self._stdout.encoding, "replace"))
        else:
            self._stdout.write(text.encode("utf-8", "replace"))


def note(text: str, *, is_dim: bool = False) -> None:
    """One line on stderr, harmless for a terminal."""
    if sys.stderr is None:  # it was closed before we began
        return
    line = safe_line(text)
    if is_dim and sys.stderr.isatty() and "NO_COLOR" not in os.environ:
        line = f"\x1b[2m{line}\x1b[0m"
    with suppress(OSError):  # nobody listens: the answer matters more
        print(line, file=sys.stderr, flush=True)


def loss_text(loss: Loss) -> str:
    """What a model is not told, and why."""
    return f"the model is not told {loss.what}: {loss.why}"


def _name(model: ModelRef) -> str:
    return f"{model.provider}:{model.model}"


def _instead(previous: ModelRef | None) -> str:
    return "" if previous is None else f" instead of {_name(previous)}"


def _call(name: str, state: ToolState) -> str:
    shown = "".join(f" {key}={_value(value)}" for key, value in state.input.items())
    return f"{name}{shown}"


def _value(value: Any) -> str:
    text = json_text(value)
    return text if len(text) <= _VALUE else f"{text[:_VALUE]}..."


class _Stdout:
    """Bytes on what is the standard output now, each piece at once; later it may mean another one for tools."""

    def __init__(self) -> None:
        self._file = sys.stdout
        self.is_terminal = self._file is not None and self._file.isatty()
        self.encoding = getattr(self._file, "encoding", None) or "utf-8"

    def write(self, data: bytes) -> None:
        if self._file is None:  # it was closed before we began
            return
        try:
            self._file.buffer.write(data)
            self._file.buffer.flush()
        except OSError as error:
            with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - no path of the file system is meant
                os.dup2(nowhere.fileno(), self._file.fileno())
            raise OutputLost from error
