"""Every recorded interaction, decoded, compared with the oracle and sent back; every recorded request, read and
encoded."""

import json
from pathlib import Path
from typing import Any

import pytest

from bartack.formats.gemini_interactions.decode import GeminiInteractions
from bartack.formats.gemini_interactions.encode import encode
from bartack.formats.gemini_interactions.read import read_request
from bartack.formats.losses import Losses
from bartack.nouns.config import ModelConfig
from bartack.nouns.messages import user
from bartack.nouns.requests import ModelRequest
from tests.recordings.agreement import FRAMINGS, assembler_of, assert_agrees, assert_cuts_change_nothing, decoded
from tests.recordings.oracle_others import read_stream
from tests.recordings.plain import case_dirs, json_lines, load_case, sse_events

Json = dict[str, Any]
STREAMS = [case for case in case_dirs("gemini-interactions") if load_case(case).http_status < 400]
REQUESTS = [path for case in case_dirs("gemini-interactions") if (path := case / "request.json").is_file()]


def decoder_for(case_dir: Path) -> GeminiInteractions:
    return GeminiInteractions(framing=FRAMINGS[Path(load_case(case_dir).file).suffix], provider="google")


@pytest.mark.parametrize("case_dir", STREAMS, ids=lambda path: path.name[-30:])
def test_decoding_agrees_with_the_oracle(case_dir: Path) -> None:
    deltas = decoded(decoder_for(case_dir), load_case(case_dir).body)
    assert_agrees(deltas, read_stream("gemini-interactions", case_dir))


@pytest.mark.parametrize("case_dir", STREAMS, ids=lambda path: path.name[-30:])
def test_cutting_the_bytes_differently_changes_nothing(case_dir: Path) -> None:
    assert_cuts_change_nothing(lambda: decoder_for(case_dir), load_case(case_dir).body)


@pytest.mark.parametrize("case_dir", STREAMS, ids=lambda path: path.name[-30:])
def test_an_answer_is_sent_back_step_by_step(case_dir: Path) -> None:
    """Every step with its signature, in order; empty signatures of function calls are omitted."""
    message = assembler_of(decoded(decoder_for(case_dir), load_case(case_dir).body)).build_final_message()
    losses = Losses("google")
    request = ModelRequest(messages=(user("hi"), message), config=ModelConfig("gemini-2.5-flash"), provider="google")
    assert encode(request, losses)["input"][1:] == expected_steps(case_dir)
    assert losses.found == []


def expected_steps(case_dir: Path) -> list[Json]:
    steps: dict[int, Json] = {}
    for event in events_of(case_dir):
        if event["event_type"] == "step.start":
            steps[event["index"]] = dict(event["step"])
        elif event["event_type"] == "step.delta":
            add_delta(steps[event["index"]], event["delta"])
    return list(steps.values())


def events_of(case_dir: Path) -> list[Json]:
    case = load_case(case_dir)
    if case.file == "response.sse":
        return [json.loads(data) for _, data in sse_events(case.body) if data != "[DONE]"]
    return [json.loads(line) for line in json_lines(case.body)]


def add_delta(step: Json, delta: Json) -> None:
    kind = delta["type"]
    if kind == "text":
        [content] = step.setdefault("content", [{"type": "text", "text": ""}])
        content["text"] += delta["text"]
    elif kind == "text_annotation_delta":
        step["content"][0].setdefault("annotations", []).extend(delta["annotations"])
    elif kind == "thought_summary":
        [summary] = step.setdefault("summary", [{"type": "text", "text": ""}])
        summary["text"] += delta["content"]["text"]
    elif kind == "thought_signature":
        step.update({"signature": delta["signature"]} if delta["signature"] else {})
    elif kind == "arguments_delta":
        step["arguments"] = json.loads(delta["arguments"])
        step.pop("signature", None)
    else:
        step.update({key: value for key, value in delta.items() if key != "type"})


@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: path.parent.name[-30:])
def test_a_recorded_request_survives_a_round_trip(path: Path) -> None:
    """Encoding what was read gives the recorded body again; a string or contents are short for one `user_input`."""
    body = json.loads(path.read_bytes())
    losses = Losses("google")
    encoded = encode(read_request(body, provider="google"), losses)
    recorded = body["input"]
    content = [{"type": "text", "text": recorded}] if isinstance(recorded, str) else recorded
    assert encoded == {**body, "input": [{"type": "user_input", "content": content}]}
    assert losses.found == []
