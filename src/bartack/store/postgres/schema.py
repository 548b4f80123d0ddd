"""The tables of a PostgreSQL store, and how a schema gets from any version to the current one.

What is stored stays: triggers refuse to change or delete entries and what hangs on them. The one way around them is a
transaction that first says, in the setting `bartack.purge`, which session it removes. Everything else (`sessions`,
`words`, `spend`, `leases`) is counted up or taken over, in the transaction of the append it belongs to.

Ids are looked up by `postgres_text.key`, because an index takes neither every character nor every length.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256

from bartack.nouns.errors import ErrorCode, StoreError
from bartack.store.postgres.connection import Connection, quoted

__all__ = ["MIGRATIONS", "escaped", "key", "lexemes", "lock_number", "migrate", "query_of", "unescaped"]

_FIRST = """
CREATE TABLE IF NOT EXISTS sessions (
    session_id text COLLATE "C" PRIMARY KEY,
    title text,
    created text NOT NULL,
    updated text COLLATE "C" NOT NULL,
    tail_id text NOT NULL,
    tail_seq bigint NOT NULL
);
CREATE INDEX IF NOT EXISTS sessions_newest ON sessions (updated DESC, session_id DESC);

CREATE TABLE IF NOT EXISTS entries (
    session_id text COLLATE "C" NOT NULL,
    seq bigint NOT NULL CHECK (seq >= 1),
    id text COLLATE "C" NOT NULL,
    parent_id text,
    run_id text,
    kind text NOT NULL,
    timestamp text NOT NULL,
    text text NOT NULL,  -- never jsonb, which has other ideas about NUL, key order and numbers
    is_cut boolean NOT NULL,  -- bodies were taken out of it
    PRIMARY KEY (session_id, seq),
    UNIQUE (session_id, id)
);

CREATE TABLE IF NOT EXISTS results (  -- the calls that have ended
    session_id text COLLATE "C" NOT NULL,
    tool_call_id text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    PRIMARY KEY (session_id, tool_call_id)
);

CREATE TABLE IF NOT EXISTS jumps (  -- entries that do not follow the one before them
    session_id text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    parent_seq bigint NOT NULL,
    PRIMARY KEY (session_id, seq)
);

CREATE TABLE IF NOT EXISTS redactions (
    session_id text COLLATE "C" NOT NULL,
    entry_id text COLLATE "C" NOT NULL,
    redacted text NOT NULL,  -- the id as it is, which may be too long for a key
    PRIMARY KEY (session_id, entry_id)
);

CREATE TABLE IF NOT EXISTS words (
    session_id text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    words text NOT NULL,
    lexemes tsvector NOT NULL,
    PRIMARY KEY (session_id, seq)
);
CREATE INDEX IF NOT EXISTS words_lexemes ON words USING gin (lexemes);

CREATE TABLE IF NOT EXISTS spend (
    session_id text COLLATE "C" NOT NULL,
    model_key text COLLATE "C" NOT NULL,
    model text NOT NULL,  -- JSON: [provider, model]
    calls bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cache_read_tokens bigint NOT NULL,
    cache_write_tokens bigint NOT NULL,
    reasoning_tokens bigint NOT NULL,
    cost_usd double precision NOT NULL,
    unpriced bigint NOT NULL,
    PRIMARY KEY (session_id, model_key)
);

CREATE TABLE IF NOT EXISTS leases (
    session_id text COLLATE "C" PRIMARY KEY,
    owner text NOT NULL,  -- empty: given back
    epoch bigint NOT NULL,
    expires_at timestamptz NOT NULL
);

CREATE TABLE IF NOT EXISTS bodies (
    sha256 text COLLATE "C" PRIMARY KEY,
    body bytea NOT NULL
);

CREATE TABLE IF NOT EXISTS body_uses (
    session_id text COLLATE "C" NOT NULL,
    sha256 text COLLATE "C" NOT NULL,
    PRIMARY KEY (session_id, sha256)
);
CREATE INDEX IF NOT EXISTS body_uses_by_body ON body_uses (sha256);

CREATE OR REPLACE FUNCTION bartack_refuse() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP = 'DELETE' AND coalesce(current_setting('bartack.purge', true), '') <> '' THEN
        IF TG_TABLE_NAME = 'bodies' THEN
            RETURN OLD;
        ELSIF OLD.session_id = current_setting('bartack.purge') THEN
            RETURN OLD;
        END IF;
    END IF;
    RAISE EXCEPTION 'what is stored in % is neither changed nor deleted', TG_TABLE_NAME
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

