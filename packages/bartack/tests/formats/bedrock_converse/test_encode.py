"""Encoding and reading requests in the Converse format, one rule at a time."""

import json
from typing import Any

import pytest

from bartack import formats
from bartack.formats.bedrock_converse.encode import encode
from bartack.formats.bedrock_converse.read import read_request
from bartack.formats.losses import Losses
from bartack.formats.repair import CONTINUE_PROMPT
from bartack.nouns.config import ModelConfig, SpecificTool, ThinkingConfig, ToolSpec
from bartack.nouns.errors import PartValidationError
from bartack.nouns.messages import Message, assistant, system, tool_message, user
from bartack.nouns.parts import Continuation, FileRef, Image, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest

CLAUDE = "anthropic.claude-sonnet-4-6"
CALL = ToolCall("c1", "add", {"a": 1})
CALL_SENT = {"toolUse": {"toolUseId": "c1", "name": "add", "input": {"a": 1}}}
IMAGE = Image("image/png", data=b"\0\0\0")
IMAGE_SENT = {"image": {"format": "png", "source": {"bytes": "AAAA"}}}


def carried(model: str = CLAUDE, **data: Any) -> Continuation:
    return Continuation("bedrock", model, data)


def body_of(*messages: Message, losses: Losses | None = None, tools: Any = (), **settings: Any) -> dict[str, Any]:
    config = ModelConfig(settings.pop("model_id", CLAUDE), **settings)
    request = ModelRequest(messages=messages, config=config, tools=tools, provider="bedrock")
    return encode(request, losses or Losses("bedrock"))


def lost_by(*messages: Message, **settings: Any) -> list[str]:
    losses = Losses("bedrock")
    body_of(*messages, losses=losses, **settings)
    return [loss.what for loss in losses.found]


def messages_of(*messages: Message) -> list[dict[str, Any]]:
    wire_messages: list[dict[str, Any]] = body_of(*messages)["messages"]
    return wire_messages


def content_of(message: Message) -> list[dict[str, Any]]:
    [wire_message] = messages_of(message)
    content: list[dict[str, Any]] = wire_message["content"]
    return content


# -- an answer at the end

SONNET_4_5 = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"


def last_turn(model_id: str, text: str = "Once upon", **settings: Any) -> tuple[dict[str, Any], list[str]]:
    request = ModelRequest(
        (user("Tell"), assistant(text)), config=ModelConfig(model_id, **settings), provider="bedrock"
    )
    encoded = formats.encode("bedrock-converse", request)
    return encoded.body["messages"][-1], [loss.action for loss in encoded.report.losses]


@pytest.mark.parametrize("model_id", [SONNET_4_5, "anthropic.claude-3-haiku-20240307-v1:0"])
def test_an_older_claude_continues_an_answer(model_id: str) -> None:
    assert last_turn(model_id) == ({"role": "assistant", "content": [{"text": "Once upon"}]}, [])
    assert last_turn(model_id, "Once \n") == ({"role": "assistant", "content": [{"text": "Once"}]}, ["dropped"])


@pytest.mark.parametrize("model_id", ["us.anthropic.claude-opus-4-6-v1", "amazon.nova-pro-v1:0", "meta.llama3-8b", "x"])
def test_other_models_get_a_prompt_after_an_answer(model_id: str) -> None:
    assert last_turn(model_id) == ({"role": "user", "content": [{"text": CONTINUE_PROMPT}]}, ["added"])


@pytest.mark.parametrize(
    "settings", [{"thinking": ThinkingConfig(effort="low")}, {"output_schema": {"type": "object", "properties": {}}}]
)
def test_an_answer_is_not_continued_with_settings_that_exclude_it(settings: Any) -> None:
    assert last_turn(SONNET_4_5, **settings) == ({"role": "user", "content": [{"text": CONTINUE_PROMPT}]}, ["added"])


# -- the conversation


