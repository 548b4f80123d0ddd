"""The questions that a PostgreSQL store answers. Whoever calls has begun the transaction."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from bartack.nouns.errors import ErrorCode, NotFound, StoreError
from bartack.store import index as tree
from bartack.store.append import no_session
from bartack.store.blobs import referenced, restore
from bartack.store.entries import Entries
from bartack.store.index import text_of
from bartack.store.postgres.connection import Connection
from bartack.store.postgres.rows import SPEND, tail_of
from bartack.store.postgres.schema import escaped, key, query_of, unescaped
from bartack.store.search import cut_page, phrases, read_cursor, snippet
from bartack.store.session_log import totals_of
from bartack.store.session_store import Finding, Hit, Page, SessionInfo, Spend, Tail, Totals

__all__ = ["entries", "find", "heads", "inspect", "load", "must_seq", "search", "sessions", "totals"]

_SUMS = ", ".join(
    f"coalesce(sum({name}), 0)::{'double precision' if name == 'cost_usd' else 'bigint'} AS {name}" for name in SPEND
)
_MATCHES = """
w.lexemes @@ $1::tsquery AND NOT EXISTS (SELECT FROM unnest($2::text[]) p WHERE strpos(' ' || w.words || ' ', p) = 0)
"""  # the index finds the words; whether they stand in a row is seen in the text


async def find(connection: Connection, session_id: str) -> Tail:
    """The session's tail; `NotFound`."""
    record = await connection.fetchrow(
        "SELECT tail_id, tail_seq FROM sessions WHERE session_id = $1", escaped(session_id)
    )
    if record is None:
        raise no_session(session_id)
    return tail_of(record)


async def must_seq(connection: Connection, session_id: str, entry_id: str) -> int:
    """Where an entry stands; `NotFound`."""
    seq = await connection.fetchval(
        "SELECT seq FROM entries WHERE session_id = $1 AND id = $2", escaped(session_id), key(entry_id)
    )
    if seq is None:
        raise NotFound(f"there is no entry {entry_id!r} in session {session_id!r}")
    return int(seq)


async def load(connection: Connection, session_id: str, head: str | None) -> Entries:
    """The branch to `head`."""
    tail = await find(connection, session_id)
    last = tail.seq if head is None else await must_seq(connection, session_id, head)
    ranges = tree.path(last, await _jumps(connection, session_id))
    found = [row for seqs in ranges for row in await _texts(connection, session_id, seqs)]
    hidden = await _hidden(connection, session_id)
    return Entries(session_id, [seq for seq, _ in found], [text for _, text in found], hidden)


async def entries(
    connection: Connection, session_id: str, after_seq: int, limit: int | None, *, hide: bool = False
) -> Entries:
    """The entries of all branches."""
    tail = await find(connection, session_id)
    first = max(after_seq, 0) + 1
    last = tail.seq if limit is None else min(tail.seq, first + limit - 1)
    found = await _texts(connection, session_id, range(first, last + 1)) if first <= last else []
    hidden = await _hidden(connection, session_id) if hide else frozenset()
    return Entries(session_id, [seq for seq, _ in found], [text for _, text in found], hidden)


async def _texts(connection: Connection, session_id: str, seqs: range) -> list[tuple[int, bytes]]:
    records = await connection.fetch(
        "SELECT seq, convert_to(text, 'UTF8'), is_cut FROM entries WHERE session_id = $1 AND seq BETWEEN $2 AND $3 "
        "ORDER BY seq",
        escaped(session_id),
        seqs.start,
        seqs.stop - 1,
    )
    bodies = await _bodies(connection, (text for _, text, is_cut in records if is_cut))
    return [(seq, restore(text, bodies.__getitem__) if is_cut else text) for seq, text, is_cut in records]


async def _bodies(connection: Connection, texts: Iterable[bytes]) -> dict[str, bytes]:
    names = sorted({name for text in texts for name in referenced(text)})
    if not names:
        return {}
    records = await connection.fetch("SELECT sha256, body FROM bodies WHERE sha256 = ANY($1::text[])", names)
    bodies: dict[str, bytes] = dict(records)
    for name in names:
        if name not in bodies:
            raise StoreError(f"the body {name} is lost", code=ErrorCode.STORAGE_CORRUPT)
    return bodies


async def _jumps(connection: Connection, session_id: str) -> dict[int, int]:
    records = await connection.fetch("SELECT seq, parent_seq FROM jumps WHERE session_id = $1", escaped(session_id))
    return dict(records)


async def _hidden(connection: Connection, session_id: str) -> frozenset[str]:
    records = await connection.fetch("SELECT redacted FROM redactions WHERE session_id = $1", escaped(session_id))
    return frozenset(unescaped(record["redacted"]) for record in records)


async def heads(connection: Connection, session_id: str) -> tuple[str, ...]:
    """The ids of the branches' last entries."""
    tail = await find(connection, session_id)
    ends = tree.heads(tail.seq, await _jumps(connection, session_id))
    return tuple([(await entries(connection, session_id, seq - 1, 1))[0].id for seq in ends])


