"""`SessionStore`: what every store of sessions promises, and the values that go in and come out.

A store is an append-only list of entries for each session.

1. `append` returns when its entries survive a kill of the process, a crash of the system and a loss of power.
2. The entries of one append land together or not at all; `seq` is 1..head without a gap; entries never change.
3. If `append` raises anything but `Conflict` and `NotFound`, or the process dies, the outcome is unknown. Append the
   same entries again: they land exactly once.
4. One transaction decides: the expected tail, the fence of the lease, the ids of the entries, one result per call.
5. Timestamps order nothing; `seq` does.

Every failure is a `StoreError`: `NotFound` for a session or entry that is not there, `Conflict` where what is there
says otherwise, `StoreError` itself for the rest, with a code: `storage_failed` (the disk or another program: later
may be better), `storage_corrupt` (what is stored is damaged or not ours), `invalid_value` (what was given is wrong).
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime
from typing import ClassVar, Literal, Protocol, runtime_checkable

from bartack.environment import Environment
from bartack.nouns.deltas import added
from bartack.nouns.entries import Entry, Fact, SessionHeader
from bartack.nouns.messages import Message, ModelRef, stamped
from bartack.nouns.noun import Noun
from bartack.store.entries import Entries

__all__ = [
    "EMPTY_HEADER",
    "NO_SPEND",
    "Fault",
    "Finding",
    "Hit",
    "Lease",
    "ModelSpend",
    "Page",
    "Place",
    "SessionInfo",
    "SessionStore",
    "Spend",
    "Tail",
    "Totals",
    "next_entries",
]


class Tail(Noun, frozen=True):
    """The last entry of a session: the one with the highest seq, on whichever branch it is."""

    entry_id: str
    seq: int


class Place(Noun, frozen=True):
    """Where a branch goes on: the next entry's parent, and the tail that the append must find."""

    parent_id: str
    tail: Tail


class Lease(Noun, frozen=True):
    """The right to write to a session. `epoch` is the fence: an append with an older one is a `Conflict`."""

    session_id: str
    owner: str
    epoch: int
    expires_at: datetime


class Spend(Noun, frozen=True, kw_only=True):
    """What model calls used. `unpriced` counts the calls whose cost nobody knows: `cost_usd` leaves them out."""

    always_written: ClassVar = ("calls", "input_tokens", "output_tokens", "cost_usd", "unpriced")
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float = 0.0
    unpriced: int = 0

    def __add__(self, other: "Spend") -> "Spend":
        return added(self, other)


NO_SPEND = Spend()
EMPTY_HEADER = SessionHeader()


class ModelSpend(Noun, frozen=True):
    """What one model used; `model` is None for calls that do not say which model it was."""

    model: ModelRef | None
    spend: Spend


class Totals(Noun, frozen=True):
    """What a session, or a whole store, used: altogether and by model (in order of provider and name)."""

    spend: Spend
    models: tuple[ModelSpend, ...] = ()


class SessionInfo(Noun, frozen=True, kw_only=True):
    """A session in a list."""

    id: str
    title: str | None = None  # None also where the header was redacted
    created: datetime  # the time of its first entry
    updated: datetime  # the time of its last entry
    entries: int
    tail: Tail
    spend: Spend = NO_SPEND


class Page(Noun, frozen=True):
    """Some sessions, and the cursor of the next page; None on the last one."""

    items: tuple[SessionInfo, ...]
    cursor: str | None = None


class Hit(Noun, frozen=True):
    """An entry that holds all words of a query, with the text around the first of them."""

    session_id: str
    entry_id: str
    seq: int
    snippet: str


Fault = Literal[
    "torn",  # bytes at the end that never became an append
    "gap",  # a seq that is missing
    "repeat",  # a seq or an id that is there twice
    "bad_json",  # not JSON, or not an entry
    "broken_parent",  # a parent that is not there, or not earlier
    "wrong_session",  # an entry of another session
    "dangling_call",  # a tool call without a result
    "orphan_result",  # a tool result without a call
    "damaged",  # the storage itself: a broken page, a lost or changed blob
]


class Finding(Noun, frozen=True, kw_only=True):
    """One thing that `bartack.store.maintenance` found wrong. `repairable` says whether an append can mend it."""

    session_id: str | None  # None: of the store as a whole
    seq: int | None = None
    fault: Fault
    message: str
    repairable: bool = False


