"""Sessions as canonical JSONL, out of any store and into any other. What was redacted does not leave the store."""

from collections.abc import AsyncIterator, Iterable

from msgspec.structs import replace

from bartack.nouns import wire
from bartack.nouns.entries import Entry, Redaction
from bartack.nouns.errors import PartValidationError
from bartack.nouns.noun import Noun
from bartack.session.redaction import redacted
from bartack.store.append import invalid
from bartack.store.entries import peek
from bartack.store.session_store import SessionStore

__all__ = ["Imported", "export_session", "import_lines"]


class Imported(Noun, frozen=True):
    """Which sessions were read, and how many entries."""

    sessions: tuple[str, ...]
    entries: int


async def export_session(store: SessionStore, session_id: str) -> AsyncIterator[bytes]:
    """The session's lines, all branches, in order of `seq`; each ends in a newline."""
    entries = await store.entries(session_id)
    hidden = {
        wire.decode(Redaction, bytes(outside.payload)).entry_id
        for text in entries.texts
        if b'"redaction"' in text and (outside := peek(text)) is not None and outside.kind == Redaction.kind
    }
    for place, text in enumerate(entries.texts):
        outside = peek(text)
        if outside is not None and outside.id in hidden:
            entry = entries[place]
            text = wire.encode(replace(entry, fact=redacted(entry.fact), extra=None))
        yield text.replace(b"\n", b" ") + b"\n"  # only a damaged text can hold a newline


async def import_lines(store: SessionStore, lines: Iterable[bytes]) -> Imported:
    """Append sessions from canonical JSONL. Every line is read before anything is stored.

    A session lands whole or not at all; one that is there already, or whose first entries are, gets what is missing.
    `StoreError` with the line's number for a line that is no entry; `Conflict` where the store says otherwise.
    """
    sessions: dict[str, list[Entry]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = wire.decode(Entry, line)
        except PartValidationError as error:
            raise invalid(f"line {number} is not an entry: {error}", error) from error
        sessions.setdefault(entry.session_id, []).append(entry)
    for session_id, entries in sessions.items():
        await store.append(session_id, entries, None)
    return Imported(tuple(sessions), sum(map(len, sessions.values())))
