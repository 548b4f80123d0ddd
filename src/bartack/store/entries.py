"""`Entries`: stored entries as a sequence that reads each one when it is looked at.

In: the canonical JSON of entries, as bytes. Reading an entry into its noun costs many times what fetching its bytes
costs, and most of a long session is never looked at by whoever opens it.

A text that is not an entry (damage, or a kind of a newer version) does not brick its session: it reads as a `Custom`
fact named `UNREADABLE`, in its place. `bartack.store.maintenance` reports it.
"""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import overload

import msgspec
from msgspec.structs import replace

from bartack.nouns import wire
from bartack.nouns.entries import Custom, Entry
from bartack.nouns.errors import PartValidationError
from bartack.nouns.ids import derived_id
from bartack.session.redaction import redacted

__all__ = ["UNREADABLE", "Entries", "Peek", "peek", "peek_all", "read_entry", "unreadable_id"]

UNREADABLE = "bartack.unreadable"
_NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)


class Peek(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """What a store must know of an entry, without reading its payload."""

    id: str
    session_id: str
    seq: int
    timestamp: str
    kind: str
    payload: msgspec.Raw
    parent_id: str | None = None


_PEEK = msgspec.json.Decoder(Peek)


def peek(text: bytes) -> Peek | None:
    """The outside of an entry; None for a text that has none."""
    try:
        return _PEEK.decode(text)
    except ValueError:  # msgspec's errors and Unicode's alike
        return None


def peek_all(texts: list[bytes], data: bytes) -> list[Peek] | None:
    """The same for many, at once, from the lines that they are in; None where some of them are bad."""
    try:
        found = _PEEK.decode_lines(data)
    except ValueError:
        return None
    return found if len(found) == len(texts) else None


def unreadable_id(session_id: str, seq: int) -> str:
    """The id of an entry whose own cannot be read."""
    return derived_id(session_id, f"unreadable/{seq}")


def read_entry(session_id: str, seq: int, text: bytes) -> Entry:
    """The entry, or one that says that it cannot be read."""
    try:
        return wire.decode(Entry, text)
    except PartValidationError as error:
        outside = peek(text)
        return Entry(
            id=unreadable_id(session_id, seq) if outside is None else outside.id,
            session_id=session_id,
            seq=seq,
            timestamp=_NO_TIME if outside is None else _time(outside.timestamp),
            fact=Custom(UNREADABLE, {"error": str(error)}),
            parent_id=None if outside is None else outside.parent_id,
        )


def _time(text: str) -> datetime:
    try:
        return wire.load(datetime, text)
    except PartValidationError:
        return _NO_TIME


class Entries(Sequence[Entry]):
    """Entries that are read when they are touched, and then kept."""

    def __init__(
        self, session_id: str, seqs: Sequence[int], texts: Sequence[bytes], hidden: Collection[str] = ()
    ) -> None:
        self.session_id = session_id
        self.seqs = seqs
        self.texts = texts  # byte for byte as they were appended, redacted or not
        self._hidden = hidden  # ids of entries whose content may not be shown
        self._read: dict[int, Entry] = {}

    def __len__(self) -> int:
        return len(self.texts)

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> "Entries": ...
    def __getitem__(self, index: int | slice) -> "Entry | Entries":
        if isinstance(index, slice):
            return Entries(self.session_id, self.seqs[index], self.texts[index], self._hidden)
        place = range(len(self.texts))[index]
        entry = self._read.get(place)
        if entry is None:
            entry = read_entry(self.session_id, self.seqs[place], self.texts[place])
            if entry.id in self._hidden:
                entry = replace(entry, fact=redacted(entry.fact), extra=None)
            self._read[place] = entry
        return entry

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(mine == its for mine, its in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # equal to lists, which have none

    def __repr__(self) -> str:
        return f"Entries({self.session_id!r}, {len(self)} entries)"
