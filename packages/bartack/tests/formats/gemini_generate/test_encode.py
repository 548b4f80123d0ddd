"""Encoding and reading requests of generateContent, one rule at a time."""

from base64 import b64encode
from typing import Any

import pytest

from bartack.formats.gemini_generate.encode import encode
from bartack.formats.gemini_generate.read import read_request
from bartack.formats.losses import Losses
from bartack.nouns.config import ModelConfig, SpecificTool, ThinkingConfig, ToolSpec
from bartack.nouns.errors import PartValidationError
from bartack.nouns.messages import Message, assistant, system, tool_message, user
from bartack.nouns.parts import Continuation, FileRef, Image, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest

Json = dict[str, Any]
OLD, NEW = "gemini-2.5-flash", "gemini-3-pro-preview"
PNG = b64encode(b"picture").decode()
SCHEMA: Json = {"type": "object", "properties": {"a": {"type": "string"}}}


def sent(
    *messages: Message, model: str = OLD, tools: tuple[ToolSpec, ...] = (), lost: int = 0, **settings: Any
) -> Json:
    """The body; `lost` is the expected number of losses."""
    losses = Losses("google")
    config = ModelConfig(model, **settings)
    body = encode(ModelRequest(messages=messages, config=config, tools=tools, provider="google"), losses)
    assert len(losses.found) == lost, losses.found
    return body


def contents(*messages: Message, model: str = OLD, lost: int = 0) -> list[Json]:
    wire_contents: list[Json] = sent(*messages, model=model, lost=lost)["contents"]
    return wire_contents


def own(**data: Any) -> Continuation:
    return Continuation("google", OLD, data)


FOREIGN = Continuation("anthropic", "claude", {"signature": "x"})


# -- roles


def test_roles_are_user_and_model_and_system_is_separate() -> None:
    body = sent(system("Be kind."), system("Be brief."), user("hi"), assistant("hello"), user("bye"))
    assert body == {
        "contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "model", "parts": [{"text": "hello"}]},
            {"role": "user", "parts": [{"text": "bye"}]},
        ],
        "systemInstruction": {"parts": [{"text": "Be kind."}, {"text": "Be brief."}]},
    }


def test_a_later_system_message_becomes_user_text() -> None:
    assert contents(user("hi"), system("Now in French."), lost=1)[1] == {
        "role": "user",
        "parts": [{"text": "Now in French."}],
    }


def test_text_that_is_ignored_or_empty_is_not_sent() -> None:
    message = user(Text("secret", ignored=True), Text(""))
    assert contents(message, user("hi")) == [{"role": "user", "parts": [{"text": "hi"}]}]


# -- media


def test_media_are_sent_inline_or_by_url() -> None:
    message = user(
        Image("image/png", data=b"picture"),
        Image("image/jpeg", url="https://x/y.jpg"),
        FileRef("a.pdf", mime_type="application/pdf", data=b"picture"),
        FileRef("a.md", data=b"picture"),
        FileRef("v", url="gs://b/v"),
        Image("image/*", url="https://x/y.png?size=1"),
        Image("image/*", url="https://x/y"),
    )
    [content] = contents(message)
    assert content["parts"] == [
        {"inlineData": {"mimeType": "image/png", "data": PNG}},
        {"fileData": {"mimeType": "image/jpeg", "fileUri": "https://x/y.jpg"}},
        {"inlineData": {"mimeType": "application/pdf", "data": PNG}},
        {"inlineData": {"mimeType": "text/markdown", "data": PNG}},
        {"fileData": {"fileUri": "gs://b/v"}},
        {"fileData": {"mimeType": "image/png", "fileUri": "https://x/y.png?size=1"}},
        {"fileData": {"fileUri": "https://x/y"}},
    ]


@pytest.mark.parametrize(
    "file", [FileRef("notes.txt"), FileRef("notes.txt", data=b""), FileRef("notes.txt", url="s3://b")], ids=repr
)
def test_a_file_that_is_not_accepted_is_named_and_reported(file: FileRef) -> None:
    place = "" if file.url is None else f", {file.url}"
    expected = [{"text": "see"}, {"text": f"[file: notes.txt{place}]"}]
    assert contents(user("see", file), lost=1)[0]["parts"] == expected


