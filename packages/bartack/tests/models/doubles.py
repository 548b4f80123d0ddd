"""Shared by the tests of models: a client that returns fixed bytes, and a deterministic environment."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from bartack.models import HttpRequest, HttpResponse
from bartack.nouns.deltas import MessageDelta

KEY = "sk-ant-api03-0123456789abcdef"


class BytesClient:
    """A third-party ProviderClient that answers every request with the same bytes."""

    def __init__(
        self, chunks: Sequence[bytes | Exception] = (), status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        self.chunks = chunks
        self.status = status
        self.headers = headers or {}
        self.requests: list[HttpRequest] = []
        self.released = 0  # responses that were released
        self.is_closed = False

    @asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncIterator[HttpResponse]:
        self.requests.append(request)
        try:
            yield HttpResponse(status=self.status, headers=self.headers, chunks=self._replayed())
        finally:
            self.released += 1

    async def _replayed(self) -> AsyncIterator[bytes]:
        for chunk in self.chunks:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk

    async def aclose(self) -> None:
        self.is_closed = True


async def read(stream: AsyncIterator[MessageDelta]) -> list[MessageDelta]:
    return [delta async for delta in stream]
