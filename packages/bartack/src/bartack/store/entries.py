"""`Entries`: stored entries as a sequence that decodes each one on first access.

In: the canonical JSON of entries, as bytes. Decoding an entry costs many times what fetching its bytes costs, and most
of a long session is never looked at.

Text that is not an entry (damaged, or of a kind added by a newer version) does not make its session unusable: a
`Custom` fact named `UNREADABLE` appears in its place, and `bartack.store.maintenance.check` reports it.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import ClassVar, overload

import msgspec
from msgspec.structs import replace

from bartack.nouns import wire
from bartack.nouns.entries import Custom, Entry
from bartack.nouns.errors import PartValidationError
from bartack.nouns.ids import derived_id
from bartack.session.outline import UNREADABLE
from bartack.session.redaction import redacted

__all__ = ["NO_TIME", "Entries", "Envelope", "envelope_of", "envelopes_of", "read_entry", "unreadable_id"]

NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)
_NO_IDS: Mapping[int, str] = {}


class Envelope(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The fields around an entry's payload, which stays undecoded."""

    id: str
    session_id: str
    seq: int
    timestamp: str
    kind: str
    payload: msgspec.Raw
    parent_id: str | None = None


_ENVELOPE = msgspec.json.Decoder(Envelope)


def envelope_of(text: bytes) -> Envelope | None:
    """The envelope of a stored entry; None if the text is not an entry."""
    try:
        return _ENVELOPE.decode(text)
    except ValueError:  # raised by msgspec, and for invalid UTF-8
        return None


def envelopes_of(lines: bytes, count: int) -> list[Envelope] | None:
    """The envelopes of `count` lines, decoded at once; None if any of them is not an entry."""
    try:
        envelopes = _ENVELOPE.decode_lines(lines)
    except ValueError:
        return None
    return envelopes if len(envelopes) == count else None


def unreadable_id(session_id: str, seq: int) -> str:
    """The id given to an entry whose own id cannot be read."""
    return derived_id(session_id, f"unreadable/{seq}")


def read_entry(session_id: str, seq: int, text: bytes) -> Entry:
    """The entry, or an `UNREADABLE` one in its place."""
    try:
        return wire.decode(Entry, text)
    except PartValidationError as error:
        envelope = envelope_of(text)
        return Entry(
            id=unreadable_id(session_id, seq) if envelope is None else envelope.id,
            session_id=session_id,
            seq=seq,
            timestamp=NO_TIME if envelope is None else _time(envelope.timestamp),
            fact=Custom(name=UNREADABLE, data={"error": str(error)}),
            parent_id=None if envelope is None else envelope.parent_id,
        )


def _time(text: str) -> datetime:
    try:
        return wire.load(datetime, text)
    except PartValidationError:
        return NO_TIME


class Entries(Sequence[Entry]):
    """A sequence of entries, each decoded on first access."""

    def __init__(
        self,
        session_id: str,
        seqs: Sequence[int],
        texts: Sequence[bytes],
        hidden: Collection[str] = (),
        ids: Mapping[int, str] = _NO_IDS,
    ) -> None:
        self.session_id = session_id
        self.seqs = seqs
        self.texts = texts  # byte for byte as appended, including redacted content
        self._hidden = hidden  # ids of redacted entries
        self._ids = ids  # seq -> id, where the store knows the id even if the text is damaged
        self._decoded: dict[int, Entry] = {}

    def __len__(self) -> int:
        return len(self.texts)

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> "Entries": ...
    def __getitem__(self, index: int | slice) -> "Entry | Entries":
        if isinstance(index, slice):
            return Entries(self.session_id, self.seqs[index], self.texts[index], self._hidden, self._ids)
        position = index if 0 <= index < len(self.texts) else range(len(self.texts))[index]
        entry = self._decoded.get(position)
        if entry is None:
            entry = read_entry(self.session_id, self.seqs[position], self.texts[position])
            known_id = self._ids.get(entry.seq, entry.id)
            if known_id != entry.id:
                entry = replace(entry, id=known_id)
            if entry.id in self._hidden:
                entry = replace(entry, fact=redacted(entry.fact), extra=None)
            self._decoded[position] = entry
        return entry

    def naming(self, *words: str) -> list[Entry]:
        """The entries whose stored text contains one of these words; the others are not decoded."""
        wanted = [word.encode() for word in words]
        return [self[at] for at, text in enumerate(self.texts) if any(word in text for word in wanted)]

    def __eq__(self, sequence: object) -> bool:
        if not isinstance(sequence, Sequence):
            return NotImplemented
        return len(self) == len(sequence) and all(
            entry == counterpart for entry, counterpart in zip(self, sequence, strict=True)
        )

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # like lists, to which they compare equal

    def __repr__(self) -> str:
        return f"Entries({self.session_id!r}, {len(self)} entries)"
