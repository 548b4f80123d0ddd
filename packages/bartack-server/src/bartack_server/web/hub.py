"""`LiveHub`: one reader per session in this process, for any number of viewers.

Each viewer could follow the store itself; fifty of them would read and decode everything fifty times. The hub reads a
session once and keeps the last events in a ring. A viewer is an index into that ring: it has no queue of its own, so a
slow one costs nothing. One that has fallen behind the ring, or joins at a position that is not in it, reads the store
until it has caught up, and then continues in the ring. Positions are those of `bartack.store.live`, so a viewer may
continue in another process.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

from bartack.events import LiveEvent
from bartack.store.live import Position
from bartack.store.session_store import SessionStore

__all__ = ["LiveHub"]

_RING = 512  # events; an answer writes about seven a second


class LiveHub:
    """The live sessions of one store."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._rings: dict[str, _Ring] = {}

    async def follow(self, session_id: str, position: str = "") -> AsyncGenerator[Sequence[LiveEvent], None]:
        """Everything after this position: what is there at once, then what happens, until the store is closed.

        Raises `StoreError` for an invalid position, and `NotFound` if there is no such session.
        """
        position = str(Position.parse(position))
        ring = await self._entered(session_id)
        try:
            cursor = ring.after(position)
            while not ring.ended:
                if cursor is None:
                    async with aclosing(self._store.follow_live(session_id, position)) as events:  # type: ignore[type-var]
                        async for event in events:
                            yield (event,)
                            position = event.position
                            cursor = ring.after(position)
                            if cursor is not None:
                                break
                        else:
                            return  # the store was closed
                new_events = ring.since(cursor)
                if new_events is None:
                    cursor = None
                elif new_events:
                    cursor += len(new_events)
                    yield new_events
                    position = new_events[-1].position
                else:
                    await ring.changed()
            if ring.error is not None:
                raise ring.error
        finally:
            self._leave(session_id, ring)

    async def _entered(self, session_id: str) -> "_Ring":
        ring = self._rings.get(session_id)
        if ring is None or ring.ended:
            tail = await self._store.tail_of(session_id)
            ring = self._rings.get(session_id)  # another viewer may have created it meanwhile
            if ring is None or ring.ended:
                ring = self._rings[session_id] = _Ring(
                    self._store.follow_live(session_id, str(tail.seq)), str(tail.seq)
                )
        ring.viewers += 1
        return ring

    def _leave(self, session_id: str, ring: "_Ring") -> None:
        ring.viewers -= 1
        if not ring.viewers:
            ring.stop()
            if self._rings.get(session_id) is ring:
                del self._rings[session_id]

    def viewers(self, session_id: str) -> int:
        """How many follow this session here."""
        ring = self._rings.get(session_id)
        return 0 if ring is None else ring.viewers


class _Ring:
    """The last events of one session, numbered from 0."""

    def __init__(self, events: AsyncIterator[LiveEvent], start: str) -> None:
        self.viewers = 0
        self.ended = False
        self.error: Exception | None = None
        self._events: list[LiveEvent] = []
        self._first = 0  # the number of the first one
        self._next = {start: 0}  # the number of the event after each position
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._read(events))

    async def _read(self, live: AsyncIterator[LiveEvent]) -> None:
        try:
            async with aclosing(live) as events:  # type: ignore[type-var]
                async for event in events:
                    self._add(event)
        except Exception as error:  # noqa: BLE001 - raised to every viewer
            self.error = error
        finally:
            self.ended = True
            self._wake()

    def _add(self, event: LiveEvent) -> None:
        self._events.append(event)
        self._next[event.position] = self._first + len(self._events)
        if len(self._events) > 2 * _RING:  # dropping a half at a time costs constant time per event
            self._events = self._events[_RING:]
            self._first += _RING
            numbers = {position: number for position, number in self._next.items() if number >= self._first}
            self._next = numbers
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def after(self, position: str) -> int | None:
        """The number of the event that follows this position; None if that is unknown."""
        return self._next.get(position)

    def since(self, cursor: int) -> Sequence[LiveEvent] | None:
        """The events from this number on; None if some of them are no longer here."""
        return None if cursor < self._first else self._events[cursor - self._first :]

    async def changed(self) -> None:
        """Wait for the next event, or for the end."""
        await self._changed.wait()

    def stop(self) -> None:
        """Stop reading."""
        self._task.cancel()
