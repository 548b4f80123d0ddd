"""What SQLite itself can say about a store's file, for `bartack.store.check`."""

import apsw

from bartack.store import sqlite_rows as rows
from bartack.store.blobs import digest, referenced
from bartack.store.session_store import Finding

__all__ = ["inspect_session", "inspect_store"]


def inspect_store(connection: apsw.Connection) -> tuple[Finding, ...]:
    """Broken pages and keys."""
    pages = [text for (text,) in rows.select(connection, "PRAGMA quick_check") if text != "ok"]
    keys = [f"{row[0]} row {row[1]} has no {row[2]}" for row in rows.select(connection, "PRAGMA foreign_key_check")]
    return tuple(Finding(session_id=None, fault="damaged", message=text) for text in [*pages, *keys])


def inspect_session(connection: apsw.Connection, session_id: str) -> tuple[Finding, ...]:
    """Lost or changed bodies, and a session's row that says otherwise than its entries."""
    number, tail, _ = rows.must_find(connection, session_id)
    found: list[Finding] = []
    last = connection.execute(
        "SELECT id, seq FROM entry WHERE session = ? ORDER BY seq DESC LIMIT 1", (number,)
    ).fetchone()
    if last != (tail.entry_id, tail.seq):
        text = f"its row names {tail.entry_id!r} (seq {tail.seq}) as the last entry, and that is {last!r}"
        found.append(Finding(session_id=session_id, seq=tail.seq, fault="damaged", message=text))
    cut = rows.select(
        connection, "SELECT seq, CAST(body AS BLOB) FROM entry WHERE session = ? AND is_cut ORDER BY seq", number
    )
    for seq, body in cut:
        for name in referenced(body):
            row = connection.execute("SELECT body FROM blob WHERE name = ?", (name,)).fetchone()
            if row is None or digest(row[0]) != name:
                fault = "lost" if row is None else "changed"
                message = f"the body {name} is {fault}"
                found.append(Finding(session_id=session_id, seq=seq, fault="damaged", message=message))
    return tuple(found)
