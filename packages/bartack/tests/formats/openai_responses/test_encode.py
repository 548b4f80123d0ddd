"""Responses requests, encoded and read, with small made-up requests for each rule."""

from base64 import b64encode
from typing import Any

import pytest

from bartack.formats.losses import Losses
from bartack.formats.openai_responses.encode import encode
from bartack.formats.openai_responses.read import read_request
from bartack.formats.repair import START_PROMPT, made_id
from bartack.nouns.config import CacheConfig, ModelConfig, SpecificTool, ThinkingConfig, ToolChoice, ToolSpec
from bartack.nouns.errors import PartValidationError
from bartack.nouns.messages import Message, assistant, system, tool_message, user
from bartack.nouns.parts import Continuation, FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest

Json = dict[str, Any]
PNG = "data:image/png;base64," + b64encode(b"picture").decode()


def kept(**data: Any) -> Continuation:
    return Continuation("openai", "m", data)


FOREIGN = Continuation("other", "m", {"item": {"id": "theirs"}})


def body_of(*messages: Message, tools: tuple[ToolSpec, ...] = (), **settings: Any) -> tuple[Json, list[str]]:
    """The body and its losses."""
    losses = Losses("openai")
    config = ModelConfig(settings.pop("model", "gpt-5"), **settings)
    body = encode(ModelRequest(messages=messages, config=config, tools=tools, provider="openai"), losses)
    return body, [f"{loss.where}: {loss.what}" for loss in losses.found]


def items_of(*messages: Message, **settings: Any) -> list[Json]:
    """The items of a request without losses."""
    body, lost = body_of(*messages, **settings)
    assert lost == []
    items: list[Json] = body["input"]
    return items


def again(*items: Json, **body: Any) -> list[Json]:
    """These items, read and encoded without losses."""
    request = read_request({"model": "m", "input": list(items), **body}, provider="openai")
    losses = Losses("openai")
    encoded_items: list[Json] = encode(request, losses)["input"]
    assert losses.found == []
    return encoded_items


def reading(**body: Any) -> ModelRequest:
    return read_request({"model": "m", "input": "Hi", **body}, provider="openai")


# -- settings


def test_store_is_off_and_ciphertexts_are_requested() -> None:
    assert body_of(user("Hi"))[0] == {
        "model": "gpt-5",
        "input": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }


@pytest.mark.parametrize(
    "model", ["gpt-4o", "openai/gpt-4.1-mini", "ft:gpt-4o:x", "chatgpt-4o-latest", "gpt-5.2-chat-latest"]
)
def test_ciphertexts_are_not_requested_from_models_that_do_not_reason(model: str) -> None:
    assert "include" not in body_of(user("Hi"), model=model)[0]


@pytest.mark.parametrize(
    ("include", "expected"),
    [
        (["x"], ["x", "reasoning.encrypted_content"]),
        (["reasoning.encrypted_content", "x"], ["reasoning.encrypted_content", "x"]),
        ([], None),
        ("x", "x"),
    ],
)
def test_ciphertexts_are_requested_besides_what_a_setting_includes(include: Any, expected: Any) -> None:
    """Without them, the reasoning would be missing from the next request."""
    assert body_of(user("Hi"), model="gpt-5", extra={"include": include})[0].get("include") == expected


def test_extra_settings_override_the_body() -> None:
    extra = {
        "store": True,
        "previous_response_id": "resp",
        "metadata": {"a": "b"},
        "include": ["x"],
        "text": {"verbosity": "low"},
    }
    body, _ = body_of(user("Hi"), extra=extra)
    assert {key: body[key] for key in extra} == extra
    assert "include" not in body_of(user("Hi"), extra={"store": True})[0]


def test_settings_have_the_names_of_the_api() -> None:
    body, lost = body_of(
        user("Hi"), temperature=0.5, top_p=0.9, max_tokens=7, parallel_tool_calls=False, seed=1, stop_sequences=("x",)
    )
    expected = {"temperature": 0.5, "top_p": 0.9, "max_output_tokens": 7, "parallel_tool_calls": False}
    assert body.items() >= expected.items()
    assert lost == ["config.seed: seed", "config.stopSequences: stop sequences"]


@pytest.mark.parametrize(
    ("thinking", "own", "expected"),
    [
        (ThinkingConfig(effort="high"), {}, {"effort": "high", "summary": "auto"}),
        (ThinkingConfig(effort="max"), {"summary": "detailed"}, {"effort": "xhigh", "summary": "detailed"}),
        (ThinkingConfig(effort="low"), {"summary": None}, {"effort": "low"}),
        (ThinkingConfig(effort="none"), {}, {"effort": "none"}),
        (None, {"context": "all_turns"}, {"context": "all_turns"}),
    ],
)
def test_thinking_is_an_effort_and_a_summary(thinking: ThinkingConfig | None, own: Json, expected: Json) -> None:
    assert body_of(user("Hi"), thinking=thinking, extra={"reasoning": own})[0]["reasoning"] == expected


