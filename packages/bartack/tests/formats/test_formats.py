"""`bartack.formats`: formats by name, requests with a repaired history and its losses, and recognising a format."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bartack.formats import (
    FORMATS,
    Encoded,
    Loss,
    ModelRequest,
    decoder,
    encode,
    format_named,
    guess_format,
    read_request,
)
from bartack.formats.framing import FramingName
from bartack.formats.repair import CONTINUE_PROMPT
from bartack.nouns.config import ModelConfig, SpecificTool, ThinkingConfig, ToolSpec
from bartack.nouns.deltas import Failed
from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.messages import Message, assistant, system, tool_message, user
from bartack.nouns.parts import Continuation, ToolCall, ToolResult
from tests.formats.framing.framing_bytes import aws_message
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


@pytest.mark.parametrize("format", FORMATS)
def test_a_body_is_read_back_as_the_request_it_was_made_of(format: str) -> None:
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


def chat(*messages: Message, provider: str = "", **rules: bool) -> Encoded:
    own_rules = msgspec.structs.replace(format_named("openai-chat").rules, **rules) if rules else None
    return encode("openai-chat", ModelRequest(messages, config=CONFIG, provider=provider), rules=own_rules)


def test_the_history_is_repaired_and_every_change_of_content_is_reported() -> None:
    encoded = chat(user("hi"), tool_message(ToolResult("a", "lost")), assistant(ToolCall("b", "read", {})))
    assert [message["role"] for message in encoded.body["messages"]] == ["user", "assistant", "tool"]
    assert encoded.report.losses == (
        Loss(where="history[1]", what="result of call 'a'", why="no earlier call has this id"),
        Loss(where="history[2]", what="error result for call 'b'", why="it has no result", action="added"),
    )


def test_text_that_the_user_or_the_assistant_never_wrote_is_reported() -> None:
    history = [user("hi"), assistant(ToolCall("call_1", "read", {})), user("and?")]
    history += [tool_message(ToolResult("call_1", "x")), assistant("done")]
    report = chat(*history, provider="perplexity").report
    losses = [(loss.action, loss.where) for loss in report.losses]
    assert losses == [("added", "history[2]"), ("moved", "history[3]"), ("added", "history[4]")]
    assert CONTINUE_PROMPT in report.losses[2].what


def test_a_provider_may_be_stricter_than_its_format() -> None:
    history = [
        user("hi"),
        assistant(ToolCall("call_1", "read", {})),
        tool_message(ToolResult("call_1", "x")),
        user("and?"),
    ]
    roles = [message["role"] for message in chat(*history).body["messages"]]
    assert roles == ["user", "assistant", "tool", "user"]
    bridged = chat(*history, provider="perplexity").body["messages"]
    assert [message["role"] for message in bridged] == ["user", "assistant", "tool", "assistant", "user"]
    mistral = chat(*history, provider="mistral").body["messages"]
    assert [message["role"] for message in mistral] == ["user", "assistant", "tool", "user"]  # nothing is invented
    assert len(mistral[1]["tool_calls"][0]["id"]) == 9


def test_a_caller_may_override_the_rules() -> None:
    history = [user("tell"), assistant("once upon")]
    assert chat(*history).body["messages"][-1]["role"] == "assistant"
    assert chat(*history, allows_assistant_last=False).body["messages"][-1]["content"] == CONTINUE_PROMPT


def test_continuation_data_is_sent_to_the_named_provider_which_defaults_to_the_format() -> None:
    def losses_for(owner: str, provider: str) -> list[str]:
        call = ToolCall("a", "read", {}, continuation=Continuation(owner, "m", {}))
        losses = chat(assistant(call), provider=provider).report.losses
        return [loss.what for loss in losses if loss.action == "dropped"]

    assert losses_for("openai-chat", "") == []
    assert losses_for("groq", "groq") == []
    assert losses_for("groq", "") == ["continuation data"]


def test_a_request_that_was_read_belongs_to_the_named_provider_or_the_format() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    assert read_request("openai-chat", body).provider == "openai-chat"
    request = read_request("openai-chat", body, provider="groq")
    assert (type(request), request.provider) == (ModelRequest, "groq")


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_has_a_decoder(format: str) -> None:
    new_decoder = decoder(format, model_id="m", local_id="local-1")
    assert new_decoder.format == format
    assert isinstance(new_decoder.receive_eof()[-1], Failed)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: encode("morse", ModelRequest((), config=CONFIG)),
        lambda: read_request("morse", {}),
        lambda: decoder("morse"),
    ],
)
def test_an_unknown_format_is_an_error_that_lists_the_formats(ask: Any) -> None:
    with pytest.raises(
        PartValidationError, match=r"unknown format 'morse'; the formats are anthropic-messages, openai-chat"
    ) as caught:
        ask()
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_a_format_is_imported_when_it_is_first_used() -> None:
    program = """
