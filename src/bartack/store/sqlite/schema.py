"""The tables of a SQLite store, and the way from every older version to this one.

`entry` is the truth. What else there is (`session`'s tail, jumps, results, totals, the search index) is made from it in
the same transaction, so that questions about a session need not read all of it. The database refuses by itself what
no program may do: change or remove an entry, leave a gap or repeat in `seq`, end a tool call twice.
"""

from collections.abc import Sequence

import apsw

from bartack.nouns.errors import ErrorCode, StoreError

__all__ = ["APPLICATION_ID", "MIGRATIONS", "migrate", "version_of"]

APPLICATION_ID = 0x42415254  # "BART"

_FIRST = """
CREATE TABLE session (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    title TEXT,
    created TEXT NOT NULL,
    updated TEXT NOT NULL,
    tail_id TEXT NOT NULL,
    tail_seq INTEGER NOT NULL,
    epoch INTEGER NOT NULL DEFAULT 0,
    owner TEXT NOT NULL DEFAULT '',
    expires_at TEXT
) STRICT;
CREATE INDEX session_by_time ON session (updated, id);

CREATE TABLE entry (
    number INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES session (number),
    seq INTEGER NOT NULL CHECK (seq >= 1),
    id TEXT NOT NULL,
    parent_id TEXT,
    run_id TEXT,
    kind TEXT NOT NULL,
    timestamp TEXT NOT NULL,
    body TEXT NOT NULL,
    is_cut INTEGER NOT NULL,
    UNIQUE (session, seq),
    UNIQUE (session, id)
) STRICT;

CREATE TABLE jump (
    session INTEGER NOT NULL, seq INTEGER NOT NULL, parent_seq INTEGER NOT NULL, PRIMARY KEY (session, seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE result (
    session INTEGER NOT NULL, call_id TEXT NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (session, call_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE redaction (
    session INTEGER NOT NULL, entry_id TEXT NOT NULL, PRIMARY KEY (session, entry_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE blob (name TEXT PRIMARY KEY, body BLOB NOT NULL) STRICT;
CREATE TABLE blob_use (
    session INTEGER NOT NULL, name TEXT NOT NULL REFERENCES blob (name), PRIMARY KEY (name, session)
) STRICT, WITHOUT ROWID;
CREATE TABLE total (
    session INTEGER NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    calls INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cache_read_tokens INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    cost_usd REAL NOT NULL,
    unpriced INTEGER NOT NULL,
    PRIMARY KEY (session, provider, model)
) STRICT, WITHOUT ROWID;

-- Texts come as words in one case with spaces between (bartack.store.search): nothing is left for a tokenizer to decide.
CREATE VIRTUAL TABLE search USING fts5 (words, content = '', contentless_delete = 1, tokenize = 'ascii');

-- A session that is being purged, inside that one transaction: the only key to the triggers below.
CREATE TABLE purging (session INTEGER PRIMARY KEY) STRICT;

CREATE TRIGGER entry_follows BEFORE INSERT ON entry
WHEN NEW.seq > 1 AND NOT EXISTS (SELECT 1 FROM entry WHERE session = NEW.session AND seq = NEW.seq - 1)
BEGIN SELECT RAISE (ABORT, 'a gap in seq'); END;
"""

# Tables whose rows stay, and what tells two rows of one apart.
_KEPT = {
    "entry": ("number", "session, seq", "session, id"),
    "jump": ("session, seq",),
    "result": ("session, call_id",),
    "redaction": ("session, entry_id",),
    "blob": ("name",),
    "blob_use": ("name, session",),
}


def _keeping(table: str) -> str:
    """Triggers that refuse to change or replace rows at all, and to remove them outside a purge."""
    key = "" if table == "blob" else "WHERE session = OLD.session"
    known = " OR ".join(
        f"EXISTS (SELECT 1 FROM {table} WHERE ({columns}) = ({_of_new(columns)}))" for columns in _KEPT[table]
    )
    return f"""
CREATE TRIGGER {table}_never_comes_again BEFORE INSERT ON {table}  -- a REPLACE removes rows unasked
WHEN {known}
BEGIN SELECT RAISE (ABORT, '{table} has this row already'); END;
CREATE TRIGGER {table}_never_changes BEFORE UPDATE ON {table}
BEGIN SELECT RAISE (ABORT, '{table} is append-only'); END;
CREATE TRIGGER {table}_never_goes BEFORE DELETE ON {table}
WHEN NOT EXISTS (SELECT 1 FROM purging {key})
BEGIN SELECT RAISE (ABORT, '{table} is append-only'); END;
"""


def _of_new(columns: str) -> str:
    return ", ".join(f"NEW.{column}" for column in columns.split(", "))


# The step to each version from the one before. A step is never edited once released; changes are new steps.
MIGRATIONS: Sequence[str] = (_FIRST + "".join(map(_keeping, _KEPT)),)


def version_of(connection: apsw.Connection) -> int:
    """The version of this database's tables; 0 for an empty database."""
    tables = connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'schema_version'").get
    return int(connection.execute("SELECT max(version) FROM schema_version").get) if tables else 0


def migrate(connection: apsw.Connection, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Bring the tables to the newest version, each step in one transaction; again changes nothing."""
    version = version_of(connection)
    if version > len(migrations):
        raise StoreError(
            f"the store has schema version {version}; this version of Bartack knows {len(migrations)} and older",
            code=ErrorCode.STORAGE_UNSUPPORTED,
        )
    for number in range(version + 1, len(migrations) + 1):
        with connection:
            connection.execute("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER PRIMARY KEY) STRICT")
            connection.execute(migrations[number - 1])
            connection.execute("INSERT INTO schema_version VALUES (?)", (number,))
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
