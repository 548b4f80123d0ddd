"""`Queries`: what a PostgreSQL store reads."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from bartack.store.blobs import referenced, restore
from bartack.store.entries import Entries
from bartack.store.errors import no_entry, no_session
from bartack.store.index import SPEND_FIELDS, ModelKey, branch_heads, branch_ranges, seqs_after, text_of, totals_of
from bartack.store.postgres.connection import Connection
from bartack.store.postgres.rows import SPEND_TYPES, tail_of
from bartack.store.postgres.schema import escape, key_of, tsquery_of, unescape
from bartack.store.search import cut_page, phrases, read_cursor, snippet
from bartack.store.session_store import Finding, Hit, Page, SessionInfo, Spend, Tail, Totals

__all__ = ["Queries"]

_SUMS = ", ".join(f"coalesce(sum({name}), 0)::{kind} AS {name}" for name, kind in SPEND_TYPES.items())
# The index finds the words; whether they occur in a row is checked in the text.
_MATCHES = """
w.lexemes @@ $1::tsquery AND NOT EXISTS (SELECT FROM unnest($2::text[]) p WHERE strpos(' ' || w.words || ' ', p) = 0)
"""
_DAMAGED_BLOBS = """
SELECT u.name, CASE WHEN b.data IS NULL THEN 'is missing' ELSE 'was altered' END
FROM blob_uses u LEFT JOIN blobs b USING (name)
WHERE u.session_id = $1 AND (b.data IS NULL OR encode(sha256(b.data), 'hex') <> u.name) ORDER BY u.name
"""


class Queries:
    """Queries through one connection. The caller has begun the transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._all = connection.fetch
        self._first = connection.fetchrow

    async def tail(self, session_id: str) -> Tail:
        """The session's tail; raises `NotFound`."""
        sql = "SELECT tail_id, tail_seq FROM sessions WHERE session_id = $1"
        record = await self._first(sql, escape(session_id))
        if record is None:
            raise no_session(session_id)
        return tail_of(record)

    async def _seq_of(self, session_id: str, entry_id: str) -> int:
        sql = "SELECT seq FROM entries WHERE session_id = $1 AND id = $2"
        record = await self._first(sql, escape(session_id), key_of(entry_id))
        if record is None:
            raise no_entry(session_id, entry_id)
        return int(record["seq"])

    async def journal(self, session_id: str, generation: int, after: int) -> list[bytes]:
        sql = "SELECT text FROM journal WHERE session_id = $1 AND (generation <> $2 OR number > $3) ORDER BY number"
        return [unescape(row["text"]).encode() for row in await self._all(sql, escape(session_id), generation, after)]

    async def load(self, session_id: str, head: str | None) -> Entries:
        tail = await self.tail(session_id)
        last = tail.seq if head is None else await self._seq_of(session_id, head)
        ranges = branch_ranges(last, await self._branch_starts(session_id))
        return await self._entries(session_id, ranges, hide=True)

    async def entries(self, session_id: str, after_seq: int, limit: int | None, *, hide: bool = False) -> Entries:
        tail = await self.tail(session_id)
        return await self._entries(session_id, [seqs_after(tail, after_seq, limit)], hide=hide)

    async def _entries(self, session_id: str, ranges: list[range], *, hide: bool) -> Entries:
        found = [row for seqs in ranges if seqs for row in await self._texts(session_id, seqs)]
        hidden = await self._hidden(session_id) if hide else frozenset()
        return Entries(session_id, [seq for seq, _ in found], [text for _, text in found], hidden)

    async def _texts(self, session_id: str, seqs: range) -> list[tuple[int, bytes]]:
        found = await self._all(
            "SELECT seq, convert_to(text, 'UTF8'), needs_restore FROM entries "
            "WHERE session_id = $1 AND seq BETWEEN $2 AND $3 ORDER BY seq",
            *(escape(session_id), seqs.start, seqs.stop - 1),
        )
        blobs = await self._blobs(text for _, text, is_cut in found if is_cut)
        return [(seq, restore(text, blobs.get) if is_cut else text) for seq, text, is_cut in found]

    async def _blobs(self, texts: Iterable[bytes]) -> dict[str, bytes]:
        names = sorted({name for text in texts for name in referenced(text)})
        sql = "SELECT name, data FROM blobs WHERE name = ANY($1::text[])"
        return dict(await self._all(sql, names)) if names else {}

    async def _branch_starts(self, session_id: str) -> dict[int, int]:
        return dict(await self._all("SELECT seq, parent_seq FROM branches WHERE session_id = $1", escape(session_id)))

    async def _hidden(self, session_id: str) -> frozenset[str]:
        found = await self._all("SELECT redacted FROM redactions WHERE session_id = $1", escape(session_id))
        return frozenset(unescape(record["redacted"]) for record in found)

    async def heads(self, session_id: str) -> tuple[str, ...]:
        tail = await self.tail(session_id)
        seqs = branch_heads(tail.seq, await self._branch_starts(session_id))
        return tuple([(await self.entries(session_id, seq - 1, 1))[0].id for seq in seqs])

    async def sessions(self, limit: int, cursor: str | None, query: str | None) -> Page:
        conditions, values = ["TRUE"], list[object]()
        if query is not None:
            matching = _matching(query)
            if matching is None:
                return cut_page([], limit)
            conditions.append(f"s.session_id IN (SELECT w.session_id FROM words w WHERE {_MATCHES})")
            values += matching
        if cursor is not None:
            conditions.append(f"(s.updated, s.session_id) < (${len(values) + 1}, ${len(values) + 2})")
            values += map(escape, read_cursor(cursor))
        found = await self._all(
            f"SELECT s.*, t.* FROM sessions s, LATERAL (SELECT {_SUMS} FROM spend WHERE session_id = s.session_id) t "
            f"WHERE {' AND '.join(conditions)} ORDER BY s.updated DESC, s.session_id DESC LIMIT ${len(values) + 1}",
            *(*values, max(limit, 0) + 1),
        )
        return cut_page(list(map(_info, found)), limit)

    async def search(self, text: str, limit: int) -> tuple[Hit, ...]:
        matching = _matching(text)
        if matching is None:
            return ()
        found = await self._all(
            f"SELECT w.session_id, w.seq FROM words w JOIN sessions s USING (session_id) WHERE {_MATCHES} "
            "ORDER BY s.updated DESC, s.session_id DESC, w.seq LIMIT $3",
            *(*matching, max(limit, 0)),
        )
        return tuple([await self._hit(unescape(name), seq, phrases(text)) for name, seq in found])

    async def _hit(self, session_id: str, seq: int, query: Sequence[Sequence[str]]) -> Hit:
        (entry,) = await self.entries(session_id, seq - 1, 1)
        return Hit(session_id, entry.id, seq, snippet(text_of(entry.fact), query))

    async def totals(self, session_id: str | None) -> Totals:
        condition, values = ("TRUE", []) if session_id is None else ("session_id = $1", [escape(session_id)])
        if session_id is not None:
            await self.tail(session_id)
        found = await self._all(f"SELECT model, {_SUMS} FROM spend WHERE {condition} GROUP BY model", *values)
        return totals_of((msgspec.json.decode(record["model"], type=ModelKey), _spend(record)) for record in found)

    # -- for bartack.store.maintenance

    async def inspect(self, session_id: str | None) -> tuple[Finding, ...]:
        """Missing or altered blobs, and rows of one table that contradict another."""
        if session_id is None:
            sql = "SELECT DISTINCT session_id FROM entries WHERE session_id NOT IN (SELECT session_id FROM sessions)"
            names = [unescape(record["session_id"]) for record in await self._all(f"{sql} LIMIT 100")]
            return tuple(_damaged(name, "the session has entries but no row") for name in names)
        name, tail = escape(session_id), await self.tail(session_id)
        last = await self._first("SELECT seq, id FROM entries WHERE session_id = $1 ORDER BY seq DESC LIMIT 1", name)
        blobs = await self._all(_DAMAGED_BLOBS, name)
        return tuple(_damaged(session_id, message) for message in _damage(tail, last, blobs))


