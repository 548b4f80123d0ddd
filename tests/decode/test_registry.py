"""`bartack.formats`: a decoder by the name of its format, and the format of bytes without a label."""

from pathlib import Path

import pytest

from bartack.formats import FORMATS, decoder, guess_format
from bartack.formats.framing import FramingName
from bartack.nouns.deltas import Failed
from bartack.nouns.errors import ErrorCode, PartValidationError
from tests.decode.framing_bytes import aws_message


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_has_its_decoder(format: str) -> None:
    made = decoder(format, model_id="m", local_id="local-1")
    assert made.format == format
    assert isinstance(made.receive_eof()[-1], Failed)


def test_an_unknown_format_lists_the_known_ones() -> None:
    with pytest.raises(PartValidationError, match="anthropic-messages") as unknown:
        decoder("carrier-pigeon")
    assert unknown.value.code is ErrorCode.INVALID_CONFIG


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
def test_a_format_is_known_by_its_first_event(head: bytes, format: str) -> None:
    assert guess_format(head) == format


def test_amazons_frames_are_told_apart_by_their_names() -> None:
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
def test_what_is_not_certain_is_not_guessed(head: bytes, framing: FramingName | None) -> None:
    assert guess_format(head, framing) is None


def test_recordings_are_guessed_right_or_not_at_all(recordings: Path) -> None:
    names = {
        "anthropic-messages": "anthropic-messages",
        "openai-chat": "openai-chat",
        "openai-responses": "openai-responses",
        "gemini-generate": "gemini-generate",
        "gemini-interactions": "gemini-interactions",
        "cohere-v2": "cohere-v2",
        "ollama-chat": "ollama-chat",
        "bedrock-converse": "bedrock-converse",
    }
    guessed = 0
    for folder, format in names.items():
        for pattern in ("response.sse", "response.ndjson", "response.bin"):
            for file in sorted((recordings / folder).glob(f"*/{pattern}")):
                found = guess_format(file.read_bytes()[:4096])
                assert found in (format, None), file
                guessed += found is not None
    assert guessed > 100
