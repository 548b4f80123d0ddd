"""A request as Ollama's body and back, one rule at a time."""

from typing import Any

import pytest

from bartack.formats.losses import Losses
from bartack.formats.ollama_chat.encode import encode, read_request
from bartack.nouns.config import CacheConfig, ModelConfig, SpecificTool, ThinkingConfig, ToolSpec
from bartack.nouns.errors import PartValidationError
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
    said: list[dict[str, Any]] = body_of(*messages)["messages"]
    return said


def test_a_conversation_is_a_list_of_messages_that_is_streamed() -> None:
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


def test_settings_go_into_options_and_extra_settings_join_them() -> None:
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
def test_thinking_is_switched_or_graded(thinking: ThinkingConfig, think: bool | str) -> None:
    assert body_of(user("Hi"), thinking=thinking)["think"] == think


def test_images_are_inline_and_other_files_are_lost() -> None:
    picture = Image("image/png", data=PNG)
    said = messages_of(user("Look", picture, FileRef("b.png", mime_type="image/png", data=PNG)))
    assert said == [{"role": "user", "content": "Look", "images": ["iVBORyByZXN0", "iVBORyByZXN0"]}]
    files = user(Image("image/png", url="https://x/y.png"), FileRef("a.txt", data=b"x"), FileRef("b.png"))
    assert lost_by(files) == ["an image (image/png)", "the file a.txt", "the file b.png"]
    named = "[image: image/png, https://x/y.png]\n\n[file: a.txt]\n\n[file: b.png]"
    assert messages_of(files) == [{"role": "user", "content": named}]


def test_thinking_goes_back_to_ollama_alone() -> None:
    """D-3.9.2."""
    own, foreign = Thinking("Hm.", continuation=OWN), Thinking("Oh.", continuation=Continuation("else", "m", {}))
    assert messages_of(assistant(own, Thinking("x", ignored=True), "Hi")) == [
        {"role": "assistant", "content": "Hi", "thinking": "Hm."}
    ]
    assert lost_by(assistant(foreign, "Hi")) == ["thinking"]
    assert lost_by(assistant(Thinking("by hand"), "Hi")) == ["thinking"]


def test_a_message_with_nothing_left_to_say_is_not_sent() -> None:
    """003-7.2.3: ignored text never reaches a model."""
    assert messages_of(assistant(Text("x", ignored=True)), Message("user", (Text("y", ignored=True),))) == [
        {"role": "user", "content": ""}
    ]
    assert messages_of(assistant("")) == [{"role": "assistant", "content": ""}]


def test_calls_are_objects_and_results_name_their_tool() -> None:
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


def test_what_ollama_has_no_field_for_is_a_loss() -> None:
    bad = ToolCall("c1", "add", {}, raw_args_text="{")
    served = ToolCall("c2", "search", {}, executed_by="provider")
    assert lost_by(assistant(bad, served), tool_message(ToolResult("c1", "no", is_error=True))) == [
        "arguments that are no JSON object",
        "the call of search",
        "that the tool failed",
    ]
    settings = {"parallel_tool_calls": False, "thinking": ThinkingConfig(budget_tokens=5)}
    assert lost_by(tool_choice="required", **settings) == [
        "a budget of tokens for thinking",
        "that a tool must be called",
        "one call at a time",
    ]
    assert lost_by(tool_choice=SpecificTool("add")) == ["that a tool must be called"]


def test_tools_are_functions_and_none_of_them_is_offered_for_the_choice_none() -> None:
    spec = ToolSpec("add", {"type": "object"}, description="Adds.", strict=True)
    native = ToolSpec("search", {}, native=Continuation("else", "m", {}))
    losses = Losses("ollama")
    body = body_of(tools=(spec, native, ToolSpec("now", {})), losses=losses, tool_choice="auto")
    assert body["tools"] == [
        {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}},
        {"type": "function", "function": {"name": "now", "parameters": {}}},
    ]
    assert [loss.where for loss in losses.found] == ["tools.add.strict", "tools.search"]
    assert "tools" not in body_of(tools=(spec,), tool_choice="none")


# -- reading


