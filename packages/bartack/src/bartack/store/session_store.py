"""`SessionStore`: the contract of every store, and the values that go in and come out.

A store keeps an append-only list of entries per session.

1. `append` returns once its entries will survive a killed process, an operating system crash and a power failure.
2. The entries of an append are stored together or not at all. `seq` runs from 1 without gaps. Entries never change.
3. If `append` raises anything but `Conflict` or `NotFound`, or the process dies, the outcome is unknown. Append the
   same entries again: they are stored exactly once.
4. One transaction decides everything: the expected tail, the fence of the lease, entry ids, one result per tool call.
5. Timestamps do not order anything; `seq` does.

Every failure is a `StoreError`:

- `NotFound`: the session or entry does not exist.
- `Conflict`: the append contradicts what is stored.
- Otherwise a plain `StoreError` with one of these codes: ``storage_failed`` (disk, server or another program; may work
  later), ``storage_corrupt`` (damaged, or not a Bartack store), ``invalid_value`` or ``invalid_config`` (bad input).
"""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

from bartack.environment import Environment
from bartack.events import LiveEvent
from bartack.nouns.deltas import add_counts
from bartack.nouns.entries import Entry, Fact, MessageDeltaBatch, SessionHeader
from bartack.nouns.errors import Conflict, NotFound
from bartack.nouns.messages import Message, ModelRef, stamped
from bartack.nouns.noun import Noun
from bartack.store.entries import Entries
from bartack.store.leases import Claim, Lease

__all__ = [
    "EMPTY_HEADER",
    "NO_SPEND",
    "RESERVED",
    "Claim",
    "Finding",
    "FindingKind",
    "Hit",
    "Inspection",
    "Lease",
    "ModelSpend",
    "Page",
    "SessionAppend",
    "SessionInfo",
    "SessionStore",
    "Spend",
    "Tail",
    "Totals",
    "all_sessions",
    "new_session",
    "next_entries",
]


class Tail(Noun, frozen=True):
    """The last entry of a session: the one with the highest seq, on any branch."""

    entry_id: str
    seq: int


class SessionAppend(NamedTuple):
    """One append of `SessionStore.append_all`."""

    session_id: str
    entries: Sequence[Entry]
    expected_tail: str | None


class Spend(Noun, frozen=True, kw_only=True):
    """Usage and cost of model calls. `unpriced` counts calls of unknown cost, which `cost_usd` does not include."""

    always_written: ClassVar[tuple[str, ...]] = ("calls", "input_tokens", "output_tokens", "cost_usd", "unpriced")
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float = 0.0
    unpriced: int = 0

    def __add__(self, addend: "Spend") -> "Spend":
        return add_counts(self, addend)


NO_SPEND = Spend()
EMPTY_HEADER = SessionHeader()
# Sessions whose ids begin with this contain the records of Bartack itself, and are not listed.
_PAGE = 100  # sessions that are listed at a time
RESERVED = "bartack:"


class ModelSpend(Noun, frozen=True):
    """Usage of one model; `model` is None for calls that do not name their model."""

    model: ModelRef | None
    spend: Spend


class Totals(Noun, frozen=True):
    """Usage of a session or a whole store: in total, and by model, ordered by provider and name."""

    spend: Spend
    models: tuple[ModelSpend, ...] = ()


class SessionInfo(Noun, frozen=True, kw_only=True):
    """A session as listed by `SessionStore.sessions`."""

    id: str
    title: str | None = None  # None, too, when the entry that gave it was redacted
    created: datetime  # the time of its first entry
    updated: datetime  # the time of its last entry
    entries: int
    tail: Tail
    spend: Spend = NO_SPEND


class Page(Noun, frozen=True):
    """One page of sessions; `cursor` requests the next page and is None on the last one."""

    items: tuple[SessionInfo, ...]
    cursor: str | None = None


class Hit(Noun, frozen=True):
    """An entry that contains every word of a query, with the text around the first match.

    `score` is how well it matches, if the search was for the best matches. Scores of two stores cannot be compared.
    """

    session_id: str
    entry_id: str
    seq: int
    snippet: str
    time: datetime | None = None
    title: str | None = None  # the title of the session
    score: float | None = None


FindingKind = Literal[
    "torn",  # written incompletely, as in a crash: nothing that was acknowledged is lost
    "gap",  # a missing seq
    "repeat",  # a repeated seq or entry id
    "bad_json",  # not JSON, or not an entry
    "broken_parent",  # the parent does not exist or comes later
    "wrong_session",  # an entry of another session
    "dangling_call",  # a tool call without a result
    "orphan_result",  # a tool result without a call
    "checksum",  # an entry that does not match its checksum, or does not follow the entry before it
    "damaged",  # the storage itself: a broken page, a missing or altered blob
]


