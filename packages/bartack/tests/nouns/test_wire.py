"""Nouns to JSON and back: names, times, kinds, unknown keys, and invalid JSON."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any, ClassVar, Generic, Literal, TypeVar

import pytest
from msgspec import Struct

from bartack.nouns.config import AgentConfig, ModelConfig
from bartack.nouns.deltas import Delta, MessageDelta, TextDelta, Usage
from bartack.nouns.entries import Custom, Entry, SystemPromptOverride
from bartack.nouns.errors import ErrorCode, MissingRequiredField, PartValidationError
from bartack.nouns.messages import Message, Meta, user
from bartack.nouns.noun import Noun
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.wire import MAX_DEPTH, Dialect, camel, decode, dump, encode, load

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_TEXT = "2026-01-01T12:00:00Z"
ENTRY = {"id": "e1", "sessionId": "s1", "seq": 1, "timestamp": NOON_TEXT}
DELTA = {"runId": "r1", "seq": 1, "timestamp": NOON_TEXT}
CALL = {"toolCallId": "c1", "toolName": "t", "arguments": {}}


def nested(depth: int, leaf: Any = None) -> Any:
    """An object of `depth` levels, including itself."""
    value = {} if leaf is None else {"a": leaf}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


def refusal(noun: Any, data: Any) -> PartValidationError:
    with pytest.raises(PartValidationError) as caught:
        load(noun, data)
    return caught.value


def part(kind: str, **payload: Any) -> dict[str, Any]:
    return {"kind": kind, "payload": payload}


def message(*parts: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


# -- the form of the JSON


@pytest.mark.parametrize(
    ("name", "wire"), [("text", "text"), ("tool_call_id", "toolCallId"), ("cost_usd", "costUsd"), ("top_p", "topP")]
)
def test_a_name_is_written_in_camel_case(name: str, wire: str) -> None:
    assert camel(name) == wire


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (Text("hi"), part("text", text="hi")),
        (Thinking(""), part("thinking", text="")),
        (ToolCall("c1", "t", {"a": [None]}), part("tool_call", toolCallId="c1", toolName="t", arguments={"a": [None]})),
        (ToolResult("c1", "ok"), part("tool_result", toolCallId="c1", content="ok", isError=False)),
        (
            ToolResult("c1", (Text("a"),), is_error=True, error_code=ErrorCode.TIMEOUT),
            part("tool_result", toolCallId="c1", content=[part("text", text="a")], isError=True, errorCode="timeout"),
        ),
        (Image("image/png", data=b"\x00\xff"), part("image", mimeType="image/png", data="AP8=")),
        (FileRef("a", size=3), part("file_ref", path="a", size=3)),
    ],
    ids=lambda value: getattr(value, "kind", None),
)  # fmt: skip
def test_a_part_is_written_with_its_kind_around_it(value: Part, data: dict[str, Any]) -> None:
    """000-3.2.1, D-2.4"""
    assert dump(value) == data
    assert load(Part, data) == value


def test_the_payload_of_a_part_is_read_by_its_class() -> None:
    assert load(Text, {"text": "hi"}) == Text("hi")


def test_defaults_are_omitted_and_required_nulls_are_written() -> None:
    assert dump(AgentConfig()) == {}
    assert dump(Message("user", ())) == {"role": "user", "parts": []}
    assert dump(SystemPromptOverride(text=None)) == {"text": None}
    assert load(SystemPromptOverride, {"text": None}) == SystemPromptOverride(text=None)


def test_a_value_equal_to_its_default_is_omitted() -> None:
    by_whom: Any = "".join(["cli", "ent"])
    assert dump(ToolCall("c1", "t", {}, executed_by=by_whom)) == part("tool_call", **CALL)


def test_text_of_a_subclass_is_text() -> None:
    class Name(str):
        __slots__ = ()

    assert encode(Text(Name("x"))) == encode(Text("x"))


def test_a_number_of_a_subclass_is_a_number() -> None:
    class Count(int):
        __slots__ = ()

    assert encode(ToolCall("c1", "t", {"n": Count(3)})) == encode(ToolCall("c1", "t", {"n": 3}))


def test_a_time_is_written_in_utc_and_read_in_any_zone() -> None:
    """000-3.1.3"""
    tokyo = NOON.astimezone(timezone(timedelta(hours=9)))
    assert dump(Message("user", (), timestamp=tokyo))["timestamp"] == NOON_TEXT
    for text in (NOON_TEXT, "2026-01-01T21:00:00+09:00", "2026-01-01T12:00:00.000Z"):
        read = load(Message, {**message(), "timestamp": text}).timestamp
        assert (read, read and read.tzinfo) == (NOON, UTC)


def test_another_dialect_has_its_own_names_and_times() -> None:
    snake = Dialect(rename=str, time="ms")
    value = MessageDelta("r1", 1, TextDelta("a"), NOON)
    ms = int(NOON.timestamp() * 1000)
    data = {"run_id": "r1", "seq": 1, "kind": "text", "payload": {"text_delta": "a"}, "timestamp": ms}
    assert snake.dump(value) == data
    assert snake.load(MessageDelta, data) == value
    for wrong in (NOON_TEXT, 1.5, True, 10**20):
        with pytest.raises(PartValidationError) as caught:
            snake.load(MessageDelta, {**data, "timestamp": wrong})
        assert caught.value.path == "$.timestamp"


def test_json_text_is_written_and_read() -> None:
    assert encode(Text("é")) == '{"kind":"text","payload":{"text":"é"}}'.encode()
    for text in (encode(user("é")), encode(user("é")).decode()):
        assert decode(Message, text) == user("é")


class Circle(Noun, frozen=True):
    type: ClassVar = "circle"
    radius: float


class Square(Noun, frozen=True):
    type: ClassVar = "square"
    side: int


class Drawing(Noun, frozen=True):
    shapes: tuple[Circle | Square, ...]
    names: dict[str, Circle | Square]
    scale: float | Literal["fit"] = 1


def test_a_class_may_write_its_tag_as_a_key() -> None:
    data = {
        "shapes": [{"type": "circle", "radius": 1.5}, {"type": "square", "side": 2, "color": "red"}],
        "names": {"a": {"type": "square", "side": 3}},
        "scale": "fit",
    }
    drawing = Drawing((Circle(1.5), Square(2, extra={"color": "red"})), {"a": Square(3)}, "fit")
    assert load(Drawing, data) == drawing
    assert dump(drawing) == data
    assert load(Drawing, {**data, "scale": 0.5}).scale == 0.5
    assert dump(Drawing((), {}, 2)) == {"shapes": [], "names": {}, "scale": 2}


@pytest.mark.parametrize(
    ("shape", "path", "code"),
    [
        ([], "$.shapes[0]", ErrorCode.INVALID_VALUE),
        ({"radius": 1}, "$.shapes[0].type", ErrorCode.MISSING_FIELD),
        ({"type": "cube"}, "$.shapes[0].type", ErrorCode.UNKNOWN_KIND),
        ({"type": 5}, "$.shapes[0].type", ErrorCode.UNKNOWN_KIND),
        ({"type": "circle", "radius": "1"}, "$.shapes[0].radius", ErrorCode.INVALID_VALUE),
    ],
)
def test_a_wrong_tag_is_rejected(shape: Any, path: str, code: ErrorCode) -> None:
    error = refusal(Drawing, {"shapes": [shape], "names": {}})
    assert (error.path, error.code) == (path, code)


def test_a_mapping_is_an_object() -> None:
    assert refusal(Drawing, {"shapes": [], "names": []}).path == "$.names"
    assert refusal(Drawing, {"shapes": [], "names": {"b": 5}}).path == "$.names.b"


# -- unknown keys


@pytest.mark.parametrize("key", ["x", "extra", "fact", "delta", "kind ", "spliced", "text_delta", ""])
def test_an_unknown_key_survives_at_every_level(key: str) -> None:
    """D-2.4"""
    delta = {**DELTA, "kind": "text", "payload": {"textDelta": "a", key: 1.5}, key: "top"}
    entry = {**ENTRY, "kind": "message_delta_batch", "payload": {"deltas": [delta], key: [1]}, key: {"deep": [None]}}
    assert dump(load(Entry, entry)) == entry
    text = {**message(part("text", text="a", **{key: 1})), key: 1, "meta": {key: {}, "usage": {**Usages.least, key: 0}}}
    assert dump(load(Message, text)) == text


class Usages:
    least: ClassVar[dict[str, int]] = {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}


def test_unknown_keys_come_after_the_known_ones() -> None:
    assert list(dump(load(Text, {"zzz": 1, "text": "a"}))["payload"]) == ["text", "zzz"]


def test_a_known_key_in_extra_never_replaces_the_real_one() -> None:
    assert dump(Message("user", (), extra={"role": "tool", "x": 1})) == {"role": "user", "parts": [], "x": 1}
    stamped = MessageDelta("r", 1, TextDelta("a"), NOON, extra={"kind": "done", "payload": {}})
    assert dump(stamped)["kind"] == "text"


# -- invalid JSON, and its path


@pytest.mark.parametrize(
    ("noun", "data", "path"),
    [
        (Message, [], "$"),
        (Message, "text", "$"),
        (Message, None, "$"),
        (Message, message("text"), "$.parts[0]"),
        (Message, {"role": "user", "parts": {}}, "$.parts"),
        (Message, message(part("text", text=5)), "$.parts[0].payload.text"),
        (Message, message({"kind": "text", "payload": []}), "$.parts[0].payload"),
        (Message, message(role="developer"), "$.role"),
        (Message, {**message(), "runId": 5}, "$.runId"),
        (Message, {**message(), "meta": {"tools": {"a": 1}}}, "$.meta.tools.a"),
        (Message, {**message(), "meta": {"tools": []}}, "$.meta.tools"),
        (Message, {**message(), "meta": {"trace": []}}, "$.meta.trace"),
        (Message, {**message(), "meta": {"aborted": 0}}, "$.meta.aborted"),
        (Message, {**message(), "meta": {"durationMs": 1.5}}, "$.meta.durationMs"),
        (Message, {**message(), "meta": {"durationMs": True}}, "$.meta.durationMs"),
        (Message, {**message(), "meta": {"costUsd": True}}, "$.meta.costUsd"),
        (Message, {**message(), "meta": {"finishReason": "bored"}}, "$.meta.finishReason"),
        (Entry, {**ENTRY, "seq": True, **part("custom", name="n", data={})}, "$.seq"),
        (Entry, {**ENTRY, **part("custom", name="n", data=[])}, "$.payload.data"),
        (Part, part("tool_call", **{**CALL, "arguments": []}), "$.payload.arguments"),
        (Part, part("tool_call", **{**CALL, "arguments": "{}"}), "$.payload.arguments"),
        (Part, part("tool_result", toolCallId="c", content=5), "$.payload.content"),
        (Part, part("tool_result", toolCallId="c", content="", errorCode="oops"), "$.payload.errorCode"),
        (Delta, part("usage", inputTokens="1", outputTokens=1), "$.payload.inputTokens"),
        (ModelConfig, {"modelId": "m", "stopSequences": ["a", 1]}, "$.stopSequences[1]"),
    ],
)  # fmt: skip
def test_a_wrong_type_is_rejected_with_its_path(noun: Any, data: Any, path: str) -> None:
    error = refusal(noun, data)
    assert (error.path, error.code) == (path, ErrorCode.INVALID_VALUE)
    assert path in str(error) or path == "$"


@pytest.mark.parametrize(
    ("noun", "data", "path"),
    [
        (Message, {"parts": []}, "$.role"),
        (Message, message({"payload": {}}), "$.parts[0].kind"),
        (Message, message({"kind": "text"}), "$.parts[0].payload"),
        (Message, message(part("text")), "$.parts[0].payload.text"),
        (MessageDelta, {**DELTA, "kind": "text"}, "$.payload"),
        (MessageDelta, {"runId": "r", "seq": 1, **part("text", textDelta="")}, "$.timestamp"),
        (Entry, ENTRY, "$.kind"),
        (Entry, {**ENTRY, **part("custom", name="n")}, "$.payload.data"),
        (ModelConfig, {}, "$.modelId"),
    ],
)
def test_a_missing_field_is_rejected_with_its_path(noun: Any, data: Any, path: str) -> None:
    error = refusal(noun, data)
    assert isinstance(error, MissingRequiredField)
    assert (error.path, error.code) == (path, ErrorCode.MISSING_FIELD)


@pytest.mark.parametrize("kind", ["audio", "Text", "", None, 5, []])
@pytest.mark.parametrize(
    ("noun", "around", "path"),
    [
        (Part, lambda kind: {"kind": kind, "payload": {}}, "$.kind"),
        (Delta, lambda kind: {"kind": kind, "payload": {}}, "$.kind"),
        (MessageDelta, lambda kind: {**DELTA, "kind": kind, "payload": {}}, "$.kind"),
        (Entry, lambda kind: {**ENTRY, "kind": kind, "payload": {}}, "$.kind"),
        (Message, lambda kind: message(part("text", text=""), {"kind": kind, "payload": {}}), "$.parts[1].kind"),
    ],
    ids=["part", "delta", "message_delta", "entry", "message"],
)
def test_an_unknown_kind_is_rejected_with_its_path(noun: Any, around: Any, path: str, kind: Any) -> None:
    """000-7.2"""
    error = refusal(noun, around(kind))
    assert (error.path, error.code) == (path, ErrorCode.UNKNOWN_KIND)


@pytest.mark.parametrize(
    ("data", "path", "rule"),
    [
        (message(part("tool_call", **CALL)), "$.parts[0]", "000-3.2.10"),
        (message(part("image", mimeType="i", data="YQ==", url="u")), "$.parts[0].payload", "000-3.2.7"),
        (message(part("image", mimeType="i")), "$.parts[0].payload", "000-3.2.7"),
        (message(part("file_ref", path="p", data="YQ==", url="u")), "$.parts[0].payload", "000-3.2.8"),
        (
            message(part("tool_call", **CALL), part("tool_call", **CALL), role="assistant"),
            "$.parts[1].payload.toolCallId",
            "000-6.1",
        ),
        (
            message(part("tool_call", **{**CALL, "toolCallId": ""}), role="assistant"),
            "$.parts[0].payload.toolCallId",
            "000-6.1",
        ),
    ],
)
def test_a_violated_rule_is_reported_with_its_path(data: Any, path: str, rule: str) -> None:
    error = refusal(Message, data)
    assert (error.path, error.rule) == (path, rule)


@pytest.mark.parametrize("data", ["!!", "YQ", "YQ=\n=", "é", 5])
def test_invalid_base64_is_rejected(data: Any) -> None:
    assert refusal(Part, part("image", mimeType="i", data=data)).path == "$.payload.data"


@pytest.mark.parametrize(
    "time",
    [
        "2026-01-01T12:00:00",
        "2026-01-01",
        "yesterday",
        "",
        1767268800,
        "2026-13-01T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
    ],
)
def test_a_time_without_a_zone_or_out_of_range_is_rejected(time: Any) -> None:
    assert refusal(MessageDelta, {**DELTA, "timestamp": time, **part("text", textDelta="")}).path == "$.timestamp"


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_not_finite_is_rejected_both_ways(number: float) -> None:
    assert refusal(Part, part("tool_call", **{**CALL, "arguments": {"a": [number]}})).path == "$.payload.arguments.a[0]"
    assert refusal(Usage, {**Usages.least, "cost": number}).path == "$.cost"
    with pytest.raises(PartValidationError) as caught:
        dump(Usage(1, 2, cost=number))
    assert caught.value.path == "$.payload.cost"


def test_an_integer_too_large_for_a_float_is_rejected_as_a_cost() -> None:
    assert refusal(Usage, {**Usages.least, "cost": 10**5000}).path == "$.cost"


def test_an_integer_with_too_many_digits_is_rejected() -> None:
    with pytest.raises(PartValidationError, match="not JSON"):
        encode(Usage(10**5000, 1))


SURROGATE = "half \ud83d"


@pytest.mark.parametrize(
    ("data", "path"),
    [
        (message(part("text", text=SURROGATE)), "$.parts[0].payload.text"),
        (message(role=SURROGATE), "$.role"),
        ({**message(), "timestamp": SURROGATE}, "$.timestamp"),
        (message(part("image", mimeType="i", data=SURROGATE)), "$.parts[0].payload.data"),
        (message(part("text", text="", metadata={"a": [SURROGATE]})), "$.parts[0].payload.metadata.a[0]"),
        (message(part("text", text="", metadata={"a": {SURROGATE: 1}})), "$.parts[0].payload.metadata.a"),
        ({**message(), "meta": {"tools": {SURROGATE: True}}}, "$.meta.tools"),
        ({**message(), SURROGATE: 1}, "$"),
        ({**message(), "x": SURROGATE}, "$.x"),
        (dict([*message().items(), (5, 1)]), "$"),
        ({**message(), "x": {5: 1}}, "$.x"),
    ],
)
def test_text_that_cannot_be_stored_is_rejected_as_value_and_as_key(data: Any, path: str) -> None:
    assert refusal(Message, data).path == path


@pytest.mark.parametrize(
    "extra", [{SURROGATE: 1}, {5: 1}, {"x": SURROGATE}, {"x": b"raw"}, {"x": object()}, {"x": {1}}]
)
def test_extra_keys_made_in_python_are_checked_when_written(extra: Any) -> None:
    with pytest.raises(PartValidationError):
        encode(Text("", extra=extra))


PLACES = {
    "arguments": lambda value: part("tool_call", **{**CALL, "arguments": value}),
    "metadata": lambda value: part("text", text="", metadata=value),
    "x": lambda value: part("text", text="", x=value),
    "content": lambda value: part("tool_result", toolCallId="c", content=value, isError=False),
}


@pytest.mark.parametrize("key", PLACES)
def test_reading_and_writing_have_the_same_depth_limit(key: str) -> None:
    """D-2.4"""
    deepest = PLACES[key](nested(MAX_DEPTH))
    assert dump(load(Part, deepest)) == deepest
    error = refusal(Part, PLACES[key](nested(MAX_DEPTH + 1)))
    assert error.path.startswith(f"$.payload.{key}.a")
    assert str(MAX_DEPTH) in error.message


def test_deep_nesting_is_rejected_when_written() -> None:
    assert dump(ToolCall("c", "t", nested(MAX_DEPTH)))
    with pytest.raises(PartValidationError, match="nested"):
        dump(ToolCall("c", "t", nested(MAX_DEPTH + 1)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "nope",
        "{'role': 1}",
        '{"role": NaN}',
        "[" * 100_000,
        b"\xff\xfe",
        '"\ud800"',
        '"\\ud800"',
        '{"a": 1e999}',
        '{"a": 1} trailing',
    ],
    ids=lambda text: repr(text[:10]),
)
def test_text_that_is_not_json_is_rejected(text: Any) -> None:
    with pytest.raises(PartValidationError) as caught:
        decode(Message, text)
    assert caught.value.path == "$"


def test_a_json_list_is_not_a_message() -> None:
    with pytest.raises(PartValidationError, match="expected an object for Message, got a list"):
        decode(Message, "[]")


# -- values that cannot be written


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (MessageDelta("r", 1, "text", NOON), "$"),  # type: ignore[arg-type]
        (Entry(id="e", session_id="s", seq=1, timestamp=NOON, fact=Text("a")), "$"),  # type: ignore[arg-type]
        (Message("user", (), timestamp="noon"), "$.timestamp"),  # type: ignore[arg-type]
        (Message("user", (), timestamp=datetime(2026, 1, 1)), "$.timestamp"),  # noqa: DTZ001
        (MessageDelta("r", 1, TextDelta("a"), "noon"), "$.timestamp"),  # type: ignore[arg-type]
        (Image("image/png", data="text"), "$.payload.data"),  # type: ignore[arg-type]
        (Message("user", (Text("a", metadata={"x": {1, 2}}),)), "$.parts[0].payload.metadata.x"),
        (Meta(tools={5: True}), "$.tools"),  # type: ignore[dict-item]
        (Meta(summary="text"), "$.summary"),  # type: ignore[arg-type]
        (ToolResult("c", 5), "$.payload.content"),  # type: ignore[arg-type]
        (Custom(name="n", data={"x": b"raw"}), "$.data.x"),
    ],
)
def test_a_value_of_the_wrong_type_is_not_written(value: Any, path: str) -> None:
    with pytest.raises(PartValidationError) as caught:
        encode(value)
    assert caught.value.path == path


class Picture(Noun, frozen=True):
    data: bytes


def test_bytes_are_bytes() -> None:
    assert load(Picture, dump(Picture(b"\x00"))) == Picture(b"\x00")
    with pytest.raises(PartValidationError) as caught:
        dump(Picture("text"))  # type: ignore[arg-type]
    assert caught.value.path == "$.data"


def test_an_enum_within_free_json_is_its_value() -> None:
    assert dump(Custom(name="n", data={"code": ErrorCode.TIMEOUT, "pair": (1, 2)})) == {
        "name": "n",
        "data": {"code": "timeout", "pair": [1, 2]},
    }


def test_a_part_has_no_keys_beside_kind_and_payload() -> None:
    """000-3.2.1: a third key could not be kept, and dropping it would be a silent loss."""
    with pytest.raises(PartValidationError) as caught:
        load(Part, {"kind": "text", "payload": {"text": "a"}, "id": "p1"})
    assert caught.value.path == "$.id"


Item = TypeVar("Item")


class Boxed(Struct, Generic[Item]):
    """A value of a generic class, as the result of a run is one."""

    value: Item | None = None


def test_lists_of_nouns_and_values_of_generic_classes_can_be_dumped() -> None:
    assert dump([Text("a"), 5]) == [dump(Text("a")), 5]
    assert dump(Boxed(Text("a"))) == {"value": dump(Text("a"))}
    with pytest.raises(PartValidationError, match=r"at `\$\[1\]`"):
        dump((5, object()))
