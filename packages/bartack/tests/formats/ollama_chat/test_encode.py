"""Encoding requests for Ollama, one rule at a time, and reading them back."""

from typing import Any

import pytest

from bartack.formats.losses import Losses
from bartack.formats.ollama_chat import encode, read_request
from bartack.nouns.config import CacheConfig, ModelConfig, SpecificTool, ThinkingConfig, ToolSpec
from bartack.nouns.messages import Message, assistant, system, tool_message, user
from bartack.nouns.parts import Continuation, FileRef, Image, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest

PNG = b"\x89PNG rest"
OWN = Continuation("ollama", "m", {"thinking": {}})


def body_of(*messages: Message, losses: Losses | None = None, tools: Any = (), **settings: Any) -> dict[str, Any]:
    config = ModelConfig("m", **settings)
    request = ModelRequest(messages=messages, config=config, tools=tools, provider="ollama")
    return encode(request, losses or Losses("ollama"))


def lost_by(*messages: Message, **settings: Any) -> list[str]:
    losses = Losses("ollama")
    body_of(*messages, losses=losses, **settings)
    return [loss.what for loss in losses.found]


def messages_of(*messages: Message) -> list[dict[str, Any]]:
    wire_messages: list[dict[str, Any]] = body_of(*messages)["messages"]
    return wire_messages


def test_a_conversation_becomes_a_streaming_request() -> None:
    assert body_of(system("Be brief."), user("Hi"), assistant("Hello"), system("Now."), user("a", "b")) == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello"},
            {"role": "system", "content": "Now."},
            {"role": "user", "content": "a\n\nb"},
        ],
        "stream": True,
    }


def test_settings_become_options_merged_with_extra_options() -> None:
    settings: dict[str, Any] = {"max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "seed": 7, "stop_sequences": ("x",)}
    extra = {"options": {"num_ctx": 4096}, "keep_alive": "5m"}
    body = body_of(user("Hi"), **settings, extra=extra, output_schema={"type": "object"}, cache_config=CacheConfig())
    assert body["options"] == {
        "num_predict": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 7,
        "stop": ["x"],
        "num_ctx": 4096,
    }
    assert (body["keep_alive"], body["format"]) == ("5m", {"type": "object"})


@pytest.mark.parametrize(
    ("thinking", "think"),
    [
        (ThinkingConfig(), True),
        (ThinkingConfig(effort="none"), False),
        (ThinkingConfig(effort="minimal"), "low"),
        (ThinkingConfig(effort="max"), "max"),
    ],
)
def test_thinking_settings(thinking: ThinkingConfig, think: bool | str) -> None:
    assert body_of(user("Hi"), thinking=thinking)["think"] == think


def test_images_are_sent_inline_and_other_files_by_name() -> None:
    image = Image("image/png", data=PNG)
    messages = messages_of(user("Look", image, FileRef("b.png", mime_type="image/png", data=PNG)))
    assert messages == [{"role": "user", "content": "Look", "images": ["iVBORyByZXN0", "iVBORyByZXN0"]}]
    files = user(Image("image/png", url="https://x/y.png"), FileRef("a.txt", data=b"x"), FileRef("b.png"))
    assert lost_by(files) == ["image (image/png)", "file a.txt", "file b.png"]
    placeholders = "[image: image/png, https://x/y.png]\n\n[file: a.txt]\n\n[file: b.png]"
    assert messages_of(files) == [{"role": "user", "content": placeholders}]


def test_only_ollamas_own_thinking_is_sent_back() -> None:
    """D-3.9.2."""
    own, foreign = Thinking("Hm.", continuation=OWN), Thinking("Oh.", continuation=Continuation("else", "m", {}))
    assert messages_of(assistant(own, Thinking("x", ignored=True), "Hi")) == [
        {"role": "assistant", "content": "Hi", "thinking": "Hm."}
    ]
    assert lost_by(assistant(foreign, "Hi")) == ["thinking"]
    assert lost_by(assistant(Thinking("by hand"), "Hi")) == ["thinking"]


def test_an_assistant_message_without_content_is_not_sent() -> None:
    """003-7.2.3: ignored text never reaches a model."""
    assert messages_of(assistant(Text("x", ignored=True)), Message("user", (Text("y", ignored=True),))) == [
        {"role": "user", "content": ""}
    ]
    assert messages_of(assistant("")) == [{"role": "assistant", "content": ""}]


def test_arguments_are_objects_and_results_name_their_tool() -> None:
    call = ToolCall("c1", "add", {"a": 1})
    results = tool_message(ToolResult("c1", {"sum": 2}), ToolResult("c9", (Text("see"), Image("image/png", data=PNG))))
    assert messages_of(assistant(call), results) == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1", "function": {"name": "add", "arguments": {"a": 1}}}],
        },
        {"role": "tool", "content": '{"sum":2}', "tool_name": "add", "tool_call_id": "c1"},
        {"role": "tool", "content": "see", "images": ["iVBORyByZXN0"], "tool_call_id": "c9"},
    ]


