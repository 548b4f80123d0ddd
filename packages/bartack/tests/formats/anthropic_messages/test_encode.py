"""Encoding and reading requests in Anthropic's format, one rule at a time."""

from typing import Any

import pytest

from bartack import formats
from bartack.formats.anthropic_messages.capabilities import claude
from bartack.formats.anthropic_messages.encode import encode
from bartack.formats.anthropic_messages.read import read_request
from bartack.formats.losses import Losses
from bartack.formats.repair import CONTINUE_PROMPT
from bartack.nouns.config import CacheConfig, ModelConfig, SpecificTool, ThinkingConfig, ToolSpec
from bartack.nouns.errors import PartValidationError
from bartack.nouns.messages import Message, Meta, assistant, system, tool_message, user
from bartack.nouns.parts import Continuation, FileRef, Image, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest

Json = dict[str, Any]

MODEL = "claude-sonnet-4-5"
WEATHER = ToolSpec("weather", {"type": "object"}, description="Tells the weather.")


def kept(provider: str = "anthropic", **data: Any) -> Continuation:
    return Continuation(provider, MODEL, data)


def encoded(
    *messages: Message, tools: tuple[ToolSpec, ...] = (), model_id: str = MODEL, **settings: Any
) -> tuple[Json, list[str]]:
    """The body, and what was left out."""
    losses = Losses("anthropic")
    config = ModelConfig(model_id, **settings)
    request = ModelRequest(messages=messages, config=config, tools=tools, provider="anthropic")
    return encode(request, losses), [loss.what for loss in losses.found]


def turns_of(*messages: Message, **settings: Any) -> list[Json]:
    body, lost = encoded(*messages, **settings)
    assert lost == []
    turns: list[Json] = body["messages"]
    return turns


def content_of(*parts: Any) -> tuple[list[Json], list[str]]:
    """The blocks of a final assistant message, and what was left out."""
    body, lost = encoded(user("Hi"), Message("assistant", parts))
    return (body["messages"][1]["content"] if len(body["messages"]) > 1 else []), lost


def test_a_minimal_request() -> None:
    body, lost = encoded(system("Be brief."), user("Hi"))
    assert body == {
        "model": MODEL,
        "max_tokens": 32_000,
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
        "stream": True,
    }
    assert lost == []


def test_the_same_request_gives_the_same_bytes() -> None:
    """D-6, so that prompt caches hit."""
    request = (system("s"), user("Hi"))
    assert list(encoded(*request, temperature=0.5)[0].items()) == list(encoded(*request, temperature=0.5)[0].items())


def test_a_vertex_body_has_a_version_and_no_model() -> None:
    body, _ = encoded(user("Hi"), extra={"anthropic_version": "vertex-2023-10-16"})
    assert "model" not in body
    assert body["anthropic_version"] == "vertex-2023-10-16"


# -- messages


def test_results_are_user_content_and_neighbours_are_joined() -> None:
    turns = turns_of(
        user("Hi"),
        assistant(ToolCall("a", "f", {"x": 1}), ToolCall("b", "f", {})),
        tool_message(ToolResult("a", "sunny")),
        tool_message(ToolResult("b", {"n": 1}, is_error=True)),
        user("and?"),
    )
    assert turns[1]["content"] == [
        {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
        {"type": "tool_use", "id": "b", "name": "f", "input": {}},
    ]
    assert turns[2]["role"] == "user"
    assert turns[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "content": "sunny"},
        {"type": "tool_result", "tool_use_id": "b", "content": '{"n":1}', "is_error": True},
        {"type": "text", "text": "and?"},
    ]
    assert len(turns) == 3


def test_a_result_may_hold_images_documents_or_nothing() -> None:
    pieces = (Text("see"), Image("image/png", data=b"p"), FileRef("a.pdf", mime_type="application/pdf", data=b"%"))
    results = (ToolResult("a", pieces), ToolResult("b", ""))
    calls = assistant(ToolCall("a", "f", {}), ToolCall("b", "f", {}))
    first, second = turns_of(user("Hi"), calls, tool_message(*results))[2]["content"]
    assert [block["type"] for block in first["content"]] == ["text", "image", "document"]
    assert second == {"type": "tool_result", "tool_use_id": "b"}


def test_a_later_system_message_keeps_its_role_if_the_model_allows_it() -> None:
    history = (user("Hi"), system("Now in French."))
    turns = turns_of(*history, model_id="claude-opus-4-8")
    assert turns[1] == {"role": "system", "content": [{"type": "text", "text": "Now in French."}]}


