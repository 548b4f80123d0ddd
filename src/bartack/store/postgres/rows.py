"""Rows in and out of the tables in whole groups: what an append must know, and what it leaves."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from bartack.nouns.json_values import json_text
from bartack.store.append import Draft, Present, Row
from bartack.store.blobs import referenced
from bartack.store.postgres.connection import Connection
from bartack.store.postgres.schema import escaped, key, lexemes, unescaped
from bartack.store.session_store import NO_SPEND, Lease, Spend, Tail

__all__ = ["SPEND", "Admitted", "insert", "lease_of", "look_up", "tail_of"]


class Admitted(NamedTuple):
    """An append that may land."""

    draft: Draft
    rows: tuple[Row, ...]  # the new ones
    present: Present


SPEND = (
    "calls",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "cost_usd",
    "unpriced",
)

_SESSIONS = """
SELECT s.session_id, s.tail_id, s.tail_seq, l.owner, l.epoch, l.expires_at
FROM sessions s LEFT JOIN leases l USING (session_id) WHERE s.session_id = ANY($1::text[])
"""
_IDS = """
SELECT a.place, a.nth, e.seq, CASE WHEN a.is_own THEN convert_to(e.text, 'UTF8') END AS text
FROM unnest($1::int[], $2::int[], $3::text[], $4::text[], $5::boolean[]) AS a (place, nth, session_id, id, is_own)
JOIN entries e ON e.session_id = a.session_id AND e.id = a.id
"""
_RESULTS = """
SELECT a.place, a.nth FROM unnest($1::int[], $2::int[], $3::text[], $4::text[]) AS a (place, nth, session_id, call)
JOIN results r ON r.session_id = a.session_id AND r.tool_call_id = a.call
"""


def tail_of(record: Any) -> Tail:
    """The tail that a row of `sessions` tells."""
    return Tail(unescaped(record["tail_id"]), record["tail_seq"])


def lease_of(session_id: str, record: Any) -> Lease | None:
    """The lease that a row of `leases` tells; None where there never was one."""
    if record["epoch"] is None:
        return None
    return Lease(session_id, unescaped(record["owner"]), record["epoch"], record["expires_at"])


async def look_up(connection: Connection, drafts: Sequence[Draft]) -> list[Present]:
    """For each draft what is there. The sessions must be locked."""
    names = [escaped(draft.session_id) for draft in drafts]
    sessions = {record["session_id"]: record for record in await connection.fetch(_SESSIONS, names)}
    known = [place for place, name in enumerate(names) if name in sessions]
    if not known:
        return [Present(None) for _ in drafts]
    asked = [
        (place, nth, names[place], key(id), nth < len(drafts[place].rows))
        for place in known
        for nth, id in enumerate(_ids(drafts[place]))
    ]
    found = await connection.fetch(_IDS, *zip(*asked, strict=True))
    calls = [
        (place, nth, names[place], key(call)) for place in known for nth, call in enumerate(sorted(drafts[place].calls))
    ]
    ended = await connection.fetch(_RESULTS, *zip(*calls, strict=True)) if calls else ()
    texts: list[dict[str, bytes]] = [{} for _ in drafts]
    seqs: list[dict[str, int]] = [{} for _ in drafts]
    results: list[set[str]] = [set() for _ in drafts]
    for record in found:
        place, id = record["place"], _ids(drafts[record["place"]])[record["nth"]]
        if record["text"] is None:
            seqs[place][id] = record["seq"]
        else:
            texts[place][id] = record["text"]
    for record in ended:
        results[record["place"]].add(sorted(drafts[record["place"]].calls)[record["nth"]])
    return [
        Present(tail_of(record), texts[place], seqs[place], results[place], lease_of(draft.session_id, record))
        if (record := sessions.get(names[place]))
        else Present(None)
        for place, draft in enumerate(drafts)
    ]


def _ids(draft: Draft) -> list[str]:
    return [*draft.ids, *sorted(draft.named)]


# -- in

_INSERT_ENTRIES = """
INSERT INTO entries (session_id, seq, id, parent_id, run_id, kind, timestamp, is_cut, text)
SELECT s, q, i, p, r, k, t, c, convert_from(x, 'UTF8') FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[],
    $5::text[], $6::text[], $7::text[], $8::boolean[], $9::bytea[]) AS a (s, q, i, p, r, k, t, c, x)
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
_INSERT_JUMPS = "INSERT INTO jumps SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[])"
_INSERT_REDACTIONS = (
    "INSERT INTO redactions SELECT * FROM unnest($1::text[], $2::text[], $3::text[]) ON CONFLICT DO NOTHING"
)
# A redacted entry is found by no search, and a redacted header gives no title.
_HIDE_WORDS = """
DELETE FROM words w USING entries e, unnest($1::text[], $2::text[], $3::text[]) AS a (s, i, _)
WHERE e.session_id = a.s AND e.id = a.i AND w.session_id = e.session_id AND w.seq = e.seq
"""
_HIDE_TITLES = """
UPDATE sessions h SET title = NULL FROM entries e, unnest($1::text[], $2::text[], $3::text[]) AS a (s, i, _)
WHERE e.session_id = a.s AND e.id = a.i AND e.seq = 1 AND h.session_id = e.session_id
"""
_INSERT_BODIES = "INSERT INTO bodies SELECT * FROM unnest($1::text[], $2::bytea[]) ON CONFLICT DO NOTHING"
_INSERT_USES = "INSERT INTO body_uses SELECT * FROM unnest($1::text[], $2::text[]) ON CONFLICT DO NOTHING"
_INSERT_SPEND = f"""
INSERT INTO spend (session_id, model_key, model, {", ".join(SPEND)})
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
    $8::bigint[], $9::bigint[], $10::double precision[], $11::bigint[])
ON CONFLICT (session_id, model_key) DO UPDATE
SET {", ".join(f"{name} = spend.{name} + excluded.{name}" for name in SPEND)}
"""


