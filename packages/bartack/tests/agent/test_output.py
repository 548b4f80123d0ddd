"""Structured output: a value of a type, or an error with the reason."""

import asyncio
from dataclasses import dataclass
from types import GenericAlias
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest

from bartack import (
    AgentError,
    DeltaReceived,
    ErrorCode,
    Message,
    Meta,
    PartValidationError,
    Snapshot,
    ToolCall,
    ToolContext,
    TryAgain,
    assistant,
    handoff,
    tool,
)
from bartack.agent import Agent
from bartack.agent.output import OutputType
from bartack.models import ScriptedModel
from bartack.nouns.tables import AgentStatus
from tests.agent.kit import SESSION, make, messages


class Place(msgspec.Struct):
    city: str
    people: int = 0


class Tree(msgspec.Struct):
    name: str
    leaves: list["Tree"] = []


@dataclass
class Point:
    x: int


class Card(TypedDict):
    name: str


@dataclass
class Named:
    name: str


@dataclass
class NamedAndAged:
    name: str
    age: int


@dataclass
class Drawing:
    parts: list[Point | Named]


@pytest.mark.parametrize(
    ("type", "text", "value"),
    [
        (Place, '{"city":"Paris","people":2}', Place("Paris", 2)),
        (Point, '{"x":1}', Point(1)),
        (list[int], '{"value":[1,2]}', [1, 2]),
        (int | None, '{"value":null}', None),
        (list[Place], '{"value":[{"city":"Rome"}]}', [Place("Rome")]),
        (dict[str, int], '{"a":1}', {"a": 1}),
        (Tree, '{"name":"a","leaves":[{"name":"b"}]}', Tree("a", [Tree("b")])),
        (Place, '```json\n{"city":"Paris"}\n```', Place("Paris")),
        (Place, 'Here:\n```json\n{"city":"Paris"}\n```\nbye', Place("Paris")),
        (Place, 'Not ```json\n{"city":"Rome"}\n```\nbut\n```json\n{"city":"Paris"}```', Place("Paris")),
        (Place, '```json\n{"city":"a ```b``` c"}\n```\nThen:\n```sh\nls\n```', Place("a ```b``` c")),
        (Place, '{"city":"```json\\n{}```"}', Place("```json\n{}```")),
        (list[int], "Here:\n```json\n[1]\n```", [1]),
        (Literal["yes", "no"], "```\nyes\n```", "yes"),
        (int, "42", 42),
        (int, '{"value":"42"}', 42),
        (bool, '{"value":true}', True),
        (Literal["yes", "no"], "yes", "yes"),
        (list[int], "[1]", [1]),
        (Card, '{"name":"Ada"}', {"name": "Ada"}),
        (Place | Point, '{"value":{"x":1}}', Point(1)),
        (Place | Point, '{"x":"1"}', Point(1)),
        (Place | Tree, '{"value":{"city":"Rome"}}', Place("Rome")),
        (Named | NamedAndAged, '{"value":{"name":"Ada","age":36}}', NamedAndAged("Ada", 36)),
    ],
)
def test_schema_and_value_of_a_type(type: Any, text: str, value: Any) -> None:
    output = OutputType(type)
    assert output.schema["type"] == "object"
    assert output.read(text) == value
    assert "schema" in output.instructions.lower()


@pytest.mark.parametrize("text", ["no json", '{"people":1}', '{"city":1}', "[null]"])
def test_text_that_does_not_match_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(PartValidationError):
        OutputType(Place).read(text)
    with pytest.raises(PartValidationError):
        OutputType(list[int]).read(text)


def test_a_pydantic_model_can_be_the_output_type() -> None:
    pydantic = pytest.importorskip("pydantic")
    town = pydantic.create_model("Town", city=(str, ...), people=(int, 0))
    output = OutputType(town)
    assert output.schema["properties"]["city"]["type"] == "string"
    assert output.read('{"city":"Rome"}') == town(city="Rome")
    with pytest.raises(PartValidationError, match="city"):
        output.read("{}")


