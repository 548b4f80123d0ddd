"""Records HTTP exchanges, and replays them without a network.

    client = RecordingClient(HttpClient(), "answer.jsonl")        # records every model that uses this client
    model = bartack.connect("anthropic:...", api_key="-", client=replay("answer.jsonl"))

A recording is a file of JSON lines. `exchange` numbers the requests; the lines of concurrent ones are interleaved.

    {"exchange": 0, "request": {"method": ..., "url": ..., "headers": {...}, "body": {...}}}
    {"exchange": 0, "status": 200, "headers": {...}}
    {"exchange": 0, "ms": 412, "text": "event: ..."}        one line for each chunk received;
    {"exchange": 0, "ms": 455, "base64": "..."}             base64 if it is not UTF-8
    {"exchange": 0, "end": "complete"}                      or "abandoned", if the reader stopped,
    {"exchange": 0, "end": "failed", "code": "connection_failed", "message": "..."}

Only harmless headers are recorded. Keys are masked in URL, body and chunks: those in use, and whatever looks like one.
A chunk that ends inside a word is recorded with the next one, because the word may be the beginning of a key.
"""

import time
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from bartack.models.client import ChunkMasker, HttpRequest, HttpResponse, ProviderClient, mask_secrets, safe_headers
from bartack.nouns.errors import ErrorCode, ModelError, PartValidationError

__all__ = ["RecordingClient", "ReplayClient", "replay"]


class RecordingClient:
    """Records the exchanges of another client."""

    def __init__(self, client: ProviderClient, path: str | Path) -> None:
        """Creates the file. Raises `FileExistsError` instead of overwriting a recording."""
        self._client = client
        self._path = Path(path)
        self._path.touch(mode=0o600, exist_ok=False)
        self._exchanges = 0

    @asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncIterator[HttpResponse]:
        """The response of the other client, recorded as it is read."""
        number, self._exchanges = self._exchanges, self._exchanges + 1
        recorder = _ExchangeWriter(self._path, number, request.secrets)
        recorder.request(request)
        try:
            async with self._client.send(request) as response:
                recorder.write(status=response.status, headers=safe_headers(response.headers))
                chunks = recorder.record_chunks(response.chunks)
                yield HttpResponse(status=response.status, headers=response.headers, chunks=chunks)
        except ModelError as error:
            recorder.end("failed", code=error.code, message=mask_secrets(error.message, request.secrets))
            raise
        finally:
            recorder.end("abandoned")

    async def aclose(self) -> None:
        """Close the other client."""
        await self._client.aclose()


class _ExchangeWriter:
    """Writes one exchange."""

    def __init__(self, path: Path, number: int, secrets: tuple[str, ...]) -> None:
        self._path = path
        self._number = number
        self._secrets = secrets
        self._masker = ChunkMasker(secrets)
        self._held_times: deque[int] = deque()
        self._began = time.monotonic()
        self._ended = False

    def write(self, **line: Any) -> None:
        # The file is closed after every line, so that a crash loses nothing.
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode({"exchange": self._number, **line}) + b"\n")

    def request(self, request: HttpRequest) -> None:
        body: Any = mask_secrets(request.body.decode("utf-8", "replace"), self._secrets)
        with suppress(msgspec.DecodeError):
            body = msgspec.json.decode(body)
        url = mask_secrets(request.url, self._secrets)
        headers = safe_headers(request.headers)
        self.write(request={"method": request.method, "url": url, "headers": headers, "body": body})

    async def record_chunks(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for chunk in chunks:
            self._held_times.append(round((time.monotonic() - self._began) * 1000))
            self._write_chunks(self._masker.feed(chunk))
            yield chunk
        self.end("complete")

    def _write_chunks(self, chunks: list[bytes]) -> None:
        for chunk in chunks:
            ms = self._held_times.popleft()
            try:
                self.write(ms=ms, text=chunk.decode())
            except UnicodeDecodeError:
                self.write(ms=ms, base64=b64encode(chunk).decode())

    def end(self, end: str, **fields: Any) -> None:
        """Record the end of the exchange; only the first call counts."""
        if not self._ended:
            self._ended = True
            self._write_chunks(self._masker.end())
            self.write(end=end, **fields)


class _RecordedExchange(msgspec.Struct):
    request: dict[str, Any] = {}
    status: int = 200
    headers: dict[str, str] = {}
    chunks: list[bytes] = []
    end: str = "complete"
    code: ErrorCode = ErrorCode.CONNECTION_FAILED
    message: str = ""

    def add(self, line: dict[str, Any]) -> None:
        match line:
            case {"text": text}:
                self.chunks.append(text.encode())
            case {"base64": data}:
                self.chunks.append(b64decode(data, validate=True))
            case {"end": end}:
                self.end, self.message = end, line.get("message", "")
                self.code = ErrorCode(line.get("code", ErrorCode.CONNECTION_FAILED))
            case {"status": status}:
                self.status, self.headers = status, line["headers"]
            case _:
                self.request = line["request"]

    async def replay_chunks(self) -> AsyncIterator[bytes]:
        for chunk in self.chunks:
            yield chunk
        if self.end == "failed":
            raise ModelError(self.message, code=self.code)


class ReplayClient:
    """Answers requests from a recording, in its order."""

    def __init__(self, exchanges: list[_RecordedExchange]) -> None:
        self._exchanges = exchanges
        self.requests: list[HttpRequest] = []  # the requests received so far

    def send(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpResponse]:
        """The next recorded response. Raises `ModelError` at the end of the recording."""
        self.requests.append(request)
        return self._response(len(self.requests) - 1)

    @asynccontextmanager
    async def _response(self, number: int) -> AsyncIterator[HttpResponse]:
        if number >= len(self._exchanges):
            raise ModelError(
                f"The recording has {len(self._exchanges)} responses; this is request {number + 1}.",
                code=ErrorCode.CONNECTION_FAILED,
            )
        exchange = self._exchanges[number]
        if exchange.end == "failed" and not exchange.chunks:
            raise ModelError(exchange.message, code=exchange.code)
        yield HttpResponse(status=exchange.status, headers=exchange.headers, chunks=exchange.replay_chunks())

    async def aclose(self) -> None:
        """Does nothing."""


def replay(path: str | Path) -> ReplayClient:
    """A client that replays this recording. Raises `PartValidationError` if the file is not a recording."""
    exchanges: dict[int, _RecordedExchange] = {}
    for number, text in enumerate(line for line in Path(path).read_bytes().splitlines() if line.strip()):
        try:
            line = msgspec.json.decode(text)
            exchanges.setdefault(line["exchange"], _RecordedExchange()).add(line)
        except (ValueError, KeyError, TypeError) as error:
            raise PartValidationError(f"{path} is not a recording: {error}", path=f"$[{number}]") from None
    return ReplayClient([exchanges[number] for number in sorted(exchanges)])