def _asked(query: str) -> tuple[str, list[str]] | None:
    """The query as `_MATCHES` takes it; None for one that asks for nothing."""
    asked = phrases(query)
    return (query_of(asked), [f" {' '.join(phrase)} " for phrase in asked]) if asked else None


async def sessions(connection: Connection, limit: int, cursor: str | None, query: str | None) -> Page:
    """A page of the list."""
    wheres, values = ["TRUE"], list[object]()
    if query is not None:
        asked = _asked(query)
        if asked is None:
            return cut_page([], limit)
        wheres.append(f"s.session_id IN (SELECT w.session_id FROM words w WHERE {_MATCHES})")
        values += asked
    if cursor is not None:
        updated, session_id = read_cursor(cursor)
        wheres.append(f"(s.updated, s.session_id) < (${len(values) + 1}, ${len(values) + 2})")
        values += [escaped(updated), escaped(session_id)]
    records = await connection.fetch(
        f"SELECT s.*, t.* FROM sessions s, LATERAL (SELECT {_SUMS} FROM spend WHERE session_id = s.session_id) t "
        f"WHERE {' AND '.join(wheres)} ORDER BY s.updated DESC, s.session_id DESC LIMIT ${len(values) + 1}",
        *values,
        max(limit, 0) + 1,
    )
    return cut_page(list(map(_info, records)), limit)


def _info(record: Any) -> SessionInfo:
    return SessionInfo(
        id=unescaped(record["session_id"]),
        title=None if record["title"] is None else unescaped(record["title"]),
        created=datetime.fromisoformat(record["created"]),
        updated=datetime.fromisoformat(record["updated"]),
        entries=record["tail_seq"],
        tail=tail_of(record),
        spend=_spend(record),
    )


def _spend(record: Any) -> Spend:
    return Spend(**{name: record[name] for name in SPEND})


async def search(connection: Connection, query: str, limit: int) -> tuple[Hit, ...]:
    """The entries that hold the query."""
    asked = _asked(query)
    if asked is None:
        return ()
    records = await connection.fetch(
        f"SELECT w.session_id, w.seq FROM words w JOIN sessions s USING (session_id) WHERE {_MATCHES} "
        "ORDER BY s.updated DESC, s.session_id DESC, w.seq LIMIT $3",
        *asked,
        max(limit, 0),
    )
    return tuple([await _hit(connection, unescaped(name), seq, phrases(query)) for name, seq in records])


async def _hit(connection: Connection, session_id: str, seq: int, asked: Sequence[Sequence[str]]) -> Hit:
    (entry,) = await entries(connection, session_id, seq - 1, 1)
    return Hit(session_id, entry.id, seq, snippet(text_of(entry.fact), asked))


async def totals(connection: Connection, session_id: str | None) -> Totals:
    """Usage and cost by model."""
    where, values = ("TRUE", []) if session_id is None else ("session_id = $1", [escaped(session_id)])
    if session_id is not None:
        await find(connection, session_id)
    records = await connection.fetch(f"SELECT model, {_SUMS} FROM spend WHERE {where} GROUP BY model", *values)
    return totals_of((msgspec.json.decode(record["model"], type=tuple[str, str]), _spend(record)) for record in records)


# -- for bartack.store.maintenance

_LAST = "SELECT seq, id FROM entries WHERE session_id = $1 ORDER BY seq DESC LIMIT 1"
_BODY_FAULTS = """
SELECT u.sha256, b.body IS NULL AS is_lost FROM body_uses u LEFT JOIN bodies b USING (sha256)
WHERE u.session_id = $1 AND (b.body IS NULL OR encode(sha256(b.body), 'hex') <> u.sha256) ORDER BY u.sha256
"""
_HOMELESS = (
    "SELECT DISTINCT session_id FROM entries WHERE session_id NOT IN (SELECT session_id FROM sessions) LIMIT 100"
)


async def inspect(connection: Connection, session_id: str | None) -> tuple[Finding, ...]:
    """Lost or changed bodies, and rows of one table that another one contradicts."""
    if session_id is None:
        records = await connection.fetch(_HOMELESS)
        return tuple(_damaged(unescaped(record["session_id"]), "it has entries and no row") for record in records)
    tail = await find(connection, session_id)
    found: list[Finding] = []
    last = await connection.fetchrow(_LAST, escaped(session_id))
    if last is None or (last["seq"], last["id"]) != (tail.seq, key(tail.entry_id)):
        real = "none" if last is None else f"{last['id']!r} (seq {last['seq']})"
        found.append(
            _damaged(session_id, f"its row names {tail.entry_id!r} (seq {tail.seq}) as the last entry: that is {real}")
        )
    for record in await connection.fetch(_BODY_FAULTS, escaped(session_id)):
        found.append(
            _damaged(session_id, f"the body {record['sha256']} is {'lost' if record['is_lost'] else 'changed'}")
        )
    return tuple(found)


def _damaged(session_id: str, message: str) -> Finding:
    return Finding(session_id=session_id, fault="damaged", message=message)