def test_pydantic_models_may_be_anywhere_in_a_type() -> None:
    pydantic = pytest.importorskip("pydantic")
    town: Any = pydantic.create_model("Town", city=(str, ...))
    person = pydantic.create_model("Person", name=(str, ...))
    assert OutputType(GenericAlias(list, town)).read('{"value":[{"city":"Rome"}]}') == [town(city="Rome")]
    assert OutputType(town | person).read('{"value":{"name":"Ada"}}') == person(name="Ada")
    with pytest.raises(PartValidationError, match=r"city: Field required; .*name: Field required"):
        OutputType(town | person).read('{"value":{}}')


def test_constraints_of_pydantic_are_shown_and_checked_anywhere_in_a_type() -> None:
    pydantic = pytest.importorskip("pydantic")
    positive = Annotated[int, pydantic.Field(gt=0, description="more than nothing")]

    @pydantic.dataclasses.dataclass
    class Box:
        size: positive

    @dataclass
    class Shelf:
        boxes: list[positive]

    cases = ((positive, "1", "0"), (list[positive], "[1]", "[0]"), (Box, '{"size":1}', '{"size":0}'))
    for type, good, bad in (*cases, (Shelf, '{"boxes":[1]}', '{"boxes":[0]}')):
        output = OutputType(type)
        assert '"exclusiveMinimum":0' in output.instructions
        assert "more than nothing" in output.instructions
        output.read(good)
        with pytest.raises(PartValidationError, match="greater than 0"):
            output.read(bad)

    struct = msgspec.defstruct("Crate", [("size", positive)])
    with pytest.raises(PartValidationError, match=r"Crate\.size.*msgspec\.Meta"):
        OutputType(struct)


def test_unions_of_classes_may_be_anywhere_in_a_type() -> None:
    pydantic = pytest.importorskip("pydantic")
    cat: Any = pydantic.create_model("Cat", kind=(Literal["cat"], ...), lives=(int, 9))
    dog: Any = pydantic.create_model("Dog", kind=(Literal["dog"], ...), name=(str, ""))
    pets = '{"value":[{"kind":"dog","name":"Rex"},{"kind":"cat"}]}'
    tagged = Annotated[cat | dog, pydantic.Field(discriminator="kind")]
    for type in (list[cat | dog], list[tagged]):
        assert OutputType(type).read(pets) == [dog(kind="dog", name="Rex"), cat(kind="cat")]
    assert OutputType(tagged).read('{"kind":"cat","lives":8}') == cat(kind="cat", lives=8)
    places = '{"value":[{"city":"Rome"},{"x":1}]}'
    assert OutputType(list[Place | Point]).read(places) == [Place("Rome"), Point(1)]
    assert OutputType(dict[str, Point | Named]).read('{"a":{"name":"Ada"}}') == {"a": Named("Ada")}
    assert OutputType(list[Place | cat]).read('{"value":[{"kind":"cat"}]}') == [cat(kind="cat")]
    assert OutputType(Drawing).read('{"parts":[{"x":1},{"name":"Ada"}]}') == Drawing([Point(1), Named("Ada")])
    with pytest.raises(PartValidationError, match=r"missing required field `city`; or .*`x`"):
        OutputType(list[Place | Point]).read("[{}]")


@pytest.mark.parametrize(
    ("type", "text", "value"),
    [
        (Place, "", None),
        (Place, '{"ci', {}),
        (Place, '```json\n{"city":"Pa', {"city": "Pa"}),
        (list[int], '{"value":[1,2', [1, 2]),
        (list[int], '{"val', None),
        (Place, 'Here:\n```json\n{"city":"Pa', {"city": "Pa"}),
        (Place, 'Here:\n```json\n{"city":"Pa"}\n```\nbye', {"city": "Pa"}),
        (Place, '{"city":"```py\\n', {"city": "```py\n"}),
        (Place, "Here:", None),
    ],
)
def test_a_value_that_is_still_arriving(type: Any, text: str, value: Any) -> None:
    assert OutputType(type).partial(text) == value


def test_a_type_without_a_schema_is_refused() -> None:
    with pytest.raises(PartValidationError) as caught:
        OutputType(object())
    assert caught.value.code is ErrorCode.INVALID_CONFIG


