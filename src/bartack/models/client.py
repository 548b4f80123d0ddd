"""`ProviderClient`: what a model asks of the network, so that anyone can put something else in its place.

A client takes an `HttpRequest` and gives an `HttpResponse` whose body comes in chunks as they arrive. Failures on the
way are `ModelError`, with the host's name in the message and no secret. `bartack.models.http` is the real one;
`bartack.models.recording` wraps and replays.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol
from urllib.parse import urlsplit

from msgspec import Struct

__all__ = ["SAFE_HEADERS", "HttpRequest", "HttpResponse", "ProviderClient", "Timeouts", "safe_headers"]

# What may be written down of a request's or an answer's headers. All others may hold a key, a cookie or an account.
SAFE_HEADERS = frozenset(
    {
        "accept",
        "anthropic-beta",
        "anthropic-version",
        "cf-ray",
        "content-encoding",
        "content-length",
        "content-type",
        "date",
        "openai-processing-ms",
        "openai-version",
        "request-id",
        "retry-after",
        "retry-after-ms",
        "transfer-encoding",
        "user-agent",
        "x-amzn-errortype",
        "x-amzn-requestid",
        "x-goog-api-client",
        "x-request-id",
        "x-should-retry",
    }
)


class HttpRequest(Struct, frozen=True, kw_only=True):
    """One request. `secrets` are the strings in it that nobody may write down."""

    method: str = "POST"
    url: str
    headers: Mapping[str, str] = {}
    body: bytes = b""
    secrets: tuple[str, ...] = ()

    @property
    def host(self) -> str:
        """The name of the server."""
        return urlsplit(self.url).hostname or ""

    def __repr__(self) -> str:
        return f"HttpRequest({self.method} {self.host}, {len(self.body)} bytes)"


class HttpResponse(Struct, frozen=True, kw_only=True):
    """An answer whose body is still coming. Header names are in small letters."""

    status: int
    headers: Mapping[str, str] = {}
    chunks: AsyncIterator[bytes]


class ProviderClient(Protocol):
    """Sends requests. One client may serve many models and many requests at once."""

    def send(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpResponse]:
        """The answer, as long as the context lasts; leaving it gives the connection back or closes it."""

    async def aclose(self) -> None:
        """Let go of every connection."""


class Timeouts(Struct, frozen=True, kw_only=True):
    """How long to wait, in seconds, and for what; None waits for ever.

    A server that is there answers a connection within seconds. A model may think for minutes before its first byte and,
    where its provider sends no pings, between two; five minutes is beyond what is seen and well below "for ever". An
    answer that still drips after an hour is not worth waiting for.
    """

    connect: float | None = 10.0  # for TCP and TLS
    first_byte: float | None = 300.0  # from sending the request to the first byte of the body
    silence: float | None = 300.0  # between two chunks
    total: float | None = 3600.0  # for everything


def safe_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that may be written down."""
    return {name.lower(): value for name, value in headers.items() if name.lower() in SAFE_HEADERS}