class Finding(Noun, frozen=True, kw_only=True):
    """A problem found by `bartack.store.maintenance.check`. `repair` fixes those that are `repairable`."""

    session_id: str | None  # None: the store as a whole
    seq: int | None = None
    fault: FindingKind
    message: str
    repairable: bool = False


class Inspection(NamedTuple):
    """What `SessionStore.inspect` finds at one moment: problems and, of a session, its entries and its live owner."""

    findings: tuple[Finding, ...] = ()
    entries: Entries | None = None  # None, too, if they cannot be read
    lease: Lease | None = None  # the lease of the session if it is held


@runtime_checkable
class SessionStore(Protocol):
    """One interface for memory, JSONL, SQLite and PostgreSQL. Methods may be called from many tasks at once."""

    environment: Environment

    @property
    def path(self) -> Path | None:
        """The store's file or folder, which the file tools of an agent cannot access; None if it has none."""
        ...

    async def create_session(self, session_id: str | None = None, header: SessionHeader = EMPTY_HEADER) -> Entry:
        """Create a session and return its first entry. An existing id raises `Conflict`."""
        ...

    async def append(
        self, session_id: str, entries: Sequence[Entry], expected_tail: str | None, *, lease: Lease | None = None
    ) -> Tail:
        """Store the entries atomically and durably, and return the last one.

        `expected_tail` is the id of the session's last entry, or None for a new session, whose first entry must be a
        `SessionHeader`. Entries that are already stored with the same content are skipped; if all of them are, the
        append succeeds regardless of the tail. `Conflict`: the tail is another (`Conflict.tail`), an entry id is taken,
        or a tool call has a result already. `NotFound`: a parent or redacted entry, or the session, does not exist.

        `LeaseLost`: the lease is not current. Without a lease, while another owner has one, an append may contain only
        requests to that owner (`bartack.store.append.REQUESTS`) that follow the tail; otherwise it is `SessionInUse`.
        """
        ...

    async def append_all(self, session_ids: Sequence[str], appends: Callable[[], Iterable[SessionAppend]]) -> None:
        """Store appends to these sessions, all of them or none. Nobody sees any of them before all are durable.

        `appends` yields them in the order of `session_ids`, those of a session together, and may be called again. It is
        read while other writers of a SQLite or JSONL store wait, and never held in memory as a whole. If the process
        dies, nothing was stored. Raises as `append` does, and whatever `appends` raises.
        """
        ...

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
        """Take the lease as `acquire_lease` does and append the entries, both or neither. Raises as both do.

        Claiming again with the same owner and entries, after an unknown outcome, returns the lease.
        """
        ...

    async def load(self, session_id: str, *, head: str | None = None) -> Entries:
        """The branch from the first entry to `head` (default: the tail), in order, with redacted content removed."""
        ...

    async def entries(self, session_id: str, after_seq: int = 0, limit: int | None = None) -> Entries:
        """Entries of all branches in order of `seq`, as stored. Redacted content is included: do not display it."""
        ...

    async def heads(self, session_id: str) -> tuple[str, ...]:
        """The ids of the entries without children, oldest first; the last one is the tail."""
        ...

    async def tail_of(self, session_id: str) -> Tail:
        """The session's last entry."""
        ...

    async def sessions(
        self,
        limit: int = 50,
        cursor: str | None = None,
        query: str | None = None,
        *,
        prefix: str = "",
        reserved: bool = False,
    ) -> Page:
        """List sessions, most recently updated first; with `query`, only those that `search` finds.

        Only ids that start with `prefix` are listed. Sessions whose id begins with `RESERVED` are left out; with
        `reserved`, only they are listed.
        """
        ...

    async def search(
        self, text: str, limit: int = 50, *, prefix: str = "", best_first: bool = False
    ) -> tuple[Hit, ...]:
        """Entries that contain every word of `text`, most recently updated session first, redacted ones excluded.

        Words in double quotes must occur in a row, and so must those of a term such as `snake_case`; `word*` also finds
        words that begin with it. With `best_first`, the best matches come first (`bartack.store.ranking` groups them).
        Only sessions whose ids start with `prefix` are searched.
        """
        ...

    async def totals(self, session_id: str | None = None) -> Totals:
        """Usage and cost of a session, or of the whole store."""
        ...

    def follow(self, session_id: str, after_seq: int = 0) -> AsyncIterator[Entry]:
        """Every entry after this seq, present and future, each once and in order, until the store is closed."""
        ...

    async def write_journal(self, lease: Lease, batch: MessageDeltaBatch) -> None:
        """Add a batch to the journal of the session, which holds one generation; `LeaseLost` for a stale lease."""
        ...

    async def clear_journal(self, lease: Lease) -> None:
        """Empty the journal; `LeaseLost` for a stale lease."""
        ...

    async def read_journal(
        self, session_id: str, generation: int = 0, after_number: int = -1
    ) -> tuple[MessageDeltaBatch, ...]:
        """The batches of the journal in order; if it has this generation, only those with a number over `after`."""
        ...

    def follow_live(self, session_id: str, position: str = "") -> AsyncIterator[LiveEvent]:
        """Every entry and, between them, the deltas of the answer in progress (see `bartack.store.live`).

        `position` is the position of an earlier event, received by any process. The iterator waits for new events, and
        ends when the store is closed.
        """
        ...

    async def acquire_lease(self, session_id: str, owner: str, ttl: float = 30.0, *, takeover: bool = False) -> Lease:
        """Take the lease for `ttl` seconds; `SessionInUse` while another owner holds it.

        A lease is no longer held once it is released, it has expired, or its process has ended. With `takeover`, it is
        taken in any case, and its owner can no longer write. An owner that takes its own lease again gets a new epoch,
        so no two runs may use the same owner name.
        """
        ...

    async def lease_of(self, session_id: str) -> Lease | None:
        """The lease of the session if it is held now, which means that a run is live in some process."""
        ...

    async def renew_lease(self, lease: Lease, ttl: float = 30.0) -> Lease:
        """Extend the lease by `ttl` seconds from now. A lease that is no longer current raises `LeaseLost`."""
        ...

    async def release_lease(self, lease: Lease) -> None:
        """Give up the lease. Releasing a lease that is no longer current has no effect."""
        ...

    async def inspect(self, session_id: str | None = None, *, repair: bool = False) -> Inspection:
        """Problems with how a session, or the whole store, is stored; `bartack.store.maintenance` checks the rest.

        Everything is judged as it is at one moment, however much others write.

        With `repair`, bytes that a crash left half-written are moved to a separate file.
        """
        ...

    async def drop_session(self, session_id: str, *, expected_tail: str | None = None) -> None:
        """Delete a session irrevocably if its tail is the expected one. Use `bartack.store.maintenance.purge`."""
        ...

    async def close(self) -> None:
        """Finish pending work and release all resources. Closing twice has no effect."""
        ...


