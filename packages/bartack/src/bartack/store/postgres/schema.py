"""The tables of a PostgreSQL store, its migrations and functions, and how text is stored in it.

What is stored stays: triggers refuse to change or delete entries and what belongs to them. The only way past them is a
transaction that first names the session it deletes in the setting `bartack.purge`. Everything else (`sessions`,
`spend`, `journal`) is updated in the transaction of the append that it is derived from.

Everything that writes is one statement, mostly a call of a function below. It is its own transaction, so no lock is
held while the server waits for a client: one that stops does not stop others. What the client's decision was based on
is checked again inside, by the checksum of the session's tail and the fence of its lease.

TEXT columns cannot contain NUL, so text is escaped. Ids are looked up by a hash of 16 bytes, because the length of an
index row is limited, and to save space; the id itself is in the entry. Words are indexed as numbers: a search finds
candidates by them, and then looks at the text.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from zlib import crc32

from bartack.nouns.errors import ErrorCode, StoreError
from bartack.store.checksums import digest_of
from bartack.store.errors import newer_schema_error
from bartack.store.index import SPEND_FIELDS
from bartack.store.postgres.connection import PostgresConnection, quoted

__all__ = ["MIGRATIONS", "SPEND_TYPES", "check_version", "escape", "key_of", "migrate", "numbers_of", "unescape"]

SPEND_TYPES = {name: "double precision" if name == "cost_usd" else "bigint" for name in SPEND_FIELDS}

_TABLES = f"""
CREATE TABLE IF NOT EXISTS sessions (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text COLLATE "C" NOT NULL UNIQUE,
    title text, created text NOT NULL, updated text COLLATE "C" NOT NULL,
    tail_id text NOT NULL, tail_seq bigint NOT NULL, checksum bytea NOT NULL,  -- of the tail
    fence text NOT NULL DEFAULT '', lease text  -- epoch and owner; the lease itself as JSON with a checksum
);
CREATE INDEX IF NOT EXISTS sessions_newest ON sessions (updated DESC, id DESC);

CREATE TABLE IF NOT EXISTS entries (
    session bigint NOT NULL, seq int NOT NULL CHECK (seq >= 1), needs_restore boolean NOT NULL,
    key bytea NOT NULL,  -- of the entry's id
    checksum bytea NOT NULL,
    text text NOT NULL,  -- not jsonb, which refuses NUL and reorders keys
    words int[],
    PRIMARY KEY (session, seq), UNIQUE (session, key)
);
-- A short list of pending words: less space, faster searches, and no append that has to sort in megabytes of them.
CREATE INDEX IF NOT EXISTS entries_words ON entries USING gin (words) WITH (gin_pending_list_limit = 256);
CREATE TABLE IF NOT EXISTS results (  -- tool calls with a result
    session bigint NOT NULL, seq int NOT NULL, call bytea NOT NULL, PRIMARY KEY (session, call)
);
CREATE TABLE IF NOT EXISTS branches (  -- entries whose parent is not the previous entry
    session bigint NOT NULL, seq int NOT NULL, parent_seq int NOT NULL, PRIMARY KEY (session, seq)
);
CREATE TABLE IF NOT EXISTS redactions (
    session bigint NOT NULL, key bytea NOT NULL, redacted text NOT NULL, PRIMARY KEY (session, key)
);
CREATE TABLE IF NOT EXISTS spend (  -- `model` is JSON: [provider, model]
    session bigint NOT NULL, key bytea NOT NULL, model text NOT NULL,
    {", ".join(f"{name} {kind} NOT NULL" for name, kind in SPEND_TYPES.items())}, PRIMARY KEY (session, key)
);
CREATE TABLE IF NOT EXISTS journal (  -- the deltas of the answer that is arriving, for readers in other processes
    session bigint NOT NULL, generation bigint NOT NULL, number bigint NOT NULL, text text NOT NULL,
    PRIMARY KEY (session, generation, number)
);
CREATE TABLE IF NOT EXISTS blobs (name bytea PRIMARY KEY, data bytea NOT NULL);
CREATE TABLE IF NOT EXISTS blob_uses (session bigint NOT NULL, name bytea NOT NULL, PRIMARY KEY (session, name));
CREATE INDEX IF NOT EXISTS blob_uses_by_name ON blob_uses (name);

DO $$ BEGIN
    ALTER TABLE entries ALTER COLUMN text SET COMPRESSION lz4;
    ALTER TABLE blobs ALTER COLUMN data SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported OR invalid_parameter_value THEN  -- this server was built without lz4
END $$;
"""

_TRIGGER_FUNCTIONS = """
CREATE OR REPLACE FUNCTION bartack_refuse() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP = 'DELETE' AND coalesce(current_setting('bartack.purge', true), '') <> '' THEN
        IF TG_TABLE_NAME = 'blobs' THEN
            RETURN OLD;
        ELSIF OLD.session::text = current_setting('bartack.purge') THEN
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
    -- Not an anti-join: without statistics the planner may use the wrong index for that, and read the whole session.
    SELECT n.seq - 1 INTO missing FROM added n WHERE n.seq > 1 AND (
        SELECT count(*) FROM entries e WHERE e.session = n.session AND e.seq = n.seq - 1) = 0 LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'seq % is missing', missing USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER entries_no_gap AFTER INSERT ON entries REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION bartack_no_gap();