@pytest.mark.parametrize(
    ("model_id", "history"),
    [
        (MODEL, (user("Hi"), system("Now."))),
        ("claude-opus-4-8", (user("Hi"), system("Now."), user("go"))),
        ("claude-opus-4-8", (user("Hi"), assistant("Hello"), system("Now."), system("And."), user("go"))),
    ],
)
def test_a_later_system_message_becomes_user_text_otherwise(model_id: str, history: Any) -> None:
    body, lost = encoded(*history, model_id=model_id)
    assert {"type": "text", "text": "<system>\nNow.\n</system>"} in body["messages"][-1]["content"]
    assert {turn["role"] for turn in body["messages"]} <= {"user", "assistant"}
    assert "system role" in lost


def test_a_directive_that_is_not_accepted_is_omitted() -> None:
    directive = Message("system", (Text("", continuation=kept(block={"type": "tool_addition"})),))
    body, lost = encoded(user("Hi"), directive)
    assert body["messages"] == turns_of(user("Hi"))
    assert lost == ["tool_addition"]
    body, lost = encoded(user("Hi"), directive, model_id="claude-opus-4-8")
    assert body["messages"][1] == {"role": "system", "content": [{"type": "tool_addition"}]}
    assert lost == []


def test_blank_and_ignored_text_and_empty_messages_are_not_sent() -> None:
    message = Message("user", (Text(" \n"), Text("note", ignored=True), Text("Hi")))
    assert turns_of(message, assistant(" ")) == [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]


def test_citations_are_sent_back_with_their_text() -> None:
    content, _ = content_of(Text("see", continuation=kept(citations=[{"n": 1}])))
    assert content == [{"type": "text", "text": "see", "citations": [{"n": 1}]}]


# -- pictures and files


@pytest.mark.parametrize(
    ("part", "block"),
    [
        (
            Image("image/png", data=b"abc"),
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "YWJj"}},
        ),
        (Image("image/*", url="http://x/y"), {"type": "image", "source": {"type": "url", "url": "http://x/y"}}),
        (
            FileRef("y.png", mime_type="image/png", url="http://x/y"),
            {"type": "image", "source": {"type": "url", "url": "http://x/y"}},
        ),
        (
            FileRef("a.pdf", mime_type="application/pdf", data=b"abc"),
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "YWJj"},
                "title": "a.pdf",
            },
        ),
        (
            FileRef("document", url="http://x/a.pdf"),
            {"type": "document", "source": {"type": "url", "url": "http://x/a.pdf"}},
        ),
        (
            FileRef("a.csv", mime_type="text/csv", data=b"a,b"),
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "a,b"},
                "title": "a.csv",
            },
        ),
    ],
)
def test_images_and_files_become_blocks(part: Any, block: Json) -> None:
    assert turns_of(user(part)) == [{"role": "user", "content": [block]}]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (Image("image/tiff", data=b"x"), "image (image/tiff)"),
        (FileRef("a.mp3", mime_type="audio/mpeg", data=b"x"), "file a.mp3"),
        (FileRef("a.bin", data=b"x"), "file a.bin"),
        (FileRef("/tmp/a.txt", mime_type="text/plain"), "file /tmp/a.txt"),
        (FileRef("/tmp/a.png", mime_type="image/png"), "file /tmp/a.png"),
    ],
)
def test_media_that_are_not_accepted_are_named_and_reported(part: Any, expected: str) -> None:
    body, lost = encoded(user("see", part))
    name = part.path if isinstance(part, FileRef) else part.mime_type
    kind = "file" if isinstance(part, FileRef) else "image"
    assert body["messages"][0]["content"] == [
        {"type": "text", "text": "see"},
        {"type": "text", "text": f"[{kind}: {name}]"},
    ]
    assert lost == [expected]


def test_a_carried_block_is_sent_back_unchanged() -> None:
    block = {"type": "container_upload", "file_id": "f1"}
    assert turns_of(user(FileRef("f1", continuation=kept(block=block))))[0]["content"] == [block]


# -- thinking


def test_thinking_is_sent_back_unchanged() -> None:
    """D-3.9."""
    content, lost = content_of(
        Thinking("hm", continuation=kept(signature="s==")),
        Thinking("", continuation=kept(type="redacted_thinking", data="AA")),
        Thinking("", continuation=kept(block={"type": "compaction", "content": "x"})),
        Text("Hi"),
    )
    assert content == [
        {"type": "thinking", "thinking": "hm", "signature": "s=="},
        {"type": "redacted_thinking", "data": "AA"},
        {"type": "compaction", "content": "x"},
        {"type": "text", "text": "Hi"},
    ]
    assert lost == []


def test_foreign_and_unsigned_thinking_is_omitted() -> None:
    """D-3.9.2."""
    content, lost = content_of(
        Thinking("foreign", continuation=kept("openai", encrypted="x")),
        Thinking("unsigned"),
        Thinking("odd", continuation=kept(other=1)),
        Thinking("hidden", ignored=True),
        Thinking("", continuation=kept(container={"id": "c"})),
        Text("Hi"),
    )
    assert content == [{"type": "text", "text": "Hi"}]
    assert lost == ["thinking", "thinking", "thinking"]


