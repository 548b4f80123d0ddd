"""Agents with tools that the provider executes: declared beside functions, and their calls, results and citations kept.

The answers are recorded streams of the providers, as a client returns them.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from bartack import Agent, BartackError, ErrorCode, LoopConfig, MemoryStore, ToolCall, assistant, connect, tool
from bartack.agent.sent_request import kept_setup
from bartack.models import ScriptedModel
from bartack.nouns.config import AgentConfig, ToolsConfig
from bartack.nouns.entries import ApprovalRequired
from bartack.session.decisions import Decision
from bartack.tools import (
    CodeExecution,
    FileSearch,
    McpConnector,
    ProviderTool,
    ToolContext,
    ToolRegistry,
    WebFetch,
    WebSearch,
    provider_tool,
)
from tests.agent.test_provider_pause import StreamsClient
from tests.recordings.plain import load_case

ANSWER = b"""data: {"type":"message_start","message":{"model":"claude-sonnet-4-6","id":"m"}}

data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":"Done."}}

data: {"type":"content_block_stop","index":0}

data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}

data: {"type":"message_stop"}

"""


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


def body_of(client: StreamsClient, index: int = -1) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(client.requests[index].body)
    return body


# Model, tool, case -> the names of its calls, and a text that is in their results or citations.
RECORDED: list[tuple[str, ProviderTool, str, str, str]] = [
    (
        *("anthropic:claude-sonnet-4-0", WebSearch()),
        "anthropic-messages/pydantic-ai--test_anthropic-test_anthropic_model_web_search_tool_stream--0-a4da11",
        *("web_search", "http"),
    ),
    (
        *("anthropic:claude-haiku-4-5-20251001", WebFetch(max_uses=1, citations=True)),
        "anthropic-messages/langchain--test_web_fetch_v1--1-566909",
        *("web_fetch", "http"),
    ),
    (
        *("anthropic:claude-sonnet-4-5", CodeExecution()),
        "anthropic-messages/pydantic-ai--test_anthropic-test_anthropic_code_execution_tool_stream--0-dced4f",
        *("bash_code_execution", "stdout"),
    ),
    (
        *("anthropic:claude-sonnet-4-5-20250929", McpConnector(label="deepwiki", url="https://mcp.deepwiki.com/mcp")),
        "anthropic-messages/langchain--test_remote_mcp--1-159b39",
        *("ask_question", "text"),
    ),
    (
        *("openai:gpt-5", WebSearch(context_size="medium")),
        "openai-responses/pydantic-ai--test_openai_responses-test_openai_responses_model_web_search_tool_stream--0-e5cda9",
        *("web_search", "query"),
    ),
    (
        *("openai:gpt-5", CodeExecution()),
        "openai-responses/pydantic-ai--test_openai_responses-test_openai_responses_thinking_with_code_execution--0-b22006",
        *("code_interpreter", "completed"),
    ),
    (
        *("openai:gpt-4o", FileSearch(stores=("vs_6931d752e41c8191833fcaad1cf47055",))),
        "openai-responses/pydantic-ai--test_openai_responses-test_openai_responses_model_file_search_tool_strea--3-d0cba9",
        *("file_search", "text"),
    ),
    (
        *("google:gemini-2.5-pro", WebSearch()),
        "gemini-generate/pydantic-ai--test_google-test_google_model_web_search_tool_stream--0-81cf0e",
        *("", "http"),
    ),
    (
        *("google:gemini-2.5-pro", CodeExecution()),
        "gemini-generate/pydantic-ai--test_code_execution-test_code_execution_stream--0-011c67",
        *("code_execution", "outcome"),
    ),
    (
        *("openrouter:deepseek/deepseek-chat", WebSearch(max_uses=1, context_size="medium")),
        "openrouter-chat/pydantic-ai--test_openrouter-test_openrouter_web_search_annotations_stream--0-d063e9",
        *("", "http"),
    ),
]


@pytest.mark.parametrize("row", RECORDED, ids=[row[2].split("/")[1][-30:] for row in RECORDED])
async def test_recorded_answers_with_provider_tools_are_stored_and_sent_back(
    recordings: Path, row: tuple[str, ProviderTool, str, str, str]
) -> None:
    model, hosted, case, call, text = row
    recorded = load_case(recordings / case)
    client = StreamsClient(recorded.body)
    agent = Agent(connect(model, client=client, api_key="k"), tools=[weather, hosted], store=MemoryStore())
    result = await agent.run("Go", session="s")
    assert result.error is None
    assert result.message is not None
    calls = result.message.tool_calls
    assert all(part.executed_by == "provider" and part.result is not None for part in calls)
    if call:
        assert call in {part.tool_name for part in calls}
    assert text in str(result.message)
    own = recorded_tools(recordings / case)
    declared = [item for item in body_of(client)["tools"] if "weather" not in str(item)]
    assert [kind_of(item) for item in declared] == [kind_of(item) for item in own]
    await agent.run("And?", session="s")
    assert len(client.requests) == 2
    assert all(part.tool_call_id in client.requests[1].body.decode() or part.continuation for part in calls)


def recorded_tools(case: Path) -> list[dict[str, Any]]:
    body = json.loads((case / "request.json").read_text(encoding="utf-8"))
    tools: list[dict[str, Any]] = body.get("body", body)["tools"]
    return [item for item in tools if item.get("type") != "function" and "functionDeclarations" not in item]


def kind_of(declaration: dict[str, Any]) -> str:
    """What a declaration is of: its type without a date, or its key."""
    return str(declaration.get("type") or next(iter(declaration))).rstrip("0123456789").rstrip("_")


async def test_the_provider_asks_before_it_calls_a_tool_of_an_mcp_server(recordings: Path) -> None:
    question = load_case(recordings / "openai-responses" / "langchain--test_mcp_builtin_zdr--0-a48eab")
    wiki = McpConnector(label="deepwiki", url="https://mcp.deepwiki.com/mcp", approval="always")
    client = StreamsClient(question.body)
    model = connect("openai:gpt-5-nano", client=client, api_key="k")
    asked: list[ApprovalRequired] = []

    class Approver:
        async def decide(self, request: ApprovalRequired) -> Decision | None:
            asked.append(request)
            return Decision("approve") if len(asked) == 1 else None

    result = await Agent(model, tools=[wiki], approver=Approver()).run("Ask the wiki")
    assert body_of(client, 0)["tools"][0]["require_approval"] == "always"
    assert [request.tool_name for request in asked] == ["mcp_approval_request"] * 2
    assert asked[0].arguments["server_label"] == "deepwiki"
    answer = body_of(client, 1)["input"][-1]
    assert (answer["type"], answer["approve"]) == ("mcp_approval_response", True)
    assert [request.tool_name for request in result.approvals] == ["mcp_approval_request"]  # the run waits for a person


# -- what a provider lacks


def anthropic(*streams: bytes) -> tuple[Any, StreamsClient]:
    client = StreamsClient(*(streams or (ANSWER,)))
    return connect("anthropic:claude-sonnet-4-6", client=client, api_key="k"), client


async def test_a_run_fails_before_its_first_request_if_the_provider_lacks_a_required_tool() -> None:
    model, client = anthropic()
    result = await Agent(model, tools=[FileSearch(stores=("s",))]).run("Go")
    assert result.error is not None
    assert result.error.error_code is ErrorCode.INVALID_CONFIG
    assert "anthropic:claude-sonnet-4-6 does not offer it" in result.error.message
    assert client.requests == []


async def test_a_fallback_model_that_has_the_tool_takes_over() -> None:
    model, client = anthropic()
    first = connect("cohere:command-a", client=StreamsClient(b""), api_key="k")
    result = await Agent(first, tools=[WebSearch()], fallback_models=[model]).run("Go")
    assert result.output == "Done."
    assert body_of(client)["tools"] == [{"type": "web_search_20250305", "name": "web_search"}]


async def test_a_run_goes_without_an_optional_tool() -> None:
    model, client = anthropic()
    result = await Agent(model, tools=[weather, FileSearch(stores=("s",), optional=True)]).run("Go")
    assert result.output == "Done."
    assert [item["name"] for item in body_of(client)["tools"]] == ["weather"]


async def test_the_local_model_has_no_provider_to_execute_a_tool() -> None:
    result = await Agent("local", tools=[WebSearch()]).run("Go")
    assert result.error is not None
    assert "local executes no tools" in result.error.message


# -- the set of tools


def test_provider_tools_share_the_names_of_the_set() -> None:
    with pytest.raises(BartackError, match="Duplicate tool name 'web_search'"):
        ToolRegistry([WebSearch(), WebSearch()])
    with pytest.raises(BartackError, match="tools must be a list"):
        Agent(ScriptedModel(["x"]), tools=WebSearch())  # type: ignore[call-overload]


def test_sets_with_provider_tools_can_be_filtered_renamed_and_combined() -> None:
    tools = ToolRegistry([weather, WebSearch(), CodeExecution()])
    filtered = tools.filtered(lambda item: item.name != "web_search")
    assert [spec.name for spec in filtered.build_model_tool_specs()] == ["code_execution", "weather"]
    renamed = ToolRegistry([tools.prefixed("my_")])
    assert [spec.name for spec in renamed.build_model_tool_specs()] == ["code_execution", "my_weather", "web_search"]
    assert tools.names == ("weather",)  # only what this process executes


async def test_the_configuration_disables_a_provider_tool_by_its_name() -> None:
    model, client = anthropic()
    config = AgentConfig(tools=ToolsConfig(enabled={"web_search": False}))
    await Agent(model, tools=[weather, WebSearch()], config=config).run("Go")
    assert [item["name"] for item in body_of(client)["tools"]] == ["weather"]


# -- MCP servers of Anthropic


async def test_the_connector_adds_its_header_to_those_of_the_model() -> None:
    client = StreamsClient(ANSWER)
    headers = {"Anthropic-Beta": "context-1m-2025-08-07"}
    model = connect("anthropic:claude-sonnet-4-6", client=client, api_key="k", headers=headers)
    server = McpConnector(label="wiki", url="https://wiki.example/mcp", authorization="secret-token-of-the-wiki")
    store = MemoryStore()
    config = AgentConfig(loop=LoopConfig(keep_requests=True))
    await Agent(model, tools=[server], store=store, config=config).run("Go", session="s")
    (request,) = client.requests
    assert request.headers["Anthropic-Beta"] == "context-1m-2025-08-07,mcp-client-2025-11-20"
    assert "secret-token-of-the-wiki" in request.secrets
    assert body_of(client)["mcp_servers"][0]["authorization_token"] == "secret-token-of-the-wiki"
    entries = await store.load("s")
    assert "secret-token-of-the-wiki" not in str(entries)  # it is not stored with the request
    setup = kept_setup([entry for entry in entries if entry.fact.kind != "run_ended"])
    assert setup is not None
    assert setup.tools[0].hosted is not None


# -- tools that a provider defines and the client executes


async def test_a_function_executes_the_calls_of_a_tool_that_the_provider_defines() -> None:
    commands: list[dict[str, Any]] = []

    async def remember(arguments: dict[str, Any], context: ToolContext) -> str:
        commands.append(arguments)
        return "stored"

    memory = provider_tool("anthropic", {"type": "memory_20250818", "name": "memory"}, execute=remember)
    call = ANSWER.replace(
        b'{"type":"text","text":"Done."}',
        b'{"type":"tool_use","id":"t1","name":"memory","input":{"command":"view","path":"/memories"}}',
    ).replace(b"end_turn", b"tool_use")
    model, client = anthropic(call, ANSWER)
    result = await Agent(model, tools=[memory]).run("Go")
    assert result.output == "Done."
    assert commands == [{"command": "view", "path": "/memories"}]
    assert body_of(client)["tools"] == [{"type": "memory_20250818", "name": "memory"}]
    other = Agent(connect("openai:gpt-5", client=StreamsClient(b""), api_key="k"), tools=[memory])
    refused = (await other.run("Go")).error
    assert refused is not None
    assert "it belongs to anthropic" in refused.message


async def test_a_call_of_such_a_tool_can_need_approval() -> None:
    memory = provider_tool(
        "anthropic", {"name": "memory"}, execute=lambda arguments, context: "ok", requires_approval=True
    )
    model = ScriptedModel([assistant(ToolCall("1", "memory", {"command": "view"}))])
    result = await Agent(model, tools=[memory]).run("Go")
    assert [request.tool_name for request in result.approvals] == ["memory"]


def test_a_raw_tool_is_named_by_its_declaration() -> None:
    assert provider_tool("google", {"googleMaps": {}}).name == "googleMaps"
    assert provider_tool("openai", {"type": "computer_use_preview"}, name="computer").name == "computer"
    with pytest.raises(BartackError, match="with a name or a type"):
        provider_tool("openai", {})
