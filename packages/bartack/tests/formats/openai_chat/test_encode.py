"""Chat Completions requests, encoded and read, with small made-up requests for every rule and vendor."""

from base64 import b64encode
from typing import Any

import pytest
from msgspec.structs import replace

from bartack.formats.format import STRICTEST
from bartack.formats.losses import Losses
from bartack.formats.openai_chat.capabilities import BY_PROVIDER, COMPATIBLE, capabilities_of
from bartack.formats.openai_chat.encode import encode
from bartack.formats.openai_chat.read import read_request
from bartack.formats.repair import RESULTS_RECEIVED
from bartack.nouns.config import CacheConfig, ModelConfig, SpecificTool, ThinkingConfig, ToolSpec
from bartack.nouns.errors import PartValidationError
from bartack.nouns.messages import Message, assistant, system, tool_message, user
from bartack.nouns.parts import Continuation, FileRef, Image, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest

Json = dict[str, Any]
SCHEMA: Json = {"type": "object", "properties": {"a": {"type": "string"}}}


def request_of(*messages: Message, provider: str = "openai", tools: Any = (), **settings: Any) -> ModelRequest:
    config = ModelConfig("m", **settings)
    return ModelRequest(messages=messages, config=config, tools=tuple(tools), provider=provider)


def encoded(*messages: Message, provider: str = "openai", tools: Any = (), **settings: Any) -> tuple[Json, list[str]]:
    losses = Losses(provider)
    body = encode(request_of(*messages, provider=provider, tools=tools, **settings), losses)
    return body, [f"{loss.where}: {loss.what}" for loss in losses.found]


def sent(*messages: Message, provider: str = "openai") -> list[Json]:
    """The encoded messages of a request without losses."""
    body, losses = encoded(*messages, provider=provider)
    assert losses == []
    wires: list[Json] = body["messages"]
    return wires


def kept(provider: str, **data: Any) -> Continuation:
    return Continuation(provider, "m", data)


def read_message(wire: Json, *before: Json, provider: str = "openai") -> Message:
    return read_request({"model": "m", "messages": [*before, wire]}, provider=provider).messages[-1]


def assert_round_trip(*wires: Json, provider: str = "openai") -> tuple[Message, ...]:
    """Reading these messages and encoding them again gives them back exactly."""
    request = read_request({"model": "m", "messages": list(wires)}, provider=provider)
    assert encode(request, Losses(provider))["messages"] == list(wires)
    return request.messages


# -- the body


def test_a_body_has_the_model_the_messages_and_requests_a_stream_with_usage() -> None:
    body, losses = encoded(system("Be brief."), user("Hi"))
    assert body == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert losses == []


def test_the_same_request_gives_the_same_body() -> None:
    request = request_of(system("s"), user("u"), tools=[ToolSpec("f", SCHEMA)], cache_config=CacheConfig())
    assert encode(request, Losses("openai")) == encode(request, Losses("openai"))


def test_extra_settings_are_added_to_the_body() -> None:
    body, _ = encoded(user("Hi"), extra={"n": 1, "stream_options": {"obfuscation": False}})
    assert body["n"] == 1
    assert body["stream_options"] == {"include_usage": True, "obfuscation": False}


def test_an_unknown_provider_gets_what_every_server_accepts() -> None:
    assert capabilities_of("unknown") is COMPATIBLE
    assert capabilities_of("openai-chat") == capabilities_of("openai")
    assert all(capabilities_of(name) == row for name, row in BY_PROVIDER.items())


# -- system and user messages