# -- calls


def test_invalid_arguments_are_wrapped() -> None:
    content, _ = content_of(ToolCall("a", "f", {}, raw_args_text='{"x": '))
    assert content[0]["input"] == {"INVALID_JSON": '{"x": '}


def test_the_caller_of_a_call_is_sent_back() -> None:
    content, _ = content_of(ToolCall("a", "f", {}, continuation=kept(caller={"type": "direct"}, callId="old")))
    assert content == [{"type": "tool_use", "id": "a", "name": "f", "input": {}, "caller": {"type": "direct"}}]


def searched(call_id: str, *, result: bool = True, **data: Any) -> ToolCall:
    result_block = {"type": "web_search_tool_result", "tool_use_id": call_id, "content": []}
    result_field: Json = {"result": result_block} if result else {}
    return ToolCall(
        call_id,
        "web_search",
        {"q": 1},
        executed_by="provider",
        continuation=kept(type="server_tool_use", **result_field, **data),
    )


def test_a_provider_call_is_sent_back_with_its_result() -> None:
    content, lost = content_of(searched("s1"), Text("Hi"))
    assert content[:2] == [
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"q": 1}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
    ]
    assert lost == []


def test_results_keep_their_position() -> None:
    mark = Thinking("", continuation=kept(resultOf="s1"))
    lost_mark = Thinking("", continuation=kept(resultOf="gone"))
    content, _ = content_of(searched("s1"), searched("s2"), mark, lost_mark, Text("Hi"))
    assert [block.get("id") or block.get("tool_use_id") for block in content] == ["s1", "s2", "s2", "s1", None]


def test_a_call_with_a_local_id_is_sent_back_under_the_providers_id() -> None:
    content, _ = content_of(searched("local-1", callId="s1"))
    assert [block.get("id") or block.get("tool_use_id") for block in content] == ["s1", "s1"]


def test_another_providers_call_is_omitted() -> None:
    foreign = ToolCall("x", "search", {}, executed_by="provider", continuation=kept("openai", item={}))
    bare = ToolCall("y", "search", {}, executed_by="provider")
    content, lost = content_of(foreign, bare, Text("Hi"))
    assert content == [{"type": "text", "text": "Hi"}]
    assert lost == ["continuation data", "call of search"]


def test_a_provider_call_without_a_result_is_sent_only_while_it_may_be_open() -> None:
    waiting = assistant(searched("s1", result=False), Text("..."))
    paused, lost = encoded(user("Hi"), waiting)
    assert len(paused["messages"][1]["content"]) == 2
    assert lost == []
    own_tool = assistant(searched("s1", result=False), ToolCall("t", "f", {}))
    body, lost = encoded(user("Hi"), own_tool, tool_message(ToolResult("t", "x")))
    assert len(body["messages"][1]["content"]) == 2
    assert lost == []
    body, lost = encoded(user("Hi"), waiting, user("go on"))
    assert body["messages"][1]["content"] == [{"type": "text", "text": "..."}]
    assert lost == ["call of web_search"]


def test_a_provider_call_may_be_answered_in_a_later_message() -> None:
    late = {"type": "code_execution_tool_result", "tool_use_id": "s1", "content": {}}
    history = (
        user("Hi"),
        assistant(searched("s1", result=False), Text("...")),
        user("go on"),
        assistant(Thinking("", continuation=kept(block=late)), Text("done")),
    )
    assert [block["type"] for block in turns_of(*history)[1]["content"]] == ["server_tool_use", "text"]


def test_the_container_is_reused_with_provider_tools() -> None:
    history = (user("Hi"), assistant(Text("a", continuation=kept(container={"id": "c1"}))), user("more"))
    native = ToolSpec("code_execution", {}, native=kept(type="code_execution_20260120", name="code_execution"))
    assert encoded(*history, tools=(native,))[0]["container"] == "c1"
    assert "container" not in encoded(*history, tools=(WEATHER,))[0]
    assert encoded(*history, tools=(native,), extra={"container": "c2"})[0]["container"] == "c2"


# -- tools


def test_tools_are_declared() -> None:
    native = ToolSpec("web_search", {}, native=kept(type="web_search_20250305", name="web_search"))
    foreign = ToolSpec("x", {}, native=kept("openai", type="x"))
    strict_tool = ToolSpec(
        "f", {"type": "object"}, strict=True, extra={"anthropic-messages": {"defer_loading": True}, "y": 1}
    )
    body, lost = encoded(user("Hi"), tools=(WEATHER, native, foreign, strict_tool))
    assert body["tools"] == [
        {"name": "weather", "description": "Tells the weather.", "input_schema": {"type": "object"}},
        {"type": "web_search_20250305", "name": "web_search"},
        {"name": "f", "input_schema": {"type": "object"}, "strict": True, "defer_loading": True},
    ]
    assert lost == ["tool x"]


