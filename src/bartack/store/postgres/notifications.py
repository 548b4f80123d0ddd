"""News between stores on different machines: "look at this session", sent after the commit and never inside it.

A notification holds no data and may be lost: whoever follows a session looks by itself too, only more seldom.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from bartack.nouns.errors import StoreError
from bartack.store.postgres.connection import TROUBLE, Connection, Link
from bartack.store.postgres.schema import escaped, unescaped

__all__ = ["News"]

_CHANNEL = "bartack"
_GATHER_S = 0.005  # news of so long go out together
_AGAIN_S = 0.5  # between attempts to listen again


class News:
    """One task that tells and, once somebody follows, one that listens."""

    def __init__(self, link: Link, heard: Callable[[str], None]) -> None:
        self._link = link
        self._heard = heard
        self._untold: set[str] = set()
        self._teller: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    def tell(self, session_ids: Collection[str]) -> None:
        """These sessions have news."""
        self._untold.update(session_ids)
        if self._untold and (self._teller is None or self._teller.done()):
            self._teller = _task(self._tell(), "teller")

    async def listen(self) -> None:
        """Hear what others tell, from now on; returns when it does, or at once if there is no server to hear."""
        if self._listener is None:
            self._listener = _task(self._listen(), "listener")
        await self._ready.wait()

    async def close(self) -> None:
        """Tell what is left, and stop listening."""
        if self._teller is not None:
            await self._teller
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.wait([self._listener])

    async def _tell(self) -> None:
        while self._untold:
            await asyncio.sleep(_GATHER_S)
            names = sorted(map(escaped, self._untold))
            self._untold.clear()

            async def notify(connection: Connection, names: list[str] = names) -> None:
                await connection.execute("SELECT pg_notify($1, n) FROM unnest($2::text[]) n", _CHANNEL, names)

            try:
                await self._link.read(notify, "notifying")
            except StoreError:
                pass  # followers look by themselves

    async def _listen(self) -> None:
        while True:
            try:
                await self._listen_once()
            except (StoreError, *TROUBLE):
                pass  # followers look by themselves, until this works again
            finally:
                self._ready.set()
            await asyncio.sleep(_AGAIN_S)

    async def _listen_once(self) -> None:
        connection = await self._link.connect()
        try:
            over = asyncio.Event()
            connection.add_termination_listener(lambda *_: over.set())
            await connection.add_listener(_CHANNEL, lambda *heard: self._heard(unescaped(heard[3])))
            self._ready.set()
            await over.wait()
        finally:
            connection.terminate()


def _task(work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
    return asyncio.create_task(work, name=f"bartack-postgres-{name}")
