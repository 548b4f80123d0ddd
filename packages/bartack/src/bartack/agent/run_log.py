"""`RunLog`: one run's access to its session: it appends the facts of the run and reads those that others add.

Each append carries the run's lease and the tail that it expects. If others have added requests in the meantime, they
are read and folded first, and then the same facts are appended after them; only the loss of the lease ends the run, or
a conflict that reading again does not explain: then the store has lost entries, and would refuse the facts for ever.
What was appended reaches the folds and the reader only once it is durable.

A brief store failure does not end a run: retryable appends are repeated with the same entries for as long as the lease
can be kept. After any other failure, nothing more is written, because memory must not run ahead of the disk (D-5.7).

An append that has begun is completed even if the task that requested it is cancelled: without its tail the run
could not record that it was stopped. Facts about the calls of one answer that are recorded at the same time, or
while another append is under way, share a commit: five calls that start together wait for the disk once.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, TypeVar

from msgspec.structs import replace

from bartack.agent.channel import EventChannel
from bartack.agent.session_view import SessionView
from bartack.agent.tracing import RunTracer
from bartack.events import EntryAppended
from bartack.nouns.entries import Entry, Fact, MessageDeltaBatch, Redaction
from bartack.nouns.errors import Conflict, ErrorCode, LeaseLost, StoreError
from bartack.store.append import REQUESTS
from bartack.store.session_store import Lease, SessionStore, Tail, next_entries
from bartack.tools.tool_round import Superseded, retrieve_exception, wait_uncancelled

__all__ = ["CLEANUP_S", "News", "RunLog", "complete", "retried", "start"]

# How long recording the end of a run may take; a store that takes longer has failed.
CLEANUP_S = 10.0
_RETRY_S = 0.05  # before the first retry of a store operation; doubles with each further one
_MAX_RETRY_S = 1.0
_QUIET_S = 0.05  # without an append of its own, before a run looks for what others added
T = TypeVar("T")
News = Entry | StoreError  # what others added, or why the run cannot continue


def start(work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """The work as a task whose exception asyncio does not log if it is never awaited."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(retrieve_exception)
    return task


async def complete(task: "asyncio.Task[T]", seconds: float = CLEANUP_S) -> T:
    """Wait for the task, even while being cancelled; `StoreError` if it takes too long."""
    await wait_uncancelled(task, seconds)
    if not task.done():
        raise StoreError(f"The store did not respond within {seconds:g} s.")
    return task.result()


async def retried(work: Callable[[], Awaitable[T]], seconds_left: Callable[[], float]) -> T:
    """The result of a store operation, repeated while its failure is temporary and there is time."""
    delay = _RETRY_S
    while True:
        try:
            return await work()
        except StoreError as error:
            if not error.retryable or seconds_left() < delay:
                raise
        await asyncio.sleep(delay)
        delay = min(2 * delay, _MAX_RETRY_S)


