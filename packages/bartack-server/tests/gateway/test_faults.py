"""Faults of an upstream, as every client sees them.

A client runs a call once its end has arrived, whatever follows. `ended_calls` therefore looks for the ends of calls in
the bytes that a client received, as the programs do, and not for what a decoder makes of the whole.
"""

import json
from typing import Any

import pytest

from bartack.formats import decoder
from bartack.nouns.deltas import Done, Failed
from bartack.testing import FAULT_FORMATS, ExpectedOutcome, Scenario, fault_server, scenarios
from bartack.testing.faults import EVENT_WRITERS
from tests.gateway.bodies import request
from tests.gateway.serving import serving, upstream

CLIENTS = ("anthropic-messages", "openai-chat", "openai-responses", "gemini-generate", "ollama-chat")


def events_in(data: bytes) -> list[dict[str, Any]]:
    """The events of a stream that are complete, of any framing."""
    lines = data.decode("utf-8", "replace").split("\n")[:-1]
    payloads = [line.removeprefix("data: ") for line in lines if line and not line.startswith(("event:", ":"))]
    events = []
    for payload in payloads:
        try:
            events.append(json.loads(payload))
        except ValueError:
            continue
    return events


def ended_calls(format: str, data: bytes) -> list[str]:
    """The names of the calls that a client of this format would run."""
    events = events_in(data)
    match format:
        case "anthropic-messages":
            names = {
                event["index"]: event["content_block"]["name"]
                for event in events
                if event.get("type") == "content_block_start" and event["content_block"]["type"] == "tool_use"
            }
            stops = [event["index"] for event in events if event.get("type") == "content_block_stop"]
            return [names[index] for index in stops if index in names]
        case "openai-responses":
            items = [event["item"] for event in events if event.get("type") == "response.output_item.done"]
            return [item["name"] for item in items if item["type"] == "function_call"]
        case "openai-chat":
            return _complete_chat_calls(events)
        case "gemini-generate":
            parts = [
                part
                for event in events
                for part in event.get("candidates", [{}])[0].get("content", {}).get("parts", ())
            ]
            return [part["functionCall"]["name"] for part in parts if "functionCall" in part]
    return [call["function"]["name"] for event in events for call in event.get("message", {}).get("tool_calls", ())]


def _complete_chat_calls(events: list[dict[str, Any]]) -> list[str]:
    """opencode runs a call as soon as its arguments are complete JSON."""
    names: dict[int, str] = {}
    texts: dict[int, str] = {}
    for event in events:
        for piece in (event.get("choices") or [{}])[0].get("delta", {}).get("tool_calls", ()):
            function = piece.get("function", {})
            names.setdefault(piece["index"], function.get("name", ""))
            texts[piece["index"]] = texts.get(piece["index"], "") + function.get("arguments", "")
    complete = []
    for index, text in texts.items():
        try:
            json.loads(text)
        except ValueError:
            continue
        complete.append(names[index])
    return complete


async def received(format: str, status: int, data: bytes) -> Any:
    """The end of an answer, as the decoder of the client's format sees it."""
    if status != 200:
        return Failed
    own = decoder(format)
    deltas = [*own.receive_data(data), *own.receive_eof()]
    return type(deltas[-1])


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("scenario", [row for row in scenarios() if row.name != "silence"], ids=str)
async def test_a_fault_of_the_upstream_is_an_error_for_the_client_and_runs_no_call(
    scenario: Scenario, client: str
) -> None:
    async with (
        fault_server(scenario) as server,
        serving({"m": [upstream(scenario.format, server.base_url)]}) as gateway,
    ):
        status, data, headers = await gateway.post(*request(client))
    outcome = scenario.outcome
    assert await received(client, status, data) is (Done if outcome.end == "done" else Failed), data
    if (
        not (outcome.end == "done" and outcome.finish_reason == "tool_calls")
        and "length limit after" not in scenario.name
    ):
        assert ended_calls(client, data) == []
    elif outcome.runnable and not (client == "openai-chat" and "same index" in scenario.name):  # its own bytes
        assert ended_calls(client, data)
    if outcome.retry_after_ms is not None:
        assert (status, headers["retry-after"]) == (429, "7")


def _whole_call(format: str) -> bytes:
    events = EVENT_WRITERS[format]
    body = events.start() + events.text("I look. ") + events.call(0, "call_1", "look", '{"city":{"name":"Paris"}}')
    return body + events.finish("tool_calls")


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("format", FAULT_FORMATS)
async def test_a_stream_that_is_cut_at_any_byte_ends_no_call(format: str, client: str) -> None:
    whole = _whole_call(format)
    finish = len(EVENT_WRITERS[format].finish("tool_calls"))
    # A client cannot tell a stream without the last line breaks from one that has them.
    cuts = [*range(0, len(whole) - finish, 13), *range(len(whole) - finish, len(whole) - 2)]
    scenario = Scenario(name="cut", format=format, steps=(whole,), outcome=ExpectedOutcome(end="error"))
    async with (
        fault_server(scenario) as server,
        serving({"m": [upstream(format, server.base_url)]}) as gateway,
    ):
        status, data, _ = await gateway.post(*request(client))
        assert (status, await received(client, status, data), ended_calls(client, data)) == (200, Done, ["look"])
        for cut in cuts:
            server.scenario = Scenario(
                name="cut",
                format=format,
                steps=(whole[: cut // 2], whole[cut // 2 : cut]),
                outcome=ExpectedOutcome(end="error"),
            )
            status, data, _ = await gateway.post(*request(client))
            end = await received(client, status, data)
            assert ended_calls(client, data) == [] or end is Done, (cut, whole[:cut][-80:], data[-300:])
            assert end is Failed or _is_complete(format, whole[:cut]), (cut, whole[:cut][-80:], data[-300:])


def _is_complete(format: str, data: bytes) -> bool:
    """Whether the upstream had finished: some formats say more after their terminal signal."""
    own = decoder(format)
    return isinstance([*own.receive_data(data), *own.receive_eof()][-1], Done)
