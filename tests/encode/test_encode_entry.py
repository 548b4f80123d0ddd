"""The way in: a format by its name, the history repaired by its rules, the losses told."""

import subprocess
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bartack.formats import FORMATS, Encoded, Loss, ModelRequest, encode, format_named, read_request
from bartack.formats.repair import CLOSING
from bartack.nouns.config import ModelConfig, SpecificTool, ThinkingConfig, ToolSpec
from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.messages import Message, assistant, system, tool_message, user
from bartack.nouns.parts import Continuation, ToolCall, ToolResult
from tests.properties.histories import histories

# Any model will do, except where the model decides on the body.
MODELS = {"bedrock-invoke": "anthropic.claude-sonnet-4-6"}
CONFIG = ModelConfig(model_id="some-model")
READ = ToolSpec("read", {"type": "object", "properties": {"path": {"type": "string"}}}, description="Reads a file.")

configs = st.builds(
    ModelConfig,
    model_id=st.just("some-model"),
    max_tokens=st.none() | st.just(100),
    tool_choice=st.sampled_from([None, "auto", "required", "none", SpecificTool("read")]),
    thinking=st.none() | st.builds(ThinkingConfig, effort=st.sampled_from([None, "none", "low", "max"])),
)


@pytest.mark.parametrize("format", FORMATS)
def test_any_history_becomes_a_body_of_plain_json(format: str) -> None:
    @settings(max_examples=2 * settings().max_examples)
    @given(histories, configs, st.sampled_from([format, "elsewhere"]))
    def holds(history: list[Message], config: ModelConfig, provider: str) -> None:
        config = msgspec.structs.replace(config, model_id=MODELS.get(format, config.model_id))
        request = ModelRequest(tuple(history), config=config, tools=(READ,), provider=provider)
        encoded = encode(format, request)
        assert is_plain(encoded.body)
        assert msgspec.json.decode(msgspec.json.encode(encoded.body)) == encoded.body
        assert encode(format, request) == encoded

    holds()


def is_plain(value: Any) -> bool:
    match value:
        case dict():
            return all(type(key) is str and is_plain(item) for key, item in value.items())
        case list():
            return all(map(is_plain, value))
        case _:
            return value is None or type(value) in (str, int, float, bool)


READABLE = [name for name in FORMATS if format_named(name).read_request is not None]


@pytest.mark.parametrize("format", READABLE)
def test_a_body_is_read_back_as_what_was_asked(format: str) -> None:
    messages = [system("be brief"), user("read x"), assistant(ToolCall("abcdefghi", "read", {"path": "x"}))]
    messages += [tool_message(ToolResult("abcdefghi", "contents"))]
    model_id = MODELS.get(format, "some-model")
    body = encode(format, ModelRequest(tuple(messages), config=ModelConfig(model_id), tools=(READ,))).body
    request = read_request(format, body, model_id=model_id)
    assert (request.provider, request.config.model_id) == (format, model_id)
    assert [message.role for message in request.messages] == ["system", "user", "assistant", "tool"]
    assert request.messages[1].text == "read x"
    assert request.messages[2].tool_calls[0].arguments == {"path": "x"}
    assert [spec.name for spec in request.tools] == ["read"]


def test_a_format_without_a_reader_raises() -> None:
    assert READABLE == ["anthropic-messages", "openai-chat", "openai-responses", "gemini-generate", "bedrock-converse"]
    with pytest.raises(PartValidationError, match="reading cohere-v2 requests is not supported") as caught:
        read_request("cohere-v2", {"model": "m", "messages": []})
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def chat(*messages: Message, provider: str = "", **rules: bool) -> Encoded:
    own_rules = msgspec.structs.replace(format_named("openai-chat").rules, **rules) if rules else None
    return encode("openai-chat", ModelRequest(messages, config=CONFIG, provider=provider), rules=own_rules)


def test_the_history_is_repaired_and_what_that_drops_is_a_loss() -> None:
    encoded = chat(user("hi"), tool_message(ToolResult("a", "lost")), assistant(ToolCall("b", "read", {})))
    assert [message["role"] for message in encoded.body["messages"]] == ["user", "assistant", "tool"]
    assert encoded.report.losses == (Loss("history[1]", "a result for call 'a'", "no call before it has this id"),)


def test_the_rules_of_the_provider_hold_where_it_is_stricter_than_its_format() -> None:
    history = [
        user("hi"),
        assistant(ToolCall("call_1", "read", {})),
        tool_message(ToolResult("call_1", "x")),
        user("and?"),
    ]
    roles = [message["role"] for message in chat(*history).body["messages"]]
    assert roles == ["user", "assistant", "tool", "user"]
    bridged = chat(*history, provider="mistral").body["messages"]
    assert [message["role"] for message in bridged] == ["user", "assistant", "tool", "assistant", "user"]
    assert len(bridged[1]["tool_calls"][0]["id"]) == 9


def test_a_caller_may_bring_rules_of_its_own() -> None:
    history = [user("tell"), assistant("once upon")]
    assert chat(*history).body["messages"][-1]["role"] == "assistant"
    assert chat(*history, allows_assistant_last=False).body["messages"][-1]["content"] == CLOSING


def test_continuation_data_goes_back_to_the_provider_named_and_by_default_to_the_format() -> None:
    def told(owner: str, provider: str) -> list[str]:
        call = ToolCall("a", "read", {}, continuation=Continuation(owner, "m", {}))
        return [loss.what for loss in chat(assistant(call), provider=provider).report.losses]

    assert told("openai-chat", "") == []
    assert told("groq", "groq") == []
    assert told("groq", "") == ["continuation data"]


def test_a_request_belongs_to_the_provider_named_and_by_default_to_the_format() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    assert read_request("openai-chat", body).provider == "openai-chat"
    request = read_request("openai-chat", body, provider="groq")
    assert (type(request), request.provider) == (ModelRequest, "groq")


@pytest.mark.parametrize(
    "ask", [lambda: encode("morse", ModelRequest((), config=CONFIG)), lambda: read_request("morse", {})]
)
def test_a_format_that_does_not_exist_is_an_error_that_names_those_that_do(ask: Any) -> None:
    with pytest.raises(
        PartValidationError, match=r"unknown format 'morse'; the formats are anthropic-messages, openai-chat"
    ) as caught:
        ask()
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_a_format_is_imported_when_it_is_first_asked_for() -> None:
    program = """
import sys
from bartack.formats import FORMATS, format_named
def loaded(): return [name for name in FORMATS if f"bartack.formats.{name.replace('-', '_')}" in sys.modules]
print(loaded()); format_named("cohere-v2"); print(loaded())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "['cohere-v2']"]
