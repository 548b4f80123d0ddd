"""Redacted content is never shown, and everything around it stays."""

from typing import Any, get_args

import msgspec
import pytest

from bartack import (
    ApprovalRequired,
    CompactionSummary,
    Continuation,
    Custom,
    ErrorCode,
    Failed,
    FileRef,
    Image,
    Message,
    MessageDelta,
    Meta,
    Redaction,
    Text,
    TextDelta,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    assistant,
    tool_message,
    user,
)
from bartack.nouns import wire
from bartack.nouns.entries import (
    AbortRequested,
    ApprovalDecided,
    BranchSummary,
    Fact,
    MessageDeltaBatch,
    MessageQueued,
    ModelChange,
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
from bartack.nouns.messages import Approval, ModelRef, Trace
from bartack.session.outline import REQUEST, SCHEDULED, SOURCE, delivery_id
from bartack.session.redaction import copies_of, is_subagent_session, redacted, subagent_sessions, visible
from bartack.session.title import TITLE, title_from
from tests.sample_session import SESSION, chain

SECRET = "hunter2"
KEPT = Continuation("p", "m", {"signature": SECRET})
EXTRA: dict[str, Any] = {"new": SECRET}

SECRETS: list[Fact] = [
    SessionHeader(title=SECRET, metadata={"a": SECRET}, extra=EXTRA),
    RunStarted(metadata={"a": SECRET}, extra=EXTRA),
    user(SECRET, Image("image/png", url=SECRET), FileRef(SECRET), meta=Meta(system=SECRET, extra=EXTRA)),
    assistant(
        Thinking(SECRET, continuation=KEPT),
        Text(SECRET, metadata={"a": SECRET}),
        ToolCall("c1", "search", {"q": SECRET}, executed_by="provider", result=ToolResult("c1", SECRET)),
        meta=Meta(usage=Usage(1, 2), bad_args={"c1": SECRET}),
    ),
    tool_message(ToolResult("c1", SECRET, metadata={"a": SECRET}, is_error=True, error_code=ErrorCode.TOOL_FAILED)),
    ToolStarted(tool_call_id="c1", tool_name="search", arguments={"q": SECRET}, title=SECRET),
    ToolProgress(tool_call_id="c1", content=SECRET, title=SECRET, metadata={"a": SECRET}),
    ApprovalRequired(
        tool_call_id="c1", tool_name="search", arguments={"q": SECRET}, reason=SECRET, preview={"command": SECRET}
    ),
    ApprovalDecided(
        tool_call_id="c1", decision="approve", original_arguments={"q": SECRET}, arguments={"q": SECRET}, reason=SECRET
    ),
    StreamFailed(error=Failed(ErrorCode.OVERLOADED, SECRET, raw_code=SECRET), parts=(Text(SECRET),)),
    ModelChange(model=ModelRef("p", "m"), extra=EXTRA),
    ThinkingLevelChange(level="high", extra=EXTRA),
    RuntimeInit(runtime="local", data={"a": SECRET}),
    SystemPromptOverride(text=SECRET),
    CompactionSummary(summary=SECRET, first_kept_entry_id="e1"),
    BranchSummary(summary=SECRET, from_entry_id="e1"),
    Redaction(entry_id="e1", reason=SECRET),
    MessageDeltaBatch(deltas=(MessageDelta("r", 0, TextDelta(SECRET), SESSION[0].timestamp),)),
    MessageQueued(message=user(SECRET), metadata={"a": SECRET}),
    ResultPosted(tool_call_id="c1", result=ToolResult("c1", SECRET)),
    AbortRequested(reason=SECRET),
    RunEnded(status="failed", reason=SECRET, error=Failed(ErrorCode.ABORTED, SECRET)),
    Custom(name="note", data={"a": SECRET}),
]


@pytest.mark.parametrize("fact", SECRETS, ids=lambda fact: fact.kind)
def test_only_the_structure_of_a_redacted_fact_remains(fact: Fact) -> None:
    """D-5.6"""
    entries = chain(fact, Redaction(entry_id="e0"))
    assert SECRET.encode() in wire.encode(entries[0])
    entries_shown = visible(entries)
    assert SECRET.encode() not in wire.encode(entries_shown[0])
    assert entries_shown[0].fact.kind == fact.kind
    assert entries_shown[1] == entries[1]


def test_other_entries_are_the_same_objects() -> None:
    assert all(entry is original for entry, original in zip(visible(SESSION), SESSION, strict=True))


def test_a_redacted_message_keeps_its_calls_and_its_cost() -> None:
    """D-5.6"""
    call = ToolCall("c1", "search", {"q": SECRET})
    message = redacted(assistant(call, meta=Meta(usage=Usage(1, 2), cost_usd=0.5)))
    assert message == assistant(ToolCall("c1", "search", {}), meta=Meta(usage=Usage(1, 2), cost_usd=0.5))
    assert redacted(user(SECRET)) == user("[redacted]")
    hidden = assistant(Thinking(SECRET, ignored=True), meta=Meta(is_api_error_message=True, system=SECRET))
    expected = assistant(Thinking("[redacted]", ignored=True), meta=Meta(is_api_error_message=True))
    assert redacted(hidden) == expected  # a redaction does not make hidden content visible to models


def test_unknown_keys_of_a_redacted_entry_are_not_shown() -> None:
    entry = msgspec.structs.replace(chain(user("hi"))[0], extra=EXTRA)
    assert visible([entry, chain(Redaction(entry_id="e0"))[0]])[0].extra is None


def test_a_redacted_message_keeps_the_id_of_its_trace() -> None:
    """000-3.2.16"""
    meta = Meta(trace=Trace(trace_id="t1", extra=EXTRA), approvals=(Approval(tool_call_id="c", decision="deny"),))
    message = redacted(user(SECRET, meta=meta))
    assert isinstance(message, Message)
    assert message.meta == Meta(trace=Trace(trace_id="t1"))


# The fields of every fact that remain when it is redacted, and those that do not. A new field belongs to one, and if
# its content is copied from another fact, to `copies_of` too.
REMAIN = {
    SessionHeader: "version origin",
    RunStarted: "agent handed_off model config tools trace_id span_id limits",
    Message: "role id run_id timestamp",
    ToolStarted: "tool_call_id tool_name idempotent deferred attempt",
    ToolProgress: "tool_call_id",
    ApprovalRequired: "tool_call_id tool_name expires_at parameters definition_digest",
    ApprovalDecided: "tool_call_id decision decided_by definition_digest question_digest",
    StreamFailed: "usage model response_id duration_ms model_call_index attempt",
    ModelChange: "model previous",
    ThinkingLevelChange: "level",
    RuntimeInit: "runtime",
    SystemPromptOverride: "",
    CompactionSummary: "first_kept_entry_id model usage tokens_before tokens_after",
    BranchSummary: "from_entry_id model usage tokens_before tokens_after",
    Redaction: "entry_id",
    MessageDeltaBatch: "generation number",
    MessageQueued: "steer requested_by",
    ResultPosted: "tool_call_id posted_by",
    AbortRequested: "requested_by",
    RunEnded: "status usage cost_usd",
    Custom: "name",
}
REMOVED = {
    SessionHeader: "title metadata",
    RunStarted: "metadata",
    Message: "parts meta",
    ToolStarted: "arguments title",
    ToolProgress: "content title metadata",
    ApprovalRequired: "arguments reason preview",
    ApprovalDecided: "original_arguments arguments reason",
    StreamFailed: "error parts",
    RuntimeInit: "data",
    SystemPromptOverride: "text",
    CompactionSummary: "summary diffs",
    BranchSummary: "summary",
    Redaction: "reason",
    MessageDeltaBatch: "deltas",
    MessageQueued: "message metadata",
    ResultPosted: "result",
    AbortRequested: "reason",
    RunEnded: "reason error",
    Custom: "data",
}


@pytest.mark.parametrize("kind", get_args(Fact), ids=lambda kind: kind.kind)
def test_every_field_of_every_fact_remains_or_is_removed(kind: Any) -> None:
    remain, removed = REMAIN[kind].split(), REMOVED.get(kind, "").split()
    assert sorted([*remain, *removed, "extra"]) == sorted(kind.__struct_fields__)


def copies(*facts: Fact, of: int) -> list[int]:
    """The places of the copies among these facts."""
    return [int(name.removeprefix("e")) for name in copies_of(chain(*facts), f"e{of}")]


def test_the_arguments_of_a_call_are_in_its_approval_and_its_start() -> None:
    facts: list[Fact] = [
        assistant(ToolCall("c1", "search", {"q": SECRET})),
        ApprovalRequired(tool_call_id="c1", tool_name="search", arguments={"q": SECRET}),
        ApprovalDecided(tool_call_id="c1", decision="approve", arguments={"q": SECRET}),
        ToolStarted(tool_call_id="c1", tool_name="search", arguments={"q": SECRET}),
        ToolProgress(tool_call_id="c1", content="half"),
        ToolStarted(tool_call_id="c2", tool_name="search", arguments={"q": "other"}),
        tool_message(ToolResult("c1", "done")),
    ]
    assert copies(*facts, of=0) == [1, 2, 3]
    assert copies(*facts, of=2) == [0, 1, 3]


def test_the_job_of_a_redacted_run_or_request_remains() -> None:
    metadata = {"bartack.job": {"id": "j"}, "a": SECRET}
    assert redacted(RunStarted(metadata=metadata)) == RunStarted(metadata={"bartack.job": {"id": "j"}})
    queued = redacted(MessageQueued(message=user(SECRET), metadata=metadata))
    assert queued == MessageQueued(message=user("[redacted]"), metadata={"bartack.job": {"id": "j"}})


def test_the_calls_of_a_sub_agent_follow_from_those_of_the_outer_agent() -> None:
    question = ApprovalRequired(tool_call_id="c1/i1/j1", tool_name="search", arguments={"q": SECRET})
    facts: list[Fact] = [
        assistant(ToolCall("c1", "helper", {"prompt": SECRET})),
        ToolProgress(tool_call_id="c1", content="helper has started.", metadata={"sessionId": "s/1"}),
        question,
        ToolStarted(tool_call_id="c1/i1", tool_name="search", arguments={"q": SECRET}),
        tool_message(ToolResult("c1", SECRET, metadata={"sessionId": "s/2"}), ToolResult("c2", "", metadata={})),
        assistant(ToolCall("c1/i", "search", {})),  # an id of a provider
        ApprovalRequired(tool_call_id="c10/i1", tool_name="search", arguments={}),
        ToolProgress(tool_call_id="c3", content="helper has started.", metadata={"sessionId": "s/3"}),
    ]
    assert copies(*facts, of=0) == [2, 3]
    assert copies(*facts, of=4) == [1, 2, 3]
    assert copies(*facts, of=5) == []
    assert subagent_sessions(chain(*facts), {"e0"}) == ["s/1", "s/2"]
    assert subagent_sessions(chain(*facts), {"e7"}) == ["s/3"]


def test_only_what_an_agent_gives_to_sub_agents_is_the_id_of_such_a_session() -> None:
    own_id = "01890a5d-ac96-774b-bcce-b302099a8057"
    ids = [f"s/{own_id}", "s/mine", own_id, f"t/{own_id}", f"s/{own_id}/{own_id}", "s/", 1, None]
    assert [inner_id for inner_id in ids if is_subagent_session(inner_id, "s")] == [f"s/{own_id}"]


def test_the_error_of_a_model_call_is_in_the_end_of_its_run() -> None:
    facts: list[Fact] = [
        StreamFailed(error=Failed(ErrorCode.INVALID_REQUEST, f"No: {SECRET}")),
        StreamFailed(error=Failed(ErrorCode.OVERLOADED, "Another")),
        RunEnded(status="failed", error=Failed(ErrorCode.INVALID_REQUEST, f"No: {SECRET}")),
        RunEnded(status="failed", error=Failed(ErrorCode.INVALID_REQUEST)),
        RunEnded(status="completed"),
    ]
    assert copies(*facts, of=0) == [2]


def test_the_output_of_a_tool_is_in_its_progress_and_in_a_posted_result() -> None:
    facts: list[Fact] = [
        ToolProgress(tool_call_id="c1", content=SECRET),
        ResultPosted(tool_call_id="c1", result=ToolResult("c1", SECRET)),
        tool_message(ToolResult("c1", SECRET)),
    ]
    assert copies(*facts, of=2) == [0, 1]


def test_a_prompt_is_in_its_requests_and_the_title_of_its_session() -> None:
    prompt = f"The  password\nis {SECRET} and {'so on ' * 20}"
    delivered = user(prompt, meta=Meta(request_id=delivery_id("e1")))
    facts: list[Fact] = [
        SessionHeader(title=title_from(prompt)),
        Custom(name=SCHEDULED, data={"message": SECRET}),
        delivered,
        Custom(name=TITLE, data={"title": f"The password is {SECRET}"}),
        Custom(name=TITLE, data={"title": "Another title"}),
        Custom(name=SOURCE, data={"entries": ["e2"]}),
        Custom(name=SOURCE, data={}),
        MessageQueued(message=user("Next")),
        user("Next", meta=Meta(request_id="e7")),
    ]
    assert copies(*facts, of=2) == [0, 1, 3, 5, 6]  # other programs repeat a text in several records
    assert copies(*facts, Redaction(entry_id="e0"), of=2) == [1, 3, 5, 6]
    assert copies(*facts, of=7) == [8]
    assert copies(*facts, of=5) == [6]


def test_any_message_may_be_in_the_request_that_a_hook_made() -> None:
    facts: list[Fact] = [
        SystemPromptOverride(text=SECRET),
        user(SECRET),
        CompactionSummary(summary=SECRET, first_kept_entry_id="e1"),
        Custom(name=REQUEST, data={"systemPrompt": "Be kind."}),
        Custom(name=REQUEST, data={"messages": []}),
        Custom(name="a note", data={"messages": []}),
        ToolProgress(tool_call_id="c1", content="half"),
    ]
    assert [copies(*facts, of=place) for place in (0, 1, 2)] == [[4], [4], [4]]
    assert copies(*facts, of=6) == []


def test_a_forged_record_of_another_program_does_not_prevent_a_redaction() -> None:
    assert copies(user(SECRET), Custom(name=SOURCE, data={"entries": [["e0"], {}, 1, "e0"]}), of=0) == [1]


@pytest.mark.parametrize("is_scheduled", [False, True])
def test_a_title_may_be_taken_from_any_part_of_a_prompt(is_scheduled: bool) -> None:
    """Programs put reminders before what the user wrote, and join the parts of a prompt in their own way."""
    prompt = user(
        Text("<reminder>Today is Monday.</reminder>"), Text(f"The password is {SECRET},"), Text("remember it")
    )
    scheduled = Custom(name=SCHEDULED, data={"message": wire.dump(prompt)})
    facts: list[Fact] = [
        SessionHeader(title=title_from(f"The password is {SECRET}, remember it")),
        scheduled if is_scheduled else prompt,
        Custom(name=TITLE, data={"title": f"The password is {SECRET}", "origin": "claude-code"}),
        Custom(name=TITLE, data={"title": "password"}),  # somebody chose it
    ]
    assert copies(*facts, of=1) == [0, 2]
