"""Clients that exhaust a server through its sockets: endless heads, unfinished requests, too many streams."""

import asyncio
import io
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Self

import pytest
from starlette.requests import HTTPConnection

from bartack import MemoryStore
from bartack_server.web import User, app
from bartack_server.web.connections import ConnectionLimits
from tests.web.agents import Gate, new_agent
from tests.web.serving import LIMIT_S, Client, served

GET = b"GET /api/sessions HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /api/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
LOGIN = b"POST /api/login HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nContent-Type: application/json\r\n"
PIECE = b"x" * 65_536
BUFFERS = 50_000_000  # bytes, far more than the kernel keeps for a connection


class Connection:
    """A socket of a client that writes what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, client: Client, source: str = "127.0.0.1") -> Self:
        """A connection to the server of this client, from this address."""
        port = int(client.url.rpartition(":")[2])
        return cls(*await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0)))

    async def send(self, data: bytes) -> bool:
        """Whether the server still accepts data."""
        try:
            self._writer.write(data)
            await self._writer.drain()
        except ConnectionError:
            return False
        return not self._writer.is_closing()

    async def flood(self) -> int:
        """How much the server accepts before it closes the connection."""
        size = 0
        while size < BUFFERS and await self.send(PIECE):
            size += len(PIECE)
        return size

    async def drip(self, data: bytes) -> None:
        """Send this again and again, until the server closes the connection."""
        async with asyncio.timeout(LIMIT_S):
            while await self.send(data):  # noqa: ASYNC110 - the server closes it
                await asyncio.sleep(0.05)

    async def status(self) -> int:
        """The status of the response; 0 if the server closes the connection instead."""
        with suppress(ConnectionError):
            line = await asyncio.wait_for(self._reader.readline(), LIMIT_S)
            return int(line.split()[1]) if line else 0
        return 0

    async def closed(self) -> None:
        """Wait until the server has closed the connection."""
        async with asyncio.timeout(LIMIT_S):
            with suppress(ConnectionError):
                while await self._reader.read(65_536):
                    pass

    def close(self) -> None:
        self._writer.transport.abort()


@asynccontextmanager
async def connected(client: Client, count: int, source: str = "127.0.0.1") -> AsyncIterator[list[Connection]]:
    """This many connections, from this address."""
    connections: list[Connection] = []
    try:
        for _ in range(count):
            connections.append(await Connection.open(client, source))
        yield connections
    finally:
        for connection in connections:
            connection.close()


@pytest.fixture
async def impatient(gate: Gate) -> AsyncIterator[Client]:
    """A client of a server that does not wait long."""
    async with served(app(new_agent(gate), store=MemoryStore()), limits=ConnectionLimits(head_s=1.0)) as http_client:
        yield http_client


async def test_an_endless_header_is_refused_early(client: Client) -> None:
    async with connected(client, 1) as [connection]:
        await connection.send(GET + b"X-Long: ")
        assert await connection.flood() < BUFFERS


@pytest.mark.parametrize(("size", "status"), [(60_000, 401), (70_000, 431)])
async def test_a_head_may_have_64_kib(client: Client, size: int, status: int) -> None:
    async with connected(client, 1) as [connection]:
        await connection.send(GET + b"X-Long: " + b"x" * size + b"\r\n\r\n")
        assert await connection.status() == status


@pytest.mark.parametrize("end", [b"0\r\nX-Trailer: ", b"5;extension="])
async def test_trailers_and_chunk_extensions_are_limited_like_headers(client: Client, end: bytes) -> None:
    async with connected(client, 1) as [connection]:
        token = f"Authorization: Bearer {client.token}\r\n".encode()
        await connection.send(POST + token + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n" + end)
        assert await connection.flood() < BUFFERS


async def test_a_large_body_is_not_mistaken_for_a_head(client: Client) -> None:
    body = json.dumps({"text": "x" * 500_000}).encode()
    headers = {"content-type": "application/json"}
    status, _, _ = await client.send("POST", "/api/sessions/s/runs", data=io.BytesIO(body), headers=headers)
    assert status == 202


async def test_a_head_that_does_not_arrive_is_refused(impatient: Client) -> None:
    async with connected(impatient, 3) as [silent, unfinished, dripping]:
        await unfinished.send(GET)
        await dripping.send(GET)
        await dripping.drip(b"X-A: b\r\n")
        assert {await connection.status() for connection in (silent, unfinished)} == {408}


async def test_a_second_request_has_no_more_time_than_the_first(impatient: Client) -> None:
    async with connected(impatient, 1) as [connection]:
        await connection.send(GET + b"\r\n")
        assert await connection.status() == 401
        await connection.send(GET)
        await connection.drip(b"X-A: b\r\n")
        await connection.closed()


async def test_a_body_that_nobody_reads_does_not_keep_the_connection_open(impatient: Client) -> None:
    async with connected(impatient, 1) as [connection]:
        await connection.send(POST + b"Content-Length: 1000000\r\n\r\n")
        assert await connection.status() == 401
        await connection.drip(b" ")
        await connection.closed()


async def test_a_login_that_never_ends_is_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bartack_server.web.endpoint._BODY_S", 1.0)
    async with connected(client, 1) as [connection]:
        await connection.send(LOGIN + b"Content-Length: 1000\r\n\r\n{")
        assert await connection.status() == 408


@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.2"])
async def test_a_thousand_unfinished_requests_do_not_harm_others(client: Client, source: str) -> None:
    if not can_use(source):
        pytest.skip(f"this machine has no address {source}")
    await client.post("/sessions/s/runs", text="hello")
    async with client.events("s"), connected(client, 1100, source) as connections:
        await asyncio.gather(*(connection.send(GET) for connection in connections))
        async with Client(client.url, client.token) as newcomer:
            assert (await newcomer.get("/sessions"))["items"]
        await asyncio.gather(*(connection.closed() for connection in connections[:600]))  # they have waited longest


def can_use(address: str) -> bool:
    """Whether a socket may have this address; on Linux, any of 127.0.0.0/8."""
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


async def test_a_connection_is_refused_if_all_others_are_in_use(gate: Gate) -> None:
    async with AsyncExitStack() as stack:
        limits = ConnectionLimits(total=3, per_address=2)
        client = await stack.enter_async_context(served(app(new_agent(gate), store=MemoryStore()), limits=limits))
        await client.post("/sessions/s/runs", text="hello")
        streams = [await stack.enter_async_context(client.events("s")) for _ in range(2)]
        assert streams
        [third] = await stack.enter_async_context(connected(client, 1))
        assert await third.status() == 503
        if can_use("127.0.0.2"):
            [elsewhere, too_many] = await stack.enter_async_context(connected(client, 2, "127.0.0.2"))
            await elsewhere.closed()  # it was waiting
            await too_many.send(GET + b"\r\n")
            assert await too_many.status() == 401


async def test_a_thousand_streams_of_one_user_do_not_harm_others(gate: Gate) -> None:
    def who(request: HTTPConnection) -> User | None:
        name = request.headers.get("x-user")
        return None if name is None else User(name)

    application = app(new_agent(gate), store=MemoryStore(), authorize=who)
    async with served(application) as client:
        await client.send("POST", "/api/sessions/s/runs", json={"text": "hello"}, headers={"x-user": "ann"})
        stream = b"GET /api/sessions/s/events HTTP/1.1\r\nHost: localhost\r\nX-User: bob\r\n\r\n"
        async with AsyncExitStack() as stack:
            statuses = []
            for _ in range(1000):
                [connection] = await stack.enter_async_context(connected(client, 1))
                await connection.send(stream)
                statuses.append(await connection.status())
            assert statuses == [200] * 300 + [429] * 700
            status, _, _ = await client.send("GET", "/api/sessions", headers={"x-user": "ann"})
            assert status == 200
        async with asyncio.timeout(LIMIT_S):
            while await _stream_status(client, stream) != 200:  # noqa: ASYNC110 - until it notices that they are gone
                await asyncio.sleep(0.05)


async def _stream_status(client: Client, request: bytes) -> int:
    async with connected(client, 1) as [connection]:
        await connection.send(request)
        return await connection.status()
