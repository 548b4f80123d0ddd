"""Recorded Responses streams, compared with the oracle, and recorded requests, read and encoded again."""

import json
from pathlib import Path
from typing import Any

import pytest

from bartack.formats.losses import Losses
from bartack.formats.openai_responses.decode import OpenAIResponses
from bartack.formats.openai_responses.encode import encode
from bartack.formats.openai_responses.read import read_request
from bartack.formats.repair import START_PROMPT
from bartack.nouns.config import ModelConfig
from bartack.nouns.deltas import Done, Failed
from bartack.nouns.requests import ModelRequest
from tests.recordings.agreement import FRAMINGS, assembler_of, assert_agrees, assert_cuts_change_nothing, decoded
from tests.recordings.oracle_openai import RESPONSES_APIS, read_stream, stream_error
from tests.recordings.plain import case_dirs, json_lines, load_case, sse_events

STREAMS = [case for api in RESPONSES_APIS for case in case_dirs(api) if load_case(case).http_status < 400]

REQUEST_APIS = (*RESPONSES_APIS, "openai-responses-requests", "openai-compat-responses-requests")
REQUESTS = [
    case
    for api in REQUEST_APIS
    for case in case_dirs(api)
    if (case / "request.json").exists() and json.loads((case / "meta.json").read_text("utf-8"))["http_status"] < 400
]


def name_of(case: Path) -> str:
    return f"{case.parent.name}/{case.name}"


every_stream = pytest.mark.parametrize("case_dir", STREAMS, ids=name_of)


def decoder_for(case_dir: Path) -> OpenAIResponses:
    return OpenAIResponses(framing=FRAMINGS[Path(load_case(case_dir).file).suffix])


@every_stream
def test_the_deltas_agree_with_the_oracle(case_dir: Path) -> None:
    deltas = decoded(decoder_for(case_dir), load_case(case_dir).body)
    assert_agrees(deltas, read_stream(case_dir.parent.name, case_dir))
    error = stream_error(case_dir)
    if error is not None:
        assert isinstance(deltas[-1], Failed)
        assert (deltas[-1].raw_code, deltas[-1].message) == error


@every_stream
def test_cutting_the_bytes_differently_changes_nothing(case_dir: Path) -> None:
    """D-3.11.1."""
    assert_cuts_change_nothing(lambda: decoder_for(case_dir), load_case(case_dir).body)


def finished_items(case_dir: Path) -> list[dict[str, Any]]:
    """The items of an answer, from their `done` events or, without such an event, from the response."""
    case = load_case(case_dir)
    lines = [data for _, data in sse_events(case.body)] if case.file.endswith(".sse") else json_lines(case.body)
    events = [json.loads(line) for line in lines if line != "[DONE]"]
    items: dict[int, dict[str, Any]] = {}
    for event in events:
        if event["type"] == "response.output_item.added":
            items.setdefault(event["output_index"], event["item"])
        elif event["type"] == "response.output_item.done":
            items[event["output_index"]] = event["item"]
        elif event["type"] == "response.completed":
            by_id = {item["id"]: item for item in event["response"]["output"]}
            items = {index: by_id.get(item["id"], item) if is_hollow(item) else item for index, item in items.items()}
    return [items[index] for index in sorted(items)]


def is_hollow(item: dict[str, Any]) -> bool:
    return item["type"] == "mcp_list_tools" and not item["tools"]


@every_stream
def test_an_answer_is_sent_back_as_the_items_it_was(case_dir: Path) -> None:
    """D-3.9.2. `store` is on, so that reasoning without a ciphertext is sent back as well."""
    deltas = decoded(decoder_for(case_dir), load_case(case_dir).body)
    if not isinstance(deltas[-1], Done):
        return
    config = ModelConfig("model", extra={"store": True})
    history = (assembler_of(deltas).build_final_message(),)
    body = encode(
        ModelRequest(messages=history, config=config, provider="openai-responses"), Losses("openai-responses")
    )
    expected = [normalised_item(item) for item in finished_items(case_dir)]
    while expected and expected[-1].get("type") == "reasoning":
        expected.pop()  # it led to nothing: the answer was cut off
    if not expected:  # a request must have content
        expected = [normalised_item({"role": "user", "content": START_PROMPT})]
    assert [normalised_item(item) for item in body["input"]] == expected


def normalised(body: dict[str, Any]) -> dict[str, Any]:
    """The body in a normal form, without differences that have no meaning to the server:

    null is absent, except inside items, tools and schemas; `store` and `strict` are true by default; `stream` is
    transport; an empty list of tools is none; a user's text is a list of one `input_text`, an assistant's
    one of `output_text`; `type: message` may be left out, and so may `detail: auto`, a list of no probabilities and a
    reasoning item's empty list of texts.
    """
    body = {key: value for key, value in body.items() if value is not None and key != "stream"}
    body.setdefault("store", True)
    input_items = body.get("input", [])
    if isinstance(input_items, str):
        input_items = [{"role": "user", "content": input_items}]
    body["input"] = [normalised_item(item) for item in input_items]
    body["tools"] = [
        {"strict": True, **tool} if tool["type"] == "function" and "parameters" in tool else tool
        for tool in body.get("tools", [])
    ]
    return body


def normalised_item(item: dict[str, Any]) -> dict[str, Any]:
    item = dict(item)
    if item.get("type") == "message":
        del item["type"]
    content = item.get("content")
    if isinstance(content, str):
        kind = "output_text" if item.get("role") == "assistant" else "input_text"
        content = item["content"] = [{"type": kind, "text": content}]
    if item.get("type") == "reasoning" and not content:
        item.pop("content", None)
    unsaid: list[tuple[str, Any]] = [("detail", "auto"), ("logprobs", [])]
    for field in ("content", "output"):
        if isinstance(item.get(field), list):
            item[field] = [
                {key: value for key, value in entry.items() if (key, value) not in unsaid} for entry in item[field]
            ]
    return item


@pytest.mark.parametrize("case_dir", REQUESTS, ids=name_of)
def test_a_recorded_request_round_trips(case_dir: Path) -> None:
    body = json.loads((case_dir / "request.json").read_text("utf-8"))
    losses = Losses("openai")
    again = encode(read_request(body, provider="openai"), losses)
    assert normalised(again) == normalised(body)
    assert losses.found == []
