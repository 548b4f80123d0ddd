"""Every recorded Ollama chat, decoded and compared with the oracle; every recorded request, read and encoded."""

import json
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from bartack.formats.losses import Losses
from bartack.formats.ollama_chat import OllamaChat, encode, read_request
from bartack.nouns.config import ModelConfig
from bartack.nouns.requests import ModelRequest
from tests.recordings.agreement import FRAMINGS, assembler_of, assert_agrees, assert_cuts_change_nothing, decoded
from tests.recordings.oracle_others import read_stream
from tests.recordings.plain import PlainReading, case_dirs, load_case

STREAMS = [case for case in case_dirs("ollama-chat") if load_case(case).http_status < 400]
REQUESTS = [
    case
    for api in ("ollama-chat-requests", "ollama-chat")
    for case in case_dirs(api)
    if (case / "request.json").exists()
]

every_stream = pytest.mark.parametrize("case_dir", STREAMS, ids=lambda path: path.name[-30:])


def decoder_for(case_dir: Path) -> OllamaChat:
    return OllamaChat(framing=FRAMINGS[Path(load_case(case_dir).file).suffix])


def with_local_ids(reading: PlainReading) -> PlainReading:
    """D-3.8.1: a call without an id gets a local one."""
    numbers = count(1)
    calls = [replace(call, provider_id=call.provider_id or f"local-{next(numbers)}") for call in reading.calls]
    return replace(reading, calls=calls)


@every_stream
def test_decoding_agrees_with_the_oracle(case_dir: Path) -> None:
    deltas = decoded(decoder_for(case_dir), load_case(case_dir).body)
    assert_agrees(deltas, with_local_ids(read_stream("ollama-chat", case_dir)))


@every_stream
def test_cutting_the_bytes_differently_changes_nothing(case_dir: Path) -> None:
    """D-3.11.1."""
    assert_cuts_change_nothing(lambda: decoder_for(case_dir), load_case(case_dir).body)


@every_stream
def test_an_answer_is_sent_back_without_loss(case_dir: Path) -> None:
    """D-3.9: the decoder keeps what the encoder needs."""
    answer = assembler_of(decoded(decoder_for(case_dir), load_case(case_dir).body)).build_final_message()
    model_id = answer.meta.model.model if answer.meta and answer.meta.model else ""
    losses = Losses("ollama-chat")
    config = ModelConfig(model_id or "m")
    encode(ModelRequest(messages=(answer,), config=config, provider="ollama-chat"), losses)
    assert not losses.found


def normalised(body: dict[str, Any]) -> dict[str, Any]:
    """The body without the differences that have no meaning.

    We always stream, and we add call ids and the names in results, which older clients do not send.
    """
    plain = {key: value for key, value in body.items() if key != "stream"}
    for message in plain["messages"]:
        message.pop("tool_name", None)
        message.pop("tool_call_id", None)
        for call in message.get("tool_calls", []):
            call.pop("id", None)
    return {key: value for key, value in plain.items() if value is not None and value != []}


@pytest.mark.parametrize("case_dir", REQUESTS, ids=lambda path: path.name[-30:])
def test_a_recorded_request_survives_a_round_trip(case_dir: Path) -> None:
    body = json.loads((case_dir / "request.json").read_text("utf-8"))
    losses = Losses("ollama")
    encoded = encode(read_request(body, provider="ollama"), losses)
    assert encoded["stream"] is True
    assert normalised(encoded) == normalised(body)
    assert not losses.found