import sys
from bartack.formats import FORMATS, format_named
def loaded(): return [name for name in FORMATS if f"bartack.formats.{name.replace('-', '_')}" in sys.modules]
print(loaded()); format_named("cohere-v2"); print(loaded())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "['cohere-v2']"]


# -- recognising a format


@pytest.mark.parametrize(
    ("head", "format"),
    [
        (b'event: message_start\ndata: {"type":"message_start","message":{}}\n\n', "anthropic-messages"),
        (b'event: ping\ndata: {"type":"ping"}\n\nevent: x\ndata: {"type":"message_start"}\n\n', "anthropic-messages"),
        (b'data: {"id":"x","object":"chat.completion.chunk","choices":[]}\n\n', "openai-chat"),
        (b'data: {"choices":[]}\n\n', "openai-chat"),
        (b'event: response.created\ndata: {"type":"response.created"}\n\n', "openai-responses"),
        (b'data: {"candidates":[]}\r\n\r\n', "gemini-generate"),
        (b'[{"candidates":[]},', "gemini-generate"),
        (b'data: {"promptFeedback":{}}\n\n', "gemini-generate"),
        (b'data: {"event_type":"interaction.start"}\n\n', "gemini-interactions"),
        (b'event: message-start\ndata: {"type":"message-start"}\n\n', "cohere-v2"),
        (b'{"model":"m","created_at":"t","message":{},"done":false}\n', "ollama-chat"),
        (b'{"messageStart":{"role":"assistant"}}\n', "bedrock-converse"),
    ],
)
def test_a_format_is_recognised_by_its_first_events(head: bytes, format: str) -> None:
    assert guess_format(head) == format


def test_amazon_frames_are_distinguished_by_their_event_types() -> None:
    assert guess_format(aws_message({":event-type": "chunk"}, b"{}")) == "bedrock-invoke"
    assert guess_format(aws_message({":event-type": "messageStart"}, b"{}"), "aws") == "bedrock-converse"


@pytest.mark.parametrize(
    ("head", "framing"),
    [
        (b"", None),
        (b"hello", None),
        (b"data: [DONE]\n\n", None),
        (b'data: {"type":"ping"}\n\n', None),
        (b"data: [1]\n\n", None),
        (b'data: {"cut": \n\n', None),
        (b"not frames of amazon's", "aws"),
        (b"data: " + b"[" * 5000 + b"\n\n", None),
    ],
)
def test_ambiguous_bytes_are_not_guessed(head: bytes, framing: FramingName | None) -> None:
    assert guess_format(head, framing) is None


def test_recordings_are_recognised_correctly_or_not_at_all(recordings: Path) -> None:
    guessed = 0
    for format in FORMATS:
        for pattern in ("response.sse", "response.ndjson", "response.bin"):
            for file in sorted((recordings / format).glob(f"*/{pattern}")):
                guess = guess_format(file.read_bytes()[:4096])
                assert guess in (format, None), file
                guessed += guess is not None
    assert guessed > 100