@pytest.mark.parametrize(
    ("choice", "parallel", "expected"),
    [
        ("auto", None, {"type": "auto"}),
        ("required", None, {"type": "any"}),
        ("none", False, {"type": "none"}),
        (SpecificTool("weather"), False, {"type": "tool", "name": "weather", "disable_parallel_tool_use": True}),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        (None, True, {"type": "auto", "disable_parallel_tool_use": False}),
        (None, None, None),
    ],
)
def test_tool_choices(choice: Any, parallel: bool | None, expected: Json | None) -> None:
    body, lost = encoded(user("Hi"), tools=(WEATHER,), tool_choice=choice, parallel_tool_calls=parallel)
    assert body.get("tool_choice") == expected
    assert lost == []


def test_a_tool_choice_without_tools_is_omitted() -> None:
    assert encoded(user("Hi"), parallel_tool_calls=False) == (encoded(user("Hi"))[0], [])
    body, lost = encoded(user("Hi"), tool_choice="required")
    assert "tool_choice" not in body
    assert lost == ["tool choice"]


def test_a_model_that_always_thinks_cannot_be_forced_to_call() -> None:
    body, lost = encoded(user("Hi"), tools=(WEATHER,), tool_choice=SpecificTool("weather"), model_id="claude-fable-5")
    assert body["tool_choice"] == {"type": "auto"}
    assert lost == ["required tool call"]


# -- settings


@pytest.mark.parametrize(
    ("name", "family", "version"),
    [
        ("claude-3-haiku-20240307", "haiku", (3, 0)),
        ("claude-3-7-sonnet-20250219", "sonnet", (3, 7)),
        ("claude-opus-4-20250514", "opus", (4, 0)),
        ("claude-opus-4-1@20250805", "opus", (4, 1)),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "sonnet", (4, 5)),
        ("anthropic/claude-opus-4.6", "opus", (4, 6)),
        ("claude-sonnet-5", "sonnet", (5, 0)),
        ("claude-mythos-preview", "mythos", (5, 0)),
        ("kimi-k2", "", (0, 0)),
    ],
)
def test_family_and_version_are_read_from_the_name(name: str, family: str, version: tuple[int, int]) -> None:
    assert claude(name)[:2] == (family, version)


@pytest.mark.parametrize(
    ("model_id", "tokens"),
    [
        ("claude-3-haiku-20240307", 4096),
        ("claude-3-5-sonnet-20241022", 8192),
        ("claude-opus-4-1", 32_000),
        ("glm-4.6", 8192),
    ],
)
def test_max_tokens_has_a_default_for_each_model(model_id: str, tokens: int) -> None:
    assert encoded(user("Hi"), model_id=model_id)[0]["max_tokens"] == tokens
    assert encoded(user("Hi"), model_id=model_id, max_tokens=7)[0]["max_tokens"] == 7


@pytest.mark.parametrize(
    ("model_id", "config", "thinking", "effort"),
    [
        (MODEL, {"budget_tokens": 5000}, {"type": "enabled", "budget_tokens": 5000}, None),
        (MODEL, {"budget_tokens": 10}, {"type": "enabled", "budget_tokens": 1024}, None),
        (MODEL, {"budget_tokens": 50_000}, {"type": "enabled", "budget_tokens": 31_999}, None),
        (MODEL, {"effort": "medium"}, {"type": "enabled", "budget_tokens": 8192}, None),
        (MODEL, {"effort": "none"}, {"type": "disabled"}, None),
        (MODEL, {}, None, None),
        ("claude-opus-4-5", {"effort": "max"}, {"type": "enabled", "budget_tokens": 24_000}, "high"),
        ("claude-opus-4-6", {"effort": "minimal"}, {"type": "adaptive"}, "low"),
        ("claude-opus-4-6", {"budget_tokens": 2000}, {"type": "enabled", "budget_tokens": 2000}, None),
        ("claude-opus-4-7", {"effort": "max"}, {"type": "adaptive", "display": "summarized"}, "max"),
        ("claude-3-5-haiku-20241022", {"effort": "none"}, None, None),
    ],
)
def test_thinking_is_requested_in_the_terms_of_the_model(
    model_id: str, config: Json, thinking: Json | None, effort: str | None
) -> None:
    body, lost = encoded(user("Hi"), model_id=model_id, thinking=ThinkingConfig(**config))
    assert body.get("thinking") == thinking
    assert body.get("output_config") == (None if effort is None else {"effort": effort})
    assert lost == []


