"""A request as Cohere's body and back, one rule at a time."""

from typing import Any

import pytest

from bartack.formats.cohere_v2.encode import encode, read_request
from bartack.formats.losses import Losses
from bartack.nouns.config import ModelConfig, SpecificTool, ThinkingConfig, ToolSpec
from bartack.nouns.errors import PartValidationError
from bartack.nouns.messages import Message, assistant, system, tool_message, user
from bartack.nouns.parts import Continuation, FileRef, Image, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest

CALL = ToolCall("c1", "add", {"a": 1})
CALL_SAID = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


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
    said: list[dict[str, Any]] = body_of(*messages)["messages"]
    return said


def test_a_conversation_is_a_list_of_messages_that_is_streamed() -> None:
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


def test_settings_have_their_own_names() -> None:
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


def test_text_beside_calls_is_the_plan() -> None:
    """Cohere refuses text content in a message with calls."""
    assert messages_of(assistant("I will add.", CALL)) == [
        {"role": "assistant", "tool_plan": "I will add.", "tool_calls": [CALL_SAID]}
    ]


def test_thinking_goes_back_in_the_place_it_came_from() -> None:
    plan = Thinking("Plan.", continuation=carried(type="tool_plan"))
    thought = Thinking("Hm.", continuation=carried(type="thinking"))
    assert messages_of(assistant(thought, plan, CALL), assistant(thought, "Hi")) == [
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "Hm."}],
            "tool_plan": "Plan.",
            "tool_calls": [CALL_SAID],
        },
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Hi"}]},
    ]
    assert lost_by(assistant(Thinking("x"), Thinking("y", ignored=True), "Hi")) == ["thinking"]


def test_citations_go_back_beside_the_text() -> None:
    cited = Text("Hi", continuation=carried(citations=[{"start": 0, "end": 2}]))
    assert messages_of(assistant(cited)) == [
        {"role": "assistant", "content": "Hi", "citations": [{"start": 0, "end": 2}]}
    ]


def test_a_message_with_nothing_left_to_say_is_not_sent() -> None:
    assert messages_of(assistant(Thinking("x")), assistant(Text("y", ignored=True)), Message("user", ())) == [
        {"role": "user", "content": ""}
    ]


def test_images_are_addresses_and_other_files_are_lost() -> None:
    assert messages_of(user(Image("image/png", data=b"\0\0\0"), Image("image/*", url="https://x/y.png"))) == [
        {"role": "user", "content": [PICTURE, {"type": "image_url", "image_url": {"url": "https://x/y.png"}}]}
    ]
    others = user(FileRef("a.pdf", mime_type="application/pdf", data=b"x"), FileRef("b.png"))
    assert lost_by(others) == ["the file a.pdf", "the file b.png"]
    assert messages_of(user(FileRef("b.png", mime_type="image/png"))) == [{"role": "user", "content": "[file: b.png]"}]


def test_images_in_results_follow_in_a_message_of_the_user() -> None:
    results = tool_message(
        ToolResult("c1", {"sum": 2}),
        ToolResult("c2", (Text("see"), Image("image/png", data=b"\0\0\0"))),
        ToolResult("c3", ""),
    )
    assert messages_of(results) == [
        {"role": "tool", "tool_call_id": "c1", "content": '{"sum":2}'},
        {"role": "tool", "tool_call_id": "c2", "content": "see"},
        {"role": "tool", "tool_call_id": "c3", "content": "(no output)"},
        {"role": "user", "content": [PICTURE]},
    ]


def test_what_cohere_has_no_field_for_is_a_loss() -> None:
    bad = ToolCall("c1", "add", {}, raw_args_text="{")
    served = ToolCall("c2", "search", {}, executed_by="provider")
    assert lost_by(assistant(bad, served), tool_message(ToolResult("c1", "no", is_error=True))) == [
        "arguments that are no JSON object",
        "the call of search",
        "that the tool failed",
    ]
    assert lost_by(parallel_tool_calls=False) == ["one call at a time"]
    tools = (ToolSpec("add", {}), ToolSpec("search", {}, native=Continuation("else", "m", {})))
    assert lost_by(tools=tools, output_schema={}) == ["a tool that the provider executes", "the schema of the answer"]


def test_tools_are_functions_and_strictness_is_one_switch() -> None:
    body = body_of(tools=(ToolSpec("add", {"type": "object"}, description="Adds.", strict=True), ToolSpec("now", {})))
    assert body["tools"] == [
        {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}},
        {"type": "function", "function": {"name": "now", "parameters": {}}},
    ]
    assert body["strict_tools"] is True
    assert "tool_choice" not in body


def test_the_choice_of_a_tool() -> None:
    """A tool that must be called is offered alone."""
    tools = (ToolSpec("add", {}), ToolSpec("now", {}))
    assert body_of(tools=tools, tool_choice="none")["tool_choice"] == "NONE"
    assert "tool_choice" not in body_of(tools=tools, tool_choice="auto")
    body = body_of(tools=tools, tool_choice=SpecificTool("now"))
    assert body["tool_choice"] == "REQUIRED"
    assert [entry["function"]["name"] for entry in body["tools"]] == ["now"]
    assert "tool_choice" not in body_of(tool_choice="required")


