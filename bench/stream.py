"""The CPU cost of one event of a provider's stream: a lower bound, the whole path from memory, and over loopback HTTP.

(a) floor: the body is split into events, each is decoded into a typed msgspec struct, and nothing is kept.
(b) Bartack from memory: decoder, guard, stamped deltas, assembler, final message. Target: at most 2.0 times (a).
(c) Bartack over HTTP: the same through `bartack.connect(...)` from a server in another process on 127.0.0.1.

Then (b) for 500 to 32,000 events, which must stay flat, and 200 streams at once in one process. At last the shape of a
live stream: one event per read, one read per millisecond, where waking up the event loop costs most. It is compared
with a protocol on a bare socket that discards what it receives (target: at most 1.4 times that), and with a task that
is woken for each read and discards it, which is the least that any asynchronous iterator costs. On the event loop of
asyncio, and on uvloop if that is installed.
Run it with `make bench` or `python -m bench.stream`. All numbers are microseconds of this process's CPU per event.
"""

import asyncio
import multiprocessing
import resource
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from multiprocessing.connection import Connection
from statistics import median
from typing import Any, TypeVar, cast

from bartack.app.event_loop import loop_factory
from bartack.formats import decoder
from bartack.formats.framing import Frame, ServerSentEvents
from bartack.nouns.messages import Message, user
from bartack.stream.assembler import MessageAssembler
from bartack.stream.contract import Contract
from bartack.stream.stamping import DeltaStamper
from bench._streams import CONTENTS, FORMATS, stream

EVENTS = 8000
CHUNK = 16 * 1024
ROUNDS = 7
LIVE_EVENTS = 1000
LIVE_ROUNDS = 5


def chunks(body: bytes) -> list[bytes]:
    return [body[start : start + CHUNK] for start in range(0, len(body), CHUNK)]


def cpu_per_event(work: Callable[[], object], events: int, rounds: int = ROUNDS) -> float:
    """Microseconds of CPU per event, the best of several rounds."""
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best / events * 1e6


def floor(name: str, pieces: list[bytes]) -> None:
    decode = type(decoder(FORMATS[name])).events.decode
    framing = ServerSentEvents()
    for piece in pieces:
        for frame in framing.feed(piece):
            assert type(frame) is Frame
            if frame.data != b"[DONE]":
                decode(frame.data)


def bartack_from_memory(name: str, pieces: list[bytes]) -> Message:
    reader, guard, assembler = decoder(FORMATS[name]), Contract("run"), MessageAssembler("run", guarded=True)
    admit, consume, stamp = guard.admit_bare, assembler.consume, DeltaStamper("run").stamp
    for piece in [*pieces, None]:
        now = datetime.now(UTC)
        allowed, violation = admit(reader.receive_eof() if piece is None else reader.receive_data(piece))
        assert violation is None
        for delta in stamp(allowed, now):
            consume(delta)
    return assembler.build_final_message()


# -- over HTTP


