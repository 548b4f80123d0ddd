"""`Queries`: what a PostgreSQL store reads."""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from bartack.nouns import wire
from bartack.nouns.entries import Custom, MessageDeltaBatch
from bartack.session.outline import UNREADABLE
from bartack.store.blobs import damage_to, referenced, restore_blobs
from bartack.store.checksums import broken_at, unseal
from bartack.store.derived import Derived, derive, differences
from bartack.store.entries import Entries, envelope_of, read_entry
from bartack.store.errors import entry_not_found_error, session_not_found_error
from bartack.store.index import SPEND_FIELDS, ModelKey, branch_heads, branch_ranges, seqs_after, text_of, totals_of
from bartack.store.leases import Moment, held_lease
from bartack.store.live import read_batches
from bartack.store.postgres.connection import PostgresConnection
from bartack.store.postgres.rows import fence_of, lease_of, tail_of
from bartack.store.postgres.schema import SPEND_TYPES, escape, key_of, numbers_of, unescape
from bartack.store.search import contains, cut_page, phrases, read_cursor, read_time, relevance, snippet, words
from bartack.store.session_store import (
    RESERVED,
    Finding,
    FindingKind,
    Hit,
    Inspection,
    Page,
    SessionInfo,
    Spend,
    Tail,
    Totals,
)

__all__ = ["Queries"]

_SUMS = ", ".join(f"coalesce(sum({name}), 0)::{kind} AS {name}" for name, kind in SPEND_TYPES.items())
_CANDIDATES = 200  # entries that a search looks at in one step
_RANKED = 2000  # matches, the most recent ones, among which a search looks for the best

# The index finds entries with these words, or with words of the same numbers; the text decides. The index knows
# nothing of beginnings of words, so these are looked for in the text, unless parts of it are elsewhere.
_MATCHES = """
SELECT s.id, s.updated, s.number, s.title, e.seq, convert_to(e.text, 'UTF8') AS text, e.needs_restore FROM entries e
JOIN sessions s ON s.number = e.session
WHERE e.words @> $1::int[] AND NOT EXISTS (SELECT FROM redactions r WHERE r.session = e.session AND r.key = e.key)
AND (e.needs_restore OR e.text ILIKE ALL ($8::text[]))
AND left(s.id, $5) = $6 AND (s.updated, s.id, -e.seq::bigint) < ($2, $3, $4::bigint)
ORDER BY s.updated DESC, s.id DESC, e.seq LIMIT $7
"""


