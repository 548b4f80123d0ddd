"""Search for tools: the provider's own where it has one, and `search_tools` elsewhere."""

import json
from pathlib import Path
from typing import Any

import pytest

from bartack import Agent, MemoryStore, Message, ToolCall, assistant, connect, tool, user
from bartack.agent.tool_search import SEARCH, declared_tools, matching_tools, search_definition
from bartack.models import ScriptedModel
from bartack.nouns.config import ToolSpec
from bartack.tools import ToolContext, ToolDefinition
from tests.agent.test_provider_pause import StreamsClient
from tests.agent.test_provider_tools import ANSWER
from tests.recordings.plain import load_case


def tool_named(name: str, description: str, **options: Any) -> ToolDefinition:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    return ToolDefinition(
        name=name, description=description, parameter_schema=schema, execute=lambda *_: f"{name} ran", **options
    )


MANY = [tool_named(f"report_{number}", f"Writes report number {number}.") for number in range(300)]
WEATHER = tool_named("get_weather", "The weather in a city.")
RATES = tool_named("exchange_rates", "Exchange rates between currencies.")
ALWAYS = tool_named("say_hello", "Greets the user.", defer_loading=False)
TOOLS = [*MANY, WEATHER, RATES, ALWAYS]


def names_of(request: Any) -> list[str]:
    return [spec.name for spec in request.tools]


def scripted(*answers: Message | str) -> ScriptedModel:
    return ScriptedModel(list(answers))


SEARCHING = assistant(ToolCall("s1", SEARCH, {"query": "weather of a city"}))
CALLING = assistant(ToolCall("w1", "get_weather", {"city": "Paris"}))


async def test_a_model_sees_a_tool_from_the_request_after_its_search_on() -> None:
    model = scripted(SEARCHING, CALLING, "Rain.", "Bye.")
    agent = Agent(model, tools=TOOLS, tool_search=True, store=MemoryStore())
    result = await agent.run("Will it rain in Paris?", session="s")
    assert result.output == "Rain."
    declared = [names_of(request) for request in model.calls]
    assert declared[0] == ["say_hello", SEARCH]
    assert declared[1] == ["get_weather", "say_hello", SEARCH]
    assert [part.content for part in result.messages[-2].tool_results] == ["get_weather ran"]
    await agent.run("Thanks", session="s")  # a later run of the session
    assert names_of(model.calls[-1]) == ["get_weather", "say_hello", SEARCH]


async def test_a_run_that_is_resumed_elsewhere_declares_the_tools_that_were_found() -> None:
    store = MemoryStore()
    paused = tool_named("get_weather", "The weather in a city.", requires_approval=True)
    tools = [*MANY, paused]
    first = Agent(scripted(SEARCHING, CALLING), tools=tools, tool_search=True, store=store)
    assert (await first.run("Rain?", session="s")).approvals
    model = scripted("Rain.")
    second = Agent(model, tools=tools, tool_search=True, store=store)
    await second.approve("s", "w1")
    assert (await second.resume("s")).output == "Rain."
    assert names_of(model.calls[0]) == ["get_weather", SEARCH]


async def test_without_the_option_all_tools_are_declared() -> None:
    model = scripted("Hi.")
    await Agent(model, tools=TOOLS).run("Hi")
    assert len(model.calls[0].tools) == len(TOOLS)


async def test_a_request_to_inspect_has_the_same_tools() -> None:
    store = MemoryStore()
    agent = Agent(scripted(SEARCHING, "Rain."), tools=TOOLS, tool_search=True, store=store)
    await agent.run("Rain?", session="s")
    inspected = await agent.request_after("s", await store.load("s"))
    assert names_of(inspected.request) == ["get_weather", "say_hello", SEARCH]


def body_of(client: StreamsClient, index: int = 0) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(client.requests[index].body)
    return body


