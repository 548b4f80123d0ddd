"""Every recorded Chat Completions stream, decoded and compared with the oracle; every request, read and encoded."""

import json
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from bartack.formats.losses import Losses
from bartack.formats.openai_chat.decode import OpenAIChat
from bartack.formats.openai_chat.encode import encode
from bartack.formats.openai_chat.read import read_request
from bartack.nouns.config import ModelConfig
from bartack.nouns.deltas import Failed
from bartack.nouns.errors import PartValidationError
from bartack.nouns.requests import ModelRequest
from tests.recordings.agreement import FRAMINGS, assembler_of, assert_agrees, assert_cuts_change_nothing, decoded
from tests.recordings.oracle_openai import CHAT_APIS, read_stream, stream_error
from tests.recordings.plain import PlainReading, case_dirs, load_case

STREAMS = [case for api in CHAT_APIS for case in case_dirs(api) if load_case(case).http_status < 400]


def name_of(case: Path) -> str:
    return f"{case.parent.name}/{case.name}"


every_stream = pytest.mark.parametrize("case_dir", STREAMS, ids=name_of)


def decoder_for(case_dir: Path) -> OpenAIChat:
    return OpenAIChat(framing=FRAMINGS[Path(load_case(case_dir).file).suffix])


def with_local_ids(reading: PlainReading) -> PlainReading:
    """D-3.8.1: if the provider sent no id, the decoder creates one."""
    numbers = count(1)
    calls = [replace(call, provider_id=call.provider_id or f"local-{next(numbers)}") for call in reading.calls]
    return replace(reading, calls=calls)


@every_stream
def test_the_deltas_agree_with_the_oracle(case_dir: Path) -> None:
    deltas = decoded(decoder_for(case_dir), load_case(case_dir).body)
    assert_agrees(deltas, with_local_ids(read_stream(case_dir.parent.name, case_dir)))
    error = stream_error(case_dir)
    if error is not None:
        assert isinstance(deltas[-1], Failed)
        assert (deltas[-1].raw_code, deltas[-1].message) == error


@every_stream
def test_cutting_the_bytes_differently_changes_nothing(case_dir: Path) -> None:
    """D-3.11.1."""
    assert_cuts_change_nothing(lambda: decoder_for(case_dir), load_case(case_dir).body)


# -- requests

REQUESTS = [
    case
    for api in CHAT_APIS
    for folder in (api, f"{api}-requests")
    for case in case_dirs(folder)
    if (case / "request.json").is_file()
]


def provider_of(case: Path) -> str:
    return case.parent.name.removesuffix("-requests").removesuffix("-chat")


@pytest.mark.parametrize("case_dir", REQUESTS, ids=name_of)
def test_a_recorded_request_round_trips(case_dir: Path) -> None:
    """Equal after `normal`. Whether a request streams is read by `request_facts`."""
    body = json.loads((case_dir / "request.json").read_text("utf-8"))
    provider = provider_of(case_dir)
    if body.get("n") == 2:
        with pytest.raises(PartValidationError, match="several answers"):
            read_request(body, provider=provider)
        return
    losses = Losses(provider)
    again = encode(read_request(body, provider=provider), losses)
    drop_made_ids(again, body)
    assert normal(again) == normal(body)
    assert losses.found == []


def drop_made_ids(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Missing ids are generated; a result without a call id gets that of the call it answers."""
    for our_message, their_message in zip(ours["messages"], theirs["messages"], strict=True):
        if "tool_call_id" not in their_message:
            our_message.pop("tool_call_id", None)
        for made_call, given_call in zip(
            our_message.get("tool_calls", []), their_message.get("tool_calls") or [], strict=True
        ):
            if "id" not in given_call:
                del made_call["id"]


def normal(body: dict[str, Any]) -> dict[str, Any]:
    """The request in a normal form, without differences that have no meaning.

    A null is the same as an absent key, and so is one answer. `max_tokens` is the older name of
    `max_completion_tokens`, "any" is Mistral's word for "required". A tool without a type is a function; a tool choice
    without tools has no effect. One stop sequence is a list of one.
    """
    body = {key: value for key, value in body.items() if value is not None and key not in ("stream", "stream_options")}
    if body.get("n") == 1:
        del body["n"]
    if "max_completion_tokens" in body:
        body["max_tokens"] = body.pop("max_completion_tokens")
    if body.get("tool_choice") == "any":
        body["tool_choice"] = "required"
    if isinstance(body.get("stop"), str):
        body["stop"] = [body["stop"]]
    tools = [{"type": "function", **tool} for tool in body.pop("tools", [])]
    if tools:
        body["tools"] = tools
    else:
        body.pop("tool_choice", None)
        body.pop("parallel_tool_calls", None)
    body["messages"] = [normal_message(message) for message in body["messages"]]
    return body


def normal_message(message: dict[str, Any]) -> dict[str, Any]:
    """The message in a normal form, without differences that have no meaning.

    A text is a list of one text, and several texts are one answer; missing content, an empty text and an empty list are
    the same. Arguments are compared as JSON.
    """
    message = {key: value for key, value in message.items() if value is not None}
    content = message.pop("content", None)
    pieces = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    pieces = [{key: value for key, value in piece.items() if value is not None} for piece in pieces]
    if message["role"] == "assistant" and all(piece.keys() == {"type", "text"} for piece in pieces):
        pieces = [{"type": "text", "text": "".join(piece["text"] for piece in pieces)}]
    message["content"] = [piece for piece in pieces if piece != {"type": "text", "text": ""}]
    calls = [normal_call(call) for call in message.pop("tool_calls", [])]
    if calls:
        message["tool_calls"] = calls
    return message


def normal_call(call: dict[str, Any]) -> dict[str, Any]:
    function = {**call["function"], "arguments": json.loads(call["function"]["arguments"] or "{}")}
    return {**call, "function": function}


def test_continuation_data_is_sent_back() -> None:
    """D-3.9: signatures and ciphertexts, byte for byte, only to the provider they came from."""
    checked = 0
    for case_dir in STREAMS:
        if needed := read_stream(case_dir.parent.name, case_dir).continuation:
            checked += 1
            check_continuation(case_dir, needed)
    assert checked or not STREAMS


def check_continuation(case_dir: Path, needed: list[str]) -> None:
    provider = provider_of(case_dir)
    decoder = OpenAIChat(framing=FRAMINGS[Path(load_case(case_dir).file).suffix], provider=provider)
    message = assembler_of(decoded(decoder, load_case(case_dir).body)).build_final_message()
    for receiver, goes_back in ((provider, True), ("another-provider", False)):
        request = ModelRequest(messages=(message,), config=ModelConfig("m"), provider=receiver)
        body = json.dumps(encode(request, Losses(receiver)))
        assert all((json.dumps(text) in body) == goes_back for text in needed), name_of(case_dir)
