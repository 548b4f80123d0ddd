"""What an append must know and what it inserts, for whole groups of appends at once."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from bartack.nouns import wire
from bartack.nouns.json_values import json_text
from bartack.store.append import Batch, Existing, Row, branch_starts_of
from bartack.store.blobs import referenced
from bartack.store.index import SPEND_FIELDS, model_key
from bartack.store.postgres.connection import Connection
from bartack.store.postgres.schema import escape, key_of, lexemes_of, unescape
from bartack.store.session_store import NO_SPEND, Lease, Spend, Tail

__all__ = ["SPEND_TYPES", "Checked", "existing", "insert", "lease_of", "set_leases", "tail_of"]


class Checked(NamedTuple):
    """An append that passed `check_append`."""

    batch: Batch
    rows: tuple[Row, ...]  # the new ones
    existing: Existing
    lease: Lease | None  # that a claim has taken


_SESSIONS = """
SELECT a.session_id, s.tail_id, s.tail_seq, l.lease, clock_timestamp() AS now
FROM unnest($1::text[]) AS a (session_id) LEFT JOIN sessions s USING (session_id) LEFT JOIN leases l USING (session_id)
"""
_IDS = """
SELECT a.session_id, a.id, a.is_own, e.seq, CASE WHEN a.is_own THEN convert_to(e.text, 'UTF8') END
FROM unnest($1::text[], $2::text[], $3::boolean[]) AS a (session_id, id, is_own) JOIN entries e USING (session_id, id)
"""
_RESULTS = """
SELECT session_id, tool_call_id
FROM unnest($1::text[], $2::text[]) AS a (session_id, tool_call_id) JOIN results USING (session_id, tool_call_id)
"""


def tail_of(record: Any) -> Tail:
    """The tail in a row of `sessions`."""
    return Tail(unescape(record["tail_id"]), record["tail_seq"])


def lease_of(text: str | None) -> Lease | None:
    """The lease in a row of `leases`; None if there never was one."""
    return None if text is None else wire.decode(Lease, unescape(text).encode())


_SET_LEASES = """
INSERT INTO leases (session_id, lease) SELECT * FROM unnest($1::text[], $2::text[])
ON CONFLICT (session_id) DO UPDATE SET lease = excluded.lease
"""


async def set_leases(connection: Connection, leases: Sequence[Lease]) -> None:
    """Store these leases, at most one per session."""
    names = [escape(lease.session_id) for lease in leases]
    await connection.execute(_SET_LEASES, names, [escape(wire.encode(lease).decode()) for lease in leases])


async def existing(connection: Connection, batches: Sequence[Batch]) -> tuple[list[Existing], datetime]:
    """What `check_append` must know for each batch, and the server's time. The sessions must be locked."""
    names = [escape(batch.session_id) for batch in batches]
    records = await connection.fetch(_SESSIONS, names)
    sessions = {record["session_id"]: record for record in records if record["tail_id"] is not None}
    known = [(name, batch) for name, batch in zip(names, batches, strict=True) if name in sessions]
    ids = {(name, key_of(id), True) for name, batch in known for id in batch.ids}
    ids |= {(name, key_of(id), False) for name, batch in known for id in batch.references}
    calls = {(name, key_of(call)) for name, batch in known for call in batch.calls}
    seqs, texts, results = dict[tuple[str, str], int](), dict[tuple[str, str], bytes](), set[tuple[str, str]]()
    if ids:
        for name, key, is_own, seq, text in await connection.fetch(_IDS, *zip(*ids, strict=True)):
            if is_own:
                texts[name, key] = text
            else:
                seqs[name, key] = seq
    if calls:
        results.update(map(tuple, await connection.fetch(_RESULTS, *zip(*calls, strict=True))))
    found = [
        Existing(
            tail_of(sessions[name]),
            {id: texts[name, key_of(id)] for id in batch.ids if (name, key_of(id)) in texts},
            {id: seqs[name, key_of(id)] for id in batch.references if (name, key_of(id)) in seqs},
            {call for call in batch.calls if (name, key_of(call)) in results},
            lease_of(sessions[name]["lease"]),
        )
        if name in sessions
        else Existing(None)
        for name, batch in zip(names, batches, strict=True)
    ]
    return found, records[0]["now"]


