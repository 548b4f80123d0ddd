"""Structured output: a value of a type, or an error with the reason."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from bartack import AgentStatus, ErrorCode, Meta, PartValidationError, assistant
from bartack.agent.output import OutputType
from bartack.models import ScriptedModel
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
    ],
)
def test_schema_and_value_of_a_type(type: Any, text: str, value: Any) -> None:
    output = OutputType(type)
    assert output.schema["type"] == "object"
    assert output.read(text) == value
    assert "schema" in output.instructions.lower()


@pytest.mark.parametrize("text", ["no json", '{"people":1}', '{"city":1}', "[]"])
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


async def test_a_refusal_is_not_retried() -> None:
    agent, _, model = make([assistant("No.", meta=Meta(finish_reason="refusal"))], output_type=Place)
    result = await agent.run("Where?", session=SESSION)
    assert (result.status, result.reason, len(model.calls)) == (AgentStatus.FAILED, "refusal", 1)


async def test_a_model_without_schema_support_gets_instructions() -> None:
    class Plain(ScriptedModel):
        def supports(self, feature: str) -> bool:
            return feature != "output_schema"

    model = Plain(['{"city":"Rome"}'])
    agent, _, _ = make(model, output_type=Place, instructions="Be brief.")
    assert (await agent.run("Where?", session=SESSION)).output == Place("Rome")
    assert model.calls[0].config.output_schema is None
    assert model.calls[0].messages[0].text.startswith("Be brief.")
    assert '"city"' in model.calls[0].messages[0].text
