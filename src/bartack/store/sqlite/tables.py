"""`SqliteTables`: the SQL of a SQLite store."""

from collections.abc import Collection, Iterator
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import apsw

from bartack.nouns import wire
from bartack.nouns.entries import MessageDeltaBatch
from bartack.nouns.errors import Conflict
from bartack.store.append import Batch, Existing, Row, branch_starts_of
from bartack.store.blobs import damage_to, referenced, restore
from bartack.store.entries import Entries, read_entry
from bartack.store.errors import missing_blob, no_entry, no_session
from bartack.store.index import SPEND_FIELDS, branch_heads, branch_ranges, model_key, seqs_after, text_of, totals_of
from bartack.store.search import cut_page, phrases, read_cursor, snippet
from bartack.store.session_store import Finding, Hit, Lease, Page, SessionInfo, Spend, Tail, Totals

__all__ = ["SqliteTables"]

_spend_values = attrgetter(*SPEND_FIELDS)
_SUMS = ", ".join(f"sum({name})" for name in SPEND_FIELDS)
_ADD_SPEND = (
    f"INSERT INTO spend (session, provider, model, {', '.join(SPEND_FIELDS)}) "
    f"VALUES (?, ?, ?, {', '.join('?' * len(SPEND_FIELDS))}) ON CONFLICT DO UPDATE SET "
    + ", ".join(f"{name} = {name} + excluded.{name}" for name in SPEND_FIELDS)
)
_MATCHES = "search JOIN entry ON entry.number = search.rowid"


class Session(NamedTuple):
    """The row of a session."""

    number: int
    tail: Tail
    lease: Lease | None


