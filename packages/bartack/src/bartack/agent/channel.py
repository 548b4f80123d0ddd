"""`EventChannel`: carries the events of a run from its task to the reader.

Facts and states are few and always accepted. Deltas arrive by the thousand: while the channel is full, the run waits,
so the model is read no faster than events are consumed. After the reader has left, events are dropped.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from bartack.events import Event, Snapshot

__all__ = ["EventChannel"]

_CAPACITY = 256  # events


class EventChannel:
    """One writer, one reader."""

    def __init__(self, snapshot: Callable[[], Snapshot | None] | None = None) -> None:
        """With `snapshot` the reader gets the answer so far whenever it has caught up with the deltas."""
        self._events: deque[Event] = deque()
        self._changed = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._snapshot = snapshot
        self._needs_snapshot = False
        self.is_open = True  # there may be a reader
        self._is_ended = False

    def put(self, event: Event) -> None:
        """Add an event, whether or not there is room."""
        if self.is_open:
            self._events.append(event)
            self._changed.set()

    async def put_delta(self, event: Event) -> None:
        """Add an event once there is room."""
        if not self.is_open:
            return
        if len(self._events) >= _CAPACITY:
            self._has_room.clear()
            await self._has_room.wait()
        self._needs_snapshot = self._snapshot is not None
        self.put(event)

    def end(self) -> None:
        """Mark the last event as the last."""
        self._is_ended = True
        self._changed.set()

    def leave(self) -> None:
        """Stop reading: drop all events, now and later."""
        self.is_open = False
        self._events.clear()
        self._has_room.set()

    async def get(self) -> Event | None:
        """The next event; None after the last."""
        while not self._events:
            if self._needs_snapshot and self._snapshot is not None:
                self._needs_snapshot = False
                snapshot = self._snapshot()
                if snapshot is not None:
                    return snapshot
            if self._is_ended:
                return None
            self._changed.clear()
            await self._changed.wait()
        event = self._events.popleft()
        if len(self._events) < _CAPACITY // 2:
            self._has_room.set()
        return event
