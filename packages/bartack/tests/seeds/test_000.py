"""Document 000, Message Schema / Delta Contract: its JSON written out with values, and its rules one by one."""

from datetime import UTC, datetime
from typing import Any

import pytest

from bartack.nouns.deltas import Delta, MessageDelta
from bartack.nouns.entries import Entry, Fact
from bartack.nouns.errors import PartValidationError, StreamError
from bartack.nouns.messages import Message, assistant, stamped, tool_message
from bartack.nouns.parts import FileRef, Part, Text, ToolCall, ToolResult
from bartack.nouns.wire import decode, dump, encode, load, parse
from bartack.session.tool_state import fold_tools
from bartack.stream.assembler import MessageAssembler

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

PARTS: dict[str, dict[str, Any]] = {
    "text": {"text": "Hello"},
    "thinking": {"text": "They greet me."},
    "tool_call": {
        "toolCallId": "call_1",
        "toolName": "read_file",
        "arguments": {},
        "rawArgsText": '{"path": "a.t',
    },
    "tool_result": {"toolCallId": "call_1", "isError": False, "content": "contents of a.txt"},
    "image": {"mimeType": "image/png", "data": "iVBORw0KGgo="},
    "file_ref": {"path": "notes/a.txt", "mimeType": "text/plain", "size": 120},
}
MORE_PARTS: list[dict[str, Any]] = [
    {"kind": "image", "payload": {"mimeType": "image/png", "url": "https://example.org/cat.png"}},
    {"kind": "file_ref", "payload": {"path": "notes/a.txt"}},
    {
        "kind": "tool_call",
        "payload": {"toolCallId": "call_1", "toolName": "read_file", "arguments": {"path": "a.txt"}},
    },
    {"kind": "tool_result", "payload": {"toolCallId": "call_1", "isError": True, "content": {"code": 404}}},
    {
        "kind": "tool_result",
        "payload": {
            "toolCallId": "call_1",
            "isError": False,
            "content": [{"kind": "text", "payload": {"text": "one"}}, {"kind": "text", "payload": {"text": "two"}}],
        },
    },
]
DELTAS: dict[str, dict[str, Any]] = {
    "start": {"modelId": "model-1", "requestId": "req_1"},
    "text": {"textDelta": "Hel"},
    "thinking": {"textDelta": "They "},
    "tool_call_start": {"toolCallId": "call_1", "toolName": "read_file"},
    "tool_call_args": {"toolCallId": "call_1", "argsTextDelta": '{"pa'},
    "tool_call_end": {"toolCallId": "call_1"},
    "usage": {"inputTokens": 12, "outputTokens": 5, "totalTokens": 17, "cost": 0.0004},
    "done": {"finishReason": "stop"},
    "error": {"errorCode": "overloaded", "message": "try later", "retryable": True},
}
STAMPS = {"runId": "run_1", "timestamp": "2026-01-01T12:00:00Z"}


def unchanged(noun: Any, data: Any) -> Any:
    """The value; also checks that every key is a field, and that its JSON loads and dumps unchanged."""
    value = load(noun, data)
    assert value.extra is None
    assert dump(value) == data
    assert parse(encode(decode(noun, encode(value)))) == data
    return value


def part(kind: str, **changed: Any) -> dict[str, Any]:
    return {"kind": kind, "payload": PARTS[kind] | changed}


def stream(*deltas: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**STAMPS, "seq": seq, "kind": kind, "payload": payload} for seq, (kind, payload) in enumerate(deltas, 1)]


def assembled(deltas: list[dict[str, Any]]) -> MessageAssembler:
    assembler = MessageAssembler()
    for delta in deltas:
        assembler.consume(load(MessageDelta, delta))
    return assembler


def refused(deltas: list[dict[str, Any]]) -> str | None:
    """The rule that the last of these deltas breaks; the ones before it are valid."""
    assembler = assembled(deltas[:-1])
    with pytest.raises(StreamError) as caught:
        assembler.consume(load(MessageDelta, deltas[-1]))
    return caught.value.rule


