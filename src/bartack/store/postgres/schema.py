"""The tables of a PostgreSQL store, its migrations and locks, and how text is stored in it.

What is stored stays: triggers refuse to change or delete entries and what belongs to them. The only way past them is a
transaction that first names the session it deletes in the setting `bartack.purge`. Everything else (`sessions`,
`words`, `spend`, `leases`) is updated in the transaction of the append that it is derived from.

TEXT columns cannot contain NUL, so text is escaped. Indexes have a length limit, so ids are looked up by `key_of`.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256

from bartack.nouns.errors import ErrorCode, StoreError
from bartack.store.errors import newer_schema
from bartack.store.postgres.connection import Connection, quoted

__all__ = [
    "MIGRATIONS",
    "escape",
    "key_of",
    "lexemes_of",
    "lock_blobs",
    "lock_sessions",
    "migrate",
    "tsquery_of",
    "unescape",
]

_FIRST = """
CREATE TABLE IF NOT EXISTS sessions (
    session_id text COLLATE "C" PRIMARY KEY, title text, created text NOT NULL, updated text COLLATE "C" NOT NULL,
    tail_id text NOT NULL, tail_seq bigint NOT NULL
);
CREATE INDEX IF NOT EXISTS sessions_newest ON sessions (updated DESC, session_id DESC);

CREATE TABLE IF NOT EXISTS entries (
    session_id text COLLATE "C" NOT NULL, seq bigint NOT NULL CHECK (seq >= 1), id text COLLATE "C" NOT NULL,
    text text NOT NULL,  -- not jsonb, which refuses NUL and reorders keys
    needs_restore boolean NOT NULL,
    PRIMARY KEY (session_id, seq), UNIQUE (session_id, id)
);
CREATE TABLE IF NOT EXISTS results (  -- tool calls with a result
    session_id text COLLATE "C" NOT NULL, tool_call_id text COLLATE "C" NOT NULL, seq bigint NOT NULL,
    PRIMARY KEY (session_id, tool_call_id)
);
CREATE TABLE IF NOT EXISTS branches (  -- entries whose parent is not the previous entry
    session_id text COLLATE "C" NOT NULL, seq bigint NOT NULL, parent_seq bigint NOT NULL, PRIMARY KEY (session_id, seq)
);
CREATE TABLE IF NOT EXISTS redactions (  -- `entry_id` is a key, `redacted` the id itself
    session_id text COLLATE "C" NOT NULL, entry_id text COLLATE "C" NOT NULL, redacted text NOT NULL,
    PRIMARY KEY (session_id, entry_id)
);
CREATE TABLE IF NOT EXISTS words (
    session_id text COLLATE "C" NOT NULL, seq bigint NOT NULL, words text NOT NULL, lexemes tsvector NOT NULL,
    PRIMARY KEY (session_id, seq)
);
CREATE INDEX IF NOT EXISTS words_lexemes ON words USING gin (lexemes);
CREATE TABLE IF NOT EXISTS spend (  -- `model` is JSON: [provider, model]
    session_id text COLLATE "C" NOT NULL, model_key text COLLATE "C" NOT NULL, model text NOT NULL,
    calls bigint NOT NULL, input_tokens bigint NOT NULL, output_tokens bigint NOT NULL,
    cache_read_tokens bigint NOT NULL, cache_write_tokens bigint NOT NULL, reasoning_tokens bigint NOT NULL,
    cost_usd double precision NOT NULL, unpriced bigint NOT NULL, PRIMARY KEY (session_id, model_key)
);
CREATE TABLE IF NOT EXISTS leases (  -- as JSON; a released one has an empty owner
    session_id text COLLATE "C" PRIMARY KEY, lease text NOT NULL
);
CREATE TABLE IF NOT EXISTS journal (  -- the deltas of the answer that is arriving, for readers in other processes
    session_id text COLLATE "C" NOT NULL, generation bigint NOT NULL, number bigint NOT NULL, text text NOT NULL,
    PRIMARY KEY (session_id, generation, number)
);
CREATE TABLE IF NOT EXISTS blobs (name text COLLATE "C" PRIMARY KEY, data bytea NOT NULL);
CREATE TABLE IF NOT EXISTS blob_uses (
    session_id text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, PRIMARY KEY (session_id, name)
);
CREATE INDEX IF NOT EXISTS blob_uses_by_name ON blob_uses (name);

CREATE OR REPLACE FUNCTION bartack_refuse() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP = 'DELETE' AND coalesce(current_setting('bartack.purge', true), '') <> '' THEN
        IF TG_TABLE_NAME = 'blobs' THEN
            RETURN OLD;
        ELSIF OLD.session_id = current_setting('bartack.purge') THEN
            RETURN OLD;
        END IF;
    END IF;
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END $$;

CREATE OR REPLACE FUNCTION bartack_no_gap() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    missing bigint;
BEGIN
    SELECT n.seq - 1 INTO missing FROM added n WHERE n.seq > 1 AND NOT EXISTS (
        SELECT FROM entries e WHERE e.session_id = n.session_id AND e.seq = n.seq - 1) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'seq % is missing', missing USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER entries_no_gap AFTER INSERT ON entries REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION bartack_no_gap();
