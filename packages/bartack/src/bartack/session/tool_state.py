"""`ToolStateTransition` (003 §4.2): transitions between the states of a tool call, and the fold that derives them.

Every transition consults the table TOOL and raises `InvalidStateTransition` if it has no such edge. States are
immutable, so threads can share them: a transition returns a new state and leaves the old one as it was. Repeating a
transition returns the same object. Times are inputs.

A refused transition is logged by ``bartack.session`` before it is raised (003 §6.1).
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, assert_never

import msgspec

from bartack.nouns.entries import (
    AbortRequested,
    ApprovalDecided,
    ApprovalRequired,
    BranchSummary,
    CompactionSummary,
    Custom,
    Entry,
    MessageDeltaBatch,
    MessageQueued,
    ModelChange,
    Redaction,
    ResultPosted,
    RunEnded,
    RunStarted,
    RuntimeInit,
    SessionHeader,
    StreamFailed,
    SystemPromptOverride,
    ThinkingLevelChange,
    ToolProgress,
    ToolStarted,
)
from bartack.nouns.errors import ErrorCode, InvalidStateTransition
from bartack.nouns.json_values import json_text
from bartack.nouns.logs import logger
from bartack.nouns.messages import Message
from bartack.nouns.noun import check_types
from bartack.nouns.parts import ContentPart, FileRef, Text, ToolCall, ToolResult
from bartack.nouns.tables import TOOL, ToolStatus, advance
from bartack.nouns.tool_states import Completed, Errored, Pending, Running, ToolState, ToolTime

__all__ = [
    "NO_OUTPUT",
    "TIMED_OUT",
    "WHILE_RUNNING",
    "ToolFold",
    "create_completed",
    "create_error",
    "create_pending",
    "create_running",
    "fold_tools",
    "output_text",
    "pending_to_error",
    "pending_to_running",
    "running_progress",
    "running_to_completed",
    "running_to_error",
    "time_out",
]

_log = logger("session")

NO_OUTPUT = "(no output)"  # 003 does not allow an empty output, but tools may return nothing (D-7.4)
TIMED_OUT = "Timed out after {} ms."
_RULE = "003-4.2.1"


def create_pending(input: dict[str, Any], raw: str) -> Pending:
    """A call as the model requested it."""
    return check_types(Pending(input, raw), _RULE)


def create_running(input: dict[str, Any], title: str | None = None, *, start: datetime) -> Running:
    """A call that started at `start`."""
    return check_types(Running(input=input, title=title, time=ToolTime(start=start)), _RULE)


def create_completed(  # noqa: PLR0917 - the signature of 003 §4.2
    input: dict[str, Any], output: str, title: str, metadata: dict[str, Any], start_time: datetime, end_time: datetime
) -> Completed:
    """A call that succeeded."""
    time = ToolTime(start=start_time, end=end_time)
    return check_types(Completed(input=input, output=output, title=title, metadata=metadata, time=time), _RULE)


def create_error(input: dict[str, Any], error: str, start_time: datetime, end_time: datetime) -> Errored:
    """A call that failed."""
    return check_types(Errored(input=input, error=error, time=ToolTime(start=start_time, end=end_time)), _RULE)


def pending_to_running(state: ToolState, *, start: datetime, title: str | None = None) -> Running:
    """Start the call."""
    _advance(state, "start")
    if isinstance(state, Running):
        return state
    return Running(input=state.input, title=title, time=ToolTime(start=start))


def running_progress(state: ToolState, *, title: str | None = None, metadata: dict[str, Any] | None = None) -> Running:
    """Update a running call: a title replaces the old one, and metadata is merged into the old."""
    _advance(state, "progress")
    assert isinstance(state, Running)
    if title is None and metadata is None:
        return state
    merged = {**(state.metadata or {}), **(metadata or {})} or None
    return msgspec.structs.replace(state, title=title or state.title, metadata=merged)


def running_to_completed(
    state: ToolState,
    output: str,
    end_time: datetime,
    *,
    title: str | None = None,
    metadata: dict[str, Any] | None = None,
) -> Completed:
    """Complete the call."""
    _advance(state, "complete")
    if isinstance(state, Completed):
        return state
    assert isinstance(state, Running)
    return Completed(
        input=state.input,
        output=output,
        title=title or state.title or "",
        metadata={**(state.metadata or {}), **(metadata or {})},
        time=ToolTime(start=state.time.start, end=end_time),
    )


def running_to_error(state: ToolState, error: str, end_time: datetime, *, event: str = "fail") -> Errored:
    """Fail the call; `event` is ``fail``, ``time_out`` or ``abort``."""
    _advance(state, event)
    if isinstance(state, Errored):
        return state
    start = state.time.start if isinstance(state, Running) else end_time
    metadata = state.metadata if isinstance(state, Running) else None
    return Errored(input=state.input, error=error, metadata=metadata, time=ToolTime(start=start, end=end_time))


def pending_to_error(state: ToolState, error: str, timestamp: datetime, *, event: str = "reject") -> Errored:
    """End a call that never ran; `event` is ``reject`` (denied, or rejected before it started) or ``abort``."""
    return running_to_error(state, error, timestamp, event=event)


def time_out(state: ToolState, now: datetime, timeout_ms: int) -> ToolState:
    """Fail a call that has been running for `timeout_ms` at `now` (003 §7.1); return any other state unchanged."""
    if not isinstance(state, Running) or now - state.time.start < timedelta(milliseconds=timeout_ms):
        return state
    return running_to_error(state, TIMED_OUT.format(timeout_ms), now, event="time_out")


def _advance(state: ToolState, event: str) -> ToolStatus:
    try:
        return advance(TOOL, ToolStatus(state.status), event)
    except InvalidStateTransition as error:
        _log.warning("Refused a transition of a tool call from %s to %s.", error.current, error.attempted)
        raise


# -- from facts

# The event of an error result, by its code. Other codes are for calls that had started.
_NEVER_RAN = {
    ErrorCode.TOOL_DENIED: "reject",
    ErrorCode.TOOL_NOT_RUN: "reject",
    ErrorCode.TOOL_NOT_FOUND: "reject",
    ErrorCode.TOOL_BAD_ARGUMENTS: "reject",
    ErrorCode.TOOL_ABORTED: "abort",
}
WHILE_RUNNING = {
    ErrorCode.TOOL_TIMEOUT: "time_out",
    ErrorCode.TOOL_ABORTED: "abort",
    ErrorCode.TOOL_INTERRUPTED: "abort",
}


class ToolFold:
    """The state of every call, updated entry by entry. Facts about unknown or finished calls are ignored."""

    def __init__(self) -> None:
        self.states: dict[str, ToolState] = {}

    def push(self, entry: Entry) -> None:
        """Apply the next entry."""
        fact, timestamp = entry.fact, entry.timestamp
        match fact:
            case Message():
                for call in fact.tool_calls:
                    self._call(call, timestamp)
                for result in fact.tool_results:
                    self._result(result, timestamp)
            case ToolStarted():
                state = self.states.get(fact.tool_call_id)
                if isinstance(state, Pending):
                    running = pending_to_running(state, start=timestamp, title=fact.title)
                    self.states[fact.tool_call_id] = msgspec.structs.replace(running, input=fact.arguments)
            case ToolProgress():
                state = self.states.get(fact.tool_call_id)
                if isinstance(state, Running):
                    progress = running_progress(state, title=fact.title, metadata=fact.metadata)
                    self.states[fact.tool_call_id] = progress
            case (
                SessionHeader()
                | RunStarted()
                | ApprovalRequired()
                | ApprovalDecided()
                | StreamFailed()
                | ModelChange()
                | ThinkingLevelChange()
                | RuntimeInit()
                | SystemPromptOverride()
                | CompactionSummary()
                | BranchSummary()
                | Redaction()
                | MessageDeltaBatch()
                | MessageQueued()
                | ResultPosted()
                | AbortRequested()
                | RunEnded()
                | Custom()
            ):
                pass  # approvals and requests do not change the state of a call; its start and its result do
            case _:
                assert_never(fact)

    def _call(self, call: ToolCall, timestamp: datetime) -> None:
        if call.tool_call_id in self.states:
            return
        raw = call.raw_args_text
        self.states[call.tool_call_id] = Pending(call.arguments, json_text(call.arguments) if raw is None else raw)
        if call.result is not None:
            self._result(call.result, timestamp)

    def _result(self, result: ToolResult, timestamp: datetime) -> None:
        state = self.states.get(result.tool_call_id)
        if isinstance(state, Pending | Running):
            self.states[result.tool_call_id] = _finished(state, result, timestamp)


def _finished(state: Pending | Running, result: ToolResult, timestamp: datetime) -> ToolState:
    output = output_text(result)
    code = result.error_code
    if isinstance(state, Pending):
        if result.is_error and code in _NEVER_RAN:
            return _with_metadata(pending_to_error(state, output, timestamp, event=_NEVER_RAN[code]), result.metadata)
        state = pending_to_running(state, start=result.time.start if result.time and result.time.start else timestamp)
    if result.is_error:
        event = "fail" if code is None else WHILE_RUNNING.get(code, "fail")
        return _with_metadata(running_to_error(state, output, timestamp, event=event), result.metadata)
    return running_to_completed(state, output, timestamp, title=result.title, metadata=result.metadata)


def _with_metadata(state: Errored, metadata: dict[str, Any] | None) -> Errored:
    if metadata is None:
        return state
    return msgspec.structs.replace(state, metadata={**(state.metadata or {}), **metadata})


def fold_tools(entries: Iterable[Entry]) -> dict[str, ToolState]:
    """The state of every call in these entries, by call id."""
    fold = ToolFold()
    for entry in entries:
        fold.push(entry)
    return fold.states


def output_text(result: ToolResult) -> str:
    """The content of a result as text: JSON for an object, the text of parts, or a placeholder if there is none."""
    match result.content:
        case str():
            text = result.content
        case dict():
            text = json_text(result.content)
        case parts:
            texts = [part.text for part in parts if isinstance(part, Text)]
            text = "\n".join(texts or map(_media_name, parts))
    return text or NO_OUTPUT


def _media_name(part: ContentPart) -> str:
    return f"[{part.kind} {part.path if isinstance(part, FileRef) else getattr(part, 'mime_type', '')}]"
