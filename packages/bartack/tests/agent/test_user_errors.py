"""What a Python user meets who makes a mistake: one family of errors, which name the mistake and what exists."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol, TypedDict

import pytest

from bartack import (
    Agent,
    DeltaReceived,
    ErrorCode,
    PartValidationError,
    RunFinished,
    ToolContext,
    ToolRegistry,
    connect,
    tool,
    user,
)
from bartack.models import ScriptedModel
from bartack.nouns import wire
from bartack.nouns.deltas import MessageDelta, TextDelta, ThinkingDelta
from bartack.nouns.errors import ConfigError
from bartack.tools import ToolDefinition


@dataclass
class Shop:
    name: str = "books"


class Bank:
    pass


@tool
def order(number: str, context: ToolContext[Shop]) -> str:
    """An order."""
    return context.deps.name


def agent_with(**options: Any) -> Agent[Any, Any]:
    return Agent(ScriptedModel(["Hi."]), **options)


MISTAKES: dict[str, Any] = {
    "an option of the wrong type": lambda: agent_with(tools="weather"),
    "an unknown option": lambda: agent_with(toolz=[]),
    "an unknown vendor": lambda: connect("antropic:claude"),
    "a model without a vendor": lambda: connect("claude-sonnet-4-6"),
    "a wrong setting": lambda: connect("anthropic:m", api_key="k", temperature="hot"),
    "a misspelled setting": lambda: connect("anthropic:m", api_key="k", temperture=1),
    "a tool without type hints": lambda: tool(lambda number: number),
    "a tool twice": lambda: ToolRegistry([order, order]),
    "a tool that cannot run": lambda: ToolDefinition(name="x", description="", parameter_schema={}),
    "an output type without a schema": lambda: agent_with(output_type=object()),
    "an empty prompt": lambda: agent_with().stream(),
    "messages of OpenAI as a prompt": lambda: agent_with().stream([{"role": "user", "content": "Hi"}]),  # type: ignore[arg-type]
    "a number as a prompt": lambda: agent_with().stream(3),  # type: ignore[arg-type]
    "a tool of a provider as a dictionary": lambda: agent_with(tools=[{"type": "web_search"}]),
    "a misspelled setting of a run": lambda: agent_with().stream("Hi", sesion="s"),  # type: ignore[call-arg]
    "a tool for other dependencies": lambda: agent_with(tools=[order], deps_type=Bank),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_every_mistake_is_a_configuration_error(mistake: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        mistake()
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert isinstance(refused.value, TypeError)
    assert isinstance(refused.value, PartValidationError)


def test_a_misspelled_argument_of_a_run_lists_what_exists() -> None:
    with pytest.raises(ConfigError, match=r"'sesion'\. Did you mean 'session'\? Known: session, history, head"):
        agent_with().stream("Hi", sesion="s")  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match=r"option of Agent 'toolz'\. Did you mean 'tools'\?"):
        agent_with(toolz=[])


@pytest.mark.parametrize("prompt", [{"role": "user", "content": "Hi"}, [{"role": "user", "content": "Hi"}]])
def test_messages_of_a_provider_as_a_prompt_get_a_hint(prompt: Any) -> None:
    with pytest.raises(ConfigError, match=r"read_request, and pass earlier ones as history="):
        agent_with().stream(prompt)


def test_a_tool_for_other_dependencies_is_refused_when_the_agent_is_built() -> None:
    with pytest.raises(ConfigError, match=r"'order' uses dependencies of type Shop .* but the agent has Bank"):
        Agent(ScriptedModel(["Hi."]), tools=[order], deps_type=Bank)
    Agent(ScriptedModel(["Hi."]), tools=[order], deps_type=Shop)


def test_a_tool_for_other_dependencies_is_refused_when_a_run_begins() -> None:
    with pytest.raises(ConfigError, match="but the agent has Bank"):
        agent_with(tools=[order]).stream("Hi", deps=Bank())
    assert agent_with(tools=[order]).run_sync("Hi", deps=Shop()).output == "Hi."

    class BigShop(Shop):
        pass

    assert agent_with(tools=[order]).run_sync("Hi", deps=BigShop()).output == "Hi."


class Named(Protocol):
    name: str


class Settings(TypedDict):
    name: str


@pytest.mark.parametrize(("kind", "deps"), [(Named, Shop()), (Settings, {"name": "books"})])
def test_a_tool_may_describe_its_dependencies_by_their_shape(kind: Any, deps: Any) -> None:
    def describe(context: Any) -> str:
        """The shop."""
        return "books"

    describe.__annotations__["context"] = ToolContext[kind]
    agent = agent_with(tools=[tool(describe)], deps_type=type(deps))
    assert agent.run_sync("Hi", deps=deps).output == "Hi."


def test_a_run_outside_of_asyncio_says_so() -> None:
    run = agent_with().run("Hi")
    with pytest.raises(ConfigError, match="needs asyncio"):
        run.send(None)


def test_a_delta_has_its_text_or_its_thinking() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    text = DeltaReceived(MessageDelta("r", 0, TextDelta("Hi"), now))
    thinking = DeltaReceived(MessageDelta("r", 0, ThinkingDelta("Hm"), now))
    assert (text.text, text.thinking) == ("Hi", "")
    assert (thinking.text, thinking.thinking) == ("", "Hm")


async def test_the_last_event_has_the_typed_result() -> None:
    agent = Agent(ScriptedModel(['{"name": "Rome"}']), output_type=Shop)
    async with agent.stream("Which?") as run:
        finished = [event async for event in run if isinstance(event, RunFinished)]
    assert finished[0].result.output.name == "Rome"


async def test_every_event_of_a_run_can_be_dumped() -> None:
    async with agent_with().stream("Which?", snapshots=True) as run:
        dumped = [wire.dump(event) async for event in run]
    assert dumped[-1]["result"]["value"] == "Hi."


def test_public_values_can_be_dumped_or_say_why_not() -> None:
    result = agent_with().run_sync("Hi")
    assert wire.dump(result)["value"] == "Hi."
    assert wire.dump([user("a"), user("b")])[1] == wire.dump(user("b"))
    with pytest.raises(PartValidationError, match=r"a value of type Bank cannot be written as JSON - at `\$\[0\]`"):
        wire.dump([Bank()])