"""


def _triggers(table: str) -> str:
    """Triggers that refuse to change rows, and to delete them outside a purge."""
    return f"""
CREATE OR REPLACE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE ON {table}
    FOR EACH ROW EXECUTE FUNCTION bartack_refuse();
CREATE OR REPLACE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION bartack_refuse();
"""


_APPEND_ONLY = ("entries", "results", "branches", "redactions", "blobs", "blob_uses")

# The step to each version from the one before. Each may run twice; a released one is never edited.
MIGRATIONS: Sequence[str] = (_FIRST + "".join(map(_triggers, _APPEND_ONLY)),)

_OLDEST_SERVER = 140000  # CREATE OR REPLACE TRIGGER was added in PostgreSQL 14


async def migrate(connection: Connection, schema: str, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Bring the schema to the current version, each step in one transaction.

    When several programs open a new store at once, a lock lets one do the work; the others find it done.
    """
    server = int(await connection.fetchval("SHOW server_version_num"))
    encoding = await connection.fetchval("SHOW server_encoding")
    if server < _OLDEST_SERVER:
        raise StoreError(f"PostgreSQL 14 or newer is required, but the server is version {server // 10000}.")
    if encoding != "UTF8":
        raise StoreError(f"The encoding of the database must be UTF8, but it is {encoding}.")
    if await _version(connection, schema, len(migrations)) == len(migrations):
        return
    for number, statements in enumerate(migrations, 1):
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _lock_number("migrate", schema))
            if await _version(connection, schema, len(migrations)) >= number:
                continue
            if number == 1:
                await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
                await connection.execute(
                    "CREATE TABLE IF NOT EXISTS schema_version (version int PRIMARY KEY, reached timestamptz NOT NULL)"
                )
            await connection.execute(statements)
            await connection.execute("INSERT INTO schema_version VALUES ($1, now())", number)


async def _version(connection: Connection, schema: str, newest: int) -> int:
    """The version of the schema, 0 if it is empty; raises `StoreError` if it is newer, or of another program."""
    tables = set(
        await connection.fetchval(
            "SELECT coalesce(array_agg(tablename::text), '{}') FROM pg_tables WHERE schemaname = $1", schema
        )
    )
    if not tables:
        return 0
    if "schema_version" not in tables:
        raise StoreError(
            f"Schema {schema!r} contains tables of another program ({', '.join(sorted(tables)[:3])}). "
            "Add ?schema=NAME to the address to use another schema.",
            code=ErrorCode.STORAGE_UNSUPPORTED,
        )
    version = int(await connection.fetchval("SELECT coalesce(max(version), 0) FROM schema_version"))
    if version > newest:
        raise newer_schema(f"Schema {schema!r}", version, newest)
    return version


# -- locks, held until the end of the transaction


async def lock_sessions(connection: Connection, schema: str, session_ids: Iterable[str]) -> None:
    """Lock these sessions for writing, in the same order everywhere, which avoids deadlocks."""
    numbers = sorted({_lock_number("session", schema, session_id) for session_id in session_ids})
    await connection.execute("SELECT pg_advisory_xact_lock(n) FROM unnest($1::bigint[]) n", numbers)


async def lock_blobs(connection: Connection, schema: str, *, shared: bool) -> None:
    """Lock the blobs: shared to refer to them, exclusively to delete unused ones."""
    function = "pg_advisory_xact_lock_shared" if shared else "pg_advisory_xact_lock"
    await connection.execute(f"SELECT {function}($1)", _lock_number("blobs", schema))


def _lock_number(*names: str) -> int:
    """The number of an advisory lock: 63 bits of a hash."""
    return int.from_bytes(sha256("\0".join(names).encode("utf-8", "surrogatepass")).digest()[:8]) >> 1


# -- text

_KEY_LIMIT = 1000  # bytes; an index row may have 2,700, and contains up to two keys
_LEXEME_LIMIT = 200  # characters; PostgreSQL's own limit is 2,046 bytes


def escape(text: str) -> str:
    """The text without NUL, reversibly. Unpaired surrogates, which no entry contains, merely stay distinct."""
    if "\\" in text or "\0" in text:
        text = text.replace("\\", "\\\\").replace("\0", "\\0")
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def unescape(text: str) -> str:
    """The original of an escaped text."""
    return "\\".join(part.replace("\\0", "\0") for part in text.split("\\\\")) if "\\" in text else text


def key_of(text: str) -> str:
    """An id as an index contains it: escaped or, if it is too long, hashed. Different ids have different keys."""
    safe = escape(text)
    if len(safe.encode()) <= _KEY_LIMIT:
        return safe
    return "\\#" + sha256(safe.encode()).hexdigest()  # no escaped text contains this pair


def lexemes_of(words: Iterable[str]) -> list[str]:
    """Words as the index contains them: each once, long ones truncated. They may find too much, never too little."""
    return sorted({word[:_LEXEME_LIMIT] for word in words})


def tsquery_of(phrases: Iterable[Iterable[str]]) -> str:
    """The tsquery for all these words, which are letters and digits and need no escaping."""
    return " & ".join(f"'{word}'" for word in lexemes_of(word for phrase in phrases for word in phrase))