def test_a_thinking_budget_is_a_loss() -> None:
    body, lost = body_of(user("Hi"), thinking=ThinkingConfig(budget_tokens=5))
    assert (body["reasoning"], lost) == (
        {"effort": "low", "summary": "auto"},
        ["config.thinking.budgetTokens: thinking budget"],
    )


STRICT = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (STRICT, True),
        ({"$defs": {"x": STRICT}, "anyOf": [STRICT, {"type": "array", "items": STRICT}]}, True),
        ({**STRICT, "required": []}, False),
        ({**STRICT, "additionalProperties": True}, False),
        ({**STRICT, "properties": {"a": {"type": "object"}}}, False),
        ({"anyOf": [STRICT, {"type": "object"}]}, False),
    ],
)
def test_an_output_schema_is_strict_if_it_qualifies(schema: Json, strict: bool) -> None:
    shape = body_of(user("Hi"), output_schema=schema)[0]["text"]["format"]
    assert shape == {"type": "json_schema", "name": "output", "schema": schema, "strict": strict}


def test_an_output_schema_is_named_after_its_title_unless_it_has_a_name() -> None:
    schema = {"title": "My answer!"}
    assert body_of(user("Hi"), output_schema=schema)[0]["text"]["format"]["name"] == "My_answer_"
    text = {"verbosity": "low", "format": {"name": "n", "strict": False}}
    text_settings = body_of(user("Hi"), output_schema=schema, extra={"text": text})[0]["text"]
    assert text_settings == {
        "verbosity": "low",
        "format": {"type": "json_schema", "name": "n", "schema": schema, "strict": False},
    }


def test_the_cache_key_is_the_same_for_all_turns_of_a_conversation() -> None:
    cache = CacheConfig()
    first, _ = body_of(system("S"), user("Hi"), cache_config=cache)
    later, _ = body_of(system("S"), user("Hi"), assistant("Hello"), user("More"), cache_config=cache)
    different, _ = body_of(system("S"), user("Bye"), cache_config=cache)
    alone, _ = body_of(system("S"), cache_config=cache)
    keys = [body["prompt_cache_key"] for body in (first, later, different, alone)]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3
    assert {len(key) for key in keys} == {32}


# -- tools


def test_strict_is_always_set() -> None:
    """The server takes a function without it as strict."""
    plain = ToolSpec(
        "add", {"type": "object"}, description="Adds.", extra={"openai-responses": {"defer_loading": True}}
    )
    strict = ToolSpec("sub", {"type": "object"}, strict=True)
    assert body_of(user("Hi"), tools=(plain, strict))[0]["tools"] == [
        {
            "type": "function",
            "name": "add",
            "description": "Adds.",
            "parameters": {"type": "object"},
            "strict": False,
            "defer_loading": True,
        },
        {"type": "function", "name": "sub", "parameters": {"type": "object"}, "strict": True},
    ]


def test_a_provider_tool_is_sent_only_to_that_provider() -> None:
    """D-3.9.2."""
    search = ToolSpec("web_search", {}, native=kept(type="web_search"))
    theirs = ToolSpec("grep", {}, native=FOREIGN)
    body, lost = body_of(user("Hi"), tools=(search, theirs))
    assert body["tools"] == [{"type": "web_search"}]
    assert lost == ["tools[1]: tool grep"]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("required", "required"),
        (SpecificTool("add"), {"type": "function", "name": "add"}),
        (SpecificTool("run"), {"type": "custom", "name": "run"}),
        (SpecificTool("wiki"), {"type": "mcp", "server_label": "wiki"}),
        (SpecificTool("web_search"), {"type": "web_search"}),
    ],
)
def test_a_tool_choice_round_trips(choice: ToolChoice, expected: Any) -> None:
    declared = [
        {
            "type": "function",
            "name": "add",
            "description": "Adds.",
            "parameters": {"type": "object"},
            "strict": False,
            "x": 1,
        },
        {"type": "custom", "name": "run", "description": "Runs."},
        {"type": "mcp", "server_label": "wiki", "server_url": "u"},
        {"type": "web_search"},
    ]
    request = reading(tools=declared, tool_choice=expected)
    assert request.config.tool_choice == choice
    body = encode(request, Losses("openai"))
    assert (body["tool_choice"], body["tools"]) == (expected, declared)