START = ("start", DELTAS["start"])
DONE = ("done", DELTAS["done"])
ERROR = ("error", DELTAS["error"])
TEXT = ("text", DELTAS["text"])


# -- section 3: messages


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
def test_a_message_loads_and_dumps_unchanged(role: str) -> None:
    """000-3.1.1, 000-3.1.2, 000-3.2.16, 000-8.1"""
    kinds = {
        "system": ["text", "thinking"],
        "user": ["text", "image", "file_ref"],
        "assistant": ["thinking", "text", "tool_call"],
        "tool": ["tool_result"],
    }
    usage = {"inputTokens": 12, "outputTokens": 5, "totalTokens": 17}
    meta = {"usage": usage, "trace": {"traceId": "t1"}, "approvals": [{"toolCallId": "call_1", "decision": "approve"}]}
    data = {"id": "m1", **STAMPS, "role": role, "parts": [part(kind) for kind in kinds[role]], "meta": meta}
    message = unchanged(Message, data)
    assert (message.id, message.run_id, message.role, message.timestamp) == ("m1", "run_1", role, NOON)
    assert message.meta.extra is None
    for field in ("id", "runId", "timestamp"):
        with pytest.raises(PartValidationError):
            load(Message, {**data, field: 5})
    without_meta = {key: value for key, value in data.items() if key not in ("meta", "id")}
    assert unchanged(Message, without_meta).meta is None


def test_000_3_1_3_a_timestamp_is_text_and_an_aware_time_inside() -> None:
    message = load(Message, {**STAMPS, "role": "user", "parts": []})
    assert message.timestamp == NOON
    assert message.timestamp is not None
    assert message.timestamp.utcoffset() is not None
    assert dump(message)["timestamp"] == "2026-01-01T12:00:00Z"
    with pytest.raises(PartValidationError):
        load(Message, {"runId": "r", "role": "user", "parts": [], "timestamp": 1767268800})


@pytest.mark.parametrize("kind", PARTS)
def test_a_part_loads_and_dumps_unchanged(kind: str) -> None:
    """000-3.2.1, 000-3.2.2, 000-3.2.3, 000-3.2.4, 000-3.2.5, 000-3.2.6, 000-3.2.7, 000-3.2.8"""
    value = unchanged(Part, part(kind))
    assert value.kind == kind
    not_objects: list[Any] = [[], "text", None]
    for wrong in not_objects:
        with pytest.raises(PartValidationError) as caught:
            load(Part, {"kind": kind, "payload": wrong})
        assert caught.value.path == "$.payload"


@pytest.mark.parametrize("data", MORE_PARTS, ids=lambda data: data["kind"])
def test_the_other_forms_of_a_part_load_and_dump_unchanged(data: dict[str, Any]) -> None:
    """000-3.2.7, 000-3.2.8, 000-3.3.1, 000-3.3.2, 000-3.3.3"""
    value = unchanged(Part, data)
    if isinstance(value, FileRef):
        assert (value.mime_type, value.size) == (None, None)


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("text", "text"),
        ("thinking", "text"),
        ("tool_call", "toolCallId"),
        ("tool_call", "toolName"),
        ("tool_call", "arguments"),
        ("tool_result", "toolCallId"),
        ("tool_result", "content"),
        ("image", "mimeType"),
        ("image", "data"),
        ("file_ref", "path"),
    ],
)
def test_a_part_without_a_required_field_is_rejected(kind: str, field: str) -> None:
    """000-3.2.3, 000-3.2.4, 000-3.2.5, 000-3.2.6, 000-3.2.7, 000-3.2.8"""
    payload = {key: value for key, value in PARTS[kind].items() if key != field}
    with pytest.raises(PartValidationError):
        load(Part, {"kind": kind, "payload": payload})