# -- model contents


def test_signatures_are_sent_back_on_their_parts_and_metadata_is_not() -> None:
    """D-3.9."""
    message = assistant(
        Thinking("hm", continuation=own(thought=True)),
        Text("a", continuation=own(groundingMetadata={"x": 1})),
        Text("", continuation=own(thoughtSignature="s")),
    )
    assert contents(user("hi"), message, lost=1)[1]["parts"] == [
        {"text": "hm", "thought": True},
        {"text": "a"},
        {"text": "", "thoughtSignature": "s"},
    ]


def test_foreign_thinking_is_reported() -> None:
    thoughts = (Thinking("a", continuation=FOREIGN), Thinking("b"), Thinking("c", ignored=True))
    assert contents(user("hi"), assistant(*thoughts, "d"), lost=2)[1]["parts"] == [{"text": "d"}]


def test_a_call_is_sent_back_with_geminis_id_and_signature() -> None:
    call = ToolCall("x7", "f", {"a": 1}, continuation=own(id="x7", thoughtSignature="s"))
    answer = tool_message(ToolResult("x7", "done"))
    assert contents(user("hi"), assistant(call), answer, model=NEW)[1:] == [
        {
            "role": "model",
            "parts": [{"functionCall": {"id": "x7", "name": "f", "args": {"a": 1}}, "thoughtSignature": "s"}],
        },
        {"role": "user", "parts": [{"functionResponse": {"id": "x7", "name": "f", "response": {"output": "done"}}}]},
    ]


def test_another_models_first_call_gets_the_placeholder_signature() -> None:
    calls = (ToolCall("a", "f", {}), ToolCall("b", "f", {}, continuation=FOREIGN))
    for_new, for_old = (
        contents(user("hi"), assistant(*calls), model=model, lost=1)[1]["parts"] for model in (NEW, OLD)
    )
    bare = {"functionCall": {"name": "f", "args": {}}}
    assert for_new == [{**bare, "thoughtSignature": "skip_thought_signature_validator"}, bare]
    assert for_old == [bare, bare]


@pytest.mark.parametrize(("model", "signs"), [("gemini-flash-latest", True), ("gemma-3-27b-it", False)])
def test_older_models_get_no_placeholder_signature(model: str, signs: bool) -> None:
    [part] = contents(user("hi"), assistant(ToolCall("a", "f", {})), model=model)[1]["parts"]
    assert ("thoughtSignature" in part) is signs


def test_invalid_arguments_are_sent_empty_and_reported() -> None:
    call = ToolCall("a", "f", {}, raw_args_text='{"a":')
    assert contents(user("hi"), assistant(call), lost=1)[1]["parts"] == [{"functionCall": {"name": "f", "args": {}}}]


def test_provider_calls_are_sent_back_unchanged() -> None:
    """D-3.10."""
    part, result = {"executableCode": {"code": "1"}, "thoughtSignature": "s"}, {"codeExecutionResult": {"output": "1"}}
    call = ToolCall(
        "a",
        "code_execution",
        {},
        executed_by="provider",
        result=ToolResult("a", "1"),
        continuation=own(part=part, resultPart=result),
    )
    assert contents(user("hi"), assistant(call))[1]["parts"] == [part, result]


@pytest.mark.parametrize("continuation", [FOREIGN, None])
def test_another_providers_call_is_reported(continuation: Continuation | None) -> None:
    call = ToolCall("a", "web_search", {}, executed_by="provider", continuation=continuation)
    assert len(contents(user("hi"), assistant(call), lost=1)) == 1


def test_a_generated_image_is_sent_back_inline() -> None:
    continuation = own(part={"inlineData": {"mimeType": "image/png"}, "thoughtSignature": "s"})
    picture = ToolResult("a", (Image("image/png", data=b"picture"),))
    call = ToolCall("a", "image_output", {}, executed_by="provider", result=picture, continuation=continuation)
    assert contents(user("hi"), assistant(call))[1]["parts"] == [
        {"inlineData": {"mimeType": "image/png", "data": PNG}, "thoughtSignature": "s"}
    ]


