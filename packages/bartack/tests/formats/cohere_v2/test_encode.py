"""Encoding requests for Cohere, one rule at a time, and reading them back."""

from typing import Any

import pytest

from bartack.formats.cohere_v2 import encode, read_request
from bartack.formats.losses import Losses
from bartack.nouns.config import ModelConfig, SpecificTool, ThinkingConfig, ToolSpec
from bartack.nouns.messages import Message, assistant, system, tool_message, user
from bartack.nouns.parts import Continuation, FileRef, Image, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest

CALL = ToolCall("c1", "add", {"a": 1})
CALL_SENT = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def carried(**data: Any) -> Continuation:
    return Continuation("cohere", "m", data)


def body_of(*messages: Message, losses: Losses | None = None, tools: Any = (), **settings: Any) -> dict[str, Any]:
    config = ModelConfig("m", **settings)
    request = ModelRequest(messages=messages, config=config, tools=tools, provider="cohere")
    return encode(request, losses or Losses("cohere"))


def lost_by(*messages: Message, **settings: Any) -> list[str]:
    losses = Losses("cohere")
    body_of(*messages, losses=losses, **settings)
    return [loss.what for loss in losses.found]


def messages_of(*messages: Message) -> list[dict[str, Any]]:
    wire_messages: list[dict[str, Any]] = body_of(*messages)["messages"]
    return wire_messages


def test_a_conversation_becomes_a_streaming_request() -> None:
    assert body_of(system("Be brief."), user("Hi"), assistant("Hello"), user("a", "b")) == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        ],
        "stream": True,
    }


def test_settings_use_cohere_names() -> None:
    settings: dict[str, Any] = {"max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "seed": 7, "stop_sequences": ("x",)}
    body = body_of(user("Hi"), **settings, extra={"k": 5}, output_schema={"type": "object"})
    assert {key: body[key] for key in ("max_tokens", "temperature", "p", "seed", "stop_sequences", "k")} == {
        "max_tokens": 9,
        "temperature": 0.5,
        "p": 0.9,
        "seed": 7,
        "stop_sequences": ["x"],
        "k": 5,
    }
    assert body["response_format"] == {"type": "json_object", "json_schema": {"type": "object"}}


def test_text_before_calls_is_sent_as_the_tool_plan() -> None:
    assert messages_of(assistant("I will add.", CALL)) == [
        {"role": "assistant", "tool_plan": "I will add.", "tool_calls": [CALL_SENT]}
    ]


def test_thinking_is_sent_back_in_the_field_it_came_from() -> None:
    plan = Thinking("Plan.", continuation=carried(type="tool_plan"))
    thought = Thinking("Hm.", continuation=carried(type="thinking"))
    assert messages_of(assistant(thought, plan, CALL), assistant(thought, "Hi")) == [
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "Hm."}],
            "tool_plan": "Plan.",
            "tool_calls": [CALL_SENT],
        },
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Hi"}]},
    ]
    assert lost_by(assistant(Thinking("x"), Thinking("y", ignored=True), "Hi")) == ["thinking"]


def test_citations_are_sent_back_with_the_text() -> None:
    cited = Text("Hi", continuation=carried(citations=[{"start": 0, "end": 2}]))
    assert messages_of(assistant(cited)) == [
        {"role": "assistant", "content": "Hi", "citations": [{"start": 0, "end": 2}]}
    ]


def test_an_assistant_message_without_content_is_not_sent() -> None:
    assert messages_of(assistant(Thinking("x")), assistant(Text("y", ignored=True)), Message("user", ())) == [
        {"role": "user", "content": ""}
    ]
    assert messages_of(user(Text("x", ignored=True), "Hi")) == [{"role": "user", "content": "Hi"}]


def test_images_are_sent_as_urls_and_other_files_by_name() -> None:
    assert messages_of(user(Image("image/png", data=b"\0\0\0"), Image("image/*", url="https://x/y.png"))) == [
        {"role": "user", "content": [IMAGE, {"type": "image_url", "image_url": {"url": "https://x/y.png"}}]}
    ]
    files = user(FileRef("a.pdf", mime_type="application/pdf", data=b"x"), FileRef("b.png"))
    assert lost_by(files) == ["file a.pdf", "file b.png"]
    assert messages_of(user(FileRef("b.png", mime_type="image/png"))) == [{"role": "user", "content": "[file: b.png]"}]


def test_images_in_results_follow_in_a_user_message() -> None:
    results = tool_message(
        ToolResult("c1", {"sum": 2}),
        ToolResult("c2", (Text("see"), Image("image/png", data=b"\0\0\0"))),
        ToolResult("c3", ""),
    )
    assert messages_of(results) == [
        {"role": "tool", "tool_call_id": "c1", "content": '{"sum":2}'},
        {"role": "tool", "tool_call_id": "c2", "content": "see"},
        {"role": "tool", "tool_call_id": "c3", "content": "(no output)"},
        {"role": "user", "content": [IMAGE]},
    ]
    assert lost_by(results) == ["media of a tool result"]


def test_images_in_results_follow_the_results_of_all_calls() -> None:
    calls = assistant(ToolCall("c1", "look", {}), ToolCall("c2", "look", {}))
    image_result = ToolResult("c1", (Image("image/png", data=b"\0\0\0"),))
    messages = messages_of(
        user("go"), calls, tool_message(image_result), tool_message(ToolResult("c2", "x")), user("well?")
    )
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "user", "user"]
    assert messages[4]["content"] == [IMAGE]