@pytest.mark.parametrize(
    "choice", ["auto", "none", {"type": "allowed_tools", "mode": "auto"}, {"type": "code_interpreter"}]
)
def test_an_unknown_tool_choice_is_kept(choice: Any) -> None:
    assert encode(reading(tool_choice=choice), Losses("openai"))["tool_choice"] == choice


# -- system and user messages


def test_system_messages_keep_their_position() -> None:
    assert items_of(system("S"), user("Hi"), system("T")) == [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "Hi"},
        {"role": "system", "content": "T"},
    ]


def test_instructions_round_trip() -> None:
    request = reading(instructions="Be kind.")
    assert request.messages[0].text == "Be kind."
    body = encode(request, Losses("openai"))
    assert body["instructions"] == "Be kind."
    assert body["input"] == [{"role": "user", "content": "Hi"}]


def test_thinking_in_a_system_message_is_a_loss() -> None:
    body, lost = body_of(Message("system", (Thinking("hm"), Text("S"))), Message("system", ()))
    assert (body["input"], lost) == ([{"role": "system", "content": "S"}], ["messages[0].parts[0]: thinking"])


DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


def test_images_and_files_are_entries_of_their_own() -> None:
    message = user(
        "See",
        Text("ignored", ignored=True),
        Image("image/png", data=b"picture"),
        Image("image/png", url="https://x/y.png"),
        FileRef("dir/a.pdf", mime_type="application/pdf", data=b"picture"),
        FileRef("b.docx", data=b"picture"),
        FileRef("c.pdf", url="https://x/c.pdf"),
        FileRef("d.png", mime_type="image/png", data=b"picture"),
    )
    data = b64encode(b"picture").decode()
    assert items_of(message)[0]["content"] == [
        {"type": "input_text", "text": "See"},
        {"type": "input_image", "image_url": PNG, "detail": "auto"},
        {"type": "input_image", "image_url": "https://x/y.png", "detail": "auto"},
        {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{data}"},
        {"type": "input_file", "filename": "b.docx", "file_data": f"data:{DOCX};base64,{data}"},
        {"type": "input_file", "file_url": "https://x/c.pdf"},
        {"type": "input_image", "image_url": PNG, "detail": "auto"},
    ]


@pytest.mark.parametrize(
    "part",
    [
        FileRef("a.mp3", data=b"x"),
        FileRef("a.mp3", url="https://x/a.mp3"),
        FileRef("b.txt"),
        FileRef("b.txt", data=b""),
        FileRef("c.txt", url="file:///c.txt"),
        FileRef("d.bmp", mime_type="image/bmp", data=b"x"),
    ],
)
def test_media_that_are_not_accepted_are_named_and_a_loss(part: FileRef) -> None:
    body, lost = body_of(user(part))
    assert body["input"][0]["content"].startswith(f"[file: {part.path}")
    assert lost == [f"messages[0].parts[0]: file {part.path}"]


# -- assistant messages


def test_an_answer_of_another_provider_is_plain_text_and_function_calls() -> None:
    """D-3.9.2."""
    message = assistant(
        Thinking("hm", continuation=FOREIGN),
        Text("Hello", continuation=FOREIGN),
        Text(""),
        Text("no", ignored=True),
        ToolCall("c1", "add", {"a": 1}),
        ToolCall("c2", "search", {}, executed_by="provider", result=ToolResult("c2", "found"), continuation=FOREIGN),
        ToolCall("c3", "search", {}, executed_by="provider"),
    )
    body, lost = body_of(message)
    assert body["input"] == [
        {"role": "assistant", "content": "Hello"},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a":1}'},
        {"type": "function_call", "call_id": "c2", "name": "search", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c2", "output": "found"},
    ]
    assert lost == [
        "messages[0].parts[0]: thinking",
        "messages[0].parts[1]: continuation data",
        "messages[0].parts[5]: continuation data",
        "messages[0].parts[6]: call of search",
    ]


def own_text(text: str, nth: int = 0, **item: Any) -> Text:
    data = {"item": item, "field": "content", "nth": nth, "part": {"type": "output_text", "annotations": []}}
    return Text(text, continuation=kept(**data))


def own_thought(text: str, nth: int = 0, field: str = "summary", **item: Any) -> Thinking:
    kind = "summary_text" if field == "summary" else "reasoning_text"
    return Thinking(text, continuation=kept(item=item, field=field, nth=nth, part={"type": kind}))


def test_parts_of_one_item_become_one_item() -> None:
    message = assistant(
        own_thought("one", id="rs"),
        own_thought("two", 1, type="reasoning", id="rs", encrypted_content="x"),
        own_text("a", id="msg"),
        own_text("b", 1, type="message", id="msg", role="assistant", phase="final_answer"),
    )
    entry = {"type": "output_text", "annotations": []}
    assert items_of(message) == [
        {
            "type": "reasoning",
            "id": "rs",
            "encrypted_content": "x",
            "summary": [{"type": "summary_text", "text": "one"}, {"type": "summary_text", "text": "two"}],
        },
        {
            "type": "message",
            "id": "msg",
            "role": "assistant",
            "phase": "final_answer",
            "content": [{**entry, "text": "a"}, {**entry, "text": "b"}],
        },
    ]


def test_parts_of_an_item_without_id_are_joined_by_their_order() -> None:
    items = items_of(assistant(own_text("a"), own_text("b", 1), own_text("c")))
    assert [[entry["text"] for entry in item["content"]] for item in items] == [["a", "b"], ["c"]]
    assert len(items_of(assistant(own_text("b", 1)))) == 1


def test_late_fields_and_interrupted_texts_return_to_their_item() -> None:
    message = assistant(
        own_thought("hm", field="content", id="rs"),
        own_text("Hi", id="msg"),
        own_thought("m", field="content", id="rs"),
        Text("", continuation=kept(item={"type": "reasoning", "id": "rs", "encrypted_content": "x"})),
    )
    first, second = items_of(message)
    assert first["content"] == [{"type": "reasoning_text", "text": "hmm"}]
    assert (first["encrypted_content"], second["id"]) == ("x", "msg")


def test_a_refusal_is_sent_back_as_a_refusal() -> None:
    part = Text("No.", continuation=kept(item={"id": "m"}, field="content", nth=0, part={"type": "refusal"}))
    assert items_of(assistant(part))[0]["content"] == [{"type": "refusal", "refusal": "No."}]


def test_items_that_share_an_id_stay_apart() -> None:
    """xAI gives all reasoning of a response the same id."""
    items: list[Json] = [
        {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "one"},
        {"type": "message", "id": "msg", "role": "assistant", "content": [{"type": "output_text", "text": "Hm"}]},
        {
            "type": "reasoning",
            "id": "rs",
            "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}],
            "encrypted_content": "two",
        },
        {"type": "message", "id": "msg", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]},
        {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "three"},
        {"type": "message", "id": "m2", "role": "assistant", "content": [{"type": "output_text", "text": "Ho"}]},
    ]
    assert again(*items) == items


def test_opaque_items_are_sent_back_unchanged() -> None:
    item = {"type": "compaction", "id": "cmp", "encrypted_content": "x"}
    assert items_of(assistant(Text("", continuation=kept(item=item)))) == [item]


def test_reasoning_without_a_following_item_is_left_out() -> None:
    """The server refuses reasoning "without its required following item"."""
    thought = own_thought("hm", id="rs", encrypted_content="x")
    for following in ((), (user("go on"),), (tool_message(ToolResult("c", "r")),)):
        body, lost = body_of(assistant(thought, own_thought("hm", id="rs2", encrypted_content="y")), *following)
        assert [item for item in body["input"] if item.get("type") == "reasoning"] == []
        assert sorted(lost) == ["messages[0].parts[0]: reasoning", "messages[0].parts[1]: reasoning"]
    call = ToolCall("c", "add", {}, continuation=kept(item={"type": "function_call", "id": "fc"}))
    assert [item["type"] for item in items_of(assistant(thought, call))] == ["reasoning", "function_call"]
    assert len(items_of(assistant(thought), assistant("Hi"))) == 2


def test_reasoning_without_a_ciphertext_is_left_out_if_nothing_is_stored() -> None:
    """The server would look up its id, and the ids of the items after it."""
    message = assistant(
        own_thought("hm", type="reasoning", id="rs"),
        own_text("Hi", id="msg"),
        ToolCall(
            "w",
            "web_search",
            {},
            executed_by="provider",
            continuation=kept(item={"type": "web_search_call", "id": "ws"}),
        ),
        own_thought("kept", type="reasoning", id="rs2", encrypted_content="x"),
        own_text("Ho", id="msg2"),
    )
    body, lost = body_of(message)
    assert [item.get("id") for item in body["input"]] == [None, "ws", "rs2", "msg2"]
    assert lost == ["messages[0].parts[0]: reasoning", "messages[0].parts[1]: item id"]
    assert len(items_of(message, extra={"store": True})) == 5


def test_reasoning_in_plain_text_needs_no_ciphertext() -> None:
    """Servers of open models send and accept it."""
    assert len(items_of(assistant(own_thought("hm", field="content", id="rs"), own_text("Hi", id="m")))) == 2


def test_an_id_that_is_too_long_is_left_out() -> None:
    body, lost = body_of(assistant(own_text("Hi", id="x" * 65)))
    assert ("id" in body["input"][0], lost) == (False, ["messages[0].parts[0]: item id"])


def test_encoding_does_not_change_continuation_data() -> None:
    part = own_text("Hi", id="x" * 65)
    output = {"type": "shell_call_output", "id": "y" * 65}
    call = ToolCall(
        "c", "shell", {}, executed_by="provider", continuation=kept(item={"type": "shell_call"}, output=output)
    )
    body_of(assistant(part, call))
    assert part == own_text("Hi", id="x" * 65)
    assert output == {"type": "shell_call_output", "id": "y" * 65}


# -- calls


def call_with(item: Json, **fields: Any) -> ToolCall:
    facts = {"arguments": {"a": 1}, **fields}
    return ToolCall("c", "add", facts.pop("arguments"), continuation=kept(item=item), **facts)


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        (call_with({"type": "function_call", "arguments": '{"a": 1}'}), '{"a": 1}'),
        (call_with({"type": "function_call", "arguments": '{"a": 2}'}), '{"a":1}'),
        (
            call_with({"type": "function_call", "arguments": '{"a'}, arguments={}, raw_args_text='{"a'),
            '{"invalid_arguments":"{\\"a"}',
        ),
        (call_with({"type": "function_call"}), '{"a":1}'),
    ],
)
def test_arguments_are_sent_back_as_the_model_wrote_them(call: ToolCall, arguments: str) -> None:
    assert items_of(assistant(call))[0]["arguments"] == arguments


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"arguments": {"input": "ls\n"}}, "ls\n"),
        ({"arguments": {}, "raw_args_text": "ls"}, "ls"),
        ({"arguments": {"cmd": "ls"}}, '{"cmd":"ls"}'),
    ],
)
def test_free_text_is_sent_back_as_text(fields: Json, text: str) -> None:
    call = call_with({"type": "custom_tool_call", "id": "ctc"}, **fields)
    expected = {"type": "custom_tool_call", "id": "ctc", "call_id": "c", "name": "add", "input": text}
    assert items_of(assistant(call)) == [expected]