"""

# The appends of a group. `s_...` are the sessions: their number, checksum, fence and lease as they were looked up (no
# number: there was no such session; no lease: it does not matter), and what they become. The first column of the other
# tables is a place in `s_...`. Returns the numbers of the sessions; NULL for those that were not as expected, of which
# nothing is stored.
_APPEND = f"""
CREATE OR REPLACE FUNCTION bartack_append(
    s_id text[], s_number bigint[], s_checksum bytea[], s_fence text[], s_lease text[],
    n_title text[], n_title_seq bigint[], n_created text[], n_updated text[],
    n_tail_id text[], n_tail_seq bigint[], n_checksum bytea[], n_fence text[], n_lease text[],
    e_at int[], e_seq int[], e_needs_restore boolean[], e_key bytea[], e_checksum bytea[], e_text text[],
    e_words text[],
    r_at int[], r_seq int[], r_call bytea[],
    b_at int[], b_seq int[], b_parent int[],
    x_at int[], x_key bytea[], x_redacted text[], x_seq int[],
    u_at int[], u_name bytea[], o_name bytea[], o_data bytea[],
    m_at int[], m_key bytea[], m_model text[], {", ".join(f"m_{name} {kind}[]" for name, kind in SPEND_TYPES.items())}
) RETURNS bigint[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    good int[] := '{{}}';
    numbers bigint[] := s_number;
    made bigint;
    place int;
BEGIN
    IF cardinality(o_name) > 0 THEN
        PERFORM pg_advisory_xact_lock_shared(hashtextextended('bartack blobs ' || current_schema(), 0));
    END IF;
    FOR place IN 1 .. cardinality(s_number) LOOP  -- one by one: each finds its row by index, however many there are
        IF s_number[place] IS NOT NULL THEN
            UPDATE sessions SET updated = coalesce(n_updated[place], updated),
                tail_id = coalesce(n_tail_id[place], tail_id), tail_seq = coalesce(n_tail_seq[place], tail_seq),
                checksum = coalesce(n_checksum[place], checksum), fence = coalesce(n_fence[place], fence),
                lease = coalesce(n_lease[place], lease), title = coalesce(n_title[place], title),
                title_seq = coalesce(n_title_seq[place], title_seq)
            WHERE number = s_number[place] AND checksum = s_checksum[place] AND fence = s_fence[place]
                AND (s_lease[place] IS NULL OR lease = s_lease[place]);
        ELSE
            INSERT INTO sessions (id, title, title_seq, created, updated, tail_id, tail_seq, checksum, fence, lease)
            VALUES (s_id[place], n_title[place], coalesce(n_title_seq[place], 1), n_created[place], n_updated[place],
                n_tail_id[place], n_tail_seq[place], n_checksum[place], coalesce(n_fence[place], ''), n_lease[place])
            ON CONFLICT DO NOTHING RETURNING number INTO made;
            numbers[place] := made;
        END IF;
        IF FOUND THEN
            good := good || place;
        END IF;
    END LOOP;
    IF cardinality(o_name) > 0 THEN
        INSERT INTO blobs SELECT * FROM unnest(o_name, o_data) AS a (name, data)
        WHERE name IN (SELECT name FROM unnest(u_at, u_name) AS u (at, name) WHERE at = ANY (good))
        ORDER BY name ON CONFLICT DO NOTHING;
        INSERT INTO blob_uses SELECT numbers[at], name FROM unnest(u_at, u_name) AS a (at, name) WHERE at = ANY (good)
        ON CONFLICT DO NOTHING;
    END IF;
    INSERT INTO entries (session, seq, needs_restore, key, checksum, text, words)
    SELECT numbers[at], seq, needs_restore, key, checksum, text, words::int[]
    FROM unnest(e_at, e_seq, e_needs_restore, e_key, e_checksum, e_text, e_words)
        AS a (at, seq, needs_restore, key, checksum, text, words) WHERE at = ANY (good);
    IF cardinality(r_at) > 0 THEN
        INSERT INTO results SELECT numbers[at], seq, call FROM unnest(r_at, r_seq, r_call) AS a (at, seq, call)
        WHERE at = ANY (good);
    END IF;
    IF cardinality(b_at) > 0 THEN
        INSERT INTO branches SELECT numbers[at], seq, parent FROM unnest(b_at, b_seq, b_parent) AS a (at, seq, parent)
        WHERE at = ANY (good);
    END IF;
    IF cardinality(x_at) > 0 THEN
        INSERT INTO redactions SELECT numbers[at], key, id FROM unnest(x_at, x_key, x_redacted) AS a (at, key, id)
        WHERE at = ANY (good) ON CONFLICT DO NOTHING;
        UPDATE sessions s SET title = NULL FROM unnest(x_at, x_seq) AS a (at, seq)
        WHERE a.at = ANY (good) AND s.number = numbers[a.at] AND s.title_seq = a.seq;
    END IF;
    IF cardinality(m_at) > 0 THEN
        INSERT INTO spend SELECT numbers[at], key, model, {", ".join(SPEND_FIELDS)}
        FROM unnest(m_at, m_key, m_model, {", ".join(f"m_{name}" for name in SPEND_FIELDS)})
            AS a (at, key, model, {", ".join(SPEND_FIELDS)}) WHERE at = ANY (good)
        ON CONFLICT (session, key) DO UPDATE
        SET {", ".join(f"{name} = spend.{name} + excluded.{name}" for name in SPEND_FIELDS)};
    END IF;
    IF cardinality(good) = cardinality(numbers) THEN
        RETURN numbers;
    END IF;
    RETURN ARRAY (SELECT CASE WHEN at = ANY (good) THEN number END
        FROM unnest(numbers) WITH ORDINALITY AS a (number, at) ORDER BY at);
END $$;
"""

# Deletes a session whose tail is still the expected one, and the blobs that no other session uses.
_DROP = """
CREATE OR REPLACE FUNCTION bartack_drop(dropped bigint, expected bytea) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('bartack blobs ' || current_schema(), 0));
    DELETE FROM sessions WHERE number = dropped AND checksum = expected;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM set_config('bartack.purge', dropped::text, true);
    DELETE FROM entries WHERE session = dropped;
    DELETE FROM results WHERE session = dropped;
    DELETE FROM branches WHERE session = dropped;
    DELETE FROM redactions WHERE session = dropped;
    DELETE FROM spend WHERE session = dropped;
    DELETE FROM journal WHERE session = dropped;
    DELETE FROM blobs b USING blob_uses u WHERE u.session = dropped AND b.name = u.name
        AND NOT EXISTS (SELECT FROM blob_uses o WHERE o.name = b.name AND o.session <> dropped);
    DELETE FROM blob_uses WHERE session = dropped;
    PERFORM set_config('bartack.purge', '', true);
    RETURN true;