@pytest.mark.parametrize(
    ("model_id", "settings"),
    [
        ("claude-3-haiku-20240307", {"thinking": ThinkingConfig(effort="high")}),
        ("claude-fable-5", {"thinking": ThinkingConfig(effort="none")}),
        (MODEL, {"thinking": ThinkingConfig(effort="high"), "max_tokens": 500}),
    ],
)
def test_unsupported_thinking_is_reported(model_id: str, settings: Json) -> None:
    body, lost = encoded(user("Hi"), model_id=model_id, **settings)
    assert "thinking" not in body
    assert lost == ["thinking settings"]


def test_a_budget_is_reported_for_a_model_with_efforts_only() -> None:
    body, lost = encoded(user("Hi"), model_id="claude-opus-5", thinking=ThinkingConfig(budget_tokens=2000))
    assert body["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert lost == ["thinking settings"]


def test_a_required_call_excludes_thinking() -> None:
    wish = ThinkingConfig(effort="high")
    body, lost = encoded(user("Hi"), tools=(WEATHER,), tool_choice="required", thinking=wish)
    assert "thinking" not in body
    assert lost == ["thinking settings"]


@pytest.mark.parametrize(
    ("model_id", "settings", "expected", "lost"),
    [
        ("claude-3-haiku-20240307", {"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5, "top_p": 0.9}, []),
        (MODEL, {"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5}, ["top_p"]),
        (MODEL, {"top_p": 0.9}, {"top_p": 0.9}, []),
        (MODEL, {"temperature": 1.5}, {"temperature": 1}, ["temperature 1.5"]),
        ("claude-opus-4-7", {"temperature": 0.5, "top_p": 0.9}, {}, ["temperature", "top_p"]),
        (MODEL, {"temperature": 0.5, "thinking": ThinkingConfig(effort="low")}, {}, ["temperature"]),
        (MODEL, {"top_p": 0.5, "thinking": ThinkingConfig(effort="low")}, {}, ["top_p"]),
        (MODEL, {"seed": 3}, {}, ["seed"]),
        (MODEL, {"stop_sequences": ("x",)}, {"stop_sequences": ["x"]}, []),
    ],
)
def test_settings_that_the_model_does_not_take_are_reported(
    model_id: str, settings: Json, expected: Json, lost: list[str]
) -> None:
    body, losses = encoded(user("Hi"), model_id=model_id, **settings)
    names = ("temperature", "top_p", "stop_sequences", "seed")
    assert {name: body[name] for name in names if name in body} == expected
    assert losses == lost


def test_an_output_schema_is_sent_to_models_that_support_it() -> None:
    schema = {"type": "object", "additionalProperties": False}
    body, _ = encoded(user("Hi"), output_schema=schema, extra={"output_config": {"task_budget": 1}, "top_k": 3})
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": schema}, "task_budget": 1}
    assert body["top_k"] == 3
    assert encoded(user("Hi"), output_schema=schema, model_id="claude-3-opus-20240229")[1] == ["output schema"]


# -- prompt caching

MARK = {"type": "ephemeral"}


def test_four_breakpoints_are_always_at_the_same_positions() -> None:
    deferred = ToolSpec("later", {}, extra={"anthropic-messages": {"defer_loading": True}})
    body, _ = encoded(
        system("s"),
        user("1"),
        assistant("a"),
        user("2"),
        assistant("b"),
        user("3", Text("4")),
        tools=(WEATHER, deferred),
        cache_config=CacheConfig(),
    )
    assert [tool.get("cache_control") for tool in body["tools"]] == [MARK, None]
    assert body["system"][0]["cache_control"] == MARK
    marks = [[block.get("cache_control") for block in turn["content"]] for turn in body["messages"]]
    assert marks == [[None], [None], [MARK], [None], [None, MARK]]


def test_uncacheable_blocks_get_no_breakpoint() -> None:
    odd = Text("", continuation=kept(block={"type": "fallback"}))
    body, _ = encoded(user("1", odd), cache_config=CacheConfig())
    assert [block.get("cache_control") for block in body["messages"][0]["content"]] == [MARK, None]
    body, _ = encoded(user(odd), cache_config=CacheConfig())
    assert body["messages"][0]["content"] == [{"type": "fallback"}]


def test_breakpoints_of_the_caller_stay_the_only_ones() -> None:
    own = Text("Hi", continuation=kept(cache_control={"type": "ephemeral", "ttl": "1h"}))
    body, _ = encoded(system("s"), user(own), cache_config=CacheConfig())
    assert "cache_control" not in body["system"][0]
    body, _ = encoded(system("s"), user("Hi"), cache_config=CacheConfig(), extra={"cache_control": MARK})
    assert "cache_control" not in body["system"][0]


# -- reading


def read(**body: Any) -> ModelRequest:
    return read_request({"model": MODEL, "messages": [], **body}, provider="anthropic")


def read_parts(role: str, *content: Json) -> list[Any]:
    messages = read(messages=[{"role": role, "content": list(content)}]).messages
    return [part for message in messages for part in message.parts]


def test_results_are_read_as_separate_messages() -> None:
    content = [
        {"type": "tool_result", "tool_use_id": "a", "content": "x", "is_error": True},
        {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "y"}]},
        {"type": "tool_result", "tool_use_id": "c"},
        {"type": "text", "text": "and"},
    ]
    results, message = read(messages=[{"role": "user", "content": content}]).messages
    assert results == tool_message(
        ToolResult("a", "x", is_error=True), ToolResult("b", (Text("y"),)), ToolResult("c", "")
    )
    assert message == user("and")


@pytest.mark.parametrize("prompt", ["Be brief.", [{"type": "text", "text": "Be brief."}]])
def test_the_system_prompt_is_read_as_a_system_message(prompt: Any) -> None:
    turn = {"role": "system", "content": "Now."}
    assert read(system=prompt, messages=[turn]).messages == (system("Be brief."), system("Now."))


def test_the_model_may_be_given_outside_the_body() -> None:
    request = read_request({"messages": []}, provider="vertex", model_id="claude-x")
    assert request.config.model_id == "claude-x"


@pytest.mark.parametrize(
    ("block", "part"),
    [
        ({"type": "image", "source": {"type": "url", "url": "u"}}, Image("image/*", url="u")),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "YWJj"}},
            Image("image/png", data=b"abc"),
        ),
        (
            {"type": "document", "source": {"type": "url", "url": "u"}, "title": "t"},
            FileRef("t", mime_type="application/pdf", url="u"),
        ),
        (
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "é"}},
            FileRef("document", mime_type="text/plain", data="é".encode()),
        ),
        (
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "YWJj"}},
            FileRef("document", mime_type="application/pdf", data=b"abc"),
        ),
    ],
)
def test_images_and_documents_are_read(block: Json, part: Any) -> None:
    assert read_parts("user", block) == [part]