def test_a_provider_call_is_sent_back_with_its_result() -> None:
    item = {"type": "tool_search_call", "id": "ts", "call_id": "theirs", "execution": "server"}
    output = {"type": "tool_search_output", "call_id": "theirs", "tools": []}
    call = ToolCall("c", "tool_search", {}, executed_by="provider", continuation=kept(item=item, output=output))
    assert items_of(assistant(call)) == [item, output]


def test_a_generated_image_is_sent_back_in_its_item() -> None:
    item = {"type": "image_generation_call", "id": "ig"}
    picture = (Text("here"), Image("image/png", data=b"picture"))
    for result, fields in (
        (ToolResult("c", picture), {"result": b64encode(b"picture").decode()}),
        (None, {}),
        (ToolResult("c", "no"), {}),
    ):
        call = ToolCall(
            "c", "image_generation", {}, executed_by="provider", result=result, continuation=kept(item=item)
        )
        assert items_of(assistant(call)) == [{**item, **fields}]


# -- results


def results_of(item_type: str, result: ToolResult) -> tuple[list[Json], list[str]]:
    call = ToolCall("c", "t", {}, continuation=kept(item={"type": item_type, "id": "i"}))
    body, lost = body_of(assistant(call), tool_message(result))
    return body["input"][1:], lost