def test_a_missing_generated_image_leaves_its_part() -> None:
    part = {"inlineData": {"mimeType": "image/png"}}
    calls = [
        ToolCall("a", "x", {}, executed_by="provider", result=result, continuation=own(part=part))
        for result in (ToolResult("a", (Text("gone"),)), None)
    ]
    assert [contents(user("hi"), assistant(call))[1]["parts"] for call in calls] == [[part], [part]]


# -- tool results

CALLS = assistant(ToolCall("a", "f", {}), ToolCall("b", "g", {}))


def responses(*results: ToolResult, model: str = OLD, lost: int = 0) -> list[Json]:
    return contents(user("hi"), CALLS, *map(tool_message, results), model=model, lost=lost)[2:]


def test_responses_to_one_turn_share_one_content() -> None:
    wire_responses = responses(ToolResult("a", {"k": 1}), ToolResult("b", "no", is_error=True), ToolResult("lost", "?"))
    assert wire_responses == [
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "f", "response": {"k": 1}}},
                {"functionResponse": {"name": "g", "response": {"error": "no"}}},
                {"functionResponse": {"name": "lost", "response": {"output": "?"}}},
            ],
        }
    ]


IMAGES = (
    Text("look"),
    Text("secret", ignored=True),
    Image("image/png", data=b"picture"),
    Image("image/heic", data=b"picture"),
    Image("image/png", url="https://x/y.png"),
    Image("image/png", url="gs://b/y.png"),
    FileRef("nothing"),
)


def test_images_are_part_of_a_response_from_gemini_3_on() -> None:
    first, moved = responses(ToolResult("a", IMAGES), model=NEW, lost=2)
    [part] = first["parts"]
    assert part["functionResponse"] == {
        "name": "f",
        "response": {"output": "look\n[file: nothing]"},
        "parts": [
            {"inlineData": {"mimeType": "image/png", "data": PNG}},
            {"fileData": {"mimeType": "image/png", "fileUri": "gs://b/y.png"}},
        ],
    }
    assert [next(iter(part)) for part in moved["parts"]] == ["text", "inlineData", "fileData"]


def test_images_follow_the_responses_for_older_models() -> None:
    first, moved, last = contents(
        user("hi"), CALLS, tool_message(ToolResult("a", IMAGES[:3]), ToolResult("b", "x")), user("so?"), lost=1
    )[2:]
    assert [part["functionResponse"]["name"] for part in first["parts"]] == ["f", "g"]
    assert moved["parts"][1] == {"inlineData": {"mimeType": "image/png", "data": PNG}}
    assert last["parts"] == [{"text": "so?"}]


def test_a_response_of_images_only_has_no_output() -> None:
    [content] = responses(ToolResult("a", (Image("image/png", data=b"picture"),)), model=NEW)
    assert content["parts"][0]["functionResponse"]["response"] == {}


# -- tools and settings


def test_functions_share_one_entry_and_native_tools_stay_unchanged() -> None:
    tools = (
        ToolSpec(
            "f", SCHEMA, description="F", extra={"gemini-generate": {"behavior": "BLOCKING"}, "openai-chat": {"x": 1}}
        ),
        ToolSpec("g", {}),
        ToolSpec("googleSearch", {}, native=own(googleSearch={})),
        ToolSpec("web_search", {}, native=FOREIGN),
        ToolSpec("h", {}),
    )
    assert sent(user("hi"), tools=tools, lost=2)["tools"] == [
        {
            "functionDeclarations": [
                {"name": "f", "description": "F", "parametersJsonSchema": SCHEMA, "behavior": "BLOCKING"},
                {"name": "g"},
            ]
        },
        {"googleSearch": {}},
        {"functionDeclarations": [{"name": "h"}]},
    ]


@pytest.mark.parametrize(
    ("choice", "strict", "wire"),
    [
        ("auto", False, {"mode": "AUTO"}),
        ("required", True, {"mode": "ANY"}),
        ("none", False, {"mode": "NONE"}),
        (SpecificTool("f"), True, {"mode": "ANY", "allowedFunctionNames": ["f"]}),
        ("auto", True, {"mode": "VALIDATED"}),
        (None, True, {"mode": "VALIDATED"}),
    ],
)
def test_tool_choices(choice: Any, strict: bool, wire: Json) -> None:
    body = sent(user("hi"), tools=(ToolSpec("f", {}, strict=strict),), tool_choice=choice)
    assert body["toolConfig"] == {"functionCallingConfig": wire}