@pytest.mark.parametrize(
    ("block", "part"),
    [
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "%%%"}}, Text("")),
        ({"type": "image", "source": {"type": "file", "file_id": "f"}}, FileRef("f")),
        ({"type": "container_upload", "file_id": "f"}, FileRef("f")),
        ({"type": "document", "source": {"type": "base64", "media_type": "text/rtf", "data": "YWJj"}}, Text("")),
        ({"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "a"}]}}, Text("a")),
        ({"type": "search_result", "source": "s", "content": [{"text": "a"}, {"text": "b"}, 3]}, Text("a\nb")),
        ({"type": "later"}, Text("")),
    ],
)
def test_a_block_without_a_matching_part_is_carried_whole(block: Json, part: Any) -> None:
    [carrier] = read_parts("user", block)
    assert carrier.continuation == kept(block=block)
    assert (type(carrier), getattr(carrier, "text", None)) == (type(part), getattr(part, "text", None))
    assert turns_of(user(carrier))[0]["content"] == [block]


def test_an_answer_is_read_with_calls_and_results() -> None:
    result_block = {
        "type": "web_search_tool_result",
        "tool_use_id": "s",
        "content": [{"type": "x", "encrypted_content": "z"}],
    }
    content: list[Json] = [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "redacted_thinking", "data": "AA"},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"INVALID_JSON": "{x"}},
        result_block,
        {"type": "mcp_tool_result", "tool_use_id": "elsewhere", "content": []},
        {"type": "text", "text": "Hi"},
    ]
    parts = read_parts("assistant", *content)
    assert [part.kind for part in parts] == [
        "thinking",
        "thinking",
        "tool_call",
        "tool_call",
        "thinking",
        "thinking",
        "text",
    ]
    [call] = read_parts("assistant", content[2], result_block)
    assert call.result is not None
    assert parts[2].result.content == {"content": [{"type": "x"}]}
    assert (parts[3].arguments, parts[3].raw_args_text) == ({}, "{x")
    assert turns_of(user("Hi"), Message("assistant", tuple(parts)))[1]["content"] == content


def test_tools_are_read_with_their_extra_fields() -> None:
    tools = [
        {"type": "custom", "name": "f", "input_schema": {}, "strict": True, "description": "d"},
        {"type": "mcp_toolset", "mcp_server_name": "wiki"},
        {"name": "g", "input_schema": {}, "strict": None},
    ]
    request = read(tools=tools)
    assert request.tools == (
        ToolSpec("f", {}, description="d", strict=True, extra={"anthropic-messages": {"type": "custom"}}),
        ToolSpec("wiki", {}, native=kept(type="mcp_toolset", mcp_server_name="wiki")),
        ToolSpec("g", {}),
    )


