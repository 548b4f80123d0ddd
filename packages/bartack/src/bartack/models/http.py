"""`HttpClient`: the `ProviderClient` that uses the network, built on aiohttp (extra ``http``).

Connections are pooled. The client opens none before its first request, and can be used from several event loops: each
gets its own session, which is closed by `aclose` or at the latest when its loop shuts down.

Proxies come from the environment (``HTTPS_PROXY``, ``NO_PROXY`` and so on). Redirects are not followed, because
requests carry keys. Responses are requested uncompressed, because compression delays streaming. A compressed one is
decompressed in small steps (`decompressor_for`), and the size limit applies to the decompressed data.
"""

import asyncio
import os
import ssl
import zlib
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, suppress
from io import BytesIO
from typing import Any, Self, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass
from weakref import WeakKeyDictionary

from bartack.models.client import HttpRequest, HttpResponse, Timeouts, mask_secrets
from bartack.nouns.errors import ErrorCode, ModelError

__all__ = ["Decompressor", "HttpClient", "decompressor_for"]

try:
    import aiohttp
    from yarl import URL
except ModuleNotFoundError as missing:  # the plain message would not name the extra
    raise ModuleNotFoundError(
        f"{missing}. HTTP requires an extra. Run: pip install 'bartack[http]'", name=missing.name
    ) from None


# 100,000 tokens are about 40 MB of events in the most verbose format; images may be added to that.
_MAX_RESPONSE_BYTES = 256 * 1024 * 1024
_LARGE_BYTES = 1024 * 1024
_DRAIN_SECONDS = 0.05  # how long to wait, after the last event, for the end of the body that frees the connection

T = TypeVar("T")
_Session = tuple[AsyncGenerator[aiohttp.ClientSession, None], aiohttp.ClientSession]


class HttpClient:
    """Sends requests over the network."""

    def __init__(
        self,
        *,
        timeouts: Timeouts | None = None,
        max_connections: int = 100,
        max_response_bytes: int = _MAX_RESPONSE_BYTES,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """`ssl_context` replaces the system's trusted certificates."""
        self.timeouts = timeouts or Timeouts()
        self._max_connections = max_connections
        self._max_response_bytes = max_response_bytes
        self._ssl: ssl.SSLContext | bool = ssl_context or True
        self._sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, _Session] = WeakKeyDictionary()

    @asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncIterator[HttpResponse]:
        """Send a request and wait for the response headers. Raises `ModelError` for any network failure."""
        session = await self._session()
        waits = _Waits(self.timeouts, request)
        url = URL(request.url, encoded=True)
        try:
            async with await waits.on(session.request(request.method, url, **_options(request))) as response:
                yield HttpResponse(
                    status=response.status,
                    headers={name.lower(): value for name, value in response.headers.items()},
                    chunks=self._chunks(response, request, waits),
                )
                await _drain(response)
        finally:
            waits.end()

    async def aclose(self) -> None:
        """Close the connections of the running event loop. The client remains usable."""
        generator, _ = self._sessions.pop(asyncio.get_running_loop(), (None, None))
        if generator is not None:
            await generator.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _chunks(
        self, response: aiohttp.ClientResponse, request: HttpRequest, waits: "_Waits"
    ) -> AsyncIterator[bytes]:
        decompressor = decompressor_for(response.headers.get("Content-Encoding", ""), request.host)
        received = 0
        content = response.content
        while True:
            waits.begin_read(content)
            try:
                chunk = await content.readany()
            except (aiohttp.ClientError, OSError) as error:  # includes TimeoutError
                raise waits.read_error(error) from None
            waits.end_read()
            if not chunk:
                return
            for piece in (chunk,) if decompressor is None else decompressor.steps(chunk):
                received += len(piece)
                if received > self._max_response_bytes:
                    raise ModelError(
                        f"The response from {request.host} exceeds {self._max_response_bytes} bytes.",
                        code=ErrorCode.STREAM_TOO_LARGE,
                    )
                yield piece
                if decompressor is not None:
                    await waits.on(asyncio.sleep(0))  # one read can unpack to megabytes: other tasks take turns
            if decompressor is not None and decompressor.ended:
                return

    async def _session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if loop not in self._sessions:
            generator = self._open_session()
            self._sessions[loop] = (generator, await anext(generator))
        return self._sessions[loop][1]

    async def _open_session(self) -> AsyncGenerator[aiohttp.ClientSession, None]:
        # A generator, because an event loop closes its generators before it ends. A session that is closed after its
        # loop has ended logs a warning.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self.timeouts.connect)
        connector = aiohttp.TCPConnector(limit=self._max_connections, ssl=self._ssl)
        jar = aiohttp.DummyCookieJar()
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, cookie_jar=jar, auto_decompress=False
        ) as session:
            yield session


