"""The SQL of a SQLite store: rows in, rows out. Whoever calls has begun the transaction."""

from collections.abc import Collection
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import apsw

from bartack.nouns.errors import Conflict, ErrorCode, NotFound, StoreError
from bartack.store import index as tree
from bartack.store.append import Draft, Present, Row, jumps_of, no_session
from bartack.store.blobs import restore
from bartack.store.entries import Entries, read_entry
from bartack.store.index import text_of
from bartack.store.search import cut_page, phrases, read_cursor, snippet
from bartack.store.session_log import totals_of
from bartack.store.session_store import Hit, Lease, ModelSpend, Page, SessionInfo, Spend, Tail, Totals

__all__ = ["Found", "Index"]

_SPEND = (
    "calls",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "cost_usd",
    "unpriced",
)
_spend_values = attrgetter(*_SPEND)
_SUMS = ", ".join(f"sum({name})" for name in _SPEND)
_ADD_SPEND = (
    f"INSERT INTO total VALUES (?, ?, ?, {', '.join('?' * len(_SPEND))}) ON CONFLICT DO UPDATE SET "
    + ", ".join(f"{name} = {name} + excluded.{name}" for name in _SPEND)
)

Index = list[tuple[int, str | None]]  # what the search index must learn: an entry's number, its words or None to forget


class Found(NamedTuple):
    """A session's row."""

    number: int
    tail: Tail
    held: Lease | None


def select(connection: apsw.Connection, sql: str, *values: str | float | None) -> list[Any]:
    """The rows that this asks for."""
    return connection.execute(sql, values).fetchall()


def find(connection: apsw.Connection, session_id: str) -> Found | None:
    row = connection.execute(
        "SELECT number, tail_id, tail_seq, epoch, owner, expires_at FROM session WHERE id = ?", (session_id,)
    ).fetchone()
    if row is None:
        return None
    number, tail_id, tail_seq, epoch, owner, expires_at = row
    held = None if epoch == 0 else Lease(session_id, owner, epoch, datetime.fromisoformat(expires_at))
    return Found(number, Tail(tail_id, tail_seq), held)


def must_find(connection: apsw.Connection, session_id: str) -> Found:
    found = find(connection, session_id)
    if found is None:
        raise no_session(session_id)
    return found


def seq_of(connection: apsw.Connection, number: int, entry_id: str) -> int | None:
    row = connection.execute("SELECT seq FROM entry WHERE session = ? AND id = ?", (number, entry_id)).fetchone()
    return None if row is None else int(row[0])


def must_seq(connection: apsw.Connection, session_id: str, number: int, entry_id: str) -> int:
    seq = seq_of(connection, number, entry_id)
    if seq is None:
        raise NotFound(f"there is no entry {entry_id!r} in session {session_id!r}")
    return seq


# -- in


def present(connection: apsw.Connection, draft: Draft, found: Found | None) -> Present:
    """What `admit` wants to know."""
    if found is None:
        return Present(None)
    number, tail, held = found
    texts = {}
    for entry_id in draft.ids:
        row = connection.execute(
            "SELECT CAST(body AS BLOB) FROM entry WHERE session = ? AND id = ?", (number, entry_id)
        ).fetchone()
        if row is not None:
            texts[entry_id] = row[0]
    seqs = {}
    for name in draft.named:
        seq = tail.seq if name == tail.entry_id else seq_of(connection, number, name)
        if seq is not None:
            seqs[name] = seq
    ended = [
        call
        for call in draft.calls
        if connection.execute("SELECT 1 FROM result WHERE session = ? AND call_id = ?", (number, call)).fetchone()
    ]
    return Present(tail, texts, seqs, ended, held)


def insert(
    connection: apsw.Connection, draft: Draft, rows: tuple[Row, ...], found: Found | None, known: Present
) -> Index:
    """Store rows that were admitted; gives what the search index must learn."""
    number = _keep_session(connection, draft, rows, found)
    index: Index = []
    try:
        for row in rows:
            _insert_row(connection, number, row, index)
        for seq, parent_seq in jumps_of(draft, rows, known):
            connection.execute("INSERT INTO jump VALUES (?, ?, ?)", (number, seq, parent_seq))
    except apsw.ConstraintError as error:  # the database has the last word, should what was looked up not hold
        raise Conflict(f"the database refuses the append: {error}") from error
    for name, body in draft.bodies.items():
        if not select(connection, "SELECT 1 FROM blob WHERE name = ?", name):
            connection.execute("INSERT INTO blob VALUES (?, ?)", (name, body))
        if not select(connection, "SELECT 1 FROM blob_use WHERE name = ? AND session = ?", name, number):
            connection.execute("INSERT INTO blob_use VALUES (?, ?)", (number, name))
    return index


