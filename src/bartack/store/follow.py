"""Following a session live: who waits is woken by appends of this process, and looks by itself for those of others."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager

from bartack.nouns.entries import Entry
from bartack.store.entries import Entries

__all__ = ["Watch", "follow"]

PAGE = 1000  # entries fetched at a time


class Watch:
    """Who waits for news of which session. `wake` may be called from any thread."""

    def __init__(self) -> None:
        self.closed = False
        self._waiting: dict[str, dict[asyncio.Event, asyncio.AbstractEventLoop]] = {}

    @contextmanager
    def waiting(self, session_id: str) -> Iterator[asyncio.Event]:
        """An event that is set by news."""
        event = asyncio.Event()
        waiting = self._waiting.setdefault(session_id, {})
        waiting[event] = asyncio.get_running_loop()
        try:
            yield event
        finally:
            waiting.pop(event)
            if not waiting:
                self._waiting.pop(session_id, None)

    def wake(self, session_id: str) -> None:
        """There is news of this session."""
        for event, loop in list(self._waiting.get(session_id, {}).items()):
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    def close(self) -> None:
        """Whoever waits stops waiting."""
        self.closed = True
        for session_id in list(self._waiting):
            self.wake(session_id)


async def follow(
    watch: Watch, session_id: str, after: int, read: Callable[[int, int], Awaitable[Entries]], poll_s: float | None
) -> AsyncIterator[Entry]:
    """Every entry after this seq, each once, in order. `read(after, limit)` gives some; `poll_s` is how often to look.

    It goes by seq alone: an entry is given when its seq follows, so none is missed and none comes twice.
    """
    with watch.waiting(session_id) as event:
        while not watch.closed:
            event.clear()  # before the look: what lands during it sets it again
            entries = await read(after, PAGE)
            for entry in entries:
                yield entry
                after = entry.seq
            if not entries:
                try:
                    await asyncio.wait_for(event.wait(), poll_s)
                except TimeoutError:
                    pass
