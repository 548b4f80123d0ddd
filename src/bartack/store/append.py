"""The rules of appends and leases, applied here for every store; a store only looks up and inserts.

An append is checked in two steps, because the store looks up what exists in between, inside its own transaction:

    batch = prepare(session_id, entries)                    # the batch alone: shape, JSON, blobs
    existing = ...                                          # the store looks up batch.ids, .references and .calls
    checked = check_append(batch, existing, expected_tail, permit, now)    # the rows to insert and the lease to set

`check_append` checks, in this order: whether all entries are stored already (then the append succeeds regardless of the
rest); that the writer may append; that the tail is the expected one; that each id is new; that each parent and each
redacted entry exists; and that each tool call gets its first result.

Who may append. A lease makes it unlikely that two runs write to one session. Its epoch, the fence, makes it impossible:
an append whose lease is not the current one is refused. A claim takes the lease in the same transaction, so a run that
does not get it leaves no trace. Everyone else may append anything while no lease is held, and only `REQUESTS` while one
is: the log is the inbox of the run that holds it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import takewhile
from typing import Final, NamedTuple
from urllib.parse import quote

from msgspec import Struct, field
from msgspec.structs import replace

from bartack.nouns import wire
from bartack.nouns.entries import (
    AbortRequested,
    ApprovalDecided,
    Custom,
    Entry,
    MessageQueued,
    ModelChange,
    Redaction,
    ResultPosted,
    SessionHeader,
)
from bartack.nouns.errors import Conflict, LeaseLost, PartValidationError, SessionInUse
from bartack.nouns.messages import Message
from bartack.session.title import title_of
from bartack.store.blobs import extract
from bartack.store.checksums import chain, digest_of
from bartack.store.errors import invalid, newer_session, no_entry, no_session
from bartack.store.holder import is_dead
from bartack.store.index import results_of, spend_of, text_of
from bartack.store.search import sortable
from bartack.store.session_store import Claim, Lease, ModelSpend, Tail

__all__ = [
    "REQUESTS",
    "Batch",
    "CheckedAppend",
    "Clock",
    "Existing",
    "Permit",
    "Row",
    "branch_starts_of",
    "check_append",
    "check_drop",
    "check_fence",
    "check_id",
    "prepare",
    "release_lease",
    "renew_lease",
    "row_of",
    "take_lease",
]

# What anyone may append while a run holds the lease.
REQUESTS: Final = (MessageQueued, ApprovalDecided, ResultPosted, AbortRequested, ModelChange, Redaction, Custom)

Permit = Lease | Claim | None  # what an append is made with
Clock = Callable[[], datetime]

_ID_LIMIT = 240  # bytes; in a JSONL store the id of a session is part of a file name


class Row(NamedTuple):
    """One entry as it is stored, with the data derived from it."""

    seq: int
    id: str
    parent_id: str | None
    text: bytes  # canonical JSON after `extract`
    digest: bytes  # of the canonical JSON (see bartack.store.checksums)
    needs_restore: bool
    results: tuple[str, ...]  # the tool calls that get their result
    spend: ModelSpend | None
    searched: str  # the text that a search finds
    redacts: str | None  # the id of the entry that this one redacts
    title: str | None  # that the session has from this entry on
    is_request: bool
    checksum: bytes = b""  # known once `check_append` has seen the entry before it


class Batch(Struct, frozen=True, gc=False):
    """The entries of one append, each of them valid, and what to look up before they can be stored."""

    session_id: str
    rows: tuple[Row, ...]
    blobs: Mapping[str, bytes]
    references: frozenset[str]  # entry ids outside the batch: parents and redacted entries
    calls: frozenset[str]  # tool calls that get their result
    created: str  # the time of the first entry, and of the last, as `sortable` text
    updated: str

    @property
    def ids(self) -> list[str]:
        return [row.id for row in self.rows]

    @property
    def tail(self) -> Tail:
        """The session's tail once the batch is stored."""
        return Tail(self.rows[-1].id, self.rows[-1].seq)


