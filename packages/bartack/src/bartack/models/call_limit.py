"""`CallLimit`: how many calls to a provider may be in progress at once.

A model has a limit of its own (``connect(..., limit=4)``), or shares one with other models, such as all those of one
provider: ``connect(..., limit=shared)``. A call that has to wait has not been sent. It occupies its place until its
stream has ended or is closed.
"""

import asyncio
from types import TracebackType
from weakref import WeakKeyDictionary

from bartack.nouns.errors import ConfigError

__all__ = ["CallLimit"]


class CallLimit:
    """At most this many calls at once, in each event loop. Enter it for a call."""

    def __init__(self, calls: int) -> None:
        if type(calls) is not int or calls < 1:
            raise ConfigError(f"A limit of calls must be a positive number, got {calls!r}.", path="$.limit")
        self.calls = calls
        # A semaphore belongs to the event loop in which it was first waited for.
        self._slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    def _semaphore(self) -> asyncio.Semaphore:
        return self._slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self.calls))

    async def __aenter__(self) -> None:
        await self._semaphore().acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._semaphore().release()
