"""The HTTP client against a real server on the loopback address."""

import asyncio
import gzip
import random
import selectors
import socket
import ssl
import zlib
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import aiohttp
import pytest
from aiohttp.base_protocol import BaseProtocol
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from msgspec.structs import replace

from bartack.models import HttpRequest, Timeouts, connect
from bartack.models.http import HttpClient, _Waits
from bartack.nouns.deltas import Failed
from bartack.nouns.errors import ErrorCode, ModelError
from bartack.nouns.messages import user
from bartack.testing import ExpectedOutcome, Reset, Scenario, Stall, fault_server
from tests.models.doubles import KEY

ANSWER = Scenario(name="answer", format="-", steps=(b"one", b"two"), outcome=ExpectedOutcome(end="done"))


async def ask(client: HttpClient, base_url: str, path: str = "/v1?a=%3A") -> bytes:
    request = HttpRequest(url=base_url + path, headers={"Authorization": f"Bearer {KEY}"}, body=b"{}", secrets=(KEY,))
    async with client.send(request) as response:
        return b"".join([chunk async for chunk in response.chunks])


async def failure(
    scenario: Scenario, timeouts: Timeouts | None = None, *, max_response_bytes: int = 1 << 20
) -> ModelError:
    client = HttpClient(timeouts=timeouts, max_response_bytes=max_response_bytes)
    async with fault_server(scenario) as server, client:
        with pytest.raises(ModelError) as failed:
            await ask(client, server.base_url)
    assert KEY not in str(failed.value)
    return failed.value


async def test_a_request_is_sent_unchanged() -> None:
    async with fault_server(ANSWER) as server, HttpClient() as client:
        assert await ask(client, server.base_url) == b"onetwo"
        (request,) = server.requests
    assert request.target == "/v1?a=%3A"
    assert request.body == b"{}"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["accept-encoding"] == "identity"


async def test_a_large_body_is_sent_without_a_warning() -> None:
    body = random.Random(1).randbytes(3_000_000)
    async with fault_server(ANSWER) as server, HttpClient() as client:
        request = HttpRequest(url=server.base_url + "/v1", headers={"Content-Type": "application/json"}, body=body)
        async with client.send(request) as response:
            assert b"".join([chunk async for chunk in response.chunks]) == b"onetwo"
        (received,) = server.requests
    assert received.body == body
    assert received.headers["content-length"] == "3000000"
    assert received.headers["content-type"] == "application/json"


async def test_connections_are_reused_even_if_the_end_is_not_read() -> None:
    async with fault_server(ANSWER) as server, HttpClient() as client:
        for _ in range(3):
            await ask(client, server.base_url)
        for _ in range(3):
            async with client.send(HttpRequest(url=server.base_url + "/")) as response:
                assert await anext(response.chunks)
            await asyncio.sleep(0.2)  # until the connection is free again
        assert server.connections == 1


async def test_an_unread_response_is_released() -> None:
    stalled = replace(ANSWER, steps=(b"one", Stall(600)))
    async with fault_server(stalled) as server, HttpClient() as client:
        async with asyncio.timeout(300):
            async with client.send(HttpRequest(url=server.base_url + "/")) as response:
                assert await anext(response.chunks) == b"one"


async def test_a_closed_client_can_be_used_again() -> None:
    async with fault_server(ANSWER) as server:
        client = HttpClient()
        await client.aclose()
        assert await ask(client, server.base_url) == b"onetwo"
        await client.aclose()
        assert await ask(client, server.base_url) == b"onetwo"
        await client.aclose()


def test_a_client_can_be_used_from_several_event_loops() -> None:
    client = HttpClient()

    async def once() -> bytes:
        async with fault_server(ANSWER) as server:
            return await ask(client, server.base_url)

    # The client is not closed: each loop closes its connections when it ends, or a warning would fail the test.
    assert [asyncio.run(once()) for _ in range(3)] == [b"onetwo"] * 3


async def test_a_reset_is_reported_as_connection_failed() -> None:
    error = await failure(replace(ANSWER, steps=(b"one", Reset())))
    assert error.code is ErrorCode.CONNECTION_FAILED
    assert error.message.startswith("127.0.0.1: ")


async def test_a_refused_connection_reports_the_host_and_no_secret() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        async with HttpClient() as client:
            with pytest.raises(ModelError) as failed:
                await ask(client, f"http://localhost:{port}", f"/v1?key={KEY}")
    error = failed.value
    assert error.code is ErrorCode.CONNECTION_FAILED
    assert error.retryable
    assert error.message.startswith("localhost: ")
    assert KEY not in str(error)
    assert error.__cause__ is None, "the cause would hold the whole request"


