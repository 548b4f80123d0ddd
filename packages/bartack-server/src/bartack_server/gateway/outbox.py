"""`Outbox`: bytes on their way from a model to a client.

The model's side puts what each delta adds; the client's side takes everything that is there at once. A chunk of the
network often contains many deltas, and sending them together costs a fraction of sending each of them. The outbox is
bounded: a client that reads slowly slows down the model.
"""

import asyncio

__all__ = ["Outbox"]

_MAX_BYTES = 256 * 1024


class Outbox:
    """A bounded buffer between one writer and one reader."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._has_ended = False
        self._changed = asyncio.Event()  # there is something to take, or nothing more will come
        self._has_room = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Whether the writer should wait for `room`."""
        return self._size >= _MAX_BYTES

    def put(self, body: bytes) -> None:
        """Add bytes; never waits."""
        if body:
            self._pieces.append(body)
            self._size += len(body)
            self._changed.set()

    async def room(self) -> None:
        """Wait until the reader has taken what is there."""
        self._has_room.clear()
        await self._has_room.wait()

    def end(self) -> None:
        """Note that nothing more will come."""
        self._has_ended = True
        self._changed.set()

    async def take(self, timeout_s: float) -> bytes | None:
        """All bytes that are there, as soon as there are any; None at the end. Raises `TimeoutError`."""
        if not self._pieces and not self._has_ended:
            self._changed.clear()
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        if not self._pieces:
            return None
        body = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        self._has_room.set()
        return body