@pytest.mark.parametrize(
    ("kind", "field", "wrong"),
    [
        ("text", "text", 5),
        ("thinking", "text", None),
        ("tool_call", "toolCallId", 5),
        ("tool_call", "toolName", None),
        ("tool_call", "arguments", [1]),
        ("tool_call", "rawArgsText", {}),
        ("tool_result", "toolCallId", 5),
        ("tool_result", "isError", "no"),
        ("tool_result", "isError", None),
        ("tool_result", "content", 5),
        ("image", "mimeType", None),
        ("image", "data", 5),
        ("file_ref", "path", 5),
        ("file_ref", "mimeType", 5),
        ("file_ref", "size", "large"),
    ],
)
def test_a_field_of_the_wrong_type_is_rejected(kind: str, field: str, wrong: Any) -> None:
    """000-3.2.3, 000-3.2.4, 000-3.2.5, 000-3.2.6, 000-3.2.7, 000-3.2.8, 000-3.3.1, 000-3.3.2"""
    with pytest.raises(PartValidationError) as caught:
        load(Part, part(kind, **{field: wrong}))
    assert caught.value.path == f"$.payload.{field}"


def test_000_3_2_13_the_order_of_parts_is_never_changed() -> None:
    parts = [part("text", text="b"), part("thinking"), part("text", text="a"), part("text", text="b")]
    data = {"role": "assistant", "parts": parts}
    assert dump(load(Message, data))["parts"] == parts
    assert [part.kind for part in load(Message, data).parts] == ["text", "thinking", "text", "text"]
    kinds = ["text", "tool_call", "text", "thinking", "tool_call", "text"]
    deltas = [
        delta
        for number, kind in enumerate(kinds)
        for delta in (call("{}", f"call_{number}") if kind == "tool_call" else [(kind, {"textDelta": "a"})])
    ]
    assert [part.kind for part in assembled(stream(START, *deltas, DONE)).build_final_message().parts] == kinds


def test_000_3_2_14_one_message_may_hold_several_calls() -> None:
    parts = [part("tool_call", toolCallId=f"call_{n}") for n in range(3)]
    message = load(Message, {"role": "assistant", "parts": parts})
    assert [call.tool_call_id for call in message.tool_calls] == ["call_0", "call_1", "call_2"]


def test_000_3_2_15_one_result_answers_one_call() -> None:
    with pytest.raises(PartValidationError):
        load(Part, part("tool_result", toolCallId=["call_1", "call_2"]))
    with pytest.raises(PartValidationError) as caught:
        load(Message, {"role": "tool", "parts": [part("tool_result"), part("tool_result")]})
    assert caught.value.path == "$.parts[1].payload.toolCallId"


# -- section 4: deltas


@pytest.mark.parametrize("kind", DELTAS)
def test_a_delta_loads_and_dumps_unchanged(kind: str) -> None:
    """000-4.1, 000-4.2, 000-4.3, 000-4.4, 000-4.5, 000-4.6, 000-4.7, 000-4.8, 000-4.9, 000-4.10, 000-4.11"""
    data = {**STAMPS, "seq": 4, "kind": kind, "payload": DELTAS[kind]}
    delta = unchanged(MessageDelta, data).delta
    assert (delta.kind, delta.extra) == (kind, None)
    unchanged(MessageDelta, {**data, "providerRaw": {"type": "raw", "n": [1]}})
    unchanged(Delta, {"kind": kind, "payload": DELTAS[kind]})
    optional = {"cost", "message", "retryable"}
    for field in DELTAS[kind].keys() - optional:
        payload = {key: value for key, value in DELTAS[kind].items() if key not in (field, "totalTokens")}
        if field == "totalTokens":  # it can be computed
            assert load(Delta, {"kind": kind, "payload": payload}).total_tokens == 17
            continue
        with pytest.raises(PartValidationError) as caught:
            load(Delta, {"kind": kind, "payload": payload})
        assert caught.value.path == f"$.payload.{field}"


