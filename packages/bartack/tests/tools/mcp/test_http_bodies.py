"""What a server may send in one answer: the limit counts what was unpacked."""

import gzip
import zlib
from collections.abc import AsyncIterator, Callable

import httpx2
import pytest

from bartack.tools.mcp.config import HttpServer, ServerFailure
from bartack.tools.mcp.transports import HttpTransport


class Pieces(httpx2.AsyncByteStream):
    def __init__(self, data: bytes, size: int) -> None:
        self.data, self.size, self.read, self.is_closed = data, size, 0, False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self.data), self.size):
            piece = self.data[start : start + self.size]
            self.read += len(piece)
            yield piece

    async def aclose(self) -> None:
        self.is_closed = True


def bomb(size: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    return b"".join([*(packer.compress(bytes(1_000_000)) for _ in range(size // 1_000_000)), packer.flush()])


async def checked(data: bytes, encoding: str, kind: str = "application/json", size: int = 65_536) -> httpx2.Response:
    transport = HttpTransport(HttpServer(url="http://127.0.0.1/mcp"), None, lambda: None)
    headers = {"content-type": kind, **({"content-encoding": encoding} if encoding else {})}
    response = httpx2.Response(200, headers=headers, stream=Pieces(data, size))
    await transport._check(response)
    return response


@pytest.mark.parametrize("size", [1, 7, 65_536])
@pytest.mark.parametrize(
    ("pack", "encoding"), [(bytes, ""), (bytes, "identity"), (gzip.compress, "gzip"), (zlib.compress, "deflate")]
)
async def test_an_answer_arrives_unpacked(pack: Callable[[bytes], bytes], encoding: str, size: int) -> None:
    text = b'{"answer": "' + b"long " * 1000 + b'"}'
    response = await checked(pack(text), encoding, size=size)
    assert await response.aread() == text


async def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    packed = bomb(1_000_000_000)
    response = await checked(packed, "gzip", size=len(packed))
    pieces: list[int] = []

    async def read() -> None:
        async for piece in response.aiter_raw():
            pieces.append(len(piece))

    with pytest.raises(ServerFailure, match="more than 16,000,000 bytes"):
        await read()
    assert (max(pieces) <= 65_536, sum(pieces) <= 16_000_000) == (True, True)


async def test_a_packed_stream_of_events_arrives_in_small_pieces() -> None:
    packed = bomb(50_000_000)
    response = await checked(packed, "gzip", "text/event-stream", size=len(packed))
    assert max([len(piece) async for piece in response.aiter_bytes()]) <= 65_536


@pytest.mark.parametrize(
    ("data", "encoding", "problem"),
    [
        (b"not packed", "gzip", "cannot be unpacked"),
        (gzip.compress(b"x" * 1000, mtime=0)[:-9], "gzip", "cut off"),
        (b"x", "br", "encoding that was not requested"),
        (b"x", "gzip, gzip", "encoding that was not requested"),
    ],
)
async def test_an_answer_that_cannot_be_unpacked_is_a_failure_of_the_server(
    data: bytes, encoding: str, problem: str
) -> None:
    with pytest.raises(ServerFailure, match=problem):
        await (await checked(data, encoding)).aread()