CREATE OR REPLACE TRIGGER entries_follow AFTER INSERT ON entries REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION bartack_no_gap();
"""


def _keeping(table: str) -> str:
    """Triggers that refuse to change rows at all, and to remove them outside a purge."""
    return f"""
CREATE OR REPLACE TRIGGER {table}_stay BEFORE UPDATE OR DELETE ON {table}
    FOR EACH ROW EXECUTE FUNCTION bartack_refuse();
CREATE OR REPLACE TRIGGER {table}_remain BEFORE TRUNCATE ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION bartack_refuse();
"""


_KEPT = ("entries", "results", "jumps", "redactions", "bodies", "body_uses")

MIGRATIONS: Sequence[str] = (
    _FIRST + "".join(map(_keeping, _KEPT)),
)  # the migration at place n leads to version n + 1; each may run twice

_OLDEST_SERVER = 140000  # CREATE OR REPLACE TRIGGER came with PostgreSQL 14


def lock_number(*names: str) -> int:
    """The number of an advisory lock: 63 bits of a hash."""
    return int.from_bytes(sha256("\0".join(names).encode("utf-8", "surrogatepass")).digest()[:8]) >> 1


async def migrate(connection: Connection, schema: str, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Bring the schema to the current version, each step in a transaction of its own.

    Several programs may open a new store at once: a lock lets one do the work and the others find it done.
    """
    server = int(await connection.fetchval("SHOW server_version_num"))
    encoding = await connection.fetchval("SHOW server_encoding")
    if server < _OLDEST_SERVER:
        raise StoreError(f"PostgreSQL 14 or newer is needed, and this is {server // 10000}")
    if encoding != "UTF8":
        raise StoreError(f"the database must be made with the encoding UTF8, not {encoding}")
    if await _version(connection, schema, len(migrations)) == len(migrations):
        return
    for number, statements in enumerate(migrations, 1):
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", lock_number("migrate", schema))
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
    """The version of the schema, 0 where there is nothing yet; `StoreError` for one that is not ours to touch."""
    tables = set(
        await connection.fetchval(
            "SELECT coalesce(array_agg(tablename::text), '{}') FROM pg_tables WHERE schemaname = $1", schema
        )
    )
    if not tables:
        return 0
    if not tables >= {"schema_version"}:
        raise StoreError(
            f"the schema {schema!r} holds tables of another program ({', '.join(sorted(tables)[:3])})",
            code=ErrorCode.STORAGE_UNSUPPORTED,
        )
    version = int(await connection.fetchval("SELECT coalesce(max(version), 0) FROM schema_version"))
    if version > newest:
        raise StoreError(
            f"the store has version {version} and this Bartack knows up to {newest}: it was written by a newer Bartack",
            code=ErrorCode.STORAGE_UNSUPPORTED,
        )
    return version


_KEY_LIMIT = 1000  # bytes; two of them fit into an index row
_LEXEME_LIMIT = 200  # characters; PostgreSQL's own limit is 2,046 bytes


def escaped(text: str) -> str:
    """The text without NUL; `unescaped` gives it back. Half characters, which no entry holds, only stay apart."""
    if "\\" in text or "\0" in text:
        text = text.replace("\\", "\\\\").replace("\0", "\\0")
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def unescaped(text: str) -> str:
    """The text that was escaped."""
    return "\\".join(piece.replace("\\0", "\0") for piece in text.split("\\\\")) if "\\" in text else text


def key(text: str) -> str:
    """What stands for an id in an index: itself, escaped, or where it is too long its hash. No two have one key."""
    safe = escaped(text)
    if len(safe.encode()) <= _KEY_LIMIT:
        return safe
    return "\\#" + sha256(safe.encode()).hexdigest()  # no escaped text holds this pair


def lexemes(words: Iterable[str]) -> list[str]:
    """The words as an index holds them: each once, the long ones cut. They find too much, never too little."""
    return sorted({word[:_LEXEME_LIMIT] for word in words})


def query_of(asked: Iterable[Iterable[str]]) -> str:
    """The tsquery for entries that hold all these words; words are letters and digits and need no escape."""
    return " & ".join(f"'{word}'" for word in lexemes(word for phrase in asked for word in phrase))
