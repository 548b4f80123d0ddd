"""Every recorded ConverseStream, decoded and compared with the oracle; every recorded request, read and encoded."""

import json
from pathlib import Path
from typing import Any

import pytest

from bartack.formats.bedrock_converse.decode import BedrockConverse
from bartack.formats.bedrock_converse.encode import encode
from bartack.formats.bedrock_converse.read import read_request
from bartack.formats.losses import Losses
from bartack.nouns.config import ModelConfig
from bartack.nouns.requests import ModelRequest
from tests.recordings.agreement import FRAMINGS, assembler_of, assert_agrees, assert_cuts_change_nothing, decoded
from tests.recordings.oracle_others import read_stream
from tests.recordings.plain import case_dirs, load_case

STREAMS = [case for case in case_dirs("bedrock-converse") if load_case(case).http_status < 400]
REQUESTS = [
    case
    for api in ("bedrock-converse-requests", "bedrock-converse")
    for case in case_dirs(api)
    if (case / "request.json").exists()
]

every_stream = pytest.mark.parametrize("case_dir", STREAMS, ids=lambda path: path.name[-30:])


def decoder_for(case_dir: Path) -> BedrockConverse:
    return BedrockConverse(framing=FRAMINGS[Path(load_case(case_dir).file).suffix])


@every_stream
def test_decoding_agrees_with_the_oracle(case_dir: Path) -> None:
    deltas = decoded(decoder_for(case_dir), load_case(case_dir).body)
    assert_agrees(deltas, read_stream("bedrock-converse", case_dir))


@every_stream
def test_cutting_the_bytes_differently_changes_nothing(case_dir: Path) -> None:
    """D-3.11.1."""
    assert_cuts_change_nothing(lambda: decoder_for(case_dir), load_case(case_dir).body)


@every_stream
def test_an_answer_is_sent_back_without_loss(case_dir: Path) -> None:
    """D-3.9: the decoder keeps what the encoder needs."""
    answer = assembler_of(decoded(decoder_for(case_dir), load_case(case_dir).body)).build_final_message()
    model_id = answer.meta.model.model if answer.meta and answer.meta.model else ""
    losses = Losses("bedrock-converse")
    config = ModelConfig(model_id or "m")
    encode(ModelRequest(messages=(answer,), config=config, provider="bedrock-converse"), losses)
    assert not losses.found


def normalised(body: dict[str, Any]) -> dict[str, Any]:
    """The body without the differences that have no meaning.

    `modelId` is part of the URL, and some clients repeat it; empty `system`, `inferenceConfig` and
    `additionalModelRequestFields` can be omitted; the status ``success`` of a result is the default; neighbours of one
    role, which few models accept, are one message.
    """
    plain = {key: value for key, value in body.items() if key != "modelId" and value not in ([], {})}
    messages: list[dict[str, Any]] = []
    for message in plain["messages"]:
        for block in message["content"]:
            if block.get("toolResult", {}).get("status") == "success":
                del block["toolResult"]["status"]
        if messages and messages[-1]["role"] == message["role"]:
            messages[-1]["content"] += message["content"]
        else:
            messages.append(message)
    return {**plain, "messages": messages}


@pytest.mark.parametrize("case_dir", REQUESTS, ids=lambda path: path.name[-30:])
def test_a_recorded_request_survives_a_round_trip(case_dir: Path) -> None:
    body = json.loads((case_dir / "request.json").read_text("utf-8"))
    model = json.loads((case_dir / "meta.json").read_text("utf-8"))["model"]
    losses = Losses("bedrock")
    request = read_request(body, provider="bedrock", model_id=model)
    assert normalised(encode(request, losses)) == normalised(body)
    assert not losses.found
