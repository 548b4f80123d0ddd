"""What is left of a damaged session, as entries that any store accepts: `whole_session`, for exports and salvage.

Entries that are intact stay as they are, byte for byte. One that cannot be read, or is lost, becomes a `Custom` fact
named ``bartack.unreadable`` in its place, with what is left of its text.
"""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from bartack.nouns import wire
from bartack.nouns.entries import Custom, Entry, SessionHeader
from bartack.nouns.errors import PartValidationError
from bartack.store.blobs import referenced
from bartack.store.entries import NO_TIME, UNREADABLE, Envelope, envelope_of, read_entry, unreadable_id

__all__ = ["whole_session"]


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
    """The entry as far as it can be read, moved to its place."""
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
    fact = SessionHeader() if seq == 1 else Custom(UNREADABLE, {"error": "the entry is lost"})
    return Entry(
        id=unreadable_id(session_id, seq),
        session_id=session_id,
        seq=seq,
        timestamp=NO_TIME,
        fact=fact,
        parent_id=previous,
    )
