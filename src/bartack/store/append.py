"""Whether an append may land: the one place where every store asks.

In two steps, because what is there must be looked up in between, in the store's own transaction:

    draft = make_draft(session_id, entries)      # the batch by itself: shape, JSON, blobs. Asks nobody
    present = ...                                # the store looks up draft.ids, draft.named, draft.calls
    rows = admit(draft, present, expected_tail, lease)    # the rows to store; none if they are all there

The order of the questions: are they all there already (then it is a success, whatever else is true); does the lease
hold; is the tail the expected one; is each id new; is each parent and each redacted entry there; does each call end for
the first time.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple
from urllib.parse import quote

from msgspec import Struct, field
from msgspec.structs import replace

from bartack.nouns import wire
from bartack.nouns.entries import Entry, Redaction, SessionHeader
from bartack.nouns.errors import Conflict, ErrorCode, NotFound, PartValidationError, StoreError
from bartack.nouns.json_values import write_time_text
from bartack.store.blobs import cut
from bartack.store.index import results_of, spend_of, text_of
from bartack.store.search import sortable, words
from bartack.store.session_store import Lease, ModelSpend, Tail

__all__ = [
    "Draft",
    "Present",
    "Row",
    "admit",
    "check_drop",
    "check_fence",
    "invalid",
    "jumps_of",
    "make_draft",
    "no_session",
    "renewed_lease",
    "taken_lease",
    "time_text",
]

_ID_LIMIT = 240  # bytes of a session id in a file name, where JSONL puts it


class Row(NamedTuple):
    """One entry as a store keeps it, with what is kept beside it."""

    seq: int
    id: str
    parent_id: str | None
    run_id: str | None
    kind: str
    timestamp: str
    text: bytes  # canonical JSON after `cut`
    is_cut: bool  # whether `restore` has anything to do
    results: tuple[str, ...]
    spend: ModelSpend | None
    words: str  # for the full-text index
    redacts: str | None  # the id of the entry that this one blanks
    title: str | None


class Draft(Struct, frozen=True):
    """A batch that is right by itself, and what must be looked up before it can land."""

    session_id: str
    rows: tuple[Row, ...]
    bodies: Mapping[str, bytes]
    named: frozenset[str]  # ids outside the batch that it names: parents, and what it redacts
    calls: frozenset[str]  # ids of calls that the batch ends

    created: str  # the time of the first entry, and of the last, as `sortable` texts
    updated: str

    @property
    def ids(self) -> list[str]:
        return [row.id for row in self.rows]


class Present(Struct, frozen=True):
    """What a store found: the session as far as this draft is concerned."""

    tail: Tail | None  # None: there is no such session
    texts: Mapping[str, bytes] = field(default_factory=dict)  # of the draft's ids that are there: stored text
    seqs: Mapping[str, int] = field(default_factory=dict)  # of the draft's named ids that are there
    results: Collection[str] = ()  # of the draft's calls that have ended
    held: Lease | None = None  # the current lease; one that was given back has no owner


def make_draft(session_id: str, entries: Sequence[Entry]) -> Draft:
    """The batch, ready to be stored; `StoreError` with code ``invalid_value`` for one that can never land."""
    if not entries:
        raise invalid("an append holds at least one entry")
    if not _fits(session_id):
        raise invalid(f"a session id has 1 to {_ID_LIMIT} bytes (escaped as in a URL), not {session_id[:20]!r}...")
    bodies: dict[str, bytes] = {}
    rows: list[Row] = []
    calls: set[str] = set()
    named: set[str] = set()
    inside: set[str] = set()
    for place, entry in enumerate(entries):
        _check_place(session_id, entries[0].seq + place, entry)
        row = _row(entry, bodies)
        if row.id in inside:
            raise invalid(f"entry {row.id!r} is twice in one append")
        if twice := calls.intersection(row.results):
            raise Conflict(f"the append holds two results for tool call {min(twice)!r}")
        named.update(name for name in (row.parent_id, row.redacts) if name is not None and name not in inside)
        inside.add(row.id)
        calls.update(row.results)
        rows.append(row)
    created = sortable(entries[0].timestamp)
    updated = created if len(entries) == 1 else sortable(entries[-1].timestamp)
    return Draft(session_id, tuple(rows), bodies, frozenset(named), frozenset(calls), created, updated)


@lru_cache  # the same few sessions are asked about again and again
def _fits(session_id: str) -> bool:
    return 0 < len(quote(session_id, safe="", errors="replace")) <= _ID_LIMIT


def _check_place(session_id: str, seq: int, entry: Entry) -> None:
    if entry.session_id != session_id:
        raise invalid(f"entry {entry.id!r} is of session {entry.session_id!r}, not of {session_id!r}")
    if entry.seq != seq:
        raise invalid(f"entry {entry.id!r} has seq {entry.seq} where {seq} follows")
    if not entry.id:
        raise invalid(f"the entry with seq {seq} has no id")
    if seq == 1 and not (isinstance(entry.fact, SessionHeader) and entry.parent_id is None):
        raise invalid("a session begins with a session_header that has no parent")
    if seq > 1 and entry.parent_id is None:
        raise invalid(f"entry {entry.id!r} has no parent, and only the first has none")


def _row(entry: Entry, bodies: dict[str, bytes]) -> Row:
    try:
        whole = wire.encode(entry)
    except PartValidationError as error:
        raise invalid(f"entry {entry.id!r} cannot be stored: {error}", error) from error
    fact = entry.fact
    text, cut_out = cut(whole)
    bodies.update(cut_out)
    return Row(
        seq=entry.seq,
        id=entry.id,
        parent_id=entry.parent_id,
        run_id=entry.run_id,
        kind=fact.kind,
        timestamp=time_text(entry.timestamp),
        text=text,
        is_cut=text is not whole and text != whole,
        results=results_of(fact),
        spend=spend_of(fact),
        words=" ".join(words(text_of(fact))),
        redacts=fact.entry_id if isinstance(fact, Redaction) else None,
        title=fact.title if isinstance(fact, SessionHeader) else None,
    )


def admit(draft: Draft, present: Present, expected_tail: str | None, lease: Lease | None) -> tuple[Row, ...]:
    """The rows that are new; raises `Conflict` or `NotFound` and then nothing may be stored."""
    tail = present.tail
    known = list(takewhile(lambda row: present.texts.get(row.id) == row.text, draft.rows))
    new = draft.rows[len(known) :]
    if not new:
        return ()
    if tail is None and (expected_tail is not None or new[0].seq != 1):
        raise no_session(draft.session_id)
    check_fence(draft.session_id, lease, present.held)
    _check_tail(draft.session_id, new[0].seq, tail, known[-1].id if known else expected_tail)
    for row in new:
        if row.id in present.texts:
            raise Conflict(f"entry {row.id!r} is there with other content", tail=_id(tail))
    if missing := draft.named - present.seqs.keys():
        raise NotFound(f"entry {min(missing)!r}, which the append names, is not in session {draft.session_id!r}")
    ended = [call for row in new for call in row.results if call in present.results]
    if ended:
        raise Conflict(f"tool call {ended[0]!r} has a result already", tail=_id(tail))
    return new


def jumps_of(draft: Draft, new: Sequence[Row], present: Present) -> list[tuple[int, int]]:
    """The new rows that do not follow the entry before them: their seq, and their parent's (bartack.store.index)."""
    seqs = {**present.seqs, **{row.id: row.seq for row in draft.rows}}
    parents = [(row.seq, seqs[row.parent_id]) for row in new if row.parent_id is not None]
    return [(seq, parent_seq) for seq, parent_seq in parents if parent_seq != seq - 1]


