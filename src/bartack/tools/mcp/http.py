"""A server at a URL: streamable HTTP as a transport for the SDK, with headers, sign-in and a limit on bodies."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx2
from mcp.client.streamable_http import streamable_http_client

from bartack.tools.mcp.config import HttpServer, expanded, secrets_in
from bartack.tools.mcp.failure import NEEDS_SIGN_IN, ServerFailure

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams  # a private name for a pair of streams

__all__ = ["HttpTransport"]

_MAX_BODY_BYTES = 16_000_000  # of one answer that is not a stream; the SDK limits each event of a stream itself
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
            headers=self._headers, timeout=_TIMEOUT, auth=self._auth, event_hooks={"response": [self._check]}
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
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        if not is_stream and isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _LimitedBody(response.stream)


class _LimitedBody(httpx2.AsyncByteStream):
    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = _MAX_BODY_BYTES
        async for data in self._body:
            left -= len(data)
            if left < 0:
                raise ServerFailure(f"it sent an answer of more than {_MAX_BODY_BYTES:,} bytes")
            yield data

    async def aclose(self) -> None:
        await self._body.aclose()
