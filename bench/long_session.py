"""The cost of a turn as a conversation grows: turn 1,000 against turn 10, for three formats.

A turn is a question, a tool call, its result and an answer, so two model calls. The first table has the processor time
of a whole agent turn over HTTP; the server is another process on 127.0.0.1. The second has the time to write the two
requests alone: repaired, encoded and as JSON, with and without what is known of the conversation. In both, each figure
is the median of 20 turns around the one named.

    python -m bench.long_session [turns]
"""

import asyncio
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import msgspec

from bartack import AgentConfig, ContextConfig, Message, ToolCall, ToolResult, assistant, system, tool_message, user
from bartack.agent import Agent
from bartack.formats import ModelRequest, RequestWriter, encode, format_named
from bartack.models import connect
from bartack.nouns.config import CacheConfig, ModelConfig, ToolSpec
from bartack.store import MemoryStore
from bartack.tools import tool

TURNS = 1_000
AROUND = 10  # turns before and after the one that is shown
MODELS = {
    "openai-chat": "openai-chat:gpt-5",
    "anthropic-messages": "anthropic:claude-sonnet-4-5",
    "openai-responses": "openai:gpt-5",
}
TEXT = "Some words about what was found, and what to do about it next. " * 4
PROMPT = "You look at places, one at a time, and say what you found there. " * 4
SPECS = tuple(ToolSpec(f"tool_{n}", {"type": "object", "properties": {"path": {"type": "string"}}}) for n in range(8))


@tool
async def look(place: int) -> str:
    """Look at a place."""
    return f"{place}: {TEXT}"


# -- over HTTP


def serve(pipe: Connection) -> None:
    """Answer every request of a turn in alternation with a call and with text."""
    from aiohttp import web  # noqa: PLC0415 - only the server needs it

    from bartack.testing.event_writers import EVENT_WRITERS  # noqa: PLC0415 - only the server needs it

    counts = dict.fromkeys(MODELS, 0)

    async def answer(request: web.Request) -> web.Response:
        name = request.match_info["format"]
        await request.read()
        say, number = EVENT_WRITERS[name], counts[name]
        counts[name] += 1
        if number % 2:
            body = say.start() + say.text(TEXT) + say.finish("stop")
        else:
            call = say.call(0, f"call_{number}", "look", f'{{"place": {number}}}')
            body = say.start() + call + say.finish("tool_calls")
        return web.Response(body=body, headers={"Content-Type": "text/event-stream"})

    async def main() -> None:
        app = web.Application(client_max_size=2**30)
        app.router.add_post("/{format}/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        pipe.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(main())


async def agent_turns(name: str, port: int, count: int) -> list[float]:
    """The processor time of each turn of an agent, in seconds."""
    taken = []
    async with connect(MODELS[name], api_key="none", base_url=f"http://127.0.0.1:{port}/{name}") as model:
        config = AgentConfig(context=ContextConfig(compaction=False, max_tokens=10**9))
        agent = Agent(model, tools=[look], instructions=PROMPT, store=MemoryStore(), config=config)
        for number in range(count):
            began = time.process_time()
            result = await agent.run(f"Look at place {number}", session="long")
            taken.append(time.process_time() - began)
            assert result.output == TEXT, result
    return taken


# -- encoding alone


def turn(number: int) -> list[Message]:
    """The messages of a turn."""
    call_id = f"call{number:05}"
    return [
        user(f"Look at place {number}"),
        assistant("Looking.", ToolCall(call_id, "look", {"place": number})),
        tool_message(ToolResult(call_id, f"{number}: {TEXT}")),
        assistant(TEXT),
    ]


def encoded_turns(name: str, count: int, *, in_full: bool, only: range | None = None) -> list[float]:
    """The processor time for the two requests of each turn, in seconds."""
    writer = RequestWriter(format_named(name))
    config = ModelConfig(MODELS[name].partition(":")[2], cache_config=CacheConfig())
    write: Callable[[ModelRequest], object] = writer.write
    if in_full:
        write = lambda request: msgspec.json.encode(encode(name, request).body)  # noqa: E731 - one of two
    history: list[Message] = []
    taken = []
    for number in range(count):
        messages = turn(number)
        spent = 0.0
        for end in (1, 3):
            request = ModelRequest((system(PROMPT), *history, *messages[:end]), config=config, tools=SPECS)
            if only is None or number in only:
                began = time.process_time()
                write(request)
                spent += time.process_time() - began
        taken.append(spent)
        history += messages
    return taken


def row(name: str, taken: list[float]) -> str:
    """Turn 10, the last turn, and their ratio."""
    early, late = (statistics.median(part) * 1000 for part in (taken[: 2 * AROUND], taken[-2 * AROUND :]))
    return f"{name:30} {early:8.2f} ms {late:8.2f} ms {late / early:6.2f} x"


def main(count: int) -> None:
    near, far = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(far,), daemon=True)
    server.start()
    try:
        port = near.recv()
        head = f"{'turn 10':>11} {f'turn {count:,}':>11}  ratio"
        print(f"{'CPU of an agent turn over HTTP':30} {head}")
        for name in MODELS:
            print(row(name, asyncio.run(agent_turns(name, port, count))))
    finally:
        server.terminate()
        server.join()
    print(f"{'CPU to encode its requests':30} {head}")
    ends = range(count - 2 * AROUND, count)
    for name in MODELS:
        print(row(name, encoded_turns(name, count, in_full=False)))
        early = encoded_turns(name, 2 * AROUND, in_full=True)
        print(row("  in full", early + encoded_turns(name, count, in_full=True, only=ends)))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else TURNS)