def _check_tail(session_id: str, seq: int, tail: Tail | None, expected: str | None) -> None:
    if tail is not None and expected is None and seq == 1:
        raise Conflict(f"session {session_id!r} is there already", tail=tail.entry_id)
    if _id(tail) != expected:
        raise Conflict(f"the last entry is {_id(tail)!r}, not {expected!r}", tail=_id(tail))
    following = 1 if tail is None else tail.seq + 1
    if seq != following:
        raise Conflict(f"seq {following} comes next, not {seq}", tail=_id(tail))


def check_fence(session_id: str, lease: Lease | None, held: Lease | None) -> None:
    """`Conflict` for a lease that is not the session's current one."""
    if lease is None:
        return
    if lease.session_id != session_id:
        raise invalid(f"the lease is for session {lease.session_id!r}, not for {session_id!r}")
    if held is None or (lease.epoch, lease.owner) != (held.epoch, held.owner):
        now = f"{held.owner!r} holds epoch {held.epoch}" if held is not None and held.owner else "nobody holds one"
        raise Conflict(f"the lease of {lease.owner!r} (epoch {lease.epoch}) is over: {now}")


def check_drop(tail: Tail, expected: str | None) -> None:
    """`Conflict` where a session that is to go has grown."""
    if expected is not None and tail.entry_id != expected:
        raise Conflict(f"the last entry is {tail.entry_id!r}, not {expected!r}", tail=tail.entry_id)


def taken_lease(session_id: str, owner: str, now: datetime, ttl: float, held: Lease | None) -> Lease:
    """The lease that `owner` gets now, after `held`; `Conflict` while another one's runs."""
    if not owner or ttl <= 0:
        raise invalid(f"a lease has an owner and a time to live, not {owner!r} and {ttl} s")
    if held is not None and held.owner not in ("", owner) and now < held.expires_at:
        until = held.expires_at.isoformat()
        raise Conflict(f"{held.owner!r} holds the lease of session {session_id!r} until {until}")
    return Lease(session_id, owner, 1 if held is None else held.epoch + 1, now + timedelta(seconds=ttl))


def renewed_lease(lease: Lease, now: datetime, ttl: float, held: Lease | None) -> Lease:
    """The same lease with a later end; `Conflict` where it is no longer the current one."""
    check_fence(lease.session_id, lease, held)
    return replace(lease, expires_at=now + timedelta(seconds=ttl))


def invalid(message: str, cause: Exception | None = None) -> StoreError:
    """What was given is wrong, whatever the store holds."""
    return StoreError(message, code=ErrorCode.INVALID_VALUE, cause=cause)


def no_session(session_id: str) -> NotFound:
    """There is no such session."""
    return NotFound(f"there is no session {session_id!r}")


def time_text(time: datetime) -> str:
    """A time as the canonical JSON writes it."""
    return str(write_time_text(time))


def _id(tail: Tail | None) -> str | None:
    return None if tail is None else tail.entry_id
