"""Redacted content is never shown, and everything around it stays."""

from typing import Any

import msgspec
import pytest

from bartack import (
    AbortRequested,
    ApprovalDecided,
    ApprovalRequired,
    BranchSummary,
    CompactionSummary,
    Continuation,
    Custom,
    ErrorCode,
    Fact,
    Failed,
    FileRef,
    Image,
    Message,
    MessageDelta,
    MessageDeltaBatch,
    MessageQueued,
    Meta,
    ModelChange,
    ModelRef,
    Redaction,
    ResultPosted,
    RunEnded,
    RunStarted,
    RuntimeInit,
    SessionHeader,
    StreamFailed,
    SystemPromptOverride,
    Text,
    TextDelta,
    Thinking,
    ThinkingLevelChange,
    ToolCall,
    ToolProgress,
    ToolResult,
    ToolStarted,
    Usage,
    assistant,
    tool_message,
    user,
)
from bartack.nouns import wire
from bartack.nouns.messages import Approval, Trace
from bartack.session.redaction import redacted, visible
from tests.sample_session import SESSION, chain

SECRET = "hunter2"
KEPT = Continuation("p", "m", {"signature": SECRET})
EXTRA: dict[str, Any] = {"new": SECRET}

SECRETS: list[Fact] = [
    SessionHeader(title=SECRET, metadata={"a": SECRET}, extra=EXTRA),
    RunStarted(extra=EXTRA),
    user(SECRET, Image("image/png", url=SECRET), FileRef(SECRET), meta=Meta(system=SECRET, extra=EXTRA)),
    assistant(
        Thinking(SECRET, continuation=KEPT),
        Text(SECRET, metadata={"a": SECRET}),
        ToolCall("c1", "search", {"q": SECRET}, executed_by="provider", result=ToolResult("c1", SECRET)),
        meta=Meta(usage=Usage(1, 2), bad_args={"c1": SECRET}),
    ),
    tool_message(ToolResult("c1", SECRET, metadata={"a": SECRET}, is_error=True, error_code=ErrorCode.TOOL_FAILED)),
    ToolStarted("c1", "search", {"q": SECRET}, title=SECRET),
    ToolProgress("c1", SECRET, title=SECRET, metadata={"a": SECRET}),
    ApprovalRequired("c1", "search", {"q": SECRET}, reason=SECRET),
    ApprovalDecided("c1", "approve", original_arguments={"q": SECRET}, arguments={"q": SECRET}, reason=SECRET),
    StreamFailed(Failed(ErrorCode.OVERLOADED, SECRET, raw_code=SECRET), parts=(Text(SECRET),)),
    ModelChange(ModelRef("p", "m"), extra=EXTRA),
    ThinkingLevelChange("high", extra=EXTRA),
    RuntimeInit("local", {"a": SECRET}),
    SystemPromptOverride(SECRET),
    CompactionSummary(SECRET, "e1"),
    BranchSummary(SECRET, "e1"),
    Redaction("e1", SECRET),
    MessageDeltaBatch((MessageDelta("r", 0, TextDelta(SECRET), SESSION[0].timestamp),)),
    MessageQueued(user(SECRET)),
    ResultPosted("c1", ToolResult("c1", SECRET)),
    AbortRequested(reason=SECRET),
    RunEnded("failed", reason=SECRET, error=Failed(ErrorCode.ABORTED, SECRET)),
    Custom("note", {"a": SECRET}),
]


@pytest.mark.parametrize("fact", SECRETS, ids=lambda fact: fact.kind)
def test_only_the_structure_of_a_redacted_fact_remains(fact: Fact) -> None:
    """D-5.6"""
    entries = chain(fact, Redaction("e0"))
    assert SECRET.encode() in wire.encode(entries[0])
    shown = visible(entries)
    assert SECRET.encode() not in wire.encode(shown[0])
    assert shown[0].fact.kind == fact.kind
    assert shown[1] == entries[1]


def test_other_entries_are_the_same_objects() -> None:
    assert all(one is other for one, other in zip(visible(SESSION), SESSION, strict=True))


def test_a_redacted_message_keeps_its_calls_and_its_cost() -> None:
    """D-5.6"""
    call = ToolCall("c1", "search", {"q": SECRET})
    shown = redacted(assistant(call, meta=Meta(usage=Usage(1, 2), cost_usd=0.5)))
    assert shown == assistant(ToolCall("c1", "search", {}), meta=Meta(usage=Usage(1, 2), cost_usd=0.5))
    assert redacted(user(SECRET)) == user("[redacted]")
    hidden = assistant(Thinking(SECRET, ignored=True), meta=Meta(is_api_error_message=True, system=SECRET))
    kept = assistant(Thinking("[redacted]", ignored=True), meta=Meta(is_api_error_message=True))
    assert redacted(hidden) == kept  # a redaction does not make hidden content visible to models


def test_unknown_keys_of_a_redacted_entry_are_not_shown() -> None:
    entry = msgspec.structs.replace(chain(user("hi"))[0], extra=EXTRA)
    assert visible([entry, chain(Redaction("e0"))[0]])[0].extra is None


def test_a_redacted_message_keeps_the_id_of_its_trace() -> None:
    """000-3.2.16"""
    meta = Meta(trace=Trace(trace_id="t1", extra=EXTRA), approvals=(Approval(tool_call_id="c", decision="deny"),))
    kept = redacted(user(SECRET, meta=meta))
    assert isinstance(kept, Message)
    assert kept.meta == Meta(trace=Trace(trace_id="t1"))