_INSERT_ENTRIES = """
INSERT INTO entries (session_id, seq, id, needs_restore, text) SELECT s, q, i, n, convert_from(x, 'UTF8')
FROM unnest($1::text[], $2::bigint[], $3::text[], $4::boolean[], $5::bytea[]) AS a (s, q, i, n, x)
"""
_INSERT_SESSIONS = """
INSERT INTO sessions (session_id, title, created, updated, tail_id, tail_seq)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[])
ON CONFLICT (session_id) DO UPDATE
SET updated = excluded.updated, tail_id = excluded.tail_id, tail_seq = excluded.tail_seq
"""
_INSERT_WORDS = """
INSERT INTO words (session_id, seq, words, lexemes)
SELECT s, q, w, array_to_tsvector(string_to_array(l, ' '))
FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[]) AS a (s, q, w, l)
"""
_INSERT_RESULTS = "INSERT INTO results SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[])"
_INSERT_BRANCHES = "INSERT INTO branches SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[])"
_INSERT_REDACTIONS = (
    "INSERT INTO redactions SELECT * FROM unnest($1::text[], $2::text[], $3::text[]) ON CONFLICT DO NOTHING"
)
# A redacted entry is not found by a search, and a redacted header has no title.
_HIDE_WORDS = """
DELETE FROM words w USING entries e, unnest($1::text[], $2::text[], $3::text[]) AS a (s, i, _)
WHERE e.session_id = a.s AND e.id = a.i AND w.session_id = e.session_id AND w.seq = e.seq
"""
_HIDE_TITLES = """
UPDATE sessions h SET title = NULL FROM entries e, unnest($1::text[], $2::text[], $3::text[]) AS a (s, i, _)
WHERE e.session_id = a.s AND e.id = a.i AND e.seq = 1 AND h.session_id = e.session_id
"""
_INSERT_BLOBS = "INSERT INTO blobs SELECT * FROM unnest($1::text[], $2::bytea[]) ON CONFLICT DO NOTHING"
_INSERT_USES = "INSERT INTO blob_uses SELECT * FROM unnest($1::text[], $2::text[]) ON CONFLICT DO NOTHING"
SPEND_TYPES = {name: "double precision" if name == "cost_usd" else "bigint" for name in SPEND_FIELDS}
_INSERT_SPEND = f"""
INSERT INTO spend (session_id, model_key, model, {", ".join(SPEND_FIELDS)}) SELECT * FROM unnest(
    $1::text[], $2::text[], $3::text[], {", ".join(f"${n}::{SPEND_TYPES[f]}[]" for n, f in enumerate(SPEND_FIELDS, 4))})
ON CONFLICT (session_id, model_key) DO UPDATE
SET {", ".join(f"{name} = spend.{name} + excluded.{name}" for name in SPEND_FIELDS)}
"""


async def insert(connection: Connection, appends: Sequence[Checked]) -> None:
    """Store these appends, checked in this order, and everything derived from them."""
    rows = [(escape(one.batch.session_id), row) for one in appends for row in one.rows]
    blobs = {name: blob for one in appends for name, blob in one.batch.blobs.items()}
    uses = {(name, used) for name, row in rows if row.needs_restore for used in referenced(row.text)}
    starts = [(escape(one.batch.session_id), *start) for one in appends for start in branch_starts_of(*one[:3])]
    redactions = [(name, key_of(row.redacts), escape(row.redacts)) for name, row in rows if row.redacts is not None]
    statements: list[tuple[str, Iterable[tuple[Any, ...]]]] = [
        (_INSERT_BLOBS, sorted(blobs.items())),  # in the same order everywhere, which avoids deadlocks
        (_INSERT_USES, sorted(uses)),
        (_INSERT_ENTRIES, [(name, row.seq, key_of(row.id), row.needs_restore, row.text) for name, row in rows]),
        (_INSERT_SESSIONS, _sessions(appends)),
        (_INSERT_WORDS, [(name, row.seq, row.words, _lexemes(row)) for name, row in rows if row.words]),
        (_INSERT_RESULTS, [(name, key_of(call), row.seq) for name, row in rows for call in row.results]),
        (_INSERT_BRANCHES, starts),
        (_INSERT_REDACTIONS, redactions),
        (_HIDE_WORDS, redactions),
        (_HIDE_TITLES, redactions),
        (_INSERT_SPEND, _spends(rows)),
    ]
    for statement, lines in statements:
        columns = list(zip(*lines, strict=True))
        if columns:
            await connection.execute(statement, *columns)
    leases = {one.lease.session_id: one.lease for one in appends if one.lease is not None}
    if leases:
        await set_leases(connection, list(leases.values()))


def _sessions(appends: Iterable[Checked]) -> list[tuple[Any, ...]]:
    """One line per session: how it begins, if it is new, and its tail."""
    lines: dict[str, tuple[Any, ...]] = {}
    for batch, rows, *_ in appends:
        if not rows:  # a claim whose entries were stored before
            continue
        name, title = escape(batch.session_id), rows[0].title
        begin = lines[name][:3] if name in lines else (name, None if title is None else escape(title), batch.created)
        lines[name] = (*begin, batch.updated, escape(batch.tail.entry_id), batch.tail.seq)
    return list(lines.values())


def _lexemes(row: Row) -> str:
    return " ".join(lexemes_of(row.words.split(" ")))


def _spends(rows: Iterable[tuple[str, Row]]) -> list[tuple[Any, ...]]:
    """One line per session and model: a statement can update a row only once."""
    sums: dict[tuple[str, str], Spend] = {}
    for name, row in rows:
        if row.spend is not None:
            model = json_text(model_key(row.spend.model))
            sums[name, model] = sums.get((name, model), NO_SPEND) + row.spend.spend
    return [
        (name, key_of(model), model, *(getattr(spend, field) for field in SPEND_FIELDS))
        for (name, model), spend in sorted(sums.items())
    ]