def test_unsupported_content_and_settings_are_reported() -> None:
    bad = ToolCall("c1", "add", {}, raw_args_text="{")
    served = ToolCall("c2", "search", {}, executed_by="provider")
    assert lost_by(assistant(bad, served), tool_message(ToolResult("c1", "no", is_error=True))) == [
        "invalid arguments",
        "call of search",
        "error flag",
    ]
    settings = {"parallel_tool_calls": False, "thinking": ThinkingConfig(budget_tokens=5)}
    assert lost_by(tool_choice="required", **settings) == [
        "thinking budget",
        "required tool call",
        "one call at a time",
    ]
    assert lost_by(tool_choice=SpecificTool("add")) == ["required tool call"]


def test_tools_are_functions_and_omitted_for_tool_choice_none() -> None:
    spec = ToolSpec("add", {"type": "object"}, description="Adds.", strict=True)
    native = ToolSpec("search", {}, native=Continuation("else", "m", {}))
    losses = Losses("ollama")
    body = body_of(tools=(spec, native, ToolSpec("now", {"type": "object"})), losses=losses, tool_choice="auto")
    assert body["tools"] == [
        {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}},
        {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}},
    ]
    assert [loss.where for loss in losses.found] == ["tools[1]", "tools[0].strict"]
    assert "tools" not in body_of(tools=(spec,), tool_choice="none")


# -- round trips


def test_a_body_survives_a_round_trip() -> None:
    body = {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Look", "images": ["iVBORyByZXN0"]},
            {
                "role": "assistant",
                "content": "",
                "thinking": "Hm.",
                "tool_calls": [{"id": "c1", "function": {"name": "add", "arguments": {"a": 1}}}],
            },
            {"role": "tool", "content": "2", "tool_name": "add", "tool_call_id": "c1"},
            {"role": "assistant", "content": ""},
        ],
        "tools": [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}, "kind": "new"}}],
        "options": {"num_predict": 9, "stop": ["x"], "num_ctx": 4096},
        "format": {"type": "object"},
        "think": "high",
        "keep_alive": "5m",
        "stream": True,
    }
    request = read_request(body, provider="ollama")
    losses = Losses("ollama")
    assert encode(request, losses) == body
    assert not losses.found
    assert request.config.max_tokens == 9
    assert request.config.thinking == ThinkingConfig(effort="high")
    assert request.config.extra == {"ollama-chat": {"options": {"num_ctx": 4096}, "keep_alive": "5m"}}


@pytest.mark.parametrize(
    "extra",
    [{"format": "json"}, {"think": "deep"}, {"options": {}}, {"options": {"seed": 1}}, {"format": ""}],
)
def test_settings_survive_a_round_trip(extra: dict[str, Any]) -> None:
    body = {"model": "m", "messages": [], "stream": True, **extra}
    assert encode(read_request(body, provider="ollama"), Losses("ollama")) == body


def test_an_answer_of_foreign_calls_only_names_their_tools() -> None:
    calls = [ToolCall(name, name, {}, executed_by="provider") for name in ("search", "browse")]
    assert messages_of(assistant(*calls)) == [{"role": "assistant", "content": "[used search, browse]"}]
    assert messages_of(assistant("Hi", *calls)) == [{"role": "assistant", "content": "Hi"}]


def test_thinking_in_a_system_message_is_reported() -> None:
    assert lost_by(Message("system", (Thinking("hm"), Text("S")))) == ["thinking"]


def test_a_loss_inside_a_result_names_its_content() -> None:
    losses = Losses("ollama")
    body_of(tool_message(ToolResult("c1", (Text("see"), FileRef("a.pdf", data=b"x")))), losses=losses)
    assert [loss.where for loss in losses.found] == ["messages[0].parts[0].content[1]"]
