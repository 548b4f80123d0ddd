"""A server at a URL: streamable HTTP as a transport for the SDK, with headers, sign-in and a limit on bodies."""

import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx2
from mcp.client.streamable_http import streamable_http_client

from bartack.tools.mcp.config import NEEDS_SIGN_IN, SESSION_EXPIRED, HttpServer, ServerFailure, expanded, secrets_in

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams  # a private name for a pair of streams

__all__ = ["HttpTransport"]

# The limit of an answer that is not a stream. The SDK limits each event of a stream itself.
_MAX_BODY_BYTES = 16_000_000
_PIECE_BYTES = 65_536
"""How much is unpacked at once."""
_SESSION_HEADER = "mcp-session-id"
_TIMEOUT = httpx2.Timeout(30.0, read=300.0)  # a server may hold a stream open without sending anything


class HttpTransport:
    """The connection to one URL. `transport` is entered once."""

    stderr = ""
    failure: str | None = None

    def __init__(self, config: HttpServer, auth: httpx2.Auth | None, on_end: Callable[[], None]) -> None:
        """`on_end` is called when the transport has ended."""
        self._headers = {name: expanded(value) for name, value in config.headers.items()}
        self.secrets = {**self._headers, **secrets_in([*config.headers.values(), config.url])}
        self._url = expanded(config.url)
        self._auth = auth
        self._on_end = on_end

    @asynccontextmanager
    async def transport(self) -> AsyncIterator["TransportStreams"]:
        """The streams of messages, until the context is left."""
        client = httpx2.AsyncClient(
            headers={"Accept-Encoding": "gzip", **self._headers},
            timeout=_TIMEOUT,
            auth=self._auth,
            event_hooks={"response": [self._check]},
        )
        try:
            async with client, streamable_http_client(self._url, http_client=client) as streams:
                yield streams
        finally:
            self._on_end()

    async def _check(self, response: httpx2.Response) -> None:
        """Refuse an answer that asks for credentials if there are none, and limit the size of any other."""
        if response.status_code == 401 and self._auth is None:
            raise ServerFailure(NEEDS_SIGN_IN)
        if response.status_code == 404 and _SESSION_HEADER in response.request.headers:
            self.failure = SESSION_EXPIRED
            self._on_end()
        if isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _unpacked(response, response.stream)
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        if not is_stream and isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _LimitedBody(response.stream)


def _unpacked(response: httpx2.Response, body: httpx2.AsyncByteStream) -> httpx2.AsyncByteStream:
    """The body without its compression. The client would unpack each piece as a whole, so that a few kilobytes could
    become gigabytes before anything is counted; this way, limits apply to what was unpacked."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("identity", ""):
        return body
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise ServerFailure(f"it sent an answer in an encoding that was not requested ({encoding!r})")
    del response.headers["content-encoding"]
    return _UnpackedBody(body)


class _UnpackedBody(httpx2.AsyncByteStream):
    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)  # gzip or zlib
        try:
            async for packed in self._body:
                while packed and not unpacker.eof:
                    yield unpacker.decompress(packed, _PIECE_BYTES)
                    packed = unpacker.unconsumed_tail
        except zlib.error:
            raise ServerFailure("it sent an answer that cannot be unpacked") from None
        if not unpacker.eof:
            raise ServerFailure("it sent an answer whose compressed data is cut off")

    async def aclose(self) -> None:
        await self._body.aclose()


class _LimitedBody(httpx2.AsyncByteStream):
    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        remaining = _MAX_BODY_BYTES
        async for data in self._body:
            remaining -= len(data)
            if remaining < 0:
                raise ServerFailure(f"it sent an answer of more than {_MAX_BODY_BYTES:,} bytes")
            yield data

    async def aclose(self) -> None:
        await self._body.aclose()
