"""Responses of a real server in three formats, recorded by scripts/record_local.py and kept in this repository.

Each stream is read twice: by Bartack, cut at every byte, and here, from the JSON of its events.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bartack.formats import decoder
from bartack.models.http_errors import error_from_response
from bartack.nouns.deltas import Delta, Done, Start, Usage
from bartack.nouns.errors import ErrorCode
from tests.recordings.agreement import assembler_of, decoded
from tests.recordings.plain import sse_events

OWN = Path(__file__).with_name("own")
STREAMS = sorted(OWN.glob("*/*.response.sse"))
REFUSALS = sorted(OWN.glob("*/*.response.[45]*.json"))


class Content(NamedTuple):
    """The content of a stream. Usage is input and output; a call is its id, its name and its argument text."""

    text: str
    calls: list[tuple[str, str, str]]
    finish: str
    usage: tuple[int, int] | None


# -- reading, from the JSON alone


def read_chat(events: list[dict[str, Any]]) -> Content:
    choices = [event["choices"][0] for event in events if event["choices"]]
    calls: dict[int, list[str]] = {}
    for piece in (piece for choice in choices for piece in choice["delta"].get("tool_calls", [])):
        call = calls.setdefault(piece["index"], [piece.get("id", ""), piece["function"].get("name", ""), ""])
        call[2] += piece["function"]["arguments"]
    usage = next((event["usage"] for event in events if "usage" in event), None)
    return Content(
        "".join(choice["delta"].get("content") or "" for choice in choices),
        [(call_id, name, text) for call_id, name, text in calls.values()],
        choices[-1]["finish_reason"],
        usage and (usage["prompt_tokens"], usage["completion_tokens"]),
    )


def read_messages(events: list[dict[str, Any]]) -> Content:
    usage = events[0]["message"]["usage"]
    ended = next(event for event in events if event["type"] == "message_delta")
    finish = {"end_turn": "stop", "max_tokens": "length", "tool_use": "tool_calls"}[ended["delta"]["stop_reason"]]
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert {delta["type"] for delta in deltas} == {"text_delta"}
    text = "".join(delta["text"] for delta in deltas)
    # This format counts cached tokens separately; the whole prompt is the sum.
    return Content(
        text, [], finish, (usage["input_tokens"] + usage["cache_read_input_tokens"], ended["usage"]["output_tokens"])
    )


def read_responses(events: list[dict[str, Any]]) -> Content:
    response = events[-1]["response"]
    assert (events[-1]["type"], response["status"]) == ("response.completed", "completed")
    items = response["output"]
    calls = [item for item in items if item["type"] == "function_call"]
    parts = [part for item in items if item["type"] == "message" for part in item["content"]]
    return Content(
        "".join(part["text"] for part in parts),
        [(call["call_id"], call["name"], call["arguments"]) for call in calls],
        "tool_calls" if calls else "stop",  # the server does not report the limit in this format
        (response["usage"]["input_tokens"], response["usage"]["output_tokens"]),
    )


READERS: dict[str, Callable[[list[dict[str, Any]]], Content]] = {
    "openai-chat": read_chat,
    "anthropic-messages": read_messages,
    "openai-responses": read_responses,
}


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name.partition('.')[0]}"


def content_of(deltas: list[Delta]) -> Content:
    assert isinstance(deltas[0], Start)
    done = deltas[-1]
    assert isinstance(done, Done)
    message = assembler_of(deltas).build_final_message()
    usage = next((delta for delta in reversed(deltas) if isinstance(delta, Usage)), None)
    return Content(
        message.text,
        [
            (call.tool_call_id, call.tool_name, call.raw_args_text or json.dumps(call.arguments))
            for call in message.tool_calls
        ],
        done.finish_reason,
        None if usage is None else (usage.input_tokens, usage.output_tokens),
    )


# -- the tests


@pytest.mark.parametrize("path", STREAMS, ids=name_of)
def test_a_stream_decodes_to_its_json_wherever_it_is_cut(path: Path) -> None:
    kind, body = path.parent.name, path.read_bytes()
    events = [json.loads(data) for _, data in sse_events(body) if data != "[DONE]"]
    expected = decoded(decoder(kind), body)
    assert content_of(expected) == READERS[kind](events)
    for cut in range(len(body) + 1):
        assert decoded(decoder(kind), body[:cut], body[cut:]) == expected, f"cut at {cut}"


@pytest.mark.parametrize("path", REFUSALS, ids=name_of)
def test_an_error_has_its_code_and_the_message_of_the_server(path: Path) -> None:
    body = path.read_bytes()
    status = int(path.name.split(".")[-2])
    failed = error_from_response(status, {}, body, received_at=datetime(2026, 1, 1, tzinfo=UTC))
    assert failed.error_code is (ErrorCode.INVALID_REQUEST if status == 400 else ErrorCode.SERVER_ERROR)
    assert json.loads(body)["error"]["message"] in failed.message


def test_a_call_that_was_cut_off_is_marked() -> None:
    body = (OWN / "openai-chat" / "cut_call.response.sse").read_bytes()
    message = assembler_of(decoded(decoder("openai-chat"), body)).build_final_message()
    (call,) = message.tool_calls
    assert message.meta is not None
    assert call.tool_call_id in (message.meta.bad_args or {})


def test_every_format_has_cases_and_every_answer_its_request() -> None:
    names = {name_of(path) for path in (*STREAMS, *REFUSALS)}
    assert {f"{kind}/{case}" for kind in READERS for case in ("text", "length", "refused")} <= names
    assert {f"openai-{kind}/tool_call" for kind in ("chat", "responses")} <= names
    assert {name_of(path) for path in OWN.glob("*/*.request.json")} == names
