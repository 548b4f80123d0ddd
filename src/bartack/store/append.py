"""The rules of appends and leases, applied here for every store; a store only looks up and inserts.

An append is checked in two steps, because the store looks up what exists in between, inside its own transaction:

    batch = prepare(session_id, entries)                    # the batch alone: shape, JSON, blobs
    existing = ...                                          # the store looks up batch.ids, .references and .calls
    rows = check_append(batch, existing, expected_tail, lease)    # the rows to insert; none if all are stored already

`check_append` checks, in this order: whether all entries are stored already (then the append succeeds regardless of the
rest); that the lease is current; that the tail is the expected one; that each id is new; that each parent and each
redacted entry exists; and that each tool call gets its first result.

A lease makes it unlikely that two runs write to one session. Its epoch, the fence, makes it impossible: an append whose
lease is not the current one is refused.
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
from bartack.nouns.errors import Conflict, PartValidationError
from bartack.store.blobs import extract
from bartack.store.checksums import chain, digest_of
from bartack.store.errors import invalid, no_entry, no_session
from bartack.store.index import results_of, spend_of, text_of
from bartack.store.search import sortable, words
from bartack.store.session_store import Lease, ModelSpend, Tail

__all__ = [
    "Batch",
    "Existing",
    "Row",
    "branch_starts_of",
    "check_append",
    "check_drop",
    "prepare",
    "release_lease",
    "renew_lease",
    "take_lease",
]

_ID_LIMIT = 240  # bytes; in a JSONL store the id of a session is part of a file name


class Row(NamedTuple):
    """One entry as it is stored, with what is stored beside it."""

    seq: int
    id: str
    parent_id: str | None
    text: bytes  # canonical JSON after `extract`
    digest: bytes  # of the canonical JSON (see bartack.store.checksums)
    needs_restore: bool
    results: tuple[str, ...]  # the tool calls that get their result
    spend: ModelSpend | None
    words: str  # for the full-text index
    redacts: str | None  # the id of the entry that this one redacts
    title: str | None
    checksum: bytes = b""  # known once `check_append` has seen the entry before it


class Batch(Struct, frozen=True):
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


class Existing(Struct, frozen=True):
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
    if not _is_valid_id(session_id):
        raise invalid(f"Invalid session id {session_id[:20]!r}...: it must have 1 to {_ID_LIMIT} bytes, URL-encoded.")
    blobs: dict[str, bytes] = {}
    rows: list[Row] = []
    calls: set[str] = set()
    references: set[str] = set()
    ids: set[str] = set()
    for offset, entry in enumerate(entries):
        _check_shape(session_id, entries[0].seq + offset, entry)
        row = _row(entry, blobs)
        if row.id in ids:
            raise invalid(f"Entry id {row.id!r} occurs twice in one append.")
        if repeated := calls.intersection(row.results):
            raise Conflict(f"The append has two results for tool call {min(repeated)!r}.")
        references.update(name for name in (row.parent_id, row.redacts) if name is not None and name not in ids)
        ids.add(row.id)
        calls.update(row.results)
        rows.append(row)
    created = sortable(entries[0].timestamp)
    updated = created if len(entries) == 1 else sortable(entries[-1].timestamp)
    return Batch(session_id, tuple(rows), blobs, frozenset(references), frozenset(calls), created, updated)


@lru_cache  # the same few sessions are appended to again and again
def _is_valid_id(session_id: str) -> bool:
    return 0 < len(quote(session_id, safe="", errors="replace")) <= _ID_LIMIT


def _check_shape(session_id: str, seq: int, entry: Entry) -> None:
    if entry.session_id != session_id:
        raise invalid(f"Entry {entry.id!r} belongs to session {entry.session_id!r}, not to {session_id!r}.")
    if entry.seq != seq:
        raise invalid(f"Entry {entry.id!r} has seq {entry.seq}, expected {seq}.")
    if not entry.id:
        raise invalid(f"The entry with seq {seq} has no id.")
    if seq == 1 and not (isinstance(entry.fact, SessionHeader) and entry.parent_id is None):
        raise invalid("The first entry of a session must be a session_header without a parent.")
    if seq > 1 and entry.parent_id is None:
        raise invalid(f"Entry {entry.id!r} has no parent; only the first entry may have none.")


def _row(entry: Entry, blobs: dict[str, bytes]) -> Row:
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
        words=" ".join(words(text_of(fact))),
        redacts=fact.entry_id if isinstance(fact, Redaction) else None,
        title=fact.title if isinstance(fact, SessionHeader) else None,
    )


def check_append(batch: Batch, existing: Existing, expected_tail: str | None, lease: Lease | None) -> tuple[Row, ...]:
    """The rows to insert; raises `Conflict` or `NotFound` if the batch must not be stored."""
    tail = existing.tail
    stored = list(takewhile(lambda row: existing.texts.get(row.id) == row.text, batch.rows))
    new = batch.rows[len(stored) :]
    if not new:
        return ()
    if tail is None and (expected_tail is not None or new[0].seq != 1):
        raise no_session(batch.session_id)
    _check_fence(batch.session_id, lease, existing.lease)
    _check_tail(batch.session_id, new[0].seq, tail, stored[-1].id if stored else expected_tail)
    for row in new:
        if row.id in existing.texts:
            raise Conflict(f"Entry {row.id!r} is already stored with other content.", tail=_id(tail))
    if missing := batch.references - existing.seqs.keys():
        raise no_entry(batch.session_id, min(missing))
    for row in new:
        for call in row.results:
            if call in existing.results:
                raise Conflict(f"Tool call {call!r} already has a result.", tail=_id(tail))
    return _chained(new, existing.checksum)


def _chained(rows: Sequence[Row], checksum: bytes) -> tuple[Row, ...]:
    chained: list[Row] = []
    for row in rows:
        checksum = chain(checksum, row.digest)
        chained.append(row._replace(checksum=checksum))
    return tuple(chained)


def branch_starts_of(batch: Batch, new: Sequence[Row], existing: Existing) -> list[tuple[int, int]]:
    """The new rows whose parent is not the previous entry, as (seq, parent's seq) (see bartack.store.index)."""
    seqs = {**existing.seqs, **{row.id: row.seq for row in batch.rows}}
    parents = [(row.seq, seqs[row.parent_id]) for row in new if row.parent_id is not None]
    return [(seq, parent_seq) for seq, parent_seq in parents if parent_seq != seq - 1]


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


def take_lease(session_id: str, owner: str, now: datetime, ttl: float, held: Lease | None) -> Lease:
    """The lease that `owner` gets after `held`; `Conflict` while another owner holds an unexpired one."""
    if not owner or ttl <= 0:
        raise invalid(f"A lease needs an owner and a positive ttl, got {owner!r} and {ttl} s.")
    if held is not None and held.owner not in ("", owner) and now < held.expires_at:
        left = (held.expires_at - now).total_seconds()
        raise Conflict(f"Session {session_id!r} is in use by {held.owner!r} (lease expires in {left:.0f} s).")
    return Lease(session_id, owner, 1 if held is None else held.epoch + 1, now + timedelta(seconds=ttl))


def renew_lease(lease: Lease, now: datetime, ttl: float, held: Lease | None) -> Lease:
    """The same lease, expiring later; `Conflict` if it is no longer the current one."""
    _check_fence(lease.session_id, lease, held)
    return replace(lease, expires_at=now + timedelta(seconds=ttl))


def release_lease(lease: Lease, held: Lease | None) -> Lease | None:
    """The lease without an owner, which keeps its epoch; None if it is no longer the current one."""
    return replace(lease, owner="") if _is_current(lease, held) else None


def _check_fence(session_id: str, lease: Lease | None, held: Lease | None) -> None:
    """Raise `Conflict` for a lease that is not the session's current one."""
    if lease is None:
        return
    if lease.session_id != session_id:
        raise invalid(f"The lease is for session {lease.session_id!r}, not for {session_id!r}.")
    if not _is_current(lease, held):
        now = f"{held.owner!r} holds epoch {held.epoch}" if held is not None and held.owner else "it has no owner now"
        raise Conflict(f"The lease of {lease.owner!r} on session {session_id!r} (epoch {lease.epoch}) was lost: {now}.")


def _is_current(lease: Lease, held: Lease | None) -> bool:
    return held is not None and (lease.epoch, lease.owner) == (held.epoch, held.owner)
