"""`SqliteTables`: the SQL of a SQLite store."""

from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import apsw

from bartack.nouns import wire
from bartack.nouns.entries import MessageDeltaBatch
from bartack.nouns.errors import Conflict, ErrorCode, StoreError
from bartack.store.append import Batch, Clock, Existing, Row, branch_starts_of, prepare
from bartack.store.append_only import append_to
from bartack.store.blobs import restore_blobs
from bartack.store.checksums import seal, unseal
from bartack.store.entries import Entries, read_entry
from bartack.store.errors import entry_not_found_error, session_not_found_error
from bartack.store.index import (
    SPEND_FIELDS,
    branch_heads,
    branch_ranges,
    model_key,
    seqs_after,
    text_of,
    totals_of,
)
from bartack.store.live import read_batches
from bartack.store.search import Phrase, cut_page, phrases, read_cursor, read_time, snippet, words
from bartack.store.session_store import (
    RESERVED,
    Finding,
    Hit,
    Inspection,
    Lease,
    Page,
    SessionAppend,
    SessionInfo,
    Spend,
    Tail,
    Totals,
)
from bartack.store.sqlite.inspection import UNREADABLE, session_damage, store_damage

__all__ = ["ADD_SPEND", "SqliteTables", "spend_values"]

spend_values = attrgetter(*SPEND_FIELDS)
_SUMS = ", ".join(f"sum({name})" for name in SPEND_FIELDS)
ADD_SPEND = (
    f"INSERT INTO spend (session, provider, model, {', '.join(SPEND_FIELDS)}) "
    f"VALUES (?, ?, ?, {', '.join('?' * len(SPEND_FIELDS))}) ON CONFLICT DO UPDATE SET "
    + ", ".join(f"{name} = {name} + excluded.{name}" for name in SPEND_FIELDS)
)
_MATCHES = "search JOIN entry ON entry.number = search.rowid"
_KNOWN = 10_000  # sessions whose rows are remembered
_LARGE = 1_000_000  # bytes of a blob that are written at a time
_BLOBS = ", ".join(f"CAST({name} AS BLOB)" for name in ("id", "title", "created", "updated", "tail_id"))


class SessionRow(NamedTuple):
    """The row of a session."""

    number: int
    tail: Tail
    checksum: bytes
    lease: Lease | None


