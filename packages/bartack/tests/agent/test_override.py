"""`Agent.override` for tests, and the mode in which the model gets the schema of the output."""

from dataclasses import dataclass
from typing import Any

import pytest

from bartack import Agent, ToolCall, assistant
from bartack.models import ScriptedModel
from bartack.nouns.errors import ConfigError
from tests.agent.kit import call, weather


@dataclass
class City:
    name: str


async def test_another_model_answers_in_the_block_only() -> None:
    own, other = ScriptedModel(["own", "own again"]), ScriptedModel(["other"])
    agent = Agent(own, fallback_models=[own])
    assert (await agent.run("Hi")).output == "own"
    with agent.override(model=other):
        assert (await agent.run("Hi")).output == "other"
        assert agent.model is other
    assert (await agent.run("Hi")).output == "own again"


async def test_other_tools_are_used_in_the_block_only() -> None:
    def fake(city: str) -> str:
        """Weather forecast for a city."""
        return f"sun in {city}"

    fake.__name__ = "weather"
    agent = Agent(
        ScriptedModel([assistant(call("1")), "a", assistant(ToolCall("2", "weather", {"city": "Rome"})), "b"]),
        tools=[weather],
    )
    with agent.override(tools=[fake]):
        result = await agent.run("Hi")
    assert [part.content for part in result.messages[-2].tool_results] == ["sun in Paris"]
    result = await agent.run("Hi")
    assert [part.content for part in result.messages[-2].tool_results] == ["rain in Rome"]


async def test_the_agent_is_as_before_after_an_error() -> None:
    agent = Agent(ScriptedModel(["own"]))
    with pytest.raises(RuntimeError), agent.override(model=ScriptedModel(["other"])):
        raise RuntimeError
    assert (await agent.run("Hi")).output == "own"
    with pytest.raises(ConfigError), agent.override(model=5):  # type: ignore[arg-type]
        pass


@pytest.mark.parametrize(
    ("mode", "is_sent", "is_written"), [(None, True, False), ("native", True, False), ("prompt", False, True)]
)
async def test_the_mode_of_the_output(mode: Any, is_sent: bool, is_written: bool) -> None:
    model = ScriptedModel(['{"name": "Rome"}'])
    agent = Agent(model, output_type=City, output_mode=mode)
    assert (await agent.run("Which?")).output == City("Rome")
    (request,) = model.calls
    assert (request.config.output_schema is not None) == is_sent
    assert any("JSON Schema" in message.text for message in request.messages) == is_written


def test_another_mode_is_refused() -> None:
    with pytest.raises(ConfigError, match="output_mode must be 'native', 'tool' or 'prompt'"):
        Agent(ScriptedModel(["x"]), output_mode="guess")  # type: ignore[call-overload]