def test_results_are_user_content_and_neighbours_are_joined() -> None:
    results = tool_message(ToolResult("c1", "2"))
    assert body_of(system("Be brief."), user("Hi"), assistant("I add."), assistant(CALL), results, user("Well?")) == {
        "messages": [
            {"role": "user", "content": [{"text": "Hi"}]},
            {"role": "assistant", "content": [{"text": "I add."}, CALL_SENT]},
            {
                "role": "user",
                "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "2"}]}}, {"text": "Well?"}],
            },
        ],
        "system": [{"text": "Be brief."}],
        "toolConfig": {"tools": [{"toolSpec": {"name": "add", "inputSchema": {"json": {"type": "object"}}}}]},
    }


def test_a_later_system_message_becomes_user_text() -> None:
    messages = user("Hi"), system("Now in verse.")
    assert messages_of(*messages)[0]["content"] == [{"text": "Hi"}, {"text": "<system>\nNow in verse.\n</system>"}]
    assert lost_by(*messages) == ["system role"]
    assert messages_of(user("Hi"), Message("system", ())) == [{"role": "user", "content": [{"text": "Hi"}]}]


def test_a_message_without_content_is_not_sent() -> None:
    """003-7.2.3: ignored text never reaches a model."""
    silent = assistant(Text("x", ignored=True), Thinking("y", ignored=True), "")
    assert messages_of(silent) == []


def test_settings_and_extra_settings() -> None:
    extra = {"inferenceConfig": {"topK": 5}, "guardrailConfig": {"guardrailIdentifier": "g"}}
    body = body_of(max_tokens=9, stop_sequences=("x",), extra=extra, model_id="amazon.nova-lite-v1:0")
    assert body == {
        "messages": [],
        "inferenceConfig": {"maxTokens": 9, "stopSequences": ["x"], "topK": 5},
        "guardrailConfig": {"guardrailIdentifier": "g"},
    }
    assert lost_by(seed=1, parallel_tool_calls=False) == ["seed", "one call at a time"]


# -- parts


def test_signed_and_redacted_thinking_is_sent_back_unchanged() -> None:
    """D-3.9."""
    signed = Thinking("Hm.", continuation=carried(reasoningText={"signature": "sig"}))
    redacted = Thinking("", continuation=carried(redactedContent="AAAA"))
    assert content_of(assistant(signed, redacted, "Hi")) == [
        {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "sig"}}},
        {"reasoningContent": {"redactedContent": "AAAA"}},
        {"text": "Hi"},
    ]


def test_thinking_is_sent_only_to_models_that_accept_it() -> None:
    """Unsigned thinking to the same model (but Claude), signed thinking to its family, none to others (D-3.9.2)."""
    other_model = "anthropic.claude-opus-4-6-v1:0"
    signed = Thinking("Hm.", continuation=carried(other_model, reasoningText={"signature": "sig"}))
    nova = "amazon.nova-lite-v1:0"
    unsigned = Thinking("Hm.", continuation=carried(nova, reasoningText={}))
    assert lost_by(assistant(signed, "Hi")) == []
    assert lost_by(assistant(signed, "Hi"), model_id="amazon.nova-lite-v1:0") == ["thinking"]
    assert lost_by(assistant(unsigned, "Hi")) == ["thinking"]
    assert lost_by(assistant(unsigned, "Hi"), model_id=nova) == []
    unknown = Thinking("Hm.", continuation=carried("", reasoningText={}))
    assert lost_by(assistant(unknown, "Hi"), model_id=nova) == []
    assert lost_by(assistant(unknown, "Hi")) == ["thinking"]
    assert lost_by(assistant(Thinking("by hand"), "Hi")) == ["thinking"]
    foreign = Thinking("Oh.", continuation=Continuation("else", CLAUDE, {"reasoningText": {}}))
    assert lost_by(assistant(foreign, "Hi")) == ["thinking"]