class SqliteTables:
    """The tables, through one connection. The caller has begun the transaction."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self.dropped = False  # whether a session was, since the last commit
        self.must_rewrite = False  # whether the file is to be rewritten after the commit
        # Changes that `flush` writes, all of a kind with one statement. Of a session, by its number: what an append
        # changes. Of the search index: an entry's number, and its words or None to remove it.
        self._session_changes: dict[int, tuple[str, str, int, bytes, int]] = {}
        self._search_changes: list[tuple[int, str | None]] = []
        self._spends: list[tuple[int | str | float, ...]] = []
        # Sessions as this connection has changed them. They are ahead of the rows until `flush`.
        self._known: dict[str, SessionRow] = {}
        self._version = -1  # changes when another connection has written

    def _all(self, sql: str, *values: str | float | None) -> list[Any]:
        return self.connection.execute(sql, values).fetchall()

    def _first(self, sql: str, *values: str | float | None) -> Any:
        return self.connection.execute(sql, values).fetchone()

    def _run(self, sql: str, *values: str | bytes | float | None) -> None:
        self.connection.execute(sql, values)

    def _find(self, session_id: str) -> SessionRow | None:
        sql = "SELECT number, tail_id, tail_seq, checksum, CAST(lease AS BLOB) FROM session WHERE id = ?"
        row = self._first(sql, session_id)
        if row is None:
            return None
        number, tail_id, tail_seq, checksum, lease = row
        if not isinstance(tail_seq, int):
            raise StoreError(f"The row of session {session_id!r} is damaged.", code=ErrorCode.STORAGE_CORRUPT)
        return SessionRow(number, Tail(tail_id, tail_seq), checksum, None if lease is None else _read_lease(lease))

    def begin(self) -> None:
        """Call at the start of a transaction that writes."""
        version = self.connection.pragma("data_version")
        if version != self._version or len(self._known) > _KNOWN:
            self._known.clear()
        self._version = version

    def _session(self, session_id: str) -> SessionRow:
        session = self._known.get(session_id) or self._find(session_id)
        if session is None:
            raise session_not_found_error(session_id)
        return session

    def _find_seq(self, number: int, entry_id: str) -> int | None:
        row = self._first("SELECT seq FROM entry WHERE session = ? AND id = ?", number, entry_id)
        return None if row is None else int(row[0])

    # -- in

    def existing(self, batch: Batch) -> Existing:
        session = self._known.get(batch.session_id) or self._find(batch.session_id)
        if session is None:
            return Existing(None)
        self._known[batch.session_id] = session
        number, tail, checksum, lease = session
        is_next = batch.rows[0].seq == tail.seq + 1  # if an id is taken by another entry, the database refuses it
        texts = {} if is_next else self._stored_texts(number, batch.ids)
        seqs = {}
        for entry_id in batch.references:
            seq = tail.seq if entry_id == tail.entry_id else self._find_seq(number, entry_id)
            if seq is not None:
                seqs[entry_id] = seq
        is_result = "SELECT 1 FROM result WHERE session = ? AND call_id = ?"
        results = [call for call in batch.calls if self._first(is_result, number, call)]
        return Existing(tail, texts, seqs, results, lease, number, checksum)

    def _stored_texts(self, number: int, ids: Iterable[str]) -> dict[str, bytes]:
        sql = "SELECT CAST(text AS BLOB) FROM entry WHERE session = ? AND id = ?"
        rows = ((entry_id, self._first(sql, number, entry_id)) for entry_id in ids)
        return {entry_id: row[0] for entry_id, row in rows if row is not None}

    def insert(self, batch: Batch, rows: tuple[Row, ...], existing: Existing) -> None:
        """Store the rows; `flush` must follow before the commit."""
        number = self._insert_session(batch, rows) if existing.tail is None else existing.number
        try:
            for row in rows:
                self._insert_row(number, row)
            for seq, parent_seq in branch_starts_of(batch, rows, existing):
                self._run("INSERT INTO branch VALUES (?, ?, ?)", number, seq, parent_seq)
        except apsw.ConstraintError as error:  # the constraints decide if the lookup is outdated
            tail = None if existing.tail is None else existing.tail.entry_id
            raise Conflict(f"The database refused the append: {error}", tail=tail) from error
        last = rows[-1]
        if existing.tail is not None:
            self._session_changes[number] = batch.updated, last.id, last.seq, last.checksum, number
        self._known[batch.session_id] = SessionRow(number, Tail(last.id, last.seq), last.checksum, existing.lease)
        for name, blob in batch.blobs.items():
            if not self._first("SELECT 1 FROM blob WHERE name = ?", name):
                self._insert_blob(name, blob)
            if not self._first("SELECT 1 FROM blob_use WHERE name = ? AND session = ?", name, number):
                self._run("INSERT INTO blob_use VALUES (?, ?)", number, name)

    def _insert_blob(self, name: str, blob: bytes) -> None:
        """Store a blob. SQLite copies one that is bound to a statement twice, so a large one is written in place."""
        if len(blob) < _LARGE:
            self._run("INSERT INTO blob VALUES (?, ?)", name, blob)
            return
        self._run("INSERT INTO blob VALUES (?, zeroblob (?))", name, len(blob))
        row = self.connection.last_insert_rowid()
        with self.connection.blob_open("main", "blob", "data", row, True) as opened:
            for start in range(0, len(blob), _LARGE):
                opened.write(blob[start : start + _LARGE])

    def append_all(self, session_ids: Sequence[str], appends: Iterable[SessionAppend], clock: Clock) -> None:
        """The transaction holds them together. What `flush` writes must not pile up until its end."""
        del session_ids
        for append in appends:
            append_to(clock, prepare(append.session_id, append.entries), append.expected_tail, None, self)
            self.flush()

    def _insert_session(self, batch: Batch, rows: Sequence[Row]) -> int:
        last = rows[-1]
        sql = (
            "INSERT INTO session (id, title, created, updated, tail_id, tail_seq, checksum) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)"
        )
        begin = (batch.session_id, rows[0].title, batch.created)
        self._run(sql, *begin, batch.updated, last.id, last.seq, last.checksum)
        return self.connection.last_insert_rowid()

    def _insert_row(self, session: int, row: Row) -> None:
        sql = "INSERT INTO entry VALUES (NULL, ?, ?, ?, ?, ?, ?)"
        self._run(sql, session, row.seq, row.id, row.text.decode(), row.needs_restore, row.checksum)
        if row.searched:
            self._search_changes.append((self.connection.last_insert_rowid(), _indexable(row.searched)))
        for call in row.results:
            self._run("INSERT INTO result VALUES (?, ?, ?)", session, call, row.seq)
        if row.spend is not None:
            self._spends.append((session, *model_key(row.spend.model), *spend_values(row.spend.spend)))
        if row.redacts is not None:
            self._redact(session, row.redacts)
        if row.title is not None and row.seq > 1:
            self._run("UPDATE session SET title = ?, title_seq = ? WHERE number = ?", row.title, row.seq, session)

    def _redact(self, session: int, entry_id: str) -> None:
        if entry_id in self._hidden(session):
            return
        self._run("INSERT INTO redaction VALUES (?, ?)", session, entry_id)
        number, seq = self._first("SELECT number, seq FROM entry WHERE session = ? AND id = ?", session, entry_id)
        self._search_changes.append((number, None))
        self._run("UPDATE session SET title = NULL WHERE number = ? AND title_seq = ?", session, seq)

    def flush(self) -> None:
        """Write what is written for all appends at once: sessions, usage and the search index."""
        if self._session_changes:
            sql = "UPDATE session SET updated = ?, tail_id = ?, tail_seq = ?, checksum = ? WHERE number = ?"
            self.connection.executemany(sql, self._session_changes.values())
        if self._spends:
            self.connection.executemany(ADD_SPEND, self._spends)
        for is_removed, changes in groupby(self._search_changes, key=lambda change: change[1] is None):
            if is_removed:
                self.connection.executemany("DELETE FROM search WHERE rowid = ?", [(entry,) for entry, _ in changes])
            else:
                self.connection.executemany("INSERT INTO search (rowid, words) VALUES (?, ?)", changes)
        self._forget_changes()

    def _forget_changes(self) -> None:
        self._session_changes.clear()
        self._search_changes.clear()
        self._spends.clear()

    def undo(self) -> None:
        """Call when everything since the last `flush` was rolled back, or more."""
        self._forget_changes()
        self._known.clear()

    def lease(self, session_id: str) -> Lease | None:
        return self._session(session_id).lease

    def set_lease(self, lease: Lease) -> None:
        self._known[lease.session_id] = self._session(lease.session_id)._replace(lease=lease)
        self._run("UPDATE session SET lease = ? WHERE id = ?", seal(wire.encode(lease)).decode(), lease.session_id)

    def write_journal(self, session_id: str, batch: MessageDeltaBatch | None) -> None:
        number, generation = self._session(session_id).number, None if batch is None else batch.generation
        self._run("DELETE FROM journal WHERE session = ? AND generation IS NOT ?", number, generation)
        if batch is not None:
            text = seal(wire.encode(batch)).decode()
            sql = "INSERT INTO journal VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
            self._run(sql, number, batch.generation, batch.number, text)

    def drop(self, session_id: str) -> None:
        """Delete a session, and the blobs that no other session uses.

        No content of a conversation may remain in the files. Bartack's own records contain none and are dropped often,
        so for them, pages and index are not cleaned: that takes longer the larger they are.
        """
        number = self._session(session_id).number
        self._known.pop(session_id, None)
        self.flush()
        has_content = not session_id.startswith(RESERVED)
        if has_content:
            self.connection.pragma("secure_delete", "ON")
            self.dropped = True
        self._run("INSERT INTO purging VALUES (?)", number)
        self._run("DELETE FROM search WHERE rowid IN (SELECT number FROM entry WHERE session = ?)", number)
        for table in ("entry", "branch", "result", "redaction", "spend", "blob_use", "journal"):
            self._run(f"DELETE FROM {table} WHERE session = ?", number)
        self._run("DELETE FROM blob WHERE name NOT IN (SELECT name FROM blob_use)")
        self._run("DELETE FROM session WHERE number = ?", number)
        self._run("DELETE FROM purging")
        if has_content:
            self._run("INSERT INTO search (search) VALUES ('optimize')")  # otherwise its words stay until some merge

    # -- out

    def tail(self, session_id: str) -> Tail:
        return self._session(session_id).tail

    def load(self, session_id: str, head: str | None) -> Entries:
        number, tail, *_ = self._session(session_id)
        last = tail.seq if head is None else self._find_seq(number, head)
        if last is None:
            raise entry_not_found_error(session_id, head or "")
        ranges = branch_ranges(last, self._branch_starts(number))
        return self._entries(session_id, number, ranges, self._hidden(number), tail)

    def entries(self, session_id: str, after_seq: int, limit: int | None, *, hide: bool = False) -> Entries:
        number, tail, *_ = self._session(session_id)
        ranges = [seqs_after(tail, after_seq, limit)]
        return self._entries(session_id, number, ranges, self._hidden(number) if hide else (), tail)

    def _entries(
        self, session_id: str, number: int, ranges: Sequence[range], hidden: Collection[str], tail: Tail
    ) -> Entries:
        texts = [text for seqs in ranges for text in self._texts(number, seqs)]
        seqs: Sequence[int] = ranges[0] if len(ranges) == 1 else [seq for seqs in ranges for seq in seqs]
        if len(seqs) != len(texts):  # some are lost
            seqs = [seq for seqs in ranges for seq in self._seqs(number, seqs)]
        return Entries(session_id, seqs, texts, hidden, {tail.seq: tail.entry_id})

    def _texts(self, session: int, seqs: range) -> list[bytes]:
        where = "session = ? AND seq BETWEEN ? AND ?"
        sql = f"SELECT CAST(text AS BLOB), needs_restore FROM entry WHERE {where} ORDER BY seq"
        rows = self._all(sql, session, seqs.start, seqs.stop - 1)
        return [restore_blobs(text, self._find_blob) if is_cut else text for text, is_cut in rows]

    def _seqs(self, session: int, seqs: range) -> list[int]:
        sql = "SELECT seq FROM entry WHERE session = ? AND seq BETWEEN ? AND ? ORDER BY seq"
        return [seq for (seq,) in self._all(sql, session, seqs.start, seqs.stop - 1)]

    def _find_blob(self, name: str) -> bytes | None:
        row = self._first("SELECT data FROM blob WHERE name = ?", name)
        return None if row is None else bytes(row[0])

    def _branch_starts(self, number: int) -> dict[int, int]:
        return dict(self._all("SELECT seq, parent_seq FROM branch WHERE session = ?", number))

    def _hidden(self, number: int) -> Collection[str]:
        return frozenset(row[0] for row in self._all("SELECT entry_id FROM redaction WHERE session = ?", number))

    def heads(self, session_id: str) -> tuple[str, ...]:
        number, tail, *_ = self._session(session_id)
        heads = branch_heads(tail.seq, self._branch_starts(number))
        sql = "SELECT id FROM entry WHERE session = ? AND seq = ?"
        return tuple(self._first(sql, number, seq)[0] for seq in heads)

    def sessions(self, limit: int, cursor: str | None, query: str | None, *, prefix: str, reserved: bool) -> Page:
        conditions, values = (
            [f"(substr(id, 1, {len(RESERVED)}) = ?) = {int(reserved)}", f"substr(id, 1, {len(prefix)}) = ?"],
            list[str | int | None]([RESERVED, prefix]),
        )
        if cursor is not None:
            conditions.append("(updated, id) < (?, ?)")
            values += read_cursor(cursor)
        if query is not None:
            fts_query = _fts_query(query)
            if fts_query is None:
                return cut_page([], limit)
            conditions.append(f"number IN (SELECT session FROM {_MATCHES} WHERE search MATCH ?)")
            values.append(fts_query)
        rows = self._all(
            f"SELECT number, tail_seq, {_BLOBS} FROM session "
            f"WHERE {' AND '.join(conditions)} ORDER BY updated DESC, id DESC LIMIT ?",
            *(*values, limit + 1),
        )
        return cut_page([self._info(*row) for row in rows], limit)

    def _info(self, number: int, seq: int, *texts: bytes | None) -> SessionInfo:
        """The session as it is listed; damaged text does not stop the list."""
        id, title, created, updated, tail_id = (_text(text) for text in texts)
        return SessionInfo(
            id=id or "",
            title=title,
            created=read_time(created),
            updated=read_time(updated),
            entries=seq,
            tail=Tail(tail_id or "", seq),
            spend=self._totals(number).spend,
        )

    def search(self, text: str, limit: int, *, prefix: str, best_first: bool) -> tuple[Hit, ...]:
        fts_query = _fts_query(text)
        if fts_query is None:
            return ()
        score, first = ("-bm25(search)", "bm25(search), ") if best_first else ("NULL", "")
        rows = self._all(
            f"SELECT session.id, session.number, seq, CAST(title AS BLOB), {score} FROM {_MATCHES} "
            "JOIN session ON session.number = entry.session "
            f"WHERE search MATCH ? AND substr(session.id, 1, {len(prefix)}) = ? "
            f"ORDER BY {first}session.updated DESC, session.id DESC, seq LIMIT ?",
            *(fts_query, prefix, limit),
        )
        query = phrases(text)
        return tuple(self._hit(*row, query=query) for row in rows)

    def _hit(
        self, session_id: str, number: int, seq: int, title: bytes | None, score: float | None, *, query: list[Phrase]
    ) -> Hit:
        (text,) = self._texts(number, range(seq, seq + 1))
        entry = read_entry(session_id, seq, text)
        match = snippet(text_of(entry.fact), query)
        return Hit(session_id, entry.id, seq, match, entry.timestamp, _text(title), score)

    def totals(self, session_id: str | None) -> Totals:
        return self._totals(None if session_id is None else self._session(session_id).number)

    def _totals(self, number: int | None) -> Totals:
        condition = "TRUE" if number is None else f"session = {number}"
        sums = self._all(f"SELECT provider, model, {_SUMS} FROM spend WHERE {condition} GROUP BY provider, model")
        return totals_of(((row[0], row[1]), Spend(**dict(zip(SPEND_FIELDS, row[2:], strict=True)))) for row in sums)

    def journal(self, session_id: str, generation: int, after_number: int) -> Sequence[MessageDeltaBatch]:
        where = "session = ? AND (generation <> ? OR number > ?)"
        sql = f"SELECT CAST(text AS BLOB) FROM journal WHERE {where} ORDER BY number"
        sealed = self._all(sql, self._session(session_id).number, generation, after_number)
        texts = (unseal(line) for (line,) in sealed)
        return read_batches(iter(lambda: next(texts, None), None))  # ends before the first damaged one

    # -- for bartack.store.maintenance

    def inspect(self, session_id: str | None) -> Inspection:
        """Everything that contradicts itself: of the store as a whole, or of a session."""
        if session_id is None:
            return Inspection(tuple(store_damage(self.connection)))
        session = self._session(session_id)
        findings = tuple(session_damage(self.connection, session_id, session.number))
        try:
            return Inspection(findings, self.entries(session_id, 0, None), session.lease)
        except UNREADABLE as error:
            message = f"cannot be read: {error}"
            return Inspection((*findings, Finding(session_id=session_id, fault="damaged", message=message)))


def _indexable(text: str) -> str:
    """The text in such a form that FTS5 splits it into the words of `words`. It splits ASCII in the same way."""
    return text if text.isascii() else " ".join(words(text))


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")


def _read_lease(stored: bytes) -> Lease | None:
    """The lease; None if it is damaged, which the check reports: then the session is free."""
    text = unseal(stored)
    return None if text is None else wire.decode(Lease, text)


def _fts_query(text: str) -> str | None:
    """The query in FTS5's syntax; None if it contains no word."""
    return " AND ".join(f'"{" ".join(words)}"{" *" * is_prefix}' for words, is_prefix in phrases(text)) or None
