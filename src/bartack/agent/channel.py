"""`Channel`: the events of a run on their way from its task to whoever iterates over it.

Facts and states are few and are always taken. Deltas come by the thousand: the run waits with the next one while the
channel is full, and so the model is read no faster than somebody looks. When nobody looks any more, events are dropped.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from bartack.agent.events import Event, Snapshot
from bartack.nouns.messages import Message

__all__ = ["Channel"]

_FULL = 256  # events; a reader that is this far behind is waited for


class Channel:
    """One writer, one reader."""

    def __init__(self, snapshot: Callable[[], Message | None] | None = None) -> None:
        """With `snapshot` the reader gets the answer so far whenever it has caught up with the deltas."""
        self._events: deque[Event] = deque()
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._snapshot = snapshot
        self._wants_snapshot = False
        self.is_open = True  # somebody may still read
        self.is_ended = False  # nothing more will come

    def put(self, event: Event) -> None:
        """Take an event."""
        if self.is_open:
            self._events.append(event)
            self._changed.set()

    async def put_delta(self, event: Event) -> None:
        """Take a delta, when there is room for it."""
        if not self.is_open:
            return
        if len(self._events) >= _FULL:
            self._room.clear()
            await self._room.wait()
        self._wants_snapshot = self._snapshot is not None
        self.put(event)

    def end(self) -> None:
        """Nothing more will come."""
        self.is_ended = True
        self._changed.set()

    def leave(self) -> None:
        """Nobody reads any more."""
        self.is_open = False
        self._events.clear()
        self._room.set()

    async def get(self) -> Event | None:
        """The next event; None after the last."""
        while not self._events:
            if self._wants_snapshot and self._snapshot is not None:
                self._wants_snapshot = False
                message = self._snapshot()
                if message is not None:
                    return Snapshot(message)
            if self.is_ended:
                return None
            self._changed.clear()
            await self._changed.wait()
        event = self._events.popleft()
        if len(self._events) < _FULL // 2:
            self._room.set()
        return event
