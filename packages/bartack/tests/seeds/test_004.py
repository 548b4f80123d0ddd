"""Document 004, Core Domain Model: its entities as JSON, its relations and its invariants."""

from datetime import UTC, datetime
from typing import Any

import pytest

from bartack.nouns.config import AgentConfig, AgentState, ToolSpec
from bartack.nouns.deltas import Delta, Done, Failed, MessageDelta, Start, TextDelta, ThinkingDelta, Usage
from bartack.nouns.entries import Entry, Session
from bartack.nouns.errors import ErrorCode, PartValidationError, StreamError
from bartack.nouns.messages import Message, assistant, stamped, tool_message
from bartack.nouns.parts import Part, Text, ToolCall, ToolResult
from bartack.nouns.tables import AgentStatus
from bartack.nouns.wire import dump, load
from bartack.session.tool_state import fold_tools
from bartack.stream.assembler import MessageAssembler

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TIME = "2026-01-01T12:00:00Z"
CALL = {"toolCallId": "call_1", "toolName": "read", "arguments": {"path": "a"}}
USAGE = {"inputTokens": 3, "outputTokens": 4, "totalTokens": 7}
MESSAGE = {
    "id": "m1",
    "runId": "run_1",
    "role": "user",
    "parts": [{"kind": "text", "payload": {"text": "hi"}}],
    "timestamp": TIME,
    "meta": {"agent": "main"},
}


def unchanged(noun: Any, data: Any) -> Any:
    value = load(noun, data)
    assert value.extra is None  # every key is a field
    assert dump(value) == data
    return value


def fed(*deltas: Delta) -> MessageAssembler:
    assembler = MessageAssembler()
    for seq, delta in enumerate(deltas):
        assembler.consume(MessageDelta("run_1", seq, delta, NOON))
    return assembler


def test_the_agent_config_loads_and_dumps_unchanged() -> None:
    config = {
        "model": {"modelId": "model-1", "temperature": 0.5},
        "runtime": {"kind": "docker", "root": "/work"},
        "tools": {"enabled": {"read": True}, "approval": {"write": "always"}, "timeoutMs": 1000},
        "context": {"maxTokens": 1000, "reserveTokens": 100, "keepRecentTokens": 50, "compaction": False},
        "loop": {"maxIterations": 5, "timeoutMs": 60000, "maxRetries": 0, "maxParallel": 4},
        "observability": {"logLevel": "info", "trace": True, "metrics": True, "providerRaw": True},
    }
    unchanged(AgentConfig, config)


@pytest.mark.parametrize("status", [status.value for status in AgentStatus])
def test_004_agent_state_1_the_state_loads_and_dumps_unchanged(status: str) -> None:
    """004-agent-state.1"""
    state = {
        "status": status,
        "currentRunId": "run_1",
        "pendingToolCalls": [CALL],
        "lastError": {"errorCode": "timeout", "message": "slow", "retryable": True},
        "tokenUsage": USAGE,
        "costUsage": 0.5,
    }
    assert unchanged(AgentState, state).status == status


def test_the_session_loads_and_dumps_unchanged() -> None:
    stamps = {"id": "e1", "sessionId": "s1", "seq": 1, "timestamp": TIME}
    entry = {**stamps, "kind": "compaction_summary", "payload": {"summary": "short", "firstKeptEntryId": "e0"}}
    session = {
        "sessionId": "s1",
        "runId": "run_1",
        "messages": [MESSAGE],
        "entries": [entry],
        "metadata": {"title": "a talk"},
    }
    assert isinstance(unchanged(Session, session).entries[0], Entry)


def test_004_message_1_a_message_has_its_five_fields() -> None:
    """004-message.1"""
    message = unchanged(Message, MESSAGE)
    assert (message.run_id, message.role, message.parts) == ("run_1", "user", (Text("hi"),))
    assert (message.timestamp, message.meta.agent) == (NOON, "main")
    wrong: list[tuple[str, object]] = [("runId", 5), ("role", "robot"), ("parts", {}), ("timestamp", 5), ("meta", [])]
    for field, value in wrong:
        with pytest.raises(PartValidationError):
            load(Message, {**MESSAGE, field: value})


def test_004_message_delta_1_a_delta_has_its_six_fields() -> None:
    """004-message-delta.1"""
    data = {
        "runId": "run_1",
        "seq": 7,
        "kind": "text",
        "payload": {"textDelta": "a"},
        "timestamp": TIME,
        "providerRaw": {"raw": True},
    }
    assert unchanged(MessageDelta, data) == MessageDelta("run_1", 7, TextDelta("a"), NOON, provider_raw={"raw": True})


def test_the_tool_spec_loads_and_dumps_unchanged() -> None:
    unchanged(
        ToolSpec, {"name": "read", "parameterSchema": {"type": "object"}, "description": "Reads.", "strict": False}
    )


