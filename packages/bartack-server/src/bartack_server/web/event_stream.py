"""Server-sent events: the live events of a session as a response that ends only when the viewer or the server does.

Each event has its position as ``id``, so that a browser continues by itself after a lost connection
(``Last-Event-ID``). A slow viewer delays only its own task.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from types import MappingProxyType
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from bartack.events import LiveDeltas, LiveEntry, LiveEvent, LiveReset
from bartack.nouns.errors import BartackError
from bartack.nouns.wire import dump

__all__ = ["EventStream", "FrameCache", "disconnected", "frame", "live_frame"]

_HEARTBEAT_S = 15.0  # proxies close connections that are silent for longer than about half a minute
_BEAT = b": \n\n"
_RETRY = b"retry: 1000\n\n"  # how soon a browser connects again, in milliseconds
_PIECE = 65536  # bytes that are sent at once, and so the memory that a viewer takes that does not read


def frame(event: str, data: Any, position: str | None = None) -> bytes:
    """One event. Its data is JSON, which contains no line breaks."""
    head = b"" if position is None else b"id: %s\n" % position.encode()
    return b"%sevent: %s\ndata: %s\n\n" % (head, event.encode(), msgspec.json.encode(data))


class FrameCache:
    """The frames of the latest events: all viewers of an event get the same bytes, which are made once."""

    def __init__(self, max_bytes: int = 4 * 1024 * 1024) -> None:
        self._max_bytes = max_bytes
        self._frames: dict[
            int, tuple[LiveEvent, bytes]
        ] = {}  # id() of the event -> the event, which keeps the id valid, and its frame
        self.size = 0  # bytes

    def frame(self, event: LiveEvent) -> bytes:
        """A live event in canonical JSON."""
        cached = self._frames.get(id(event))
        if cached is not None:
            return cached[1]
        frame = _live_frame(event)
        if len(self._frames) > 256 or self.size + len(frame) > self._max_bytes:
            self._frames.clear()
            self.size = 0
        if len(frame) <= self._max_bytes:
            self._frames[id(event)] = (event, frame)
            self.size += len(frame)
        return frame


live_frame = FrameCache().frame


def _live_frame(event: LiveEvent) -> bytes:
    match event:
        case LiveEntry():
            return frame("entry", dump(event.entry), event.position)
        case LiveDeltas():
            return frame("deltas", [dump(delta) for delta in event.deltas], event.position)
        case LiveReset():
            return frame("reset", dump(event.snapshot), event.position)


class EventStream(Response):
    """A response whose body is a stream of frames."""

    media_type = "text/event-stream"

    def __init__(
        self,
        frames: AsyncIterator[Sequence[bytes]],
        closing: asyncio.Event,
        *,
        last: Callable[[BartackError | None], bytes] | None = None,
        beat: bytes = _BEAT,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`frames` come in batches, each sent at once. The stream ends when `closing` is set.

        `last` returns what a protocol sends at the end, given the error if there was one. `beat` is sent regularly; by
        default it is a comment, which clients do not see.
        """
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no", **headers})
        del self.headers["content-length"]
        self._frames = frames
        self._closing = closing
        self._last = last or _failed_frame
        self._beat_frame = beat
        self._error: BartackError | None = None
        self._sending = asyncio.Lock()  # a heartbeat inside a frame would cut it in two

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        await send(_chunk(_RETRY))
        jobs = [self._pump(send), self._beat(send), disconnected(receive), self._closing.wait()]
        tasks = [asyncio.ensure_future(job) for job in jobs]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            pumped, *_ = await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(OSError):  # the viewer may be gone
            await send({"type": "http.response.body", "body": self._last(self._error), "more_body": False})
        if isinstance(pumped, Exception) and not isinstance(pumped, OSError):
            raise pumped  # the server logs it

    async def _pump(self, send: Send) -> None:
        try:
            async with aclosing(self._frames) as batches:  # type: ignore[type-var]
                async for batch in batches:
                    body = b"".join(batch)
                    async with self._sending:
                        for start in range(0, len(body), _PIECE):
                            await send(_chunk(body[start : start + _PIECE]))
        except BartackError as error:  # the session was purged, or the store failed
            self._error = error

    async def _beat(self, send: Send) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT_S)
            async with self._sending:
                await send(_chunk(self._beat_frame))


def _failed_frame(error: BartackError | None) -> bytes:
    return b"" if error is None else frame("failed", {"code": str(error.code), "message": error.message})


def _chunk(body: bytes) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": True}


async def disconnected(receive: Receive) -> None:
    """Wait until the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