class Existing(Struct, frozen=True, gc=False):
    """What a store found of the session, as far as the batch is concerned."""

    tail: Tail | None  # None: the session does not exist
    texts: Mapping[str, bytes] = field(default_factory=dict)  # stored text of the batch's ids
    seqs: Mapping[str, int] = field(default_factory=dict)  # of the batch's references
    results: Collection[str] = ()  # the batch's calls that have a result
    lease: Lease | None = None  # the current lease; a released one has no owner
    number: int = 0  # of the session's row, in SQLite
    checksum: bytes = b""  # of the tail


def prepare(session_id: str, entries: Sequence[Entry]) -> Batch:
    """The entries, ready to be stored.

    Raises:
        StoreError: The batch is invalid, whatever is stored (code ``invalid_value``).
    """
    if not entries:
        raise invalid("An append needs at least one entry.")
    check_id(session_id)
    blobs: dict[str, bytes] = {}
    rows: list[Row] = []
    calls: set[str] = set()
    references: set[str] = set()
    ids: set[str] = set()
    for offset, entry in enumerate(entries):
        _check_shape(session_id, entries[0].seq + offset, entry)
        row = row_of(entry, blobs)
        if row.id in ids:
            raise invalid(f"Entry id {row.id!r} occurs twice in one append.")
        for call in row.results:
            if call in calls:
                raise Conflict(f"The append has two results for tool call {call!r}.")
        for name in (row.parent_id, row.redacts):
            if name is not None and name not in ids:
                references.add(name)
        ids.add(row.id)
        calls.update(row.results)
        rows.append(row)
    created = sortable(entries[0].timestamp)
    updated = created if len(entries) == 1 else sortable(entries[-1].timestamp)
    return Batch(session_id, tuple(rows), blobs, frozenset(references), frozenset(calls), created, updated)


@lru_cache  # the same few sessions are appended to again and again
def is_valid_id(session_id: str) -> bool:
    """Whether a session can have this id."""
    return 0 < len(quote(session_id, safe="", errors="replace")) <= _ID_LIMIT


def check_id(session_id: str) -> None:
    """`StoreError` with the code ``invalid_value`` if no session can have this id."""
    if not is_valid_id(session_id):
        raise invalid(f"Invalid session id {session_id[:20]!r}...: it must have 1 to {_ID_LIMIT} bytes, URL-encoded.")


def _check_shape(session_id: str, seq: int, entry: Entry) -> None:
    if entry.session_id != session_id:
        raise invalid(f"Entry {entry.id!r} belongs to session {entry.session_id!r}, not to {session_id!r}.")
    if entry.seq != seq:
        raise invalid(f"Entry {entry.id!r} has seq {entry.seq}, expected {seq}.")
    if not entry.id:
        raise invalid(f"The entry with seq {seq} has no id.")
    if seq == 1 and not (isinstance(entry.fact, SessionHeader) and entry.parent_id is None):
        raise invalid("The first entry of a session must be a session_header without a parent.")
    if isinstance(entry.fact, SessionHeader) and entry.fact.version > SessionHeader().version:
        raise newer_session(session_id, entry.fact.version)
    if isinstance(entry.fact, Message) and entry.fact.role == "tool" and not entry.fact.parts:
        raise invalid(f"Entry {entry.id!r} is a tool message without a result.")
    if seq > 1 and entry.parent_id is None:
        raise invalid(f"Entry {entry.id!r} has no parent; only the first entry may have none.")


def row_of(entry: Entry, blobs: dict[str, bytes]) -> Row:
    """The entry as it is stored; adds to `blobs` what was taken out of it. Raises `StoreError`."""
    try:
        whole = wire.encode(entry)
    except PartValidationError as error:
        raise invalid(f"Entry {entry.id!r} cannot be stored: {error}", error) from error
    fact = entry.fact
    text, extracted = extract(whole)
    blobs.update(extracted)
    return Row(
        seq=entry.seq,
        id=entry.id,
        parent_id=entry.parent_id,
        text=text,
        digest=digest_of(whole),
        needs_restore=text is not whole and text != whole,
        results=results_of(fact),
        spend=spend_of(fact),
        searched=text_of(fact),
        redacts=fact.entry_id if isinstance(fact, Redaction) else None,
        title=title_of(fact),
        is_request=isinstance(fact, REQUESTS),
    )


