"""Laws of the nouns, the assembler and the contract."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from msgspec.structs import force_setattr, replace

from bartack.nouns.config import AgentConfig, AgentState, ModelConfig, ToolChoice, ToolSpec
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
)
from bartack.nouns.entries import Entry, Session
from bartack.nouns.errors import ErrorCode, PartValidationError, StreamError
from bartack.nouns.messages import Message, Meta
from bartack.nouns.parts import Part, Text, Thinking, ToolCall
from bartack.nouns.schema import json_schema
from bartack.nouns.wire import decode, dump, encode, load
from bartack.stream.assembler import MessageAssembler
from bartack.stream.contract import StreamLimits
from bartack.stream.partial_json import PartialJson
from bartack.views import document, feed, ledger
from lab.repository import ROOT, source_files
from tests.properties import strategies as some

RULES = set(re.findall(r"^- \*\*([^*]+)\*\*", (ROOT / "docs" / "spec.md").read_text(encoding="utf-8"), re.MULTILINE))
NOUNS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "Part": (Part, some.parts),
    "Delta": (Delta, some.deltas),
    "MessageDelta": (MessageDelta, some.message_deltas),
    "Message": (Message, some.messages()),
    "Meta": (Meta, some.metas),
    "Entry": (Entry, some.entries),
    "Session": (Session, some.raw_sessions | some.plausible_sessions),
    "ModelConfig": (ModelConfig, some.model_configs),
    "AgentConfig": (AgentConfig, some.agent_configs),
    "AgentState": (AgentState, some.agent_states),
    "ToolSpec": (ToolSpec, some.struct(ToolSpec)),
}
SCHEMA = json_schema()
VALIDATORS = {name: Draft202012Validator({**SCHEMA, "$ref": f"#/$defs/{name}"}) for name in NOUNS}
each_noun = pytest.mark.parametrize("name", NOUNS)


# -- JSON


@each_noun
@given(data=st.data())
def test_a_dumped_value_loads_as_an_equal_one(name: str, data: st.DataObject) -> None:
    """D-2.4"""
    noun, values = NOUNS[name]
    value = data.draw(values)
    wire_value = dump(value)
    read = load(noun, wire_value)
    assert read == value
    assert dump(read) == wire_value
    assert decode(noun, encode(value)) == value
    assert json.loads(encode(value)) == wire_value


@each_noun
@given(data=st.data())
def test_written_json_validates_against_the_schema(name: str, data: st.DataObject) -> None:
    """D-2.4.1"""
    VALIDATORS[name].validate(dump(data.draw(NOUNS[name][1])))


@given(some.of_type(ToolChoice))
def test_a_tool_choice_is_written_and_read(choice: Any) -> None:
    assert load(ToolChoice, dump(ModelConfig("m", tool_choice=choice))["toolChoice"]) == choice


@each_noun
@given(data=st.data())
def test_an_unknown_key_survives_in_any_known_object(name: str, data: st.DataObject) -> None:
    """D-2.4"""
    noun, values = NOUNS[name]
    wire_value = dump(data.draw(values))
    places = [place for place in _objects(wire_value, _MAPS) if "kind" not in place or "timestamp" in place]
    if not places:  # a part or a delta: only kind and payload
        return
    data.draw(st.sampled_from(places))["x-unknown"] = data.draw(some.json_values)
    assert dump(load(noun, wire_value)) == wire_value


# Keys of objects whose own keys are data: each value in them has the same type.
_MAPS = frozenset({"tools", "badArgs", "enabled", "approval"})


def _objects(value: Any, without: frozenset[str] = frozenset()) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        inner = [item for key, item in value.items() if key not in without]
        return [value, *(inner_object for item in inner for inner_object in _objects(item, without))]
    return (
        [inner_object for item in value for inner_object in _objects(item, without)] if isinstance(value, list) else []
    )


@each_noun
@given(data=st.data())
def test_any_json_loads_or_raises_part_validation_error(name: str, data: st.DataObject) -> None:
    noun, values = NOUNS[name]
    wrong = _broken(data, dump(data.draw(values)))
    value, error = _loaded(noun, wrong)
    if error is None:
        assert load(noun, dump(value)) == value
    else:
        assert error.path.startswith("$")
        assert error.rule is None or error.rule in RULES


def _loaded(noun: Any, data: Any) -> tuple[Any, PartValidationError | None]:
    try:
        return load(noun, data), None
    except PartValidationError as error:
        return None, error


def _broken(data: st.DataObject, wire_value: Any) -> Any:
    """The JSON with one value somewhere replaced or removed."""
    places = [(place, key) for place in _objects(wire_value) for key in place]
    if not places:
        return data.draw(some.json_values)
    place, key = data.draw(st.sampled_from(places))
    if data.draw(st.booleans()):
        del place[key]
    else:
        place[key] = data.draw(some.json_values | st.just(float("nan")) | st.just("\ud800"))
    return wire_value


@given(some.json_values | st.binary() | st.text())
def test_any_text_is_a_message_or_rejected(value: Any) -> None:
    text = value if isinstance(value, str | bytes) else json.dumps(value)
    with pytest.raises(PartValidationError):
        decode(Message, text)


@given(some.json_objects)
def test_continuation_data_survives_storage_byte_for_byte(data: dict[str, Any]) -> None:
    """D-3.9.1"""
    part = load(Part, {"kind": "text", "payload": {"text": "", "continuation": _from("p", data)}})
    again = decode(Part, encode(part))
    assert isinstance(again, Text)
    assert again.continuation is not None
    assert json.dumps(again.continuation.data) == json.dumps(data)


def _from(provider: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"provider": provider, "model": "m", "data": data}


# -- streams


def consumed(stream: list[MessageDelta]) -> MessageAssembler:
    assembler = MessageAssembler()
    for delta in stream:
        assembler.consume(delta)
    return assembler


@given(some.streams())
def test_the_assembler_accepts_every_legal_stream(stream: list[MessageDelta]) -> None:
    """000-5.1, 000-5.2, 004-invariants.5"""
    assembler = consumed(stream)
    last = stream[-1].delta
    assert assembler.status.value == last.kind
    assert assembler.last_seq == stream[-1].seq
    if isinstance(last, Done):
        message = assembler.build_final_message()
        assert load(Message, dump(message)) == message


@given(some.streams(end="done"))
def test_snapshots_only_grow_and_the_last_one_is_the_final_message(stream: list[MessageDelta]) -> None:
    """001-1.8, 001-4.2.3"""
    assembler = MessageAssembler()
    before = assembler.snapshot()
    for delta in stream:
        assembler.consume(delta)
        snapshot = assembler.snapshot()
        _assert_grown(before.parts, snapshot.parts)
        before = snapshot
    assert before == assembler.build_final_message()


def _assert_grown(before: tuple[Part, ...], parts: tuple[Part, ...]) -> None:
    assert [part.kind for part in parts[: len(before)]] == [part.kind for part in before]
    for earlier, later in zip(before, parts, strict=False):
        if isinstance(earlier, Text | Thinking) and isinstance(later, Text | Thinking):
            assert later.text.startswith(earlier.text)
        elif isinstance(earlier, ToolCall) and isinstance(later, ToolCall):
            assert (later.tool_call_id, later.tool_name) == (earlier.tool_call_id, earlier.tool_name)
            if earlier.raw_args_text is not None and later.raw_args_text is not None:
                assert later.raw_args_text.startswith(earlier.raw_args_text)


@given(some.streams(end="done"))
def test_building_a_context_changes_nothing(stream: list[MessageDelta]) -> None:
    observed = MessageAssembler()
    for delta in stream:
        observed.consume(delta)
        observed.snapshot()
    assert observed.build_final_message() == consumed(stream).build_final_message()


@given(some.streams(end="done"))
def test_the_text_is_the_joined_text_and_calls_keep_their_order_and_arguments(stream: list[MessageDelta]) -> None:
    """000-5.4, 000-5.5, D-3.2.2"""
    message = consumed(stream).build_final_message()
    deltas = [stamped.delta for stamped in stream]
    assert message.text == "".join(delta.text_delta for delta in deltas if isinstance(delta, TextDelta))
    assert message.thinking == "".join(delta.text_delta for delta in deltas if isinstance(delta, ThinkingDelta))
    opened = [delta.tool_call_id for delta in deltas if isinstance(delta, ToolCallStart)]
    assert [call.tool_call_id for call in message.tool_calls] == opened
    assert message.meta is not None
    for call in message.tool_calls:
        text = "".join(
            delta.args_text_delta
            for delta in deltas
            if isinstance(delta, ToolCallArgs) and delta.tool_call_id == call.tool_call_id
        )
        if call.tool_call_id in (message.meta.bad_args or {}):
            assert (call.raw_args_text, call.arguments) == (text, {})
        else:
            assert call.arguments == (json.loads(text) if text.strip() else {})


@given(some.streams(), some.streams(end="done"))
def test_after_a_reset_nothing_of_the_old_stream_remains(first: list[MessageDelta], second: list[MessageDelta]) -> None:
    """001-4.2.5"""
    assembler = consumed(first)
    assembler.reset()
    assert assembler.snapshot() == MessageAssembler().snapshot()
    for delta in second:
        assembler.consume(delta)
    assert assembler.build_final_message() == consumed(second).build_final_message()


def _with_delta(stamped: MessageDelta, delta: Any) -> MessageDelta:
    return replace(stamped, delta=delta)


def _ill_typed(draw: st.DataObject, delta: Delta) -> Delta:
    """A copy with another value in its first field, which is always required: a number, bytes, half a character."""
    copy = replace(delta)
    name = delta.__struct_fields__[0]
    number = isinstance(getattr(delta, name), int)
    wrong = draw.draw(st.sampled_from([None, b"x", ["x"], "\ud800", "x" if number else 7]))
    force_setattr(copy, name, wrong)
    return copy


def illegal(data: st.DataObject, place: int, stream: list[MessageDelta]) -> Any:
    """A delta that is not allowed at this point of the stream, between its start and its end."""
    original = stream[place]
    opened = [message.delta.tool_call_id for message in stream[:place] if isinstance(message.delta, ToolCallStart)]
    closed = [message.delta.tool_call_id for message in stream[:place] if isinstance(message.delta, ToolCallEnd)]
    wrong: list[Any] = [
        replace(original, seq=stream[place - 1].seq),
        replace(original, seq=data.draw(st.integers(-5, stream[place - 1].seq))),
        replace(original, timestamp=original.timestamp.replace(tzinfo=None)),
        replace(original, run_id="another"),
        _with_delta(original, stream[0].delta),
        _with_delta(original, ToolCallArgs("never opened", "{}")),
        _with_delta(original, ToolCallEnd("never opened")),
        _with_delta(original, Text("no delta")),
        _with_delta(original, ToolCallStart("", "t")),
        _with_delta(original, TextDelta("x" * 10_001)),
        _with_delta(original, TextDelta("\ud800")),
        _with_delta(original, ThinkingDelta("", continuation={"x": float("inf")})),
        _with_delta(original, _ill_typed(data, original.delta)),
        original.delta,
    ]
    wrong += [_with_delta(original, ToolCallStart(call_id, "t")) for call_id in opened]
    wrong += [_with_delta(original, ToolCallArgs(call_id, "{}")) for call_id in closed]
    wrong += [_with_delta(original, ToolCallEnd(call_id)) for call_id in closed]
    if set(opened) - set(closed):
        wrong.append(_with_delta(original, Done("stop")))
    return data.draw(st.sampled_from(wrong))


def refused(assembler: MessageAssembler, delta: Any) -> StreamError:
    """The error; also checks that the rule exists and that the assembler is unchanged."""
    before = (assembler.snapshot(), assembler.status, assembler.last_seq, assembler.usage, assembler.error)
    with pytest.raises(StreamError) as caught:
        assembler.consume(delta)
    assert caught.value.rule in RULES
    assert (assembler.snapshot(), assembler.status, assembler.last_seq, assembler.usage, assembler.error) == before
    return caught.value


@given(some.streams(), st.data())
def test_a_rejected_delta_changes_nothing_and_the_stream_can_continue(
    stream: list[MessageDelta], data: st.DataObject
) -> None:
    """D-4.3"""
    assembler = MessageAssembler(stream[0].run_id, limits=StreamLimits(max_chars=10_000))
    refused(assembler, data.draw(st.sampled_from(stream[1:])))  # before start
    place = data.draw(st.integers(1, len(stream) - 1))
    for number, delta in enumerate(stream):
        if number == place:
            refused(assembler, illegal(data, place, stream))
        assembler.consume(delta)
    assert assembler.snapshot() == consumed(stream).snapshot()
    seq = stream[-1].seq + data.draw(st.integers(-1, 1))
    refused(assembler, replace(data.draw(st.sampled_from(stream)), seq=seq))


@given(some.streams(), st.data())
def test_a_stream_out_of_order_is_rejected(stream: list[MessageDelta], data: st.DataObject) -> None:
    """000-5.3, 004-invariants.4, 001-1.10"""
    a = data.draw(st.integers(0, len(stream) - 2))
    b = data.draw(st.integers(a + 1, len(stream) - 1))
    swapped = [*stream]
    swapped[a], swapped[b] = swapped[b], swapped[a]
    repeated = [*stream[: b + 1], stream[a], *stream[b + 1 :]]
    for wrong in (swapped, repeated, stream[1:]):
        with pytest.raises(StreamError) as caught:
            consumed(wrong)
        assert caught.value.rule in RULES


@given(some.streams(), st.data())
def test_any_delta_is_accepted_or_raises_stream_error(stream: list[MessageDelta], data: st.DataObject) -> None:
    assembler = consumed(stream[: data.draw(st.integers(0, len(stream)))])
    stray = data.draw(st.builds(MessageDelta, some.names, st.integers(-1, 99), some.deltas, some.times))
    assert _rule_against(assembler, stray) in {*RULES, None}
    assert load(Message, dump(assembler.snapshot())) == assembler.snapshot()


@given(st.lists(some.json_objects, min_size=1, max_size=3))
def test_growing_arguments_are_read_a_bounded_number_of_times(rows: list[dict[str, Any]]) -> None:
    """D-2.8: each piece re-reads only the unfinished token, however long the text before it."""
    text = json.dumps({"rows": rows * 20})
    parser, read = PartialJson(), 0
    for character in text:
        read += len(parser._tail) + 1
        parser.feed(character)
    assert parser.value == json.loads(text)
    assert read <= 32 * len(text)  # the longest token that is read again is a number of some thirty digits


def _rule_against(assembler: MessageAssembler, delta: MessageDelta) -> str | None:
    try:
        assembler.consume(delta)
    except StreamError as error:
        return error.rule or "unnamed"
    return None


# -- sessions


@given(some.sessions())
def test_a_view_depends_on_its_entries_only(entries: list[Entry]) -> None:
    """D-1.1"""
    copies = [decode(Entry, encode(entry)) for entry in entries]
    for view in (ledger, feed, document):
        expected = view.dump(entries)
        assert view.dump(copies) == expected
        view.dump(copies[: len(copies) // 2])
        assert view.dump(iter(entries)) == expected


@given(some.sessions())
def test_a_plausible_session_is_a_numbered_chain(entries: list[Entry]) -> None:
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert entries[0].parent_id is None
    entry_ids: set[str | None] = set()
    for entry in entries:
        assert entry.parent_id in entry_ids or not entry_ids
        entry_ids.add(entry.id)


# -- the rules themselves


def test_every_rule_that_the_source_names_exists() -> None:
    citations = {
        (path.name, rule)
        for path in source_files()
        for rule in re.findall(r'"((?:00[0-4]|D)-[\w.-]*\d)"', path.read_text(encoding="utf-8"))
    }
    assert citations
    assert sorted((name, rule) for name, rule in citations if rule not in RULES) == []


def test_a_failed_delta_keeps_its_code_as_an_enum() -> None:
    failed = decode(Delta, encode(Failed(ErrorCode.TIMEOUT)))
    assert isinstance(failed, Failed)
    assert failed.error_code is ErrorCode.TIMEOUT
    assert isinstance(decode(Delta, encode(Start("m", "q"))), Start)
