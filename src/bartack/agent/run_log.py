"""`RunLog`: appends the facts of one run to its session.

Each append carries the run's lease and the tail it expects, so that a second writer is noticed before anything that
costs is done. What was appended reaches the folds and the reader only once it is durable. After the first failure
nothing more is written, because memory must not run ahead of the disk (D-5.7).

An append that has begun is completed even if the task that requested it is cancelled: without its tail the run
could not record that it was stopped.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from bartack.agent.channel import EventChannel
from bartack.agent.events import EntryAppended
from bartack.agent.session_view import SessionView
from bartack.nouns.entries import Entry, Fact
from bartack.nouns.errors import Conflict, StoreError
from bartack.store.session_store import Lease, SessionStore, Tail, next_entries
from bartack.tools.tool_round import retrieve_exception, wait_uncancelled

__all__ = ["CLEANUP_S", "RunLog", "complete", "start"]

CLEANUP_S = 10.0  # for recording the end of a run; a store that takes longer has failed
T = TypeVar("T")


def start(work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """The work as a task whose exception asyncio does not log if it is never awaited."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(retrieve_exception)
    return task


async def complete(task: "asyncio.Task[T]") -> T:
    """Wait for the task, even while being cancelled; `StoreError` if it takes too long."""
    await wait_uncancelled(task, CLEANUP_S)
    if not task.done():
        raise StoreError(f"The store did not respond within {CLEANUP_S:g} s.")
    return task.result()


class RunLog:
    """The appending side of one run."""

    def __init__(
        self,
        store: SessionStore,
        session: SessionView,
        lease: Lease,
        run_id: str,
        *,
        lease_s: float,
        channel: EventChannel,
    ) -> None:
        self.store = store
        self.session = session
        self.run_id = run_id
        self.failure: StoreError | None = None
        self._lease = lease
        self._lease_s = lease_s
        self._channel = channel
        self._lock = asyncio.Lock()
        self._renewal: asyncio.Task[None] | None = None

    async def append(self, *facts: Fact) -> tuple[Entry, ...]:
        """The facts as durable entries. After the first `StoreError` every call raises it."""
        return await asyncio.shield(start(self._write([(self.run_id, facts)])))

    async def open(self, closing: tuple[str | None, Sequence[Fact]], facts: Sequence[Fact]) -> None:
        """Append the first facts of the run, after those that end an earlier one, and keep the lease from then on."""
        await asyncio.shield(start(self._write([closing, (self.run_id, facts)])))
        self._renewal = asyncio.create_task(self._renew_lease())

    async def _write(self, batches: Sequence[tuple[str | None, Sequence[Fact]]]) -> tuple[Entry, ...]:
        async with self._lock:
            if self.failure is not None:
                raise self.failure
            session, environment = self.session, self.store.environment
            entries: list[Entry] = []
            tail, parent = session.tail, session.parent_id
            for run_id, facts in batches:
                added = next_entries(session.session_id, tail, facts, environment, parent_id=parent, run_id=run_id)
                entries += added
                if added:
                    tail, parent = Tail(added[-1].id, added[-1].seq), None
            try:
                await self.store.append(session.session_id, entries, session.tail.entry_id, lease=self._lease)
            except StoreError as error:
                self.failure = error
                raise
            for entry in entries:
                changes = session.push(entry)
                if self._channel.is_open:
                    self._channel.put(EntryAppended(entry))
                    for change in changes:
                        self._channel.put(change)
            return tuple(entries)

    async def close(self) -> None:
        """Release the lease. If the store fails here, the lease expires after its timeout."""
        if self._renewal is not None:
            self._renewal.cancel()
        async with self._lock:  # after an append that has begun
            with suppress(StoreError):
                await self.store.release_lease(self._lease)

    async def _renew_lease(self) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 3)
            try:
                self._lease = await self.store.renew_lease(self._lease, self._lease_s)
            except Conflict as error:  # taken over; the store would refuse the next append too
                self.failure = self.failure or error
                return
            except StoreError:  # the next renewal may succeed
                pass
