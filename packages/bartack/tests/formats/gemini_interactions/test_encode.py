"""Encoding requests for the Interactions API, one rule at a time, and reading them back."""

from base64 import b64encode
from typing import Any

import pytest

from bartack.formats.gemini_interactions.encode import encode
from bartack.formats.gemini_interactions.read import read_request
from bartack.formats.losses import Losses
from bartack.nouns.config import ModelConfig, SpecificTool, ThinkingConfig, ToolSpec
from bartack.nouns.errors import PartValidationError
from bartack.nouns.messages import Message, assistant, system, tool_message, user
from bartack.nouns.parts import Continuation, FileRef, Image, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest

Json = dict[str, Any]
MODEL = "gemini-3-flash"
PNG = b64encode(b"picture").decode()
SCHEMA: Json = {"type": "object", "properties": {"a": {"type": "string"}}}
FOREIGN = Continuation("anthropic", "claude", {"signature": "x"})


def sent(*messages: Message, tools: tuple[ToolSpec, ...] = (), lost: int = 0, **settings: Any) -> Json:
    """The body; `lost` is the expected number of losses."""
    losses = Losses("google")
    config = ModelConfig(MODEL, **settings)
    body = encode(ModelRequest(messages=messages, config=config, tools=tools, provider="google"), losses)
    assert len(losses.found) == lost, losses.found
    return body


def steps(*messages: Message, lost: int = 0) -> list[Json]:
    wire_steps: list[Json] = sent(*messages, lost=lost)["input"]
    return wire_steps


def own(**data: Any) -> Continuation:
    return Continuation("google", MODEL, data)


def text(words: str) -> Json:
    return {"type": "text", "text": words}


# -- steps


def test_a_conversation_becomes_a_list_of_steps() -> None:
    assert sent(system("Be kind."), system("Be brief."), user("hi"), assistant("hello"), user("bye")) == {
        "model": MODEL,
        "input": [
            {"type": "user_input", "content": [text("hi")]},
            {"type": "model_output", "content": [text("hello")]},
            {"type": "user_input", "content": [text("bye")]},
        ],
        "stream": True,
        "system_instruction": "Be kind.\n\nBe brief.",
    }


def test_a_later_system_message_becomes_user_text() -> None:
    assert steps(user("hi"), system("Now in French."), lost=1)[1]["content"] == [text("Now in French.")]


def test_media_are_sent_inline_or_by_url() -> None:
    message = user(
        Image("image/png", data=b"picture", continuation=own(resolution="low")),
        Image("image/*", url="https://x/y"),
        FileRef("a", mime_type="audio/wav", data=b"picture"),
        FileRef("v", mime_type="video/mp4", url="https://x/v"),
        FileRef("d.pdf", mime_type="application/pdf", data=b"picture"),
        FileRef("d", url="https://x/d"),
        Text("secret", ignored=True),
    )
    assert steps(message)[0]["content"] == [
        {"type": "image", "mime_type": "image/png", "data": PNG, "resolution": "low"},
        {"type": "image", "uri": "https://x/y"},
        {"type": "audio", "mime_type": "audio/wav", "data": PNG},
        {"type": "video", "mime_type": "video/mp4", "uri": "https://x/v"},
        {"type": "document", "mime_type": "application/pdf", "data": PNG},
        {"type": "document", "uri": "https://x/d"},
    ]


def test_a_file_without_content_is_named_and_reported() -> None:
    assert steps(user(FileRef("notes.txt")), lost=1)[0]["content"] == [text("[file: notes.txt]")]


def test_thoughts_are_sent_back_with_their_signatures() -> None:
    """D-3.9."""
    message = assistant(
        Thinking("hm", continuation=own(type="thought", signature="s1")),
        Thinking("", continuation=own(type="thought", signature="s2")),
        Text("a", continuation=own(annotations=[1])),
        Text("b"),
        Text(""),
    )
    assert steps(user("hi"), message)[1:] == [
        {"type": "thought", "summary": [text("hm")], "signature": "s1"},
        {"type": "thought", "signature": "s2"},
        {"type": "model_output", "content": [{**text("a"), "annotations": [1]}, text("b")]},
    ]


def test_foreign_thinking_is_reported() -> None:
    thoughts = (Thinking("a", continuation=FOREIGN), Thinking("b"), Thinking("c", ignored=True))
    assert steps(user("hi"), assistant(*thoughts), lost=2)[1:] == []