def test_unsupported_content_and_settings_are_reported() -> None:
    bad = ToolCall("c1", "add", {}, raw_args_text="{")
    served = ToolCall("c2", "search", {}, executed_by="provider")
    assert lost_by(assistant(bad, served), tool_message(ToolResult("c1", "no", is_error=True))) == [
        "invalid arguments",
        "call of search",
        "error flag",
    ]
    assert lost_by(parallel_tool_calls=False) == ["one call at a time"]
    tools = (ToolSpec("add", {}), ToolSpec("search", {}, native=Continuation("else", "m", {})))
    assert lost_by(tools=tools, output_schema={}) == ["tool search", "output schema"]


def test_one_strict_tool_enables_strict_tools() -> None:
    body = body_of(
        tools=(
            ToolSpec("add", {"type": "object"}, description="Adds.", strict=True),
            ToolSpec("now", {"type": "object"}),
        )
    )
    assert body["tools"] == [
        {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}},
        {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}},
    ]
    assert body["strict_tools"] is True
    assert "tool_choice" not in body


def test_a_specific_tool_is_requested_by_offering_it_alone() -> None:
    tools = (ToolSpec("add", {}), ToolSpec("now", {}))
    assert body_of(tools=tools, tool_choice="none")["tool_choice"] == "NONE"
    assert "tool_choice" not in body_of(tools=tools, tool_choice="auto")
    body = body_of(tools=tools, tool_choice=SpecificTool("now"))
    assert body["tool_choice"] == "REQUIRED"
    assert [entry["function"]["name"] for entry in body["tools"]] == ["now"]
    assert "tool_choice" not in body_of(tool_choice="required")


@pytest.mark.parametrize(
    ("thinking", "expected"),
    [
        (ThinkingConfig(), {"type": "enabled"}),
        (ThinkingConfig(effort="none"), {"type": "disabled"}),
        (ThinkingConfig(budget_tokens=50), {"type": "enabled", "token_budget": 50}),
    ],
)
def test_thinking_settings(thinking: ThinkingConfig, expected: dict[str, Any]) -> None:
    assert body_of(thinking=thinking)["thinking"] == expected
    assert lost_by(thinking=ThinkingConfig(effort="high")) == ["thinking effort 'high'"]


# -- round trips


def test_a_body_survives_a_round_trip() -> None:
    body = {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look"},
                    IMAGE,
                    {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
                ],
            },
            {"role": "assistant", "tool_plan": "Plan.", "tool_calls": [CALL_SENT]},
            {"role": "tool", "tool_call_id": "c1", "content": "2"},
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Hi"}],
                "citations": [{"start": 0, "end": 2}],
            },
            {"role": "user", "content": "a"},
        ],
        "tools": [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}, "kind": "new"}}],
        "strict_tools": True,
        "tool_choice": "REQUIRED",
        "temperature": 0.5,
        "stop_sequences": ["x"],
        "thinking": {"type": "enabled", "token_budget": 50},
        "safety_mode": "OFF",
        "stream": True,
    }
    request = read_request(body, provider="cohere")
    losses = Losses("cohere")
    assert encode(request, losses) == body
    assert not losses.found
    assert request.tools[0].strict is True
    assert request.config.tool_choice == "required"
    assert request.config.extra == {"cohere-v2": {"safety_mode": "OFF"}}


@pytest.mark.parametrize(
    "settings",
    [
        {"response_format": {"type": "json_object", "json_schema": {"type": "object"}}},
        {"response_format": {"type": "json_object"}},
        {"tool_choice": "MAYBE"},
        {"thinking": {"type": "disabled"}},
    ],
)
def test_settings_survive_a_round_trip(settings: dict[str, Any]) -> None:
    body = {"model": "m", "messages": [], "stream": True, **settings}
    assert encode(read_request(body, provider="cohere"), Losses("cohere")) == body


def test_a_later_system_message_is_sent_as_a_user_message() -> None:
    """Cohere: "system turn must be the first in the list"."""
    messages = messages_of(system("a"), system("b"), user("c"), system("d"))
    assert [message["role"] for message in messages] == ["system", "system", "user", "user"]
    assert lost_by(user("c"), system("d")) == ["system role"]


def test_an_answer_reduced_to_thinking_is_not_sent() -> None:
    plan = Thinking("I will look.", continuation=carried(type="tool_plan"))
    foreign = ToolCall("a", "search", {}, executed_by="provider")
    assert messages_of(assistant(plan, foreign)) == []
    assert lost_by(assistant(plan, foreign)) == ["call of search", "thinking"]
    assert messages_of(assistant(Text("", continuation=carried(citations=[1])), foreign)) == []


def test_thinking_in_a_system_message_is_reported() -> None:
    assert lost_by(Message("system", (Thinking("hm"), Text("S")))) == ["thinking"]
    assert lost_by(assistant(Thinking("hm", ignored=True), "Hi")) == []


def test_a_loss_inside_a_result_names_its_content() -> None:
    losses = Losses("cohere")
    body_of(tool_message(ToolResult("c1", (Text("see"), FileRef("a.pdf", data=b"x")))), losses=losses)
    assert [loss.where for loss in losses.found] == ["messages[0].parts[0].content[1]"]