class Queries:
    """Queries through one connection. The caller has begun the transaction."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection
        self._all = connection.fetch
        self._first = connection.fetchrow

    async def _session(self, session_id: str) -> Any:
        """The row of a session; raises `NotFound`."""
        record = await self._first("SELECT * FROM sessions WHERE id = $1", escape(session_id))
        if record is None:
            raise session_not_found_error(session_id)
        return record

    async def tail(self, session_id: str) -> Tail:
        """The session's tail; raises `NotFound`."""
        return tail_of(await self._session(session_id))

    async def journal(self, session_id: str, generation: int, after_number: int) -> Sequence[MessageDeltaBatch]:
        sql = "SELECT text FROM journal WHERE session = $1 AND (generation <> $2 OR number > $3) ORDER BY number"
        number = (await self._session(session_id))["number"]
        lines = iter(
            [unseal(unescape(row["text"]).encode()) for row in await self._all(sql, number, generation, after_number)]
        )
        return read_batches(iter(lambda: next(lines, None), None))  # ends before the first damaged one

    async def load(self, session_id: str, head: str | None) -> Entries:
        session = await self._session(session_id)
        last = session["tail_seq"]
        if head is not None:
            sql = "SELECT seq FROM entries WHERE session = $1 AND key = $2"
            record = await self._first(sql, session["number"], key_of(head))
            if record is None:
                raise entry_not_found_error(session_id, head)
            last = record["seq"]
        ranges = branch_ranges(last, await self._branch_starts(session["number"]))
        return await self._entries(session, ranges, hide=True)

    async def entries(self, session_id: str, after_seq: int, limit: int | None, *, hide: bool = False) -> Entries:
        session = await self._session(session_id)
        return await self._entries(session, [seqs_after(tail_of(session), after_seq, limit)], hide=hide)

    async def _entries(self, session: Any, ranges: list[range], *, hide: bool) -> Entries:
        rows = [row for seqs in ranges if seqs for row in await self._texts(session["number"], seqs)]
        hidden = await self._hidden(session["number"]) if hide else frozenset()
        seqs, texts, tail = [seq for seq, _ in rows], [text for _, text in rows], tail_of(session)
        return Entries(unescape(session["id"]), seqs, texts, hidden, {tail.seq: tail.entry_id})

    async def _texts(self, number: int, seqs: range) -> list[tuple[int, bytes]]:
        records = await self._all(
            "SELECT seq, convert_to(text, 'UTF8'), needs_restore FROM entries "
            "WHERE session = $1 AND seq BETWEEN $2 AND $3 ORDER BY seq",
            *(number, seqs.start, seqs.stop - 1),
        )
        blobs = await self._blobs(text for _, text, is_cut in records if is_cut)
        return [(seq, restore_blobs(text, blobs.get) if is_cut else text) for seq, text, is_cut in records]

    async def _blobs(self, texts: Iterable[bytes]) -> dict[str, bytes]:
        names = sorted({bytes.fromhex(name) for text in texts for name in referenced(text)})
        sql = "SELECT name, data FROM blobs WHERE name = ANY($1::bytea[])"
        return {name.hex(): data for name, data in (await self._all(sql, names) if names else ())}

    async def _branch_starts(self, number: int) -> dict[int, int]:
        return dict(await self._all("SELECT seq, parent_seq FROM branches WHERE session = $1", number))

    async def _hidden(self, number: int) -> frozenset[str]:
        records = await self._all("SELECT redacted FROM redactions WHERE session = $1", number)
        return frozenset(unescape(record["redacted"]) for record in records)

    async def heads(self, session_id: str) -> tuple[str, ...]:
        session = await self._session(session_id)
        seqs = branch_heads(session["tail_seq"], await self._branch_starts(session["number"]))
        return tuple([(await self.entries(session_id, seq - 1, 1))[0].id for seq in seqs])

    async def sessions(self, limit: int, cursor: str | None, query: str | None, *, prefix: str, reserved: bool) -> Page:
        if query is not None:
            return await self._matching_sessions(limit, cursor, query, prefix)
        condition = f"left(id, $1) {'=' if reserved else '<>'} $2 AND left(id, $3) = $4"
        values: list[object] = [len(RESERVED), RESERVED, *_start(prefix)]
        if cursor is not None:
            condition += " AND (updated, id) < ($5, $6)"
            values += map(escape, read_cursor(cursor))
        return cut_page(await self._infos(condition, values, max(limit, 0) + 1), limit)

    async def _infos(self, condition: str, values: Sequence[object], limit: int) -> list[SessionInfo]:
        records = await self._all(
            f"SELECT s.*, t.* FROM sessions s, LATERAL (SELECT {_SUMS} FROM spend WHERE session = s.number) t "
            f"WHERE {condition} ORDER BY updated DESC, id DESC LIMIT {limit}",
            *values,
        )
        return list(map(_info, records))

    async def _matching_sessions(self, limit: int, cursor: str | None, query: str, prefix: str) -> Page:
        place = None if cursor is None else read_cursor(cursor)
        numbers: list[int] = []
        async for number, _ in self._matches(query, place, prefix):
            if number not in numbers[-1:]:
                numbers.append(number)
            if len(numbers) > max(limit, 0):
                break
        return cut_page(await self._infos("number = ANY($1::bigint[])", [numbers], len(numbers)), limit)

    async def search(self, text: str, limit: int, *, prefix: str, best_first: bool) -> tuple[Hit, ...]:
        hits: list[Hit] = []
        async for _, hit in self._matches(text, None, prefix):
            if len(hits) >= (_RANKED if best_first else limit):
                break
            hits.append(hit)
        if best_first:
            return tuple(sorted(hits, key=lambda hit: -(hit.score or 0.0))[:limit])
        return tuple(replace(hit, score=None) for hit in hits)

    async def _matches(self, text: str, place: tuple[str, str] | None, prefix: str) -> AsyncIterator[tuple[int, Hit]]:
        """The entries that match the query, each with the number of its session."""
        query = phrases(text)
        if not query:
            return
        numbers = numbers_of(word for words, is_prefix in query for word in words[: -1 if is_prefix else None])
        # Only ASCII: the cases of other letters are not those of PostgreSQL.
        beginnings = [f"%{words[-1]}%" for words, is_prefix in query if is_prefix and words[-1].isascii()]
        updated, session_id = ("~", "") if place is None else map(escape, place)  # later than any time
        seq = 2**31  # after every entry of that session
        while True:
            candidates = await self._all(
                _MATCHES, numbers, updated, session_id, -seq, *_start(prefix), _CANDIDATES, beginnings
            )
            blobs = await self._blobs(row["text"] for row in candidates if row["needs_restore"])
            for row in candidates:
                restored = restore_blobs(row["text"], blobs.get) if row["needs_restore"] else row["text"]
                entry = read_entry(unescape(row["id"]), row["seq"], restored)
                content = text_of(entry.fact)
                text_words = words(content)
                if contains(text_words, query):
                    source = unescape(row["id"]), entry.id, entry.seq
                    title = None if row["title"] is None else unescape(row["title"])
                    match = snippet(content, query)
                    yield row["number"], Hit(*source, match, entry.timestamp, title, relevance(text_words, query))
            if len(candidates) < _CANDIDATES:
                return
            updated, session_id, seq = candidates[-1]["updated"], candidates[-1]["id"], candidates[-1]["seq"]

    async def totals(self, session_id: str | None) -> Totals:
        condition, values = "TRUE", list[object]()
        if session_id is not None:
            condition, values = "session = $1", [(await self._session(session_id))["number"]]
        records = await self._all(f"SELECT model, {_SUMS} FROM spend WHERE {condition} GROUP BY model", *values)
        return totals_of((msgspec.json.decode(record["model"], type=ModelKey), _spend(record)) for record in records)

    # -- for bartack.store.maintenance

    async def inspect(self, session_id: str | None) -> Inspection:
        """Broken chains, missing or altered blobs, and whatever does not match the entries that it is derived from."""
        if session_id is None:
            return Inspection(tuple([finding async for finding in self._unrelated_rows()]))
        session = await self._session(session_id)
        rows = await self._all(
            "SELECT seq, key, convert_to(text, 'UTF8') AS text, needs_restore, checksum, words FROM entries "
            "WHERE session = $1 ORDER BY seq",
            session["number"],
        )
        blobs = await self._blobs(row["text"] for row in rows if row["needs_restore"])
        journal = await self._all("SELECT * FROM journal WHERE session = $1", session["number"])
        stored = await self._derived(session)
        findings = tuple(
            Finding(session_id=session_id, seq=seq, fault=fault, message=message)
            for fault, seq, message in _damage(session, rows, blobs, journal, stored)
        )
        ((now,),) = await self._all("SELECT clock_timestamp()")
        entries = await self._entries(session, [seqs_after(tail_of(session), 0, None)], hide=False)
        return Inspection(findings, entries, held_lease(lease_of(session["lease"]), Moment(now)))

    async def _unrelated_rows(self) -> AsyncIterator[Finding]:
        for table in ("entries", "results", "branches", "redactions", "spend", "journal", "blob_uses"):
            sql = f"SELECT DISTINCT session FROM {table} WHERE session NOT IN (SELECT number FROM sessions) LIMIT 100"
            for record in await self._all(sql):
                message = f"{table} has rows of a session that does not exist (number {record['session']})"
                yield Finding(session_id=None, fault="damaged", message=message)
        unused = "SELECT name FROM blobs WHERE name NOT IN (SELECT name FROM blob_uses) LIMIT 100"
        for record in await self._all(unused):
            message = f"blob {record['name'].hex()} belongs to no session"
            yield Finding(session_id=None, fault="damaged", message=message)

    async def _derived(self, session: Any) -> Derived:
        number = session["number"]
        calls = await self._all("SELECT call, seq FROM results WHERE session = $1", number)
        spends = await self._all("SELECT * FROM spend WHERE session = $1", number)
        uses = await self._all("SELECT name FROM blob_uses WHERE session = $1", number)
        return Derived(
            None if session["title"] is None else unescape(session["title"]),
            session["created"],
            session["updated"],
            tail_of(session),
            await self._branch_starts(number),
            {call.hex(): seq for call, seq in calls},
            await self._hidden(number),
            {msgspec.json.decode(record["model"], type=ModelKey): _spend(record) for record in spends},
            {record["name"].hex() for record in uses},
        )