def _keep_session(connection: apsw.Connection, draft: Draft, rows: tuple[Row, ...], found: Found | None) -> int:
    last = rows[-1]
    if found is None:
        connection.execute(
            "INSERT INTO session (id, title, created, updated, tail_id, tail_seq) VALUES (?, ?, ?, ?, ?, ?)",
            (draft.session_id, rows[0].title, draft.created, draft.updated, last.id, last.seq),
        )
        return connection.last_insert_rowid()
    connection.execute(
        "UPDATE session SET updated = ?, tail_id = ?, tail_seq = ? WHERE number = ?",
        (draft.updated, last.id, last.seq, found.number),
    )
    return found.number


def _insert_row(connection: apsw.Connection, number: int, row: Row, index: Index) -> None:
    connection.execute(
        "INSERT INTO entry (session, seq, id, parent_id, run_id, kind, timestamp, body, is_cut) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            number,
            row.seq,
            row.id,
            row.parent_id,
            row.run_id,
            row.kind,
            row.timestamp,
            row.text.decode(),
            row.is_cut,
        ),
    )
    if row.words:
        index.append((connection.last_insert_rowid(), row.words))
    for call in row.results:
        connection.execute("INSERT INTO result VALUES (?, ?, ?)", (number, call, row.seq))
    if row.spend is not None:
        _add_spend(connection, number, row.spend)
    if row.redacts is not None:
        _redact(connection, number, row.redacts, index)


def _add_spend(connection: apsw.Connection, number: int, spent: ModelSpend) -> None:
    provider, model = ("", "") if spent.model is None else (spent.model.provider, spent.model.model)
    connection.execute(_ADD_SPEND, (number, provider, model, *_spend_values(spent.spend)))


def _redact(connection: apsw.Connection, number: int, entry_id: str, index: Index) -> None:
    if entry_id in hidden(connection, number):
        return
    connection.execute("INSERT INTO redaction VALUES (?, ?)", (number, entry_id))
    ((place, seq),) = select(connection, "SELECT number, seq FROM entry WHERE session = ? AND id = ?", number, entry_id)
    index.append((place, None))
    if seq == 1:
        connection.execute("UPDATE session SET title = NULL WHERE number = ?", (number,))


def write_index(connection: apsw.Connection, index: Index) -> None:
    """Tell the search index. Once per transaction, since the index writes itself out at every savepoint."""
    for is_gone, items in groupby(index, key=lambda item: item[1] is None):
        if is_gone:
            connection.executemany("DELETE FROM search WHERE rowid = ?", [(place,) for place, _ in items])
        else:
            connection.executemany("INSERT INTO search (rowid, words) VALUES (?, ?)", items)


def hold(connection: apsw.Connection, lease: Lease) -> None:
    """Keep the session's current lease."""
    connection.execute(
        "UPDATE session SET epoch = ?, owner = ?, expires_at = ? WHERE id = ?",
        (lease.epoch, lease.owner, lease.expires_at.isoformat(), lease.session_id),
    )


def drop(connection: apsw.Connection, number: int) -> None:
    """Remove a session, and the bodies that no other one uses."""
    connection.execute("INSERT INTO purging VALUES (?)", (number,))
    connection.execute("DELETE FROM search WHERE rowid IN (SELECT number FROM entry WHERE session = ?)", (number,))
    for table in ("entry", "jump", "result", "redaction", "total", "blob_use"):
        connection.execute(f"DELETE FROM {table} WHERE session = ?", (number,))
    connection.execute("DELETE FROM blob WHERE name NOT IN (SELECT name FROM blob_use)")
    connection.execute("DELETE FROM session WHERE number = ?", (number,))
    connection.execute("DELETE FROM purging")
    connection.execute("INSERT INTO search (search) VALUES ('optimize')")  # or its words stay until some later merge


# -- out


def load(connection: apsw.Connection, session_id: str, head: str | None) -> Entries:
    number, tail, _ = must_find(connection, session_id)
    last = tail.seq if head is None else must_seq(connection, session_id, number, head)
    ranges = tree.path(last, jumps(connection, number))
    texts = [text for seqs in ranges for text in _texts(connection, number, seqs.start, seqs.stop - 1)]
    seqs = ranges[0] if len(ranges) == 1 else [seq for seqs in ranges for seq in seqs]
    return Entries(session_id, seqs, texts, hidden(connection, number))