def test_the_result_of_a_function_is_text_json_or_a_list_of_entries() -> None:
    for content, output in (
        ("text", "text"),
        ({"a": 1}, '{"a":1}'),
        (
            (Text("see"), Image("image/png", data=b"picture")),
            [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": PNG, "detail": "auto"}],
        ),
    ):
        items, lost = results_of("function_call", ToolResult("c", content))
        assert (items, lost) == ([{"type": "function_call_output", "call_id": "c", "output": output}], [])


def test_the_error_flag_is_a_loss_where_the_format_has_none() -> None:
    items, lost = results_of("custom_tool_call", ToolResult("c", "broken", is_error=True))
    assert items == [{"type": "custom_tool_call_output", "call_id": "c", "output": "broken"}]
    assert lost == ["messages[1].parts[0]: error flag"]


@pytest.mark.parametrize(
    ("item_type", "result", "expected"),
    [
        ("local_shell_call", ToolResult("c", "out"), {"type": "local_shell_call_output", "output": "out"}),
        (
            "shell_call",
            ToolResult("c", (Text("o"), Text("ut")), is_error=True),
            {
                "type": "shell_call_output",
                "output": [{"stdout": "out", "stderr": "", "outcome": {"type": "exit", "exit_code": 1}}],
            },
        ),
        (
            "shell_call",
            ToolResult("c", {"output": [{"stdout": "a"}]}),
            {"type": "shell_call_output", "output": [{"stdout": "a"}]},
        ),
        (
            "apply_patch_call",
            ToolResult("c", "no such file", is_error=True),
            {"type": "apply_patch_call_output", "status": "failed", "output": "no such file"},
        ),
        (
            "apply_patch_call",
            ToolResult("c", ""),
            {"type": "apply_patch_call_output", "status": "completed", "output": ""},
        ),
        (
            "computer_call",
            ToolResult("c", (Text("done"), Image("image/png", data=b"picture"))),
            {"type": "computer_call_output", "output": {"type": "computer_screenshot", "image_url": PNG}},
        ),
        (
            "tool_search_call",
            ToolResult("c", {"tools": [{"name": "add"}]}),
            {"type": "tool_search_output", "execution": "client", "status": "completed", "tools": [{"name": "add"}]},
        ),
        (
            "tool_search_call",
            ToolResult("c", "none"),
            {"type": "tool_search_output", "execution": "client", "status": "completed", "tools": []},
        ),
    ],
)
def test_each_type_of_call_has_its_own_type_of_result(item_type: str, result: ToolResult, expected: Json) -> None:
    assert results_of(item_type, result) == ([{"call_id": "c", **expected}], [])


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        (ToolResult("c", {"approve": True}), {"approve": True}),
        (ToolResult("c", "no", is_error=True), {"approve": False, "reason": "no"}),
        (ToolResult("c", "", is_error=True), {"approve": False}),
        (ToolResult("c", "ok"), {"approve": True}),
        # The server would call its tool with the arguments that it asked about.
        (ToolResult("c", "ok", metadata={"approved_arguments": {}}), {"approve": False}),
    ],
)
def test_a_result_becomes_an_approval(result: ToolResult, answer: Json) -> None:
    expected = {"type": "mcp_approval_response", "approval_request_id": "c", **answer}
    assert results_of("mcp_approval_request", result) == ([expected], [])