Damage = Iterator[tuple[FindingKind, int | None, str]]


def _damage(
    session: Any, rows: Sequence[Any], blobs: dict[str, bytes], journal: Sequence[Any], stored: Derived
) -> Damage:
    """What is wrong with a session."""
    texts = [restore_blobs(row["text"], blobs.get) if row["needs_restore"] else row["text"] for row in rows]
    yield from _broken_chain(session, rows, texts)
    for row, text in zip(rows, texts, strict=True):
        yield from _broken_row(row, text, blobs)
    lease = lease_of(session["lease"])
    if (session["lease"] is not None and lease is None) or fence_of(lease) != session["fence"]:
        yield "damaged", None, "the lease is damaged; the session counts as free"
    for batch in journal:
        line = unseal(unescape(batch["text"]).encode())
        read = None if line is None else wire.decode(MessageDeltaBatch, line)
        if read is None or (read.generation, read.number) != (batch["generation"], batch["number"]):
            yield "damaged", None, f"batch {batch['number']} of the journal is damaged"
    expected = derive([row["seq"] for row in rows], texts)
    if expected is not None:  # otherwise an entry is unreadable, which is reported as such
        expected = expected._replace(results={key_of(call).hex(): seq for call, seq in expected.results.items()})
        for seq, message in differences(stored, expected):
            yield "damaged", seq, message


