"""Redaction: entries whose content must no longer be shown or sent.

A redaction is an entry that refers to another one; stored entries never change. Every view and export uses
`visible(entries)`. The structure of a redacted fact remains (its role, the call it belongs to), so that calls keep
their results and the chain of entries stays intact.

The content of a fact may be in other facts too. `copies_of` knows all of these places: an answer's arguments are in the
questions, the decisions and the starts of its calls; the output of a tool is in its progress and in a result that was
posted from outside; a message is in the request that it delivers, and the first words of a prompt are in the title; the
error of a model call is in the end of its run; what a hook made of a request may have any message. Other programs
repeat their texts in several records, so all records of an imported session go together. A sub-agent has its call's
arguments and output in a session of its own, and its questions are in the outer session too (`subagent_sessions`).
Whoever redacts an entry redacts its copies with it. What a model made of the content, such as a summary, is not a copy.
"""

from collections.abc import Container, Iterable
from itertools import accumulate
from typing import Any, TypeGuard, assert_never

from msgspec.structs import replace

from bartack.nouns import wire
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
from bartack.nouns.errors import PartValidationError
from bartack.nouns.ids import is_uuid
from bartack.nouns.messages import Message, Meta, Trace
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult
from bartack.session.outline import REQUEST, SCHEDULED, SOURCE, delivery_id
from bartack.session.run_state import SESSION
from bartack.session.title import title_of

__all__ = ["REDACTED", "copies_of", "is_subagent_session", "redacted", "subagent_sessions", "visible"]

REDACTED = "[redacted]"
_OWN_KEYS = "bartack."
"""What the keys of metadata begin with that Bartack itself needs: they name the job of a run, not its content."""

_CallFact = ToolStarted | ToolProgress | ApprovalRequired | ApprovalDecided | ResultPosted


