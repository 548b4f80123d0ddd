"""Document 001, Model / MessageAssembler / Message: the rules of the assembler one by one."""

import ast
import inspect
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import bartack.stream.assembler
from bartack.nouns.config import CacheConfig, ModelConfig, SpecificTool, ToolSpec
from bartack.nouns.deltas import (
    Delta,
    Done,
    Failed,
    FinishReason,
    MessageDelta,
    Start,
    TextDelta,
    ThinkingDelta,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from bartack.nouns.errors import ErrorCode, ModelError, PartValidationError, StreamError
from bartack.nouns.messages import Message, Role
from bartack.nouns.parts import Part
from bartack.nouns.tables import AssemblyStatus
from bartack.nouns.wire import dump, load
from bartack.stream.assembler import MessageAssembler

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
START = Start("model-1", "req_1")
CALL = ToolCallStart("call_1", "read_file")


def fed(*deltas: Delta) -> MessageAssembler:
    assembler = MessageAssembler()
    for seq, delta in enumerate(deltas):
        assembler.consume(MessageDelta("run_1", seq, delta, NOON))
    return assembler


def refused(assembler: MessageAssembler, delta: Delta, seq: int = 50) -> str | None:
    with pytest.raises(StreamError) as caught:
        assembler.consume(MessageDelta("run_1", seq, delta, NOON))
    return caught.value.rule


def test_001_1_8_a_snapshot_can_be_shown_while_the_stream_runs() -> None:
    """001-1.8, 001-4.2.3, 001-8.4"""
    assembler = fed(START, ThinkingDelta("hm"), TextDelta("Hel"))
    assert (assembler.snapshot().thinking, assembler.snapshot().text) == ("hm", "Hel")
    assembler.consume(MessageDelta("run_1", 9, TextDelta("lo"), NOON))
    assert assembler.snapshot().text == "Hello"


def test_001_1_9_it_keeps_unfinished_calls_and_usage() -> None:
    assembler = fed(START, Usage(3, 1), CALL, ToolCallArgs("call_1", '{"a'))
    assert assembler.tool_calls_buffer["call_1"].args_text == '{"a'
    assert assembler.usage == Usage(3, 1)


def test_001_1_10_a_duplicate_delta_is_rejected() -> None:
    assembler = fed(START, TextDelta("a"))
    assert refused(assembler, TextDelta("a"), seq=1) == "000-5.3"
    assembler.consume(MessageDelta("run_1", 2, TextDelta("a"), NOON))  # the same text under a new seq is new text
    assert assembler.snapshot().text == "aa"


def test_001_1_11_the_assembler_depends_on_deltas_only() -> None:
    """001-1.11, 001-6.2"""
    source = Path(inspect.getfile(bartack.stream.assembler)).read_text(encoding="utf-8")
    nodes = list(ast.walk(ast.parse(source)))
    modules = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    assert modules == {
        "collections.abc",
        "datetime",
        "json",
        "msgspec",
        "typing",
        "bartack.stream.contract",
        "bartack.nouns.deltas",
        "bartack.nouns.errors",
        "bartack.nouns.json_values",
        "bartack.nouns.messages",
        "bartack.nouns.parts",
        "bartack.nouns.tables",
        "bartack.nouns.wire",
    }
    hints = {name: get_type_hints(getattr(MessageAssembler, name)) for name in ("consume", "build_final_message")}
    assert hints == {
        "consume": {"delta": MessageDelta, "return": type(None)},
        "build_final_message": {"return": Message},
    }


def test_an_assembler_is_made_from_an_optional_run() -> None:
    """001-2.2.1, 001-2.2.2, 001-2.2.3"""
    for assembler in (MessageAssembler(), MessageAssembler("run_1")):
        assert (assembler.status, assembler.parts, assembler.tool_calls_buffer) == ("idle", (), {})
    assert (MessageAssembler().run_id, MessageAssembler("run_1").run_id) == (None, "run_1")
    for wrong in ("", 5, b"run_1"):
        run_id: Any = wrong
        with pytest.raises(PartValidationError):
            MessageAssembler(run_id)


def test_001_3_2_1_the_fields_can_be_read() -> None:
    """001-3.2.1, 001-3.2.2"""
    assembler = fed(START, CALL)
    fields = ("run_id", "status", "last_seq", "parts", "tool_calls_buffer", "usage", "error")
    assert [hasattr(assembler, field) for field in fields] == [True] * 7
    assert {status.value for status in AssemblyStatus} == {"idle", "started", "done", "error"}
    assert (MessageAssembler().last_seq, assembler.last_seq) == (-1, 1)
    assert (MessageAssembler().status, assembler.status) == ("idle", "started")
    failed = Failed(ErrorCode.TIMEOUT)
    done, broken = fed(START, Usage(1, 2), Done("stop")), fed(START, failed)
    assert (done.status, done.last_seq, done.usage, done.error) == ("done", 2, Usage(1, 2), None)
    assert (broken.status, broken.last_seq, broken.usage, broken.error) == ("error", 1, None, failed)


def test_001_3_3_1_the_structures_are_those_of_000() -> None:
    """001-3.3.1, 001-7.4"""
    kinds = ["text", "thinking", "tool_call", "tool_result", "image", "file_ref"]
    assert [part.kind for part in get_args(Part)] == kinds
    assert get_args(Role) == ("system", "user", "assistant", "tool")
    calls = ["tool_call_start", "tool_call_args", "tool_call_end"]
    assert [delta.kind for delta in get_args(Delta)] == ["start", "text", "thinking", *calls, "usage", "done", "error"]


def test_the_configurations_load_and_dump_unchanged() -> None:
    config = {
        "modelId": "model-1",
        "temperature": 0.2,
        "maxTokens": 1000,
        "topP": 0.9,
        "stopSequences": ["END"],
        "toolChoice": "auto",
        "cacheConfig": {"strategy": "auto"},
        "providerOwn": {"x": 1},
    }
    assert dump(load(ModelConfig, config)) == config
    assert dump(load(CacheConfig, {"strategy": "auto"})) == {"strategy": "auto"}
    spec = {"name": "read", "description": "Reads.", "parameterSchema": {"type": "object"}, "strict": True}
    assert dump(load(ToolSpec, spec)) == spec
    for choice in ("auto", "required", "none", {"toolName": "read"}):
        assert dump(load(ModelConfig, {"modelId": "m", "toolChoice": choice}))["toolChoice"] == choice
    assert load(ModelConfig, {"modelId": "m", "toolChoice": {"toolName": "read"}}).tool_choice == SpecificTool("read")


def test_001_4_2_1_the_methods_are_these() -> None:
    assembler = fed(START)
    consume: Any = assembler.consume
    assert consume(MessageDelta("run_1", 1, Done("stop"), NOON)) is None
    assert isinstance(assembler.snapshot(), Message)
    assert isinstance(assembler.build_final_message(), Message)
    assert assembler.get_error() is None
    reset: Any = assembler.reset
    assert reset() is None


def test_001_4_2_2_a_delta_of_another_run_is_rejected() -> None:
    assembler = MessageAssembler("run_2")
    assert refused(assembler, START) == "001-4.2.2"


def test_001_4_2_4_the_final_message_comes_after_done_only() -> None:
    """001-4.2.4, 001-8.2, D-7.8"""
    with pytest.raises(StreamError):
        fed(START).build_final_message()
    with pytest.raises(ModelError):
        fed(START, Failed(ErrorCode.TIMEOUT)).build_final_message()
    assert fed(START, Done("stop")).build_final_message().role == "assistant"


def test_001_4_2_5_reset_empties_every_buffer() -> None:
    assembler = fed(START, CALL, Usage(1, 1), Failed(ErrorCode.TIMEOUT))
    assembler.reset()
    assert (assembler.status, assembler.parts, assembler.tool_calls_buffer) == ("idle", (), {})
    assert (assembler.usage, assembler.get_error(), assembler.last_seq) == (None, None, -1)


def test_001_4_2_6_get_error_returns_the_error_or_none() -> None:
    failed = Failed(ErrorCode.TIMEOUT)
    assert fed(START).get_error() is None
    assert fed(START, failed).get_error() is failed


def test_001_5_2_1_states_follow_the_table() -> None:
    assembler = MessageAssembler()
    statuses = [assembler.status]
    deltas: list[Delta] = [START, TextDelta("a"), Done("stop")]
    for seq, delta in enumerate(deltas):
        assembler.consume(MessageDelta("run_1", seq, delta, NOON))
        statuses.append(assembler.status)
    assert statuses == ["idle", "started", "started", "done"]
    assert fed(START, Failed(ErrorCode.TIMEOUT)).status == "error"


def test_001_5_2_2_a_second_end_is_rejected() -> None:
    for end in (Done("stop"), Failed(ErrorCode.TIMEOUT)):
        assert refused(fed(START, end), Done("stop")) == "000-5.2"
        assert refused(fed(START, end), Failed(ErrorCode.TIMEOUT)) == "000-5.2"


def test_001_5_2_3_nothing_is_accepted_before_start() -> None:
    assert refused(MessageAssembler(), TextDelta("a")) == "000-5.1"


def test_001_5_2_4_seq_must_increase() -> None:
    assembler = fed(START, TextDelta("a"))
    assert refused(assembler, TextDelta("b"), seq=1) == "000-5.3"
    assembler.consume(MessageDelta("run_1", 7, TextDelta("b"), NOON))  # gaps are allowed
    for seq in (2, 6, 7):
        assert refused(assembler, TextDelta("c"), seq=seq) == "000-5.3"


def test_001_5_2_5_done_is_rejected_while_a_call_is_open() -> None:
    for reason in get_args(FinishReason):
        assert refused(fed(START, CALL), Done(reason)) == "001-5.2.5"
    assert refused(fed(START), ToolCallEnd("call_1")) == "001-5.2.5"
    assert fed(START, CALL, ToolCallEnd("call_1"), Done("stop")).status == "done"


def test_001_5_2_6_invalid_arguments_do_not_raise() -> None:
    message = fed(START, CALL, ToolCallArgs("call_1", "{oops"), ToolCallEnd("call_1"), Done("stop"))
    assert message.build_final_message().tool_calls[0].raw_args_text == "{oops"


def test_001_7_3_one_stream_gives_one_assistant_message() -> None:
    """001-7.3, 001-8.3"""
    assembler = fed(START, TextDelta("a"))
    assert refused(assembler, START) == "001-8.3"
    assembler.consume(MessageDelta("run_1", 60, Done("stop"), NOON))
    assert refused(assembler, START, seq=70) == "D-3.1"
    assert assembler.build_final_message().role == "assistant"


def test_001_8_1_usage_is_cumulative() -> None:
    assembler = fed(START, Usage(5, 1), Usage(5, 9))
    assert assembler.usage == Usage(5, 9, 14)


def test_001_8_4_thinking_is_visible() -> None:
    assembler = fed(START, ThinkingDelta("hm"), Done("stop"))
    assert assembler.snapshot().thinking == assembler.build_final_message().thinking == "hm"
