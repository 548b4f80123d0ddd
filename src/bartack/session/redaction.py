"""Redaction: entries whose content must no longer be shown or sent.

A redaction is an entry that refers to another one; stored entries never change. Every view and export uses
`visible(entries)`. The structure of a redacted fact remains (its role, the call it belongs to), so that calls keep
their results and the chain of entries stays intact.
"""

from collections.abc import Iterable
from typing import assert_never

from msgspec.structs import replace

from bartack.nouns.deltas import Failed
from bartack.nouns.entries import (
    AbortRequested,
    ApprovalDecided,
    ApprovalRequired,
    BranchSummary,
    CompactionSummary,
    Custom,
    Entry,
    Fact,
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
from bartack.nouns.messages import Message, Meta, Trace
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult

__all__ = ["REDACTED", "redacted", "visible"]

REDACTED = "[redacted]"


def visible(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries, without the content of those that are redacted."""
    all_entries = tuple(entries)
    hidden = {entry.fact.entry_id for entry in all_entries if isinstance(entry.fact, Redaction)}
    return tuple(
        replace(entry, fact=redacted(entry.fact), extra=None) if entry.id in hidden else entry for entry in all_entries
    )


def redacted(fact: Fact) -> Fact:
    """The fact without its content."""
    match fact:
        case Message():
            return _without_contents(fact)
        case StreamFailed():
            error = Failed(fact.error.error_code, REDACTED, retryable=fact.error.retryable)
            return replace(fact, error=error, parts=tuple(map(_without_content, fact.parts)), extra=None)
        case ToolStarted():
            return replace(fact, arguments={}, title=None, extra=None)
        case ToolProgress():
            return replace(fact, content=REDACTED, title=None, metadata=None, extra=None)
        case ApprovalRequired():
            return replace(fact, arguments={}, reason=None, extra=None)
        case ApprovalDecided():
            return replace(fact, original_arguments=None, arguments=None, reason=None, extra=None)
        case CompactionSummary():
            return replace(fact, summary=REDACTED, diffs=None, extra=None)
        case BranchSummary():
            return replace(fact, summary=REDACTED, extra=None)
        case SystemPromptOverride():
            return replace(fact, text=REDACTED, extra=None)
        case SessionHeader():
            return replace(fact, title=None, metadata=None, extra=None)
        case RuntimeInit() | Custom():
            return replace(fact, data={}, extra=None)
        case MessageDeltaBatch():
            return replace(fact, deltas=(), extra=None)
        case MessageQueued():
            return replace(fact, message=_without_contents(fact.message), extra=None)
        case ResultPosted():
            return replace(fact, result=_without_content(fact.result), extra=None)
        case AbortRequested():
            return replace(fact, reason=None, extra=None)
        case RunEnded():
            return replace(fact, reason=None, error=None, extra=None)
        case Redaction():
            return replace(fact, reason=None, extra=None)
        case RunStarted() | ModelChange() | ThinkingLevelChange():
            return replace(fact, extra=None)
        case _:
            assert_never(fact)


def _without_contents(message: Message) -> Message:
    parts = tuple(map(_without_content, message.parts))
    return replace(message, parts=parts, meta=_kept_meta(message.meta), extra=None)


def _without_content(part: Part) -> Part:
    match part:
        case Text():
            return Text(REDACTED, id=part.id, ignored=part.ignored)
        case Thinking():
            return Thinking(REDACTED, id=part.id, ignored=part.ignored)
        case ToolCall():
            return ToolCall(part.tool_call_id, part.tool_name, {}, id=part.id, executed_by=part.executed_by)
        case ToolResult():
            return ToolResult(
                part.tool_call_id, REDACTED, id=part.id, is_error=part.is_error, error_code=part.error_code
            )
        case Image() | FileRef():
            return Text(REDACTED, id=part.id)
        case _:
            assert_never(part)


def _kept_meta(meta: Meta | None) -> Meta | None:
    """Keep counts and names: they are about the cost of a turn, not its content."""
    if meta is None:
        return None
    return Meta(
        model=meta.model,
        usage=meta.usage,
        cost_usd=meta.cost_usd,
        duration_ms=meta.duration_ms,
        completed_at=meta.completed_at,
        finish_reason=meta.finish_reason,
        aborted=meta.aborted,
        is_api_error_message=meta.is_api_error_message,
        model_call_index=meta.model_call_index,
        attempt=meta.attempt,
        request_id=meta.request_id,
        trace=None if meta.trace is None else Trace(trace_id=meta.trace.trace_id),
    )