def entries(
    connection: apsw.Connection, session_id: str, after_seq: int, limit: int | None, *, hide: bool = False
) -> Entries:
    number, tail, _ = must_find(connection, session_id)
    first = max(after_seq, 0) + 1
    last = tail.seq if limit is None else min(tail.seq, first + limit - 1)
    texts = _texts(connection, number, first, last) if first <= last else []
    seqs = range(first, first + len(texts))
    return Entries(session_id, seqs, texts, hidden(connection, number) if hide else ())


def _texts(connection: apsw.Connection, number: int, first: int, last: int) -> list[bytes]:
    rows = select(
        connection,
        "SELECT CAST(body AS BLOB), is_cut FROM entry WHERE session = ? AND seq BETWEEN ? AND ? ORDER BY seq",
        number,
        first,
        last,
    )
    return [restore(text, lambda name: body_of(connection, name)) if is_cut else text for text, is_cut in rows]


def body_of(connection: apsw.Connection, name: str) -> bytes:
    row = connection.execute("SELECT body FROM blob WHERE name = ?", (name,)).fetchone()
    if row is None:
        raise StoreError(f"the body {name} is lost", code=ErrorCode.STORAGE_CORRUPT)
    body: bytes = row[0]
    return body


def jumps(connection: apsw.Connection, number: int) -> dict[int, int]:
    return dict(select(connection, "SELECT seq, parent_seq FROM jump WHERE session = ?", number))


def hidden(connection: apsw.Connection, number: int) -> Collection[str]:
    return frozenset(row[0] for row in select(connection, "SELECT entry_id FROM redaction WHERE session = ?", number))


def heads(connection: apsw.Connection, session_id: str) -> tuple[str, ...]:
    number, tail, _ = must_find(connection, session_id)
    return tuple(
        connection.execute("SELECT id FROM entry WHERE session = ? AND seq = ?", (number, seq)).get
        for seq in tree.heads(tail.seq, jumps(connection, number))
    )


def _asked(query: str) -> str | None:
    """The query in the words of FTS5; None for one that asks for nothing."""
    return " AND ".join(f'"{" ".join(phrase)}"' for phrase in phrases(query)) or None


def sessions(connection: apsw.Connection, limit: int, cursor: str | None, query: str | None) -> Page:
    wheres, values = ["TRUE"], list[str | int | None]()
    if cursor is not None:
        wheres.append("(updated, id) < (?, ?)")
        values += read_cursor(cursor)
    if query is not None:
        found = "SELECT entry.session FROM search JOIN entry ON entry.number = search.rowid WHERE search MATCH ?"
        asked = _asked(query)
        wheres.append("FALSE" if asked is None else f"number IN ({found})")
        values += [] if asked is None else [asked]
    rows = select(
        connection,
        "SELECT number, id, title, created, updated, tail_id, tail_seq FROM session "
        f"WHERE {' AND '.join(wheres)} ORDER BY updated DESC, id DESC LIMIT ?",
        *values,
        limit + 1,
    )
    return cut_page([_info(connection, *row) for row in rows], limit)


def _info(  # noqa: PLR0917 - the columns of a row
    connection: apsw.Connection,
    number: int,
    session_id: str,
    title: str | None,
    created: str,
    updated: str,
    tail_id: str,
    tail_seq: int,
) -> SessionInfo:
    return SessionInfo(
        id=session_id,
        title=title,
        created=datetime.fromisoformat(created),
        updated=datetime.fromisoformat(updated),
        entries=tail_seq,
        tail=Tail(tail_id, tail_seq),
        spend=totals(connection, number).spend,
    )


def search(connection: apsw.Connection, text: str, limit: int) -> tuple[Hit, ...]:
    asked = _asked(text)
    if asked is None:
        return ()
    rows = select(
        connection,
        "SELECT session.id, entry.session, entry.seq, entry.id FROM search JOIN entry ON entry.number = search.rowid "
        "JOIN session ON session.number = entry.session WHERE search MATCH ? "
        "ORDER BY session.updated DESC, session.id DESC, entry.seq LIMIT ?",
        asked,
        limit,
    )
    return tuple(
        Hit(session_id, entry_id, seq, snippet(_prose(connection, session_id, number, seq), phrases(text)))
        for session_id, number, seq, entry_id in rows
    )


def _prose(connection: apsw.Connection, session_id: str, number: int, seq: int) -> str:
    (text,) = _texts(connection, number, seq, seq)
    return text_of(read_entry(session_id, seq, text).fact)


def totals(connection: apsw.Connection, number: int | None) -> Totals:
    where = "TRUE" if number is None else f"session = {number}"
    sums = select(connection, f"SELECT provider, model, {_SUMS} FROM total WHERE {where} GROUP BY provider, model")
    return totals_of(((row[0], row[1]), Spend(**dict(zip(_SPEND, row[2:], strict=True)))) for row in sums)
