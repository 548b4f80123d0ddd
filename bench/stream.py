"""The CPU cost of one event of a provider's stream: a lower bound, the whole path from memory, and over loopback HTTP.

(a) floor: the body is split into events, each is decoded into a typed msgspec struct, and nothing is kept.
(b) Bartack from memory: decoder, guard, stamped deltas, assembler, final message. Target: at most 2.0 times (a).
(c) Bartack over HTTP: the same through `bartack.connect(...)` from a server in another process on 127.0.0.1.

Then (b) for 500 to 32,000 events, which must stay flat, and 200 streams at once in one process. At last the shape of a
live stream: one event per read, about one read per millisecond, where waking up the process and the event loop costs
most. It is compared with three that discard what they receive: a protocol on a bare socket, to which the event loop
passes the bytes and no task is involved; a task that reads the socket through `asyncio.open_connection`, the usual way
(target: at most 1.4 times that); and a task that reads the same response with aiohttp, which Bartack uses. On the
event loop of asyncio, and on uvloop if that is installed.
Run it with `make bench` or `python -m bench.stream`. All numbers are microseconds of this process's CPU per event.
"""

import asyncio
import resource
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from multiprocessing.connection import Connection
from statistics import median
from typing import TYPE_CHECKING, Any, cast

from bartack.app.platform import loop_factory
from bartack.formats import decoder
from bartack.formats.framing import Frame, ServerSentEvents
from bartack.nouns.messages import Message, user
from bartack.stream.assembler import MessageAssembler
from bartack.stream.contract import Contract, DeltaStamper
from bench._measuring import best_cpu_us, server_process
from bench._streams import CONTENTS, FORMATS, stream

if TYPE_CHECKING:
    from aiohttp import ClientSession

    from bartack.models.provider import ProviderModel

EVENTS = 8000
CHUNK = 16 * 1024
ROUNDS = 7
LIVE_EVENTS = 1000
LIVE_ROUNDS = 5


def chunks(body: bytes) -> list[bytes]:
    return [body[start : start + CHUNK] for start in range(0, len(body), CHUNK)]


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
    """Serve these streams, in a process of its own."""
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
        for event in stream(request.match_info["name"], "text", LIVE_EVENTS).split(b"\n\n")[:-1]:
            await response.write(event + b"\n\n")
            await asyncio.sleep(0.001)  # without making up for delays: two events would arrive in one read
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
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.WriteTransport, transport).write(self._request)  # uvloop's is not a subclass

    def data_received(self, data: bytes) -> None:
        self.reads += 1

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.set_result(None)


class LiveReaders:
    """Four ways to read a live stream. Each returns the number of reads, the last one that of deltas."""

    def __init__(self, port: int, name: str, model: "ProviderModel", session: "ClientSession") -> None:
        self._port = port
        self._path = f"/live/{name}/"
        self._model = model
        self._session = session
        head = f"POST {self._path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        self._request = head.encode()

    async def protocol(self) -> int:
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_connection(lambda: Discard(self._request), "127.0.0.1", self._port)
        await protocol.ended
        return protocol.reads

    async def socket(self) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(self._request)
        reads = 0
        while await reader.read(CHUNK):
            reads += 1
        writer.close()
        return reads

    async def aiohttp(self) -> int:
        reads = 0
        async with self._session.post(f"http://127.0.0.1:{self._port}{self._path}") as response:
            while await response.content.readany():
                reads += 1
        return reads

    async def bartack(self) -> int:
        assembler = MessageAssembler("run", guarded=True)
        deltas = 0
        async for delta in self._model.stream([user("go")]):
            assembler.consume(delta)
            deltas += 1
        assembler.build_final_message()
        return deltas


async def live(port: int, name: str) -> tuple[list[float], list[int]]:
    """Microseconds of CPU per event of each reader, and the number of reads."""
    from aiohttp import ClientSession, ClientTimeout  # noqa: PLC0415 - needs the extra http

    import bartack.models  # noqa: PLC0415 - needs the extra http

    costs: list[list[float]] = []
    reads: list[int] = []
    base = f"http://127.0.0.1:{port}/live/{name}"
    async with (
        bartack.models.connect(f"{VENDORS[name]}:m", base_url=base, api_key="none") as model,
        ClientSession(timeout=ClientTimeout(total=None)) as session,
    ):
        readers = LiveReaders(port, name, model, session)
        for _ in range(LIVE_ROUNDS + 1):
            times, reads = [time.process_time()], []
            for read in (readers.protocol, readers.socket, readers.aiohttp, readers.bartack):
                reads.append(await read())
                times.append(time.process_time())
            costs.append([end - start for start, end in pairwise(times)])
    # The first round loads what is loaded once. Medians, because a round is cheaper if this process was late, so that
    # several events arrived in one read.
    return [median(column) / LIVE_EVENTS * 1e6 for column in zip(*costs[1:], strict=True)], reads


def print_live(port: int) -> None:
    loops: dict[str, Callable[[], asyncio.AbstractEventLoop] | None] = {"asyncio": None}
    if (uvloop := loop_factory()) is not None:
        loops["uvloop"] = uvloop
    for loop, factory in loops.items():
        columns = ("protocol", "socket", "aiohttp", "bartack", "/protocol", "/socket", "/aiohttp")
        print(f"\nlive, {loop:8}", *(f"{column:>9}" for column in columns))
        for name in FORMATS:
            with asyncio.Runner(loop_factory=factory) as runner:
                (bare, socket, client, cost), reads = runner.run(live(port, name))
            row = (bare, socket, client, cost, cost / bare, cost / socket, cost / client)
            print(f"{name:14}", *(f"{figure:9.2f}" for figure in row), "  reads:", *reads)


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
    with server_process(serve) as port:
        for name in FORMATS:
            for content in CONTENTS:
                pieces = chunks(stream(name, content, EVENTS))
                a = best_cpu_us(partial(floor, name, pieces), EVENTS, ROUNDS)
                b = best_cpu_us(partial(bartack_from_memory, name, pieces), EVENTS, ROUNDS)
                c = best_cpu_us(over_http(port, name, content, EVENTS), EVENTS, ROUNDS)
                print(f"{name:10} {content:10} {a:10.2f} {b:11.2f} {c:9.2f} {b / a:6.2f} {c / a:6.2f}")
        print("\n(b) by length of the stream, text")
        for name in FORMATS:
            costs = []
            for events in (500, 2000, 8000, 32000):
                pieces = chunks(stream(name, "text", events))
                costs.append(best_cpu_us(partial(bartack_from_memory, name, pieces), events, ROUNDS))
            figures = "  ".join(f"{cost:.2f}" for cost in costs)
            print(f"{name:10} {figures}   largest / smallest: {max(costs) / min(costs):.2f}")
        print("\n200 streams of 2,000 events at once, chat text")
        cost = best_cpu_us(over_http(port, "chat", "text", 2000, at_once=200), 200 * 2000, 1)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{cost:.2f} microseconds per event; this process has used at most {peak:.0f} MB")
        print_live(port)


if __name__ == "__main__":
    main()