@pytest.mark.parametrize(
    ("settings", "config"),
    [
        ({"max_tokens": 0}, {"extra": {"max_tokens": 0}}),
        ({"tool_choice": {"type": "tool", "name": "f"}}, {"tool_choice": SpecificTool("f")}),
        (
            {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
            {"tool_choice": "required", "parallel_tool_calls": False},
        ),
        ({"tool_choice": {"type": "odd"}}, {"extra": {"tool_choice": {"type": "odd"}}}),
        ({"tool_choice": {"type": "auto", "x": 1}}, {"extra": {"tool_choice": {"type": "auto", "x": 1}}}),
        ({"thinking": {"type": "disabled"}}, {"thinking": ThinkingConfig(effort="none")}),
        (
            {"max_tokens": 5000, "thinking": {"type": "enabled", "budget_tokens": 2000}},
            {"max_tokens": 5000, "thinking": ThinkingConfig(budget_tokens=2000)},
        ),
        ({"thinking": {"type": "later"}}, {"extra": {"thinking": {"type": "later"}}}),
        (
            {"output_config": {"effort": "vast", "format": {"type": "json_schema", "schema": {"const": 1}}}},
            {"output_schema": {"const": 1}, "extra": {"output_config": {"effort": "vast"}}},
        ),
        ({"stop_sequences": ["x"], "metadata": {}}, {"stop_sequences": ("x",), "extra": {"metadata": {}}}),
    ],
)
def test_settings_without_a_field_stay_in_extra(settings: Json, config: Json) -> None:
    own = {"extra": {"anthropic-messages": config["extra"]}} if "extra" in config else {}
    assert read(**settings).config == ModelConfig(MODEL, **{**config, **own})


def test_an_effort_is_read_for_models_that_take_one() -> None:
    body = {"model": "claude-opus-4-6", "thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}
    assert read(**body).config == ModelConfig("claude-opus-4-6", thinking=ThinkingConfig(effort="high"))


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ([], "$"),
        ({"messages": []}, "$.model"),
        ({"model": "m"}, "$.messages"),
        ({"model": "m", "messages": [3]}, "$.messages[0]"),
        ({"model": "m", "messages": [{"role": "tool", "content": ""}]}, "$.messages[0].role"),
        ({"model": "m", "messages": [{"role": "user", "content": 3}]}, "$.messages[0].content"),
        (
            {"model": "m", "messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "$.messages[0].content[0].text",
        ),
        (
            {
                "model": "m",
                "messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f"}]}],
            },
            "$.messages[0].content[0].input",
        ),
        ({"model": "m", "messages": [], "tools": [{"name": "f"}]}, "$.tools[0].input_schema"),
        (
            {"model": "m", "messages": [], "tools": [{"name": "f", "input_schema": {}, "description": 3}]},
            "$.tools[0].description",
        ),
    ],
)
def test_an_invalid_body_raises_with_the_path(body: Any, path: str) -> None:
    with pytest.raises(PartValidationError) as caught:
        read_request(body, provider="anthropic")
    assert caught.value.path == path


# -- avoiding refused requests


def test_trailing_thinking_is_omitted() -> None:
    thought = Thinking("hm", continuation=kept(signature="s"))
    foreign = ToolCall("a", "search", {}, executed_by="provider", continuation=kept("openai"))
    content, lost = content_of(Text("Hi"), thought, thought, foreign)
    assert content == [{"type": "text", "text": "Hi"}]
    assert lost == ["continuation data", "thinking"]


@pytest.mark.parametrize("opening", [[], [Thinking("hm", continuation=kept(signature="s"))]])
def test_an_answer_that_began_without_thinking_continues_without(opening: list[Thinking]) -> None:
    call, result = ToolCall("a", "weather", {}), tool_message(ToolResult("a", "warm"))
    later, answer = ToolCall("b", "weather", {}), tool_message(ToolResult("b", "cold"))
    history = [user("Hi"), assistant(*opening, call), result, assistant(later), answer]
    body, lost = encoded(*history, tools=(WEATHER,), thinking=ThinkingConfig(budget_tokens=2000))
    assert ("thinking" in body) == bool(opening)
    assert lost == ([] if opening else ["thinking settings"])
    body, lost = encoded(*history, assistant("So."), user("And?"), thinking=ThinkingConfig(budget_tokens=2000))
    assert ("thinking" in body, lost) == (True, [])


def test_a_paused_answer_of_another_provider_is_followed_by_a_user_turn() -> None:
    foreign = ToolCall("a", "search", {}, executed_by="provider", continuation=kept("openai"))
    body, _ = encoded(user("Hi"), assistant("Wait.", foreign, meta=Meta(finish_reason="pause")))
    assert [turn["role"] for turn in body["messages"]] == ["user", "assistant", "user"]
    own = ToolCall("a", "search", {}, executed_by="provider", continuation=kept(type="server_tool_use"))
    turns = turns_of(user("Hi"), assistant(own, meta=Meta(finish_reason="pause")))
    assert [turn["role"] for turn in turns] == ["user", "assistant"]


