"""Tools that providers execute, as each provider declares them; losses and refusals where it has none."""

from typing import Any

import pytest

from bartack.formats import FORMATS, encode, format_named
from bartack.formats.tools import refuse_required
from bartack.nouns.config import ModelConfig, SpecificTool, ToolSpec
from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.hosted_tools import (
    HOSTED_TOOLS,
    CodeExecution,
    FileSearch,
    ImageGeneration,
    McpConnector,
    PortableTool,
    RawTool,
    ToolSearch,
    UserLocation,
    WebFetch,
    WebSearch,
)
from bartack.nouns.messages import user
from bartack.nouns.parts import Continuation
from bartack.nouns.requests import ModelRequest

PARIS = UserLocation(city="Paris", country="FR")
SEARCH = WebSearch(
    max_uses=3, allowed_domains=("a.fr",), blocked_domains=("b.fr",), user_location=PARIS, context_size="high"
)
FETCH = WebFetch(max_uses=1, allowed_domains=("a.fr",), blocked_domains=("b.fr",), max_content_tokens=9, citations=True)
CODE = CodeExecution(file_ids=("f1",))
FILES = FileSearch(stores=("s1",), max_results=4)
IMAGES = ImageGeneration(size="1024x1024", quality="low", background="opaque", output_format="webp")
MCP = McpConnector(
    label="wiki",
    url="https://wiki.example/mcp",
    description="A wiki.",
    authorization="secret-token",
    allowed_tools=("ask",),
    approval="always",
)
WHERE = {"type": "approximate", "city": "Paris", "country": "FR"}
WEATHER = ToolSpec("weather", {"type": "object", "properties": {}})