def test_citations_are_sent_back_with_their_text() -> None:
    cited = Text("Hi", continuation=carried(citations=[{"title": "t"}]))
    assert content_of(assistant(cited)) == [
        {"citationsContent": {"content": [{"text": "Hi"}], "citations": [{"title": "t"}]}}
    ]


def test_media_become_blocks_of_their_type() -> None:
    files = [
        FileRef("film.mp4", mime_type="video/mp4", url="s3://bucket/film.mp4"),
        FileRef("song.mp3", mime_type="audio/mpeg", data=b"\0\0\0"),
        FileRef("dir/my_notes (1).md", data=b"\0\0\0"),
        FileRef("my notes (1).py", mime_type="text/x-python", data=b"\0\0\0"),
        FileRef("?", mime_type="application/json", data=b"\0\0\0"),
    ]
    source = {"bytes": "AAAA"}
    assert content_of(user("Look", IMAGE, *files)) == [
        {"text": "Look"},
        IMAGE_SENT,
        {"video": {"format": "mp4", "source": {"s3Location": {"uri": "s3://bucket/film.mp4"}}}},
        {"audio": {"format": "mp3", "source": source}},
        {"document": {"name": "my notes (1)", "format": "md", "source": source}},
        {"document": {"name": "my notes (1) (2)", "format": "txt", "source": source}},
        {"document": {"name": "document", "format": "txt", "source": source}},
    ]


def test_media_that_are_not_accepted_are_reported() -> None:
    strange = FileRef("a.zip", mime_type="application/zip", data=b"x"), FileRef("b")
    assert lost_by(user(*strange, Image("image/png", url="https://x/y.png"), Image("", data=b"x"))) == [
        "file a.zip",
        "file b",
        "image (image/png)",
        "image ()",
    ]


def test_a_document_is_accompanied_by_text() -> None:
    document = FileRef("a.pdf", mime_type="application/pdf", data=b"x")
    assert content_of(user(document))[-1] == {"text": "(see the document)"}
    assert "document" in content_of(user("Look", document))[-1]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("fine", [{"text": "fine"}]),
        ("", [{"text": "(no output)"}]),
        ({"sum": 2}, [{"json": {"sum": 2}}]),
        ((Text("see"), IMAGE), [{"text": "see"}, IMAGE_SENT]),
        ((), [{"text": "(no output)"}]),
    ],
)
def test_results_may_hold_text_objects_and_media(content: Any, expected: list[Any]) -> None:
    assert content_of(tool_message(ToolResult("c1", content))) == [
        {"toolResult": {"toolUseId": "c1", "content": expected}}
    ]


def test_a_failed_result_has_a_status_and_other_media_follow_it() -> None:
    song = FileRef("song.mp3", mime_type="audio/mpeg", data=b"\0\0\0")
    results = tool_message(ToolResult("c1", (Text("here"), song)), ToolResult("c2", "no", is_error=True))
    assert lost_by(results) == ["media of a tool result"]
    assert content_of(results) == [
        {"toolResult": {"toolUseId": "c1", "content": [{"text": "here"}]}},
        {"toolResult": {"toolUseId": "c2", "content": [{"text": "no"}], "status": "error"}},
        {"audio": {"format": "mp3", "source": {"bytes": "AAAA"}}},
    ]


def test_invalid_arguments_are_sent_empty_and_reported() -> None:
    bad = ToolCall("c1", "add", {}, raw_args_text="{")
    assert content_of(assistant(bad)) == [{"toolUse": {"toolUseId": "c1", "name": "add", "input": {}}}]
    assert lost_by(assistant(bad)) == ["invalid arguments"]


