"""Events for tests, and consoles that record what is printed."""

import io
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Console

from bartack.agent.events import DeltaReceived, Event, RunFinished, RunResult, ToolChanged
from bartack.nouns.deltas import Delta, Failed, MessageDelta
from bartack.nouns.messages import Message
from bartack.nouns.tables import AgentStatus
from bartack.nouns.tool_states import Completed, Errored, Pending, Running, ToolTime

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


def deltas(*items: Delta) -> list[Event]:
    return [DeltaReceived(MessageDelta("r", seq, delta, NOW)) for seq, delta in enumerate(items)]


def pending(call_id: str, name: str, arguments: dict[str, Any]) -> Event:
    return ToolChanged(call_id, name, Pending(arguments, "{}"))


def running(call_id: str, name: str, arguments: dict[str, Any], **known: Any) -> Event:
    return ToolChanged(call_id, name, Running(input=arguments, time=ToolTime(start=NOW), **known))


def completed(
    call_id: str, name: str, arguments: dict[str, Any], output: str, *, seconds: float = 0.1, **metadata: Any
) -> Event:
    time = ToolTime(start=NOW, end=NOW + timedelta(seconds=seconds))
    state = Completed(input=arguments, output=output, title="", metadata=metadata, time=time)
    return ToolChanged(call_id, name, state)


def errored(call_id: str, name: str, arguments: dict[str, Any], error: str) -> Event:
    return ToolChanged(call_id, name, Errored(input=arguments, error=error, time=ToolTime(start=NOW, end=NOW)))


def finished(status: AgentStatus, *, error: Failed | None = None, message: Message | None = None) -> Event:
    return RunFinished(RunResult(status=status, session_id="s", run_id="r", error=error, message=message))


def events(*groups: Event | Iterable[Event]) -> list[Event]:
    return [one for group in groups for one in (group if isinstance(group, list) else [group])]  # type: ignore[misc]
