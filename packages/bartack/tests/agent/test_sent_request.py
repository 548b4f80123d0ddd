"""The request of a model call can be shown later exactly as it was sent, whatever the run was given for itself."""

import json
from typing import Any

import msgspec
from msgspec.structs import replace

from bartack import Agent, AgentConfig, MemoryStore, connect, tool, user
from bartack.agent import Hooks
from bartack.models.provider import ProviderModel
from bartack.nouns.config import ContextConfig, LoopConfig
from bartack.nouns.entries import Custom, Entry, StreamFailed
from bartack.nouns.messages import Message
from bartack.nouns.requests import ModelRequest
from bartack.session.outline import REQUEST
from bartack.store.requests import redact
from tests.models.doubles import BytesClient

CHUNK = {"id": "r1", "object": "chat.completion.chunk", "model": "m", "created": 1}
KEPT = AgentConfig(
    loop=LoopConfig(keep_requests=True, max_retries=0), context=ContextConfig(max_tokens=3000, compaction=False)
)


def streamed(delta: dict[str, Any], finish: str) -> bytes:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return b"data: " + json.dumps({**CHUNK, "choices": choices}).encode() + b"\n\ndata: [DONE]\n\n"


ANSWER = streamed({"role": "assistant", "content": "[]"}, "stop")
CALL = streamed(
    {
        "role": "assistant",
        "tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
    },
    "tool_calls",
)


class Answers(BytesClient):
    """One answer after the other."""

    def __init__(self, *answers: bytes) -> None:
        super().__init__()
        self._answers = iter(answers)

    def send(self, request: Any) -> Any:
        self.chunks = [next(self._answers)]
        return super().send(request)


@tool
def look() -> str:
    """Look out of the window."""
    return "Rain. " * 2000


def model_on(client: BytesClient) -> ProviderModel:
    model = connect("openai-chat:gpt-5", api_key="not-a-real-key", client=client)
    assert isinstance(model, ProviderModel)
    return model


def calls_of(entries: tuple[Entry, ...]) -> list[int]:
    """The places of the answers and failed attempts."""
    is_call = [isinstance(e.fact, StreamFailed) or getattr(e.fact, "role", "") == "assistant" for e in entries]
    return [index for index, flag in enumerate(is_call) if flag]


async def assert_exact(agent: Agent[Any, Any], store: MemoryStore, client: BytesClient) -> None:
    """Every request that was sent is the one that the entries before its answer give."""
    entries = tuple(await store.load("s"))
    places = calls_of(entries)
    assert len(places) == len(client.requests)
    for place, http_request in zip(places, client.requests, strict=True):
        sent_request = await agent.request_after("s", entries[:place])
        assert sent_request.is_exact
        assert model_on(client).written(sent_request.request).body == http_request.body


async def test_a_run_keeps_what_its_requests_have_beside_the_session() -> None:
    client, store = Answers(CALL, ANSWER, ANSWER, b"data: {", ANSWER), MemoryStore()
    number = iter(range(100))
    agent = Agent(
        model_on(client),
        instructions=lambda _: f"This is run {next(number)}.",  # another text each time
        output_type=list[str],
        store=store,
        config=KEPT,
    )
    await agent.run("Will it rain?", session="s", tools=[look], model_settings={"temperature": 0.5})
    await agent.set_thinking_level("s", "high")
    await agent.run("And tomorrow?", session="s", instructions="Be brief.")
    await agent.run("Later?", session="s", metadata={"a": 1})  # this one fails
    await agent.run("Really?", session="s")
    later = Agent(model_on(BytesClient()), instructions="Something else.", store=store)
    await assert_exact(later, store, client)
    setups = [e for e in await store.load("s") if isinstance(e.fact, Custom) and e.fact.name == REQUEST]
    assert len(setups) == 4  # one for each run: nothing changed within them
    assert b'"temperature":0.5' in client.requests[0].body
    assert b"This is run 3." in client.requests[-1].body


async def test_what_a_hook_changes_is_kept_as_well() -> None:
    client, store = Answers(CALL, ANSWER), MemoryStore()

    async def shorter(request: ModelRequest) -> ModelRequest:
        return replace(request, messages=(Message("system", ()), user(f"Of {len(request.messages)}.")), tools=())

    agent = Agent(model_on(client), tools=[look], store=store, config=KEPT, hooks=Hooks(before_model=shorter))
    await agent.run("Will it rain?", session="s")
    await assert_exact(agent, store, client)
    assert [msgspec.json.decode(request.body)["messages"][-1]["content"] for request in client.requests] == [
        "Of 1.",
        "Of 3.",
    ]


async def test_without_keeping_it_the_request_is_that_of_the_agent_of_today() -> None:
    client, store = Answers(ANSWER), MemoryStore()
    await Agent(model_on(client), store=store, instructions="Be kind.").run("Hello", session="s")
    agent = Agent(model_on(client), store=store, instructions="Be brief.")
    entries = tuple(await store.load("s"))
    sent_request = await agent.request_after("s", entries[: calls_of(entries)[0]])
    assert not sent_request.is_exact
    assert [message.text for message in sent_request.request.messages] == ["Be brief.", "Hello"]
    assert (await agent.request_after("s", ())).request.messages[0].text == "Be brief."


async def test_a_redacted_message_is_not_in_the_request_that_a_hook_made() -> None:
    store = MemoryStore()

    async def same(request: ModelRequest) -> ModelRequest:
        return replace(request, messages=tuple(request.messages))

    agent = Agent(model_on(Answers(ANSWER)), store=store, config=KEPT, hooks=Hooks(before_model=same))
    await agent.run("The password is hunter2.", session="s")
    (prompt,) = [e for e in await store.load("s") if isinstance(e.fact, Message) and e.fact.role == "user"]
    await redact(store, "s", prompt.id)
    entries = tuple(await store.load("s"))
    assert "hunter2" not in repr(entries)
    assert not (await agent.request_after("s", entries[: calls_of(entries)[0]])).is_exact