def test_a_provider_call_is_sent_back_with_its_result() -> None:
    """D-3.10, under the provider's own id."""
    block = {"toolUseId": "p1", "content": [{"text": "2"}], "status": "success"}
    own = carried(type="server_tool_use", callId="p1", toolResult=block)
    call = ToolCall("local-1", "code", {}, executed_by="provider", continuation=own)
    assert content_of(assistant(call)) == [
        {"toolUse": {"toolUseId": "p1", "name": "code", "input": {}, "type": "server_tool_use"}},
        {"toolResult": block},
    ]
    assert body_of(assistant(call))["toolConfig"] == {"tools": [{"systemTool": {"name": "code"}}]}
    assert lost_by(assistant(ToolCall("c", "image_output", {}, executed_by="provider"))) == ["call of image_output"]


# -- tools


def test_tools_and_tool_choices() -> None:
    spec = ToolSpec("add", {"type": "object"}, description="Adds.", strict=True)
    native = ToolSpec("code", {}, native=carried(systemTool={"name": "code"}))
    foreign = ToolSpec("search", {}, native=Continuation("else", "m", {"x": 1}))
    config = body_of(tools=(spec, native, foreign), tool_choice="required")["toolConfig"]
    assert config == {
        "tools": [
            {
                "toolSpec": {
                    "name": "add",
                    "inputSchema": {"json": {"type": "object"}},
                    "description": "Adds.",
                    "strict": True,
                }
            },
            {"systemTool": {"name": "code"}},
        ],
        "toolChoice": {"any": {}},
    }
    assert body_of(tools=(spec,), tool_choice=SpecificTool("add"))["toolConfig"]["toolChoice"] == {
        "tool": {"name": "add"}
    }
    assert body_of(tools=(spec,), tool_choice="auto")["toolConfig"]["toolChoice"] == {"auto": {}}
    assert lost_by(tools=(foreign,)) == ["tool search"]


def test_tool_choice_none_omits_the_tools_unless_the_history_has_calls() -> None:
    spec = ToolSpec("add", {"type": "object"})
    assert "toolConfig" not in body_of(user("Hi"), tools=(spec,), tool_choice="none")
    history = assistant(CALL), tool_message(ToolResult("c1", "2"))
    body = body_of(*history, tools=(spec,), tool_choice="none")
    assert body["toolConfig"] == {"tools": [{"toolSpec": {"name": "add", "inputSchema": {"json": {"type": "object"}}}}]}
    assert lost_by(*history, tools=(spec,), tool_choice="none") == ["tool choice 'none'"]
    assert lost_by(*history, tool_choice="none") == []


# -- reading


BODY: dict[str, Any] = {
    "messages": [
        {
            "role": "user",
            "content": [
                {"text": "Look"},
                {"cachePoint": {"type": "default"}},
                IMAGE_SENT,
                {"image": {"format": "tiff", "source": {"bytes": "AAAA"}}},
                {"document": {"name": "Notes", "format": "txt", "source": {"bytes": "AAAA"}}},
                {"document": {"name": "Said", "source": {"text": "words"}, "citations": {"enabled": True}}},
                {"video": {"format": "mp4", "source": {"s3Location": {"uri": "s3://b/k", "bucketOwner": "1"}}}},
                {"guardContent": {"text": {"text": "guarded", "qualifiers": ["query"]}}},
                {"guardContent": {"image": {"format": "png", "source": {"bytes": "AAAA"}}}},
                {"searchResult": {"source": "s", "title": "t", "content": []}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "sig"}}},
                {"reasoningContent": {"redactedContent": "AAAA"}},
                {"citationsContent": {"content": [{"text": "a"}], "citations": [{"title": "t"}]}},
                {"citationsContent": {"content": [{"text": "a"}, {"text": "b"}]}},
                {"toolUse": {"toolUseId": "p1", "name": "code", "input": {}, "type": "server_tool_use"}},
                {"toolResult": {"toolUseId": "p1", "content": [{"text": "2"}], "type": "code_result"}},
                {"toolResult": {"toolUseId": "p0", "content": []}},
                {"image": {"format": "png", "source": {"bytes": "AAAA"}}},
                {"text": ""},
                CALL_SENT,
                {"toolUse": {"toolUseId": "c2", "name": "now", "input": {}, "mood": "odd"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"toolResult": {"toolUseId": "c1", "content": [{"json": {"sum": 2}}], "status": "error"}},
                {"cachePoint": {"type": "default", "ttl": "1h"}},
                {
                    "toolResult": {
                        "toolUseId": "c2",
                        "content": [{"text": "noon"}, {"json": [1]}, IMAGE_SENT],
                        "mood": 1,
                    }
                },
                {"toolResult": {"toolUseId": "c3", "content": []}},
                {"toolResult": {"toolUseId": "c4", "content": [IMAGE_SENT]}},
                {"text": "Well?"},
            ],
        },
        {"role": "system", "content": [{"toolAddition": {"tool": {"name": "x"}}}, {"text": "New tool."}]},
    ],
    "system": [{"text": "Be brief."}, {"cachePoint": {"type": "default"}}, {"guardContent": {"text": {"text": "g"}}}],
    "inferenceConfig": {"maxTokens": 9, "topP": 0.5, "stopSequences": ["x"], "topK": 3},
    "toolConfig": {
        "tools": [
            {"toolSpec": {"name": "add", "inputSchema": {"json": {"type": "object"}}, "mood": "odd"}},
            {"systemTool": {"name": "code"}},
            {"cachePoint": {"type": "default"}},
            {"brandNew": 1},
        ],
        "toolChoice": {"tool": {"name": "add"}},
        "mood": "odd",
    },
    "outputConfig": {
        "textFormat": {"type": "json_schema", "structure": {"jsonSchema": {"name": "N", "schema": "{}"}}},
        "effort": "low",
    },
    "guardrailConfig": {"guardrailIdentifier": "g"},
}


