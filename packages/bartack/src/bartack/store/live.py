"""Following a session while an answer is arriving, from any process.

The run writes the deltas of the current answer to the *journal*: small batches next to the log, dropped once the log
has the answer. A journal belongs to one attempt at one answer, identified by its *generation*: the seq of the session's
last entry when the attempt began. Generations increase, so one attempt cannot be confused with another.

A reader gets entries and, between them, the deltas of the answer in progress. Every event has a position, as text, from
which any other reader in any process can continue:

    12              after the entry with seq 12
    RUN:12:345      in the answer that follows entry 12, after the delta with seq 345
    RUN:12:345:14   the same, after entry 14: others may append requests while an answer arrives

`LiveReset` replaces what a reader has received of the answer in progress, because the reader joined in the middle or a
new attempt has begun. Once an answer is in the log, its journal is gone, and a late reader gets the entry itself.
Readers fetch at their own pace, so a slow reader delays neither the run nor the others.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from bartack.events import LiveDeltas, LiveEntry, LiveEvent, LiveReset
from bartack.nouns import wire
from bartack.nouns.entries import Entry, Fact, MessageDeltaBatch, RunEnded, RunStarted, StreamFailed
from bartack.nouns.errors import PartValidationError
from bartack.nouns.messages import Message
from bartack.store.errors import invalid_value_error
from bartack.stream.assembler import MessageAssembler

__all__ = [
    "LiveReader",
    "Position",
    "assembled",
    "ends_answer",
    "read_batches",
]

_POSITION = re.compile(r"(\d{1,18})?|([^:\x00-\x20]+):(\d{1,18}):(-?\d{1,18})(?::(\d{1,18}))?", re.ASCII)


class Position(NamedTuple):
    """A reader's position: the last entry and, while an answer is arriving, the last delta."""

    entry_seq: int = 0
    run_id: str = ""  # empty if no answer is arriving
    generation: int = 0
    seq: int = -1

    def __str__(self) -> str:
        if not self.run_id:
            return str(self.entry_seq)
        text = f"{self.run_id}:{self.generation}:{self.seq}"
        return text if self.entry_seq == self.generation else f"{text}:{self.entry_seq}"

    @classmethod
    def parse(cls, text: str) -> "Position":
        """Read what `str` returned; `StoreError` for anything else."""
        match = _POSITION.fullmatch(text)
        if match is None:
            raise invalid_value_error(f"Invalid position {text[:80]!r}: expected SEQ or RUN:GENERATION:SEQ.")
        plain_seq, run_id, generation, seq, entry_seq = match.groups()
        if run_id is None:
            return cls(int(plain_seq or 0))
        return cls(int(entry_seq or generation), run_id, int(generation), int(seq))


def ends_answer(fact: Fact) -> bool:
    """Whether no answer that began before this fact can still be arriving."""
    return isinstance(fact, StreamFailed | RunStarted | RunEnded) or (
        isinstance(fact, Message) and fact.role == "assistant"
    )


def assembled(batches: Sequence[MessageDeltaBatch]) -> MessageAssembler:
    """The journalled part of an answer: deltas that a guard has checked before they were written."""
    deltas = [delta for batch in batches for delta in batch.deltas]
    assembler = MessageAssembler(deltas[0].run_id, guarded=True)
    for delta in deltas:
        if delta.seq > assembler.last_seq:  # a batch may have been written twice
            assembler.consume(delta)
    return assembler


def read_batches(texts: Iterable[bytes]) -> tuple[MessageDeltaBatch, ...]:
    """The batches that a store keeps as JSON, up to the first one that is damaged."""
    batches: list[MessageDeltaBatch] = []
    for text in texts:
        try:
            batches.append(wire.decode(MessageDeltaBatch, text))
        except PartValidationError:
            break
    return tuple(batches)


class Journalled(Protocol):
    """What `LiveReader` reads from a store."""

    async def read_journal(
        self, session_id: str, generation: int = 0, after_number: int = -1
    ) -> tuple[MessageDeltaBatch, ...]: ...
    async def read_after(self, session_id: str, after_seq: int) -> Sequence[Entry]: ...


class LiveReader:
    """One reader of one session."""

    def __init__(self, store: Journalled, session_id: str, position: Position) -> None:
        self._store = store
        self._session_id = session_id
        self._position = position
        # The generation of the journal that was read last, and the number of its last batch.
        self._generation = 0
        self._number = -1

    async def read(self) -> list[LiveEvent]:
        """The events that are there now."""
        # The journal first: if its answer has been stored in the meantime, the entries contain it.
        batches = await self._store.read_journal(self._session_id, self._generation, self._number)
        entries = list(await self._store.read_after(self._session_id, self._position.entry_seq))
        if not batches:
            return [self._entry(entry) for entry in entries]
        self._generation, self._number = batches[0].generation, batches[-1].number
        later = entries
        if self._generation < self._position.entry_seq:
            later = list(await self._store.read_after(self._session_id, self._generation))
        has_ended = any(ends_answer(entry.fact) for entry in later if entry.seq > self._generation)
        before = [self._entry(entry) for entry in entries if entry.seq <= self._generation]
        deltas = [] if has_ended else self._deltas(batches)
        return [*before, *deltas, *(self._entry(entry) for entry in entries if entry.seq > self._generation)]

    def _entry(self, entry: Entry) -> LiveEntry:
        is_new = ends_answer(entry.fact) or not self._position.run_id
        self._position = Position(entry.seq) if is_new else self._position._replace(entry_seq=entry.seq)
        return LiveEntry(str(self._position), entry)

    def _deltas(self, batches: Sequence[MessageDeltaBatch]) -> list[LiveEvent]:
        last = batches[-1].deltas[-1]
        previous = self._position
        position = self._position = previous._replace(run_id=last.run_id, generation=self._generation, seq=last.seq)
        if (previous.run_id, previous.generation) != (last.run_id, self._generation):
            return [LiveReset(str(position), assembled(batches).snapshot())]
        deltas = {delta.seq: delta for batch in batches for delta in batch.deltas if delta.seq > previous.seq}
        if not deltas:
            self._position = previous
            return []
        return [LiveDeltas(str(position), tuple(deltas.values()))]
