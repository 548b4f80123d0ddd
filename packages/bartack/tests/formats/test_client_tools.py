"""Tools that a client executes but declares in a form of its own: functions elsewhere, and back in the answer."""

from typing import Any

import pytest
from msgspec.structs import replace

from bartack.formats import FORMATS, encode, read_request, tool_options, writer
from bartack.formats.openai import INPUT_ONLY, function_name
from bartack.nouns.config import ModelConfig, ToolSpec
from bartack.nouns.errors import PartValidationError
from bartack.nouns.messages import assistant
from bartack.nouns.parts import ToolCall

MODEL = "anthropic.claude-opus-4-8"
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: patch"}
PATCH = {"type": "custom", "name": "apply_patch", "description": "Edits files.", "format": GRAMMAR}
SEARCH = {
    "type": "tool_search",
    "execution": "client",
    "description": "Finds tools.",
    "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
}


def function(name: str) -> dict[str, Any]:
    return {
        "type": "function",
        "name": name,
        "description": "Reads.",
        "parameters": {"type": "object"},
        "strict": False,
    }


NAMESPACES = [
    {"type": "namespace", "name": name, "description": "Files.", "tools": [function("read"), function("list")]}
    for name in ("mcp__a__", "b")
]
WEB = {"type": "web_search", "search_context_size": "low"}
CALLS = [
    {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "*** Begin", "id": "ctc_1"},
    {"type": "function_call", "call_id": "c2", "name": "read", "namespace": "b", "arguments": "{}"},
    {"type": "tool_search_call", "call_id": "c3", "execution": "client", "arguments": {"query": "x"}, "id": "t1"},
]
RESULTS = [
    {"type": "custom_tool_call_output", "call_id": "c1", "output": "Done"},
    {"type": "function_call_output", "call_id": "c2", "output": "text"},
    {"type": "tool_search_output", "call_id": "c3", "execution": "client", "status": "completed", "tools": []},
]
USER = {"role": "user", "content": "Hi"}
CODEX = {
    "model": "gpt-5.5",
    "store": False,
    "input": [USER, *CALLS, *RESULTS],
    "tools": [PATCH, *NAMESPACES, SEARCH, WEB],
}
NAMES = ["apply_patch", "mcp__a__read", "mcp__a__list", "b__read", "b__list", "tool_search"]


def test_declarations_and_calls_come_back_unchanged_in_their_own_format() -> None:
    encoded = encode("openai-responses", read_request("openai-responses", CODEX))
    assert encoded.body["tools"] == CODEX["tools"]
    assert encoded.body["input"] == CODEX["input"]
    assert encoded.report.losses == ()


@pytest.mark.parametrize("format", sorted(set(FORMATS) - {"openai-responses"}))
def test_other_formats_declare_functions_and_keep_calls_and_results(format: str) -> None:
    request = read_request("openai-responses", CODEX)
    config = ModelConfig(MODEL)
    encoded = encode(format, replace(request, config=config, provider=""))
    text = str(encoded.body)
    for name in NAMES:
        assert f"'name': '{name}'" in text
    assert "start: patch" in text
    for content in ("*** Begin", "Done", "query"):
        assert content in text
    tools = [(loss.where, loss.what) for loss in encoded.report.losses if loss.where.startswith("tools")]
    has_search = format == "anthropic-messages"
    assert tools == [
        ("tools[6].hosted.options.context_size", "context_size") if has_search else ("tools[6]", "tool web_search")
    ]


def test_an_answer_calls_the_tools_as_the_client_declared_them() -> None:
    tools = read_request("openai-responses", CODEX).tools
    calls = [
        ToolCall("d1", "apply_patch", {"input": "*** End"}),
        ToolCall("d2", "mcp__a__list", {"p": "."}),
        ToolCall("d3", "tool_search", {"query": "y"}),
    ]
    answer = writer("openai-responses", **tool_options(tools, "openai-responses")).whole_response(assistant(*calls))
    items = [{key: value for key, value in item.items() if key not in ("id", "status")} for item in answer["output"]]
    assert items == [
        {"type": "custom_tool_call", "call_id": "d1", "name": "apply_patch", "input": "*** End"},
        {
            "type": "function_call",
            "call_id": "d2",
            "name": "list",
            "namespace": "mcp__a__",
            "arguments": '{"p":"."}',
        },
        {"type": "tool_search_call", "call_id": "d3", "execution": "client", "arguments": {"query": "y"}},
    ]


def test_a_custom_call_of_a_tool_that_is_no_longer_declared_keeps_its_result() -> None:
    request = read_request("openai-responses", {**CODEX, "tools": [function("other")]})
    assert request.messages[1].tool_calls[0].executed_by == "client"
    encoded = encode("anthropic-messages", replace(request, provider=""))
    assert "*** Begin" in str(encoded.body)
    assert "Done" in str(encoded.body)


def test_a_custom_tool_in_a_namespace_and_a_choice_of_one() -> None:
    inner = {"type": "custom", "name": "sh"}
    call = {"type": "custom_tool_call", "call_id": "c", "name": "sh", "namespace": "ns", "input": "ls"}
    output = {"type": "custom_tool_call_output", "call_id": "c", "output": "a"}
    body = {
        "model": "m",
        "store": False,
        "input": [USER, call, output],
        "tools": [{"type": "namespace", "name": "ns", "tools": [inner]}, PATCH],
        "tool_choice": {"type": "custom", "name": "apply_patch"},
    }
    request = read_request("openai-responses", body)
    again = encode("openai-responses", request).body
    assert {key: again[key] for key in body} == body
    options = tool_options(request.tools, "openai-responses")
    assert options["custom_tools"] == {"ns__sh", "apply_patch"}
    assert options["namespaces"] == {"ns__sh": ("ns", "sh")}
    odd = {**body, "input": [{**call, "namespace": 1}]}
    with pytest.raises(PartValidationError) as caught:
        read_request("openai-responses", odd)
    assert caught.value.path == "$.input[0].namespace"


def test_custom_tools_of_the_chat_api() -> None:
    custom = {"name": "sql", "format": {"type": "grammar", "grammar": {"syntax": "regex", "definition": "SELECT .*"}}}
    body = {"model": "m", "messages": [USER], "tools": [{"type": "custom", "custom": custom}]}
    request = read_request("openai-chat", body)
    [spec] = request.tools
    assert (spec.name, spec.parameter_schema) == ("sql", INPUT_ONLY)
    assert spec.description == "`input` must match this regex grammar:\nSELECT .*"
    assert encode("openai-chat", request).body["tools"] == body["tools"]
    [tool] = encode("anthropic-messages", replace(request, provider="")).body["tools"]
    assert (tool["name"], tool["input_schema"]) == ("sql", INPUT_ONLY)
    assert tool_options(request.tools, "openai-chat")["custom_tools"] == {"sql"}
    assert tool_options([ToolSpec("f", {})], "openai-chat")["custom_tools"] == frozenset()


def test_an_unknown_format_of_the_input_is_described_as_it_is() -> None:
    tool = {"type": "custom", "name": "sh", "format": {"type": "later"}}
    [spec] = read_request("openai-responses", {"model": "m", "input": "Hi", "tools": [tool]}).tools
    assert spec.description == '{"type":"later"}'


def test_names_of_functions_fit_every_provider() -> None:
    assert function_name("a b", "c.d") == "a_b__c_d"
    assert function_name("x" * 70, "a") != function_name("x" * 70, "b")
    assert len(function_name("x" * 70, "a")) == 64