def test_several_texts_are_a_list_or_lines_depending_on_the_provider() -> None:
    message = user("a", "b")
    assert sent(message)[0]["content"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert sent(message, provider="deepseek")[0]["content"] == "a\nb"


def test_ignored_parts_are_not_sent() -> None:
    assert sent(user("a", Text("psst", ignored=True)))[0]["content"] == "a"
    assert sent(Message("assistant", (Text("psst", ignored=True), Text("b"))))[0]["content"] == "b"


def test_a_system_message_is_sent_as_user_text_where_it_is_not_accepted() -> None:
    messages = (system("a"), system("b"), user("c"), system("d"))
    assert [wire["role"] for wire in sent(*messages)] == ["system", "system", "user", "system"]
    body, losses = encoded(*messages, provider="mistral")
    assert [wire["role"] for wire in body["messages"]] == ["system", "system", "user", "user"]
    assert losses == ["messages[3]: system role"]


DATA = b64encode(b"abc").decode()


@pytest.mark.parametrize(
    ("provider", "part", "piece"),
    [
        ("openai", Image("image/png", data=b"abc"), ("image_url", {"url": f"data:image/png;base64,{DATA}"})),
        ("openai", Image("image/png", url="https://a/b"), ("image_url", {"url": "https://a/b"})),
        ("openai", FileRef("a", url="https://a", mime_type="image/gif"), ("image_url", {"url": "https://a"})),
        ("openai", FileRef("a", data=b"abc", mime_type="audio/mpeg"), ("input_audio", {"data": DATA, "format": "mp3"})),
        ("vllm", FileRef("a", data=b"abc", mime_type="audio/ogg"), ("input_audio", {"data": DATA, "format": "ogg"})),
        ("openai", FileRef("a.pdf", data=b"abc"),
         ("file", {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{DATA}"})),
        ("openai", FileRef("f", continuation=kept("openai", file={"file_id": "f"})), ("file", {"file_id": "f"})),
        ("openai", FileRef("a.txt", data=b"abc", mime_type="text/plain"), ("text", "a.txt:\nabc")),
        ("openrouter", FileRef("a", url="https://a"), ("file", {"filename": "a", "file_data": "https://a"})),
        ("openrouter", FileRef("a", url="https://a", mime_type="video/mp4"), ("video_url", {"url": "https://a"})),
        ("zai", FileRef("a", url="https://a"), ("file_url", {"url": "https://a"})),
        ("mistral", FileRef("https://a", url="https://a"), ("document_url", "https://a")),
    ],
)  # fmt: skip
def test_images_and_files_are_sent_in_the_form_that_the_provider_accepts(
    provider: str, part: Image, piece: Any
) -> None:
    kind, payload = piece
    assert sent(user("see", part), provider=provider)[0]["content"][-1] == {"type": kind, kind: payload}


def test_a_document_for_mistral_has_a_name() -> None:
    (piece,) = sent(user(FileRef("a.pdf", url="https://a")), provider="mistral")[0]["content"]
    assert piece == {"type": "document_url", "document_url": "https://a", "document_name": "a.pdf"}


@pytest.mark.parametrize(
    ("provider", "part"),
    [
        ("openai", FileRef("/a/b")),
        ("openai", FileRef("a.txt", data=b"")),
        ("openai", FileRef("a.docx", data=b"abc")),
        ("openai", FileRef("a.ogg", data=b"abc", mime_type="audio/ogg")),
        ("openai", Image("image/bmp", data=b"abc")),
        ("openai", Image("image/png", url="file:///a.png")),
        ("deepseek", Image("image/png", data=b"abc")),
        ("openai", FileRef("a.pdf", url="https://a")),
        ("openai", FileRef("a.mp4", data=b"abc", mime_type="video/mp4")),
        ("groq", FileRef("a.pdf", data=b"abc", mime_type="application/pdf")),
        ("groq", FileRef("a.txt", url="https://a", mime_type="text/plain")),
        ("openai", FileRef("a.mp3", url="https://a", mime_type="audio/mpeg")),
    ],
)
def test_media_that_a_provider_does_not_accept_are_named_and_a_loss(provider: str, part: Image | FileRef) -> None:
    body, losses = encoded(user(part), provider=provider)
    name = part.path if isinstance(part, FileRef) else part.mime_type
    assert body["messages"][0]["content"].partition(": ")[2].strip("]").partition(", ")[0] == name
    assert [loss.partition(":")[0] for loss in losses] == ["messages[0].parts[0]"]


def test_continuation_data_of_other_providers_is_not_sent() -> None:
    """D-3.9.2."""
    body, losses = encoded(user(Text("a", continuation=kept("x", chunk={"cache_control": {}}, message={"name": "n"}))))
    assert body["messages"] == [{"role": "user", "content": "a"}]
    assert losses == ["messages[0].parts[0]: continuation data"]


# -- answers


def test_the_texts_of_an_answer_are_joined() -> None:
    assert sent(assistant("a", "b"), assistant()) == [
        {"role": "assistant", "content": "ab"},
        {"role": "assistant", "content": None},
    ]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_thinking_is_sent_back_in_the_field_it_came_in(field: str) -> None:
    parts = [Thinking(text, continuation=kept("zai", field=field)) for text in ("a", "b")]
    assert sent(assistant(*parts, "c"), provider="zai") == [{"role": "assistant", "content": "c", field: "ab"}]


def test_reasoning_details_are_sent_back_unchanged() -> None:
    secret = {"type": "reasoning.encrypted", "data": "QUJD"}
    parts = [
        Thinking("a", continuation=kept("openrouter", field="reasoning", reasoning_details=[{"text": "a"}])),
        Thinking("", continuation=kept("openrouter", reasoning_details=[secret])),
        Thinking("b", continuation=kept("openrouter", field="reasoning_details")),
    ]
    (wire,) = sent(assistant(*parts), provider="openrouter")
    assert wire == {"role": "assistant", "content": None, "reasoning_details": [{"text": "a"}, secret]}


def test_thinking_that_came_as_content_is_sent_back_as_content() -> None:
    thinking = Thinking("a", continuation=kept("mistral", field="content", chunk={"closed": True}))
    (wire,) = sent(assistant(thinking, "b"), provider="mistral")
    assert wire["content"] == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "a"}], "closed": True},
        {"type": "text", "text": "b"},
    ]