END $$;
"""

# Writes a batch of the journal if the fence is still the expected one; without text, empties it.
_JOURNAL = """
CREATE OR REPLACE FUNCTION bartack_journal(
    session_id text, expected text, new_generation bigint, new_number bigint, new_text text
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    found_number bigint;
BEGIN
    SELECT number INTO found_number FROM sessions WHERE id = session_id AND fence = expected FOR SHARE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM journal WHERE session = found_number AND generation IS DISTINCT FROM new_generation;
    IF new_text IS NOT NULL THEN
        INSERT INTO journal VALUES (found_number, new_generation, new_number, new_text) ON CONFLICT DO NOTHING;
    END IF;
    RETURN true;
END $$;
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

# The entry that gave the title.
_TITLE_SEQ = "ALTER TABLE sessions ADD COLUMN IF NOT EXISTS title_seq bigint NOT NULL DEFAULT 1;"

# The step to each version from the one before. Each may run twice; a released one is never edited.
MIGRATIONS: Sequence[str] = (
    _TABLES + _TRIGGER_FUNCTIONS + "".join(map(_triggers, _APPEND_ONLY)) + _DROP + _JOURNAL,
    _TITLE_SEQ + _APPEND,
)

_OLDEST_SERVER = 140000  # CREATE OR REPLACE TRIGGER was added in PostgreSQL 14


async def migrate(connection: PostgresConnection, schema: str, migrations: Sequence[str] = MIGRATIONS) -> None:
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


async def check_version(connection: PostgresConnection, schema: str) -> None:
    """Raise `StoreError` unless the schema has the current version."""
    version = await _version(connection, schema, len(MIGRATIONS))
    if version < len(MIGRATIONS):
        problem = f"must be upgraded from version {version}" if version else "contains no store"
        raise StoreError(f"Schema {schema!r} {problem}: open it once without read_only.")


async def _version(connection: PostgresConnection, schema: str, newest: int) -> int:
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
        raise newer_schema_error(f"Schema {schema!r}", version, newest)
    return version


def _lock_number(*names: str) -> int:
    """The number of an advisory lock: 63 bits of a hash."""
    return int.from_bytes(sha256("\0".join(names).encode("utf-8", "surrogatepass")).digest()[:8]) >> 1


# -- text


def escape(text: str) -> str:
    """The text without NUL, reversibly. Unpaired surrogates, which no entry contains, merely stay distinct."""
    if "\\" in text or "\0" in text:
        text = text.replace("\\", "\\\\").replace("\0", "\\0")
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def unescape(text: str) -> str:
    """The original of an escaped text."""
    return "\\".join(part.replace("\\0", "\0") for part in text.split("\\\\")) if "\\" in text else text


def key_of(text: str) -> bytes:
    """An id as indexes contain it."""
    return digest_of(escape(text).encode())


def numbers_of(words: Iterable[str]) -> list[int]:
    """Words as the index contains them, each once. Different words may share a number."""
    return sorted({crc32(word.encode()) - 2**31 for word in words})