def _damage(tail: Tail, last: Any, blobs: Sequence[Any]) -> Iterator[str]:
    if last is None or (last["seq"], last["id"]) != (tail.seq, key_of(tail.entry_id)):
        actual = None if last is None else tuple(last)
        yield f"the recorded tail is {tail.entry_id!r} (seq {tail.seq}), the last entry is {actual}"
    for name, damage in blobs:
        yield f"blob {name} {damage}"


def _damaged(session_id: str, message: str) -> Finding:
    return Finding(session_id=session_id, fault="damaged", message=message)


def _matching(text: str) -> tuple[str, list[str]] | None:
    """The arguments of `_MATCHES` for a query; None if it contains no word."""
    query = phrases(text)
    return (tsquery_of(query), [f" {' '.join(phrase)} " for phrase in query]) if query else None


def _info(record: Any) -> SessionInfo:
    return SessionInfo(
        id=unescape(record["session_id"]),
        title=None if record["title"] is None else unescape(record["title"]),
        created=datetime.fromisoformat(record["created"]),
        updated=datetime.fromisoformat(record["updated"]),
        entries=record["tail_seq"],
        tail=tail_of(record),
        spend=_spend(record),
    )


def _spend(record: Any) -> Spend:
    return Spend(**{name: record[name] for name in SPEND_FIELDS})