def test_a_body_comes_back_as_it_was() -> None:
    body = {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief.", "mood": "calm"},
            {"role": "user", "content": "Look", "images": ["iVBORyByZXN0"]},
            {
                "role": "assistant",
                "content": "",
                "thinking": "Hm.",
                "tool_calls": [{"id": "c1", "function": {"name": "add", "arguments": {"a": 1}}}],
                "mood": "odd",
            },
            {"role": "tool", "content": "2", "tool_name": "add", "tool_call_id": "c1", "cached": True},
            {"role": "assistant", "content": ""},
        ],
        "tools": [{"type": "function", "function": {"name": "add", "parameters": {}, "kind": "new"}}],
        "options": {"num_predict": 9, "stop": ["x"], "num_ctx": 4096},
        "format": {"type": "object"},
        "think": "high",
        "keep_alive": None,
        "stream": True,
    }
    request = read_request(body, provider="ollama")
    losses = Losses("ollama")
    assert encode(request, losses) == body
    assert not losses.found
    assert request.config.max_tokens == 9
    assert request.config.thinking == ThinkingConfig(effort="high")
    assert request.config.extra == {"options": {"num_ctx": 4096}, "keep_alive": None}


@pytest.mark.parametrize(
    "extra",
    [{"format": "json"}, {"think": "deep"}, {"options": {}}, {"options": {"seed": 1}}, {"tools": []}, {"format": ""}],
)
def test_settings_come_back_as_they_were(extra: dict[str, Any]) -> None:
    body = {"model": "m", "messages": [], "stream": True, **extra}
    assert encode(read_request(body, provider="ollama"), Losses("ollama")) == body


def test_results_without_ids_answer_the_calls_in_order_or_by_name() -> None:
    calls = [{"function": {"name": name}} for name in ("add", "now", "add")]
    said = [
        {"role": "assistant", "tool_calls": calls},
        {"role": "tool", "content": "noon", "tool_name": "now"},
        {"role": "tool", "content": "1"},
        {"role": "tool", "content": "2"},
        {"role": "tool", "images": ["AAAA"]},
    ]
    request = read_request({"messages": said}, provider="ollama", model_id="m")
    ids = [result.tool_call_id for message in request.messages for result in message.tool_results]
    assert ids == ["call-2", "call-1", "call-3", "call-4"]
    assert request.messages[-1].tool_results[0].content == (Image("image/png", data=b"\0\0\0"),)


def test_keys_of_another_provider_are_not_sent() -> None:
    carried = Continuation("else", "m", {"fields": {"mood": "odd"}})
    assert messages_of(user(Text("Hi", continuation=carried))) == [{"role": "user", "content": "Hi"}]
    assert messages_of(Message("user", ())) == [{"role": "user", "content": ""}]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ([], "$"),
        ({}, "$.model"),
        ({"model": "m"}, "$.messages"),
        ({"model": "m", "messages": [1]}, "$.messages[0]"),
        ({"model": "m", "messages": [{"role": "king", "content": ""}]}, "$.messages[0].role"),
        ({"model": "m", "messages": [{"content": ""}]}, "$.messages[0].role"),
        ({"model": "m", "messages": [{"role": "user", "content": 1}]}, "$.messages[0].content"),
        ({"model": "m", "messages": [{"role": "user", "images": ["?"]}]}, "$.messages[0].images[0]"),
        ({"model": "m", "messages": [], "options": {"temperature": "hot"}}, "$.options.temperature"),
        ({"model": "m", "messages": [], "options": {"seed": True}}, "$.options.seed"),
        ({"model": "m", "messages": [], "options": {"stop": [1]}}, "$.options.stop[0]"),
        ({"model": "m", "messages": [], "tools": [{"function": {}}]}, "$.tools[0].function.name"),
    ],
)
def test_what_is_no_body_is_refused_with_its_place(body: Any, path: str) -> None:
    with pytest.raises(PartValidationError) as caught:
        read_request(body, provider="ollama")
    assert caught.value.path == path


def test_an_answer_of_which_nothing_is_left_says_what_it_used() -> None:
    calls = [ToolCall(name, name, {}, executed_by="provider") for name in ("search", "browse")]
    assert messages_of(assistant(*calls)) == [{"role": "assistant", "content": "[used search, browse]"}]
    assert messages_of(assistant("Hi", *calls)) == [{"role": "assistant", "content": "Hi"}]


def test_thinking_in_a_system_message_is_a_loss() -> None:
    assert lost_by(Message("system", (Thinking("hm"), Text("S")))) == ["thinking"]