async def test_the_output_is_a_value_of_the_type() -> None:
    agent, _, model = make(['{"city":"Paris"}'], output_type=Place)
    assert (await agent.run("Where?", session=SESSION)).output == Place("Paris")
    assert model.calls[0].config.output_schema == OutputType(Place).schema
    assert (await agent.resume(SESSION)).output == Place("Paris")


async def test_an_invalid_answer_is_requested_again_with_the_error() -> None:
    agent, store, model = make(["Paris!", '{"city":7}', '{"city":"Paris"}'], output_type=Place)
    assert (await agent.run("Where?", session=SESSION)).output == Place("Paris")
    stored = await messages(store)
    assert "Expected `str`, got `int`" in stored[4].text
    assert stored[4].parts[0].synthetic  # type: ignore[union-attr]
    assert len(model.calls) == 3


async def test_a_model_that_never_gives_a_valid_answer_fails_the_run() -> None:
    agent, _, model = make(["Paris!"] * 9, output_type=Place)
    result = await agent.run("Where?", session=SESSION)
    assert (result.status, len(model.calls)) == (AgentStatus.FAILED, 3)
    assert result.error is not None
    assert result.error.error_code is ErrorCode.INVALID_OUTPUT


async def test_corrections_are_counted_across_resume() -> None:
    answers: list[Any] = ["Paris!", assistant(ToolCall("t", "transfer", {"amount": 1})), "Rome!", "Oslo!", "never"]
    agent, _, model = make(answers, output_type=Place)
    await agent.run("Where?", session=SESSION)
    await agent.deny(SESSION, "t")
    result = await agent.resume(SESSION)
    assert result.error is not None
    assert (result.error.error_code, len(model.calls)) == (ErrorCode.INVALID_OUTPUT, 4)


async def test_a_validator_checks_and_changes_the_output() -> None:
    def in_france(place: Place) -> Place:
        if place.city != "Paris":
            raise TryAgain("The city must be in France.")
        return Place(place.city.upper())

    agent, _, model = make(['{"city":"Rome"}', '{"city":"Paris"}'], output_type=Place, output_validator=in_france)
    assert (await agent.run("Where?", session=SESSION)).output == Place("PARIS")
    assert "The city must be in France." in model.calls[1].messages[-1].text


@pytest.mark.parametrize("option", ["output_validator", "output_function"])
async def test_a_validator_or_function_that_fails_is_a_clear_error(option: str) -> None:
    def broken(city: str) -> str:
        raise KeyError("no such table")

    options: dict[str, Any] = {option: broken}
    agent, _, model = make(['{"city":"Paris"}'], **options)
    with pytest.raises(AgentError, match=f"The {option.replace('_', ' ')} raised KeyError: 'no such table'") as caught:
        await agent.run("Where?", session=SESSION)
    assert (caught.value.code, len(model.calls)) == (ErrorCode.INVALID_OUTPUT, 1)
    assert isinstance(caught.value.__cause__, KeyError)
    failed = await agent.resume(SESSION)
    assert failed.error is not None
    assert failed.error.error_code is ErrorCode.INVALID_OUTPUT


async def test_a_validator_that_fails_on_a_stored_answer_is_part_of_the_result() -> None:
    agent, store, _ = make(["Rain."])
    await agent.run("Weather?", session=SESSION)

    def broken(text: str) -> str:
        raise ValueError("no")

    strict, _, _ = make([], store=store, output_validator=broken)
    result = await strict.resume(SESSION)
    with pytest.raises(AgentError, match="The output validator raised ValueError: no"):
        _ = result.output


async def test_a_validator_of_text_may_be_async() -> None:
    async def short(text: str) -> str:
        await asyncio.sleep(0)
        if len(text) > 5:
            raise TryAgain("Be brief.")
        return text

    agent, _, _ = make(["It is raining.", "Rain."], output_validator=short)
    assert (await agent.run("Weather?", session=SESSION)).output == "Rain."