async def test_an_unknown_host_is_reported_as_connection_failed() -> None:
    async with HttpClient() as client:
        with pytest.raises(ModelError, match=r"no-such-host\.invalid") as failed:
            await ask(client, "http://no-such-host.invalid")
    assert failed.value.code is ErrorCode.CONNECTION_FAILED


def self_signed(folder: Path) -> ssl.SSLContext:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    today = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(today - timedelta(days=1))
        .not_valid_after(today + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "server.pem"
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(secret + certificate.public_bytes(Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


async def test_an_invalid_certificate_is_reported_as_that_and_not_retried(tmp_path: Path) -> None:
    accepted = 0

    def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal accepted
        accepted += 1
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=self_signed(tmp_path))
    port = server.sockets[0].getsockname()[1]
    async with server, connect("openai-chat:m", api_key=KEY, base_url=f"https://localhost:{port}/v1") as model:
        last = [delta.delta async for delta in model.stream([user("Hello")])][-1]
    assert isinstance(last, Failed)
    assert last.error_code is ErrorCode.CONNECTION_FAILED
    assert not last.retryable
    assert last.message == "localhost: the server's certificate could not be verified: self-signed certificate"
    assert accepted == 0


async def test_a_server_without_tls_is_reported_and_not_retried() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, HttpClient() as client:
        with pytest.raises(ModelError, match="TLS handshake failed before the server's certificate") as failed:
            await ask(client, f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert failed.value.code is ErrorCode.CONNECTION_FAILED
    assert not failed.value.retryable


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\nX-Token: " + b"hunter2!" * 2000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-Token hunter2!\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: hunter2!\r\n\r\n",
        b"HTTP/9.1 hunter2! OK\r\n\r\n",
    ],
    ids=["too-long", "no-colon", "content-length", "status-line"],
)
async def test_an_invalid_response_is_reported_without_its_headers(response: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n{}")
        writer.write(response)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, HttpClient() as client:
        with pytest.raises(ModelError, match="not valid HTTP") as failed:
            await ask(client, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert failed.value.code is ErrorCode.CONNECTION_FAILED
    assert "hunter2" not in str(failed.value)


async def test_silence_between_chunks_times_out() -> None:
    error = await failure(replace(ANSWER, steps=(b"one", Stall(5))), Timeouts(silence=0.05))
    assert error.code is ErrorCode.TIMEOUT
    assert "silence" in error.message


class VirtualTime(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer instead of waiting."""

    def __init__(self) -> None:
        selector = selectors.DefaultSelector()
        select = selector.select
        self._now = 0.0

        def jump(timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            self._now += timeout or 0
            return select(0)

        selector.select = jump  # type: ignore[method-assign]
        super().__init__(selector)

    def time(self) -> float:
        return self._now


@pytest.mark.parametrize(
    ("timeouts", "expected"),
    [
        (Timeouts(silence=300, total=None), (10, 2000 + 300, "silence")),
        (Timeouts(silence=300, total=900), (4, 900, "total")),
        (Timeouts(silence=300, total=None, first_byte=100), (0, 100, "first_byte")),
    ],
)
def test_one_timer_measures_each_wait_of_a_long_stream(timeouts: Timeouts, expected: tuple[int, float, str]) -> None:
    """Ten chunks, one every 200 seconds, then nothing."""

    async def read_all() -> tuple[int, float, str]:
        loop = asyncio.get_running_loop()
        content = aiohttp.StreamReader(connected_protocol(loop), 2**16, loop=loop)
        for number in range(1, 11):
            loop.call_at(200 * number, content.feed_data, b"chunk")
        count = 0
        try:
            async for _ in chunks_of(content, timeouts):
                count += 1
        except ModelError as error:
            return count, loop.time(), error.message.partition("time limit: ")[2].rstrip(").")
        return count, loop.time(), "end"

    with asyncio.Runner(loop_factory=VirtualTime) as runner:
        assert runner.run(read_all()) == expected


def test_a_reader_that_pauses_is_not_timed_out_by_its_own_pause() -> None:
    async def read_late() -> bytes:
        loop = asyncio.get_running_loop()
        content = aiohttp.StreamReader(connected_protocol(loop), 2**16, loop=loop)
        chunks = chunks_of(content, Timeouts(silence=10, total=None))
        content.feed_data(b"one")
        await anext(chunks)
        loop.call_later(5, content.feed_data, b"two")
        await anext(chunks)
        await asyncio.sleep(100)
        loop.call_later(5, content.feed_data, b"three")
        return await anext(chunks)

    with asyncio.Runner(loop_factory=VirtualTime) as runner:
        assert runner.run(read_late()) == b"three"


def chunks_of(content: aiohttp.StreamReader, timeouts: Timeouts) -> AsyncIterator[bytes]:
    response = cast(aiohttp.ClientResponse, SimpleNamespace(headers={}, content=content))
    request = HttpRequest(url="http://host")
    return HttpClient()._chunks(response, request, _Waits(timeouts, request))


def connected_protocol(loop: asyncio.AbstractEventLoop) -> BaseProtocol:
    protocol = BaseProtocol(loop)
    protocol.connection_made(asyncio.Transport())
    return protocol


async def test_the_first_byte_times_out_before_and_after_the_headers() -> None:
    error = await failure(replace(ANSWER, steps=(Stall(5),)), Timeouts(first_byte=0.05))
    assert "first_byte" in error.message


async def test_the_whole_exchange_times_out() -> None:
    drip = tuple(step for _ in range(100) for step in (b"x", Stall(0.02)))
    error = await failure(replace(ANSWER, steps=drip), Timeouts(total=0.1))
    assert error.code is ErrorCode.TIMEOUT
    assert "total" in error.message


async def test_connecting_times_out() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        async with HttpClient(timeouts=Timeouts(connect=0.05)) as client:
            blockers = []
            for _ in range(4):  # a listener with a full queue does not accept
                blocker = socket.socket()
                blocker.setblocking(False)
                blocker.connect_ex(("127.0.0.1", port))
                blockers.append(blocker)
            with pytest.raises(ModelError) as failed:
                await ask(client, f"http://127.0.0.1:{port}")
            for blocker in blockers:
                blocker.close()
    assert failed.value.code is ErrorCode.TIMEOUT
    assert "connect" in failed.value.message


async def test_without_time_limits_a_slow_response_arrives() -> None:
    slow = replace(ANSWER, steps=(b"one", Stall(0.1), b"two"))
    nothing = Timeouts(connect=None, first_byte=None, silence=None, total=None)
    async with fault_server(slow) as server, HttpClient(timeouts=nothing) as client:
        assert await ask(client, server.base_url) == b"onetwo"


async def test_a_response_has_a_size_limit() -> None:
    error = await failure(replace(ANSWER, steps=(b"x" * 600, b"x" * 600)), max_response_bytes=1000)
    assert error.code is ErrorCode.STREAM_TOO_LARGE


async def test_a_compressed_response_is_decompressed_before_its_size_is_checked() -> None:
    packed = gzip.compress(b"x" * 1_000_000)
    bomb = replace(ANSWER, headers={"Content-Encoding": "gzip"}, steps=(packed,))
    async with fault_server(bomb) as server, HttpClient() as client:
        assert await ask(client, server.base_url) == b"x" * 1_000_000
    assert (await failure(bomb, max_response_bytes=10_000)).code is ErrorCode.STREAM_TOO_LARGE


def gzip_bomb(unpacked: bytes, times: int) -> bytes:
    """The data, repeated, as gzip without its checksum. A full flush makes the blocks independent of each other."""
    packer = zlib.compressobj(level=9, wbits=16 + zlib.MAX_WBITS)
    head = packer.compress(unpacked) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + (packer.compress(unpacked) + packer.flush(zlib.Z_FULL_FLUSH)) * (times - 1)


async def test_a_compressed_response_that_expands_too_far_is_refused_before_it_is_unpacked() -> None:
    bomb = gzip_bomb(b": ping\n\n" * 131_072, 600)  # 600 MiB of valid events
    scenario = replace(ANSWER, headers={"Content-Encoding": "gzip"}, steps=(bomb,))
    async with fault_server(scenario) as server:
        async with HttpClient() as client, client.send(HttpRequest(url=server.base_url + "/")) as response:
            sizes = []
            with suppress(ModelError):
                async for chunk in response.chunks:
                    sizes.append(len(chunk))
        async with connect("openai-chat:m", api_key=KEY, base_url=server.base_url) as model:
            last = [delta.delta async for delta in model.stream([user("Hello")])][-1]
    assert max(sizes) <= 64 * 1024
    assert sum(sizes) <= 1024 * 1024
    assert isinstance(last, Failed)
    assert last.error_code is ErrorCode.STREAM_TOO_LARGE
    assert not last.retryable
    assert "expands more than 200 times" in last.message


async def test_other_tasks_run_while_a_response_is_unpacked_so_that_it_can_be_cancelled() -> None:
    noisy = random.Random(1).randbytes(10_000) * 100  # expands about 50 times, which is allowed
    scenario = replace(ANSWER, headers={"Content-Encoding": "gzip"}, steps=(gzip_bomb(noisy, 64),))
    has_begun = asyncio.Event()
    sizes: list[int] = []

    async def read() -> None:
        async with client.send(HttpRequest(url=server.base_url + "/")) as response:
            async for chunk in response.chunks:
                sizes.append(len(chunk))
                has_begun.set()

    async with fault_server(scenario) as server, HttpClient() as client:
        reading = asyncio.create_task(read())
        await has_begun.wait()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
    assert max(sizes) <= 64 * 1024
    assert len(sizes) < 10, "of about 1,000"


async def test_a_response_can_time_out_while_it_is_unpacked() -> None:
    noisy = random.Random(1).randbytes(10_000) * 100
    scenario = replace(ANSWER, headers={"Content-Encoding": "gzip"}, steps=(gzip_bomb(noisy, 64),))
    error = await failure(scenario, Timeouts(total=0.05), max_response_bytes=1 << 30)
    assert error.code is ErrorCode.TIMEOUT


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("GZIP", gzip.compress(b"onetwo")),
        ("x-gzip", gzip.compress(b"onetwo") + b"what follows is ignored"),
        ("deflate", zlib.compress(b"onetwo")),
        ("deflate", zlib.compress(b"onetwo", wbits=-15)),
        ("identity", b"onetwo"),
    ],
    ids=["gzip", "trailing-bytes", "zlib", "bare-deflate", "identity"],
)
async def test_gzip_and_deflate_are_understood_however_they_are_cut(encoding: str, packed: bytes) -> None:
    steps = tuple(packed[start : start + 1] for start in range(len(packed)))
    scenario = replace(ANSWER, headers={"Content-Encoding": encoding}, steps=steps)
    async with fault_server(scenario) as server, HttpClient() as client:
        assert await ask(client, server.base_url) == b"onetwo"


async def test_an_encoding_that_was_not_requested_is_refused_once() -> None:
    error = await failure(replace(ANSWER, headers={"Content-Encoding": "br"}))
    assert error.code is ErrorCode.STREAM_MALFORMED
    assert not error.retryable
    assert "unsupported encoding 'br'" in error.message


async def test_a_corrupt_compressed_response_is_reported_as_connection_failed() -> None:
    error = await failure(replace(ANSWER, headers={"Content-Encoding": "gzip"}))
    assert error.code is ErrorCode.CONNECTION_FAILED


async def test_a_redirect_is_not_followed() -> None:
    async with fault_server(ANSWER) as target:
        redirect = replace(ANSWER, status=307, headers={"Location": target.base_url})
        client = HttpClient()
        async with (
            fault_server(redirect) as server,
            client,
            client.send(HttpRequest(url=server.base_url + "/")) as response,
        ):
            assert response.status == 307
            assert response.headers["location"] == target.base_url
        assert target.requests == []


async def test_the_proxy_of_the_environment_is_used_with_its_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fault_server(ANSWER) as proxy, HttpClient() as client:
        address = proxy.base_url.removeprefix("http://")
        monkeypatch.setenv("http_proxy", f"http://us%40er:pass@{address}")
        monkeypatch.setenv("no_proxy", "127.0.0.2")
        assert await ask(client, "http://provider.example") == b"onetwo"
        (request,) = proxy.requests
        assert request.target == "http://provider.example/v1?a=%3A"
        assert request.headers["proxy-authorization"] == "Basic dXNAZXI6cGFzcw=="
        monkeypatch.setenv("http_proxy", address)
        await ask(client, "http://provider.example")
        assert "proxy-authorization" not in proxy.requests[1].headers


async def test_no_proxy_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    async with fault_server(ANSWER) as server, HttpClient() as client:
        assert await ask(client, server.base_url) == b"onetwo"


async def test_a_proxy_tunnel_sends_the_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    refuses = replace(ANSWER, status=407, headers={"Content-Length": "0"}, steps=())
    async with fault_server(refuses) as proxy, HttpClient() as client:
        monkeypatch.setenv("https_proxy", proxy.base_url.replace("http://", "http://user:pass@"))
        with pytest.raises(ModelError) as failed:
            await ask(client, "https://provider.example")
        assert proxy.requests[0].headers["proxy-authorization"] == "Basic dXNlcjpwYXNz"
        assert failed.value.code is ErrorCode.CONNECTION_FAILED
        assert "pass" not in failed.value.message


def test_the_repr_of_a_request_contains_neither_headers_nor_body() -> None:
    request = HttpRequest(url=f"https://host.example/?key={KEY}", headers={"x": KEY}, body=KEY.encode(), secrets=(KEY,))
    assert KEY not in repr(request)
    assert "host.example" in repr(request)