def test_settings_become_the_generation_config_merged_with_extra() -> None:
    body = sent(
        user("hi"),
        temperature=0.5,
        top_p=0.9,
        max_tokens=10,
        stop_sequences=("x",),
        seed=7,
        output_schema=SCHEMA,
        extra={"generationConfig": {"topK": 3}, "safetySettings": [], "toolConfig": {"x": 1}},
    )
    assert body["generationConfig"] == {
        "temperature": 0.5,
        "topP": 0.9,
        "maxOutputTokens": 10,
        "stopSequences": ["x"],
        "seed": 7,
        "responseMimeType": "application/json",
        "responseJsonSchema": SCHEMA,
        "topK": 3,
    }
    assert (body["safetySettings"], body["toolConfig"]) == ([], {"x": 1})


def test_disabling_parallel_calls_is_reported() -> None:
    tools = (ToolSpec("f", {}),)
    assert "toolConfig" not in sent(user("hi"), tools=tools, parallel_tool_calls=False, lost=1)


@pytest.mark.parametrize(
    ("model", "thinking", "wire"),
    [
        (OLD, ThinkingConfig(), {"includeThoughts": True}),
        (NEW, ThinkingConfig(), {"includeThoughts": True}),
        (OLD, ThinkingConfig(budget_tokens=0), {"thinkingBudget": 0}),
        (NEW, ThinkingConfig(budget_tokens=512), {"thinkingBudget": 512, "includeThoughts": True}),
        (OLD, ThinkingConfig(effort="none"), {"thinkingBudget": 0}),
        ("gemini-2.5-pro", ThinkingConfig(effort="none"), {"thinkingBudget": 128, "includeThoughts": True}),
        (OLD, ThinkingConfig(effort="medium"), {"thinkingBudget": 8192, "includeThoughts": True}),
        (NEW, ThinkingConfig(effort="minimal"), {"thinkingLevel": "low", "includeThoughts": True}),
        ("gemini-3-flash", ThinkingConfig(effort="none"), {"thinkingLevel": "minimal", "includeThoughts": True}),
        ("gemini-3-flash", ThinkingConfig(effort="low"), {"thinkingLevel": "low", "includeThoughts": True}),
        (NEW, ThinkingConfig(effort="max"), {"thinkingLevel": "high", "includeThoughts": True}),
    ],
)
def test_thinking_settings(model: str, thinking: ThinkingConfig, wire: Json) -> None:
    assert sent(user("hi"), model=model, thinking=thinking)["generationConfig"]["thinkingConfig"] == wire


# -- reading


def read(body: Json, model: str = OLD) -> ModelRequest:
    return read_request(body, provider="google", model_id=model)


def round_trip(body: Json, model: str = OLD) -> Json:
    losses = Losses("google")
    again = encode(read(body, model), losses)
    assert losses.found == []
    return again


def with_parts(*parts: Json, role: str = "user") -> Json:
    return {"contents": [{"role": role, "parts": list(parts)}]}


@pytest.mark.parametrize(
    "body",
    [
        with_parts(
            {"text": "a", "partMetadata": {"my_key": 1}}, {"inlineData": {"mimeType": "audio/mp3", "data": PNG}}
        ),
        with_parts({"fileData": {"fileUri": "gs://u"}, "videoMetadata": {"fps": 1}}),
        with_parts({"inlineData": {"mimeType": "image/png", "data": PNG, "displayName": "p"}}),
        with_parts({"text": "a", "thought": True, "thoughtSignature": "s"}, {"text": "b"}, role="model"),
        with_parts({"inlineData": {"mimeType": "image/png", "data": PNG}, "thoughtSignature": "s"}, role="model"),
        with_parts({"fileData": {"fileUri": "gs://b/v"}}, role="model"),
        with_parts(
            {"executableCode": {"code": "1", "language": "PYTHON"}},
            {"codeExecutionResult": {"outcome": "OUTCOME_FAILED", "output": "x"}},
            {"toolCall": {"toolType": "FILE_SEARCH", "id": "t"}},
            {"toolResponse": {"id": "t", "response": {"a": 1}}, "thoughtSignature": "s"},
            role="model",
        ),
        with_parts({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "x"}}, role="model"),
        with_parts({"functionResponse": {"id": "o", "name": "orphan", "response": {}, "scheduling": "SILENT"}}),
        with_parts({"functionResponse": {"name": "orphan", "response": {"error": {"code": 1}}}}),
    ],
)
def test_contents_survive_a_round_trip(body: Json) -> None:
    assert round_trip(body) == body


