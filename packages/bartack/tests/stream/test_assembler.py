"""The assembler: deltas in, snapshots and one message out."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bartack.nouns.deltas import (
    Delta,
    Done,
    Failed,
    MessageDelta,
    Start,
    TextDelta,
    ThinkingDelta,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from bartack.nouns.entries import StreamFailed
from bartack.nouns.errors import ErrorCode, ModelError, PartValidationError, StreamError
from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.nouns.parts import Continuation, Part, Span, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.tables import AssemblyStatus
from bartack.nouns.wire import MAX_DEPTH, dump, load
from bartack.stream.assembler import MessageAssembler, parse_arguments
from bartack.stream.contract import StreamLimits

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
START = Start("m", "q", provider="p")


def second(number: int) -> datetime:
    return NOON + timedelta(seconds=number)


def fed(*deltas: Delta, assembler: MessageAssembler | None = None) -> MessageAssembler:
    """An assembler that has consumed these deltas: one per second, numbered from 0."""
    assembler = assembler or MessageAssembler()
    for seq, delta in enumerate(deltas):
        assembler.consume(MessageDelta("r1", seq, delta, second(seq), model_call_index=4, attempt=2))
    return assembler


def built(*deltas: Delta) -> Message:
    return fed(START, *deltas, Done("stop")).build_final_message()


def contents(message: Message) -> list[tuple[str, str]]:
    return [(part.kind, part.text) for part in message.parts if isinstance(part, Text | Thinking)]


def test_a_new_assembler_is_idle_and_empty() -> None:
    """001-2.2.1, 001-2.2.2, 001-3.2.1, 001-3.2.2"""
    for assembler in (MessageAssembler(), MessageAssembler("r1"), MessageAssembler(run_id=None)):
        assert assembler.status is AssemblyStatus.IDLE
        assert (assembler.last_seq, assembler.parts, assembler.tool_calls_buffer) == (-1, (), {})
        assert (assembler.usage, assembler.error) == (None, None)
        assert assembler.snapshot() == Message("assistant", (), run_id=assembler.run_id)
    assert [status.value for status in AssemblyStatus] == ["idle", "started", "done", "error"]


@pytest.mark.parametrize("arguments", [{"run_id": ""}, {"run_id": 5}, {"message_id": ""}, {"message_id": b"m"}])
def test_an_invalid_input_raises_at_once(arguments: dict[str, Any]) -> None:
    """001-2.2.3"""
    with pytest.raises(PartValidationError) as caught:
        MessageAssembler(**arguments)
    assert (caught.value.path, caught.value.rule) == (f"$.{next(iter(arguments))}", "001-2.2.3")


def test_a_stream_becomes_one_message() -> None:
    """000-2.2, 001-1.7, 001-7.3, 000-5.7, 002-metadata.3, 002-metadata.4, 002-metadata.5, D-1.4, D-3.4.6, 003-BR-14"""
    assembler = MessageAssembler("r1", message_id="m1")
    deltas: list[Delta] = [
        START,
        ThinkingDelta("hm"),
        TextDelta("Hel"),
        TextDelta("lo"),
        ToolCallStart("c1", "read"),
        ToolCallArgs("c1", '{"path"'),
        ToolCallArgs("c1", ': "x"}'),
        ToolCallEnd("c1"),
        Usage(10, 5, reasoning_tokens=1, cost=0.25),
        Done("tool_calls", raw_finish_reason="tool_use"),
    ]
    fed(*deltas, assembler=assembler)
    assert assembler.build_final_message() == Message(
        "assistant",
        (
            Thinking("hm", time=Span(start=second(1), end=second(1))),
            Text("Hello", time=Span(start=second(2), end=second(3))),
            ToolCall("c1", "read", {"path": "x"}),
        ),
        id="m1",
        run_id="r1",
        timestamp=NOON,
        meta=Meta(
            model=ModelRef("p", "m"),
            response_id="q",
            usage=Usage(10, 5, 15, reasoning_tokens=1, cost=0.25),
            cost_usd=0.25,
            duration_ms=9000,
            completed_at=second(9),
            finish_reason="tool_calls",
            raw_finish_reason="tool_use",
            model_call_index=4,
            attempt=2,
        ),
    )
    assert assembler.build_final_message() == assembler.snapshot()


def test_adjacent_deltas_of_one_kind_join_and_another_kind_ends_the_part() -> None:
    """D-3.2, D-3.2.2, 000-5.4, 000-3.2.13"""
    message = built(
        TextDelta("a"), TextDelta("b"), ThinkingDelta("c"), ThinkingDelta("d"), TextDelta("e"), ThinkingDelta("f")
    )
    assert contents(message) == [("text", "ab"), ("thinking", "cd"), ("text", "e"), ("thinking", "f")]
    call: list[Delta] = [ToolCallStart("c1", "read"), ToolCallEnd("c1")]
    message = built(TextDelta("a"), *call, TextDelta("b"), TextDelta("c"))
    assert [part.kind for part in message.parts] == ["text", "tool_call", "text"]
    assert message.text == "abc"


def test_a_new_part_of_the_same_kind_may_begin() -> None:
    """D-3.2.1, 000-4.4, 000-4.5"""
    message = built(TextDelta("a", new_part=True), TextDelta("b"), TextDelta("c", new_part=True), TextDelta("d"))
    assert contents(message) == [("text", "ab"), ("text", "cd")]
    message = built(ThinkingDelta("a"), ThinkingDelta("b", new_part=True))
    assert contents(message) == [("thinking", "a"), ("thinking", "b")]


def test_a_call_ends_the_text_before_it_and_its_arguments_do_not_split_the_text_after_it() -> None:
    """D-3.2.2"""
    message = built(
        TextDelta("a"),
        ToolCallStart("c1", "t"),
        TextDelta("b"),
        ToolCallArgs("c1", "{}"),
        Usage(1, 1),
        ToolCallEnd("c1"),
        TextDelta("c"),
    )
    assert [part.kind for part in message.parts] == ["text", "tool_call", "text"]
    assert message.text == "abc"


def test_calls_may_interleave() -> None:
    """D-3.3, 000-5.5, 000-3.2.14, 001-1.9"""
    assembler = fed(
        START,
        ToolCallStart("c1", "read"),
        ToolCallStart("c2", "write"),
        ToolCallArgs("c2", '{"b"'),
        ToolCallArgs("c1", '{"a"'),
        ToolCallArgs("c2", ":2}"),
        ToolCallEnd("c2"),
        ToolCallArgs("c1", ":1}"),
    )
    assert list(assembler.tool_calls_buffer) == ["c1", "c2"]
    early = assembler.snapshot()
    assert early.meta is not None
    assert early.meta.open_calls == ("c1",)
    assert early.parts == (
        ToolCall("c1", "read", {}, raw_args_text='{"a":1}'),
        ToolCall("c2", "write", {"b": 2}),
    )
    last_deltas: list[Delta] = [ToolCallEnd("c1"), Done("tool_calls")]
    for seq, delta in enumerate(last_deltas, 8):
        assembler.consume(MessageDelta("r1", seq, delta, NOON))
    final = assembler.build_final_message()
    assert final.parts == (ToolCall("c1", "read", {"a": 1}), ToolCall("c2", "write", {"b": 2}))
    assert final.meta is not None
    assert final.meta.open_calls is None


BAD_ARGS = [
    "{",
    '{"a": 1',
    "[1]",
    "null",
    "5",
    '"x"',
    "{'a': 1}",
    '{"a": NaN}',
    '{"a": Infinity}',
    '{"a": 1e999}',
    "{} {}",
]


@pytest.mark.parametrize("text", [*BAD_ARGS, '{"a": "\\ud800"}', '{"\\ud800": 1}', "[" * 100_000])
def test_invalid_arguments_are_data(text: str) -> None:
    """D-3.3.2, 000-5.6, 001-5.2.6"""
    message = built(ToolCallStart("c1", "t"), ToolCallArgs("c1", text), ToolCallEnd("c1"), TextDelta("after"))
    assert message.parts[0] == ToolCall("c1", "t", {}, raw_args_text=text)
    assert message.meta is not None
    assert message.meta.bad_args is not None
    assert list(message.meta.bad_args) == ["c1"]
    assert message.meta.bad_args["c1"]
    assert load(Message, dump(message)) == message


def nested(depth: int) -> str:
    return '{"a":' * (depth - 1) + "{}" + "}" * (depth - 1)


def test_arguments_may_be_as_deep_as_can_be_stored() -> None:
    def message(depth: int) -> Message:
        return built(ToolCallStart("c1", "t"), ToolCallArgs("c1", nested(depth)), ToolCallEnd("c1"))

    deepest, deeper = message(MAX_DEPTH), message(MAX_DEPTH + 1)
    assert deepest.meta is not None
    assert deepest.meta.bad_args is None
    assert deeper.meta is not None
    assert deeper.meta.bad_args is not None
    for answer in (deepest, deeper):
        assert load(Message, dump(answer)) == answer


@pytest.mark.parametrize("pieces", [[], [""], ["", " \n", ""]])
def test_a_call_without_argument_text_has_no_arguments(pieces: list[str]) -> None:
    args = [ToolCallArgs("c1", piece) for piece in pieces]
    message = built(ToolCallStart("c1", "t"), *args, ToolCallEnd("c1"))
    assert message.parts == (ToolCall("c1", "t", {}),)
    assert message.meta is not None
    assert message.meta.bad_args is None


def test_arguments_are_parsed_only_when_the_call_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """D-3.3.1"""
    parsed: list[str] = []

    def counting(text: str) -> dict[str, Any]:
        parsed.append(text)
        return parse_arguments(text)

    monkeypatch.setattr("bartack.stream.assembler.parse_arguments", counting)
    assembler = fed(START, ToolCallStart("c1", "t"), ToolCallArgs("c1", '{"a"'), ToolCallArgs("c1", ":1}"))
    assembler.snapshot()
    assert parsed == []
    assembler.consume(MessageDelta("r1", 9, ToolCallEnd("c1"), NOON))
    assembler.consume(MessageDelta("r1", 10, Done("tool_calls"), NOON))
    assembler.snapshot()
    assert assembler.build_final_message().parts == (ToolCall("c1", "t", {"a": 1}),)
    assert parsed == ['{"a":1}']


def test_parse_errors_describe_the_problem() -> None:
    assert parse_arguments(' {"a": [1, {"b": null}]} ') == {"a": [1, {"b": None}]}
    wide = {"rows": [{"n": number} for number in range(2 * MAX_DEPTH)]}
    assert parse_arguments(json.dumps(wide)) == wide
    for text, rule in (("{", "000-5.6"), ("[]", "000-3.3.1"), ("[" * 100_000, "D-3.11.2")):
        with pytest.raises(PartValidationError) as caught:
            parse_arguments(text)
        assert caught.value.rule == rule
    with pytest.raises(PartValidationError) as caught:
        parse_arguments('{"a": [1e999]}')
    assert caught.value.path == "$.a[0]"


def test_usage_is_cumulative_and_the_last_one_counts() -> None:
    """D-3.4, 001-8.1, 004-delta-kinds.3, D-3.4.1"""
    last = Usage(10, 7, cache_read_tokens=3, cache_write_tokens=2, reasoning_tokens=1)
    message = built(Usage(10, 1, cost=0.1), TextDelta("a"), last)
    assert message.meta is not None
    assert message.meta.usage == last
    assert message.meta.cost_usd is None


def test_a_stream_without_usage_gives_none_instead_of_zeros() -> None:
    """D-3.4.3"""
    meta = built(TextDelta("a")).meta
    assert meta is not None
    assert (meta.usage, meta.cost_usd) == (None, None)
    assert "usage" not in dump(built(TextDelta("a")))["meta"]


def test_continuation_data_is_kept_per_part_with_its_origin() -> None:
    """D-3.9"""
    message = built(
        ThinkingDelta("a", continuation={"id": "i1", "signature": "x"}),
        ThinkingDelta("", continuation={"signature": "y"}),
        TextDelta("b"),
        ToolCallStart("c1", "t", continuation={"id": "i2"}),
        ToolCallEnd("c1", continuation={"status": "ok"}),
        ToolCallStart("c2", "t"),
        ToolCallEnd("c2"),
    )
    assert [part.continuation for part in message.parts] == [
        Continuation("p", "m", {"id": "i1", "signature": "y"}),
        None,
        Continuation("p", "m", {"id": "i2", "status": "ok"}),
        None,
    ]


def test_a_snapshot_is_not_changed_by_later_continuation_data() -> None:
    assembler = fed(START, ThinkingDelta("a", continuation={"x": 1}))
    early = assembler.snapshot()
    assembler.consume(MessageDelta("r1", 5, ThinkingDelta("", continuation={"x": 2}), NOON))
    assert early.parts[0].continuation == Continuation("p", "m", {"x": 1})


@pytest.mark.parametrize("result", ["", "found", {"hits": [1]}, (Text("found"),), ()])
def test_a_call_executed_by_the_provider_contains_its_result(result: Any) -> None:
    """D-3.10"""
    message = built(
        ToolCallStart("c1", "search", executed_by="provider"),
        ToolCallArgs("c1", '{"q": "x"}'),
        ToolCallEnd("c1", result=result, result_is_error=True),
    )
    call = ToolResult("c1", result, is_error=True)
    assert message.parts == (ToolCall("c1", "search", {"q": "x"}, executed_by="provider", result=call),)
    assert dump(message)["parts"][0]["payload"]["executedBy"] == "provider"


def test_a_providers_call_may_come_without_a_result() -> None:
    message = built(ToolCallStart("c1", "search", executed_by="provider"), ToolCallEnd("c1"))
    assert message.tool_calls[0].result is None


def test_there_is_no_final_message_before_done() -> None:
    """001-4.2.4"""
    for assembler in (MessageAssembler(), fed(START, TextDelta("a"))):
        with pytest.raises(StreamError) as caught:
            assembler.build_final_message()
        assert caught.value.rule == "001-4.2.4"


@pytest.mark.parametrize("message", ["", "slow down"])
def test_after_an_error_building_the_message_raises_it(message: str) -> None:
    """000-5.8, 001-8.2, D-3.5.1, 001-4.2.6"""
    failed = Failed(ErrorCode.RATE_LIMITED, message, retryable=True, status=429, retry_after_ms=20)
    assembler = fed(START, TextDelta("half"), failed)
    assert assembler.status is AssemblyStatus.ERROR
    assert assembler.get_error() is assembler.error is failed
    with pytest.raises(ModelError) as caught:
        assembler.build_final_message()
    error = caught.value
    assert (error.code, error.retryable, error.status, error.retry_after_ms) == (failed.error_code, True, 429, 20)
    assert error.message == (message or "the stream failed with rate_limited")


def test_parts_received_before_an_error_are_kept_as_a_fact() -> None:
    """D-3.5.2"""
    failed = Failed(ErrorCode.STREAM_TRUNCATED)
    assembler = fed(START, TextDelta("half"), ToolCallStart("c1", "t"), ToolCallArgs("c1", '{"a'), Usage(9, 1), failed)
    fact = StreamFailed(error=failed, parts=assembler.parts, usage=assembler.usage)
    expected: tuple[Part, ...] = (
        Text("half", time=Span(start=second(1), end=second(1))),
        ToolCall("c1", "t", {}, raw_args_text='{"a'),
    )
    assert (fact.parts, fact.usage) == (expected, Usage(9, 1))
    assert load(StreamFailed, dump(fact)) == fact
    snapshot = assembler.snapshot()
    assert snapshot.meta is not None
    assert (snapshot.meta.open_calls, snapshot.meta.duration_ms, snapshot.meta.completed_at) == (("c1",), 5000, None)


def test_get_error_is_none_without_an_error() -> None:
    """001-4.2.6"""
    assert MessageAssembler().get_error() is None
    assert fed(START, Done("stop")).get_error() is None


def test_a_rejected_delta_changes_nothing_and_the_stream_continues() -> None:
    assembler = fed(START, TextDelta("a"))
    before = assembler.snapshot()
    with pytest.raises(StreamError):
        assembler.consume(MessageDelta("r1", 1, TextDelta("again"), NOON))
    with pytest.raises(StreamError):
        assembler.consume(MessageDelta("r1", 2, ToolCallArgs("c1", "{}"), NOON))
    assert (assembler.snapshot(), assembler.last_seq, assembler.status) == (before, 1, AssemblyStatus.STARTED)
    assembler.consume(MessageDelta("r1", 2, TextDelta("b"), NOON))
    assert assembler.snapshot().text == "ab"


def test_a_given_run_id_is_enforced() -> None:
    """001-4.2.2"""
    assembler = MessageAssembler("r2")
    with pytest.raises(StreamError) as caught:
        assembler.consume(MessageDelta("r1", 0, START, NOON))
    assert (caught.value.rule, assembler.status) == ("001-4.2.2", AssemblyStatus.IDLE)
    assembler.consume(MessageDelta("r2", 0, START, NOON))
    assert assembler.snapshot().run_id == "r2"
    free = MessageAssembler()
    free.consume(MessageDelta("r9", 0, START, NOON))
    assert free.snapshot().run_id == "r9"


def test_reset_empties_everything_but_keeps_its_ids() -> None:
    """001-4.2.5"""
    assembler = MessageAssembler("r1", message_id="m1", limits=StreamLimits(max_chars=8))
    used: list[Delta] = [START, TextDelta("a"), ToolCallStart("c1", "t"), Usage(1, 1), Failed(ErrorCode.TIMEOUT)]
    fed(*used, assembler=assembler)
    assembler.reset()
    assert (assembler.status, assembler.last_seq, assembler.parts) == (AssemblyStatus.IDLE, -1, ())
    assert (assembler.tool_calls_buffer, assembler.usage, assembler.error) == ({}, None, None)
    assert assembler.snapshot() == Message("assistant", (), id="m1", run_id="r1")
    with pytest.raises(StreamError):
        fed(START, TextDelta("far too long"), assembler=assembler)
    assembler.reset()
    assert fed(START, Done("stop"), assembler=assembler).build_final_message().id == "m1"


def test_deltas_from_a_guard_are_not_checked_twice_and_give_the_same() -> None:
    deltas: list[Delta] = [START, TextDelta("a"), ToolCallStart("c1", "t"), ToolCallEnd("c1"), Done("tool_calls")]
    guarded = fed(*deltas, assembler=MessageAssembler("r1", guarded=True))
    assert guarded.build_final_message() == fed(*deltas).build_final_message()
    assert (guarded.status, guarded.last_seq) == (AssemblyStatus.DONE, 4)
    guarded.reset()
    assert (guarded.status, guarded.last_seq, guarded.parts) == (AssemblyStatus.IDLE, -1, ())


def test_provider_raw_is_never_read() -> None:
    """000-6.4"""
    plain, loud = MessageAssembler(), MessageAssembler()
    raw = {"textDelta": "other", "kind": "error", "nan": float("nan")}
    deltas: list[Delta] = [START, TextDelta("a"), Done("stop")]
    for seq, delta in enumerate(deltas):
        plain.consume(MessageDelta("r1", seq, delta, NOON))
        loud.consume(MessageDelta("r1", seq, delta, NOON, provider_raw=raw))
    assert plain.build_final_message() == loud.build_final_message()


def test_a_missing_provider_name_becomes_empty() -> None:
    assert fed(Start("m", "q"), Done("stop")).snapshot().meta == Meta(
        model=ModelRef("", "m"),
        response_id="q",
        duration_ms=1000,
        completed_at=second(1),
        finish_reason="stop",
        model_call_index=4,
        attempt=2,
    )