@runtime_checkable
class SessionStore(Protocol):
    """One interface for memory, JSONL, SQLite and PostgreSQL. Methods may be called by many tasks at once."""

    environment: Environment

    async def create_session(self, session_id: str | None = None, header: SessionHeader = EMPTY_HEADER) -> Entry:
        """The first entry of a new session. An id that is taken is a `Conflict`."""
        ...

    async def append(
        self, session_id: str, entries: Sequence[Entry], expected_tail: str | None, *, lease: Lease | None = None
    ) -> Tail:
        """Store the entries durably and together; gives the place of the last of them.

        `expected_tail` is the id of the session's last entry, and None for a session that is not there yet (whose first
        entry is a `SessionHeader`). Entries whose ids are there with the same content change nothing; with all of them
        there the append is a success whatever the tail is. `Conflict` for a wrong tail (`Conflict.tail` is the real
        one), a known id with other content, a second result for one tool call, and a lease that is over.
        """
        ...

    async def load(self, session_id: str, *, head: str | None = None) -> Entries:
        """The branch from the first entry to `head` (any entry; without one, the last), in order.

        What was redacted, on this branch or another, is blank.
        """
        ...

    async def entries(self, session_id: str, after_seq: int = 0, limit: int | None = None) -> Entries:
        """The entries of all branches as they are stored, in order of `seq`. Nothing is blank: do not show them."""
        ...

    async def branch(self, session_id: str, entry_id: str) -> Place:
        """Where a branch from this entry goes on."""
        ...

    async def heads(self, session_id: str) -> tuple[str, ...]:
        """The ids of the entries that no other entry follows, oldest first; the tail is the last of them."""
        ...

    async def tail_of(self, session_id: str) -> Tail:
        """The last entry's place."""
        ...

    async def sessions(self, limit: int = 50, cursor: str | None = None, query: str | None = None) -> Page:
        """The sessions, the one with the newest last entry first; with `query` those that `search` finds."""
        ...

    async def search(self, text: str, limit: int = 50) -> tuple[Hit, ...]:
        """The entries that hold every word of `text`, newest session first; redacted ones are not found."""
        ...

    async def totals(self, session_id: str | None = None) -> Totals:
        """Usage and cost of a session, or of the whole store."""
        ...

    def tail(self, session_id: str, after: int = 0) -> AsyncIterator[Entry]:
        """Every entry after this seq, those to come included, each once and in order, until the store closes."""
        ...

    async def acquire_lease(self, session_id: str, owner: str, ttl: float = 30.0) -> Lease:
        """The lease, for `ttl` seconds; `Conflict` while another owner's runs. The same owner gets a new epoch."""
        ...

    async def renew_lease(self, lease: Lease, ttl: float = 30.0) -> Lease:
        """The lease with a later end; `Conflict` where another took over."""
        ...

    async def release_lease(self, lease: Lease) -> None:
        """Give the lease back. One that is over already is no error."""
        ...

    async def inspect(self, session_id: str | None = None, *, mend: bool = False) -> tuple[Finding, ...]:
        """What is wrong with how a session, or the store as a whole, is stored. `bartack.store.maintenance` does the rest.

        With `mend` the half-written bytes of a crash are put aside, where they are kept.
        """
        ...

    async def drop_session(self, session_id: str, *, expected_tail: str | None = None) -> None:
        """Remove a session for good, if its tail is the expected one. `bartack.store.maintenance` is the way to call it."""
        ...

    async def close(self) -> None:
        """Finish what was asked for and let go of everything. A second call does nothing."""
        ...


def next_entries(
    session_id: str,
    tail: Tail | None,
    facts: Iterable[Fact],
    environment: Environment,
    *,
    parent_id: str | None = None,
    run_id: str | None = None,
) -> tuple[Entry, ...]:
    """The facts as entries that follow `tail` (None: a new session). `parent_id` is where a branch begins.

    Append them with ``expected_tail=tail.entry_id``.
    """
    made: list[Entry] = []
    parent = parent_id if parent_id is not None or tail is None else tail.entry_id
    for seq, fact in enumerate(facts, 1 if tail is None else tail.seq + 1):
        now = environment.now()
        if isinstance(fact, Message):
            fact = stamped(fact, id=environment.new_id(), timestamp=now, run_id=run_id)
        entry = Entry(
            id=environment.new_id(),
            session_id=session_id,
            seq=seq,
            timestamp=now,
            fact=fact,
            parent_id=parent,
            run_id=run_id,
        )
        made.append(entry)
        parent = entry.id
    return tuple(made)
