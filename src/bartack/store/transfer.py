"""Sessions as canonical JSONL, from any store to any other. Redacted content is not exported."""

from collections.abc import AsyncIterator, Iterable

from msgspec.structs import replace

from bartack.nouns import wire
from bartack.nouns.entries import Entry, Redaction
from bartack.nouns.errors import PartValidationError
from bartack.nouns.noun import Noun
from bartack.session.redaction import redacted
from bartack.store.entries import envelope_of
from bartack.store.errors import invalid
from bartack.store.session_store import SessionStore

__all__ = ["Imported", "export_session", "import_lines"]


class Imported(Noun, frozen=True):
    """The imported sessions, and their number of entries."""

    sessions: tuple[str, ...]
    entries: int


async def export_session(store: SessionStore, session_id: str) -> AsyncIterator[bytes]:
    """The lines of a session, all branches, in order of `seq`; each ends in a newline."""
    entries = await store.entries(session_id)
    hidden = {
        wire.decode(Redaction, bytes(envelope.payload)).entry_id
        for text in entries.texts
        if b'"redaction"' in text and (envelope := envelope_of(text)) is not None and envelope.kind == Redaction.kind
    }
    for position, text in enumerate(entries.texts):
        envelope = envelope_of(text)
        if envelope is not None and envelope.id in hidden:
            entry = entries[position]
            text = wire.encode(replace(entry, fact=redacted(entry.fact), extra=None))
        yield text.replace(b"\n", b" ") + b"\n"  # only damaged text contains a newline


async def import_lines(store: SessionStore, lines: Iterable[bytes]) -> Imported:
    """Append sessions from canonical JSONL. All lines are read before anything is stored.

    Each session is imported completely or not at all. Entries that are already stored are skipped.

    Raises:
        StoreError: A line is not an entry; the message has its number. Nothing was stored.
        Conflict: A session contradicts what is stored. Sessions before it were imported.
    """
    sessions: dict[str, list[Entry]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = wire.decode(Entry, line)
        except PartValidationError as error:
            raise invalid(f"Line {number} is not an entry: {error}", error) from error
        sessions.setdefault(entry.session_id, []).append(entry)
    for session_id, entries in sessions.items():
        await store.append(session_id, entries, None)
    return Imported(tuple(sessions), sum(map(len, sessions.values())))