async def _cancelled(task: "asyncio.Task[None]") -> None:
    """Cancel the task until it has ended: `asyncio.wait_for`, which a store may use, can lose a cancellation."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_RETRY_S)


def _following(tail: Tail, entries: Iterable[Entry]) -> Iterator[Entry]:
    """The entries with their places after this tail."""
    for seq, entry in enumerate(entries, tail.seq + 1):
        yield replace(entry, seq=seq, parent_id=tail.entry_id)
        tail = Tail(entry.id, seq)


@dataclass(eq=False)
class _Append:
    """Facts to append, and what became of them."""

    facts: tuple[Fact, ...]
    still: Callable[[], bool] | None
    may_share: bool
    entries: tuple[Entry, ...] = ()
    error: Exception | None = None
    is_done: bool = False


class RunLog:
    """The session as one run appends to it and follows it."""

    def __init__(
        self,
        store: SessionStore,
        session: SessionView,
        lease: Lease,
        run_id: str,
        *,
        lease_s: float,
        channel: EventChannel,
        see: Callable[[Entry], None],
        tracer: RunTracer,
    ) -> None:
        """Must be called right after the lease was taken. `see` receives every entry once it is durable."""
        self.store = store
        self.session = session
        self.run_id = run_id
        self.failure: StoreError | None = None
        self.redactions = 0  # how often others have redacted something during the run
        self.listener: Callable[[News], None] = lambda _: None
        self._lease = lease
        self._lease_s = lease_s
        self._held_until = asyncio.get_running_loop().time() + lease_s
        self._channel = channel
        self._see = see
        self._tracer = tracer
        self._lock = asyncio.Lock()
        self._waiting: list[_Append] = []  # for the lock, and being stored
        self._changed = asyncio.Event()
        self._renewal: asyncio.Task[None] | None = None
        self._follower: asyncio.Task[None] | None = None

    def begin(self, entries: Iterable[Entry]) -> None:
        """Fold the first entries of the run, which are durable, and keep the lease and read what others add until the
        log is closed."""
        for entry in entries:
            self._push(entry)
        self._renewal = asyncio.create_task(self._keep_lease())
        self._follower = asyncio.create_task(self._follow())

    async def close(self) -> None:
        """Release the lease. If the store fails here, the lease expires after its timeout."""
        async with self._lock:  # after an append that has begun
            for task in (self._renewal, self._follower):
                if task is not None:
                    await _cancelled(task)
            with suppress(StoreError):
                await self.store.release_lease(self._lease)

    def abandon(self) -> None:
        """Stop renewing the lease, without waiting for anything: it expires unless it was released."""
        for task in (self._renewal, self._follower):
            if task is not None and not task.done() and not task.get_loop().is_closed():
                task.cancel()

    # -- appending

    async def append(
        self, *facts: Fact, still: Callable[[], bool] | None = None, may_share: bool = False
    ) -> tuple[Entry, ...]:
        """The facts as durable entries. After the first `StoreError` every call raises it.

        If `still` is false once all that others have added is known, raises `Superseded` and stores nothing. With
        `may_share`, the facts may be stored together with others of which this is true: no `still` of theirs may depend
        on any other of these facts.
        """
        append = _Append(facts, still, may_share)
        self._waiting.append(append)
        return await asyncio.shield(start(self._append(append)))

    async def settle(self) -> None:
        """Wait for an append that has begun."""
        async with self._lock:
            pass

    async def _append(self, append: _Append) -> tuple[Entry, ...]:
        async with self._lock:
            if not append.is_done:  # a task that held the lock before may have done it
                group = self._next_group(append)
                async with self._following_paused():
                    with self._tracer.append([fact for member in group for fact in member.facts]):
                        self._drop_superseded(group)
                        await self._append_group(group)
                        if append.error is not None:
                            raise append.error
        if append.error is not None:
            raise append.error
        return append.entries

    def _next_group(self, append: _Append) -> list[_Append]:
        """This append, and those right after it that may be stored with it.

        All stay in line until they are done: if the task that stores them is cancelled, as at the end of the event
        loop, the next one stores its own. Whatever is in line before this append has lost its task that way.
        """
        self._waiting = self._waiting[self._waiting.index(append) :]
        return list(takewhile(lambda other: other is append or (append.may_share and other.may_share), self._waiting))

    @staticmethod
    def _drop_superseded(group: Iterable[_Append]) -> None:
        for append in group:
            if append.error is None and append.still is not None and not append.still():
                append.error = Superseded()

    async def _append_group(self, group: Sequence[_Append]) -> None:
        """Append the facts together; if that fails, one at a time, so that each has its own error.

        The outcome of a failed append is unknown, so the same entries are appended again, without asking whether they
        are still wanted: that has not changed, because only a conflict lets the run see more of the session.
        """
        entries: list[Entry] = []
        try:
            entries = await self._stored(group)
        except Exception as error:  # noqa: BLE001 - raised by the `append` that it belongs to
            if len(group) > 1:
                for append in group:
                    await self._append_group([append])
                return
            group[0].error = error
            if isinstance(error, StoreError):
                self.failure = error
        for append in group:
            append.is_done = True
        self._waiting = [append for append in self._waiting if not append.is_done]
        for entry in entries:
            self._push(entry)

    async def _stored(self, group: Sequence[_Append]) -> list[Entry]:
        """The entries of the group, once they are stored."""
        while True:
            if self.failure is not None:
                raise self.failure
            entries = self._numbered(append for append in group if append.error is None)
            if not entries or await self._is_stored(entries):
                return entries
            self._drop_superseded(group)

    async def _is_stored(self, entries: Sequence[Entry]) -> bool:
        """Append the entries; False if others appended first, in which case their entries are folded."""
        session = self.session
        try:
            await self._retried(
                lambda: self.store.append(session.session_id, entries, session.tail.entry_id, lease=self._lease)
            )
        except Conflict as error:
            if error.tail in (None, session.tail.entry_id):
                raise
            last = session.tail
            await self._catch_up()
            if session.tail == last:
                raise StoreError(
                    f"Session {session.session_id!r} now ends in entry {error.tail!r}, and entry {last.entry_id!r} "
                    f"(seq {last.seq}), which this run has read there, is gone. The store has lost entries.",
                    code=ErrorCode.STORAGE_CORRUPT,
                ) from error
            return False
        return True

    def _numbered(self, group: Iterable[_Append]) -> list[Entry]:
        """The entries after the tail as it is now. They keep their ids, so they are stored once whatever happens."""
        session = self.session
        numbered: list[Entry] = []
        tail = session.tail
        for append in group:
            entries = append.entries or next_entries(
                session.session_id, tail, append.facts, self.store.environment, run_id=self.run_id
            )
            if (entries[0].parent_id, entries[0].seq) != (tail.entry_id, tail.seq + 1):
                entries = tuple(_following(tail, entries))
            append.entries = entries
            numbered += entries
            tail = Tail(entries[-1].id, entries[-1].seq)
        return numbered

    def _push(self, entry: Entry) -> None:
        changes = self.session.push(entry)
        self._see(entry)
        if self._channel.is_open:
            self._channel.put(EntryAppended(entry))
            for change in changes:
                self._channel.put(change)

    # -- what others add

    async def catch_up(self) -> None:
        """Fold what others have added so far."""
        async with self._lock:
            if self.failure is None:
                await self._catch_up()

    async def changed(self) -> None:
        """Wait until others have added something."""
        await self._changed.wait()

    async def _catch_up(self) -> None:
        session = self.session
        for entry in await self._retried(lambda: self.store.entries(session.session_id, after_seq=session.tail.seq)):
            self._fold(entry)

    def _fold(self, entry: Entry) -> None:
        self._push(entry)
        self.redactions += isinstance(entry.fact, Redaction)
        self._changed.set()
        self._changed = asyncio.Event()
        self.listener(entry)

    @asynccontextmanager
    async def _following_paused(self) -> AsyncIterator[None]:
        """Do not follow the session during an append, which notices by itself what others added. Otherwise each append
        of the run would wake its own follower, which would read it again."""
        if self._follower is not None:
            self._follower.cancel()
        try:
            yield
        finally:
            self._follower = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        """Fold what others add, until another run has taken the session."""
        await asyncio.sleep(_QUIET_S)
        while self.failure is None:
            with suppress(StoreError):  # the next append will meet it, unless it has passed by then
                async for entry in self.store.follow(self.session.session_id, self.session.tail.seq):
                    async with self._lock:
                        if entry.seq <= self.session.tail.seq:
                            continue
                        if not isinstance(entry.fact, REQUESTS):
                            await self._confirm_lease()
                            break
                        self._fold(entry)
            await asyncio.sleep(_MAX_RETRY_S)

    # -- keeping the lease

    async def _keep_lease(self) -> None:
        while self.failure is None:
            await asyncio.sleep(self._lease_s / 3)
            with suppress(StoreError):  # the next renewal may succeed
                await self._confirm_lease()

    async def _confirm_lease(self) -> None:
        try:
            await self._retried(self._renew_lease)
        except LeaseLost as error:  # the store would refuse the next append too
            self.failure = self.failure or error
            self.listener(error)

    async def _renew_lease(self) -> None:
        loop_time = asyncio.get_running_loop().time()
        self._lease = await self.store.renew_lease(self._lease, self._lease_s)
        self._held_until = loop_time + self._lease_s

    @property
    def retries_for_s(self) -> float:
        """How long an operation is retried at most, from now."""
        return max(0.0, self._held_until - asyncio.get_running_loop().time())

    async def _retried(self, work: Callable[[], Awaitable[T]]) -> T:
        return await retried(work, lambda: self.retries_for_s)

    # -- the journal

    async def write_journal(self, batch: MessageDeltaBatch) -> None:
        """Add a batch to the session's journal."""
        await self.store.write_journal(self._lease, batch)

    async def clear_journal(self) -> None:
        """Empty the session's journal."""
        await self.store.clear_journal(self._lease)
