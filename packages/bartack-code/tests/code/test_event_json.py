"""Every event of a run as a JSON object, with the keys of the stored JSON."""

from datetime import UTC, datetime

import msgspec
import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from bartack.events import (
    ApprovalRequested,
    Compacted,
    DeltaReceived,
    EntryAppended,
    Event,
    ModelSwitched,
    Retrying,
    RunFinished,
    RunPaused,
    RunResult,
    Snapshot,
    StatusChanged,
    SubagentEvent,
    ToolChanged,
)
from bartack.formats.losses import Loss, LossReport
from bartack.nouns.deltas import Failed, MessageDelta, TextDelta, Usage
from bartack.nouns.entries import ApprovalRequired, CompactionSummary, Entry
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import ModelRef, assistant
from bartack.nouns.tables import AgentStatus
from bartack.nouns.tool_states import Running, ToolTime
from bartack_code.run.event_json import event_json, finished_json
from bartack_code.run.event_schema import event_schema

SCHEMA = Draft202012Validator(event_schema())
NOW = datetime(2026, 1, 1, tzinfo=UTC)
TIME = "2026-01-01T00:00:00Z"
ENTRY = Entry(
    id="e",
    session_id="s",
    seq=2,
    timestamp=NOW,
    fact=CompactionSummary(summary="so far", first_kept_entry_id="k"),
    parent_id="d",
)
ENTRY_JSON = {
    "id": "e",
    "sessionId": "s",
    "seq": 2,
    "timestamp": TIME,
    "kind": "compaction_summary",
    "payload": {"summary": "so far", "firstKeptEntryId": "k"},
    "parentId": "d",
}
REQUEST = ApprovalRequired(tool_call_id="c", tool_name="write_file", arguments={"path": "x"})
REQUEST_JSON = {"toolCallId": "c", "toolName": "write_file", "arguments": {"path": "x"}}
FAILED = Failed(ErrorCode.RATE_LIMITED, "slow down", retryable=True)
FAILED_JSON = {"errorCode": "rate_limited", "message": "slow down", "retryable": True}
RESULT = RunResult(
    status=AgentStatus.COMPLETED,
    session_id="s",
    run_id="r",
    message=assistant("hi"),
    usage=Usage(1, 2),
    cost_usd=0.5,
    reason="length",
)
RESULT_JSON = {
    "status": "completed",
    "sessionId": "s",
    "runId": "r",
    "text": "hi",
    "usage": {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3},
    "costUsd": 0.5,
    "reason": "length",
    "error": None,
}
SWITCHED = ModelSwitched(
    model=ModelRef("b", "2"),
    previous=ModelRef("a", "1"),
    report=LossReport((Loss(where="messages[0]", what="thinking", why="it belongs to a"),)),
    reason="chosen",
)
SWITCHED_JSON = {
    "model": {"provider": "b", "model": "2"},
    "previous": {"provider": "a", "model": "1"},
    "reason": "chosen",
    "losses": [{"where": "messages[0]", "what": "thinking", "why": "it belongs to a"}],
}
DELTA_JSON = {"runId": "r", "seq": 1, "kind": "text", "payload": {"textDelta": "hi"}, "timestamp": TIME}
RUNNING_JSON = {"status": "running", "input": {"a": 1}, "time": {"start": TIME}}
MESSAGE_JSON = {"role": "assistant", "parts": [{"kind": "text", "payload": {"text": "hi"}}]}


@pytest.mark.parametrize(
    ("event", "name", "fields"),
    [
        (DeltaReceived(MessageDelta("r", 1, TextDelta("hi"), NOW)), "delta", DELTA_JSON),
        (Snapshot(assistant("hi")), "snapshot", {"message": MESSAGE_JSON}),
        (
            ToolChanged("c", "weather", Running(input={"a": 1}, time=ToolTime(start=NOW))),
            "tool",
            {"toolCallId": "c", "toolName": "weather", "state": RUNNING_JSON},
        ),
        (ApprovalRequested(REQUEST), "approval", {"request": REQUEST_JSON}),
        (EntryAppended(ENTRY), "entry", {"entry": ENTRY_JSON}),
        (
            StatusChanged(AgentStatus.PREPARING, AgentStatus.IDLE),
            "status",
            {"status": "preparing", "previous": "idle"},
        ),
        (
            Retrying(error=FAILED, model_call_index=0, attempt=2, delay_ms=500),
            "retry",
            {"error": FAILED_JSON, "modelCallIndex": 0, "attempt": 2, "delayMs": 500},
        ),
        (SWITCHED, "model", SWITCHED_JSON),
        (Compacted(ENTRY, 100, 10), "compacted", {"entry": ENTRY_JSON, "tokensBefore": 100, "tokensAfter": 10}),
        (
            SubagentEvent("c1", "oracle", Compacted(ENTRY, 100, 10)),
            "subagent",
            {
                "toolCallId": "c1",
                "agent": "oracle",
                "inner": {"event": "compacted", "entry": ENTRY_JSON, "tokensBefore": 100, "tokensAfter": 10},
            },
        ),
        (RunPaused((REQUEST,)), "paused", {"approvals": [REQUEST_JSON], "deferred": []}),
        (RunFinished(RESULT), "finished", RESULT_JSON),
    ],
)
def test_each_event_has_its_name_and_fields(event: Event, name: str, fields: dict[str, object]) -> None:
    document = event_json(event)
    assert document == {"event": name, **fields}
    assert msgspec.json.decode(msgspec.json.encode(document)) == document
    SCHEMA.validate(document)
    SCHEMA.validate({**document, "later": 1})
    assert not SCHEMA.is_valid({"event": name})
    for key in fields:
        assert not SCHEMA.is_valid({**document, key: [1]})


def test_a_run_that_could_not_start_is_finished_too() -> None:
    last = finished_json(None, FAILED)
    assert (last["event"], last["status"], last["error"], last["sessionId"]) == (
        "finished",
        "failed",
        FAILED_JSON,
        None,
    )
    assert last.keys() == {"event", *RESULT_JSON}
    SCHEMA.validate(last)
    aborted = finished_json(replace(RESULT, status=AgentStatus.ABORTED, reason="interrupted"), None)
    assert aborted["error"] == {"errorCode": "aborted", "message": "interrupted", "retryable": False}
    stopped = finished_json(None, Failed(ErrorCode.ABORTED, "stopped"))
    assert stopped["status"] == "aborted"
