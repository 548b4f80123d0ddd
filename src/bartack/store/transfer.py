"""Sessions as canonical JSONL with checksums, from any store to any other.

Redacted content is not exported, and a redaction that is imported later applies to entries that are already stored. An
import never acts: runs and calls that the file leaves open are closed, so nothing in it is executed, even if approved.
Only calls that are open here can be approved, and only here.

An import can be repeated. Entries are appended in batches that end where no tool call is open, if possible between two
runs; after an interruption, the same import continues.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import IO

from msgspec.structs import replace

from bartack.nouns import wire
from bartack.nouns.entries import Entry, Redaction
from bartack.nouns.errors import Conflict, NotFound, PartValidationError
from bartack.nouns.noun import Noun
from bartack.session.redaction import redacted
from bartack.store.checksums import chain, digest_of, split_checksum, with_checksum
from bartack.store.closing import Closing, closing_entries, closing_facts
from bartack.store.entries import Entries, envelope_of, read_entry
from bartack.store.errors import invalid
from bartack.store.open_work import OpenWork
from bartack.store.salvage import whole_session
from bartack.store.session_store import SessionStore, Tail

__all__ = ["LINE_LIMIT", "Imported", "export_session", "import_lines", "read_lines"]

LINE_LIMIT = 64 * 1024 * 1024  # bytes
_BATCH = 500  # entries; where a run is longer, twice as many


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
    found: set[str] = set()
    for text in entries.texts:
        envelope = envelope_of(text) if b'"redaction"' in text else None
        if envelope is not None and envelope.kind == Redaction.kind:
            try:
                found.add(wire.decode(Redaction, bytes(envelope.payload)).entry_id)
            except PartValidationError:
                pass  # an unreadable entry, which the check reports
    return found


# -- import


def read_lines(file: IO[bytes], limit: int = LINE_LIMIT) -> Iterator[bytes]:
    """The lines of a file; `StoreError` for one that is longer than `limit` bytes."""
    number = 0
    while line := file.readline(limit + 1):
        number += 1
        if len(line) > limit:
            raise invalid(f"Line {number} has more than {limit:,} bytes.")
        yield line


async def import_lines(
    store: SessionStore, lines: Iterable[bytes], *, on_progress: Callable[[Imported], None] | None = None
) -> Imported:
    """Append sessions from canonical JSONL, the lines of each session together and in order.

    Entries that are already stored are skipped. Entries are stored as they are read: after an error, those before it
    are there, and the same import continues. `on_progress` is called after each batch.

    Raises:
        StoreError: A line is not an entry or does not match its checksum; the message has its number.
        Conflict: A session contradicts what is stored.
    """
    sessions: dict[str, None] = {}
    count = 0
    current: _SessionImport | None = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        entry, text, checksum = _read(number, line)
        if current is None or current.session_id != entry.session_id:
            if current is not None:
                await current.finish()
            current = await _SessionImport.begin(store, entry.session_id)
            sessions[entry.session_id] = None
        current.verify(number, text, checksum)
        count += 1
        if await current.add(entry, text) and on_progress is not None:
            on_progress(Imported(tuple(sessions), count))
    if current is not None:
        await current.finish()
    return Imported(tuple(sessions), count)


def _read(number: int, line: bytes) -> tuple[Entry, bytes, bytes | None]:
    text, checksum = split_checksum(line.rstrip())
    try:
        return wire.decode(Entry, text), text, checksum
    except PartValidationError as error:
        raise invalid(f"Line {number} is not an entry: {error}", error) from error


class _SessionImport:
    """The import of one session."""

    def __init__(self, store: SessionStore, session_id: str, stored: Entries | None) -> None:
        self.session_id = session_id
        self._store = store
        self._stored = stored
        self._hidden = set[str]() if stored is None else _redacted_ids(stored)
        self._tail: Tail | None = None  # of what is stored, as far as it was read
        self._batch: list[Entry] = []
        self._open = OpenWork()
        self._checksum: bytes | None = b""  # of the last line; None: the lines have none

    @classmethod
    async def begin(cls, store: SessionStore, session_id: str) -> "_SessionImport":
        try:
            return cls(store, session_id, await store.entries(session_id))
        except NotFound:
            return cls(store, session_id, None)

    def verify(self, number: int, text: bytes, checksum: bytes | None) -> None:
        """Raise `StoreError` for a line that does not follow the one before it."""
        if self._checksum == b"" and checksum is None:
            self._checksum = None  # not exported by Bartack
        expected = None if self._checksum is None else chain(self._checksum, digest_of(text))
        if checksum != expected:
            raise invalid(f"Line {number} does not match its checksum: it was changed, or lines before it are missing.")
        self._checksum = checksum

    async def add(self, entry: Entry, text: bytes) -> bool:
        """Add the next entry; returns whether a batch was stored."""
        is_full = self._is_full()
        if is_full:
            await self._append(())
        self._open.push(entry)
        if not self._batch and self._is_stored(entry, text):
            self._tail = Tail(entry.id, entry.seq)
        else:
            self._batch.append(entry)
        return is_full

    def _is_full(self) -> bool:
        """Whether the batch is large enough, and can end here without leaving anything open that acts."""
        size = len(self._batch)
        return size >= _BATCH and not self._open.calls and (size >= 2 * _BATCH or not self._open.has_run)

    def _is_stored(self, entry: Entry, text: bytes) -> bool:
        """Whether the entry is stored, as it is or with its content redacted on either side; `Conflict` if changed."""
        stored, position = self._stored, 0 if self._tail is None else self._tail.seq
        if stored is None or position >= len(stored):
            return False
        if stored.texts[position] != text:
            here = read_entry(self.session_id, stored.seqs[position], stored.texts[position])
            is_same = _hidden(entry) == _hidden(here) and (entry.id in self._hidden or entry == _hidden(entry))
            if not is_same:
                raise Conflict(f"Entry {here.id!r} of session {self.session_id!r} is stored with different content.")
        return True

    async def finish(self) -> None:
        """Store the rest, together with the entries that close the session. If everything is already stored, do
        nothing.
        """
        if self._batch:
            await self._append(closing_facts(self._open, "imported"))

    async def _append(self, closing: Iterable[Closing]) -> None:
        entries = self._batch
        entries += closing_entries(self.session_id, Tail(entries[-1].id, entries[-1].seq), closing, self._store)
        await self._store.append(self.session_id, entries, None if self._tail is None else self._tail.entry_id)
        self._tail = Tail(entries[-1].id, entries[-1].seq)
        self._batch = []


def _hidden(entry: Entry) -> Entry:
    return replace(entry, fact=redacted(entry.fact), extra=None)
