"""The rules of appends, applied here for every store; a store only looks up and inserts.

An append is checked in two steps, because the store looks up what exists in between, inside its own transaction:

    batch = prepare(session_id, entries)                    # the batch alone: shape, JSON, blobs
    existing = ...                                          # the store looks up batch.ids, .references and .calls
    checked = check_append(batch, existing, expected_tail, permit, clock)    # the rows to insert and the lease to set

`check_append` checks, in this order: whether all entries are stored already (then the append succeeds regardless of the
rest); that the writer may append; that the tail is the expected one; that each id is new; that each parent and each
redacted entry exists; and that each tool call gets its first result.

Who may append. The owner of the session's lease may, as long as the lease is the current one (bartack.store.leases). A
claim takes the lease in the same transaction, so a run that does not get it leaves no trace. Everyone else may append
anything while no lease is held, and only `REQUESTS` while one is: the log is the inbox of the run that holds it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Final, NamedTuple
from urllib.parse import quote

from msgspec import Struct, field

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
from bartack.nouns.errors import Conflict, PartValidationError
from bartack.nouns.messages import Message
from bartack.session.title import title_of
from bartack.store.blobs import extract_blobs
from bartack.store.checksums import chain, digest_of
from bartack.store.errors import (
    entry_not_found_error,
    invalid_value_error,
    newer_session_error,
    session_not_found_error,
)
from bartack.store.index import results_of, spend_of, text_of
from bartack.store.leases import Claim, Lease, Moment, check_fence, extended, is_held, session_in_use_error, take_lease
from bartack.store.search import sortable
from bartack.store.session_store import ModelSpend, Tail

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
    "check_id",
    "prepare",
    "row_of",
]

# What anyone may append while a run holds the lease.
REQUESTS: Final = (MessageQueued, ApprovalDecided, ResultPosted, AbortRequested, ModelChange, Redaction, Custom)

Permit = Lease | Claim | None  # what an append is made with
Clock = Callable[[], Moment]

_ID_LIMIT = 240  # bytes; in a JSONL store the id of a session is part of a file name


class Row(NamedTuple):
    """One entry as it is stored, with the data derived from it."""

    seq: int
    id: str
    parent_id: str | None
    text: bytes  # canonical JSON after `extract_blobs`
    digest: bytes  # the digest of the canonical JSON (see bartack.store.checksums)
    needs_restore: bool
    results: tuple[str, ...]  # the tool calls that get their result
    spend: ModelSpend | None
    searched: str  # the text that a search finds
    redacts: str | None  # the id of the entry that this one redacts
    title: str | None  # the title of the session from this entry on
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
    seqs: Mapping[str, int] = field(default_factory=dict)  # entry id -> seq, for the references of the batch
    results: Collection[str] = ()  # the batch's calls that have a result
    lease: Lease | None = None  # the current lease; a released one has no owner
    number: int = 0  # the number of the session's row, in SQLite
    checksum: bytes = b""  # the checksum of the tail


def prepare(session_id: str, entries: Sequence[Entry]) -> Batch:
    """The entries, ready to be stored.

    Raises:
        StoreError: The batch is invalid, whatever is stored (code ``invalid_value``).
    """
    if not entries:
        raise invalid_value_error("An append needs at least one entry.")
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
            raise invalid_value_error(f"Entry id {row.id!r} occurs twice in one append.")
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
        raise invalid_value_error(
            f"Invalid session id {session_id[:20]!r}...: it must have 1 to {_ID_LIMIT} bytes, URL-encoded."
        )


def _check_shape(session_id: str, seq: int, entry: Entry) -> None:
    if entry.session_id != session_id:
        raise invalid_value_error(f"Entry {entry.id!r} belongs to session {entry.session_id!r}, not to {session_id!r}.")
    if entry.seq != seq:
        raise invalid_value_error(f"Entry {entry.id!r} has seq {entry.seq}, expected {seq}.")
    if not entry.id:
        raise invalid_value_error(f"The entry with seq {seq} has no id.")
    if seq == 1 and not (isinstance(entry.fact, SessionHeader) and entry.parent_id is None):
        raise invalid_value_error("The first entry of a session must be a session_header without a parent.")
    if isinstance(entry.fact, SessionHeader) and entry.fact.version > SessionHeader().version:
        raise newer_session_error(session_id, entry.fact.version)
    if isinstance(entry.fact, Message) and entry.fact.role == "tool" and not entry.fact.parts:
        raise invalid_value_error(f"Entry {entry.id!r} is a tool message without a result.")
    if seq > 1 and entry.parent_id is None:
        raise invalid_value_error(f"Entry {entry.id!r} has no parent; only the first entry may have none.")


def row_of(entry: Entry, blobs: dict[str, bytes]) -> Row:
    """The entry as it is stored; adds to `blobs` what was taken out of it. Raises `StoreError`."""
    try:
        canonical = wire.encode(entry)
    except PartValidationError as error:
        raise invalid_value_error(f"Entry {entry.id!r} cannot be stored: {error}", error) from error
    fact = entry.fact
    text, extracted = extract_blobs(canonical)
    blobs.update(extracted)
    return Row(
        seq=entry.seq,
        id=entry.id,
        parent_id=entry.parent_id,
        text=text,
        digest=digest_of(canonical),
        needs_restore=text is not canonical and text != canonical,
        results=results_of(fact),
        spend=spend_of(fact),
        searched=text_of(fact),
        redacts=fact.entry_id if isinstance(fact, Redaction) else None,
        title=title_of(fact),
        is_request=isinstance(fact, REQUESTS),
    )


class CheckedAppend(NamedTuple):
    """What a store writes for an append."""

    rows: tuple[Row, ...]  # the rows that are not stored yet
    lease: Lease | None  # the lease that a claim has taken


def check_append(
    batch: Batch, existing: Existing, expected_tail: str | None, permit: Permit, clock: Clock
) -> CheckedAppend:
    """What to write; raises `Conflict` or `NotFound` if the batch must not be stored."""
    tail = existing.tail
    texts = existing.texts
    stored = list(takewhile(lambda row: texts.get(row.id) == row.text, batch.rows)) if texts else []
    new_rows = batch.rows[len(stored) :]
    if not new_rows:
        return CheckedAppend((), _claimed_again(batch.session_id, permit, clock, existing.lease))
    if tail is None and (expected_tail is not None or new_rows[0].seq != 1):
        raise session_not_found_error(batch.session_id)
    expected = stored[-1].id if stored else expected_tail
    lease = _check_permit(batch.session_id, new_rows, expected, permit, clock=clock, current_lease=existing.lease)
    _check_tail(batch.session_id, new_rows[0].seq, tail, expected)
    for row in new_rows if texts else ():
        if row.id in texts:
            raise Conflict(f"Entry {row.id!r} is already stored with different content.", tail=_id(tail))
    if missing := batch.references - existing.seqs.keys():
        raise entry_not_found_error(batch.session_id, min(missing))
    for row in new_rows if existing.results else ():
        for call in row.results:
            if call in existing.results:
                raise Conflict(f"Tool call {call!r} already has a result.", tail=_id(tail))
    return CheckedAppend(_chained(new_rows, existing.checksum), lease)


def _check_permit(
    session_id: str,
    new_rows: Sequence[Row],
    expected: str | None,
    permit: Permit,
    *,
    clock: Clock,
    current_lease: Lease | None,
) -> Lease | None:
    """The lease that a claim takes. Raises `LeaseLost` or `SessionInUse`."""
    match permit:
        case Lease():
            check_fence(session_id, permit, current_lease)
            return None
        case Claim():
            return take_lease(session_id, permit, clock(), current_lease)
        case None:
            if current_lease is None or _are_requests(new_rows, expected):
                return None
            if is_held(current_lease, now := clock()):
                raise session_in_use_error(current_lease, now)
            return None


def _are_requests(rows: Sequence[Row], expected: str | None) -> bool:
    """Whether all are requests, and each follows the entry before it: a request must be on the branch of the run."""
    previous = [expected, *(row.id for row in rows)]
    return all(row.is_request and row.parent_id == parent for row, parent in zip(rows, previous, strict=False))


def _claimed_again(session_id: str, permit: Permit, clock: Clock, current_lease: Lease | None) -> Lease | None:
    """The lease of a claim whose entries are all stored: most likely by its first attempt."""
    if not isinstance(permit, Claim):
        return None
    if current_lease is not None and current_lease.owner == permit.owner:
        return extended(current_lease, clock(), permit.ttl_s)
    return take_lease(session_id, permit, clock(), current_lease)


def _chained(rows: Sequence[Row], checksum: bytes) -> tuple[Row, ...]:
    chained: list[Row] = []
    for row in rows:
        checksum = chain(checksum, row.digest)
        chained.append(Row._make((*row[:-1], checksum)))  # `_replace` takes four times as long
    return tuple(chained)


def branch_starts_of(batch: Batch, new_rows: Sequence[Row], existing: Existing) -> list[tuple[int, int]]:
    """The new rows whose parent is not the previous entry, as (seq, parent's seq) (see bartack.store.index)."""
    jumps: list[tuple[int, str]] = []
    previous = _id(existing.tail)
    for row in new_rows:
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