def test_thinking_that_cannot_be_sent_back_is_a_loss() -> None:
    """From another or an unknown provider, or to a provider that does not accept it."""
    parts = [
        Thinking("a", continuation=kept("deepseek", field="reasoning_content")),
        Thinking("b"),
        Thinking("c", continuation=kept("openai", field="reasoning")),
    ]
    body, losses = encoded(assistant(*parts, "d"))
    assert body["messages"] == [{"role": "assistant", "content": "d"}]
    assert losses == [
        "messages[0].parts[0]: thinking",
        "messages[0].parts[1]: thinking",
        "messages[0].parts[2]: thinking",
    ]


def test_a_message_with_calls_has_the_thinking_field_where_it_is_required() -> None:
    """DeepSeek refuses calls without it, even if there was no thinking."""
    (wire,) = sent(assistant(ToolCall("a", "f", {})), provider="deepseek")
    assert wire["reasoning_content"] == ""


def test_refusals_annotations_and_speech_are_sent_back() -> None:
    refusal = Text("no", continuation=kept("openai", field="refusal"))
    assert sent(assistant(refusal)) == [{"role": "assistant", "content": None, "refusal": "no"}]
    spoken = Text("Hi", continuation=kept("openai", audio={"id": "audio_1", "expires_at": 5}))
    assert sent(assistant(spoken)) == [{"role": "assistant", "content": None, "audio": {"id": "audio_1"}}]
    noted = assistant(Text("Hi", continuation=kept("openrouter", annotations=[{"type": "file"}])))
    assert sent(noted, provider="openrouter")[0]["annotations"] == [{"type": "file"}]


def test_sources_that_no_request_has_a_place_for_are_reported() -> None:
    sources: Json = {"citations": ["https://a"], "search_results": [{"url": "https://a"}], "annotations": [{}]}
    body, losses = encoded(assistant(Text("Hi", continuation=kept("perplexity", **sources))), provider="perplexity")
    assert body["messages"] == [{"role": "assistant", "content": "Hi"}]
    assert losses == [f"messages[0].parts[0]: {name}" for name in ("annotations", "citations", "search results")]


# -- calls and results


def test_results_refer_to_their_calls() -> None:
    wires = sent(assistant("x", ToolCall("a", "f", {"é": [1]})), tool_message(ToolResult("a", "ok")), user("thanks"))
    assert wires[:2] == [
        {
            "role": "assistant",
            "content": "x",
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"é":[1]}'}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "ok"},
    ]


def test_arguments_that_are_not_json_are_sent_nevertheless() -> None:
    bad = assistant(ToolCall("a", "f", {}, raw_args_text='{"x'))
    assert sent(bad)[0]["tool_calls"][0]["function"]["arguments"] == '{"x'
    assert sent(bad, provider="groq")[0]["tool_calls"][0]["function"]["arguments"] == '{"raw_arguments":"{\\"x"}'


def test_signatures_of_calls_are_sent_back() -> None:
    extra = {"google": {"thought_signature": "sig"}}
    call = ToolCall("a", "f", {}, continuation=kept("google", extra_content=extra))
    assert sent(assistant(call), provider="google")[0]["tool_calls"][0]["extra_content"] == extra


def test_legacy_and_custom_calls_are_sent_back_in_their_form() -> None:
    legacy = ToolCall("a", "f", {}, continuation=kept("openai", field="function_call"))
    assert sent(assistant(legacy), tool_message(ToolResult("a", "ok"))) == [
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "ok"},
    ]
    custom = ToolCall("a", "sh", {"input": "ls"}, continuation=kept("openai", type="custom"))
    assert sent(assistant(custom))[0]["tool_calls"] == [
        {"id": "a", "type": "custom", "custom": {"name": "sh", "input": "ls"}}
    ]


@pytest.mark.parametrize(
    ("result", "content"),
    [
        (ToolResult("a", {"x": 1}), '{"x":1}'),
        (ToolResult("a", (Text("x"), Text("y"))), "x\ny"),
        (ToolResult("a", ()), ""),
        (ToolResult("a", "gone", is_error=True), "Error: gone"),
        (ToolResult("a", "Error 5", is_error=True), "Error 5"),
        (ToolResult("a", (Text("x", continuation=kept("openai", chunk={"k": 1})),)),
         [{"type": "text", "text": "x", "k": 1}]),
    ],
)  # fmt: skip
def test_a_result_is_text(result: ToolResult, content: Any) -> None:
    assert sent(tool_message(result))[0]["content"] == content


