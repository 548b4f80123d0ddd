"""`Ledger`: the only way in which a run's facts reach its session.

Each append carries the run's lease and the tail that it expects, so a second writer is noticed before anything is done
that costs. What was appended is pushed into the folds and told to the watchers only after it is durable; the first
failure is the last word: nothing is written after it, because nothing may run ahead of the disk (D-5.7).

An append that has begun is carried to its end even if the task that asked for it is cancelled: the run has to know its
own tail, or it could not write down that it was stopped.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from bartack.agent.shielding import begun
from bartack.agent.view import SessionView, ToolStep
from bartack.nouns.entries import Entry, Fact
from bartack.nouns.errors import Conflict, StoreError
from bartack.store.session_store import Lease, SessionStore, Tail, next_entries

__all__ = ["Batch", "Ledger"]

Batch = tuple[str | None, Sequence[Fact]]  # facts of one run, or of none


class Ledger:
    """Appends for one run."""

    def __init__(
        self,
        store: SessionStore,
        view: SessionView,
        lease: Lease,
        run_id: str,
        *,
        ttl_s: float,
        told: Callable[[Entry, list[ToolStep]], None],
    ) -> None:
        self.store = store
        self.view = view
        self.lease = lease
        self.run_id = run_id
        self.failure: StoreError | None = None
        self._ttl_s = ttl_s
        self._told = told
        self._lock = asyncio.Lock()
        self._keeper: asyncio.Task[None] | None = None

    async def append(self, *facts: Fact) -> tuple[Entry, ...]:
        """The facts, durable, as entries; raises `StoreError`, and from then on always."""
        return await asyncio.shield(begun(self._write([(self.run_id, facts)])))

    async def open(self, before: Sequence[Batch], facts: Sequence[Fact]) -> None:
        """Begin a stint of the run with these facts, after those that end an earlier run. All land together."""
        await asyncio.shield(begun(self._write([*before, (self.run_id, facts)])))
        self._keeper = asyncio.create_task(self._keep_lease())

    async def _write(self, batches: Sequence[Batch]) -> tuple[Entry, ...]:
        async with self._lock:
            if self.failure is not None:
                raise self.failure
            view = self.view
            entries: list[Entry] = []
            tail, parent = view.tail, view.parent_id
            for run_id, facts in batches:
                made = next_entries(
                    view.session_id, tail, facts, self.store.environment, parent_id=parent, run_id=run_id
                )
                entries += made
                if made:
                    tail, parent = Tail(made[-1].id, made[-1].seq), None
            try:
                await self.store.append(view.session_id, entries, view.tail.entry_id, lease=self.lease)
            except StoreError as error:
                self.failure = error
                raise
            for entry in entries:
                self._told(entry, view.push(entry))
            return tuple(entries)

    async def close(self) -> None:
        """Give the lease back. A store that fails here has nothing more to lose: the lease runs out by itself."""
        if self._keeper is not None:
            self._keeper.cancel()
        async with self._lock:  # after an append that is still on its way
            with suppress(StoreError):
                await self.store.release_lease(self.lease)

    async def _keep_lease(self) -> None:
        while True:
            await asyncio.sleep(self._ttl_s / 3)
            try:
                self.lease = await self.store.renew_lease(self.lease, self._ttl_s)
            except Conflict as error:  # another took over; the fence would refuse the next append anyway
                self.failure = self.failure or error
                return
            except StoreError:  # the next round may have more luck, and the fence decides in the end
                pass
