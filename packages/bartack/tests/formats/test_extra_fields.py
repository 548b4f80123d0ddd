"""Extra settings: labelled ones stay in their format; they are merged into a body, and never replace the conversation
or the tools of the request."""

from typing import Any

import pytest
from msgspec.structs import replace

from bartack.formats import FORMATS, ModelRequest, encode, format_named, read_request
from bartack.formats.settings import with_extra
from bartack.nouns.config import ModelConfig, ToolSpec
from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.messages import system, user

MODEL = "anthropic.claude-opus-4-8"
SEARCH = {"type": "web_search"}


def body_of(format: str, **extra: Any) -> dict[str, Any]:
    tools = (ToolSpec("look", {"type": "object"}),)
    messages = (system("Be brief."), user("Hi"))
    return encode(format, ModelRequest(messages, config=ModelConfig(MODEL, extra=extra), tools=tools)).body


@pytest.mark.parametrize("value", [None, [], "", {"a": 1}])
@pytest.mark.parametrize("key", ["messages", "input", "contents", "system", "instructions", "systemInstruction"])
@pytest.mark.parametrize("format", FORMATS)
def test_a_setting_cannot_replace_the_conversation(format: str, key: str, value: Any) -> None:
    with pytest.raises(PartValidationError) as caught:
        body_of(format, **{key: value})
    assert (caught.value.path, caught.value.code) == (f"$.config.extra.{key}", ErrorCode.INVALID_CONFIG)


@pytest.mark.parametrize("format", sorted(set(FORMATS) - {"bedrock-converse"}))
def test_tools_in_a_setting_are_added_to_those_of_the_request(format: str) -> None:
    assert body_of(format, tools=[SEARCH])["tools"] == [*body_of(format)["tools"], SEARCH]
    with pytest.raises(PartValidationError, match="a setting cannot replace the tools"):
        body_of(format, tools=None)


def test_tools_in_an_object_are_added_as_well() -> None:
    ours = body_of("bedrock-converse")["toolConfig"]
    merged = body_of("bedrock-converse", toolConfig={"tools": [SEARCH], "toolChoice": {"any": {}}})["toolConfig"]
    assert merged == {"tools": [*ours["tools"], SEARCH], "toolChoice": {"any": {}}}
    for value in (None, {"tools": "none"}):
        with pytest.raises(PartValidationError, match="a setting cannot replace the tools"):
            body_of("bedrock-converse", toolConfig=value)


@pytest.mark.parametrize(
    ("ours", "extra", "expected"),
    [
        ({"a": {"b": {"c": 1, "d": 2}}}, {"a": {"b": {"c": 3}}}, {"a": {"b": {"c": 3, "d": 2}}}),
        ({"a": 1}, {"a": {"b": 1}, "c": [1]}, {"a": {"b": 1}, "c": [1]}),
        ({"include": ["a"]}, {"include": ["b", "a"]}, {"include": ["a", "b"]}),
        ({"stop": ["a"]}, {"stop": ["b"]}, {"stop": ["b"]}),
        ({"f": {"name": "a", "schema": {"type": "object"}}}, {"f": {"schema": {}}}, {"f": {"schema": {}}}),
        ({"responseSchema": {"type": "object"}}, {"responseSchema": {}}, {"responseSchema": {}}),
    ],
)
def test_objects_are_merged_and_lists_of_declarations_grow(ours: Any, extra: Any, expected: Any) -> None:
    assert with_extra(ours, extra) == expected


# -- labels

BODIES: dict[str, dict[str, Any]] = {
    "anthropic-messages": {
        "model": "claude-opus-4-8",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "Hi"}],
        "metadata": {"user_id": "u"},
        "context_management": {"edits": []},
        "tools": [{"name": "f", "input_schema": {"type": "object"}, "defer_loading": True}],
    },
    "openai-chat": {
        "model": "gpt-5",
        "messages": [{"role": "user", "content": "Hi"}],
        "response_format": {"type": "json_object"},
        "logprobs": True,
    },
    "openai-responses": {
        "model": "gpt-5",
        "input": "Hi",
        "store": False,
        "include": [],
        "client_metadata": {"a": "b"},
        "text": {"verbosity": "low"},
    },
    "gemini-generate": {
        "contents": [{"parts": [{"text": "Hi"}]}],
        "generationConfig": {"topK": 3},
        "safetySettings": [{"category": "c"}],
    },
    "bedrock-converse": {
        "messages": [{"role": "user", "content": [{"text": "Hi"}]}],
        "guardrailConfig": {"trace": "enabled"},
    },
}
FOREIGN = {
    "anthropic-messages": {
        "config.extra.anthropic-messages.metadata",
        "config.extra.anthropic-messages.context_management",
        "tools[0].extra.anthropic-messages.defer_loading",
    },
    "openai-chat": {"config.extra.openai-chat.response_format", "config.extra.openai-chat.logprobs"},
    "openai-responses": {
        "config.extra.openai-responses.store",
        "config.extra.openai-responses.client_metadata",
        "config.extra.openai-responses.text",
    },
    "gemini-generate": {"config.extra.gemini-generate.generationConfig", "config.extra.gemini-generate.safetySettings"},
    "bedrock-converse": {"config.extra.bedrock-converse.guardrailConfig"},
}


@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("source", BODIES)
def test_fields_of_one_format_are_not_sent_in_another_and_are_reported(source: str, target: str) -> None:
    request = read_request(source, BODIES[source], model_id=MODEL)
    encoded = encode(target, replace(request, config=replace(request.config, model_id=MODEL), provider=""))
    lost = {loss.where for loss in encoded.report.losses if ".extra." in loss.where}
    if target == source or (source, target) == ("anthropic-messages", "bedrock-invoke"):  # Claude has one format
        assert lost == set()
    else:
        assert lost == FOREIGN[source]
        names = {path.rpartition(".")[2] for path in lost}
        assert not names & encoded.body.keys() - {"generationConfig"}


def test_a_setting_without_a_label_is_for_any_format_and_replaces_a_labelled_one() -> None:
    extra = {"openai-chat": {"user": "client", "seed": 1}, "user": "ann", "cohere-v2": "odd"}
    request = ModelRequest((user("Hi"),), config=ModelConfig("m", extra=extra))
    encoded = encode("openai-chat", request)
    assert (encoded.body["user"], encoded.body["seed"], "cohere-v2" in encoded.body) == ("ann", 1, False)
    assert encode("ollama-chat", request).body["user"] == "ann"


def test_every_format_has_a_label() -> None:
    assert [format_named(name).name for name in FORMATS] == list(FORMATS)