class CheckedAppend(NamedTuple):
    """What a store writes for an append."""

    rows: tuple[Row, ...]  # those that are new
    lease: Lease | None  # that a claim has taken


def check_append(
    batch: Batch, existing: Existing, expected_tail: str | None, permit: Permit, now: Clock
) -> CheckedAppend:
    """What to write; raises `Conflict` or `NotFound` if the batch must not be stored."""
    tail = existing.tail
    texts = existing.texts
    stored = list(takewhile(lambda row: texts.get(row.id) == row.text, batch.rows)) if texts else []
    new = batch.rows[len(stored) :]
    if not new:
        return CheckedAppend((), _claimed_again(batch.session_id, permit, now, existing.lease))
    if tail is None and (expected_tail is not None or new[0].seq != 1):
        raise no_session(batch.session_id)
    expected = stored[-1].id if stored else expected_tail
    lease = _check_permit(batch.session_id, new, expected, permit, now=now, held=existing.lease)
    _check_tail(batch.session_id, new[0].seq, tail, expected)
    for row in new if texts else ():
        if row.id in texts:
            raise Conflict(f"Entry {row.id!r} is already stored with different content.", tail=_id(tail))
    if missing := batch.references - existing.seqs.keys():
        raise no_entry(batch.session_id, min(missing))
    for row in new if existing.results else ():
        for call in row.results:
            if call in existing.results:
                raise Conflict(f"Tool call {call!r} already has a result.", tail=_id(tail))
    return CheckedAppend(_chained(new, existing.checksum), lease)


def _check_permit(
    session_id: str, new: Sequence[Row], expected: str | None, permit: Permit, *, now: Clock, held: Lease | None
) -> Lease | None:
    """The lease that a claim takes. Raises `LeaseLost` or `SessionInUse`."""
    match permit:
        case Lease():
            check_fence(session_id, permit, held)
            return None
        case Claim():
            return take_lease(session_id, permit, now(), held)
        case None:
            if held is not None and not _are_requests(new, expected) and _is_held(held, time := now()):
                raise _in_use(held, time)
            return None


def _are_requests(rows: Sequence[Row], expected: str | None) -> bool:
    """Whether all are requests, and each follows the entry before it: a request must be on the branch of the run."""
    previous = [expected, *(row.id for row in rows)]
    return all(row.is_request and row.parent_id == parent for row, parent in zip(rows, previous, strict=False))


def _claimed_again(session_id: str, permit: Permit, now: Clock, held: Lease | None) -> Lease | None:
    """The lease of a claim whose entries are all stored: most likely by its first attempt."""
    if not isinstance(permit, Claim):
        return None
    if held is not None and held.owner == permit.owner:
        return _renewed(held, now(), permit.ttl_s)
    return take_lease(session_id, permit, now(), held)


def _chained(rows: Sequence[Row], checksum: bytes) -> tuple[Row, ...]:
    chained: list[Row] = []
    for row in rows:
        checksum = chain(checksum, row.digest)
        chained.append(Row._make((*row[:-1], checksum)))  # `_replace` takes four times as long
    return tuple(chained)


def branch_starts_of(batch: Batch, new: Sequence[Row], existing: Existing) -> list[tuple[int, int]]:
    """The new rows whose parent is not the previous entry, as (seq, parent's seq) (see bartack.store.index)."""
    jumps: list[tuple[int, str]] = []
    previous = _id(existing.tail)
    for row in new:
        if row.parent_id != previous and row.parent_id is not None:
            jumps.append((row.seq, row.parent_id))
        previous = row.id
    if not jumps:
        return []
    seqs = {**existing.seqs, **{row.id: row.seq for row in batch.rows}}
    return [(seq, seqs[parent_id]) for seq, parent_id in jumps]