def _broken_chain(session: Any, rows: Sequence[Any], texts: Sequence[bytes]) -> Damage:
    for position in broken_at(texts, [row["checksum"] for row in rows]):
        message = "the entry does not match its checksum, or does not follow the entry before it"
        yield "checksum", rows[position]["seq"], message
    tail = session["tail_seq"]
    if not rows or (rows[-1]["seq"], rows[-1]["checksum"]) != (tail, session["checksum"]):
        yield "checksum", tail, f"the last entry is not the recorded tail {unescape(session['tail_id'])!r} (seq {tail})"


def _broken_row(row: Any, text: bytes, blobs: dict[str, bytes]) -> Damage:
    envelope = envelope_of(text)
    if envelope is not None and (key_of(envelope.id), envelope.seq) != (row["key"], row["seq"]):
        yield "damaged", row["seq"], f"entry {envelope.id!r} (seq {envelope.seq}) is stored under another id or seq"
    if row["needs_restore"] != (restore_blobs(row["text"], lambda _: b"") != row["text"]):
        yield "damaged", row["seq"], "whether the entry refers to blobs is recorded wrongly"
    if row["needs_restore"]:
        for damage in (damage_to(name, blobs.get(name)) for name in referenced(row["text"])):
            if damage is not None:
                yield "damaged", row["seq"], damage
    fact = read_entry("", row["seq"], text).fact
    is_readable = not (isinstance(fact, Custom) and fact.name == UNREADABLE)
    if is_readable and (row["words"] or []) != numbers_of(words(text_of(fact))):
        yield "damaged", row["seq"], "the search index is wrong about the entry"


def _info(record: Any) -> SessionInfo:
    return SessionInfo(
        id=unescape(record["id"]),
        title=None if record["title"] is None else unescape(record["title"]),
        created=read_time(record["created"]),
        updated=read_time(record["updated"]),
        entries=record["tail_seq"],
        tail=tail_of(record),
        spend=_spend(record),
    )


def _spend(record: Any) -> Spend:
    return Spend(**{name: record[name] for name in SPEND_FIELDS})


def _start(prefix: str) -> tuple[int, str]:
    """The first characters of the ids with this prefix: how many, and which."""
    return len(escape(prefix)), escape(prefix)
