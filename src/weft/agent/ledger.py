"""`Ledger`: the only way in which a run's facts reach its session.

Each append carries the run's lease and the tail that it expects, so a second writer is noticed before anything is done
that costs. What was appended is pushed into the folds and told to the watchers only after it is durable; the first
failure is the last word: nothing is written after it, because nothing may run ahead of the disk (D-5.7).

An append that has begun is carried to its end even if the task that asked for it is cancelled: the run has to know its
own tail, or it could not write down that it was stopped.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress

from msgspec.structs import replace

from weft.agent.view import SessionView, ToolStep
from weft.entries import Entry, Fact
from weft.errors import Conflict, StoreError
from weft.store.session_store import Lease, SessionStore, next_entries

__all__ = ["Ledger"]


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
        return await _to_its_end(self._write([(self.run_id, facts)]))

    async def open(self, before: Sequence[tuple[str | None, Sequence[Fact]]], facts: Sequence[Fact]) -> None:
        """Begin a stint of the run with these facts, after those by which recovery ends an earlier run.

        All land together. The first of the run's own is its `run_started`, and its entry has the id by which the lease
        is held: whoever finds a run whose process died can name the lease and take it over.
        """
        await _to_its_end(self._write([*before, (self.run_id, facts)], owner_id=self.lease.owner))
        self._keeper = asyncio.create_task(self._keep_lease())

    async def _write(
        self, batches: Sequence[tuple[str | None, Sequence[Fact]]], owner_id: str | None = None
    ) -> tuple[Entry, ...]:
        async with self._lock:
            if self.failure is not None:
                raise self.failure
            view, edge = self.view, self.store.edge
            entries: list[Entry] = []
            tail, parent = view.tail, view.parent_id
            for run_id, facts in batches:
                made = list(next_entries(view.session_id, tail, facts, edge, parent_id=parent, run_id=run_id))
                if owner_id is not None and run_id == self.run_id:
                    made = _with_first_id(made, owner_id)
                entries += made
                if made:
                    tail, parent = replace(tail, entry_id=made[-1].id, seq=made[-1].seq), None
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


def _with_first_id(entries: list[Entry], entry_id: str) -> list[Entry]:
    first, *rest = entries
    if rest:
        rest[0] = replace(rest[0], parent_id=entry_id)
    return [replace(first, id=entry_id), *rest]


async def _to_its_end(work: Coroutine[None, None, tuple[Entry, ...]]) -> tuple[Entry, ...]:
    task = asyncio.ensure_future(work)
    task.add_done_callback(_seen)
    return await asyncio.shield(task)


def _seen(task: "asyncio.Future[tuple[Entry, ...]]") -> None:
    """A failure that nobody waits for any more is kept in the ledger and is not lost."""
    if not task.cancelled():
        task.exception()
