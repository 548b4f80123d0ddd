"""Changes and events for tests, and consoles that record what is printed."""

import io
from datetime import UTC, datetime
from typing import Any

from rich.console import Console

from bartack.display.changes import (
    AttemptFailed,
    CallEnded,
    CallGrew,
    CallReady,
    CallRunning,
    CallStarted,
    Change,
    StepFinished,
    TextGrew,
    TextStarted,
)
from bartack.events import Event, RunFinished, RunResult
from bartack.nouns.deltas import Delta, Done, Failed, TextDelta, ThinkingDelta, ToolCallArgs, ToolCallStart
from bartack.nouns.messages import Message, assistant
from bartack.nouns.parts import ToolResult
from bartack.nouns.tables import AgentStatus
from bartack_code.terminal.screen import Screen

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def console_of(width: int = 60, height: int = 20, **settings: Any) -> Console:
    """A terminal that records every byte."""
    return Console(
        **{
            "file": io.StringIO(),
            "force_terminal": True,
            "width": width,
            "height": height,
            "legacy_windows": False,
            "color_system": "truecolor",
            "_environ": {"TERM": "xterm-256color"},
            **settings,
        }
    )


def plain_console() -> Console:
    """Not a terminal."""
    return Console(file=io.StringIO(), force_terminal=False, width=60)


def written(console: Console) -> str:
    """Everything written to the console."""
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def answer(*pieces: Delta) -> list[Change]:
    """How an answer grows with these deltas."""
    changes: list[Change] = []
    for piece in pieces:
        match piece:
            case TextDelta():
                changes += [TextGrew("t", "text", piece.text_delta)] if piece.text_delta else []
            case ThinkingDelta():
                changes.append(TextStarted("t", "thinking"))
                changes += [TextGrew("t", "thinking", piece.text_delta)] if piece.text_delta else []
            case ToolCallStart():
                changes.append(CallStarted(piece.tool_call_id, piece.tool_name))
            case ToolCallArgs():
                changes.append(CallGrew(piece.tool_call_id, "", piece.args_text_delta))
            case Done():
                changes.append(StepFinished("e", assistant(""), {}))
            case Failed():
                changes.append(AttemptFailed(piece))
            case _:
                raise AssertionError(piece)
    return changes


def stored(*call_ids: str) -> Change:
    """The answer with these calls is stored."""
    return StepFinished("e", assistant(""), {call_id: call_id for call_id in call_ids})


def pending(call_id: str, name: str, arguments: dict[str, Any]) -> list[Change]:
    ready = CallReady(call_id, name, arguments=arguments)
    return [CallStarted(call_id, name), ready, stored(call_id)]


def running(call_id: str, name: str, arguments: dict[str, Any], title: str | None = None) -> Change:
    return CallRunning(call_id, name, arguments, title)


def completed(
    call_id: str, name: str, arguments: dict[str, Any], output: str, *, seconds: float = 0.1, **metadata: Any
) -> Change:
    result = ToolResult(call_id, output, metadata=metadata)
    return CallEnded(call_id, name, result=result, arguments=arguments, seconds=seconds)


def errored(call_id: str, name: str, arguments: dict[str, Any], error: str) -> Change:
    result = ToolResult(call_id, error, is_error=True)
    return CallEnded(call_id, name, result=result, arguments=arguments, seconds=0.0)


def finished(status: AgentStatus, *, error: Failed | None = None, message: Message | None = None) -> Event:
    return RunFinished(RunResult(status=status, session_id="s", run_id="r", error=error, message=message))


def present(screen: Screen, *items: Change | Event) -> None:
    """Draw the changes, and show the events."""
    for item in items:
        if isinstance(item, Change):
            screen.draw(item)
            screen.tick()
        else:
            screen.show(item)
