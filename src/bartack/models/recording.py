"""Recording what goes over the wire, and playing it back without a network.

    client = RecordingClient(HttpClient(), "answer.jsonl")        # any model with this client is recorded
    model = bartack.connect("anthropic:...", api_key="-", client=replay("answer.jsonl"))

A recording is one file of JSON lines. `exchange` counts the requests; those that overlap in time mix their lines.

    {"exchange": 0, "request": {"method": ..., "url": ..., "headers": {...}, "body": {...}}}
    {"exchange": 0, "status": 200, "headers": {...}}
    {"exchange": 0, "ms": 412, "text": "event: ..."}        one line for each chunk, as the network cut it;
    {"exchange": 0, "ms": 455, "base64": "..."}             base64 where it is not text
    {"exchange": 0, "end": "complete"}                      or "abandoned", by a reader that had enough,
    {"exchange": 0, "end": "failed", "code": "connection_failed", "message": "..."}

Of headers only those known to be harmless are written. Keys are taken out of address, body and chunks, the ones in use
and whatever looks like one.
"""

import time
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from bartack.models.client import HttpRequest, HttpResponse, ProviderClient, mask_secrets, safe_headers
from bartack.nouns.errors import ErrorCode, ModelError, PartValidationError

__all__ = ["RecordingClient", "ReplayClient", "replay"]


class RecordingClient:
    """A client that writes down what another one sends and receives."""

    def __init__(self, client: ProviderClient, path: str | Path) -> None:
        """Writes to a new file; raises `FileExistsError` rather than over an old recording."""
        self._client = client
        self._path = Path(path)
        self._path.touch(mode=0o600, exist_ok=False)
        self._exchanges = 0

    @asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncIterator[HttpResponse]:
        """As the other client, with a recording on the side."""
        exchange, self._exchanges = self._exchanges, self._exchanges + 1
        tape = _Tape(self._path, exchange, request.secrets)
        tape.write(request=_described(request))
        try:
            async with self._client.send(request) as response:
                tape.write(status=response.status, headers=safe_headers(response.headers))
                yield HttpResponse(
                    status=response.status, headers=response.headers, chunks=_taped(response.chunks, tape)
                )
        except ModelError as error:
            tape.end("failed", code=error.code, message=mask_secrets(error.message, request.secrets))
            raise
        finally:
            tape.end("abandoned")

    async def aclose(self) -> None:
        """Close the other client."""
        await self._client.aclose()


class _Tape:
    def __init__(self, path: Path, exchange: int, secrets: tuple[str, ...]) -> None:
        self._path = path
        self._exchange = exchange
        self._secrets = secrets
        self._began = time.monotonic()
        self._ended = False

    def write(self, **line: Any) -> None:
        # A line for each chunk, opened and closed each time: a recording is whole up to the moment of a crash.
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode({"exchange": self._exchange, **line}) + b"\n")

    def chunk(self, data: bytes) -> None:
        ms = round((time.monotonic() - self._began) * 1000)
        try:
            self.write(ms=ms, text=mask_secrets(data.decode(), self._secrets))
        except UnicodeDecodeError:
            self.write(ms=ms, base64=b64encode(data).decode())

    def end(self, how: str, **more: Any) -> None:
        """Said once: the first word on how it ended holds."""
        if not self._ended:
            self._ended = True
            self.write(end=how, **more)


async def _taped(chunks: AsyncIterator[bytes], tape: _Tape) -> AsyncIterator[bytes]:
    async for chunk in chunks:
        tape.chunk(chunk)
        yield chunk
    tape.end("complete")


def _described(request: HttpRequest) -> dict[str, Any]:
    body = mask_secrets(request.body.decode("utf-8", "replace"), request.secrets)
    try:
        said = msgspec.json.decode(body)
    except msgspec.DecodeError:
        said = body
    return {
        "method": request.method,
        "url": mask_secrets(request.url, request.secrets),
        "headers": safe_headers(request.headers),
        "body": said,
    }


class _Exchange(msgspec.Struct):
    request: dict[str, Any] = {}
    status: int = 200
    headers: dict[str, str] = {}
    chunks: list[bytes] = []
    end: str = "complete"
    code: ErrorCode = ErrorCode.CONNECTION_FAILED
    message: str = ""


class ReplayClient:
    """A client that answers from a recording: the first request gets the first answer, and so on."""

    def __init__(self, exchanges: list[_Exchange]) -> None:
        self._exchanges = exchanges
        self._next = 0
        self.requests: list[HttpRequest] = []  # what was asked this time

    def send(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpResponse]:
        """The next recorded answer; `ModelError` where there is none left."""
        self.requests.append(request)
        at, self._next = self._next, self._next + 1
        return self._answer(at)

    @asynccontextmanager
    async def _answer(self, at: int) -> AsyncIterator[HttpResponse]:
        if at >= len(self._exchanges):
            raise ModelError(f"the recording holds {len(self._exchanges)} answers", code=ErrorCode.CONNECTION_FAILED)
        exchange = self._exchanges[at]
        if exchange.end == "failed" and not exchange.chunks:
            raise ModelError(exchange.message, code=exchange.code)
        yield HttpResponse(status=exchange.status, headers=exchange.headers, chunks=_played(exchange))

    async def aclose(self) -> None:
        """Nothing to close."""


async def _played(exchange: _Exchange) -> AsyncIterator[bytes]:
    for chunk in exchange.chunks:
        yield chunk
    if exchange.end == "failed":
        raise ModelError(exchange.message, code=exchange.code)


def replay(path: str | Path) -> ReplayClient:
    """A client that plays this recording; raises `PartValidationError` for a file that is none."""
    exchanges: dict[int, _Exchange] = {}
    for number, line in _lines(Path(path)):
        try:
            said = msgspec.json.decode(line)
            exchange = exchanges.setdefault(said["exchange"], _Exchange())
            _add(exchange, said)
        except (ValueError, KeyError, TypeError) as error:
            raise PartValidationError(f"not a recording: {error}", path=f"$[{number}]") from None
    return ReplayClient([exchanges[number] for number in sorted(exchanges)])


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as file:
        yield from enumerate(line for line in file if line.strip())


def _add(exchange: _Exchange, said: dict[str, Any]) -> None:
    if "text" in said:
        exchange.chunks.append(said["text"].encode())
    elif "base64" in said:
        exchange.chunks.append(b64decode(said["base64"], validate=True))
    elif "end" in said:
        exchange.end, exchange.message = said["end"], said.get("message", "")
        exchange.code = ErrorCode(said.get("code", ErrorCode.CONNECTION_FAILED))
    elif "status" in said:
        exchange.status, exchange.headers = said["status"], said["headers"]
    else:
        exchange.request = said["request"]