def test_calls_and_results_are_matched_by_id() -> None:
    calls = (
        ToolCall("a", "f", {"x": 1}, continuation=own(signature="s")),
        ToolCall("b", "g", {}, raw_args_text="{", continuation=own(callId="a")),
    )
    results = (ToolResult("a", {"k": 1}), ToolResult("b", "no", is_error=True), ToolResult("lost", "?"))
    assert steps(user("hi"), assistant(*calls), tool_message(*results), lost=1)[1:] == [
        {"type": "function_call", "id": "a", "name": "f", "arguments": {"x": 1}, "signature": "s"},
        {"type": "function_call", "id": "a", "name": "g", "arguments": {}},
        {"type": "function_result", "call_id": "a", "name": "f", "result": {"k": 1}},
        {"type": "function_result", "call_id": "a", "name": "g", "result": "no", "is_error": True},
        {"type": "function_result", "call_id": "lost", "result": "?"},
    ]


def test_results_hold_text_and_images_and_other_media_follow() -> None:
    content = (
        Text("look"),
        Image("image/png", data=b"picture"),
        FileRef("d", mime_type="application/pdf", data=b"picture"),
    )
    call = assistant(ToolCall("a", "f", {}), ToolCall("b", "g", {}))
    wire_steps = steps(
        user("hi"), call, tool_message(ToolResult("a", content), ToolResult("b", "x")), user("so?"), lost=1
    )[3:]
    assert [step["type"] for step in wire_steps] == ["function_result", "function_result", "user_input", "user_input"]
    assert wire_steps[0]["result"] == [text("look"), {"type": "image", "mime_type": "image/png", "data": PNG}]
    assert wire_steps[2]["content"][1] == {"type": "document", "mime_type": "application/pdf", "data": PNG}


def test_provider_calls_are_sent_back_unchanged() -> None:
    """D-3.10."""
    call_step, result_step = {"type": "google_search_call", "id": "c"}, {"type": "google_search_result", "call_id": "c"}
    continuation = own(step=call_step, resultStep=result_step)
    call = ToolCall("c", "google_search", {}, executed_by="provider", continuation=continuation)
    assert steps(user("hi"), assistant(call))[1:] == [call_step, result_step]


@pytest.mark.parametrize("continuation", [FOREIGN, None])
def test_another_providers_call_is_reported(continuation: Continuation | None) -> None:
    call = ToolCall("a", "web_search", {}, executed_by="provider", continuation=continuation)
    assert steps(user("hi"), assistant(call), lost=1)[1:] == []


def test_a_generated_image_is_sent_back_in_its_output() -> None:
    continuation = own(content={"type": "image", "mime_type": "image/png"})
    picture = ToolResult("a", (Image("image/png", data=b"picture"),))
    call = ToolCall("a", "image_output", {}, executed_by="provider", result=picture, continuation=continuation)
    assert steps(user("hi"), assistant("Here:", call))[1:] == [
        {"type": "model_output", "content": [text("Here:"), {"type": "image", "mime_type": "image/png", "data": PNG}]}
    ]


def test_a_missing_generated_image_is_reported() -> None:
    call = ToolCall("a", "image_output", {}, executed_by="provider", continuation=own(content={"type": "image"}))
    assert steps(user("hi"), assistant(call), lost=1)[1:] == []


# -- tools and settings


def test_functions_and_native_tools_are_declared_together() -> None:
    tools = (
        ToolSpec("f", SCHEMA, description="F", extra={"gemini-interactions": {"x": 1}, "openai-chat": {"y": 1}}),
        ToolSpec("g", {}),
        ToolSpec("google_search", {}, native=own(type="google_search")),
        ToolSpec("web_search", {}, native=FOREIGN),
    )
    assert sent(user("hi"), tools=tools, lost=2)["tools"] == [
        {"type": "function", "name": "f", "description": "F", "parameters": SCHEMA, "x": 1},
        {"type": "function", "name": "g"},
        {"type": "google_search"},
    ]


@pytest.mark.parametrize(
    ("choice", "strict", "wire"),
    [
        ("auto", False, "auto"),
        ("required", True, "any"),
        ("none", False, "none"),
        (SpecificTool("f"), True, {"allowed_tools": {"mode": "any", "tools": ["f"]}}),
        (None, True, "validated"),
    ],
)
def test_tool_choices(choice: Any, strict: bool, wire: Any) -> None:
    body = sent(user("hi"), tools=(ToolSpec("f", {}, strict=strict),), tool_choice=choice)
    assert body["generation_config"] == {"tool_choice": wire}