def test_a_computer_call_without_a_screenshot_is_left_out() -> None:
    """Its result must have one, and a call must have its result."""
    call = ToolCall("c", "computer", {}, continuation=kept(item={"type": "computer_call", "id": "i"}))
    body, lost = body_of(user("Hi"), assistant(call), tool_message(ToolResult("c", "denied", is_error=True)))
    assert body["input"] == [{"role": "user", "content": "Hi"}]
    assert lost == ["messages[2].parts[0]: computer_call and its result"]


def test_client_calls_are_sent_with_their_current_ids() -> None:
    call = ToolCall("new", "shell", {}, continuation=kept(item={"type": "shell_call", "call_id": "old"}))
    result = ToolResult(
        "new", "", continuation=kept(output={"type": "shell_call_output", "call_id": "old", "output": []})
    )
    assert [item["call_id"] for item in items_of(assistant(call), tool_message(result))] == ["new", "new"]


# -- reading


@pytest.mark.parametrize(
    "items",
    [
        [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}, {"role": "user", "content": "Hu"}],
        [{"role": "developer", "content": "Be kind."}, {"role": "system", "content": "S"}],
        [{"role": "user", "id": "msg", "status": "completed", "content": "Hi"}],
        [{"role": "user", "content": [{"type": "input_text", "text": "Hi", "prompt_cache_breakpoint": {}}]}],
        [
            {
                "role": "user",
                "id": "m",
                "content": [{"type": "input_text", "text": "Hi", "x": 1}, {"type": "input_text", "text": "Ho"}],
            }
        ],
        [{"role": "user", "content": [{"type": "input_image", "image_url": PNG, "detail": "high"}]}],
        [{"role": "user", "content": [{"type": "input_image", "image_url": "https://x/y", "detail": "auto"}]}],
        [
            {
                "role": "user",
                "content": [{"type": "input_image", "image_url": "data:image/png;base64,~", "detail": "auto"}],
            }
        ],
        [{"role": "user", "content": [{"type": "input_image", "image_url": "data:;base64,", "detail": "auto"}]}],
        [{"role": "user", "content": [{"type": "input_image", "file_id": "file-1"}]}],
        [{"role": "user", "content": [{"type": "input_file", "filename": "a.pdf", "file_data": PNG}]}],
        [
            {
                "role": "user",
                "content": [
                    {"type": "input_file", "filename": "a", "file_data": PNG.replace("image/png", "text/plain")}
                ],
            }
        ],
        [
            {
                "role": "user",
                "content": [
                    {"type": "input_file", "filename": "a", "file_data": PNG.replace("image/png", "text/plain"), "x": 1}
                ],
            }
        ],
        [{"role": "user", "content": [{"type": "input_file", "filename": "a", "file_data": "odd"}]}],
        [{"role": "user", "content": [{"type": "input_file", "file_url": "https://x/y.pdf"}]}],
        [{"role": "user", "content": [{"type": "input_file", "file_url": "https://x/y.pdf", "detail": "low"}]}],
        [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": ""}}]}],
        [{"role": "system", "content": [{"type": "input_text", "text": "S"}, {"type": "input_image", "file_id": "f"}]}],
        [{"type": "item_reference", "id": "msg_1"}],
        [{"type": "additional_tools", "role": "developer", "tools": []}, {"role": "user", "content": "Hi"}],
        [{"type": "message", "role": "assistant", "id": "m", "content": []}],
        [
            {
                "type": "message",
                "role": "assistant",
                "id": "m",
                "content": [{"type": "output_text", "text": "a", "annotations": []}],
            },
            {"type": "message", "role": "assistant", "id": "n", "content": [{"type": "refusal", "refusal": "No."}]},
        ],
        [
            {
                "type": "reasoning",
                "id": "r",
                "summary": [{"type": "summary_text", "text": "s"}],
                "content": [{"type": "reasoning_text", "text": "c"}],
            },
            {"type": "function_call", "call_id": "c", "name": "add", "arguments": '{ "a": 1 }', "namespace": "ns"},
            {"type": "function_call_output", "call_id": "c", "output": "1"},
            {"type": "reasoning", "summary": [], "encrypted_content": "x"},
            {"type": "custom_tool_call", "call_id": "d", "name": "run", "input": "ls"},
            {
                "type": "custom_tool_call_output",
                "call_id": "d",
                "output": [{"type": "input_text", "text": "a"}],
                "id": "o",
            },
        ],
        [{"type": "custom_tool_call_output", "call_id": "d", "output": "of a call that the server remembers"}],
        [{"type": "function_call_output", "call_id": "d", "id": "fco", "status": "completed", "output": "x"}],
        [
            {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}, "status": "completed"},
            {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "a"}], "max_output_length": 5},
        ],
        [{"type": "computer_call_output", "call_id": "c", "acknowledged_safety_checks": []}],
        [
            {"type": "tool_search_call", "call_id": "c", "execution": "server", "arguments": {"paths": ["a"]}},
            {"type": "tool_search_output", "call_id": "c", "execution": "server", "tools": []},
            {"type": "program", "call_id": "p", "code": "x"},
            {"type": "program_output", "call_id": "p"},
        ],
        [
            {"type": "mcp_approval_request", "id": "mcpr", "name": "ask", "arguments": "{}", "server_label": "wiki"},
            {"type": "mcp_approval_response", "approval_request_id": "mcpr", "approve": True},
            {
                "type": "mcp_call",
                "id": "mcp",
                "name": "ask",
                "arguments": "{}",
                "server_label": "wiki",
                "output": "yes",
            },
        ],
        [
            {
                "type": "image_generation_call",
                "id": "ig",
                "result": b64encode(b"picture").decode(),
                "status": "completed",
            }
        ],
    ],
)
def test_items_round_trip(items: list[Json]) -> None:
    assert again(*items, store=True) == items