def _check_tail(session_id: str, seq: int, tail: Tail | None, expected: str | None) -> None:
    if tail is not None and expected is None and seq == 1:
        raise Conflict(f"Session {session_id!r} already exists.", tail=tail.entry_id)
    if _id(tail) != expected:
        raise Conflict(
            f"The last entry of session {session_id!r} is {_id(tail)!r}, expected {expected!r}.", tail=_id(tail)
        )
    following = 1 if tail is None else tail.seq + 1
    if seq != following:
        raise Conflict(f"The next seq of session {session_id!r} is {following}, got {seq}.", tail=_id(tail))


def check_drop(session_id: str, tail: Tail, expected: str | None) -> None:
    """Raise `Conflict` for a session that has grown since it was chosen to be dropped."""
    if expected is not None:
        _check_tail(session_id, tail.seq + 1, tail, expected)


def _id(tail: Tail | None) -> str | None:
    return None if tail is None else tail.entry_id


# -- leases


def take_lease(session_id: str, claim: Claim, now: datetime, held: Lease | None) -> Lease:
    """The lease that the claim gets after `held`; `SessionInUse` while another owner holds that."""
    if not claim.owner or claim.ttl_s <= 0:
        raise invalid(f"A lease needs an owner and a positive ttl, got {claim.owner!r} and {claim.ttl_s} s.")
    is_own = held is not None and held.owner == claim.owner
    if held is not None and not is_own and not claim.takeover and _is_held(held, now):
        raise _in_use(held, now)
    epoch = 1 if held is None else held.epoch + 1
    expires_at = now + timedelta(seconds=claim.ttl_s)
    return Lease(session_id, claim.owner, epoch, expires_at, claim.ttl_s, claim.holder)


def _is_held(lease: Lease, now: datetime) -> bool:
    """Whether the lease has an owner that may be alive.

    If a lease has more time left than its duration, the clock was set back after it was taken. When it really expires
    is unknown, so it counts as expired; the fence still protects the session.
    """
    left_s = (lease.expires_at - now).total_seconds()
    return bool(lease.owner) and 0 < left_s <= lease.ttl_s and not is_dead(lease.holder)


def held_lease(lease: Lease | None, now: datetime) -> Lease | None:
    """The lease if it is held; None if there is none, or it has been released or has expired."""
    return lease if lease is not None and _is_held(lease, now) else None


def _in_use(held: Lease, now: datetime) -> SessionInUse:
    left_s = (held.expires_at - now).total_seconds()
    return SessionInUse(
        f"Session {held.session_id!r} is in use by {held.owner} ({held.holder}); its lease expires in {left_s:.0f} s "
        "unless it is renewed. Wait for it to finish, or take over the session with takeover=True.",
        owner=held.owner,
        expires_in_s=left_s,
    )


def renew_lease(lease: Lease, now: datetime, ttl_s: float, held: Lease | None) -> Lease:
    """The same lease, expiring later; `LeaseLost` if it is no longer the current one."""
    check_fence(lease.session_id, lease, held)
    return _renewed(lease, now, ttl_s)


def _renewed(lease: Lease, now: datetime, ttl_s: float) -> Lease:
    """The lease, expiring `ttl_s` seconds from now."""
    return replace(lease, expires_at=now + timedelta(seconds=ttl_s), ttl_s=ttl_s)


def release_lease(lease: Lease, held: Lease | None) -> Lease | None:
    """The lease without an owner, which keeps its epoch; None if it is no longer the current one."""
    return replace(lease, owner="") if _is_current(lease, held) else None


def check_fence(session_id: str, lease: Lease, held: Lease | None) -> None:
    """Raise `LeaseLost` for a lease that is not the session's current one."""
    if lease.session_id != session_id:
        raise invalid(f"The lease is for session {lease.session_id!r}, not for {session_id!r}.")
    if not _is_current(lease, held):
        now = f"{held.owner} has it now" if held is not None and held.owner else "nothing holds it now"
        raise LeaseLost(f"The lease of {lease.owner} on session {session_id!r} (epoch {lease.epoch}) was lost: {now}.")


def _is_current(lease: Lease, held: Lease | None) -> bool:
    return held is not None and (lease.epoch, lease.owner) == (held.epoch, held.owner)