def serve(pipe: Connection) -> None:
    """Serve these streams; runs in a separate process so that its CPU is not counted."""
    from aiohttp import web  # noqa: PLC0415 - only the server needs it

    bodies: dict[str, list[bytes]] = {}

    async def answer(request: web.Request) -> web.StreamResponse:
        name, content, events = request.match_info["name"], request.match_info["content"], request.match_info["events"]
        key = f"{name}/{content}/{events}"
        if key not in bodies:
            bodies[key] = chunks(stream(name, content, int(events)))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for piece in bodies[key]:
            await response.write(piece)
        await response.write_eof()
        return response

    async def answer_live(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        loop = asyncio.get_running_loop()
        due = loop.time()
        for event in stream(request.match_info["name"], "text", LIVE_EVENTS).split(b"\n\n")[:-1]:
            await response.write(event + b"\n\n")
            due += 0.001
            await asyncio.sleep(max(0, due - loop.time()))
        with suppress(ConnectionError):  # a reader that has seen the last event need not wait for the end
            await response.write_eof()
        return response

    async def main() -> None:
        app = web.Application()
        app.router.add_post("/live/{name}/{rest:.*}", answer_live)
        app.router.add_post("/{name}/{content}/{events}/{rest:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        pipe.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(main())


VENDORS = {"messages": "anthropic", "chat": "openai-chat", "responses": "openai"}


class Discard(asyncio.Protocol):
    """Sends one request and counts the reads of its response."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.reads = 0
        self.loop = asyncio.get_running_loop()
        self.ended = self.loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.WriteTransport, transport).write(self._request)  # that of uvloop is not a subclass

    def data_received(self, data: bytes) -> None:
        self.reads += 1

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.set_result(None)


class Wake(Discard):
    """Wakes a task for each read."""

    waiter: "asyncio.Future[None] | None" = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._wake()

    def _wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    async def read_all(self) -> None:
        while not self.ended.done():
            self.waiter = self.loop.create_future()
            await self.waiter


P = TypeVar("P", bound=Discard)


async def received(port: int, name: str, protocol: Callable[[bytes], P]) -> P:
    """A protocol that receives one live stream."""
    request = f"POST /live/{name}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    loop = asyncio.get_running_loop()
    _, connected = await loop.create_connection(lambda: protocol(request.encode()), "127.0.0.1", port)
    return connected


async def live(port: int, name: str) -> tuple[list[float], int]:
    """Microseconds of CPU per event on a bare socket, with a task and through Bartack, and the number of reads."""
    import bartack.models  # noqa: PLC0415 - needs the extra http

    costs: list[list[float]] = []
    reads = 0
    base = f"http://127.0.0.1:{port}/live/{name}"
    async with bartack.models.connect(f"{VENDORS[name]}:m", base_url=base, api_key="none") as model:
        for _ in range(LIVE_ROUNDS + 1):
            times = [time.process_time()]
            bare = await received(port, name, Discard)
            await bare.ended
            reads = bare.reads
            times.append(time.process_time())
            await (await received(port, name, Wake)).read_all()
            times.append(time.process_time())
            assembler = MessageAssembler("run", guarded=True)
            async for delta in model.stream([user("go")]):
                assembler.consume(delta)
            assembler.build_final_message()
            times.append(time.process_time())
            costs.append([end - start for start, end in pairwise(times)])
    # The first round loads what is loaded once. Medians, because a round is cheaper if the server was late and several
    # events arrived in one read.
    return [median(column) / LIVE_EVENTS * 1e6 for column in zip(*costs[1:], strict=True)], reads


def print_live(port: int) -> None:
    loops: dict[str, Callable[[], asyncio.AbstractEventLoop] | None] = {"asyncio": None}
    if (uvloop := loop_factory()) is not None:
        loops["uvloop"] = uvloop
    for loop, factory in loops.items():
        print(f"\nlive, {loop:8} {'bare':>8} {'task':>8} {'bartack':>8} {'/bare':>6} {'/task':>6}")
        for name in FORMATS:
            with asyncio.Runner(loop_factory=factory) as runner:
                (bare, task, cost), reads = runner.run(live(port, name))
            ratios = f"{cost / bare:6.2f} {cost / task:6.2f}"
            print(f"{name:14} {bare:8.2f} {task:8.2f} {cost:8.2f} {ratios}   {LIVE_EVENTS} events, {reads} reads")


def over_http(port: int, name: str, content: str, events: int, at_once: int = 1) -> Callable[[], object]:
    import bartack.models  # noqa: PLC0415 - needs the extra http

    async def one(model: Any) -> Message:
        assembler = MessageAssembler()
        async for delta in model.stream([user("go")]):
            assembler.consume(delta)
        return assembler.build_final_message()

    async def main() -> None:
        base = f"http://127.0.0.1:{port}/{name}/{content}/{events}"
        async with bartack.models.connect(f"{VENDORS[name]}:m", base_url=base, api_key="none") as model:
            await asyncio.gather(*(one(model) for _ in range(at_once)))

    return lambda: asyncio.run(main())


def main() -> None:
    print(f"{'format':10} {'content':10} {'(a) floor':>10} {'(b) memory':>11} {'(c) http':>9} {'b/a':>6} {'c/a':>6}")
    near, far = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(far,), daemon=True)
    server.start()
    port = near.recv()
    try:
        for name in FORMATS:
            for content in CONTENTS:
                pieces = chunks(stream(name, content, EVENTS))
                a = cpu_per_event(partial(floor, name, pieces), EVENTS)
                b = cpu_per_event(partial(bartack_from_memory, name, pieces), EVENTS)
                c = cpu_per_event(over_http(port, name, content, EVENTS), EVENTS)
                print(f"{name:10} {content:10} {a:10.2f} {b:11.2f} {c:9.2f} {b / a:6.2f} {c / a:6.2f}")
        print("\n(b) by length of the stream, text")
        for name in FORMATS:
            costs = []
            for events in (500, 2000, 8000, 32000):
                pieces = chunks(stream(name, "text", events))
                costs.append(cpu_per_event(partial(bartack_from_memory, name, pieces), events))
            shown = "  ".join(f"{cost:.2f}" for cost in costs)
            print(f"{name:10} {shown}   largest / smallest: {max(costs) / min(costs):.2f}")
        print("\n200 streams of 2,000 events at once, chat text")
        cost = cpu_per_event(over_http(port, "chat", "text", 2000, at_once=200), 200 * 2000, rounds=1)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{cost:.2f} microseconds per event; this process has used at most {peak:.0f} MB")
        print_live(port)
    finally:
        server.terminate()
        server.join()


if __name__ == "__main__":
    main()