def test_an_assistant_message_in_plain_text_with_an_id_becomes_a_list() -> None:
    (item,) = again({"role": "assistant", "id": "m", "content": "Hi"})
    assert item["content"] == [{"type": "output_text", "text": "Hi"}]


def test_consecutive_items_of_the_model_become_one_message() -> None:
    request = read_request(
        {
            "model": "m",
            "input": [
                {"type": "reasoning", "id": "r", "summary": []},
                {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
                {"type": "function_call", "call_id": "b", "name": "f", "arguments": "{"},
                {"type": "function_call_output", "call_id": "a", "output": "1"},
                {"type": "function_call_output", "call_id": "b", "output": "2"},
                {"role": "assistant", "content": "Done."},
            ],
        },
        provider="openai",
    )
    assert [message.role for message in request.messages] == ["assistant", "tool", "assistant"]
    kinds: list[type[Part]] = [type(part) for part in request.messages[0].parts]
    assert kinds == [Thinking, ToolCall, ToolCall]
    bad = request.messages[0].tool_calls[1]
    assert (bad.arguments, bad.raw_args_text) == ({}, "{")
    assert request.messages[0].meta is not None
    assert request.messages[0].meta.bad_args == {"b": "the arguments are not a JSON object"}


def test_known_settings_are_read_and_the_rest_is_kept() -> None:
    schema = {"type": "object"}
    request = reading(
        stream=True,
        temperature=0.5,
        top_p=None,
        max_output_tokens=9,
        parallel_tool_calls=True,
        reasoning={"effort": "xhigh"},
        text={"verbosity": "low", "format": {"type": "json_schema", "name": "n", "schema": schema}},
        truncation="auto",
    )
    config = request.config
    assert (config.temperature, config.top_p, config.max_tokens, config.parallel_tool_calls) == (0.5, None, 9, True)
    exact = {"openai-responses": {"reasoning": {"effort": "xhigh"}}}
    assert (config.thinking, config.output_schema) == (ThinkingConfig(effort="max", extra=exact), schema)
    body = encode(request, Losses("openai"))
    assert body["reasoning"] == {"effort": "xhigh"}
    assert (body["truncation"], body["store"]) == ("auto", True)


def test_missing_settings_have_the_defaults_of_the_server() -> None:
    assert encode(reading(store=None), Losses("openai"))["store"] is True
    assert "include" not in encode(reading(store=False), Losses("openai"))
    assert encode(reading(text={"format": {"type": "text"}}), Losses("openai"))["text"] == {"format": {"type": "text"}}


@pytest.mark.parametrize(("own", "strict"), [({}, None), ({"strict": True}, True), ({"strict": False}, False)])
def test_a_function_is_not_made_strict_by_reading_it(own: Json, strict: bool | None) -> None:
    """Elsewhere the default is not strict, and a schema that does not qualify is refused."""
    function = {"type": "function", "name": "f", "parameters": {"type": "object"}, **own}
    request = reading(tools=[function])
    assert request.tools[0].strict is strict
    assert encode(request, Losses("openai"))["tools"] == [function]


def test_a_body_that_continues_a_stored_response_may_have_no_input() -> None:
    request = read_request({"model": "m", "previous_response_id": "resp"}, provider="openai")
    assert request.messages == ()


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"input": "Hi"}, "$.model"),
        ({"model": "m"}, "$.input"),
        ({"model": "m", "input": 5}, "$.input"),
        ({"model": "m", "input": ["Hi"]}, "$.input[0]"),
        ({"model": "m", "input": [{"content": "Hi"}]}, "$.input[0].role"),
        ({"model": "m", "input": [{"role": "tool", "content": "Hi"}]}, "$.input[0].role"),
        ({"model": "m", "input": [{"role": "user"}]}, "$.input[0].content"),
        ({"model": "m", "input": [{"role": "user", "content": ["Hi"]}]}, "$.input[0].content[0]"),
        ({"model": "m", "input": [{"type": "function_call", "name": "f"}]}, "$.input[0].call_id"),
        ({"model": "m", "input": [{"type": "function_call_output", "output": ""}]}, "$.input[0].call_id"),
        ({"model": "m", "input": [{"type": "function_call_output", "call_id": "c"}]}, "$.input[0].output"),
        ({"model": "m", "input": [{"type": "mcp_approval_response"}]}, "$.input[0].approval_request_id"),
        ({"model": "m", "input": "Hi", "instructions": 5}, "$.instructions"),
        ({"model": "m", "input": "Hi", "tools": {}}, "$.tools"),
        ({"model": "m", "input": "Hi", "tools": [{}]}, "$.tools[0].type"),
        ({"model": "m", "input": "Hi", "tools": [{"type": "function", "parameters": {}}]}, "$.tools[0].name"),
        ({"model": "m", "input": "Hi", "temperature": "hot"}, "$.temperature"),
    ],
)
def test_an_invalid_body_is_refused_with_the_path(body: Json, path: str) -> None:
    with pytest.raises(PartValidationError) as caught:
        read_request(body, provider="openai")
    assert caught.value.path == path