# Format, provider, model, tool -> its declaration, and the options that are lost.
Row = tuple[str, str, str, PortableTool, dict[str, Any], set[str]]
DECLARED: list[Row] = [
    (
        *("anthropic-messages", "anthropic", "claude-sonnet-4-6", SEARCH),
        {
            "type": "web_search_20250305",
            "name": "web_search",
            "max_uses": 3,
            "allowed_domains": ["a.fr"],
            "blocked_domains": ["b.fr"],
            "user_location": WHERE,
        },
        {"context_size"},
    ),
    (
        *("anthropic-messages", "anthropic", "claude-sonnet-4-6", FETCH),
        {
            "type": "web_fetch_20250910",
            "name": "web_fetch",
            "max_uses": 1,
            "allowed_domains": ["a.fr"],
            "blocked_domains": ["b.fr"],
            "max_content_tokens": 9,
            "citations": {"enabled": True},
        },
        set(),
    ),
    (
        *("anthropic-messages", "anthropic", "claude-sonnet-4-6", CODE),
        {"type": "code_execution_20250825", "name": "code_execution"},
        {"file_ids"},
    ),
    (
        *("anthropic-messages", "anthropic", "claude-sonnet-4-6", MCP),
        {
            "type": "mcp_toolset",
            "mcp_server_name": "wiki",
            "default_config": {"enabled": False},
            "configs": {"ask": {"enabled": True}},
        },
        {"description", "approval"},
    ),
    (
        *("anthropic-messages", "anthropic", "claude-sonnet-4-6", ToolSearch()),
        {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
        set(),
    ),
    (
        *("openai-responses", "openai", "gpt-5.4", SEARCH),
        {
            "type": "web_search",
            "search_context_size": "high",
            "user_location": WHERE,
            "filters": {"allowed_domains": ["a.fr"]},
        },
        {"max_uses", "blocked_domains"},
    ),
    (
        *("openai-responses", "openai", "gpt-5.4", CODE),
        {"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["f1"]}},
        set(),
    ),
    (
        *("openai-responses", "openai", "gpt-5.4", FILES),
        {"type": "file_search", "vector_store_ids": ["s1"], "max_num_results": 4},
        set(),
    ),
    (
        *("openai-responses", "azure", "gpt-5.4", IMAGES),
        {
            "type": "image_generation",
            "size": "1024x1024",
            "quality": "low",
            "background": "opaque",
            "output_format": "webp",
        },
        set(),
    ),
    (
        *("openai-responses", "openai", "gpt-5.4", MCP),
        {
            "type": "mcp",
            "server_label": "wiki",
            "server_url": "https://wiki.example/mcp",
            "server_description": "A wiki.",
            "authorization": "secret-token",
            "allowed_tools": ["ask"],
            "require_approval": "always",
        },
        set(),
    ),
    (*("openai-responses", "openai", "gpt-5.4", ToolSearch()), {"type": "tool_search"}, set()),
    (
        *("openai-responses", "xai-responses", "grok-4.3", SEARCH),
        {"type": "web_search", "filters": {"allowed_domains": ["a.fr"], "excluded_domains": ["b.fr"]}},
        {"max_uses", "user_location", "context_size"},
    ),
    (*("openai-responses", "xai-responses", "grok-4.3", CODE), {"type": "code_interpreter"}, {"file_ids"}),
    (
        *("openai-responses", "xai-responses", "grok-4.3", MCP),
        {
            "type": "mcp",
            "server_label": "wiki",
            "server_url": "https://wiki.example/mcp",
            "server_description": "A wiki.",
            "authorization": "secret-token",
            "allowed_tools": ["ask"],
        },
        {"approval"},
    ),
    (*("gemini-generate", "google", "gemini-3.5-flash", WebSearch()), {"googleSearch": {}}, set()),
    (*("gemini-generate", "google", "gemini-3.5-flash", WebFetch()), {"urlContext": {}}, set()),
    (*("gemini-generate", "google", "gemini-3.5-flash", CodeExecution()), {"codeExecution": {}}, set()),
    (
        *("gemini-generate", "google", "gemini-3.5-flash", FILES),
        {"fileSearch": {"fileSearchStoreNames": ["s1"], "topK": 4}},
        set(),
    ),
    (
        *("gemini-interactions", "gemini-interactions", "gemini-3.5-flash", WebSearch()),
        {"type": "google_search"},
        set(),
    ),
    (*("gemini-interactions", "gemini-interactions", "gemini-3.5-flash", WebFetch()), {"type": "url_context"}, set()),
    (
        *("gemini-interactions", "gemini-interactions", "gemini-3.5-flash", CodeExecution()),
        {"type": "code_execution"},
        set(),
    ),
    (
        *("gemini-interactions", "gemini-interactions", "gemini-3.5-flash", FILES),
        {"type": "file_search", "file_search_store_names": ["s1"], "top_k": 4},
        set(),
    ),
    (
        *("gemini-interactions", "gemini-interactions", "gemini-3.5-flash", MCP),
        {
            "type": "mcp_server",
            "name": "wiki",
            "url": "https://wiki.example/mcp",
            "headers": {"Authorization": "Bearer secret-token"},
            "allowed_tools": [{"mode": "any", "tools": ["ask"]}],
        },
        {"description", "approval"},
    ),
    (
        *("bedrock-converse", "bedrock", "us.amazon.nova-2-lite-v1:0", WebSearch()),
        {"systemTool": {"name": "nova_grounding"}},
        set(),
    ),
    (
        *("bedrock-converse", "bedrock", "us.amazon.nova-2-lite-v1:0", CodeExecution()),
        {"systemTool": {"name": "nova_code_interpreter"}},
        set(),
    ),
    (
        *("openai-chat", "openrouter", "deepseek/deepseek-chat", SEARCH),
        {
            "type": "openrouter:web_search",
            "parameters": {
                "max_uses": 3,
                "search_context_size": "high",
                "allowed_domains": ["a.fr"],
                "excluded_domains": ["b.fr"],
                "user_location": WHERE,
            },
        },
        set(),
    ),
    (*("openai-chat", "openrouter", "x/y", WebFetch()), {"type": "openrouter:web_fetch"}, set()),
    (*("openai-chat", "openrouter", "x/y", ImageGeneration()), {"type": "openrouter:image_generation"}, set()),
    (*("openai-chat", "groq", "openai/gpt-oss-120b", WebSearch()), {"type": "browser_search"}, set()),
    (*("openai-chat", "groq", "openai/gpt-oss-120b", CodeExecution()), {"type": "code_interpreter"}, set()),
]


def request_of(*tools: ToolSpec, provider: str, model_id: str, **settings: Any) -> ModelRequest:
    config = ModelConfig(model_id, **settings)
    return ModelRequest((user("Hi"),), config=config, tools=tools, provider=provider)


def tools_of(body: dict[str, Any]) -> list[Any]:
    tools: list[Any] = body.get("tools") or body.get("toolConfig", {}).get("tools", [])
    return tools


@pytest.mark.parametrize("row", DECLARED, ids=[f"{row[1]}-{row[3].tool}" for row in DECLARED])
def test_a_provider_declares_a_tool_beside_functions(row: Row) -> None:
    format, provider, model_id, tool, declaration, lost = row
    encoded = encode(format, request_of(WEATHER, tool.spec, provider=provider, model_id=model_id))
    function, declared = tools_of(encoded.body)
    assert "weather" in str(function)
    assert declared == declaration
    assert {loss.what for loss in encoded.report.losses} == lost
    assert all(loss.where.startswith("tools[1].hosted.options.") for loss in encoded.report.losses)


def test_every_row_is_declared_by_a_test() -> None:
    tested = {
        (format, provider if provider in rows(format) else "", tool.tool) for format, provider, _, tool, *_ in DECLARED
    }
    every = {(name, provider, tool) for name in FORMATS for provider, row in rows(name).items() for tool in row}
    shared = {
        ("anthropic-messages", "vertex-anthropic"),
        ("gemini-generate", "vertex"),
        ("openai-responses", "xai-responses"),
    }
    assert {row for row in every - tested if row[:2] not in shared} == set()
    assert {tool for _, _, tool in every} == set(HOSTED_TOOLS)


def rows(format: str) -> Any:
    return format_named(format).hosted.rows


@pytest.mark.parametrize(
    "tool", ["web_search", "web_fetch", "code_execution", "file_search", "image_generation", "mcp"]
)
def test_a_portable_class_stands_for_a_tool_of_two_or_more_providers(tool: str) -> None:
    assert sum(tool in row for name in FORMATS for row in rows(name).values()) >= 2


LACKING = [
    ("openai-chat", "openai-chat", "gpt-5"),
    ("anthropic-messages", "bedrock-invoke", "claude-sonnet-4-6"),
    ("bedrock-converse", "bedrock", "anthropic.claude-sonnet-4-6-v1:0"),
    ("openai-chat", "groq", "llama-3.3-70b"),
    ("cohere-v2", "cohere", "command-a"),
    ("ollama-chat", "ollama", "qwen3"),
]


@pytest.mark.parametrize(("format", "provider", "model_id"), LACKING)
def test_a_provider_without_the_tool_refuses_the_request(format: str, provider: str, model_id: str) -> None:
    with pytest.raises(PartValidationError, match=f"'web_search' is not available: {provider}:{model_id}") as refused:
        encode(format, request_of(WEATHER, WebSearch().spec, provider=provider, model_id=model_id))
    assert (refused.value.code, refused.value.path) == (ErrorCode.INVALID_CONFIG, "$.tools[1]")


@pytest.mark.parametrize(("format", "provider", "model_id"), LACKING)
def test_an_optional_tool_is_a_loss_there(format: str, provider: str, model_id: str) -> None:
    spec = WebSearch(optional=True).spec
    encoded = encode(format, request_of(WEATHER, spec, provider=provider, model_id=model_id))
    assert len(tools_of(encoded.body)) == 1
    assert [(loss.where, loss.what) for loss in encoded.report.losses] == [("tools[1]", "tool web_search")]


@pytest.mark.parametrize("name", ["anthropic", "anthropic-messages"])
def test_a_raw_tool_is_sent_to_its_provider_or_to_all_of_its_format(name: str) -> None:
    raw = RawTool(label="advisor", provider=name, declaration={"type": "advisor_20260301", "name": "advisor"})
    encoded = encode("anthropic-messages", request_of(raw.spec, provider="anthropic", model_id="claude-sonnet-5"))
    assert encoded.body["tools"] == [{"type": "advisor_20260301", "name": "advisor"}]
    with pytest.raises(PartValidationError, match=f"it belongs to {name}"):
        encode("openai-responses", request_of(raw.spec, provider="openai", model_id="gpt-5"))


@pytest.mark.parametrize("format", ["cohere-v2", "ollama-chat"])
def test_a_format_without_tools_of_its_own_takes_raw_ones(format: str) -> None:
    raw = RawTool(label="x", provider=format, declaration={"type": "x"})
    assert encode(format, request_of(raw.spec, provider="p", model_id="m")).body["tools"] == [{"type": "x"}]


def test_an_mcp_server_is_connected_through_anthropics_list_of_servers() -> None:
    request = request_of(MCP.spec, provider="anthropic", model_id="claude-sonnet-4-6")
    assert encode("anthropic-messages", request).body["mcp_servers"] == [
        {"type": "url", "name": "wiki", "url": "https://wiki.example/mcp", "authorization_token": "secret-token"}
    ]
    assert format_named("anthropic-messages").headers(request) == {"anthropic-beta": "mcp-client-2025-11-20"}
    plain = request_of(WEATHER, provider="anthropic", model_id="claude-sonnet-4-6")
    assert format_named("anthropic-messages").headers(plain) == {}
    assert format_named("openai-responses").headers(request) == {}


def test_an_mcp_server_that_is_not_declared_is_not_connected() -> None:
    optional = McpConnector(label="wiki", url="https://wiki.example/mcp", optional=True)
    request = request_of(optional.spec, provider="vertex-anthropic", model_id="claude-sonnet-4-6")
    encoded = encode("anthropic-messages", request)
    assert "mcp_servers" not in encoded.body
    assert [loss.what for loss in encoded.report.losses] == ["tool wiki"]


def test_a_choice_can_name_a_provider_tool() -> None:
    search = request_of(WebSearch().spec, provider="openai", model_id="gpt-5", tool_choice=SpecificTool("web_search"))
    assert encode("openai-responses", search).body["tool_choice"] == {"type": "web_search"}
    mcp = request_of(MCP.spec, provider="openai", model_id="gpt-5", tool_choice=SpecificTool("wiki"))
    assert encode("openai-responses", mcp).body["tool_choice"] == {"type": "mcp", "server_label": "wiki"}


def test_a_model_without_a_provider_refuses_what_is_required() -> None:
    refuse_required([WEATHER, WebSearch(optional=True).spec], "local")
    refuse_required([ToolSpec("n", {}, native=Continuation("x", "m", {}))], "local")
    with pytest.raises(PartValidationError, match="local executes no tools"):
        refuse_required([WEATHER, WebSearch().spec], "local")


OPTIONS = ToolSpec("weather", {}, defer_loading=True, input_examples=({"city": "Paris"},))


def test_deferred_loading_and_examples_are_options_of_a_function() -> None:
    anthropic = encode("anthropic-messages", request_of(OPTIONS, provider="anthropic", model_id="claude-sonnet-4-6"))
    (tool,) = anthropic.body["tools"]
    assert (tool["defer_loading"], tool["input_examples"]) == (True, [{"city": "Paris"}])
    openai = encode("openai-responses", request_of(OPTIONS, provider="openai", model_id="gpt-5.4"))
    assert openai.body["tools"][0]["defer_loading"] is True
    assert [loss.where for loss in openai.report.losses] == ["tools[0].inputExamples"]


@pytest.mark.parametrize("format", [name for name in FORMATS if name not in ("anthropic-messages", "openai-responses")])
def test_other_formats_report_them_as_losses(format: str) -> None:
    model_id = "us.amazon.nova-2-lite-v1:0" if format == "bedrock-invoke" else "m"
    encoded = encode(format, request_of(OPTIONS, provider=format, model_id=model_id))
    lost = [loss.where for loss in encoded.report.losses if loss.where.startswith("tools")]
    assert lost == ["tools[0].deferLoading", "tools[0].inputExamples"]
    assert "weather" in str(encoded.body)


# -- a search that a client declared in the terms of one provider

CODEX_SEARCH = {
    "type": "web_search",
    "external_web_access": True,
    "search_context_size": "high",
    "user_location": WHERE,
    "filters": {"allowed_domains": ["a.fr"]},
}
CLAUDE_SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8, "blocked_domains": ["b.fr"]}


def translated(format: str, native: dict[str, Any], *tools: ToolSpec, provider: str = "") -> tuple[Any, list[str]]:
    """The tools of the body, and where something was lost."""
    search = ToolSpec("web_search", {}, native=Continuation("a client", "", native))
    config = ModelConfig("claude-sonnet-4-6")
    encoded = encode(format, ModelRequest((user("a"),), config=config, tools=(search, *tools), provider=provider))
    return encoded.body.get("tools"), [loss.where for loss in encoded.report.losses]


def test_a_search_becomes_that_of_the_provider() -> None:
    tools, losses = translated("anthropic-messages", CODEX_SEARCH, WEATHER)
    assert tools[0] == {
        "type": "web_search_20250305",
        "name": "web_search",
        "allowed_domains": ["a.fr"],
        "user_location": WHERE,
    }
    assert losses == ["tools[0].native.external_web_access", "tools[0].hosted.options.context_size"]
    tools, losses = translated("openai-responses", CLAUDE_SEARCH)
    assert tools == [{"type": "web_search"}]
    assert losses == ["tools[0].hosted.options.blocked_domains", "tools[0].hosted.options.max_uses"]
    assert translated("openai-responses", {"googleSearch": {}}) == ([{"type": "web_search"}], [])
    assert translated("anthropic-messages", {"type": "google_search"})[1] == []


@pytest.mark.parametrize(
    ("format", "declared"),
    [("gemini-generate", {"googleSearch": {}}), ("gemini-interactions", {"type": "google_search"})],
)
def test_gemini_searches_only_without_functions(format: str, declared: dict[str, Any]) -> None:
    search = {"type": "web_search"}
    assert translated(format, search) == ([declared], [])
    tools, losses = translated(format, search, WEATHER)
    assert (len(tools), losses) == (1, ["tools[0]"])


@pytest.mark.parametrize(
    ("format", "native"),
    [
        ("openai-chat", CODEX_SEARCH),
        ("ollama-chat", CODEX_SEARCH),
        ("anthropic-messages", {"type": "local_shell"}),
        ("anthropic-messages", {"type": "web_search", "max_uses": "many"}),
        ("anthropic-messages", {"type": "web_search", "filters": {"allowed_domains": [5]}}),
    ],
)
def test_without_an_equal_the_tool_is_a_loss(format: str, native: dict[str, Any]) -> None:
    tools, losses = translated(format, native, WEATHER)
    assert (len(tools), losses) == (1, ["tools[0]"])
