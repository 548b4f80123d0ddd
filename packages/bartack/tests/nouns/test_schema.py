"""The JSON Schema of the nouns: valid data validates, invalid data does not."""

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from bartack.nouns.schema import NOUNS, json_schema

SCHEMA = json_schema()
DELTA = {"runId": "r1", "seq": 1, "timestamp": "2026-01-01T12:00:00Z"}
ENTRY = {"id": "e1", "sessionId": "s1", "seq": 1, "timestamp": "2026-01-01T12:00:00Z"}
TEXT = {"kind": "text", "payload": {"text": "hi"}}


def is_valid(noun: str, data: Any) -> bool:
    return bool(Draft202012Validator({**SCHEMA, "$ref": f"#/$defs/{noun}"}).is_valid(data))


def test_the_schema_is_a_schema_and_names_every_noun() -> None:
    """D-2.4.1"""
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert set(NOUNS) <= set(SCHEMA["$defs"])
    assert list(SCHEMA["$defs"]) == sorted(SCHEMA["$defs"])
    assert json_schema() == SCHEMA


def test_every_reference_resolves_and_every_object_has_a_description() -> None:
    def references(schema: Any) -> list[str]:
        if isinstance(schema, dict):
            own = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
            return own + [reference for value in schema.values() for reference in references(value)]
        return [reference for item in schema for reference in references(item)] if isinstance(schema, list) else []

    assert {name.removeprefix("#/$defs/") for name in references(SCHEMA)} <= set(SCHEMA["$defs"])
    assert [name for name, schema in SCHEMA["$defs"].items() if "type" in schema and not schema["description"]] == []


def test_a_stamped_value_has_kind_and_payload_among_its_keys() -> None:
    entry = SCHEMA["$defs"]["Entry"]
    assert entry["required"] == ["id", "sessionId", "seq", "timestamp"]
    assert {variant["properties"]["kind"]["const"] for variant in entry["oneOf"]} >= {"message", "custom", "redaction"}


@pytest.mark.parametrize(
    ("noun", "data"),
    [
        ("Part", TEXT),
        ("Part", {"kind": "tool_result", "payload": {"toolCallId": "c", "content": [TEXT]}}),
        ("Delta", {"kind": "usage", "payload": {"inputTokens": 1, "outputTokens": 2}}),
        ("MessageDelta", {**DELTA, "kind": "done", "payload": {"finishReason": "stop"}, "new": 1}),
        ("Message", {"role": "user", "parts": [TEXT], "meta": {"new": [1]}}),
        ("Entry", {**ENTRY, "kind": "custom", "payload": {"name": "n", "data": {}}}),
        ("Session", {"sessionId": "s1"}),
        ("ToolChoice", "auto"),
        ("ToolChoice", {"toolName": "read"}),
        ("ModelConfig", {"modelId": "m", "temperature": 1}),
        ("AgentConfig", {}),
        ("AgentState", {"status": "idle"}),
    ],
)
def test_valid_data_validates(noun: str, data: Any) -> None:
    assert is_valid(noun, data)


@pytest.mark.parametrize(
    ("noun", "data"),
    [
        ("Part", {"kind": "audio", "payload": {}}),
        ("Part", {"kind": "text"}),
        ("Part", {"kind": "text", "payload": {"text": 5}}),
        ("Part", {"kind": "text", "payload": {}}),
        ("Part", {"kind": "thinking", "payload": []}),
        ("Part", {"kind": "tool_result", "payload": {"toolCallId": "c", "content": 5}}),
        ("Part", {"kind": "tool_call", "payload": {"toolCallId": "c", "toolName": "t", "arguments": []}}),
        ("Delta", {"kind": "done", "payload": {"finishReason": "bored"}}),
        ("Delta", {"kind": "error", "payload": {"errorCode": "unheard of"}}),
        ("MessageDelta", {"runId": "r", **TEXT}),
        ("MessageDelta", {**DELTA, "kind": "text", "payload": {"textDelta": "a"}, "seq": "1"}),
        ("Message", {"role": "developer", "parts": []}),
        ("Message", {"role": "user", "parts": {}}),
        ("Message", []),
        ("Meta", {"usage": {"inputTokens": 1}}),
        ("Meta", {"tools": {"read": "yes"}}),
        ("Entry", {**ENTRY, "kind": "gossip", "payload": {}}),
        ("Entry", {"kind": "custom", "payload": {"name": "n", "data": {}}}),
        ("Session", {"sessionId": "s", "entries": [{}]}),
        ("ToolSpec", {"name": "n"}),
        ("ToolChoice", "sometimes"),
        ("ModelConfig", {"temperature": 1}),
        ("AgentState", {"status": "asleep"}),
    ],
)
def test_invalid_data_does_not_validate(noun: str, data: Any) -> None:
    assert not is_valid(noun, data)