async def test_the_output_of_a_function_is_what_it_returns() -> None:
    async def find(city: str, context: ToolContext[dict[str, int]], people: int = 0) -> Place:
        """Find a city."""
        if city not in context.deps:
            raise TryAgain(f"There is no {city}.")
        return Place(city, people or context.deps[city])

    agent, _, model = make(['{"city":"Nowhere"}', '{"city":7}', '{"city":"Paris"}'], output_function=find)
    assert (await agent.run("Where?", session=SESSION, deps={"Paris": 2})).output == Place("Paris", 2)
    schema = model.calls[0].config.output_schema
    assert schema is not None
    assert set(schema["properties"]) == {"city", "people"}
    assert "There is no Nowhere." in model.calls[1].messages[-1].text
    assert "Expected `str`, got `int`" in model.calls[2].messages[-1].text


def test_a_value_is_no_output_type() -> None:
    with pytest.raises(PartValidationError, match="this is a value; pass the class Named"):
        Agent(ScriptedModel([]), output_type=Named("Paris"))  # type: ignore[call-overload]


def test_an_output_has_one_source() -> None:
    def find(city: str) -> Place:
        return Place(city)

    with pytest.raises(PartValidationError, match="not both"):
        Agent(ScriptedModel([]), output_type=Place, output_function=find)  # type: ignore[call-overload]
    with pytest.raises(PartValidationError, match="no type hint") as caught:
        Agent(ScriptedModel([]), output_function=lambda city: city)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


async def test_snapshots_have_what_has_arrived_of_the_output() -> None:
    agent, _, _ = make(['{"city":"Paris","people":2}'], output_type=Place)
    async with agent.stream("Where?", session=SESSION, snapshots=True) as run:
        outputs = [event.output async for event in run if isinstance(event, Snapshot)]
        assert run.partial_output() == {"city": "Paris", "people": 2}
    assert run.partial_output() == {"city": "Paris", "people": 2}
    assert len(outputs) > 2
    assert outputs[-1] == {"city": "Paris", "people": 2}
    assert {"city": ""} in outputs or {"city": "P"} in outputs or {"city": "Paris"} in outputs, outputs


async def test_the_whole_output_is_there_from_the_last_delta_on() -> None:
    agent, _, _ = make(['{"value":[1,2]}'], output_type=list[int])
    async with agent.stream("Count", session=SESSION) as run:
        last = [run.partial_output() async for event in run if isinstance(event, DeltaReceived)][-1]
    assert last == [1, 2]
    assert run.partial_output() == [1, 2]


async def test_a_model_without_schema_support_gets_instructions() -> None:
    class Plain(ScriptedModel):
        def supports(self, feature: str) -> bool:
            return feature not in ("output_schema", "json_mode")

    model = Plain(['{"city":"Rome"}'])
    agent, _, _ = make(model, output_type=Place, instructions="Be brief.")
    assert (await agent.run("Where?", session=SESSION)).output == Place("Rome")
    assert model.calls[0].config.output_schema is None
    assert model.calls[0].messages[0].text.startswith("Be brief.")
    assert '"city"' in model.calls[0].messages[0].text


def test_members_of_a_union_with_the_same_name_keep_their_own_schemas() -> None:
    place = msgspec.defstruct("Thing", [("city", str)], module="places")
    point = msgspec.defstruct("Thing", [("x", int)], module="points")
    schema = msgspec.json.encode(OutputType(place | point).schema)
    assert b'"city"' in schema
    assert b'"x"' in schema


@pytest.mark.parametrize("continued", ["resume", "abort"])
async def test_a_stored_answer_of_another_type_is_an_error_in_the_result(continued: str) -> None:
    agent, store, _ = make(["Just text."])
    await agent.run("Go", session=SESSION)
    typed = Agent(ScriptedModel([]), store=store, output_type=Place)
    result = await getattr(typed, continued)(SESSION)
    assert result.status is AgentStatus.COMPLETED
    assert result.message is not None
    assert result.message.text == "Just text."
    with pytest.raises(AgentError, match="stored answer is not a valid output") as caught:
        _ = result.output
    assert caught.value.code is ErrorCode.INVALID_OUTPUT


async def test_only_requests_for_correction_count_as_such() -> None:
    echo = "Your answer is not valid: I know."
    agent, _, _ = make([echo, echo, '{"city":"Rome"}'], output_type=Place)
    assert (await agent.run("Go", session=SESSION)).output == Place("Rome")


