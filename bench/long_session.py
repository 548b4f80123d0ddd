"""The cost of a turn as a conversation grows: turn 1,000 against turn 10, for three formats.

A turn is a question, a tool call, its result and an answer, so two model calls. The first table has the processor time
of a whole agent turn over HTTP; the server is another process on 127.0.0.1. The second has the time to write the two
requests alone: repaired, encoded and as JSON, by a `RequestWriter` and in full. A figure is the median of 20 turns. The
turns of a short and of a long conversation alternate, so that other load on the machine affects both.

    python -m bench.long_session [turns]
"""

import asyncio
import re
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import cast

import msgspec

from bartack import AgentConfig, ContextConfig, Message, ToolCall, ToolResult, assistant, system, tool_message, user
from bartack.agent import Agent
from bartack.formats import ModelRequest, RequestWriter, encode, format_named
from bartack.models import connect
from bartack.nouns.config import CacheConfig, ModelConfig, ToolSpec
from bartack.nouns.requests import History
from bartack.store import MemoryStore
from bartack.tools import tool
from bench._measuring import server_process

TURNS = 1_000
SHOWN = 20  # turns of which the median is shown
MODELS = {
    "openai-chat": "openai-chat:gpt-5",
    "anthropic-messages": "anthropic:claude-sonnet-4-5",
    "openai-responses": "openai:gpt-5",
}
Times = tuple[float, float]  # an early and a late turn, in milliseconds
TEXT = "Some words about what was found, and what to do about it next. " * 4
PROMPT = "You look at places, one at a time, and say what you found there. " * 4
SPECS = tuple(ToolSpec(f"tool_{n}", {"type": "object", "properties": {"path": {"type": "string"}}}) for n in range(8))


@tool
async def look(place: int) -> str:
    """Look at a place."""
    return f"{place}: {TEXT}"


# -- over HTTP


class Answering(asyncio.Protocol):
    """Answers the requests of a connection in alternation with a call and with text, and does not read their bodies.

    A server that did more would compete with the client for the caches that both use.
    """

    def __init__(self) -> None:
        self._head = b""
        self._missing = 0  # bytes of the body
        self._count = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if not self._missing:
            self._head += data
            head, separator, body = self._head.partition(b"\r\n\r\n")
            if not separator:
                return
            length = re.search(rb"content-length: (\d+)", head.lower())
            assert length is not None, head
            self._missing, data = int(length[1]), body
        self._missing -= len(data)
        if not self._missing:
            self._transport.write(self._answer())
            self._head = b""

    def _answer(self) -> bytes:
        from bartack.testing.faults import EVENT_WRITERS  # noqa: PLC0415 - only the server needs it

        say = EVENT_WRITERS[self._head.split(b"/", 2)[1].decode()]
        number, self._count = self._count, self._count + 1
        if number % 2:
            body = say.start() + say.text(TEXT) + say.finish("stop")
        else:
            call = say.call(0, f"call_{number}", "look", f'{{"place": {number}}}')
            body = say.start() + call + say.finish("tool_calls")
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body


def serve(pipe: Connection) -> None:
    """Run the server, in a process of its own."""

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


async def agent_turns(name: str, port: int, count: int) -> Times:
    """The processor time of turns of an agent over HTTP."""
    async with connect(MODELS[name], api_key="none", base_url=f"http://127.0.0.1:{port}/{name}") as model:
        config = AgentConfig(context=ContextConfig(compaction=False, max_tokens=10**9))
        agent = Agent(model, tools=[look], instructions=PROMPT, store=MemoryStore(), config=config)

        async def take(session: str, number: int) -> float:
            began = time.process_time()
            result = await agent.run(f"Look at place {number}", session=session)
            assert result.output == TEXT, result
            return (time.process_time() - began) * 1000

        for number in range(count - SHOWN):
            await take("long", number)
        pairs = [(await take("short", number), await take("long", number)) for number in range(SHOWN)]
    early, late = zip(*pairs, strict=True)
    return statistics.median(early), statistics.median(late)


# -- encoding alone


class Conversation:
    """A conversation that grows by one turn at a time."""

    def __init__(self, name: str, turns: int) -> None:
        self._config = ModelConfig(MODELS[name].partition(":")[2], cache_config=CacheConfig())
        self._thread = object()
        self._history: list[Message] = []
        for number in range(turns):
            self._history += self._messages(number)

    @staticmethod
    def _messages(number: int) -> list[Message]:
        call_id = f"call{number:05}"
        return [
            user(f"Look at place {number}"),
            assistant("Looking.", ToolCall(call_id, "look", {"place": number})),
            tool_message(ToolResult(call_id, f"{number}: {TEXT}")),
            assistant(TEXT),
        ]

    def take(self, write: Callable[[ModelRequest], object]) -> float:
        """The processor time to write the two requests of the next turn."""
        messages, spent = self._messages(len(self._history) // 4), 0.0
        for end in (1, 3):
            history = History.of([system(PROMPT)], [*self._history, *messages[:end]], self._thread)
            request = ModelRequest(history, config=self._config, tools=SPECS)
            began = time.process_time()
            write(request)
            spent += time.process_time() - began
        self._history += messages
        return spent * 1000


def encoded_turns(name: str, count: int, write: Callable[[ModelRequest], object]) -> Times:
    """The processor time to write the requests of turns."""
    short, long = Conversation(name, 0), Conversation(name, count - SHOWN - 1)
    long.take(write)  # the first request of a conversation is encoded in full
    early, late = zip(*((short.take(write), long.take(write)) for _ in range(SHOWN)), strict=True)
    return statistics.median(early), statistics.median(late)


def show(name: str, times: Times) -> None:
    early, late = times
    print(f"{name:30} {early:8.2f} ms {late:8.2f} ms {late / early:6.2f} x")


def main(count: int) -> None:
    head = f"{'turn 10':>11} {f'turn {count:,}':>11}  ratio"
    with server_process(serve) as port:
        print(f"{'CPU of an agent turn over HTTP':30} {head}")
        for name in MODELS:
            show(name, asyncio.run(agent_turns(name, port, count)))
    print(f"{'CPU to encode its requests':30} {head}")
    for name in MODELS:
        show(name, encoded_turns(name, count, RequestWriter(format_named(name)).write))
        show("  in full", encoded_turns(name, count, partial(write_in_full, name)))


def write_in_full(name: str, request: ModelRequest) -> bytes:
    return msgspec.json.encode(encode(name, request).body)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else TURNS)