def test_images_in_results_follow_in_a_user_message() -> None:
    picture = Image("image/png", url="https://a")
    results = tool_message(ToolResult("a", (Text("see"), picture)), ToolResult("b", (picture,)))
    image = {"type": "image_url", "image_url": {"url": "https://a"}}
    expected = [
        {"role": "tool", "tool_call_id": "a", "content": "see"},
        {"role": "tool", "tool_call_id": "b", "content": "See the next message."},
    ]
    pieces = [
        {"type": "text", "text": "Attached to the result of a:"},
        image,
        {"type": "text", "text": "Attached to the result of b:"},
        image,
    ]
    moved = [f"messages[0].parts[{place}]: media of a tool result" for place in (0, 1)]
    body, losses = encoded(results)
    assert body["messages"] == [*expected, {"role": "user", "content": pieces}]
    assert losses == moved
    bridge = {"role": "assistant", "content": RESULTS_RECEIVED}
    body, losses = encoded(results, user("?"), provider="perplexity")
    followed = [*expected, bridge, {"role": "user", "content": [*pieces, {"type": "text", "text": "?"}]}]
    assert body["messages"] == followed
    added = f"messages[0].parts[0]: the assistant text {RESULTS_RECEIVED!r}"
    assert losses == [moved[0], added, moved[1]]


def test_provider_calls_are_a_loss_except_images_that_are_accepted_back() -> None:
    ran = ToolCall("a", "search", {}, executed_by="provider", result=ToolResult("a", "found"))
    picture = ToolResult("b", (Image("image/png", data=b"abc"),))
    drawn = ToolCall("b", "image_output", {}, executed_by="provider", result=picture)
    unfinished = ToolCall("c", "search", {}, executed_by="provider")
    body, losses = encoded(assistant("x", ran, drawn, unfinished), provider="openrouter")
    (wire,) = body["messages"]
    assert wire["images"] == [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}}]
    assert losses == ["messages[0].parts[1]: call of search", "messages[0].parts[3]: call of search"]
    assert encoded(assistant(drawn))[1] == ["messages[0].parts[0]: call of image_output"]


# -- tools


def test_tools_are_functions() -> None:
    specs = [ToolSpec("f", SCHEMA, description="d", strict=True), ToolSpec("g", {})]
    body, losses = encoded(user("x"), tools=specs)
    assert body["tools"] == [
        {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True}},
        {"type": "function", "function": {"name": "g", "parameters": {"type": "object", "properties": {}}}},
    ]
    assert losses == []
    body, losses = encoded(user("x"), tools=specs, provider="zai")
    assert "strict" not in body["tools"][0]["function"]
    assert losses == ["tools[0].strict: strict arguments"]


def test_provider_tools_are_sent_only_to_that_provider() -> None:
    native = ToolSpec("search", {}, native=kept("groq", type="browser_search"))
    assert encoded(user("x"), tools=[native], provider="groq")[0]["tools"] == [{"type": "browser_search"}]
    body, losses = encoded(user("x"), tools=[native], tool_choice="auto")
    assert "tools" not in body
    assert "tool_choice" not in body
    assert losses == ["tools[0]: tool search"]


@pytest.mark.parametrize(
    ("choice", "wire"),
    [("auto", "auto"), ("required", "required"), (SpecificTool("f"), {"type": "function", "function": {"name": "f"}})],
)
def test_the_tool_choice_is_sent(choice: Any, wire: Any) -> None:
    body, _ = encoded(user("x"), tools=[ToolSpec("f", SCHEMA)], tool_choice=choice, parallel_tool_calls=False)
    assert (body["tool_choice"], body["parallel_tool_calls"]) == (wire, False)


def test_a_choice_that_the_provider_does_not_support_is_a_loss() -> None:
    body, losses = encoded(
        user("x"),
        tools=[ToolSpec("f", SCHEMA)],
        tool_choice=SpecificTool("f"),
        parallel_tool_calls=True,
        provider="zai",
    )
    assert body["tool_choice"] == "required"
    assert "parallel_tool_calls" not in body
    assert losses == ["config.toolChoice: choice of f", "config.parallelToolCalls: setting for parallel calls"]


# -- settings


def test_settings_have_the_names_of_the_provider() -> None:
    settings: Json = {"temperature": 0.0, "top_p": 0.5, "max_tokens": 5, "stop_sequences": ("a",), "seed": 7}
    body, _ = encoded(user("x"), **settings)
    assert (body["temperature"], body["top_p"], body["stop"], body["seed"]) == (0.0, 0.5, ["a"], 7)
    assert body["max_completion_tokens"] == 5
    body, _ = encoded(user("x"), provider="mistral", **settings)
    assert (body["max_tokens"], body["random_seed"]) == (5, 7)
    assert "stream_options" not in body
    assert encoded(user("x"), provider="deepseek", **settings)[1] == ["config.seed: seed"]