def visible(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries, without the content of those that are redacted."""
    all_entries = tuple(entries)
    hidden = {entry.fact.entry_id for entry in all_entries if isinstance(entry.fact, Redaction)}
    return tuple(
        replace(entry, fact=redacted(entry.fact), extra=None) if entry.id in hidden else entry for entry in all_entries
    )


def copies_of(entries: Iterable[Entry], entry_id: str) -> list[str]:
    """The other entries of the session with content of this one, in order, as far as they are not redacted."""
    all_entries = tuple(entries)
    hidden = {entry.fact.entry_id for entry in all_entries if isinstance(entry.fact, Redaction)}
    copies: set[str] = set()
    keys: set[tuple[str, str]] = set()
    prompts: list[str] = []
    contents: list[Fact] = []
    added = [entry for entry in all_entries if entry.id == entry_id]
    while added:
        for entry in added:
            copies.add(entry.id)
            keys |= _shared_content(entry)
            prompts += _prompt(entry.fact)
            contents.append(entry.fact)
        added = [
            entry
            for entry in all_entries
            if entry.id not in copies
            and (
                not keys.isdisjoint(_shared_content(entry) | _content_of_subagent(entry.fact))
                or _is_record_of(entry.fact, copies)
                or _has_title(entry.fact, prompts)
                or _is_request_with(entry.fact, contents)
            )
        ]
    return [entry.id for entry in all_entries if entry.id in copies - hidden - {entry_id}]


def subagent_sessions(entries: Iterable[Entry], entry_ids: Container[str]) -> list[str]:
    """The sessions of the sub-agents whose calls or results are in these entries."""
    all_entries = tuple(entries)
    calls = {call for entry in all_entries if entry.id in entry_ids for _, call in _shared_content(entry)}
    session_ids: dict[str, None] = {}
    for entry in all_entries:
        for call, metadata in _call_metadata(entry.fact):
            session_id = (metadata or {}).get(SESSION)
            if call in calls and isinstance(session_id, str):
                session_ids[session_id] = None
    return list(session_ids)


def is_subagent_session(inner_id: object, session_id: str) -> TypeGuard[str]:
    """Whether an agent gives a sub-agent's session this id below that of its own session.

    Ids of sessions are metadata, which an imported session may have forged: it must not name any other session.
    """
    if not isinstance(inner_id, str):
        return False
    outer_id, _, own_id = inner_id.rpartition("/")
    return outer_id == session_id and is_uuid(own_id)


def _call_metadata(fact: Fact) -> list[tuple[str, dict[str, Any] | None]]:
    match fact:
        case ToolProgress():
            return [(fact.tool_call_id, fact.metadata)]
        case Message():
            return [(result.tool_call_id, result.metadata) for result in fact.tool_results]
        case _:
            return []


def _shared_content(entry: Entry) -> set[tuple[str, str]]:
    """What is in this entry and may be in others; two entries with a common key have common content."""
    match entry.fact:
        case Message() as message:
            keys = {("arguments", call.tool_call_id) for call in message.tool_calls}
            keys |= {("output", result.tool_call_id) for result in message.tool_results}
            request_id = None if message.meta is None else message.meta.request_id
            return keys if request_id is None else {*keys, ("request", request_id)}
        case ToolStarted(tool_call_id=call) | ApprovalRequired(tool_call_id=call) | ApprovalDecided(tool_call_id=call):
            return {("arguments", call)}
        case ToolProgress(tool_call_id=call):
            return {("output", call)}
        case ResultPosted(tool_call_id=call):
            return {("output", call), ("request", entry.id)}
        case MessageQueued():
            return {("request", entry.id)}
        case Custom(name=name) if name == SCHEDULED:
            return {("request", delivery_id(entry.id))}
        case Custom(name=name) if name == SOURCE:
            return {("source", "")}
        case StreamFailed(error=Failed(message=str(message))) | RunEnded(error=Failed(message=str(message))):
            return {("error", f"{entry.run_id} {message}")}
        case _:
            return set()


def _content_of_subagent(fact: Fact) -> set[tuple[str, str]]:
    """What this fact about a call of a sub-agent follows from: the calls that its id begins with (`nested_id`)."""
    if not isinstance(fact, _CallFact):
        return set()
    *outer_ids, _ = accumulate(fact.tool_call_id.split("/"), "{}/{}".format)
    return {(kind, call) for call in outer_ids for kind in ("arguments", "output")}


def _is_record_of(fact: Fact, entry_ids: Container[str]) -> bool:
    """Whether it is a record of another program that one of these entries was imported from."""
    if not isinstance(fact, Custom) or fact.name != SOURCE:
        return False
    originals = fact.data.get("entries")
    return isinstance(originals, list) and any(isinstance(name, str) and name in entry_ids for name in originals)


def _is_request_with(fact: Fact, contents: Iterable[Fact]) -> bool:
    """Whether it is the set-up of a model request whose messages may repeat one of these: those that a hook made."""
    return (
        isinstance(fact, Custom)
        and fact.name == REQUEST
        and fact.data.get("messages") is not None
        and any(
            isinstance(content, Message | CompactionSummary | BranchSummary | SystemPromptOverride)
            for content in contents
        )
    )


def _prompt(fact: Fact) -> list[str]:
    """The text of a prompt, without whitespace: a title has one space where the prompt has any or none."""
    message = _message_of(fact)
    if message is None or message.role != "user":
        return []
    return ["".join(message.text.split())]


def _message_of(fact: Fact) -> Message | None:
    match fact:
        case Message():
            return fact
        case MessageQueued():
            return fact.message
        case Custom(name=name, data=data) if name == SCHEDULED:
            try:
                return wire.load(Message, data.get("message"))
            except PartValidationError:
                return None
        case _:
            return None


def _has_title(fact: Fact, prompts: Iterable[str]) -> bool:
    """Whether it gives the session a title that is taken from one of these prompts (`title_from`).

    Programs derive it from the part of a prompt that the user wrote, wherever that is; a title that somebody chose is a
    copy only if the prompt begins with it.
    """
    title = "".join((title_of(fact) or "").removesuffix("…").split())
    is_chosen = isinstance(fact, Custom) and "origin" not in fact.data
    return bool(title) and any(prompt.startswith(title) if is_chosen else title in prompt for prompt in prompts)


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
            return replace(fact, arguments={}, reason=None, preview=None, extra=None)
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
            metadata = _own_metadata(fact.metadata)
            return replace(fact, message=_without_contents(fact.message), metadata=metadata, extra=None)
        case ResultPosted():
            return replace(fact, result=_without_content(fact.result), extra=None)
        case AbortRequested():
            return replace(fact, reason=None, extra=None)
        case RunEnded():
            return replace(fact, reason=None, error=None, extra=None)
        case Redaction():
            return replace(fact, reason=None, extra=None)
        case RunStarted():
            return replace(fact, metadata=_own_metadata(fact.metadata), extra=None)
        case ModelChange() | ThinkingLevelChange():
            return replace(fact, extra=None)
        case _:
            assert_never(fact)


def _own_metadata(metadata: dict[str, Any] | None) -> dict[str, Any] | None:
    """The metadata without what the caller added."""
    return {key: value for key, value in (metadata or {}).items() if key.startswith(_OWN_KEYS)} or None


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
