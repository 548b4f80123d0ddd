"""Notifications between stores on different machines: "look at this session", sent after the commit, never inside it.

A notification carries no data and may be lost: followers also poll, only less often. Every user of a database can
listen to every channel, so a channel belongs to one schema and the session is named by a hash.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from bartack.nouns.errors import StoreError
from bartack.store.checksums import digest_of
from bartack.store.postgres.connection import SERVER_ERRORS, Database, PostgresConnection

__all__ = ["Notifications"]

_PAUSE_S = 0.02  # the pause between two notifications; what happens meanwhile is sent together
# A notification is a transaction of its own. Waiting until it is on disk would delay the appends that follow.
_NOTIFY = "SELECT pg_notify($1, n), set_config('synchronous_commit', 'off', true) FROM unnest($2::text[]) n"
_RECONNECT_S = 0.5


class Notifications:
    """One task that sends and, once there is a follower, one that listens and calls `received`."""

    def __init__(self, database: Database, received: Callable[[str], None]) -> None:
        self._database = database
        self._received = received
        self.channel = f"bartack_{_hash(database.schema)}"
        self._unsent: set[str] = set()
        self._sender: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    def name_of(self, session_id: str) -> str:
        """What a notification calls the session."""
        return _hash(self._database.schema, session_id)

    def send(self, session_ids: Collection[str]) -> None:
        """Notify the followers of these sessions, now or after a short pause."""
        self._unsent.update(session_ids)
        if self._unsent and (self._sender is None or self._sender.done()):
            self._sender = _task(self._send(), "sender")

    async def listen(self) -> None:
        """Start listening. Returns once notifications arrive, or at once if the server cannot be reached."""
        if self._listener is None:
            self._listener = _task(self._listen(), "listener")
        await self._ready.wait()

    async def close(self) -> None:
        """Send what is left, and stop listening."""
        if self._sender is not None:
            await self._sender
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.wait([self._listener])

    async def _send(self) -> None:
        while self._unsent:
            names = sorted(map(self.name_of, self._unsent))
            self._unsent.clear()

            async def notify(connection: PostgresConnection, names: list[str] = names) -> None:
                await connection.execute(_NOTIFY, self.channel, names)

            try:
                await self._database.read(notify, "notifying")
            except StoreError:
                pass  # followers poll
            await asyncio.sleep(_PAUSE_S)

    async def _listen(self) -> None:
        while True:
            try:
                await self._listen_once()
            except (StoreError, *SERVER_ERRORS):
                pass  # followers poll until this works again
            finally:
                self._ready.set()
            await asyncio.sleep(_RECONNECT_S)

    async def _listen_once(self) -> None:
        connection = await self._database.connect()
        try:
            lost = asyncio.Event()
            connection.add_termination_listener(lambda *_: lost.set())
            await connection.add_listener(self.channel, lambda *arguments: self._received(arguments[3]))
            self._ready.set()
            await lost.wait()
        finally:
            connection.terminate()


def _hash(*names: str) -> str:
    return digest_of("\0".join(names).encode("utf-8", "surrogatepass")).hex()


def _task(work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
    return asyncio.create_task(work, name=f"bartack-postgres-{name}")
