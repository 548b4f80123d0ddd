"""A small HTTP server on the loopback address that sends exactly the bytes of a scenario, and fails as it does.

It uses asyncio streams, because web servers prevent the faults that are needed here.
"""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing, suppress

from msgspec import Struct

from bartack.testing.faults import Reset, Scenario, Stall

__all__ = ["FaultServer", "ReceivedRequest", "fault_server"]

_PHRASES = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 429: "Too Many Requests", 500: "Internal Server Error"}


class ReceivedRequest(Struct, frozen=True):
    """A request that the server received. Header names are in lower case."""

    target: str
    headers: Mapping[str, str]
    body: bytes


class FaultServer:
    """Plays the scenario for every request."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.requests: list[ReceivedRequest] = []
        self.connections = 0
        self.base_url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until the scenario or the client closes it."""
        self.connections += 1
        with closing(writer), suppress(ConnectionError, asyncio.IncompleteReadError):  # the client disconnected
            while await self._exchange(reader, writer):
                pass

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if value}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.requests.append(ReceivedRequest(first.split(" ")[1], headers, body))
        return await self._answer(writer)

    async def _answer(self, writer: asyncio.StreamWriter) -> bool:
        scenario = self.scenario
        headers = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked", **scenario.headers}
        lines = [f"HTTP/1.1 {scenario.status} {_PHRASES.get(scenario.status, 'Unknown')}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        for step in scenario.steps:
            match step:
                case bytes():
                    writer.write(b"%x\r\n%s\r\n" % (len(step), step))
                    await writer.drain()
                    await asyncio.sleep(0)
                case Stall(seconds=seconds):
                    await asyncio.sleep(seconds)
                case Reset():
                    await asyncio.sleep(0.05)  # let the data arrive first
                    _reset(writer)
                    return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST: a linger time of zero discards unsent data."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@asynccontextmanager
async def fault_server(scenario: Scenario) -> AsyncIterator[FaultServer]:
    """A server that runs inside the context."""
    fault = FaultServer(scenario)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(fault.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    fault.base_url = f"http://{host}:{port}"
    try:
        yield fault
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