@pytest.mark.parametrize("field", ["runId", "seq", "kind", "payload", "timestamp"])
def test_000_4_1_a_delta_needs_all_its_stamps(field: str) -> None:
    data = {**STAMPS, "seq": 4, "kind": "text", "payload": DELTAS["text"]}
    del data[field]
    with pytest.raises(PartValidationError) as caught:
        load(MessageDelta, data)
    assert caught.value.path == f"$.{field}"


@pytest.mark.parametrize("wrong", [True, 1.5, "1", None])
def test_000_4_1_seq_is_an_integer(wrong: Any) -> None:
    with pytest.raises(PartValidationError):
        load(MessageDelta, {**STAMPS, "seq": wrong, "kind": "text", "payload": DELTAS["text"]})
    start = load(Delta, {"kind": "start", "payload": DELTAS["start"]})
    with pytest.raises(StreamError) as caught:
        MessageAssembler().consume(MessageDelta("run_1", wrong, start, NOON))
    assert caught.value.rule == "000-5.3"


def test_the_decided_fields_load_and_dump_unchanged() -> None:
    """000-4.4, 000-4.5, 000-4.9, 000-4.10, D-3.2.1, D-3.4.1, D-3.4.6"""
    unchanged(Delta, {"kind": "text", "payload": {"textDelta": "a", "newPart": True}})
    unchanged(Delta, {"kind": "thinking", "payload": {"textDelta": "a", "newPart": True}})
    breakdown = {"cacheReadTokens": 4, "cacheWriteTokens": 2, "reasoningTokens": 1}
    unchanged(Delta, {"kind": "usage", "payload": DELTAS["usage"] | breakdown})
    unchanged(Delta, {"kind": "done", "payload": {"finishReason": "length", "rawFinishReason": "max_tokens"}})


# -- section 5: from deltas to a message


def test_000_5_1_start_is_the_first_delta() -> None:
    assert refused(stream(TEXT)) == "000-5.1"
    assert refused(stream(DONE)) == "000-5.1"
    assembled(stream(START))


@pytest.mark.parametrize("end", [DONE, ERROR])
@pytest.mark.parametrize("again", [DONE, ERROR])
def test_000_5_2_a_stream_ends_once(end: tuple[str, Any], again: tuple[str, Any]) -> None:
    assert refused(stream(START, TEXT, end, again)) == "000-5.2"


def test_000_5_3_seq_strictly_increases() -> None:
    deltas = stream(START, TEXT, TEXT)
    deltas[2]["seq"] = deltas[1]["seq"]
    assert refused(deltas) == "000-5.3"
    deltas[2]["seq"] = 0
    assert refused(deltas) == "000-5.3"


def test_000_5_4_text_joins_in_order() -> None:
    """000-2.2, 000-5.4"""
    pieces = [("thinking", {"textDelta": "a"}), ("thinking", {"textDelta": "b"}), TEXT, ("text", {"textDelta": "lo"})]
    message = assembled(stream(START, *pieces, DONE)).build_final_message()
    assert (message.role, message.run_id) == ("assistant", "run_1")
    assert [(part.kind, getattr(part, "text", None)) for part in message.parts] == [
        ("thinking", "ab"),
        ("text", "Hello"),
    ]


def call(args: str, call_id: str = "call_1") -> list[tuple[str, dict[str, Any]]]:
    return [
        ("tool_call_start", {"toolCallId": call_id, "toolName": "read_file"}),
        *(("tool_call_args", {"toolCallId": call_id, "argsTextDelta": piece}) for piece in args),
        ("tool_call_end", {"toolCallId": call_id}),
    ]


def test_000_5_5_arguments_join_per_call_into_one_json_text() -> None:
    first, second = call('{"a": 1}', "call_1"), call('{"b": 2}', "call_2")
    mixed = [delta for pair in zip(first, second, strict=True) for delta in pair]
    message = assembled(stream(START, *mixed, DONE)).build_final_message()
    assert [call.arguments for call in message.tool_calls] == [{"a": 1}, {"b": 2}]
    assert [call.raw_args_text for call in message.tool_calls] == [None, None]


