"""Answers that the provider pauses: the run continues them, and ends if that would repeat the request."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bartack import Agent, Message, Meta, Text, Thinking, ToolCall, assistant, connect
from bartack.nouns.errors import ErrorCode
from bartack.nouns.parts import Continuation
from tests.agent.kit import SESSION, make
from tests.models.doubles import BytesClient


class StreamsClient(BytesClient):
    """Answers each request with the next stream, and the last one from then on."""

    def __init__(self, *streams: bytes) -> None:
        super().__init__()
        self.streams = streams

    async def _replayed(self) -> AsyncIterator[bytes]:
        yield self.streams[min(len(self.requests), len(self.streams)) - 1]


PAUSE = Meta(finish_reason="pause")
MODEL = "claude-opus-4-8"


def paused(*content: Any) -> Message:
    return assistant(*content, meta=PAUSE)


def stream_of(block: dict[str, Any], stop_reason: str) -> bytes:
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"model": MODEL, "id": "m"}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": stop_reason}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()


def anthropic_agent(*streams: bytes) -> tuple[Agent[Any, Any], StreamsClient]:
    client = StreamsClient(*streams)
    return Agent(connect(f"anthropic:{MODEL}", client=client, api_key="k")), client


async def test_a_compaction_alone_is_sent_back_and_the_answer_continues() -> None:
    compaction = {"type": "compaction", "content": "So far: nothing.", "encrypted_content": "x"}
    streams = stream_of(compaction, "compaction"), stream_of({"type": "text", "text": "Done."}, "end_turn")
    agent, client = anthropic_agent(*streams)
    assert (await agent.run("Go")).output == "Done."
    sent = [json.loads(request.body)["messages"] for request in client.requests]
    assert [len(messages) for messages in sent] == [1, 2]
    assert sent[1][1] == {"role": "assistant", "content": [compaction]}


async def test_a_pause_of_which_nothing_can_be_sent_back_ends_the_run() -> None:
    blank = {"type": "text", "text": " "}
    agent, client = anthropic_agent(stream_of(blank, "pause_turn"))
    result = await agent.run("Go")
    assert result.error is not None
    assert (result.status, result.error.error_code) == ("failed", ErrorCode.PROVIDER_ERROR)
    assert "repeat the request" in result.error.message
    assert len(client.requests) == 1


@pytest.mark.parametrize(
    ("answer", "calls"),
    [(paused(), 1), (paused("Working on it."), 2), (paused(Thinking("", continuation=Continuation("p", "m", {}))), 2)],
)
async def test_a_model_that_pauses_with_the_same_answer_ends_the_run(answer: Message, calls: int) -> None:
    agent, _, model = make([answer] * 9)
    result = await agent.run("Go", session=SESSION)
    assert result.error is not None
    assert result.error.error_code is ErrorCode.PROVIDER_ERROR
    assert len(model.calls) == calls


async def test_an_answer_that_grows_with_every_pause_is_continued() -> None:
    search = [ToolCall(f"s{number}", "web_search", {}, executed_by="provider") for number in range(3)]
    agent, _, _ = make([*(paused(call) for call in search), paused(Text("Almost.")), "Done."])
    assert (await agent.run("Go", session=SESSION)).output == "Done."