def test_settings_become_the_generation_config_merged_with_extra() -> None:
    body = sent(
        user("hi"),
        tools=(ToolSpec("f", {}),),
        lost=1,
        temperature=0.5,
        top_p=0.9,
        max_tokens=10,
        stop_sequences=("x",),
        seed=7,
        parallel_tool_calls=False,
        output_schema=SCHEMA,
        extra={"generation_config": {"speech_config": []}, "store": False},
    )
    assert body["generation_config"] == {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 10,
        "stop_sequences": ["x"],
        "seed": 7,
        "speech_config": [],
    }
    assert body["response_format"] == {"type": "text", "mime_type": "application/json", "schema": SCHEMA}
    assert body["store"] is False


@pytest.mark.parametrize(
    ("thinking", "level", "lost"),
    [
        (ThinkingConfig(), None, 0),
        (ThinkingConfig(effort="none"), "minimal", 0),
        (ThinkingConfig(effort="medium"), "medium", 0),
        (ThinkingConfig(budget_tokens=0), "minimal", 1),
        (ThinkingConfig(budget_tokens=2000), "medium", 1),
        (ThinkingConfig(budget_tokens=90000), "high", 1),
    ],
)
def test_thinking_settings(thinking: ThinkingConfig, level: str | None, lost: int) -> None:
    settings = sent(user("hi"), thinking=thinking, lost=lost)["generation_config"]
    assert settings == {**({} if level is None else {"thinking_level": level}), "thinking_summaries": "auto"}


def test_an_agent_replaces_the_model() -> None:
    assert "model" not in sent(user("hi"), extra={"agent": "deep-research"})


# -- round trips


def round_trip(body: Json) -> Json:
    losses = Losses("google")
    again = encode(read_request(body, provider="google"), losses)
    assert losses.found == []
    return again


@pytest.mark.parametrize(
    "wire_steps",
    [
        [
            {
                "type": "user_input",
                "content": [text("a"), {"type": "document", "uri": "gs://u"}, {"type": "audio", "data": PNG}],
            }
        ],
        [
            {
                "type": "user_input",
                "content": [{"type": "image", "mime_type": "image/png", "uri": "gs://u", "resolution": "low"}],
            }
        ],
        [{"type": "thought", "signature": "s", "summary": [text("a"), text("b")]}],
        [{"type": "thought", "summary": [text("a"), {"type": "image", "data": PNG}]}],
        [
            {"type": "function_call", "id": "a", "name": "f", "arguments": {}},
            {"type": "function_result", "call_id": "a", "name": "f", "result": 5, "signature": "s"},
        ],
        [
            {"type": "thought", "signature": "s"},
            {"type": "model_output", "content": [text("a"), {"type": "image", "data": PNG, "mime_type": "image/png"}]},
            {"type": "function_call", "id": "a", "name": "f", "arguments": {}, "signature": "s"},
            {"type": "function_call", "id": "b", "name": "g", "arguments": {}},
            {"type": "function_result", "call_id": "a", "name": "f", "result": {"k": 1}},
            {"type": "function_result", "call_id": "b", "name": "g", "result": [text("x")], "is_error": True},
        ],
        [
            {"type": "google_search_call", "id": "a", "arguments": {"queries": ["q"]}},
            {"type": "google_search_result", "call_id": "a", "result": [{"url": "u"}]},
            {"type": "code_execution_call", "id": "b"},
            {"type": "code_execution_result", "call_id": "b", "result": "x", "is_error": True},
            {"type": "file_search_result", "call_id": "c", "result": {}},
        ],
        [{"type": "url_context_result", "call_id": "a", "result": []}],
    ],
)
def test_steps_survive_a_round_trip(wire_steps: list[Json]) -> None:
    body = {"model": MODEL, "input": wire_steps, "stream": True}
    assert round_trip(body) == body


def test_repeated_call_ids_survive_a_round_trip() -> None:
    call = {"type": "function_call", "id": "a", "name": "f", "arguments": {}}
    result = {"type": "function_result", "call_id": "a", "name": "f", "result": "x"}
    body = {"model": MODEL, "input": [call, result, call, result], "stream": True}
    messages = read_request(body, provider="google").messages
    calls = [call.tool_call_id for message in messages for call in message.tool_calls]
    assert len(set(calls)) == 2
    assert [result.tool_call_id for message in messages for result in message.tool_results] == calls
    assert round_trip(body) == body


