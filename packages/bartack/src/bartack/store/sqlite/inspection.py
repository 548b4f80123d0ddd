"""What `bartack sessions fsck` finds wrong with a SQLite file.

Checked are: every page and index (SQLite's own check), the tables and triggers themselves, the witness outside the
database, the chain of checksums, blobs, leases, and everything that is derived from the entries, word by word.
Whatever cannot be read is a finding too, and the check continues with the rest.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import apsw

from bartack.nouns import wire
from bartack.nouns.entries import MessageDeltaBatch
from bartack.store.blobs import damage_to, referenced, restore_blobs
from bartack.store.checksums import broken_at, unseal
from bartack.store.derived import Derived, derive, differences
from bartack.store.entries import envelope_of, read_entry
from bartack.store.index import SPEND_FIELDS, text_of
from bartack.store.search import words
from bartack.store.session_store import Finding, FindingKind, Spend, Tail
from bartack.store.sqlite.schema import MIGRATIONS, migrate
from bartack.store.sqlite.witness import Witness

__all__ = ["UNREADABLE", "session_damage", "store_damage"]

# Whatever SQLite and apsw raise for a damaged file, and Python for a value whose type has changed.
UNREADABLE = (apsw.Error, UnicodeDecodeError, TypeError)
_WORD_LIMIT = 32768  # bytes of a word that FTS5 indexes
Damage = Iterator[tuple[int | None, str]]


def store_damage(connection: apsw.Connection) -> Iterator[Finding]:
    """What is wrong with the store as a whole.

    The witness comes first: its note must be older than what the transaction sees, which its first read determines.
    Otherwise the note would lead in a store that is being written to.
    """
    yield from _rolled_back(connection)
    for check in (_broken_pages, _broken_schema, _unrelated_rows, _broken_search):
        yield from _guarded(None, check, connection)


def session_damage(connection: apsw.Connection, session_id: str, number: int) -> Iterator[Finding]:
    """What is wrong with how a session is stored."""
    session = _InspectedSession(connection, number)
    yield from _guarded(session_id, _broken_chain, session, fault="checksum")
    for check in (_broken_rows, _broken_blobs, _broken_lease, _broken_journal, _broken_index):
        yield from _guarded(session_id, check, session)


def _guarded(
    session_id: str | None, check: Callable[[Any], Damage], subject: object, fault: FindingKind = "damaged"
) -> Iterator[Finding]:
    try:
        for seq, message in check(subject):
            yield Finding(session_id=session_id, seq=seq, fault=fault, message=message)
    except UNREADABLE as error:
        yield Finding(session_id=session_id, fault="damaged", message=f"cannot be read: {error}")


# -- the store


def _broken_pages(connection: apsw.Connection) -> Damage:
    for (text,) in connection.execute("PRAGMA integrity_check"):
        if text != "ok":
            yield None, text


def _broken_schema(connection: apsw.Connection) -> Damage:
    """The tables, indexes and triggers, compared with those of a new store: a damaged trigger protects nothing."""
    reference = apsw.Connection(":memory:")
    migrate(reference)
    sql = "SELECT type, name, tbl_name, sql FROM sqlite_schema"
    expected, actual = set(reference.execute(sql)), set(connection.execute(sql))
    reference.close()
    for kind, name, *_ in sorted(expected - actual):
        yield None, f"the {kind} {name} was altered, or is missing"
    for kind, name, *_ in sorted(actual - expected):
        yield None, f"the {kind} {name} does not belong to the store"
    versions = [version for (version,) in connection.execute("SELECT version FROM schema_version ORDER BY version")]
    if versions != list(range(1, len(MIGRATIONS) + 1)):
        yield None, f"the recorded schema versions are {versions}"


def _unrelated_rows(connection: apsw.Connection) -> Damage:
    for table in _TABLES:
        sql = f"SELECT DISTINCT session FROM {table} WHERE session NOT IN (SELECT number FROM session)"
        for (number,) in connection.execute(sql):
            yield None, f"{table} has rows of a session that does not exist (number {number})"
    for (name,) in connection.execute("SELECT name FROM blob WHERE name NOT IN (SELECT name FROM blob_use)"):
        yield None, f"blob {name} belongs to no session"
    for (name,) in connection.execute("SELECT name FROM blob_use WHERE name NOT IN (SELECT name FROM blob)"):
        yield None, f"blob {name} is missing"
    if connection.execute("SELECT count(*) FROM purging").get:
        yield None, "a deletion was not finished"


_TABLES = ("entry", "branch", "result", "redaction", "spend", "blob_use", "journal")


def _broken_search(connection: apsw.Connection) -> Damage:
    """Every word of the search index, compared with the words of the entries."""
    indexed = _indexed(connection)
    hidden = set(connection.execute("SELECT session, entry_id FROM redaction"))
    entries = "SELECT number, session, seq, CAST(text AS BLOB), needs_restore FROM entry"
    for number, session, seq, text, is_cut in connection.execute(entries):
        restored = _InspectedSession(connection, session).whole(text) if is_cut else text
        entry = read_entry("", seq, restored or b"")
        searchable = [] if (session, entry.id) in hidden else words(text_of(entry.fact))
        if indexed.pop(number, 0) != sum(map(hash, enumerate(word.encode()[:_WORD_LIMIT] for word in searchable))):
            yield None, f"the search index is wrong about entry {entry.id!r} of session number {session}"
    for number in indexed:
        yield None, f"the search index contains an entry that does not exist (number {number})"


def _indexed(connection: apsw.Connection) -> dict[int, int]:
    """For each entry in the search index, the sum of the hashes of its words and their places."""
    connection.pragma("query_only", "OFF")  # only a temporary table is created, outside of the file
    connection.execute("CREATE VIRTUAL TABLE IF NOT EXISTS temp.indexed USING fts5vocab ('main', 'search', 'instance')")
    connection.pragma("query_only", "ON")
    indexed: dict[int, int] = {}
    for number, offset, term in connection.execute("SELECT doc, offset, CAST(term AS BLOB) FROM temp.indexed"):
        indexed[number] = indexed.get(number, 0) + hash((offset, term))
    return indexed


def _rolled_back(connection: apsw.Connection) -> Iterator[Finding]:
    try:
        damage = Witness(Path(connection.filename)).damage(connection)
    except UNREADABLE as error:
        damage = f"the table store cannot be read: {error}"
    if damage is not None:
        yield Finding(session_id=None, fault="damaged", message=damage, repairable=True)


# -- a session


class _InspectedSession:
    """The readable rows of a session."""

    def __init__(self, connection: apsw.Connection, number: int) -> None:
        self.connection = connection
        self.number = number

    def rows(self, sql: str) -> list[Any]:
        """The rows of a query in which ``?`` is the number of the session."""
        return self.connection.execute(sql, (self.number,) * sql.count("?")).fetchall()

    @cached_property
    def entries(self) -> list[Any]:
        """Seq, id, text, needs_restore and checksum of each entry, text as bytes."""
        return self.rows(
            "SELECT seq, CAST(id AS BLOB), CAST(text AS BLOB), needs_restore, checksum FROM entry "
            "WHERE session = ? ORDER BY seq"
        )

    @cached_property
    def texts(self) -> list[bytes | None]:
        """The entries as they were appended; None if a blob is lost."""
        return [self.whole(text) if is_cut else text for _, _, text, is_cut, _ in self.entries]

    def blob(self, name: str) -> bytes | None:
        row = self.connection.execute("SELECT data FROM blob WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def whole(self, text: bytes) -> bytes | None:
        """The text as it was appended; None if a blob is lost or was altered."""
        is_damaged = any(damage_to(name, self.blob(name)) for name in referenced(text))
        return None if is_damaged else restore_blobs(text, self.blob)


def _broken_chain(session: _InspectedSession) -> Damage:
    entries = session.entries
    for position in broken_at(session.texts, [checksum for *_, checksum in entries]):
        yield entries[position][0], "the entry does not match its checksum, or does not follow the entry before it"
    ((tail, seq, checksum),) = session.rows("SELECT tail_id, tail_seq, checksum FROM session WHERE number = ?")
    if not entries or (seq, checksum) != (entries[-1][0], entries[-1][-1]):
        yield seq, f"the last entry is not the recorded tail {tail!r} (seq {seq}), or not the same"


def _broken_rows(session: _InspectedSession) -> Damage:
    for seq, id, text, is_cut, _ in session.entries:
        envelope = envelope_of(text)
        if envelope is not None and (envelope.id.encode(), envelope.seq) != (id, seq):
            yield seq, f"entry {envelope.id!r} (seq {envelope.seq}) is stored as {id!r} (seq {seq})"
        if is_cut != (b'$blob"' in text and session.whole(text) != text):
            yield seq, "whether the entry refers to blobs is recorded wrongly"


def _broken_blobs(session: _InspectedSession) -> Damage:
    for seq, _, text, is_cut, _ in session.entries:
        for damage in (damage_to(name, session.blob(name)) for name in referenced(text) if is_cut):
            if damage is not None:
                yield seq, damage


def _broken_lease(session: _InspectedSession) -> Damage:
    ((lease,),) = session.rows("SELECT CAST(lease AS BLOB) FROM session WHERE number = ?")
    if lease is not None and unseal(lease) is None:
        yield None, "the lease is damaged; the session counts as free"


def _broken_journal(session: _InspectedSession) -> Damage:
    for generation, number, line in session.rows(
        "SELECT generation, number, CAST(text AS BLOB) FROM journal WHERE session = ?"
    ):
        text = unseal(line)
        batch = None if text is None else wire.decode(MessageDeltaBatch, text)
        if batch is None or (batch.generation, batch.number) != (generation, number):
            yield None, f"batch {number} of the journal is damaged"


def _broken_index(session: _InspectedSession) -> Damage:
    """Whatever is derived from the entries."""
    expected = derive([seq for seq, *_ in session.entries], [text or b"" for text in session.texts])
    if expected is not None:  # otherwise an entry is unreadable, which is reported as such
        yield from differences(_stored(session), expected)


def _stored(session: _InspectedSession) -> Derived:
    sql = "SELECT title, created, updated, tail_id, tail_seq FROM session WHERE number = ?"
    ((title, created, updated, tail_id, tail_seq),) = session.rows(sql)
    spends = session.rows(f"SELECT provider, model, {', '.join(SPEND_FIELDS)} FROM spend WHERE session = ?")
    return Derived(
        title,
        created,
        updated,
        Tail(tail_id, tail_seq),
        dict(session.rows("SELECT seq, parent_seq FROM branch WHERE session = ?")),
        dict(session.rows("SELECT call_id, seq FROM result WHERE session = ?")),
        {entry_id for (entry_id,) in session.rows("SELECT entry_id FROM redaction WHERE session = ?")},
        {(row[0], row[1]): Spend(**dict(zip(SPEND_FIELDS, row[2:], strict=True))) for row in spends},
        {name for (name,) in session.rows("SELECT name FROM blob_use WHERE session = ?")},
    )
