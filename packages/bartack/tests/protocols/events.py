"""Events of a run written by hand, for the unit tests of the encoders."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from bartack.events import DeltaReceived, EntryAppended, Event, LiveEvent
from bartack.nouns.deltas import Delta, Failed, MessageDelta, Start, ToolCallArgs, ToolCallEnd, ToolCallStart
from bartack.nouns.entries import Entry, Fact, RunEnded, RunStarted, StreamFailed
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Message, Meta, stamped, tool_message, user
from bartack.nouns.parts import Part, Text, ToolCall, ToolResult

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RUN = "run-1"
BUSY = Failed(ErrorCode.OVERLOADED, "busy", retryable=True)
START = Start("m", "r")
END = RunEnded(status="completed")


class Log:
    """Numbers the entries of a session."""

    def __init__(self, run_id: str | None = RUN) -> None:
        self.run_id = run_id
        self.entries: list[Entry] = []

    def entry(self, fact: Fact, *, run_id: str | None = "") -> Entry:
        seq = len(self.entries) + 1
        own = self.run_id if run_id == "" else run_id
        if isinstance(fact, Message):
            fact = stamped(fact, id=f"m{seq}", timestamp=NOW, run_id=own)
        entry = Entry(id=f"e{seq}", session_id="s", seq=seq, timestamp=NOW, fact=fact, run_id=own)
        self.entries.append(entry)
        return entry

    def __call__(self, fact: Fact, *, run_id: str | None = "") -> EntryAppended:
        return EntryAppended(self.entry(fact, run_id=run_id))


def deltas(*pieces: Delta, run_id: str = RUN) -> list[Event]:
    """The deltas of one attempt."""
    return [DeltaReceived(MessageDelta(run_id, at, delta, NOW)) for at, delta in enumerate(pieces)]


def answer(*parts: Part | str, **meta: Any) -> Message:
    """An answer that a run made."""
    made = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    return Message("assistant", made, meta=Meta(model_call_index=0, **meta))


def call_deltas(call_id: str, name: str, *pieces: str, **end: Any) -> tuple[Delta, ...]:
    start = ToolCallStart(call_id, name, executed_by="provider" if end else "client")
    return (start, *(ToolCallArgs(call_id, piece) for piece in pieces), ToolCallEnd(call_id, **end))


def failed(*parts: Part, error: Failed = BUSY, index: int | None = 0) -> StreamFailed:
    return StreamFailed(error=error, parts=parts, model_call_index=index)


def run_of(*facts: Fact) -> list[Event]:
    """A run with these facts between its prompt and its end."""
    log = Log()
    return [log(fact) for fact in (RunStarted(), user("Go"), *facts, END)]


def result(call_id: str, content: Any = "done", **fields: Any) -> Message:
    return tool_message(ToolResult(call_id, content, **fields))


CALL = ToolCall("c1", "look", {"at": "sky"})

Events = Iterable[Event | LiveEvent]