@pytest.mark.parametrize(
    ("provider", "wish", "expected", "lost"),
    [
        ("openai", ThinkingConfig(effort="max"), {"reasoning_effort": "xhigh"}, []),
        ("openai", ThinkingConfig(effort="none"), {"reasoning_effort": "none"}, []),
        (
            "openai",
            ThinkingConfig(budget_tokens=5),
            {"reasoning_effort": "low"},
            ["config.thinking.budgetTokens: thinking budget"],
        ),
        (
            "zai",
            ThinkingConfig(budget_tokens=0),
            {"thinking": {"type": "disabled"}},
            ["config.thinking.budgetTokens: thinking budget"],
        ),
        ("xai", ThinkingConfig(effort="none"), {}, ["config.thinking.effort: thinking effort 'none'"]),
        ("openrouter", ThinkingConfig(effort="low"), {"reasoning": {"effort": "low"}}, []),
        ("openrouter", ThinkingConfig(budget_tokens=5), {"reasoning": {"max_tokens": 5}}, []),
        ("openrouter", ThinkingConfig(), {"reasoning": {"enabled": True}}, []),
        ("deepseek", ThinkingConfig(effort="max"), {"thinking": {"type": "enabled"}, "reasoning_effort": "max"}, []),
        ("deepseek", ThinkingConfig(effort="none"), {"thinking": {"type": "disabled"}}, []),
        (
            "zai",
            ThinkingConfig(effort="low"),
            {"thinking": {"type": "enabled"}},
            ["config.thinking.effort: thinking effort 'low'"],
        ),
        ("alibaba", ThinkingConfig(budget_tokens=5), {"enable_thinking": True, "thinking_budget": 5}, []),
        ("alibaba", ThinkingConfig(effort="none"), {"enable_thinking": False}, []),
        ("writer", ThinkingConfig(effort="none"), {}, ["config.thinking.effort: thinking effort 'none'"]),
    ],
)
def test_thinking_is_requested_in_the_form_of_the_provider(
    provider: str, wish: ThinkingConfig, expected: Json, lost: list[str]
) -> None:
    body, losses = encoded(user("x"), provider=provider, thinking=wish)
    keys = ("reasoning_effort", "reasoning", "thinking", "enable_thinking", "thinking_budget")
    assert {key: body[key] for key in keys if key in body} == expected
    assert losses == lost


CLOSED: Json = {**SCHEMA, "required": ["a"], "additionalProperties": False, "title": "My Type"}


@pytest.mark.parametrize(
    ("schema", "name", "strict"),
    [
        (SCHEMA, "output", False),
        (CLOSED, "My_Type", True),
        ({**CLOSED, "required": []}, "My_Type", False),
        ({"anyOf": [CLOSED, SCHEMA]}, "output", False),
        ({"anyOf": [CLOSED, {"type": "null"}]}, "output", True),
    ],
)
def test_structured_output_is_strict_if_the_schema_qualifies(schema: Json, name: str, strict: bool) -> None:
    body, losses = encoded(user("x"), output_schema=schema)
    described = {"name": name, "schema": schema, "strict": strict}
    assert body["response_format"] == {"type": "json_schema", "json_schema": described}
    assert losses == []


def test_json_is_requested_from_a_provider_without_schemas() -> None:
    body, losses = encoded(user("x"), output_schema=SCHEMA, provider="deepseek")
    assert body["response_format"] == {"type": "json_object"}
    assert losses == ["config.outputSchema: output schema"]


def test_requests_with_the_same_beginning_have_the_same_cache_key() -> None:
    first, same, different = (
        encoded(system(instructions), user(question), cache_config=CacheConfig())[0]["prompt_cache_key"]
        for instructions, question in (("a", "b"), ("a", "c"), ("x", "b"))
    )
    assert first == same != different


def test_cache_breakpoints_are_after_the_system_prompt_and_at_the_end() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    body, _ = encoded(system("a"), user("b", "c"), provider="openrouter", cache_config=CacheConfig())
    assert [wire["content"] for wire in body["messages"]] == [
        [{"type": "text", "text": "a", **mark}],
        [{"type": "text", "text": "b"}, {"type": "text", "text": "c", **mark}],
    ]
    body, _ = encoded(user(Image("image/png", url="https://a")), provider="openrouter", cache_config=CacheConfig())
    assert "cache_control" not in str(body)
    assert "cache" not in str(encoded(user("x"), provider="groq", cache_config=CacheConfig())[0])


# -- reading


