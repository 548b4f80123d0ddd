"""Sessions as canonical JSONL with checksums, from any store to any other.

Redacted content is not exported, and a redaction that is imported later applies to entries that are already stored.

An import is a quarantine. It takes two passes. The first checks every line and copies it aside; the second appends what
is new, all sessions in one step (`SessionStore.append_all`). So a file with an error in its last line leaves no trace,
neither does a process that is killed, and no worker can act on half of a file. Runs and calls that the file leaves open
are closed in the same step, and the sessions are marked as foreign (bartack.store.foreign): nothing runs in them before
a person has adopted them. In memory are the ids of one session, and batches of entries.

An import can be repeated, and adds what the file has in addition.

Of a damaged session, entries that are intact stay as they are, byte for byte. One that cannot be read, or is lost,
becomes a `Custom` fact named ``bartack.unreadable`` in its place, with what is left of its text (`whole_session`).
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import chain as chain_iterables
from itertools import groupby, islice
from operator import attrgetter
from tempfile import SpooledTemporaryFile
from typing import IO

from msgspec.structs import replace

from bartack.nouns import wire
from bartack.nouns.entries import Custom, Entry, Redaction, SessionHeader
from bartack.nouns.errors import Conflict, NotFound, PartValidationError, StoreError
from bartack.nouns.noun import Noun
from bartack.session.outline import UNREADABLE
from bartack.session.redaction import redacted
from bartack.store.append import prepare
from bartack.store.blobs import referenced
from bartack.store.checksums import chain, digest_of, split_checksum, with_checksum
from bartack.store.entries import NO_TIME, Entries, Envelope, envelope_of, read_entry, unreadable_id
from bartack.store.errors import invalid_value_error
from bartack.store.foreign import check_foreign_id, marking_append
from bartack.store.open_work import OpenWork, closing_entries, closing_facts
from bartack.store.session_store import SessionAppend, SessionStore, Tail

__all__ = ["ENTRY_LIMIT", "LINE_LIMIT", "Imported", "export_session", "import_lines", "read_lines", "whole_session"]

LINE_LIMIT = 64 * 1024 * 1024  # bytes
ENTRY_LIMIT = 1_000_000  # entries of one session
_BATCH = 500  # entries
_SPOOLED = 16 * 1024 * 1024  # bytes that an import keeps in memory; what is longer goes to a temporary file


class Imported(Noun, frozen=True):
    """The sessions of an import and the number of entries read, whether or not they were already stored."""

    sessions: tuple[str, ...]
    entries: int


# -- export


async def export_session(store: SessionStore, session_id: str) -> AsyncIterator[bytes]:
    """The lines of a session, all branches, in order of `seq`; each ends in a newline.

    A damaged entry is exported as an entry that records the damage, with what is left of its text.
    """
    entries = await store.entries(session_id)
    hidden = _redacted_ids(entries)
    checksum = b""
    for seq, text in enumerate(whole_session(session_id, entries.seqs, entries.texts), 1):
        envelope = envelope_of(text)
        if envelope is not None and envelope.id in hidden:
            text = wire.encode(_hidden(read_entry(session_id, seq, text)))
        checksum = chain(checksum, digest_of(text))
        yield with_checksum(text, checksum) + b"\n"


def _redacted_ids(entries: Entries) -> set[str]:
    """The entries that a redaction refers to."""
    ids: set[str] = set()
    for text in entries.texts:
        envelope = envelope_of(text) if b'"redaction"' in text else None
        if envelope is not None and envelope.kind == Redaction.kind:
            try:
                ids.add(wire.decode(Redaction, bytes(envelope.payload)).entry_id)
            except PartValidationError:
                pass  # an unreadable entry, which the check reports
    return ids


# -- import


def read_lines(file: IO[bytes], limit: int = LINE_LIMIT) -> Iterator[bytes]:
    """The lines of a file; `StoreError` for one that is longer than `limit` bytes."""
    number = 0
    while line := file.readline(limit + 1):
        number += 1
        if len(line) > limit:
            raise invalid_value_error(f"Line {number} has more than {limit:,} bytes.")
        yield line


async def import_lines(store: SessionStore, lines: Iterable[bytes]) -> Imported:
    """Append sessions from canonical JSONL, the lines of each session together and in order. They are foreign then.

    Entries that are already stored are skipped. The lines are first checked, all of them, and only then stored, all of
    them in one step.

    Raises:
        StoreError: A line is not an entry, does not match its checksum or does not fit the lines before it; the message
            has its number. Nothing was stored.
        Conflict: A session contradicts what is stored. Nothing was stored.
    """
    with SpooledTemporaryFile(max_size=_SPOOLED) as spool:
        checked = await _check(store, lines, spool)
        additions = {session.session_id: session for session in checked if session.has_additions}
        if additions:
            marks = [marking_append(session_id) for session_id in additions]

            def appends() -> Iterator[SessionAppend]:
                yield from marks
                for session_id, entries in groupby(_spooled_entries(spool), key=attrgetter("session_id")):
                    if session_id in additions:
                        yield from additions[session_id].appends(entries)

            # The marks come first: nobody may see a session before its mark.
            await store.append_all([*(mark.session_id for mark in marks), *additions], appends)
    return Imported(tuple(session.session_id for session in checked), sum(session.count for session in checked))


async def _check(store: SessionStore, lines: Iterable[bytes], spool: IO[bytes]) -> "list[_SessionImport]":
    """The sessions of the lines, which are copied to `spool`: nobody can change them there after they were checked."""
    sessions: dict[str, _SessionImport] = {}
    current: _SessionImport | None = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        entry, text, checksum = _read(number, line)
        if current is None or current.session_id != entry.session_id:
            if entry.session_id in sessions:
                raise _line_error(number, f"the lines of session {entry.session_id!r} are not together")
            if current is not None:
                current.end()
            current = sessions[entry.session_id] = await _SessionImport.begin(store, entry.session_id)
        current.check(number, entry, text, checksum)
        spool.write(text + b"\n")
    if current is not None:
        current.end()
    return list(sessions.values())


def _spooled_entries(spool: IO[bytes]) -> Iterator[Entry]:
    spool.seek(0)
    for line in spool:
        yield wire.decode(Entry, line)


def _read(number: int, line: bytes) -> tuple[Entry, bytes, bytes | None]:
    text, checksum = split_checksum(line.rstrip())
    try:
        return wire.decode(Entry, text), text, checksum
    except PartValidationError as error:
        raise invalid_value_error(f"Line {number} is not an entry: {error}", error) from error


def _line_error(number: int, problem: str) -> StoreError:
    return invalid_value_error(f"Line {number}: {problem}.")


class _SessionImport:
    """One session of an import: checked line by line, and then appended in batches."""

    def __init__(self, store: SessionStore, session_id: str, stored: Entries | None) -> None:
        self.session_id = session_id
        self.count = 0  # entries that were read
        self._store = store
        self._stored: Entries | None = stored
        self._stored_count = 0 if stored is None else len(stored)
        self._hidden = set[str]() if stored is None else _redacted_ids(stored)
        self._tail: Tail | None = None  # the last entry that was read
        self._stored_tail: str | None = None  # the last of those that are stored
        self._open = OpenWork()
        self._closing: list[Entry] = []
        self._ids: set[str] = set()
        self._results: set[str] = set()  # calls with a result
        self._checksum: bytes | None = b""  # the checksum of the last line; None: the lines have none

    @classmethod
    async def begin(cls, store: SessionStore, session_id: str) -> "_SessionImport":
        check_foreign_id(session_id)
        try:
            return cls(store, session_id, await store.entries(session_id))
        except NotFound:
            return cls(store, session_id, None)

    def check(self, number: int, entry: Entry, text: bytes, checksum: bytes | None) -> None:
        """Raise `StoreError` for a line that cannot follow those before it."""
        self._verify(number, text, checksum)
        if entry.seq != self.count + 1:
            raise _line_error(number, f"entry {entry.id!r} has seq {entry.seq}, expected {self.count + 1}")
        if self.count >= ENTRY_LIMIT:
            raise _line_error(number, f"session {self.session_id!r} has more than {ENTRY_LIMIT:,} entries")
        if entry.id in self._ids:
            raise _line_error(number, f"entry id {entry.id!r} occurs twice")
        batch = prepare(self.session_id, [entry])
        if missing := batch.references - self._ids:
            raise _line_error(number, f"entry {min(missing)!r}, to which {entry.id!r} refers, does not precede it")
        if repeated := batch.calls & self._results:
            raise _line_error(number, f"tool call {min(repeated)!r} already has a result")
        if self._is_stored(entry, text):
            self._stored_tail = entry.id
        self._ids.add(entry.id)
        self._results |= batch.calls
        self._open.push(entry)
        self._tail = Tail(entry.id, entry.seq)
        self.count += 1

    def _verify(self, number: int, text: bytes, checksum: bytes | None) -> None:
        """Raise `StoreError` for a line that does not follow the one before it."""
        if self._checksum == b"" and checksum is None:
            self._checksum = None  # not exported by Bartack
        expected = None if self._checksum is None else chain(self._checksum, digest_of(text))
        if checksum != expected:
            raise invalid_value_error(
                f"Line {number} does not match its checksum: it was changed, or lines before it are missing."
            )
        self._checksum = checksum

    def _is_stored(self, entry: Entry, text: bytes) -> bool:
        """Whether the entry is stored, as it is or with its content redacted on either side; `Conflict` if changed."""
        stored, position = self._stored, self.count
        if stored is None or position >= len(stored):
            return False
        if stored.texts[position] != text:
            stored_entry = read_entry(self.session_id, stored.seqs[position], stored.texts[position])
            is_same = _hidden(entry) == _hidden(stored_entry) and (entry.id in self._hidden or entry == _hidden(entry))
            if not is_same:
                raise Conflict(
                    f"Entry {stored_entry.id!r} of session {self.session_id!r} is stored with different content."
                )
        return True

    def end(self) -> None:
        """Determine how what the lines leave open is closed, and forget what only `check` needs."""
        assert self._tail is not None  # a session has a line
        if self.has_additions:
            closing = closing_facts(self._open, "imported")
            self._closing = closing_entries(self.session_id, self._tail, closing, self._store)
        self._stored, self._open = None, OpenWork()
        self._ids.clear()
        self._results.clear()

    @property
    def has_additions(self) -> bool:
        return self.count > self._stored_count

    def appends(self, entries: Iterable[Entry]) -> Iterator[SessionAppend]:
        """What is not stored of the entries, and what closes the session, in batches."""
        tail = self._stored_tail
        added = chain_iterables(islice(entries, self._stored_count, None), self._closing)
        while batch := list(islice(added, _BATCH)):
            yield SessionAppend(self.session_id, batch, tail)
            tail = batch[-1].id


def _hidden(entry: Entry) -> Entry:
    return replace(entry, fact=redacted(entry.fact), extra=None)


# -- damaged sessions


def whole_session(session_id: str, seqs: Iterable[int], texts: Iterable[bytes]) -> Iterator[bytes]:
    """The canonical JSON of the entries, without gaps, repeats and unknown parents. The seqs rise."""
    last = 0
    previous: str | None = None
    ids: set[str] = set()
    for seq, text in zip(seqs, texts, strict=True):
        for missing in range(last + 1, seq):
            entry = _placeholder(session_id, missing, previous)
            ids.add(entry.id)
            previous = entry.id
            yield wire.encode(entry)
        envelope = envelope_of(text)
        if envelope is not None and _is_in_place(envelope, session_id, seq, text, ids):
            previous = envelope.id
        else:
            entry = _in_place(session_id, seq, text, previous, ids)
            text, previous = wire.encode(entry), entry.id
        ids.add(previous)
        last = seq
        yield text


def _is_in_place(envelope: Envelope, session_id: str, seq: int, text: bytes, ids: set[str]) -> bool:
    if (envelope.session_id, envelope.seq) != (session_id, seq) or envelope.id in ids:
        return False
    if seq == 1 and (envelope.kind, envelope.parent_id) != (SessionHeader.kind, None):
        return False
    if seq > 1 and envelope.parent_id not in ids:
        return False
    return not (referenced(text) and _lacks_blob(text))


def _lacks_blob(text: bytes) -> bool:
    """Whether a text with something like a reference is not an entry: then a blob is lost."""
    try:
        wire.decode(Entry, text)
    except PartValidationError:
        return True
    return False


def _in_place(session_id: str, seq: int, text: bytes, previous: str | None, ids: set[str]) -> Entry:
    """What can be read of the entry, moved to its position."""
    entry = read_entry(session_id, seq, text)
    fact = entry.fact
    if isinstance(fact, Custom) and fact.name == UNREADABLE:
        fact = replace(fact, data={**fact.data, "text": text.decode(errors="replace")})
    return replace(
        entry,
        id=unreadable_id(session_id, seq) if entry.id in ids else entry.id,
        session_id=session_id,
        seq=seq,
        parent_id=entry.parent_id if entry.parent_id in ids else previous,
        fact=fact if seq > 1 or isinstance(fact, SessionHeader) else SessionHeader(),
    )


def _placeholder(session_id: str, seq: int, previous: str | None) -> Entry:
    fact = SessionHeader() if seq == 1 else Custom(name=UNREADABLE, data={"error": "the entry is lost"})
    return Entry(
        id=unreadable_id(session_id, seq),
        session_id=session_id,
        seq=seq,
        timestamp=NO_TIME,
        fact=fact,
        parent_id=previous,
    )
