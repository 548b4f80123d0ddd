"""Stores that break one rule each, for the negative controls of the store checks."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from bartack.nouns.entries import Entry, MessageDeltaBatch
from bartack.nouns.errors import Conflict, SessionInUse
from bartack.store import Hit, Lease, MemoryStore, Tail
from bartack.store.sqlite import SqliteStore


class LosesTheFence(MemoryStore):
    """Accepts any lease."""

    async def append(
        self, session_id: str, entries: Sequence[Entry], expected_tail: str | None, *, lease: Lease | None = None
    ) -> Tail:
        current = None if lease is None else self._logs.lease(session_id)
        return await super().append(session_id, entries, expected_tail, lease=current)


class AcceptsAWrongTail(MemoryStore):
    """Moves an append behind the last entry, whatever its writer expected."""

    async def append(
        self, session_id: str, entries: Sequence[Entry], expected_tail: str | None, *, lease: Lease | None = None
    ) -> Tail:
        try:
            return await super().append(session_id, entries, expected_tail, lease=lease)
        except Conflict as conflict:
            if type(conflict) is not Conflict or expected_tail is None or "last entry" not in str(conflict):
                raise
        tail = await self.tail_of(session_id)
        moved = [replace(entry, seq=seq) for seq, entry in enumerate(entries, tail.seq + 1)]
        return await super().append(session_id, moved, tail.entry_id, lease=lease)


class DropsTheLastEntry(MemoryStore):
    """Acknowledges a batch of four or more without its last entry."""

    async def append(
        self, session_id: str, entries: Sequence[Entry], expected_tail: str | None, *, lease: Lease | None = None
    ) -> Tail:
        stored = entries if len(entries) < 4 else entries[:-1]
        await super().append(session_id, stored, expected_tail, lease=lease)
        return Tail(entries[-1].id, entries[-1].seq)


class LetsOthersAppend(MemoryStore):
    """Lets anyone append anything to a live run."""

    async def append(
        self, session_id: str, entries: Sequence[Entry], expected_tail: str | None, *, lease: Lease | None = None
    ) -> Tail:
        log = self._logs.find(session_id)
        current_lease = None if log is None or log.lease is None or not log.lease.owner else log.lease
        return await super().append(session_id, entries, expected_tail, lease=lease or current_lease)


class ReturnsStaleTails(MemoryStore):
    """Returns the third entry once more after the fourth was appended."""

    def __init__(self) -> None:
        super().__init__()
        self._stale: set[str] = set()

    async def tail_of(self, session_id: str) -> Tail:
        tail = await super().tail_of(session_id)
        if tail.seq != 4 or session_id in self._stale:
            return tail
        self._stale.add(session_id)
        return Tail((await self.entries(session_id))[2].id, 3)


class IgnoresIdempotence(MemoryStore):
    """Refuses entries that are stored already."""

    async def append(
        self, session_id: str, entries: Sequence[Entry], expected_tail: str | None, *, lease: Lease | None = None
    ) -> Tail:
        log = self._logs.find(session_id)
        stored = set() if log is None else {entry.id for entry in log.entries()}
        if stored.intersection(entry.id for entry in entries):
            raise Conflict("stored already", tail=None if log is None else log.tail.entry_id)
        return await super().append(session_id, entries, expected_tail, lease=lease)


class ClaimsInTwoSteps(MemoryStore):
    """Takes the lease before it knows whether the entries can be stored."""

    async def claim(
        self,
        session_id: str,
        entries: Sequence[Entry],
        expected_tail: str | None,
        owner: str,
        *,
        ttl: float = 30.0,
        takeover: bool = False,
    ) -> Lease:
        log = self._logs.find(session_id)
        if log is None or log.tail.entry_id == expected_tail or expected_tail is None:
            return await super().claim(session_id, entries, expected_tail, owner, ttl=ttl, takeover=takeover)
        lease = await self.acquire_lease(session_id, owner, ttl, takeover=takeover)
        await self.append(session_id, entries, expected_tail, lease=lease)
        return lease


class StoresHalfOfARefusedAppend(MemoryStore):
    """Stores entries one by one, up to the one that is refused."""

    async def append(
        self, session_id: str, entries: Sequence[Entry], expected_tail: str | None, *, lease: Lease | None = None
    ) -> Tail:
        try:
            return await super().append(session_id, entries, expected_tail, lease=lease)
        except Conflict as conflict:
            if type(conflict) is Conflict and "already has a result" in str(conflict) and len(entries) > 1:
                await super().append(session_id, entries[:1], expected_tail, lease=lease)
            raise


class AlwaysTakesOver(MemoryStore):
    """Grants every request for the lease."""

    async def acquire_lease(self, session_id: str, owner: str, ttl: float = 30.0, *, takeover: bool = False) -> Lease:
        return await super().acquire_lease(session_id, owner, ttl, takeover=True)


class ForgetsExpiry(MemoryStore):
    """Holds a lease until it is released."""

    async def acquire_lease(self, session_id: str, owner: str, ttl: float = 30.0, *, takeover: bool = False) -> Lease:
        return await super().acquire_lease(session_id, owner, max(ttl, 30.0 if ttl > 0 else ttl), takeover=takeover)


class RepeatsAnEntry(MemoryStore):
    """Gives a follower one entry that it has."""

    def follow(self, session_id: str, after_seq: int = 0) -> AsyncIterator[Entry]:
        return super().follow(session_id, max(0, after_seq - 1))


class FindsRedactedContent(MemoryStore):
    """Searches what is stored, without regard to redactions."""

    async def search(
        self, text: str, limit: int = 50, *, prefix: str = "", best_first: bool = False
    ) -> tuple[Hit, ...]:
        for log in self._logs.all():
            log._hidden = set()
        return await super().search(text, limit, prefix=prefix, best_first=best_first)


class WritesAnyJournal(MemoryStore):
    """Does not check the lease of a writer of the journal."""

    async def _write_journal(self, lease: Lease, batch: MessageDeltaBatch | None) -> None:
        self._logs.tail(lease.session_id)
        self._logs.write_journal(lease.session_id, batch)


class KeepsTheJournal(MemoryStore):
    """Forgets the journal when a session is dropped."""

    async def drop_session(self, session_id: str, *, expected_tail: str | None = None) -> None:
        journal = self._logs._journals.get(session_id)
        await super().drop_session(session_id, expected_tail=expected_tail)
        if journal is not None:
            self._logs._journals[session_id] = journal


class AcknowledgesTooEarly(SqliteStore):
    """Stores what a writer appends to its own session when the next append comes, and acknowledges it at once."""

    _late: tuple[str, Sequence[Entry], str | None] | None = None

    async def append(
        self, session_id: str, entries: Sequence[Entry], expected_tail: str | None, *, lease: Lease | None = None
    ) -> Tail:
        if session_id.endswith("-shared") or entries[0].seq == 1:
            return await super().append(session_id, entries, expected_tail, lease=lease)
        late, self._late = self._late, (session_id, entries, expected_tail)
        if late is not None:
            await super().append(*late)
        return Tail(entries[-1].id, entries[-1].seq)


class HangsAfterAKill(SqliteStore):
    """Takes turns with a file that a killed process leaves behind."""

    async def append(
        self, session_id: str, entries: Sequence[Entry], expected_tail: str | None, *, lease: Lease | None = None
    ) -> Tail:
        while not self._takes_turn():  # noqa: ASYNC110 - another process gives it back
            await asyncio.sleep(0.01)
        try:
            return await super().append(session_id, entries, expected_tail, lease=lease)
        finally:
            self._turn.unlink()

    @property
    def _turn(self) -> Path:
        return Path(f"{self.path}.turn")

    def _takes_turn(self) -> bool:
        try:
            self._turn.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


class RefusesRequests(MemoryStore):
    """Lets only the owner append to a session in use."""

    async def append(
        self, session_id: str, entries: Sequence[Entry], expected_tail: str | None, *, lease: Lease | None = None
    ) -> Tail:
        log = self._logs.find(session_id)
        if lease is None and log is not None and log.lease is not None and log.lease.owner:
            raise SessionInUse("in use", owner=log.lease.owner, expires_in_s=1.0)
        return await super().append(session_id, entries, expected_tail, lease=lease)


class RequestsEndTheLease(MemoryStore):
    """Takes a request of another for a takeover."""

    async def append(
        self, session_id: str, entries: Sequence[Entry], expected_tail: str | None, *, lease: Lease | None = None
    ) -> Tail:
        tail = await super().append(session_id, entries, expected_tail, lease=lease)
        log = self._logs.find(session_id)
        if lease is None and log is not None and log.lease is not None and log.lease.owner == "run 1":
            log.lease = replace(log.lease, epoch=log.lease.epoch + 1)
        return tail
