"""What an append looks up and what it inserts, for whole groups of appends: one statement each."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from bartack.nouns import wire
from bartack.nouns.json_values import json_text
from bartack.store.append import Batch, Clock, Existing, Row, branch_starts_of
from bartack.store.blobs import referenced
from bartack.store.checksums import seal, unseal
from bartack.store.index import model_key
from bartack.store.leases import Moment
from bartack.store.postgres.connection import PostgresConnection
from bartack.store.postgres.schema import SPEND_TYPES, escape, key_of, numbers_of, unescape
from bartack.store.search import words
from bartack.store.session_store import NO_SPEND, Lease, Spend, Tail

__all__ = ["KnownSession", "StorableAppend", "fence_of", "insert", "lease_of", "lease_text", "look_up", "tail_of"]


class KnownSession(NamedTuple):
    """A session as it was looked up, or as the last append left it."""

    number: int | None = None  # None: there is no such session
    tail: Tail | None = None
    checksum: bytes = b""
    fence: str = ""
    lease_text: str | None = None
    lease: Lease | None = None

    def with_lease(self, lease: Lease) -> "KnownSession":
        return self._replace(fence=fence_of(lease), lease_text=lease_text(lease), lease=lease)


class StorableAppend(NamedTuple):
    """An append that passed `check_append`."""

    batch: Batch
    rows: tuple[Row, ...]  # the new ones
    existing: Existing
    lease: Lease | None  # the lease that a claim has taken
    is_exact: bool  # whether the session's lease must not even have been renewed


def tail_of(record: Any) -> Tail:
    """The tail in a row of `sessions`."""
    return Tail(unescape(record["tail_id"]), record["tail_seq"])


# -- leases


def lease_text(lease: Lease) -> str:
    return escape(seal(wire.encode(lease)).decode())


def lease_of(text: str | None) -> Lease | None:
    """The lease; None if there never was one, or if it is damaged, which the check reports."""
    line = None if text is None else unseal(unescape(text).encode())
    return None if line is None else wire.decode(Lease, line)


def fence_of(lease: Lease | None) -> str:
    """What changes whenever the lease gets another owner, or none."""
    return "" if lease is None else escape(f"{lease.epoch} {lease.owner}")


# -- out

_LOOK_UP = """
WITH found AS MATERIALIZED (
    SELECT a.at, s.number, s.tail_id, s.tail_seq, s.checksum, s.fence, s.lease
    FROM unnest($1::text[]) WITH ORDINALITY AS a (id, at) JOIN sessions s USING (id)
)
SELECT at, number, tail_id, tail_seq, checksum, fence, lease, NULL::bytea AS key, NULL::bytea AS text,
    NULL::timestamptz AS now
FROM found
UNION ALL
SELECT a.at, 0, NULL, e.seq, NULL, NULL, NULL, a.key, CASE WHEN a.is_own THEN convert_to(e.text, 'UTF8') END, NULL
FROM unnest($2::bigint[], $3::bytea[], $4::boolean[]) AS a (at, key, is_own)
JOIN found f USING (at) JOIN entries e ON e.session = f.number AND e.key = a.key
UNION ALL
SELECT a.at, -1, NULL, NULL, NULL, NULL, NULL, a.key, NULL, NULL
FROM unnest($5::bigint[], $6::bytea[]) AS a (at, key)
JOIN found f USING (at) JOIN results r ON r.session = f.number AND r.call = a.key
UNION ALL
SELECT 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, clock_timestamp()
"""


async def look_up(
    connection: PostgresConnection, batches: Sequence[Batch]
) -> tuple[list[tuple[KnownSession, Existing]], Clock]:
    """What `check_append` needs for each batch, as of one moment, and the server's time."""
    ids = [(place, id, True) for place, batch in enumerate(batches, 1) for id in batch.ids]
    ids += [(place, id, False) for place, batch in enumerate(batches, 1) for id in batch.references]
    calls = [(place, call) for place, batch in enumerate(batches, 1) for call in batch.calls]
    records = await connection.fetch(
        _LOOK_UP,
        [escape(batch.session_id) for batch in batches],
        *_columns([(place, key_of(id), is_own) for place, id, is_own in ids], 3),
        *_columns([(place, key_of(call)) for place, call in calls], 2),
    )
    sessions = dict.fromkeys(range(1, len(batches) + 1), KnownSession())
    texts, seqs, results = dict[tuple[int, bytes], bytes](), dict[tuple[int, bytes], int](), set[tuple[int, bytes]]()
    for place, number, tail_id, seq, checksum, fence, lease, key, text, _ in records:
        if key is None and number is not None:
            sessions[place] = KnownSession(
                number, Tail(unescape(tail_id), seq), checksum, fence, lease, lease_of(lease)
            )
        elif number == -1:
            results.add((place, key))
        elif text is not None:
            texts[place, key] = text
        elif key is not None:
            seqs[place, key] = seq
    answers = [
        (
            sessions[place],
            Existing(
                sessions[place].tail,
                {id: texts[place, key_of(id)] for id in batch.ids if (place, key_of(id)) in texts},
                {id: seqs[place, key_of(id)] for id in batch.references if (place, key_of(id)) in seqs},
                {call for call in batch.calls if (place, key_of(call)) in results},
                sessions[place].lease,
                checksum=sessions[place].checksum,
            ),
        )
        for place, batch in enumerate(batches, 1)
    ]
    moment = Moment(records[-1]["now"])
    return answers, lambda: moment