def test_responses_are_matched_by_id_or_by_name_and_order() -> None:
    calls = [{"functionCall": {"name": "f", "args": {}, **fields}} for fields in ({}, {"id": "i"}, {}, {"id": "i"})]
    answers = [
        {"functionResponse": {"name": "f", "response": {"n": n}, **fields}}
        for n, fields in enumerate(({"id": "i"}, {}, {}, {"id": "i"}))
    ]
    body: Json = {"contents": [{"role": "model", "parts": calls}, {"role": "user", "parts": answers}]}
    question, answered = read(body).messages
    ids = [call.tool_call_id for call in question.tool_calls]
    assert len(set(ids)) == 4
    assert [result.tool_call_id for result in answered.tool_results] == [ids[1], ids[0], ids[2], ids[3]]
    assert round_trip(body) == body


def test_text_between_responses_becomes_separate_messages() -> None:
    response = {"functionResponse": {"name": "f", "response": {}}}
    body = with_parts({"text": "a"}, response, {"text": "b"}, role="function")
    assert [message.role for message in read(body).messages] == ["user", "tool", "user"]


def test_images_inside_a_response_are_its_content() -> None:
    inside = [{"inlineData": {"mimeType": "image/png", "data": PNG}}]
    for response in ({}, {"output": "look"}, {"k": 1}):
        body = with_parts({"functionResponse": {"name": "f", "response": response, "parts": inside}})
        assert round_trip(body, NEW) == body
    [result] = read(with_parts({"functionResponse": {"name": "f", "parts": inside}})).messages[0].tool_results
    assert result.content == (Image("image/png", data=b"picture"),)


def test_images_after_a_response_belong_to_its_call_and_keep_their_place() -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": PNG}}
    responses: list[Json] = [{"output": "look"}, {"output": ""}, {}, {"k": 1}, {"error": {"k": 1}}]
    calls = [{"functionCall": {"name": f"f{n}", "args": {}}} for n in range(len(responses))]
    parts = [
        part
        for n, response in enumerate(responses)
        for part in ({"functionResponse": {"name": f"f{n}", "response": response}}, image, image)
    ]
    body = {"contents": [{"role": "model", "parts": calls}, {"role": "user", "parts": parts}]}
    assert round_trip(body) == body
    question, answered = read(body).messages
    assert [result.tool_call_id for result in answered.tool_results] == [
        call.tool_call_id for call in question.tool_calls
    ]
    contents: list[Any] = [result.content for result in answered.tool_results]
    texts = [[piece.text for piece in content if isinstance(piece, Text)] for content in contents]
    assert texts == [["look"], [], [], ['{"k":1}'], ['{"k":1}']]
    assert all(isinstance(piece, Image) for content in contents for piece in content[-2:])


def test_an_image_after_text_is_the_users() -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": PNG}}
    response = {"functionResponse": {"name": "f", "response": {}}}
    messages = read(with_parts(response, {"text": "and this"}, image)).messages
    assert [len(message.parts) for message in messages] == [1, 2]


def test_json_is_read_as_leniently_as_google_does() -> None:
    body: Json = {
        "model": "models/gemini-x",
        "system_instruction": {"parts": {"text": "Be kind."}},
        "contents": {"parts": [{"thought_signature": "s"}]},
        "tools": {"function_declarations": {"name": "f", "parameters": {"type": "OBJECT"}}},
    }
    request = read_request(body, provider="google")
    assert request.config.model_id == "gemini-x"
    assert [message.role for message in request.messages] == ["system", "user"]
    assert request.tools == (ToolSpec("f", {"type": "object"}),)