def test_000_5_6_invalid_arguments_are_kept_and_marked() -> None:
    message = assembled(stream(START, *call('{"a": '), DONE)).build_final_message()
    assert [(call.arguments, call.raw_args_text) for call in message.tool_calls] == [({}, '{"a": ')]
    assert list(dump(message)["meta"]["badArgs"]) == ["call_1"]


def test_000_5_7_usage_is_gathered_into_meta() -> None:
    message = assembled(stream(START, ("usage", DELTAS["usage"]), DONE)).build_final_message()
    assert dump(message)["meta"]["usage"] == DELTAS["usage"]


def test_000_5_8_a_stream_that_ends_in_error_gives_no_final_message() -> None:
    from bartack.nouns.errors import ErrorCode, ModelError

    assembler = assembled(stream(START, TEXT, ERROR))
    with pytest.raises(ModelError) as caught:
        assembler.build_final_message()
    assert (caught.value.code, caught.value.retryable) == (ErrorCode.OVERLOADED, True)


# -- section 6: invariants


def test_000_6_1_a_call_id_is_unique() -> None:
    """000-6.1, D-3.8"""
    assert refused(stream(START, *call("{}"), call("{}")[0])) == "D-3.8"
    with pytest.raises(PartValidationError) as caught:
        load(Message, {"role": "assistant", "parts": [part("tool_call"), part("tool_call")]})
    assert caught.value.rule == "000-6.1"


def chain(*facts: Fact) -> list[Entry]:
    def entry(seq: int, fact: Fact) -> Entry:
        if isinstance(fact, Message):
            fact = stamped(fact, id=f"m{seq}", timestamp=NOON)
        return Entry(id=f"e{seq}", session_id="s1", seq=seq, timestamp=NOON, fact=fact)

    return [entry(seq, fact) for seq, fact in enumerate(facts, 1)]


def test_000_6_2_a_call_has_at_most_one_terminal_result() -> None:
    """000-6.2, 004-invariants.2"""
    question, first = assistant(ToolCall("call_1", "read_file", {})), tool_message(ToolResult("call_1", "first"))
    once = fold_tools(chain(question, first))
    for second in (ToolResult("call_1", "second"), ToolResult("call_1", "no", is_error=True)):
        assert fold_tools(chain(question, first, tool_message(second))) == once
    with pytest.raises(PartValidationError):
        tool_message(ToolResult("call_1", "first"), ToolResult("call_1", "second"))


def test_000_6_3_a_result_answers_a_call_that_came_before_it() -> None:
    question, answer = assistant(ToolCall("call_1", "read_file", {})), tool_message(ToolResult("call_1", "yes"))
    assert fold_tools(chain(answer)) == {}
    assert fold_tools(chain(answer, question))["call_1"].status == "pending"
    assert fold_tools(chain(question, answer))["call_1"].status == "completed"


def test_000_6_4_provider_raw_changes_no_result() -> None:
    deltas = stream(START, TEXT, DONE)
    with_raw = [{**delta, "providerRaw": {"textDelta": "another text"}} for delta in deltas]
    assert assembled(deltas).build_final_message() == assembled(with_raw).build_final_message()


def test_000_7_2_an_unknown_kind_of_part_is_rejected() -> None:
    for kind in ("audio", "video", "TEXT", "tool"):
        with pytest.raises(PartValidationError) as caught:
            load(Message, {"role": "user", "parts": [{"kind": kind, "payload": {"text": "x"}}]})
        assert caught.value.path == "$.parts[0].kind"


def test_000_8_1_a_message_has_an_id_of_its_own() -> None:
    assert unchanged(Message, {"id": "m1", "role": "user", "parts": []}) == Message("user", (), id="m1")
    assert Message("user", (Text("x"),)).id is None