def test_004_delta_kinds_1_every_kind_is_applied() -> None:
    """000-4.2, 004-delta-kinds.1"""
    from bartack.nouns.deltas import ToolCallArgs, ToolCallEnd, ToolCallStart

    assembler = fed(Start("m", "q"))
    assert assembler.status == "started"
    steps: list[tuple[Delta, Any]] = [
        (TextDelta("a"), lambda: assembler.snapshot().text == "a"),
        (ThinkingDelta("b"), lambda: assembler.snapshot().thinking == "b"),
        (ToolCallStart("call_1", "t"), lambda: assembler.tool_calls_buffer["call_1"].is_open),
        (ToolCallArgs("call_1", "{}"), lambda: assembler.tool_calls_buffer["call_1"].args_text == "{}"),
        (ToolCallEnd("call_1"), lambda: not assembler.tool_calls_buffer["call_1"].is_open),
        (Usage(1, 2, cost=0.1), lambda: assembler.usage == Usage(1, 2, cost=0.1)),
        (Done("stop"), lambda: assembler.status == "done"),
    ]
    for seq, (delta, is_applied) in enumerate(steps, 1):
        assembler.consume(MessageDelta("run_1", seq, delta, NOON))
        assert is_applied()
    assert fed(Start("m", "q"), Failed(ErrorCode.TIMEOUT)).status == "error"


def test_004_delta_kinds_2_a_stream_may_have_no_thinking() -> None:
    """004-delta-kinds.2"""
    message = fed(Start("m", "q"), TextDelta("a"), Done("stop")).build_final_message()
    assert [part.kind for part in message.parts] == ["text"]


def test_004_delta_kinds_3_usage_is_a_total() -> None:
    """004-delta-kinds.3"""
    assert fed(Start("m", "q"), Usage(5, 1), Usage(5, 2)).usage == Usage(5, 2)


@pytest.mark.parametrize("number", [0, 1, 3])
def test_004_relations_2_a_message_has_any_number_of_calls_and_results(number: int) -> None:
    """004-relations.2"""
    calls = [ToolCall(f"call_{n}", "t", {}) for n in range(number)]
    results = [ToolResult(f"call_{n}", "r") for n in range(number)]
    assert len(load(Message, dump(assistant(*calls))).tool_calls) == number
    assert len(load(Message, dump(tool_message(*results))).tool_results) == number


def test_calls_and_results_have_their_fields() -> None:
    """004-relations.3, 004-relations.4"""
    unchanged(Part, {"kind": "tool_call", "payload": CALL})
    wrong: dict[str, object] = {"toolCallId": 5, "toolName": None, "arguments": [1]}
    for field, value in wrong.items():
        with pytest.raises(PartValidationError):
            load(Part, {"kind": "tool_call", "payload": {**CALL, field: value}})
    listed = [{"kind": "text", "payload": {"text": "a"}}, {"kind": "file_ref", "payload": {"path": "b"}}]
    for content in ("text", {"a": 1}, listed):
        unchanged(
            Part, {"kind": "tool_result", "payload": {"toolCallId": "call_1", "isError": False, "content": content}}
        )


def test_004_invariants_1_every_tool_result_belongs_to_one_call() -> None:
    """004-invariants.1"""
    with pytest.raises(PartValidationError):
        load(Message, {"role": "tool", "parts": [{"kind": "text", "payload": {"text": "no call"}}]})
    with pytest.raises(PartValidationError) as caught:
        load(Message, {"role": "tool", "parts": [{"kind": "tool_result", "payload": {"content": "no call"}}]})
    assert caught.value.path == "$.parts[0].payload.toolCallId"
    with pytest.raises(PartValidationError):
        ToolResult("", "no call")
    answer = tool_message(ToolResult("call_1", "a"), ToolResult("call_2", "b"))
    assert [result.tool_call_id for result in answer.tool_results] == ["call_1", "call_2"]
    with pytest.raises(PartValidationError, match="duplicate tool call id"):
        tool_message(ToolResult("call_1", "a"), ToolResult("call_1", "b"))


@pytest.mark.parametrize(
    ("result", "status"),
    [
        (ToolResult("call_1", "yes"), "completed"),
        (ToolResult("call_1", "broke", is_error=True), "error"),
        (ToolResult("call_1", "denied", is_error=True, error_code=ErrorCode.TOOL_DENIED), "error"),
    ],
    ids=["success", "failure", "denial"],
)
def test_004_invariants_2_a_call_has_one_terminal_result(result: ToolResult, status: str) -> None:
    """004-invariants.2"""
    facts = [
        assistant(ToolCall("call_1", "t", {})),
        tool_message(result),
        tool_message(ToolResult("call_1", "another")),
    ]
    entries = [
        Entry(id=f"e{n}", session_id="s", seq=n, timestamp=NOON, fact=stamped(fact, id=f"m{n}", timestamp=NOON))
        for n, fact in enumerate(facts, 1)
    ]
    assert fold_tools(entries) == fold_tools(entries[:2])
    assert fold_tools(entries)["call_1"].status == status


def test_004_invariants_4_seq_strictly_increases() -> None:
    """004-invariants.4"""
    assembler = fed(Start("m", "q"), TextDelta("a"))
    for seq in (0, 1):
        with pytest.raises(StreamError) as caught:
            assembler.consume(MessageDelta("run_1", seq, TextDelta("b"), NOON))
        assert caught.value.rule == "000-5.3"


def test_004_invariants_5_a_stream_ends_once() -> None:
    """004-invariants.5, D-3.1"""
    for end in (Done("stop"), Failed(ErrorCode.TIMEOUT)):
        for late in (Done("stop"), Failed(ErrorCode.TIMEOUT), TextDelta("late"), Usage(1, 1)):
            with pytest.raises(StreamError):
                fed(Start("m", "q"), end, late)