class SqliteTables:
    """The tables, through one connection. The caller has begun the transaction."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self.dropped = False  # whether a session was, since the last commit
        # Pending changes to the search index: an entry's number, and its words or None to remove it.
        self._search_changes: list[tuple[int, str | None]] = []

    def _all(self, sql: str, *values: str | float | None) -> list[Any]:
        return self.connection.execute(sql, values).fetchall()

    def _first(self, sql: str, *values: str | float | None) -> Any:
        return self.connection.execute(sql, values).fetchone()

    def _run(self, sql: str, *values: str | bytes | float | None) -> None:
        self.connection.execute(sql, values)

    def _find(self, session_id: str) -> Session | None:
        row = self._first("SELECT number, tail_id, tail_seq, lease FROM session WHERE id = ?", session_id)
        if row is None:
            return None
        number, tail_id, tail_seq, lease = row
        return Session(number, Tail(tail_id, tail_seq), None if lease is None else wire.decode(Lease, lease.encode()))

    def _session(self, session_id: str) -> Session:
        session = self._find(session_id)
        if session is None:
            raise no_session(session_id)
        return session

    def _find_seq(self, number: int, entry_id: str) -> int | None:
        row = self._first("SELECT seq FROM entry WHERE session = ? AND id = ?", number, entry_id)
        return None if row is None else int(row[0])

    # -- in

    def existing(self, batch: Batch) -> Existing:
        session = self._find(batch.session_id)
        if session is None:
            return Existing(None)
        number, tail, lease = session
        texts = {}
        for entry_id in batch.ids:
            row = self._first("SELECT CAST(text AS BLOB) FROM entry WHERE session = ? AND id = ?", number, entry_id)
            if row is not None:
                texts[entry_id] = row[0]
        seqs = {}
        for entry_id in batch.references:
            seq = tail.seq if entry_id == tail.entry_id else self._find_seq(number, entry_id)
            if seq is not None:
                seqs[entry_id] = seq
        is_result = "SELECT 1 FROM result WHERE session = ? AND call_id = ?"
        results = [call for call in batch.calls if self._first(is_result, number, call)]
        return Existing(tail, texts, seqs, results, lease, number)

    def insert(self, batch: Batch, rows: tuple[Row, ...], existing: Existing) -> None:
        """Store the rows; `update_search` must follow before the commit."""
        number = self._write_session(batch, rows[0].title, existing)
        try:
            for row in rows:
                self._insert_row(number, row)
            for seq, parent_seq in branch_starts_of(batch, rows, existing):
                self._run("INSERT INTO branch VALUES (?, ?, ?)", number, seq, parent_seq)
        except apsw.ConstraintError as error:  # the database has the last word if what was looked up does not hold
            raise Conflict(f"The database refused the append: {error}") from error
        for name, blob in batch.blobs.items():
            if not self._first("SELECT 1 FROM blob WHERE name = ?", name):
                self._run("INSERT INTO blob VALUES (?, ?)", name, blob)
            if not self._first("SELECT 1 FROM blob_use WHERE name = ? AND session = ?", name, number):
                self._run("INSERT INTO blob_use VALUES (?, ?)", number, name)

    def _write_session(self, batch: Batch, title: str | None, existing: Existing) -> int:
        tail = batch.tail
        if existing.tail is None:
            sql = "INSERT INTO session (id, title, created, updated, tail_id, tail_seq) VALUES (?, ?, ?, ?, ?, ?)"
            self._run(sql, batch.session_id, title, batch.created, batch.updated, tail.entry_id, tail.seq)
            return self.connection.last_insert_rowid()
        sql = "UPDATE session SET updated = ?, tail_id = ?, tail_seq = ? WHERE number = ?"
        self._run(sql, batch.updated, tail.entry_id, tail.seq, existing.number)
        return existing.number

    def _insert_row(self, number: int, row: Row) -> None:
        sql = "INSERT INTO entry (session, seq, id, text, needs_restore) VALUES (?, ?, ?, ?, ?)"
        self._run(sql, number, row.seq, row.id, row.text.decode(), row.needs_restore)
        if row.words:
            self._search_changes.append((self.connection.last_insert_rowid(), row.words))
        for call in row.results:
            self._run("INSERT INTO result VALUES (?, ?, ?)", number, call, row.seq)
        if row.spend is not None:
            self._run(_ADD_SPEND, number, *model_key(row.spend.model), *_spend_values(row.spend.spend))
        if row.redacts is not None:
            self._redact(number, row.redacts)

    def _redact(self, number: int, entry_id: str) -> None:
        if entry_id in self._hidden(number):
            return
        self._run("INSERT INTO redaction VALUES (?, ?)", number, entry_id)
        entry, seq = self._first("SELECT number, seq FROM entry WHERE session = ? AND id = ?", number, entry_id)
        self._search_changes.append((entry, None))
        if seq == 1:
            self._run("UPDATE session SET title = NULL WHERE number = ?", number)

    def update_search(self) -> None:
        """Write the pending changes of the search index: once per transaction, as FTS5 flushes at every savepoint."""
        for is_removed, changes in groupby(self._search_changes, key=lambda change: change[1] is None):
            if is_removed:
                self.connection.executemany("DELETE FROM search WHERE rowid = ?", [(entry,) for entry, _ in changes])
            else:
                self.connection.executemany("INSERT INTO search (rowid, words) VALUES (?, ?)", changes)

    def forget_changes(self) -> None:
        """Call at the end of a transaction."""
        self._search_changes.clear()

    def lease(self, session_id: str) -> Lease | None:
        return self._session(session_id).lease

    def set_lease(self, lease: Lease) -> None:
        self._run("UPDATE session SET lease = ? WHERE id = ?", wire.encode(lease).decode(), lease.session_id)

    def write_journal(self, session_id: str, batch: MessageDeltaBatch | None) -> None:
        number, generation = self._session(session_id).number, None if batch is None else batch.generation
        self._run("DELETE FROM journal WHERE session = ? AND generation IS NOT ?", number, generation)
        if batch is not None:
            text = wire.encode(batch).decode()
            sql = "INSERT INTO journal VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
            self._run(sql, number, batch.generation, batch.number, text)

    def drop(self, session_id: str) -> None:
        """Delete a session, and the blobs that no other session uses."""
        number = self._session(session_id).number
        self.connection.pragma("secure_delete", "ON")
        self.dropped = True
        self._run("INSERT INTO purging VALUES (?)", number)
        self._run("DELETE FROM search WHERE rowid IN (SELECT number FROM entry WHERE session = ?)", number)
        for table in ("entry", "branch", "result", "redaction", "spend", "blob_use", "journal"):
            self._run(f"DELETE FROM {table} WHERE session = ?", number)
        self._run("DELETE FROM blob WHERE name NOT IN (SELECT name FROM blob_use)")
        self._run("DELETE FROM session WHERE number = ?", number)
        self._run("DELETE FROM purging")
        self._run("INSERT INTO search (search) VALUES ('optimize')")  # otherwise its words stay until some merge

    # -- out

    def tail(self, session_id: str) -> Tail:
        return self._session(session_id).tail

    def load(self, session_id: str, head: str | None) -> Entries:
        number, tail, _ = self._session(session_id)
        last = tail.seq if head is None else self._find_seq(number, head)
        if last is None:
            raise no_entry(session_id, head or "")
        ranges = branch_ranges(last, self._branch_starts(number))
        texts = [text for seqs in ranges for text in self._texts(number, seqs)]
        seqs = ranges[0] if len(ranges) == 1 else [seq for seqs in ranges for seq in seqs]
        return Entries(session_id, seqs, texts, self._hidden(number))

    def entries(self, session_id: str, after_seq: int, limit: int | None, *, hide: bool = False) -> Entries:
        number, tail, _ = self._session(session_id)
        seqs = seqs_after(tail, after_seq, limit)
        texts = self._texts(number, seqs) if seqs else []
        return Entries(session_id, seqs[: len(texts)], texts, self._hidden(number) if hide else ())

    def _texts(self, number: int, seqs: range) -> list[bytes]:
        where = "session = ? AND seq BETWEEN ? AND ?"
        sql = f"SELECT CAST(text AS BLOB), needs_restore FROM entry WHERE {where} ORDER BY seq"
        found = self._all(sql, number, seqs.start, seqs.stop - 1)
        return [restore(text, self._read_blob) if is_cut else text for text, is_cut in found]

    def _find_blob(self, name: str) -> bytes | None:
        row = self._first("SELECT data FROM blob WHERE name = ?", name)
        return None if row is None else bytes(row[0])

    def _read_blob(self, name: str) -> bytes:
        blob = self._find_blob(name)
        if blob is None:
            raise missing_blob(name)
        return blob

    def _branch_starts(self, number: int) -> dict[int, int]:
        return dict(self._all("SELECT seq, parent_seq FROM branch WHERE session = ?", number))

    def _hidden(self, number: int) -> Collection[str]:
        return frozenset(row[0] for row in self._all("SELECT entry_id FROM redaction WHERE session = ?", number))

    def heads(self, session_id: str) -> tuple[str, ...]:
        number, tail, _ = self._session(session_id)
        sql = "SELECT id FROM entry WHERE session = ? AND seq = ?"
        return tuple(self._first(sql, number, seq)[0] for seq in branch_heads(tail.seq, self._branch_starts(number)))

    def sessions(self, limit: int, cursor: str | None, query: str | None) -> Page:
        conditions, values = ["TRUE"], list[str | int | None]()
        if cursor is not None:
            conditions.append("(updated, id) < (?, ?)")
            values += read_cursor(cursor)
        if query is not None:
            fts_query = _fts_query(query)
            if fts_query is None:
                return cut_page([], limit)
            conditions.append(f"number IN (SELECT entry.session FROM {_MATCHES} WHERE search MATCH ?)")
            values.append(fts_query)
        found = self._all(
            "SELECT number, id, title, created, updated, tail_id, tail_seq FROM session "
            f"WHERE {' AND '.join(conditions)} ORDER BY updated DESC, id DESC LIMIT ?",
            *(*values, limit + 1),
        )
        return cut_page([self._info(row) for row in found], limit)

    def _info(self, row: Any) -> SessionInfo:
        number, session_id, title, created, updated, tail_id, tail_seq = row
        return SessionInfo(
            id=session_id,
            title=title,
            created=datetime.fromisoformat(created),
            updated=datetime.fromisoformat(updated),
            entries=tail_seq,
            tail=Tail(tail_id, tail_seq),
            spend=self._totals(number).spend,
        )

    def search(self, text: str, limit: int) -> tuple[Hit, ...]:
        fts_query = _fts_query(text)
        if fts_query is None:
            return ()
        found = self._all(
            f"SELECT session.id, session.number, seq FROM {_MATCHES} JOIN session ON session.number = entry.session "
            "WHERE search MATCH ? ORDER BY session.updated DESC, session.id DESC, seq LIMIT ?",
            *(fts_query, limit),
        )
        return tuple(self._hit(*row, query=phrases(text)) for row in found)

    def _hit(self, session_id: str, number: int, seq: int, *, query: list[list[str]]) -> Hit:
        (text,) = self._texts(number, range(seq, seq + 1))
        entry = read_entry(session_id, seq, text)
        return Hit(session_id, entry.id, seq, snippet(text_of(entry.fact), query))

    def totals(self, session_id: str | None) -> Totals:
        return self._totals(None if session_id is None else self._session(session_id).number)

    def _totals(self, number: int | None) -> Totals:
        condition = "TRUE" if number is None else f"session = {number}"
        sums = self._all(f"SELECT provider, model, {_SUMS} FROM spend WHERE {condition} GROUP BY provider, model")
        return totals_of(((row[0], row[1]), Spend(**dict(zip(SPEND_FIELDS, row[2:], strict=True)))) for row in sums)

    def journal(self, session_id: str, generation: int, after: int) -> list[bytes]:
        where = "session = ? AND (generation <> ? OR number > ?)"
        sql = f"SELECT CAST(text AS BLOB) FROM journal WHERE {where} ORDER BY number"
        return [text for (text,) in self._all(sql, self._session(session_id).number, generation, after)]

    # -- for bartack.store.maintenance

    def inspect(self, session_id: str | None) -> tuple[Finding, ...]:
        """Broken pages and keys; of a session, a tail that does not match its entries, and damaged blobs."""
        damage = self._store_damage() if session_id is None else self._session_damage(self._session(session_id))
        return tuple(
            Finding(session_id=session_id, seq=seq, fault="damaged", message=message) for seq, message in damage
        )

    def _store_damage(self) -> Iterator[tuple[None, str]]:
        for (text,) in self._all("PRAGMA quick_check"):
            if text != "ok":
                yield None, text
        for table, row, parent, _ in self._all("PRAGMA foreign_key_check"):
            yield None, f"{table} row {row} has no {parent}"

    def _session_damage(self, session: Session) -> Iterator[tuple[int, str]]:
        number, tail, _ = session
        last = self._first("SELECT id, seq FROM entry WHERE session = ? ORDER BY seq DESC LIMIT 1", number)
        if last != (tail.entry_id, tail.seq):
            yield tail.seq, f"the recorded tail is {tail.entry_id!r} (seq {tail.seq}), the last entry is {last}"
        sql = "SELECT seq, CAST(text AS BLOB) FROM entry WHERE session = ? AND needs_restore ORDER BY seq"
        for seq, text in self._all(sql, number):
            for damage in (damage_to(name, self._find_blob(name)) for name in referenced(text)):
                if damage is not None:
                    yield seq, damage


def _fts_query(text: str) -> str | None:
    """The query in FTS5's syntax; None if it contains no word."""
    return " AND ".join(f'"{" ".join(phrase)}"' for phrase in phrases(text)) or None
