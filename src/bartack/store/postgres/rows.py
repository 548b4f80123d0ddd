"""What an append looks up and what it inserts, for whole groups of appends: one statement each."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

from bartack.nouns import wire
from bartack.nouns.json_values import json_text
from bartack.store.append import Batch, Existing, Row, branch_starts_of
from bartack.store.blobs import referenced
from bartack.store.checksums import seal, unseal
from bartack.store.index import model_key
from bartack.store.postgres.connection import Connection
from bartack.store.postgres.schema import SPEND_TYPES, escape, key_of, numbers_of, unescape
from bartack.store.search import words
from bartack.store.session_store import NO_SPEND, Lease, Spend, Tail

__all__ = ["Checked", "Known", "fence_of", "insert", "lease_of", "lease_text", "look_up", "tail_of"]


class Known(NamedTuple):
    """A session as it was looked up, or as the last append left it."""

    number: int | None = None  # None: there is no such session
    tail: Tail | None = None
    checksum: bytes = b""
    fence: str = ""
    lease_text: str | None = None
    lease: Lease | None = None

    def with_lease(self, lease: Lease) -> "Known":
        return self._replace(fence=fence_of(lease), lease_text=lease_text(lease), lease=lease)


class Checked(NamedTuple):
    """An append that passed `check_append`."""

    batch: Batch
    rows: tuple[Row, ...]  # the new ones
    existing: Existing
    lease: Lease | None  # that a claim has taken
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
    connection: Connection, batches: Sequence[Batch]
) -> tuple[list[tuple[Known, Existing]], Callable[[], datetime]]:
    """What `check_append` needs for each batch, as of one moment, and the server's time."""
    ids = [(at, id, True) for at, batch in enumerate(batches, 1) for id in batch.ids]
    ids += [(at, id, False) for at, batch in enumerate(batches, 1) for id in batch.references]
    calls = [(at, call) for at, batch in enumerate(batches, 1) for call in batch.calls]
    records = await connection.fetch(
        _LOOK_UP,
        [escape(batch.session_id) for batch in batches],
        *_columns([(at, key_of(id), is_own) for at, id, is_own in ids], 3),
        *_columns([(at, key_of(call)) for at, call in calls], 2),
    )
    known = dict.fromkeys(range(1, len(batches) + 1), Known())
    texts, seqs, results = dict[tuple[int, bytes], bytes](), dict[tuple[int, bytes], int](), set[tuple[int, bytes]]()
    for at, number, tail_id, seq, checksum, fence, lease, key, text, _ in records:
        if key is None and number is not None:
            known[at] = Known(number, Tail(unescape(tail_id), seq), checksum, fence, lease, lease_of(lease))
        elif number == -1:
            results.add((at, key))
        elif text is not None:
            texts[at, key] = text
        elif key is not None:
            seqs[at, key] = seq
    found = [
        (
            known[at],
            Existing(
                known[at].tail,
                {id: texts[at, key_of(id)] for id in batch.ids if (at, key_of(id)) in texts},
                {id: seqs[at, key_of(id)] for id in batch.references if (at, key_of(id)) in seqs},
                {call for call in batch.calls if (at, key_of(call)) in results},
                known[at].lease,
                checksum=known[at].checksum,
            ),
        )
        for at, batch in enumerate(batches, 1)
    ]
    now: datetime = records[-1]["now"]
    return found, lambda: now


def _columns(lines: Iterable[tuple[Any, ...]], width: int) -> Sequence[Sequence[Any]]:
    """The lines as columns; as many of them when there are no lines."""
    return list(zip(*lines, strict=True)) or [()] * width


# -- in

_WIDTHS = (14, 7, 3, 3, 4, 2, 2, 3 + len(SPEND_TYPES))  # columns of each table among the arguments
_INSERT = f"SELECT bartack_append({', '.join(f'${number}' for number in range(1, sum(_WIDTHS) + 1))})"


async def insert(connection: Connection, appends: Sequence[Checked], known: Mapping[str, Known]) -> dict[str, Known]:
    """Store these appends, checked in this order, and everything derived from them.

    Returns how those sessions are now that were as `known`. Of the others nothing is stored.
    """
    grouped: dict[str, list[Checked]] = {}
    for one in sorted(appends, key=lambda one: one.batch.session_id):  # two groups lock sessions in the same order
        grouped.setdefault(one.batch.session_id, []).append(one)
    at = {name: place for place, name in enumerate(grouped, 1)}
    rows = [(at[one.batch.session_id], row) for one in appends for row in one.rows]
    blobs = {name: blob for one in appends for name, blob in one.batch.blobs.items()}
    uses = {(place, name) for place, row in rows if row.needs_restore for name in referenced(row.text)}
    tables: list[Iterable[tuple[Any, ...]]] = [
        [_session(known[name], mine) for name, mine in grouped.items()],
        [_entry(place, row) for place, row in rows],
        [(place, row.seq, key_of(call)) for place, row in rows for call in row.results],
        [(at[one.batch.session_id], *start) for one in appends for start in branch_starts_of(*one[:3])],
        [redaction for one in appends for redaction in _redactions(at[one.batch.session_id], one)],
        [(place, bytes.fromhex(name)) for place, name in sorted(uses)],
        [(bytes.fromhex(name), blob) for name, blob in blobs.items()],
        _spends(rows),
    ]
    columns = [_columns(lines, width) for lines, width in zip(tables, _WIDTHS, strict=True)]
    numbers = await connection.fetchval(_INSERT, *chain.from_iterable(columns))
    return {
        name: _after(number, known[name], mine)
        for (name, mine), number in zip(grouped.items(), numbers, strict=True)
        if number is not None
    }


def _last(appends: Sequence[Checked]) -> tuple[Row | None, Lease | None]:
    """The last row and the last lease of appends to one session."""
    last = next((one.rows[-1] for one in reversed(appends) if one.rows), None)
    return last, next((one.lease for one in reversed(appends) if one.lease is not None), None)


def _after(number: int, known: Known, appends: Sequence[Checked]) -> Known:
    last, lease = _last(appends)
    if last is not None:
        known = known._replace(number=number, tail=Tail(last.id, last.seq), checksum=last.checksum)
    return known if lease is None else known.with_lease(lease)


def _session(known: Known, appends: Sequence[Checked]) -> tuple[Any, ...]:
    """How the session was, and how it becomes with these appends."""
    first = appends[0].batch
    last, lease = _last(appends)
    titled = next((row for one in reversed(appends) for row in reversed(one.rows) if row.title is not None), None)
    return (
        *(escape(first.session_id), known.number, known.checksum, known.fence),
        known.lease_text if any(one.is_exact for one in appends) else None,
        *((None, None) if titled is None else (escape(titled.title or ""), titled.seq)),
        *(first.created, appends[-1].batch.updated if last else None),
        *((escape(last.id), last.seq, last.checksum) if last else (None, None, None)),
        *((None, None) if lease is None else (fence_of(lease), lease_text(lease))),
    )


def _redactions(place: int, one: Checked) -> Iterator[tuple[Any, ...]]:
    """The entries that these rows redact, which `check_append` has found."""
    redacted = [row.redacts for row in one.rows if row.redacts is not None]
    seqs = {**one.existing.seqs, **{row.id: row.seq for row in one.batch.rows}} if redacted else {}
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