def _columns(lines: Iterable[tuple[Any, ...]], width: int) -> Sequence[Sequence[Any]]:
    """The lines as columns; as many of them when there are no lines."""
    return list(zip(*lines, strict=True)) or [()] * width


# -- in

_WIDTHS = (14, 7, 3, 3, 4, 2, 2, 3 + len(SPEND_TYPES))  # columns of each table among the arguments
_INSERT = f"SELECT bartack_append({', '.join(f'${number}' for number in range(1, sum(_WIDTHS) + 1))})"


async def insert(
    connection: PostgresConnection, appends: Sequence[StorableAppend], sessions: Mapping[str, KnownSession]
) -> dict[str, KnownSession]:
    """Store these appends, checked in this order, and everything derived from them.

    Returns how those sessions are now that were as `known`. Of the others nothing is stored.
    """
    grouped: dict[str, list[StorableAppend]] = {}
    for append in sorted(
        appends, key=lambda append: append.batch.session_id
    ):  # two groups lock sessions in the same order
        grouped.setdefault(append.batch.session_id, []).append(append)
    places = {name: place for place, name in enumerate(grouped, 1)}
    rows = [(places[append.batch.session_id], row) for append in appends for row in append.rows]
    blobs = {name: blob for append in appends for name, blob in append.batch.blobs.items()}
    uses = {(place, name) for place, row in rows if row.needs_restore for name in referenced(row.text)}
    tables: list[Iterable[tuple[Any, ...]]] = [
        [_session(sessions[name], mine) for name, mine in grouped.items()],
        [_entry(place, row) for place, row in rows],
        [(place, row.seq, key_of(call)) for place, row in rows for call in row.results],
        [(places[append.batch.session_id], *start) for append in appends for start in branch_starts_of(*append[:3])],
        [redaction for append in appends for redaction in _redactions(places[append.batch.session_id], append)],
        [(place, bytes.fromhex(name)) for place, name in sorted(uses)],
        [(bytes.fromhex(name), blob) for name, blob in blobs.items()],
        _spends(rows),
    ]
    columns = [_columns(lines, width) for lines, width in zip(tables, _WIDTHS, strict=True)]
    numbers = await connection.fetchval(_INSERT, *chain.from_iterable(columns))
    return {
        name: _after(number, sessions[name], mine)
        for (name, mine), number in zip(grouped.items(), numbers, strict=True)
        if number is not None
    }


def _last(appends: Sequence[StorableAppend]) -> tuple[Row | None, Lease | None]:
    """The last row and the last lease of appends to one session."""
    last = next((append.rows[-1] for append in reversed(appends) if append.rows), None)
    return last, next((append.lease for append in reversed(appends) if append.lease is not None), None)


def _after(number: int, session: KnownSession, appends: Sequence[StorableAppend]) -> KnownSession:
    last, lease = _last(appends)
    if last is not None:
        session = session._replace(number=number, tail=Tail(last.id, last.seq), checksum=last.checksum)
    return session if lease is None else session.with_lease(lease)


def _session(session: KnownSession, appends: Sequence[StorableAppend]) -> tuple[Any, ...]:
    """How the session was, and how it becomes with these appends."""
    first = appends[0].batch
    last, lease = _last(appends)
    titled = next((row for append in reversed(appends) for row in reversed(append.rows) if row.title is not None), None)
    return (
        *(escape(first.session_id), session.number, session.checksum, session.fence),
        session.lease_text if any(append.is_exact for append in appends) else None,
        *((None, None) if titled is None else (escape(titled.title or ""), titled.seq)),
        *(first.created, appends[-1].batch.updated if last else None),
        *((escape(last.id), last.seq, last.checksum) if last else (None, None, None)),
        *((None, None) if lease is None else (fence_of(lease), lease_text(lease))),
    )


def _redactions(place: int, append: StorableAppend) -> Iterator[tuple[Any, ...]]:
    """The entries that these rows redact, which `check_append` has found."""
    redacted = [row.redacts for row in append.rows if row.redacts is not None]
    seqs = {**append.existing.seqs, **{row.id: row.seq for row in append.batch.rows}} if redacted else {}
    for id in redacted:
        yield place, key_of(id), escape(id), seqs[id]


def _entry(place: int, row: Row) -> tuple[Any, ...]:
    numbers = numbers_of(words(row.searched))
    indexed = "{" + ",".join(map(str, numbers)) + "}" if numbers else None
    return place, row.seq, row.needs_restore, key_of(row.id), row.checksum, row.text.decode(), indexed


def _spends(rows: Iterable[tuple[int, Row]]) -> list[tuple[Any, ...]]:
    """One line per session and model: a statement can update a row only once."""
    sums: dict[tuple[int, str], Spend] = {}
    for place, row in rows:
        if row.spend is not None:
            model = json_text(model_key(row.spend.model))
            sums[place, model] = sums.get((place, model), NO_SPEND) + row.spend.spend
    return [
        (place, key_of(model), model, *(getattr(spend, name) for name in SPEND_TYPES))
        for (place, model), spend in sorted(sums.items())
    ]