async def insert(connection: Connection, admitted: Sequence[Admitted]) -> None:
    """Store these appends, which were admitted in this order, and all that is kept beside them."""
    rows = [(escaped(one.draft.session_id), row) for one in admitted for row in one.rows]
    bodies = {name: body for one in admitted for name, body in sorted(one.draft.bodies.items())}
    redactions = [(name, key(row.redacts), escaped(row.redacts)) for name, row in rows if row.redacts is not None]
    statements: list[tuple[str, Iterable[tuple[Any, ...]]]] = [
        (_INSERT_BODIES, sorted(bodies.items())),  # in one order everywhere, so that two stores do not wait in a ring
        (_INSERT_USES, sorted({(name, body) for name, row in rows if row.is_cut for body in referenced(row.text)})),
        (_INSERT_ENTRIES, [_entry(name, row) for name, row in rows]),
        (_INSERT_SESSIONS, _sessions(admitted)),
        (_INSERT_WORDS, [_words(name, row) for name, row in rows if row.words]),
        (_INSERT_RESULTS, [(name, key(call), row.seq) for name, row in rows for call in row.results]),
        (_INSERT_JUMPS, [jump for one in admitted for jump in _jumps(one)]),
        (_INSERT_REDACTIONS, redactions),
        (_HIDE_WORDS, redactions),
        (_HIDE_TITLES, redactions),
        (_INSERT_SPEND, _spends(rows)),
    ]
    for statement, lines in statements:
        columns = list(zip(*lines, strict=True))
        if columns:
            await connection.execute(statement, *columns)


def _entry(name: str, row: Row) -> tuple[Any, ...]:
    parent = None if row.parent_id is None else escaped(row.parent_id)
    run = None if row.run_id is None else escaped(row.run_id)
    return name, row.seq, key(row.id), parent, run, row.kind, row.timestamp, row.is_cut, row.text


def _sessions(admitted: Iterable[Admitted]) -> list[tuple[Any, ...]]:
    """One line for each session: where it begins, if it does, and where it ends."""
    lines: dict[str, tuple[Any, ...]] = {}
    for one in admitted:
        name, draft, last = escaped(one.draft.session_id), one.draft, one.rows[-1]
        title = one.rows[0].title
        begin = lines[name][:3] if name in lines else (name, None if title is None else escaped(title), draft.created)
        lines[name] = (*begin, draft.updated, escaped(last.id), last.seq)
    return list(lines.values())


def _words(name: str, row: Row) -> tuple[Any, ...]:
    return name, row.seq, row.words, " ".join(lexemes(row.words.split(" ")))


def _jumps(one: Admitted) -> list[tuple[str, int, int]]:
    seqs = {**one.present.seqs, **{row.id: row.seq for row in one.draft.rows}}
    name = escaped(one.draft.session_id)
    parents = [(row.seq, seqs[row.parent_id]) for row in one.rows if row.parent_id is not None]
    return [(name, seq, parent) for seq, parent in parents if parent != seq - 1]


def _spends(rows: Iterable[tuple[str, Row]]) -> list[tuple[Any, ...]]:
    """One line for each session and model: a statement may count a line up only once."""
    sums: dict[tuple[str, str], Spend] = {}
    for name, row in rows:
        if row.spend is not None:
            model = row.spend.model
            named = json_text(["", ""] if model is None else [model.provider, model.model])
            sums[name, named] = sums.get((name, named), NO_SPEND) + row.spend.spend
    return [
        (name, key(named), named, *(getattr(spend, field) for field in SPEND))
        for (name, named), spend in sorted(sums.items())
    ]