class _Waits:
    """Applies the time limits to one request, and turns every failure into `ModelError`.

    A stream is read about once per token. One timer therefore serves all reads: when it fires, it looks at how long
    the current read has been waiting, and is set again if that is not too long yet.
    """

    def __init__(self, timeouts: Timeouts, request: HttpRequest) -> None:
        self._timeouts = timeouts
        self._request = request
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._has_begun = False  # the first byte of the body has arrived
        self._timer: asyncio.TimerHandle | None = None
        self._reading: aiohttp.StreamReader | None = None  # while a read is waiting
        self._since = 0.0  # when that read began to wait
        self._expired = ""  # the limit that ended it

    async def on(self, awaitable: Awaitable[T]) -> T:
        """The awaited value. Raises `ModelError` after the time limit or a network failure."""
        self._since = self._loop.time()
        deadline, name = self._deadline()
        try:
            async with asyncio.timeout_at(deadline):
                return await awaitable
        except aiohttp.ConnectionTimeoutError:
            raise self._timeout_error("connect") from None
        except TimeoutError:
            raise self._timeout_error(name) from None
        except (aiohttp.ClientError, OSError) as error:
            raise _connection_error(self._request, error) from None

    def begin_read(self, content: aiohttp.StreamReader) -> None:
        """Apply the time limits to a read that waits from now on."""
        self._since = self._loop.time()
        self._reading = content
        if self._timer is None:
            self._set_timer()

    def end_read(self) -> None:
        """Note that the read has returned."""
        self._reading = None
        if not self._has_begun:
            self._has_begun = True
            self.end()  # another limit applies from now on; the next read sets the timer for it

    def read_error(self, error: Exception) -> ModelError:
        """The error for a read that failed."""
        return self._timeout_error(self._expired) if self._expired else _connection_error(self._request, error)

    def end(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        deadline, _ = self._deadline()
        if deadline is not None:
            self._timer = self._loop.call_at(deadline, self._check)

    def _check(self) -> None:
        self._timer = None
        deadline, name = self._deadline()
        if self._reading is None or deadline is None:
            return  # the next read sets the timer
        if self._loop.time() < deadline:
            self._set_timer()
        else:
            self._expired = name
            self._reading.set_exception(TimeoutError())

    def _deadline(self) -> tuple[float | None, str]:
        timeouts = self._timeouts
        limits = [(self._began, timeouts.total, "total")]
        if self._has_begun:
            limits.append((self._since, timeouts.silence, "silence"))
        else:
            limits.append((self._began, timeouts.first_byte, "first_byte"))
        return min(
            ((since + seconds, name) for since, seconds, name in limits if seconds is not None), default=(None, "")
        )

    def _timeout_error(self, name: str) -> ModelError:
        seconds = getattr(self._timeouts, name)
        return ModelError(
            f"{self._request.host}: {_TIMED_OUT[name]} within {seconds} s (time limit: {name}).", code=ErrorCode.TIMEOUT
        )


_TIMED_OUT = {
    "connect": "no connection",
    "first_byte": "no response",
    "silence": "no more data",
    "total": "the response was not complete",
}


def _connection_error(request: HttpRequest, error: Exception) -> ModelError:
    # The cause is not chained, because aiohttp's exceptions contain the whole request with its key.
    reason = mask_secrets(_reason(error), request.secrets)
    # A certificate does not become valid by asking again.
    retryable = False if isinstance(error, aiohttp.ClientSSLError) else None
    return ModelError(f"{request.host}: {reason}", code=ErrorCode.CONNECTION_FAILED, retryable=retryable)


def _reason(error: Exception) -> str:
    match error:
        case aiohttp.ClientConnectorCertificateError(certificate_error=cause):
            detail = getattr(cause, "verify_message", "") or str(cause)
            return f"the server's certificate could not be verified: {detail}"
        case aiohttp.ClientSSLError(os_error=cause):
            detail = getattr(cause, "reason", None) or str(cause)
            return f"the TLS handshake failed before the server's certificate was checked: {detail}"
        case aiohttp.ClientConnectorError(os_error=cause) if cause.strerror:
            # Its text repeats the host and aiohttp's settings. Errors of the resolver have no positive number.
            number = cause.errno or 0
            return f"no connection: {os.strerror(number) if number > 0 else cause.strerror}"
        case aiohttp.ClientHttpProxyError(status=status):
            return f"the proxy responded with HTTP {status}"
        case aiohttp.ClientResponseError(message=message):
            # After the first colon, the message quotes the header or line that is invalid.
            return f"the response is not valid HTTP: {message.partition(':')[0]}"
        case aiohttp.ClientPayloadError() if "not completed" in str(error):
            return "the connection was closed before the response was complete"
        case _:
            return str(error) or type(error).__name__


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Read the end of a body after its last event, so that the connection can be reused."""
    if response.content.is_eof():
        return
    with suppress(aiohttp.ClientError, OSError):  # the response is complete; the connection is closed instead
        async with asyncio.timeout(_DRAIN_SECONDS):
            await response.content.readany()


def _options(request: HttpRequest) -> dict[str, Any]:
    headers = {"Accept-Encoding": "identity", "User-Agent": "bartack", **request.headers}
    # As a file, a large body is sent in pieces. In one piece it would hold up the event loop; aiohttp warns about that.
    data = BytesIO(request.body) if len(request.body) > _LARGE_BYTES else request.body
    options: dict[str, Any] = {"data": data, "headers": headers, "allow_redirects": False}
    proxy, credentials = _proxy_for(request.url)
    if proxy is not None:
        options["proxy"] = proxy
    if credentials is not None and request.url.startswith("https:"):
        options["proxy_headers"] = {"Proxy-Authorization": credentials}
    elif credentials is not None:
        headers["Proxy-Authorization"] = credentials
    return options


def _proxy_for(url: str) -> tuple[str | None, str | None]:
    """The proxy for this URL and its credentials, from the environment.

    aiohttp's own `trust_env` would also read ~/.netrc, and then refuse requests that carry a key.
    """
    parts = urlsplit(url)
    address = getproxies().get(parts.scheme)
    if address is None or proxy_bypass(parts.hostname or ""):
        return None, None
    proxy = urlsplit(address if "://" in address else f"http://{address}")
    user, separator, host = proxy.netloc.rpartition("@")
    credentials = f"Basic {b64encode(unquote(user).encode()).decode()}" if separator else None
    return urlunsplit(proxy._replace(netloc=host)), credentials


# -- a compressed body -> its data, in bounded steps
#
# `HttpClient` asks for uncompressed responses. If a server or a proxy compresses anyway, gzip and deflate are
# supported. A small body can expand to gigabytes, so no step produces more than 64 KiB, and a body that expands
# too far is refused before it is unpacked.

_STEP_BYTES = 64 * 1024
# The most repetitive recorded stream is 89 times smaller when compressed (xai-chat/...object_streaming--0-c5ec8e).
# Deflate can reach 1,032 (zlib.net/zlib_tech.html).
_MAX_RATIO = 200
_FREE_BYTES = 1024 * 1024  # up to here, the ratio does not matter: a short, repetitive body is harmless


class Decompressor:
    """Unpacks one body of gzip or deflate."""

    def __init__(self, encoding: str, host: str) -> None:
        self._encoding = encoding
        self._host = host
        self._zlib: zlib._Decompress | None = None  # created with the first byte, which distinguishes the variants
        self._consumed = 0
        self._produced = 0

    @property
    def ended(self) -> bool:
        """Whether the compressed data is complete; what follows it means nothing."""
        return self._zlib is not None and self._zlib.eof

    def steps(self, data: bytes) -> Iterator[bytes]:
        """What these bytes complete, at most 64 KiB at a time. Raises `ModelError`."""
        if self._zlib is None:
            self._zlib = zlib.decompressobj(wbits=_window_bits(self._encoding, data))
        has_more = True  # a full step may have left output inside zlib
        while (data or has_more) and not self._zlib.eof:
            try:
                piece = self._zlib.decompress(data, _STEP_BYTES)
            except zlib.error as error:
                raise ModelError(
                    f"{self._host}: the response is not valid {self._encoding} ({error}).",
                    code=ErrorCode.CONNECTION_FAILED,
                ) from None
            self._consumed += len(data) - len(self._zlib.unconsumed_tail)
            data, has_more = self._zlib.unconsumed_tail, len(piece) == _STEP_BYTES
            self._produced += len(piece)
            if self._produced > max(_FREE_BYTES, self._consumed * _MAX_RATIO):
                raise ModelError(
                    f"{self._host}: the compressed response expands more than {_MAX_RATIO} times"
                    f" ({self._consumed} bytes to over {self._produced}), and was refused.",
                    code=ErrorCode.STREAM_TOO_LARGE,
                )
            if piece:
                yield piece


def decompressor_for(encoding: str, host: str) -> Decompressor | None:
    """The decompressor for the header Content-Encoding; None for an uncompressed body.

    Raises `ModelError` for any other encoding.
    """
    match encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip":
            return Decompressor("gzip", host)
        case "deflate":
            return Decompressor("deflate", host)
        case _:
            raise ModelError(
                f"{host}: the response has the unsupported encoding {encoding[:40]!r}, although none was requested."
                " Check for a proxy that compresses responses.",
                code=ErrorCode.STREAM_MALFORMED,
                retryable=False,
            )


def _window_bits(encoding: str, data: bytes) -> int:
    if encoding == "gzip":
        return 16 + zlib.MAX_WBITS
    # "deflate" means the zlib format (RFC 9110, 8.4.1.2); some servers send the bare data. The zlib format starts with
    # the method 8.
    return zlib.MAX_WBITS if data[0] & 0xF == 8 else -zlib.MAX_WBITS
