"""Output schemas in the forms that Claude and OpenAI's strict mode accept."""

from typing import Any

import pytest

from bartack.formats import format_named, read_request
from bartack.formats.output_schemas import claude_schema, closed, is_closed, strict_schema
from bartack.nouns.json_values import json_text

Json = dict[str, Any]
TEXT = {"type": "string"}
CITY: Json = {"type": "object", "properties": {"name": TEXT}, "required": ["name"]}
CLOSED_CITY: Json = {**CITY, "additionalProperties": False}
TREE: Json = {
    "$ref": "#/$defs/Tree",
    "$defs": {
        "Tree": {"type": "object", "properties": {"leaves": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}}}
    },
}


def test_objects_that_list_their_properties_are_closed() -> None:
    assert closed(CITY) == CLOSED_CITY
    free = {"type": "object", "additionalProperties": CITY}
    assert closed(free) == {"type": "object", "additionalProperties": CLOSED_CITY}
    nested = {"anyOf": [CITY, {"type": "array", "items": CITY}], "$defs": {"City": CITY, "Anything": True}}
    assert closed(nested) == {
        "anyOf": [CLOSED_CITY, {"type": "array", "items": CLOSED_CITY}],
        "$defs": {"City": CLOSED_CITY, "Anything": True},
    }


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (CLOSED_CITY, True),
        (CITY, False),
        ({"type": "object", "additionalProperties": TEXT}, False),
        ({"type": "array", "prefixItems": [TEXT]}, False),
        (closed(TREE), False),
        ({"$ref": "#/$defs/City", "$defs": {"City": CLOSED_CITY, "Odd": 5}}, True),
    ],
)
def test_which_schemas_can_be_enforced(schema: Json, expected: bool) -> None:
    assert is_closed(schema) is expected
    assert (claude_schema({**schema, "$defs": schema.get("$defs", {})}) is not None) is (expected or schema == CITY)


def test_claude_gets_bounds_as_descriptions() -> None:
    schema = {
        "type": "object",
        "properties": {
            "age": {"type": "integer", "minimum": 0, "description": "In years."},
            "day": {"type": "string", "format": "date"},
            "odd": {"type": "string", "format": "color", "title": "Odd", "discriminator": {}},
            "tags": {"type": "array", "items": TEXT, "minItems": 1, "maxItems": 3},
            "one": {"oneOf": [TEXT, {"type": "null"}]},
        },
    }
    converted = claude_schema(schema)
    assert converted is not None
    assert converted["additionalProperties"] is False
    properties = converted["properties"]
    assert properties["age"] == {"type": "integer", "description": "In years. (minimum: 0)"}
    assert properties["day"] == {"type": "string", "format": "date"}
    assert properties["odd"] == {"type": "string", "title": "Odd", "description": 'format: "color"'}
    assert properties["tags"] == {"type": "array", "items": TEXT, "minItems": 1, "description": "maxItems: 3"}
    assert properties["one"] == {"anyOf": [TEXT, {"type": "null"}]}


def test_strict_mode_requires_properties_with_a_default() -> None:
    schema = {**CLOSED_CITY, "properties": {"name": TEXT, "people": {"type": "integer", "default": 0}}}
    assert strict_schema(schema) == {
        **CLOSED_CITY,
        "properties": {"name": TEXT, "people": {"type": "integer", "description": "default: 0"}},
        "required": ["name", "people"],
    }
    day = {**CLOSED_CITY, "properties": {"name": {"type": "string", "format": "date", "minLength": 3}}}
    assert strict_schema(day) == {
        **CLOSED_CITY,
        "properties": {"name": {"type": "string", "format": "date", "description": "minLength: 3"}},
    }


@pytest.mark.parametrize(
    "schema",
    [
        {**CLOSED_CITY, "properties": {"name": TEXT, "people": {"type": "integer"}}},  # optional without a default
        {"type": "array", "prefixItems": [TEXT]},
        {"allOf": [CLOSED_CITY]},
        {"type": "object", "additionalProperties": TEXT},
    ],
)
def test_strict_mode_cannot_enforce_everything(schema: Json) -> None:
    assert strict_schema(schema) is None


@pytest.mark.parametrize(
    ("format", "model", "expected"),
    [
        ("anthropic-messages", "claude-sonnet-4-6", True),
        ("anthropic-messages", "claude-3-5-haiku-latest", False),
        ("anthropic-messages", "other-model", False),
        ("bedrock-invoke", "amazon.titan-text-express-v1", False),
        ("bedrock-invoke", "anthropic.claude-sonnet-4-6", True),
        ("bedrock-invoke", "us.amazon.nova-pro-v1:0", False),
        ("bedrock-invoke", "mistral.mistral-large-2402-v1:0", False),
    ],
)
def test_which_models_enforce_a_schema(format: str, model: str, expected: bool) -> None:
    assert ("output_schema" in format_named(format).features_of("any", model)) is expected


@pytest.mark.parametrize(("schema", "is_kept"), [(CLOSED_CITY, False), (CITY, True)])
def test_a_schema_that_would_be_sent_differently_is_read_and_kept_as_it_was(schema: Json, is_kept: bool) -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "A city?"}]}
    output = {"format": {"type": "json_schema", "schema": schema}}
    body = {"model": "claude-sonnet-4-6", "max_tokens": 10, "messages": [message], "output_config": output}
    request = read_request("anthropic-messages", body)
    assert request.config.output_schema == schema
    assert (request.config.extra is not None) is is_kept

    definition = {"jsonSchema": {"schema": json_text(schema)}}
    converse = {
        "messages": [{"role": "user", "content": [{"text": "A city?"}]}],
        "outputConfig": {"textFormat": {"type": "json_schema", "structure": definition}},
    }
    request = read_request("bedrock-converse", converse, model_id="anthropic.claude-sonnet-4-6")
    assert request.config.output_schema == schema
    assert (request.config.extra is not None) is is_kept