def test_a_request_round_trips() -> None:
    body = {
        "model": "m",
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}, "cache_control": {"k": 1}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "parallel_tool_calls": False,
        "temperature": 0.5,
        "top_p": 0.5,
        "max_completion_tokens": 5,
        "stop": ["a"],
        "seed": 7,
        "reasoning_effort": "xhigh",
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "output", "schema": SCHEMA, "strict": False},
        },
        "logit_bias": {"5": 1},
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    request = read_request(body, provider="openai")
    assert request.config == ModelConfig(
        "m",
        temperature=0.5,
        top_p=0.5,
        max_tokens=5,
        stop_sequences=("a",),
        seed=7,
        tool_choice=SpecificTool("f"),
        parallel_tool_calls=False,
        thinking=ThinkingConfig(effort="max"),
        output_schema=SCHEMA,
        extra={"openai-chat": {"logit_bias": {"5": 1}}},
    )
    assert encode(request, Losses("openai")) == body


def test_the_model_may_be_given_apart_from_the_body() -> None:
    assert read_request({"messages": []}, provider="azure", model_id="m").config.model_id == "m"


def exact(**meaning: Any) -> ThinkingConfig:
    """A setting that keeps the form in which it was read."""
    return ThinkingConfig(**meaning, extra={"openai-chat": {}})


@pytest.mark.parametrize(
    ("provider", "fields", "wish"),
    [
        ("openai", {"reasoning_effort": "low"}, ThinkingConfig(effort="low")),
        ("openai", {"reasoning_effort": "vast"}, None),
        ("openai", {"reasoning": {"effort": "low"}}, exact(effort="low")),
        ("openai", {"thinking": {"type": "enabled", "budget_tokens": 9}}, exact(budget_tokens=9)),
        ("openai", {"reasoning": {"max_tokens": 9}}, exact(budget_tokens=9)),
        ("openai", {"enable_thinking": True, "thinking_budget": 9}, exact(budget_tokens=9)),
        ("openai", {"enable_thinking": False}, exact(effort="none")),
        ("openai", {"reasoning": {"enabled": True}}, exact()),
        ("openrouter", {"reasoning": {"effort": "low"}}, ThinkingConfig(effort="low")),
        ("openrouter", {"reasoning": {"max_tokens": 5}}, ThinkingConfig(budget_tokens=5)),
        ("openrouter", {"reasoning": {"max_tokens": 5, "exclude": True}}, exact(budget_tokens=5)),
        ("deepseek", {"thinking": {"type": "disabled"}}, ThinkingConfig(effort="none")),
        ("deepseek", {"thinking": {"type": "enabled"}}, ThinkingConfig()),
        ("deepseek", {"thinking": {"type": "enabled"}, "reasoning_effort": "max"}, ThinkingConfig(effort="max")),
        ("zai", {"thinking": {"type": "enabled", "clear_thinking": False}}, exact()),
        ("alibaba", {"enable_thinking": True, "thinking_budget": 5}, ThinkingConfig(budget_tokens=5)),
        ("alibaba", {"enable_thinking": False}, ThinkingConfig(effort="none")),
    ],
)
def test_thinking_settings_round_trip(provider: str, fields: Json, wish: ThinkingConfig | None) -> None:
    request = read_request({"model": "m", "messages": [], **fields}, provider=provider)
    if wish is not None and wish.extra is not None:
        wish = replace(wish, extra={"openai-chat": fields})
    assert request.config.thinking == wish
    losses = Losses(provider)
    assert {key: value for key, value in encode(request, losses).items() if key in fields} == fields
    assert losses.found == []


def test_settings_in_another_form_are_kept() -> None:
    fields = {
        "tool_choice": {"type": "tool", "name": "f"},
        "parallel_tool_calls": "odd",
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
    }
    request = read_request({"model": "m", "messages": [], **fields}, provider="openai")
    assert request.config.extra == {"openai-chat": fields}
    assert request.config.output_schema == SCHEMA
    assert encode(request, Losses("openai"))["response_format"] == fields["response_format"]
    odd = {"model": "m", "messages": [], "response_format": {"type": "json_object"}, "stop": "a", "tool_choice": "any"}
    config = read_request(odd, provider="deepseek").config
    assert (config.output_schema, config.stop_sequences, config.tool_choice) == (None, ("a",), "required")


def test_tools_that_are_not_functions_stay_as_they_are() -> None:
    tools = [{"type": "browser_search"}, {"type": "custom", "custom": {"name": "sh"}}]
    request = read_request({"model": "m", "messages": [], "tools": tools}, provider="groq")
    assert [spec.name for spec in request.tools] == ["browser_search", "sh"]
    assert encode(request, Losses("groq"))["tools"] == tools


def test_a_tool_without_a_schema_or_type_is_a_function() -> None:
    tools = [{"function": {"name": "f", "description": "", "strict": False}}]
    (spec,) = read_request({"model": "m", "messages": [], "tools": tools}, provider="mistral").tools
    assert spec == ToolSpec("f", {}, description="", strict=False)


