"""The typed API as a type checker sees it. Read by mypy, never run."""

from datetime import datetime
from typing import Any, assert_never, assert_type

import weft
from weft import wire
from weft.tables import TOOL, advance


def every_part_is_one_of_six(part: weft.Part) -> str:
    match part:
        case weft.Text() | weft.Thinking():
            return assert_type(part.text, str)
        case weft.ToolCall():
            assert_type(part.arguments, dict[str, Any])
            return assert_type(part.tool_name, str)
        case weft.ToolResult():
            assert_type(part.content, weft.ToolContent)
            return part.tool_call_id
        case weft.Image():
            return assert_type(part.mime_type, str)
        case weft.FileRef():
            return assert_type(part.path, str)
        case _:
            assert_never(part)


def every_delta_is_one_of_nine(delta: weft.Delta) -> str:
    match delta:
        case weft.Start():
            return delta.model_id
        case weft.TextDelta() | weft.ThinkingDelta():
            return assert_type(delta.text_delta, str)
        case weft.ToolCallStart() | weft.ToolCallArgs() | weft.ToolCallEnd():
            return assert_type(delta.tool_call_id, str)
        case weft.Usage():
            return str(assert_type(delta.total_tokens, int))
        case weft.Done():
            return assert_type(delta.finish_reason, weft.FinishReason)
        case weft.Failed():
            return assert_type(delta.error_code, weft.ErrorCode)
        case _:
            assert_never(delta)


def every_fact_has_its_class(fact: weft.Fact) -> str | None:
    match fact:
        case weft.Message():
            return assert_type(fact.role, weft.Role)
        case weft.ToolStarted() | weft.ToolProgress() | weft.ApprovalRequired() | weft.ApprovalDecided():
            return assert_type(fact.tool_call_id, str)
        case weft.StreamFailed():
            assert_type(fact.parts, tuple[weft.Part, ...])
            return fact.error.message
        case weft.CompactionSummary() | weft.BranchSummary():
            return assert_type(fact.summary, str)
        case weft.SystemPromptOverride():
            return assert_type(fact.text, str | None)
        case weft.SessionHeader() | weft.RunStarted() | weft.ModelChange() | weft.ThinkingLevelChange():
            return fact.kind
        case weft.RuntimeInit() | weft.Redaction() | weft.MessageDeltaBatch() | weft.RunEnded() | weft.Custom():
            return fact.kind
        case _:
            assert_never(fact)


def messages_are_short_to_write() -> None:
    assert_type(weft.user("hi"), weft.Message)
    assert_type(weft.user("look", weft.Image("image/png", data=b"...")), weft.Message)
    assert_type(weft.assistant(weft.Thinking("hm"), "hello").tool_calls, tuple[weft.ToolCall, ...])
    assert_type(weft.tool_message(weft.ToolResult("c1", "ok")).tool_results, tuple[weft.ToolResult, ...])
    assert_type(weft.system("be kind").text, str)


def what_may_not_be_written_is_an_error() -> None:
    weft.user(weft.ToolCall("c1", "read", {}))  # type: ignore[arg-type]
    weft.Message("robot", ())  # type: ignore[arg-type]
    weft.Message("user", [weft.Text("a list")])  # type: ignore[arg-type]
    weft.Done("bored")  # type: ignore[arg-type]
    weft.Text("a", "b")  # type: ignore[call-arg, arg-type]
    weft.Text("a").text = "b"  # type: ignore[misc]
    weft.Failed("timeout")  # type: ignore[arg-type]
    weft.nonsense  # type: ignore[attr-defined]


def loading_gives_the_noun_that_was_asked_for(data: object, text: bytes) -> None:
    assert_type(wire.load(weft.Message, data), weft.Message)
    assert_type(wire.decode(weft.Entry, text), weft.Entry)
    assert_type(wire.decode(weft.MessageDelta, text).delta, weft.Delta)
    assert_type(wire.encode(weft.user("hi")), bytes)


def the_assembler_takes_deltas_and_gives_messages(delta: weft.MessageDelta) -> None:
    assembler = weft.MessageAssembler("r1", message_id="m1")
    assembler.consume(delta)
    assembler.consume(delta.delta)  # type: ignore[arg-type]
    assert_type(assembler.snapshot(), weft.Message)
    assert_type(assembler.build_final_message(), weft.Message)
    assert_type(assembler.get_error(), weft.Failed | None)
    assert_type(assembler.status, weft.AssemblyStatus)
    assert_type(assembler.parts, tuple[weft.Part, ...])


def an_entry_stamps_a_fact(now: datetime) -> weft.Entry:
    message = weft.stamped(weft.user("hi"), id="m1", timestamp=now)
    entry = weft.Entry(id="e1", session_id="s1", seq=1, timestamp=now, fact=message)
    assert_type(entry.fact, weft.Fact)
    assert_type(weft.session_of([entry]).messages, tuple[weft.Message, ...])
    return entry


def a_table_keeps_its_states_apart() -> None:
    assert_type(advance(TOOL, weft.ToolStatus.PENDING, "start"), weft.ToolStatus)


def an_error_has_attributes(error: weft.WeftError) -> weft.ErrorCode:
    match error:
        case weft.InvalidStateTransition():
            assert_type(error.valid, tuple[str, ...])
        case weft.PartValidationError():
            assert_type(error.path, str)
            assert_type(error.rule, str | None)
        case _:
            pass
    return error.code