def test_a_body_survives_a_round_trip() -> None:
    before = json.dumps(BODY)
    request = read_request(BODY, provider="bedrock", model_id=CLAUDE)
    losses = Losses("bedrock")
    assert encode(request, losses) == BODY
    assert not losses.found
    assert json.dumps(BODY) == before
    assert [message.role for message in request.messages] == ["system", "user", "assistant", "tool", "user", "system"]
    assert request.config.output_schema == {}
    assert request.messages[2].tool_calls[0].result == ToolResult("p1", "2")


def test_redundant_fields_of_a_body_are_dropped() -> None:
    result = {"toolUseId": "c1", "content": [{"text": "2"}], "status": "success"}
    body = {"modelId": "m", "messages": [{"role": "user", "content": [{"toolResult": result}]}], "system": []}
    [message] = read_request(body, provider="bedrock").messages
    assert message == tool_message(ToolResult("c1", "2"))


@pytest.mark.parametrize("choice", [{"auto": {}}, {"any": {}}, {"never": {}}, None])
def test_tool_choices_survive_a_round_trip(choice: Any) -> None:
    config = {
        "tools": [{"toolSpec": {"name": "add", "inputSchema": {"json": {"type": "object"}}}}],
        "toolChoice": choice,
    }
    body = {"messages": [], "toolConfig": {key: value for key, value in config.items() if value is not None}}
    assert encode(read_request(body, provider="bedrock", model_id=CLAUDE), Losses("bedrock")) == body