def test_every_piece_of_content_round_trips() -> None:
    inline = f"data:image/png;base64,{DATA}"
    pieces = [
        {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
        {"type": "image_url", "image_url": {"url": inline, "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://a"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,?"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,YWJj\n"}},
        {"type": "input_audio", "input_audio": {"data": DATA, "format": "mp3"}},
        {"type": "input_audio", "input_audio": {"data": "?", "format": "mp3"}},
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{DATA}"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "https://a"}},
        {"type": "file", "file": {}},
        {"type": "video_url", "video_url": {"url": "https://a"}},
        {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{DATA}"}, "fps": 2},
        {"type": "video_url", "video_url": {"url": "https://a", "fps": 2}},
        {"type": "image_url", "image_url": {}},
        {"type": "hologram", "hologram": 3},
        {"type": 5},
    ]
    (message,) = assert_round_trip({"role": "user", "content": pieces}, provider="openrouter")
    assert [part.kind for part in message.parts[:5]] == ["text", "image", "image", "image", "image"]
    assert message.parts[1] == Image("image/png", data=b"abc", continuation=message.parts[1].continuation)
    assert message.parts[5] == FileRef("audio.mp3", data=b"abc", mime_type="audio/mpeg")


@pytest.mark.parametrize("provider", ["mistral", "zai"])
def test_documents_round_trip(provider: str) -> None:
    kind = "document_url" if provider == "mistral" else "file_url"
    payload: Any = "https://a" if provider == "mistral" else {"url": "https://a"}
    (message,) = assert_round_trip({"role": "user", "content": [{"type": kind, kind: payload}]}, provider=provider)
    assert message.parts == (FileRef("https://a", url="https://a", mime_type="application/pdf"),)
    document = {"type": "document_url", "document_url": "https://a", "document_name": "a.pdf"}
    assert read_message({"role": "user", "content": [document]}).parts[0] == FileRef(
        "a.pdf", url="https://a", mime_type="application/pdf"
    )


def test_a_document_in_bare_base64_is_content_and_not_a_name() -> None:
    """Perplexity takes base64 where others take a URL."""
    pieces = [
        {"type": "file_url", "file_url": {"url": DATA}},
        {"type": "file_url", "file_url": {"url": DATA}, "file_name": "a.docx"},
        {"type": "file_url", "file_url": {"url": "https://a"}, "file_name": "a.pdf"},
        {"type": "file_url", "file_url": {"url": "no base64"}},
    ]
    (message,) = assert_round_trip({"role": "user", "content": pieces}, provider="perplexity")
    assert message.parts[0] == FileRef("file", data=b"abc", mime_type="application/pdf")
    word = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    assert message.parts[1] == FileRef("a.docx", data=b"abc", mime_type=word)
    assert message.parts[2] == FileRef("a.pdf", url="https://a", mime_type="application/pdf")
    request = ModelRequest(messages=(message,), config=ModelConfig("m"), provider="cerebras")
    assert DATA not in str(encode(request, Losses("cerebras")))


def test_unknown_fields_of_messages_are_kept() -> None:
    messages = assert_round_trip(
        {"role": "developer", "content": "a"},
        {"role": "user", "content": "b", "name": "n"},
        {"role": "assistant", "content": "c", "name": "n"},
        {"role": "assistant", "content": None, "prefix": True},
        {"role": "user", "content": [{"type": "text", "text": "d", "k": 1}], "name": "n"},
    )
    assert [message.role for message in messages] == ["system", "user", "assistant", "assistant", "user"]


def test_answers_round_trip() -> None:
    function = {"name": "f", "arguments": '{"a":1}'}
    assert_round_trip(
        {
            "role": "assistant",
            "content": "x",
            "reasoning_details": [{"type": "reasoning.text", "text": "a"}, {"summary": 5}, "odd"],
            "tool_calls": [{"id": "a", "type": "function", "function": function, "extra_content": {"k": 1}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "ok", "name": "f"},
        {"role": "assistant", "content": "x", "reasoning": "Hm"},
        provider="openrouter",
    )
    assert_round_trip(
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "a", "type": "custom", "custom": {"name": "sh", "input": "ls"}, "index": 0},
                {"id": "b", "type": "function", "function": function, "index": 1},
            ],
        },
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "ok", "k": 1}]},
        {"role": "assistant", "content": None, "function_call": function},
        {"role": "function", "name": "f", "content": "ok"},
        {"role": "assistant", "content": None, "refusal": "no"},
    )
    assert_round_trip(
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "a"}], "closed": True},
                {"type": "thinking", "thinking": [{"type": "text", "text": "a"}, {"type": "ref"}, "odd"]},
                {"type": "thinking", "thinking": "a"},
                {"type": "image_url", "image_url": {"url": "https://a"}},
            ],
        },
        {"role": "user", "content": [{"type": "thinking", "thinking": []}]},
        provider="mistral",
    )


