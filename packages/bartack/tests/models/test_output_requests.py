"""What the request of an agent with an output type contains: a schema that the provider accepts, or instructions."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import msgspec
import pytest

from bartack.agent import Agent
from bartack.agent.output import OutputType
from bartack.formats.output_schemas import claude_schema, closed, fits_strict_mode, strict_schema
from bartack.models import connect
from bartack.nouns.errors import PartValidationError
from bartack.testing.faults import EVENT_WRITERS
from tests.models.doubles import KEY, BytesClient


@dataclass
class Place:
    city: str


def look(where: str) -> str:
    """Look."""
    return where


ROME = '{"city":"Rome"}'
COHERE = (  # an answer of Cohere
    b'data: {"type":"message-start","id":"1","delta":{"message":{"role":"assistant"}}}\n\n',
    b'data: {"type":"content-start","index":0,"delta":{"message":{"content":{"type":"text","text":""}}}}\n\n',
    b'data: {"type":"content-delta","index":0,"delta":{"message":{"content":{"text":"{\\"city\\":\\"Rome\\"}"}}}}\n\n',
    b'data: {"type":"content-end","index":0}\n\n',
    b'data: {"type":"message-end","delta":{"finish_reason":"COMPLETE"}}\n\n',
)


def said(format: str, answer: str) -> tuple[bytes, ...]:
    say = EVENT_WRITERS[format]
    return say.start(), say.text(answer), say.finish("stop")


async def sent(model: str, pieces: tuple[bytes, ...], output_type: Any = Place, **options: Any) -> Any:
    """The body of the request of a run."""
    client = BytesClient(pieces)
    agent: Agent[Any, Any] = Agent(connect(model, api_key=KEY, client=client), output_type=output_type, **options)
    assert (await agent.run("Where?")).status == "completed"
    return json.loads(client.requests[0].body)


def prompts(body: Any) -> str:
    return json.dumps([body.get("system"), body["messages"]])


@pytest.mark.parametrize("model", ["anthropic:claude-sonnet-4-20250514", "anthropic:claude-3-5-haiku-20241022"])
async def test_a_claude_without_schemas_reads_the_schema_in_its_instructions(model: str) -> None:
    body = await sent(model, said("anthropic-messages", ROME))
    assert "output_config" not in body
    assert "JSON Schema" in prompts(body)
    assert "city" in prompts(body)


async def test_a_claude_that_enforces_schemas_gets_no_instructions() -> None:
    body = await sent("anthropic:claude-sonnet-4-5", said("anthropic-messages", ROME))
    assert body["output_config"]["format"]["type"] == "json_schema"
    assert "JSON Schema" not in prompts(body)


@pytest.mark.parametrize("model", ["deepseek:deepseek-chat", "zai:glm-4.6"])
async def test_json_mode_is_used_together_with_instructions(model: str) -> None:
    body = await sent(model, said("openai-chat", ROME))
    assert body["response_format"] == {"type": "json_object"}
    assert "city" in prompts(body)
    assert "json" in prompts(body)  # DeepSeek requires the word (api-docs.deepseek.com/guides/json_mode)


async def test_cohere_reads_the_schema_since_it_refuses_one_beside_tools() -> None:
    body = await sent("cohere:command-a-03-2025", COHERE, tools=[look])
    assert "response_format" not in body
    assert "city" in prompts(body)


@pytest.mark.parametrize(
    ("model", "enforced", "json_mode"),
    [
        ("anthropic:claude-opus-4-1", True, True),
        ("anthropic:claude-3-opus-20240229", False, False),
        ("deepseek:deepseek-chat", False, True),
        ("openai-chat:gpt-4.1", True, True),
        ("bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0", True, True),
        ("bedrock:anthropic.claude-3-haiku-20240307-v1:0", False, False),
        ("bedrock:amazon.nova-pro-v1:0", False, True),
        ("bedrock-invoke:amazon.titan-text-express-v1", False, False),
        ("bedrock-invoke:anthropic.claude-3-haiku-20240307-v1:0", False, False),
    ],
)
def test_support_for_schemas_depends_on_model_and_vendor(model: str, enforced: bool, json_mode: bool) -> None:
    connected = connect(model, api_key=KEY, client=BytesClient())
    assert (connected.supports("output_schema"), connected.supports("json_mode")) == (enforced, json_mode)


# -- schemas as the providers accept them


class Order(msgspec.Struct):
    count: Annotated[int, msgspec.Meta(ge=1, le=9, description="How many.")]
    places: Annotated[list[Place], msgspec.Meta(max_length=3)]
    note: str = "none"


class Nickname(TypedDict, total=False):
    nickname: str


ORDER = '{"count":1,"places":[],"note":""}'


async def test_claude_gets_closed_objects_and_reads_the_bounds_in_descriptions() -> None:
    body = await sent("anthropic:claude-sonnet-4-5", said("anthropic-messages", ORDER), Order)
    schema = body["output_config"]["format"]["schema"]
    assert schema["additionalProperties"] is False
    assert schema["$defs"]["Place"]["additionalProperties"] is False
    assert schema["properties"]["count"] == {"type": "integer", "description": "How many. (minimum: 1, maximum: 9)"}
    assert schema["properties"]["places"]["description"] == "maxItems: 3"
    assert "maxItems" not in schema["properties"]["places"]
    with pytest.raises(PartValidationError, match="<= 9"):
        OutputType(Order).read('{"count":10,"places":[]}')


@pytest.mark.parametrize("model", ["openai-chat:gpt-4.1", "openai:gpt-4.1"])
async def test_openai_enforces_the_schema_of_a_class(model: str) -> None:
    is_chat = model.startswith("openai-chat")
    body = await sent(model, said("openai-chat" if is_chat else "openai-responses", ORDER), Order)
    shape = body["response_format"]["json_schema"] if is_chat else body["text"]["format"]
    assert shape["strict"] is True
    assert shape["schema"]["required"] == ["count", "places", "note"]
    assert shape["schema"]["properties"]["note"] == {"type": "string", "description": 'default: "none"'}
    assert shape["schema"]["properties"]["count"]["maximum"] == 9
    assert fits_strict_mode(shape["schema"])


async def test_an_optional_property_without_a_default_is_not_made_up() -> None:
    body = await sent("openai-chat:gpt-4.1", said("openai-chat", "{}"), Nickname)
    assert body["response_format"]["json_schema"]["strict"] is False


@pytest.mark.parametrize("type", [dict[str, int], list[tuple[int, str]]])
async def test_a_schema_that_claude_cannot_enforce_is_in_its_instructions(type: Any) -> None:
    answer = '{"value":[]}' if type != dict[str, int] else "{}"
    body = await sent("anthropic:claude-sonnet-4-5", said("anthropic-messages", answer), type)
    assert "output_config" not in body
    assert "JSON Schema" in prompts(body)


TREE = {
    "type": "object",
    "properties": {"in": {"$ref": "#/$defs/T"}},
    "$defs": {"T": {"anyOf": [{"$ref": "#/$defs/T"}]}},
}
SCHEMAS: list[dict[str, Any]] = [
    OutputType(Order).schema,
    {"type": "object", "properties": {"a": {"oneOf": [{"type": "string", "format": "x"}], "discriminator": {}}}},
    {"type": "object", "properties": {"a": {"allOf": [{"type": "number", "multipleOf": 2}]}}},
]


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("change", [claude_schema, strict_schema])
def test_an_accepted_schema_stays_as_it_is(change: Callable[[Any], Any], schema: dict[str, Any]) -> None:
    once = change(closed(schema))
    assert once is None or change(once) == once


def test_recursion_is_not_for_claude() -> None:
    assert claude_schema(TREE) is None