# -- the answer as the arguments of a tool


def called(name: str, call_id: str = "c", **arguments: Any) -> Message:
    return assistant(ToolCall(call_id, name, arguments), meta=Meta(finish_reason="tool_calls"))


async def test_a_model_may_answer_with_a_tool() -> None:
    model = ScriptedModel([called("look", "c1"), called("final_answer", "c2", city="Rome", people=3)])
    agent, _, _ = make(model, look, output_type=Place, output_mode="tool")
    result = await agent.run("Where?", session=SESSION)
    assert (result.output, result.reason, result.tool_rounds) == (Place("Rome", 3), None, 2)
    for call in model.calls:
        assert call.config.output_schema is None
        assert call.config.tool_choice == "required"
        assert [spec.name for spec in call.tools] == ["final_answer", "look"]
        assert '"city"' not in "".join(message.text for message in call.messages if message.role == "system")
    assert model.calls[0].tools[0].parameter_schema == OutputType(Place).schema
    assert (await agent.resume(SESSION)).output == Place("Rome", 3)


@tool
def look() -> str:
    """Look around."""
    return "Rome"


async def test_an_answer_with_a_tool_is_corrected_like_text() -> None:
    def in_italy(place: Place) -> Place:
        if place.city != "Rome":
            raise TryAgain("Not in Italy.")
        return place

    answers: list[Message | str] = [
        called("final_answer", "c1", town=1),
        called("final_answer", "c2", city="Paris"),
        '{"city": "Rome"}',
    ]
    agent, _, _ = make(answers, output_type=Place, output_mode="tool", output_validator=in_italy)
    result = await agent.run("Where?", session=SESSION)
    assert result.output == Place("Rome")
    prompts = [message.text for message in result.messages if message.role == "user"]
    assert ["city" in prompts[1], "Not in Italy." in prompts[2], len(prompts)] == [True, True, 3]


async def test_an_answer_with_a_tool_arrives_in_parts_and_a_list_is_wrapped() -> None:
    agent, _, _ = make([called("final_answer", value=[1, 2, 3])], output_type=list[int], output_mode="tool")
    async with agent.stream("Count", session=SESSION, snapshots=True) as run:
        outputs = [event.output async for event in run if isinstance(event, Snapshot)]
    assert outputs[-1] == [1, 2, 3]
    assert run.partial_output() == [1, 2, 3]
    assert run.result.output == [1, 2, 3]


async def test_a_conversation_continues_after_an_answer_with_a_tool() -> None:
    model = ScriptedModel([called("final_answer", "c1", city="Rome"), called("final_answer", "c2", city="Oslo")])
    agent, _, _ = make(model, output_type=Place, output_mode="tool")
    await agent.run("Where?", session=SESSION)
    assert (await agent.run("And now?", session=SESSION)).output == Place("Oslo")
    assert [message.role for message in model.calls[1].messages] == ["user", "assistant", "tool", "user"]


async def test_a_model_that_cannot_be_made_to_call_a_tool_is_asked_to() -> None:
    class Free(ScriptedModel):
        def supports(self, feature: str) -> bool:
            return feature != "tool_choice"

    model = Free([called("final_answer", city="Rome")])
    agent, _, _ = make(model, output_type=Place, output_mode="tool")
    assert (await agent.run("Where?", session=SESSION)).output == Place("Rome")
    assert model.calls[0].config.tool_choice is None


async def test_text_is_not_given_as_a_tool() -> None:
    model = ScriptedModel(["Rome"])
    agent, _, _ = make(model, output_mode="tool")
    assert (await agent.run("Where?", session=SESSION)).output == "Rome"
    assert "final_answer" not in [spec.name for spec in model.calls[0].tools]
    assert model.calls[0].config.tool_choice is None


async def test_an_agent_that_takes_over_answers_in_the_same_way() -> None:
    second = Agent(ScriptedModel([called("final_answer", "c2", city="Rome")]), name="second")
    agent, _, _ = make(
        [called("transfer_to_second", "c1")],
        handoff(second, "Knows places."),
        output_type=Place,
        output_mode="tool",
    )
    assert (await agent.run("Where?", session=SESSION)).output == Place("Rome")