@pytest.mark.parametrize(
    "settings",
    [
        {
            "generation_config": {
                "temperature": 1,
                "top_p": 0.5,
                "max_output_tokens": 3,
                "seed": 2,
                "stop_sequences": ["x"],
            }
        },
        {"generation_config": {"thinking_level": "low", "thinking_summaries": "auto"}},
        {"generation_config": {"thinking_level": "low"}},
        {"generation_config": {"thinking_level": "high", "thinking_summaries": "none"}},
        {"generation_config": {"thinking_level": "later"}},
        {"generation_config": {"thinking_summaries": "auto"}},
        {"generation_config": {"tool_choice": "any"}},
        {"generation_config": {"tool_choice": "validated"}},
        {"generation_config": {"tool_choice": {"allowed_tools": {"mode": "any", "tools": ["f"]}}}},
        {"generation_config": {"tool_choice": {"allowed_tools": {"mode": "auto", "tools": ["f", "g"]}}}},
        {"response_format": {"type": "text", "mime_type": "application/json", "schema": SCHEMA}},
        {"response_format": {"type": "image"}, "store": False, "previous_interaction_id": "i"},
        {"system_instruction": "Be kind."},
        {
            "tools": [
                {"type": "function", "name": "f", "description": "F", "parameters": SCHEMA, "later": 1},
                {"type": "function", "name": "g"},
                {"type": "mcp_server", "name": "m", "url": "u"},
                {"type": "google_search"},
            ]
        },
    ],
)
def test_settings_survive_a_round_trip(settings: Json) -> None:
    body = {"model": MODEL, "input": [{"type": "user_input", "content": [text("hi")]}], "stream": True, **settings}
    assert round_trip(body) == body


def test_an_agent_survives_a_round_trip() -> None:
    body = {"agent": "deep-research", "input": [{"type": "user_input", "content": [text("hi")]}], "stream": True}
    assert round_trip(body) == body


def read(value: Any, **fields: Any) -> ModelRequest:
    return read_request({"model": MODEL, "input": value, **fields}, provider="google")


@pytest.mark.parametrize("value", ["hi", text("hi"), [text("hi")], [{"type": "user_input", "content": [text("hi")]}]])
def test_a_message_of_the_user_has_four_forms(value: Any) -> None:
    assert read(value).messages == (user("hi"),)


def test_the_model_or_agent_may_be_named_beside_the_body() -> None:
    assert read_request({"input": "hi"}, provider="google", model_id="m").config == ModelConfig("m")
    request = read_request({"input": "hi", "agent": "a"}, provider="google")
    assert request.config == ModelConfig("a", extra={"gemini-interactions": {"agent": "a"}})


def test_a_level_of_thinking_is_an_effort_in_every_form() -> None:
    for more in ({}, {"thinking_summaries": "none"}):
        thinking = read("hi", generation_config={"thinking_level": "high", **more}).config.thinking
        assert thinking is not None
        assert thinking.effort == "high"


def test_calls_of_the_provider_have_their_results() -> None:
    wire_steps = [
        {"type": "google_search_call", "id": "a", "arguments": {"queries": ["q"]}},
        {"type": "google_search_result", "call_id": "a", "result": [text("found")], "is_error": True},
        {"type": "mcp_server_tool_result", "call_id": "a", "name": "ask", "result": "later"},
        {"type": "user_input"},
        {"type": "function_result", "call_id": "unknown"},
    ]
    first, second = read(wire_steps).messages
    search, other = first.tool_calls
    assert search.result == ToolResult("a", (Text("found"),), is_error=True)
    assert (other.tool_name, other.tool_call_id) == ("ask", "call-1")
    assert second == tool_message(ToolResult("unknown", ""))


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"input": "hi"}, "$.model"),
        ({"model": MODEL}, "$.input"),
        ({"model": MODEL, "input": [5]}, "$.input[0]"),
        ({"model": MODEL, "input": [{"type": "later"}]}, "$.input[0].type"),
        ({"model": MODEL, "input": [text("a"), {"type": "later"}]}, "$.input[1].type"),
        ({"model": MODEL, "input": [{"type": "image"}]}, "$.input[0].uri"),
        ({"model": MODEL, "input": [{"type": "image", "data": "?"}]}, "$.input[0].data"),
        ({"model": MODEL, "input": [{"type": "user_input", "content": 5}]}, "$.input[0].content"),
        ({"model": MODEL, "input": [{"type": "function_call", "id": "a"}]}, "$.input[0].name"),
        ({"model": MODEL, "input": [{"type": "function_result"}]}, "$.input[0].call_id"),
        ({"model": MODEL, "input": [{"type": "x_call", "arguments": 5}]}, "$.input[0].arguments"),
        ({"model": MODEL, "input": "hi", "tools": [{"type": "function"}]}, "$.tools[0].name"),
        ({"model": MODEL, "input": "hi", "system_instruction": {}}, "$.system_instruction"),
        ({"model": MODEL, "input": "hi", "generation_config": []}, "$.generation_config"),
    ],
)
def test_a_body_of_another_shape_is_refused_with_its_path(body: Json, path: str) -> None:
    with pytest.raises(PartValidationError) as caught:
        read_request(body, provider="google")
    assert caught.value.path == path