def test_openapi_schemas_become_json_schema() -> None:
    older = {
        "type": "OBJECT",
        "properties": {"a": {"type": "STRING", "nullable": True}, "b": {"anyOf": [{"type": "NUMBER"}]}},
        "nullable": False,
    }
    newer = {
        "type": "object",
        "properties": {"a": {"type": ["string", "null"]}, "b": {"anyOf": [{"type": "number"}]}},
    }
    settings = {"responseMimeType": "application/json", "responseSchema": older}
    assert read({"contents": [], "generationConfig": settings}).config.output_schema == newer


def test_settings_are_read_into_their_fields() -> None:
    config = read(
        {
            "contents": [],
            "generationConfig": {
                "temperature": 1,
                "topP": 0.5,
                "maxOutputTokens": 9,
                "seed": 3,
                "stopSequences": ["x"],
            },
            "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
        }
    ).config
    assert config == ModelConfig(
        OLD, temperature=1, top_p=0.5, max_tokens=9, seed=3, stop_sequences=("x",), tool_choice=SpecificTool("f")
    )


@pytest.mark.parametrize(
    "body",
    [
        {"generationConfig": {"temperature": "warm", "stopSequences": [1], "responseMimeType": "application/json"}},
        {"generationConfig": {"thinkingConfig": {"thinkingBudget": 5}}},
        {"generationConfig": {"thinkingConfig": {"thinkingLevel": "low", "includeThoughts": True}}},
        {"generationConfig": {"thinkingConfig": {"thinkingBudget": 5, "includeThoughts": True}}},
        {"generationConfig": {"thinkingConfig": "much"}},
        {"toolConfig": {"functionCallingConfig": {"mode": "AUTO"}, "retrievalConfig": {"languageCode": "en"}}},
        {"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f", "g"]}}},
        {
            "cachedContent": "cachedContents/1",
            "tools": [{"codeExecution": {}}, {"functionDeclarations": [{"name": "f"}]}],
        },
    ],
)
def test_settings_survive_a_round_trip(body: Json) -> None:
    full_body = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}], **body}
    assert round_trip(full_body) == full_body


def test_a_level_is_an_effort_from_gemini_three_on() -> None:
    body: Json = {
        "contents": [],
        "generationConfig": {"thinkingConfig": {"thinkingLevel": "LOW", "includeThoughts": True}},
    }
    assert read(body, NEW).config.thinking == ThinkingConfig(effort="low")
    exact = body["generationConfig"]
    assert read(body, OLD).config.thinking == ThinkingConfig(effort="low", extra={"gemini-generate": exact})


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ([], "$"),
        ({}, "$.contents"),
        ({"contents": ["x"]}, "$.contents[0]"),
        ({"contents": [{"role": "narrator"}]}, "$.contents[0].role"),
        (with_parts({}), "$.contents[0].parts[0]"),
        (with_parts({"text": 1}), "$.contents[0].parts[0].text"),
        (with_parts({"text": "a", "inlineData": {}}), "$.contents[0].parts[0]"),
        (with_parts({"functionCall": {"name": "f"}}), "$.contents[0].parts[0]"),
        (with_parts({"inlineData": {"data": "!"}}), "$.contents[0].parts[0].inlineData.data"),
        (with_parts({"fileData": {}}), "$.contents[0].parts[0].fileData.fileUri"),
        (
            with_parts({"functionResponse": {"parts": [{"text": "x"}]}}),
            "$.contents[0].parts[0].functionResponse.parts[0]",
        ),
        (with_parts({"functionResponse": {}}, role="model"), "$.contents[0].parts[0]"),
        (with_parts({"functionCall": {}}, role="model"), "$.contents[0].parts[0].functionCall.name"),
        ({"contents": [], "tools": [{"functionDeclarations": [{}]}]}, "$.tools[0].functionDeclarations[0].name"),
    ],
)
def test_an_invalid_body_raises_with_the_path(body: Any, path: str) -> None:
    with pytest.raises(PartValidationError) as caught:
        read(body)
    assert caught.value.path == path