def next_entries(
    session_id: str,
    tail: Tail | None,
    facts: Iterable[Fact],
    environment: Environment,
    *,
    parent_id: str | None = None,
    run_id: str | None = None,
    first_id: str | None = None,
) -> tuple[Entry, ...]:
    """Turn facts into entries that follow `tail` (None: a new session), ready for ``append(..., tail.entry_id)``.

    `parent_id` starts a branch at that entry. `first_id` is the id of the first entry, instead of a new one.
    """
    entries: list[Entry] = []
    parent = parent_id if parent_id is not None or tail is None else tail.entry_id
    for seq, fact in enumerate(facts, 1 if tail is None else tail.seq + 1):
        timestamp = environment.now()
        if isinstance(fact, Message):
            fact = stamped(fact, id=environment.new_id(), timestamp=timestamp, run_id=run_id)
        entry = Entry(
            id=first_id if first_id is not None and not entries else environment.new_id(),
            session_id=session_id,
            seq=seq,
            timestamp=timestamp,
            fact=fact,
            parent_id=parent,
            run_id=run_id,
        )
        entries.append(entry)
        parent = entry.id
    return tuple(entries)


async def all_sessions(store: SessionStore, *, reserved: bool = False) -> AsyncIterator[SessionInfo]:
    """Every session once, or every session with Bartack's own records; most recently changed first. Sessions may move
    between pages while the pages are read.
    """
    listed: set[str] = set()
    cursor: str | None = None
    while True:
        page = await store.sessions(_PAGE, cursor, reserved=reserved)
        for info in page.items:
            if info.id not in listed:
                listed.add(info.id)
                yield info
        cursor = page.cursor
        if cursor is None:
            return


@asynccontextmanager
async def new_session(store: SessionStore, session_id: str, header: SessionHeader) -> AsyncIterator[bool]:
    """Create the session unless it exists; yields whether it is new.

    If the block raises before anything else was stored in a new session, the session is removed again.
    """
    try:
        created = await store.create_session(session_id, header)
    except Conflict:
        yield False
        return
    try:
        yield True
    except BaseException:
        with suppress(Conflict, NotFound):  # something was stored in it, or another process removed it
            await store.drop_session(session_id, expected_tail=created.id)
        raise