@pytest.mark.parametrize(
    ("thinking", "said"),
    [
        (ThinkingConfig(), {"type": "enabled"}),
        (ThinkingConfig(effort="none"), {"type": "disabled"}),
        (ThinkingConfig(budget_tokens=50), {"type": "enabled", "token_budget": 50}),
    ],
)
def test_thinking_has_a_budget(thinking: ThinkingConfig, said: dict[str, Any]) -> None:
    assert body_of(thinking=thinking)["thinking"] == said
    assert lost_by(thinking=ThinkingConfig(effort="high")) == ["the effort high"]


# -- reading


def test_a_body_comes_back_as_it_was() -> None:
    body = {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief.", "mood": "calm"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look"},
                    PICTURE,
                    {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}},
                ],
            },
            {"role": "assistant", "tool_plan": "Plan.", "tool_calls": [CALL_SAID], "citations": [{"type": "PLAN"}]},
            {
                "role": "tool",
                "tool_call_id": "c1",
                "content": [
                    {"type": "document", "document": {"id": "d", "data": {"sum": 2}}},
                    {"type": "text", "text": "that is it"},
                ],
                "mood": "odd",
            },
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Hi"}],
                "citations": [{"start": 0, "end": 2}],
            },
            {"role": "user", "content": ""},
        ],
        "tools": [{"type": "function", "function": {"name": "add", "parameters": {}, "kind": "new"}}],
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
    assert request.config.extra == {"safety_mode": "OFF"}


@pytest.mark.parametrize(
    "settings",
    [
        {"response_format": {"type": "json_object", "json_schema": {"type": "object"}}},
        {"response_format": {"type": "json_object"}},
        {"thinking": {"type": "disabled"}},
        {"thinking": {"type": "deep"}},
        {"tool_choice": "MAYBE"},
    ],
)
def test_settings_come_back_as_they_were(settings: dict[str, Any]) -> None:
    body = {"model": "m", "messages": [], "stream": True, **settings}
    assert encode(read_request(body, provider="cohere"), Losses("cohere")) == body


def test_an_answer_may_be_empty_and_its_arguments_broken() -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": "{"}}
    said = [
        {"role": "assistant", "content": None},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": None},
    ]
    request = read_request({"messages": said}, provider="cohere", model_id="m")
    assert [message.parts for message in request.messages] == [
        (Text(""),),
        (ToolCall("c", "f", {}, raw_args_text="{"),),
        (ToolResult("c", ""),),
    ]


def test_keys_of_another_provider_are_not_sent() -> None:
    foreign = Continuation("else", "m", {"fields": {"mood": "odd"}})
    assert messages_of(user(Text("Hi", continuation=foreign))) == [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("message", "path"),
    [
        ({"role": "king"}, ".role"),
        ({"role": "tool", "content": ""}, ".tool_call_id"),
        ({"role": "user", "content": 1}, ".content"),
        ({"role": "user", "content": [{}]}, ".content[0].type"),
        ({"role": "user", "content": [{"type": "text"}]}, ".content[0].text"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, ".content[0].image_url.url"),
        ({"role": "assistant", "tool_calls": [{"id": 1, "function": {"name": "f"}}]}, ".tool_calls[0].id"),
        ({"role": "assistant", "tool_calls": [CALL_SAID, CALL_SAID]}, ".parts[1].payload.toolCallId"),
    ],
)
def test_what_is_no_message_is_refused_with_its_place(message: Any, path: str) -> None:
    with pytest.raises(PartValidationError) as caught:
        read_request({"model": "m", "messages": [message]}, provider="cohere")
    assert caught.value.path == f"$.messages[0]{path}"


def test_a_later_system_message_is_said_by_the_user() -> None:
    """Cohere: "system turn must be the first in the list"."""
    said = messages_of(system("a"), system("b"), user("c"), system("d"))
    assert [message["role"] for message in said] == ["system", "system", "user", "user"]
    assert lost_by(user("c"), system("d")) == ["the system role"]


def test_an_answer_of_which_only_thinking_is_left_is_not_sent() -> None:
    plan = Thinking("I will look.", continuation=carried(type="tool_plan"))
    foreign = ToolCall("a", "search", {}, executed_by="provider")
    assert messages_of(assistant(plan, foreign)) == []
    assert lost_by(assistant(plan, foreign)) == ["the call of search", "thinking"]
    assert messages_of(assistant(Text("", continuation=carried(citations=[1])), foreign)) == []


def test_thinking_in_a_system_message_is_a_loss() -> None:
    assert lost_by(Message("system", (Thinking("hm"), Text("S")))) == ["thinking"]
    assert lost_by(assistant(Thinking("hm", ignored=True), "Hi")) == []