def test_a_system_message_may_contain_thinking() -> None:
    """Mistral's system prompts for reasoning models do."""
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "a"}]}
    (message,) = assert_round_trip({"role": "system", "content": [thinking]}, provider="mistral")
    assert isinstance(message.parts[0], Thinking)


def test_missing_call_ids_are_made() -> None:
    calls = [{"function": {"name": "f", "arguments": {}}}, {"function": {"name": "g", "arguments": ""}}]
    body = [
        {"role": "assistant", "tool_calls": calls},
        {"role": "tool", "content": "1"},
        {"role": "tool", "content": "2"},
    ]
    messages = read_request({"model": "m", "messages": body}, provider="zai").messages
    assert [call.tool_call_id for call in messages[0].tool_calls] == ["call-0-0", "call-0-1"]
    assert [message.tool_results[0].tool_call_id for message in messages[1:]] == ["call-0-0", "call-0-1"]


@pytest.mark.parametrize("raw", ["{x", "[1]", 5, "[" * 100_000])
def test_arguments_that_are_not_an_object_are_kept_as_text(raw: Any) -> None:
    wire = {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": raw}}]}
    (call,) = read_message(wire).tool_calls
    assert (call.arguments, call.raw_args_text) == ({}, raw if isinstance(raw, str) else None)


@pytest.mark.parametrize("content", ["", [], None])
def test_an_answer_without_content_has_no_text(content: Any) -> None:
    assert read_message({"role": "assistant", "content": content}).parts == ()


def test_a_result_without_its_call_is_read() -> None:
    assert read_message({"role": "tool", "tool_call_id": "a", "content": "x"}).tool_results[0].tool_call_id == "a"


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "$.model"),
        ({"model": "m"}, "$.messages"),
        ({"model": "m", "messages": {}}, "$.messages"),
        ({"model": "m", "messages": [5]}, "$.messages[0]"),
        ({"model": "m", "messages": [{}]}, "$.messages[0].role"),
        ({"model": "m", "messages": [{"role": "king"}]}, "$.messages[0].role"),
        ({"model": "m", "messages": [{"role": "user", "content": 5}]}, "$.messages[0].content"),
        ({"model": "m", "messages": [{"role": "user", "content": [5]}]}, "$.messages[0].content[0]"),
        ({"model": "m", "messages": [{"role": "tool", "content": "x"}]}, "$.messages[0]"),
        ({"model": "m", "messages": [{"role": "assistant", "reasoning": 5}]}, "$.messages[0].reasoning"),
        ({"model": "m", "messages": [{"role": "assistant", "tool_calls": [{}]}]},
         "$.messages[0].tool_calls[0].function"),
        ({"model": "m", "messages": [], "tools": [{}]}, "$.tools[0].function"),
        ({"model": "m", "messages": [], "temperature": "hot"}, "$.temperature"),
        ({"model": "m", "messages": [], "stop": [5]}, "$.stop"),
    ],
)  # fmt: skip
def test_an_invalid_body_is_refused_with_the_path(body: Json, path: str) -> None:
    with pytest.raises(PartValidationError) as caught:
        read_request(body, provider="openai")
    assert caught.value.path == path


def test_the_history_rules_of_a_provider_are_part_of_its_row() -> None:
    assert not capabilities_of("mistral").rules.accepts_id("call_123456")
    assert capabilities_of("openai").rules.accepts_id("call_123456")
    assert capabilities_of("perplexity").rules.merge_same_role == STRICTEST.merge_same_role


def test_an_answer_with_nothing_left_names_the_tools_it_used() -> None:
    call = ToolCall("a", "search", {}, executed_by="provider")
    body, losses = encoded(assistant(call))
    assert body["messages"] == [{"role": "assistant", "content": "[used search]"}]
    assert losses == ["messages[0].parts[0]: call of search"]
    body, _ = encoded(assistant(" ", call))
    assert body["messages"] == [{"role": "assistant", "content": "[used search]"}]


def test_consecutive_user_messages_are_merged_where_roles_must_alternate() -> None:
    picture = Image("image/png", data=b"abc")
    body, losses = encoded(user("a"), system("b"), user("c", picture), provider="perplexity")
    assert [wire["role"] for wire in body["messages"]] == ["user"]
    assert [piece["type"] for piece in body["messages"][0]["content"]] == ["text", "text", "text", "image_url"]
    assert losses == ["messages[1]: system role"]


def test_the_thinking_field_for_moonshot_is_not_empty() -> None:
    (wire,) = sent(assistant(ToolCall("a", "f", {})), provider="moonshot")
    assert wire["reasoning_content"] == " "


def test_ignored_thinking_is_not_sent() -> None:
    (wire,) = sent(
        assistant(Thinking("a", ignored=True, continuation=kept("groq", field="reasoning")), "b"), provider="groq"
    )
    assert wire == {"role": "assistant", "content": "b"}
