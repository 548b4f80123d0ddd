"""Every recorded InvokeModel stream, decoded and compared with the oracle; every recorded request, read and encoded."""

import json
from pathlib import Path

import pytest

from bartack.formats.bedrock_invoke import BedrockInvoke, encode, read_request
from bartack.formats.losses import Losses
from tests.recordings.agreement import assert_agrees, assert_cuts_change_nothing, decoded
from tests.recordings.oracle_others import read_stream
from tests.recordings.plain import case_dirs, load_case
from tests.recordings.test_anthropic_messages_recordings import normalised

STREAMS = [case for case in case_dirs("bedrock-invoke") if load_case(case).http_status < 400]


@pytest.mark.parametrize("case_dir", STREAMS, ids=lambda path: path.name[-30:])
def test_decoding_agrees_with_the_oracle(case_dir: Path) -> None:
    deltas = decoded(BedrockInvoke(model_id="m"), load_case(case_dir).body)
    assert_agrees(deltas, read_stream("bedrock-invoke", case_dir))


@pytest.mark.parametrize("case_dir", STREAMS, ids=lambda path: path.name[-30:])
def test_cutting_the_bytes_differently_changes_nothing(case_dir: Path) -> None:
    assert_cuts_change_nothing(BedrockInvoke, load_case(case_dir).body)


REQUESTS = [
    path
    for api in ("bedrock-invoke", "bedrock-invoke-requests")
    for case in case_dirs(api)
    if (path := case / "request.json").is_file()
]


@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: path.parent.name[-30:])
def test_a_recorded_request_survives_a_round_trip(path: Path) -> None:
    """Encoding what was read gives the recorded body again, up to differences without a meaning:

    - for Claude a string is short for one text block, and neighbours of one role are one turn;
    - Nova's `schemaVersion` may be omitted, and is always sent.
    """
    body = json.loads(path.read_bytes())
    model_id = str(json.loads((path.parent / "meta.json").read_bytes())["model"])
    losses = Losses("bedrock")
    encoded = encode(read_request(body, provider="bedrock", model_id=model_id), losses)
    if "anthropic_version" in body:
        assert normalised(encoded) == normalised(body)
    elif "inputText" in body:
        assert encoded == body
    else:
        assert encoded == {"schemaVersion": "messages-v1", **body}
    assert losses.found == []