def test_a_provider_call_that_will_never_be_answered_is_omitted() -> None:
    """Its code is waiting for our tools, unless the conversation has continued without it."""
    code = ToolCall("srv", "code", {}, executed_by="provider", continuation=kept(type="server_tool_use"))
    call = ToolCall("a", "weather", {}, continuation=kept(caller={"type": "code_execution", "tool_id": "srv"}))
    waiting = [user("Hi"), assistant(code, call), tool_message(ToolResult("a", "warm"))]
    use = {"type": "tool_use", "id": "a", "name": "weather", "input": {}}
    caller = {"caller": {"type": "code_execution", "tool_id": "srv"}}
    assert turns_of(*waiting)[1]["content"] == [
        {"type": "server_tool_use", "id": "srv", "name": "code", "input": {}},
        {**use, **caller},
    ]
    again = [
        assistant(ToolCall("b", "weather", {}, continuation=call.continuation)),
        tool_message(ToolResult("b", "x")),
    ]
    assert len(turns_of(*waiting, *again)[1]["content"]) == 2
    body, lost = encoded(*waiting, assistant("Warm."), user("Thanks"))
    assert body["messages"][1]["content"] == [use]
    assert lost == ["call of code", "caller of the tool"]


def test_a_failed_result_with_an_image_has_no_error_flag() -> None:
    picture = Image("image/png", data=b"x")
    body, lost = encoded(tool_message(ToolResult("a", (picture,), is_error=True), ToolResult("b", " ", is_error=True)))
    first, second = body["messages"][0]["content"]
    assert "is_error" not in first
    assert second == {"type": "tool_result", "tool_use_id": "b", "is_error": True}
    assert lost == ["error flag"]


def test_a_system_turn_before_an_omitted_answer_becomes_user_text() -> None:
    foreign = ToolCall("a", "search", {}, executed_by="provider", continuation=kept("openai"))
    history = [user("Hi"), system("Be brief."), assistant(foreign), user("And?")]
    body, lost = encoded(*history, model_id="claude-opus-4-8")
    assert [turn["role"] for turn in body["messages"]] == ["user"]
    assert lost == ["continuation data", "system role"]


def test_a_file_with_an_empty_name_has_no_title() -> None:
    [turn] = turns_of(user(FileRef(" ", mime_type="text/plain", data=b"x")))
    assert "title" not in turn["content"][0]


# -- an answer at the end


def last_turn(model_id: str, text: str = "Once upon", **settings: Any) -> tuple[Json, list[tuple[str, str]]]:
    config = ModelConfig(model_id, **settings)
    request = ModelRequest((user("Tell"), assistant(text)), config=config, provider="anthropic")
    encoded_request = formats.encode("anthropic-messages", request)
    last: Json = encoded_request.body["messages"][-1]
    return last, [(loss.action, loss.what) for loss in encoded_request.report.losses]


ADDED = [("added", f"the user text {CONTINUE_PROMPT!r}")]


@pytest.mark.parametrize("model_id", ["claude-3-5-haiku-20241022", "claude-sonnet-4-5", "claude-opus-4-1-20250805"])
def test_a_model_that_continues_answers_gets_the_answer_last(model_id: str) -> None:
    assert last_turn(model_id) == ({"role": "assistant", "content": [{"type": "text", "text": "Once upon"}]}, [])


@pytest.mark.parametrize("model_id", ["claude-opus-4-6", "claude-fable-5", "claude-sonnet-latest", "other"])
def test_a_model_that_does_not_continue_answers_gets_a_prompt_which_is_reported(model_id: str) -> None:
    last, reported = last_turn(model_id)
    assert last == {"role": "user", "content": [{"type": "text", "text": CONTINUE_PROMPT}]}
    assert [action for action, _ in reported] == ["added"]


@pytest.mark.parametrize(
    "settings", [{"thinking": ThinkingConfig(effort="low")}, {"output_schema": {"type": "object", "properties": {}}}]
)
def test_an_answer_is_not_continued_with_settings_that_exclude_it(settings: Json) -> None:
    last, reported = last_turn("claude-sonnet-4-5", **settings)
    assert last["role"] == "user"
    assert reported == ADDED
    assert last_turn("claude-sonnet-4-5", thinking=ThinkingConfig(effort="none"))[0]["role"] == "assistant"


def test_whitespace_at_the_end_of_a_continued_answer_is_left_out() -> None:
    last, reported = last_turn("claude-sonnet-4-5", "Once \n")
    assert last["content"] == [{"type": "text", "text": "Once"}]
    assert reported == [("dropped", "trailing whitespace")]
