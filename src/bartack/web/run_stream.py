"""A run as a response in the words of a protocol, from `follow` to the last frame.

The run belongs to the server: a viewer that leaves does not stop it. However the stream ends, the client learns how:
the run ended, it waits for someone, the server is about to stop, or the store failed.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Protocol

from bartack.nouns.deltas import Failed
from bartack.nouns.errors import AgentError, BartackError, ErrorCode
from bartack.store.live import LiveEvent
from bartack.web.event_stream import EventStream
from bartack.web.service import SessionService

__all__ = ["RunEncoder", "run_stream"]

# An approver on the server may decide at once. After this long, the decision is up to the client.
_GRACE_S = 0.3


class RunEncoder(Protocol):
    """What the encoders of all protocols have in common."""

    @property
    def is_ended(self) -> bool: ...
    @property
    def is_waiting(self) -> bool: ...
    def frames(self, event: LiveEvent) -> bytes: ...
    def pause(self) -> bytes: ...
    def close(self, error: Failed | None = None) -> bytes: ...


def run_stream(
    service: SessionService, session_id: str, position: str, encoder: RunEncoder, **headers: str
) -> EventStream:
    """The run that is live after this position."""
    if service.closing.is_set():
        raise AgentError("The server is shutting down.", code=ErrorCode.OVERLOADED)

    def last(error: BartackError | None) -> bytes:
        return encoder.close(None if error is None else Failed(error.code, error.message))

    return EventStream(_frames(service, session_id, position, encoder), service.closing, last=last, **headers)


async def _frames(
    service: SessionService, session_id: str, position: str, encoder: RunEncoder
) -> AsyncIterator[Sequence[bytes]]:
    async with aclosing(service.follow(session_id, position)) as batches:
        while not encoder.is_ended:
            coming = asyncio.ensure_future(anext(batches, None))
            try:
                while not coming.done():
                    await asyncio.wait({coming}, timeout=_GRACE_S if encoder.is_waiting else None)
                    if not coming.done() and encoder.is_waiting:
                        yield [encoder.pause()]
                        return
                events = coming.result()
            finally:
                coming.cancel()
                await asyncio.wait({coming})
            if events is None:
                return
            yield [encoder.frames(event) for event in events]