@pytest.mark.parametrize(
    ("model", "search"),
    [
        ("anthropic:claude-sonnet-4-6", {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}),
        ("openai:gpt-5.4", {"type": "tool_search"}),
    ],
)
async def test_the_search_of_the_provider_is_used_where_there_is_one(model: str, search: dict[str, str]) -> None:
    client = StreamsClient(ANSWER)
    agent = Agent(connect(model, client=client, api_key="k"), tools=[WEATHER, ALWAYS], tool_search=True)
    await agent.run("Hi")
    weather, hello, own_search = body_of(client)["tools"]
    assert (weather["name"], weather["defer_loading"]) == ("get_weather", True)
    assert (hello["name"], "defer_loading" in hello) == ("say_hello", False)
    assert own_search == search


@pytest.mark.parametrize("model", ["anthropic:claude-sonnet-4-0", "openai:gpt-5", "mistral:mistral-large"])
async def test_models_without_one_get_the_tool_of_the_agent(model: str) -> None:
    client = StreamsClient(b"")
    agent = Agent(connect(model, client=client, api_key="k"), tools=[WEATHER, ALWAYS], tool_search=True)
    await agent.run("Hi")
    names = [declared.get("name") or declared["function"]["name"] for declared in body_of(client)["tools"]]
    assert names == ["say_hello", SEARCH]


@pytest.mark.parametrize(
    ("model", "case"),
    [
        (
            "anthropic:claude-sonnet-4-6",
            "anthropic-messages/pydantic-ai--test_tool_search-test_anthropic_native_tool_search_streaming--0-5c1edd",
        ),
        (
            "openai:gpt-5.4",
            "openai-responses/pydantic-ai--test_tool_search-test_openai_native_tool_search_streaming--0-5d3e22",
        ),
    ],
)
async def test_a_recorded_search_of_the_provider_leads_to_a_call_of_the_tool(
    recordings: Path, model: str, case: str
) -> None:
    calls: list[str] = []

    @tool
    def get_exchange_rate(from_currency: str, to_currency: str) -> str:
        """Look up the current exchange rate between two currencies."""
        calls.append(f"{from_currency}-{to_currency}")
        return "1.1"

    client = StreamsClient(load_case(recordings / case).body)
    agent = Agent(
        connect(model, client=client, api_key="k"), tools=[get_exchange_rate, *MANY], tool_search=True, max_repeats=1
    )
    result = await agent.run("How many euros is a dollar?")
    assert calls
    answer = next(message for message in result.messages if message.role == "assistant")
    searches = [call for call in answer.tool_calls if call.executed_by == "provider"]
    assert all(call.result is not None for call in searches)
    assert searches


def spec(name: str, description: str = "", *parameters: str) -> ToolSpec:
    return ToolSpec(name, {"properties": {key: {} for key in parameters}}, description=description)


def test_tools_match_by_the_words_of_names_descriptions_and_parameters() -> None:
    specs = [
        spec("getUserProfile", "Reads a profile."),
        spec("list_invoices", "All invoices of a customer.", "customerId"),
        spec("pay_invoice", "Pays."),
        ToolSpec("odd", {"properties": []}),
    ]

    def found(query: str) -> list[str]:
        return [match.name for match in matching_tools(query, specs)]

    assert found("user profile") == ["getUserProfile"]
    assert found("invoice") == ["list_invoices", "pay_invoice"]
    assert found("the invoices of one customer")[0] == "list_invoices"
    assert found("levitate") == []
    assert len(matching_tools("report", [spec(f"report_{number}") for number in range(20)])) == 5


async def test_a_search_outside_of_a_run_finds_nothing() -> None:

    assert await search_definition().execute({"query": "x"}, ToolContext()) == {"tools": []}


def test_only_results_of_a_search_name_tools() -> None:

    specs = [spec("a"), spec("b")]
    assert declared_tools(specs, scripted("x"), [user("use a"), assistant("a and b")]) == ()