def test_the_model_may_be_given_apart_from_the_body() -> None:
    assert read_request({"input": "Hi"}, provider="azure", model_id="m").config.model_id == "m"


def test_a_repeated_id_is_sent_once() -> None:
    """A message may be in a history twice: "Duplicate item found with id"."""
    greeting = Text("Hi", continuation=kept(item={"type": "message", "id": "msg_1", "role": "assistant"}))
    body, _ = body_of(user("a"), assistant(greeting), user("b"), assistant(greeting), user("c"))
    assert [item.get("id") for item in body["input"]] == [None, "msg_1", None, None, None]


def test_calls_of_other_providers_get_valid_ids_and_names() -> None:
    call_id = "x" * 70
    call = ToolCall(call_id, "browser.search", {}, executed_by="provider", result=ToolResult(call_id, "found"))
    body, _ = body_of(assistant(call))
    called, returned = body["input"]
    assert called["name"] == "browser_search"
    assert called["call_id"] == returned["call_id"] == made_id(call_id, -1)


def test_a_request_is_never_empty() -> None:
    body, _ = body_of(Message("assistant", ()))
    assert body["input"] == [{"role": "user", "content": START_PROMPT}]


def test_an_empty_result_is_empty_text() -> None:
    call = ToolCall("c", "add", {})
    body, _ = body_of(assistant(call), tool_message(ToolResult("c", (Text("x", ignored=True),))))
    assert body["input"][1]["output"] == ""
