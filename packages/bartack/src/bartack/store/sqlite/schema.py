"""The tables of a SQLite store, and the migrations from every older version.

`entry` is the source of truth. Everything else (the session's tail, branches, results, usage, the search index) is
derived from it in the same transaction, so that queries need not read whole sessions. Triggers refuse what no program
may do: change or delete an entry, leave a gap in `seq` or repeat one, give a tool call a second result.
"""

from collections.abc import Sequence

import apsw

from bartack.nouns.errors import ErrorCode, StoreError
from bartack.store.errors import newer_schema_error

__all__ = ["APPLICATION_ID", "MIGRATIONS", "check_version", "migrate", "version_of"]

APPLICATION_ID = 0x42415254  # "BART" in ASCII; bytes 68 to 71 of the file, by which file(1) can recognise it

_FIRST = """
CREATE TABLE store (  -- one row: which store this is, and how often it was written to (bartack.store.sqlite.witness)
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1), id BLOB NOT NULL, commits INTEGER NOT NULL
) STRICT;
INSERT INTO store VALUES (1, randomblob (16), 0);

CREATE TABLE session (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, title TEXT, created TEXT NOT NULL, updated TEXT NOT NULL,
    tail_id TEXT NOT NULL, tail_seq INTEGER NOT NULL, checksum BLOB NOT NULL,  -- of the tail
    lease TEXT  -- as JSON with a checksum; NULL if there never was one
) STRICT;
CREATE INDEX session_by_time ON session (updated, id);

CREATE TABLE entry (  -- `number` and new ids grow, so that an append to any session writes to the same few pages
    number INTEGER PRIMARY KEY, session INTEGER NOT NULL, seq INTEGER NOT NULL CHECK (seq >= 1),
    id TEXT NOT NULL, text TEXT NOT NULL, needs_restore INTEGER NOT NULL, checksum BLOB NOT NULL,
    UNIQUE (session, seq), UNIQUE (id, session)
) STRICT;

CREATE TABLE branch (
    session INTEGER NOT NULL, seq INTEGER NOT NULL, parent_seq INTEGER NOT NULL, PRIMARY KEY (session, seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE result (
    session INTEGER NOT NULL, call_id TEXT NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (session, call_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE redaction (
    session INTEGER NOT NULL, entry_id TEXT NOT NULL, PRIMARY KEY (session, entry_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE blob (name TEXT PRIMARY KEY, data BLOB NOT NULL) STRICT;
CREATE TABLE blob_use (
    session INTEGER NOT NULL, name TEXT NOT NULL REFERENCES blob (name), PRIMARY KEY (name, session)
) STRICT, WITHOUT ROWID;
CREATE TABLE spend (
    session INTEGER NOT NULL, provider TEXT NOT NULL, model TEXT NOT NULL, calls INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, cache_read_tokens INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL, reasoning_tokens INTEGER NOT NULL, cost_usd REAL NOT NULL,
    unpriced INTEGER NOT NULL, PRIMARY KEY (session, provider, model)
) STRICT, WITHOUT ROWID;

-- The deltas of the answer that is arriving, for readers in other processes.
CREATE TABLE journal (
    session INTEGER NOT NULL, generation INTEGER NOT NULL, number INTEGER NOT NULL, text TEXT NOT NULL,
    PRIMARY KEY (session, generation, number)
) STRICT, WITHOUT ROWID;

-- Text is split and case-folded before (bartack.store.search), except for ASCII, which this tokenizer splits the same.
CREATE VIRTUAL TABLE search USING fts5 (words, content = '', contentless_delete = 1, tokenize = 'ascii');

-- The session that the current transaction deletes: the only way past the triggers below.
CREATE TABLE purging (session INTEGER PRIMARY KEY) STRICT;

CREATE TRIGGER entry_no_gap BEFORE INSERT ON entry
WHEN NEW.seq > 1 AND NOT EXISTS (SELECT 1 FROM entry WHERE session = NEW.session AND seq = NEW.seq - 1)
BEGIN SELECT RAISE (ABORT, 'gap in seq'); END;
"""

# Append-only tables, and their unique columns.
_APPEND_ONLY = {
    "entry": ("number", "session, seq", "id, session"),
    "branch": ("session, seq",),
    "result": ("session, call_id",),
    "redaction": ("session, entry_id",),
    "blob": ("name",),
    "blob_use": ("name, session",),
}


def _triggers(table: str) -> str:
    """Triggers that refuse to change or replace rows, and to delete them outside a purge."""
    key = "" if table == "blob" else "WHERE session = OLD.session"
    exists = " OR ".join(
        f"EXISTS (SELECT 1 FROM {table} WHERE ({columns}) = ({_of_new(columns)}))" for columns in _APPEND_ONLY[table]
    )
    return f"""
CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table}  -- REPLACE deletes rows without firing DELETE triggers
WHEN {exists}
BEGIN SELECT RAISE (ABORT, '{table} already has this row'); END;
CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table}
BEGIN SELECT RAISE (ABORT, '{table} is append-only'); END;
CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table}
WHEN NOT EXISTS (SELECT 1 FROM purging {key})
BEGIN SELECT RAISE (ABORT, '{table} is append-only'); END;
"""


def _of_new(columns: str) -> str:
    return ", ".join(f"NEW.{column}" for column in columns.split(", "))


_TITLE_SEQ = "ALTER TABLE session ADD COLUMN title_seq INTEGER NOT NULL DEFAULT 1"  # the entry that gave the title

# The step to each version from the one before. A released step is never edited; changes are new steps.
MIGRATIONS: Sequence[str] = (_FIRST + "".join(map(_triggers, _APPEND_ONLY)), _TITLE_SEQ)


def version_of(connection: apsw.Connection) -> int:
    """The schema version of this database; 0 if it is empty. Raises `StoreError` if it is lost."""
    if not connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'schema_version'").get:
        return 0
    version = connection.execute("SELECT max(version) FROM schema_version").get
    if not isinstance(version, int):
        raise StoreError(f"{connection.filename} is damaged: it has no version.", code=ErrorCode.STORAGE_CORRUPT)
    return version


def check_version(connection: apsw.Connection) -> None:
    """Raise `StoreError` unless the tables have the newest version."""
    version = version_of(connection)
    if version > len(MIGRATIONS):
        raise newer_schema_error(connection.filename or "The store", version, len(MIGRATIONS))
    if version < len(MIGRATIONS):
        raise StoreError(f"{connection.filename} must be upgraded: open it once without read_only.")


def migrate(connection: apsw.Connection, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Bring the tables to the newest version, each step in one transaction. Repeating it has no effect."""
    version = version_of(connection)
    if version > len(migrations):
        raise newer_schema_error(connection.filename or "The store", version, len(migrations))
    for number in range(version + 1, len(migrations) + 1):
        with connection:
            connection.execute("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER PRIMARY KEY) STRICT")
            connection.execute(migrations[number - 1])
            connection.execute("INSERT INTO schema_version VALUES (?)", (number,))
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
