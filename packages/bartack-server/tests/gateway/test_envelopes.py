"""Thinking through a client of another format: the upstream gets its own data back, and never another's."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from bartack import MemoryStore, ScriptedModel
from bartack.models.model import StreamingModel
from bartack.nouns.deltas import Delta, Done, Start, TextDelta, ThinkingDelta
from bartack.nouns.parts import Thinking
from bartack.testing import fault_server
from bartack_server.gateway.envelopes import Envelopes, envelope_key
from tests.gateway.bodies import request
from tests.gateway.serving import answering, serving, upstream, whole_answer

MESSAGES, RESPONSES, GEMINI = "anthropic-messages", "openai-responses", "gemini-generate"


def answer(number: int) -> list[Delta]:
    """An answer with signed thinking, in pieces."""
    signature = {"signature": f"s{number}+/=é"}
    return [
        Start("m", f"r{number}", provider="scripted"),
        ThinkingDelta("Hm"),
        ThinkingDelta("m.", continuation=signature),
        TextDelta(f"Answer {number}."),
        Done("stop"),
    ]


def turn_of(format: str, data: bytes) -> list[Any]:
    """The answer as the client sends it back."""
    body = json.loads(data)
    match format:
        case "anthropic-messages":
            return [{"role": "assistant", "content": body["content"]}]
        case "openai-responses":
            return list(body["output"])
    return [body["candidates"][0]["content"]]


def asked(format: str, history: list[Any], prompt: str) -> tuple[str, dict[str, Any]]:
    path, body = request(format, stream=False)
    name = {MESSAGES: "messages", RESPONSES: "input", GEMINI: "contents"}[format]
    question = (
        {"role": "user", "parts": [{"text": prompt}]} if format == GEMINI else {"role": "user", "content": prompt}
    )
    history.append(question)
    return path, {**body, name: history}


def signatures(messages: Any) -> Iterator[tuple[str, Any]]:
    for message in messages:
        for part in message.parts:
            if isinstance(part, Thinking):
                yield part.text, None if part.continuation is None else part.continuation.data


@pytest.mark.parametrize("format", [MESSAGES, RESPONSES, GEMINI])
async def test_an_upstream_gets_its_own_signatures_back_after_many_turns_and_others_get_none(format: str) -> None:
    model, other = ScriptedModel([answer(number) for number in range(20)]), ScriptedModel(["Hi."], model_id="other")
    history: list[Any] = []
    async with serving({"m": [model], "other": [other]}) as gateway:
        for number in range(20):
            status, data, _ = await gateway.post(*asked(format, history, f"Question {number}"))
            assert status == 200, data
            history += turn_of(format, data)
        expected = [("Hmm.", {"signature": f"s{number}+/=é"}) for number in range(19)]
        assert list(signatures(model.calls[19].messages)) == expected
        path, body = asked(format, history, "And you?")
        path, body = (path.replace("/m:", "/other:"), body) if format == GEMINI else (path, {**body, "model": "other"})
        assert (await gateway.post(path, body))[0] == 200
        assert {data for _, data in signatures(other.calls[0].messages)} == {None}


def envelope_in(format: str, body: Any) -> str:
    """The envelope in a whole response."""
    match format:
        case "anthropic-messages":
            parts = [part["signature"] for part in body["content"] if "signature" in part]
        case "openai-responses":
            parts = [item["encrypted_content"] for item in body["output"] if "encrypted_content" in item]
        case _:
            all_parts = body["candidates"][0]["content"]["parts"]
            parts = [part["thoughtSignature"] for part in all_parts if "thoughtSignature" in part]
    return str(parts[0])


@pytest.mark.parametrize("format", [MESSAGES, RESPONSES, GEMINI])
async def test_a_stream_has_the_same_envelope_as_a_whole_response(format: str) -> None:
    async with serving({"m": [ScriptedModel([answer(1), answer(1)])]}) as gateway:
        _, whole, _ = await gateway.post(*request(format, stream=False))
        _, stream, _ = await gateway.post(*request(format))
    assert envelope_in(format, json.loads(whole)).encode() in stream


@pytest.mark.parametrize("change", ["bartack1.AAAA", "altered", "key"])
async def test_an_envelope_that_was_made_up_or_altered_is_not_restored(change: str) -> None:
    model = ScriptedModel([answer(1), "Hi."])
    async with serving({"m": [model]}) as gateway:
        _, data, _ = await gateway.post(*request(MESSAGES, stream=False))
        content = json.loads(data)["content"]
        sealed = content[0]["signature"]
        if change == "key":
            gateway.app._envelopes = Envelopes(await envelope_key(MemoryStore()))
        else:
            content[0]["signature"] = (
                change if change != "altered" else f"{sealed[:60]}{'A' if sealed[60] != 'A' else 'B'}{sealed[61:]}"
            )
        history = [{"role": "user", "content": "Look!"}, {"role": "assistant", "content": content}]
        assert (await gateway.post(*asked(MESSAGES, history, "Again")))[0] == 200
    assert list(signatures(model.calls[1].messages)) == [("Hmm.", None)]


async def test_a_request_with_an_envelope_does_not_pass_through_as_it_is() -> None:
    async with fault_server(answering(MESSAGES, whole_answer(MESSAGES))) as server:
        models: dict[str, list[str | StreamingModel]] = {
            "m": [ScriptedModel([answer(1)])],
            "claude": [upstream(MESSAGES, server.base_url)],
        }
        async with serving(models) as gateway:
            _, data, _ = await gateway.post(*request(MESSAGES, stream=False))
            history = [{"role": "user", "content": "Look!"}, *turn_of(MESSAGES, data)]
            path, body = asked(MESSAGES, history, "Again")
            assert (await gateway.post(path, {**body, "model": "claude", "stream": True}))[0] == 200
        assert b"bartack1." not in server.requests[0].body
        assert b"thinking" not in server.requests[0].body