@pytest.mark.parametrize(
    "output",
    [
        {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": {"schema": '{"type":"object"}'}}}},
        {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": {"schema": "{"}}}},
        {"effort": "low"},
    ],
)
def test_schemas_survive_a_round_trip(output: Any) -> None:
    body = {"messages": [], "outputConfig": output}
    assert encode(read_request(body, provider="bedrock", model_id=CLAUDE), Losses("bedrock")) == body


def test_rewritten_call_ids_apply_to_carried_blocks() -> None:
    """`repair` rewrites ids that the provider refuses; a carried block must not bring back the old one."""
    call = ToolCall("new", "now", {}, continuation=carried(block={"toolUse": {"toolUseId": "old", "mood": 1}}))
    result = ToolResult("new", "", continuation=carried(block={"toolResult": {"toolUseId": "old", "content": []}}))
    assert content_of(assistant(call)) == [{"toolUse": {"toolUseId": "new", "mood": 1}}]
    assert content_of(tool_message(result)) == [{"toolResult": {"toolUseId": "new", "content": []}}]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ([], "$"),
        ({"messages": []}, "$.modelId"),
        ({"modelId": "m"}, "$.messages"),
        ({"modelId": "m", "messages": [{"role": "king", "content": []}]}, "$.messages[0].role"),
        ({"modelId": "m", "messages": [{"role": "user", "content": "Hi"}]}, "$.messages[0].content"),
        ({"modelId": "m", "messages": [{"role": "user", "content": [{}]}]}, "$.messages[0].content[0]"),
        ({"modelId": "m", "messages": [{"role": "user", "content": [{"text": 1}]}]}, "$.messages[0].content[0].text"),
        (
            {"modelId": "m", "messages": [{"role": "user", "content": [CALL_SENT]}]},
            "$.messages[0].parts[0]",
        ),
        (
            {"modelId": "m", "messages": [{"role": "user", "content": [{"image": {"source": {"bytes": "?"}}}]}]},
            "$.messages[0].content[0].image.source.bytes",
        ),
        (
            {"modelId": "m", "messages": [{"role": "user", "content": [{"image": {"source": {"s3Location": {}}}}]}]},
            "$.messages[0].content[0].image.source.s3Location.uri",
        ),
        ({"modelId": "m", "messages": [], "inferenceConfig": {"maxTokens": "9"}}, "$.inferenceConfig.maxTokens"),
        ({"modelId": "m", "messages": [], "toolConfig": {"tools": [{}]}}, "$.toolConfig.tools[0]"),
        (
            {
                "modelId": "m",
                "messages": [{"role": "user", "content": [{"toolResult": {"toolUseId": "c", "content": [{}]}}]}],
            },
            "$.messages[0].content[0].toolResult.content[0]",
        ),
    ],
)
def test_an_invalid_body_raises_with_the_path(body: Any, path: str) -> None:
    with pytest.raises(PartValidationError) as caught:
        read_request(body, provider="bedrock")
    assert caught.value.path == path


def test_trailing_reasoning_is_omitted() -> None:
    thought = Thinking("Hm.", continuation=carried(reasoningText={"signature": "s"}))
    foreign = ToolCall("a", "search", {}, executed_by="provider")
    assert content_of(assistant("Hi", thought, foreign)) == [{"text": "Hi"}]
    assert lost_by(assistant("Hi", thought, foreign)) == ["call of search", "thinking"]


def test_an_answer_that_began_without_thinking_continues_without() -> None:
    history = user("Hi"), assistant(ToolCall("a", "f", {})), tool_message(ToolResult("a", "x"))
    thinking = ThinkingConfig(budget_tokens=2000)
    assert lost_by(*history, thinking=thinking) == ["thinking settings"]
    assert "additionalModelRequestFields" not in body_of(*history, thinking=thinking)
    assert lost_by(*history, assistant("So."), user("And?"), thinking=thinking) == []
    assert lost_by(*history, thinking=ThinkingConfig(effort="high"), model_id="anthropic.claude-opus-4-8-v1:0") == []


def test_a_provider_call_is_not_sent_to_another_family() -> None:
    own = carried("us.amazon.nova-pro-v1:0", type="server_tool_use")
    call = ToolCall("p1", "nova_grounding", {}, executed_by="provider", continuation=own)
    assert lost_by(assistant(call), model_id="amazon.nova-lite-v1:0") == []
    assert lost_by(assistant(call)) == ["call of nova_grounding"]


def test_blank_text_and_blank_results_are_not_sent() -> None:
    assert content_of(user("a", " \n")) == [{"text": "a"}]
    [block] = content_of(tool_message(ToolResult("a", " ")))
    assert block["toolResult"]["content"] == [{"text": "(no output)"}]
