"""Transcripts as entries, and the records of the source back from them.

Each step becomes its facts. The records of consecutive steps are kept together in one `Custom` fact named `SOURCE`: a
*block*, with their bytes compressed, their places, and the ids of the entries that they became. An export of a session
that was not changed writes these bytes again (`source_files`), so it is exact by construction. Compressed one by one,
records would take three times the space, and a row for each of them twice the time.

The id of an entry is derived from the records of its step and of all steps before it on its branch, like that of a
commit, and not from the names of files, which people change. A file that has grown gives the same entries as before,
and new ones after them; so an import adds what is not stored yet, and nothing else. Blocks end where an import ended,
so they do not count: a record is stored again only if it, or what it became, is not as it is stored. Where a file was
rewritten, ids differ from there on, and the new entries become a branch.
"""

import zlib
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from itertools import chain, islice
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from bartack.nouns import wire
from bartack.nouns.entries import BranchSummary, CompactionSummary, Custom, Entry, Fact, ModelChange
from bartack.nouns.errors import PartValidationError
from bartack.nouns.ids import derived_id
from bartack.nouns.messages import Message, ModelRef, stamped
from bartack.session.outline import SOURCE
from bartack_transcripts.transcript import START, Record, Transcript, TranscriptStep

__all__ = [
    "SOURCE",
    "KnownRecords",
    "SourceRecord",
    "entries_of",
    "imported_ids",
    "is_source",
    "joined_records",
    "source_files",
    "source_records",
    "stored_records",
]

_NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)
_BLOCK_BYTES = 64 * 1024
"""A block ends with the record that reaches this size. A redaction hides a block as a whole, and twice the size takes
only 7 % less space."""
_LEVEL = 1  # of zlib; 6 takes 10 % less space and three times as long


class SourceRecord(NamedTuple):
    """A record as it is stored."""

    entry: Entry  # the one that keeps it
    record: Record
    entry_ids: tuple[str, ...]  # what it became


KnownRecords = Mapping[tuple[str, int], SourceRecord]  # by file and place


def entries_of(
    transcript: Transcript,
    default_time: datetime = _NO_TIME,
    *,
    stored: KnownRecords | None = None,
    is_checked: bool = True,
) -> list[Entry]:
    """The entries of the session made from a transcript, without records that are stored already.

    Entries whose source has no time get `default_time`. Facts that cannot be stored are left out, unless `is_checked`
    is False: the store will refuse them. Readers should not produce any. The check takes a third of the time, so an
    import runs it only if the store refuses something.
    """
    return _Builder(transcript, default_time, stored or {}, is_checked=is_checked).build()


class _Builder:
    def __init__(
        self, transcript: Transcript, default_time: datetime, stored: KnownRecords, *, is_checked: bool
    ) -> None:
        self._transcript = transcript
        self._stored = stored
        self._is_checked = is_checked
        self._session_id = transcript.session_id
        self._time = next((step.time for step in transcript.steps if step.time is not None), default_time)
        self._counts = Counter(record.file for step in transcript.steps for record in step.records)
        self._id = transcript.id
        self._stem = _own_stem(next(iter(self._counts), ""))
        self._entries: list[Entry] = []
        # Of each step: what identifies its end, its first entry (empty if it has none), and its last entry or that of
        # its parent.
        self._ends: list[str] = []
        self._firsts: list[str] = []
        self._lasts: list[str] = []
        self._models: list[ModelRef | None] = []  # the model after each step
        self._block: list[tuple[list[str], Sequence[Record]]] = []  # steps whose records are kept next
        self._block_bytes = 0
        self._block_id = ""  # empty if the block has no records yet

    def build(self) -> list[Entry]:
        self._add(derived_id(self._session_id, "header"), None, self._transcript.header)
        for step in self._transcript.steps:
            self._add_step(step)
        self._end_block()
        return self._entries

    def _add_step(self, step: TranscriptStep) -> None:
        self._time = step.time or self._time
        if step.parent is not None and step.parent != len(self._lasts) - 1:
            self._end_block()  # the records of a block follow each other on one branch
        parent = self._parent_of(step)
        before = self._entries[0].id if step.parent == START or not self._ends else self._ends[_place(step)]
        digest = self._digest(before, step)
        step_facts = self._facts_of(step)
        ids = [_id(digest, f"{number}") for number in range(len(step_facts))]
        facts = [self._stamped(fact, id, step) for fact, id in zip(step_facts, ids, strict=True)]
        if self._is_checked and not self._are_storable(facts, step):
            facts, ids = [], []
        for id, fact in zip(ids, facts, strict=True):
            self._add(id, parent, fact)
            parent = id
        end = self._end_of(step, digest)
        self._ends.append(end or (ids[-1] if ids else before))
        self._firsts.append(ids[0] if ids else "")
        self._lasts.append(parent)
        if self._transcript.has_own_records and not (self._stored and self._is_known(step, ids)):
            self._block.append((ids, step.records))
            self._block_id = end or self._block_id
            self._block_bytes += sum(len(record.data) for record in step.records)
            if self._block_bytes >= _BLOCK_BYTES:
                self._end_block()

    def _digest(self, before: str, step: TranscriptStep) -> str:
        """What identifies a step: what it follows, and what it is from."""
        digest = sha256(before.encode("utf-8", "replace") + step.content)
        for file, place, data in step.records:
            digest.update(f"{self._name_of(file)}\n{place}\n{len(data)}\n".encode("utf-8", "replace"))
            digest.update(data)
        return digest.hexdigest()

    def _end_of(self, step: TranscriptStep, digest: str) -> str | None:
        """What identifies the last record of a step; None if it has none of its own."""
        if not step.records or not self._transcript.has_own_records:
            return None
        return _id(digest, f"{self._name_of(step.records[-1].file)}/{step.records[-1].place}")

    def _name_of(self, file: str) -> str:
        """The name of a record's file for its id: a session that is one file could have any name."""
        return file if self._stem is None or not file.startswith(self._stem) else self._id + file[len(self._stem) :]

    def _is_known(self, step: TranscriptStep, ids: Sequence[str]) -> bool:
        """Whether all records of a step are stored, and became the same entries."""
        for record in step.records:
            stored = self._stored.get((record.file, record.place))
            if stored is None or stored.record.data != record.data or stored.entry_ids != tuple(ids):
                return False
        return True

    def _end_block(self) -> None:
        """Keep the records of the steps since the last block, in an entry that is named after the last of them."""
        if self._block_id:
            data = _block_of(self._block, self._counts)
            self._add(self._block_id, self._lasts[-1], Custom(name=SOURCE, data=data))
            self._lasts[-1] = self._block_id
        self._block, self._block_bytes, self._block_id = [], 0, ""

    def _facts_of(self, step: TranscriptStep) -> list[Fact]:
        """The facts of a step, with a change of models wherever another one answers than before on the same branch.

        Readers may tell changes from the order of the records, in which the last answer can be on another branch.
        """
        is_first = step.parent == START or not self._models
        model = None if is_first else self._models[_place(step)]
        facts: list[Fact] = []
        for fact in step.facts:
            used = fact.model if isinstance(fact, ModelChange) else _answering_model(fact)
            if used is not None and used != model and (isinstance(fact, ModelChange) or model is not None):
                facts.append(ModelChange(model=used, previous=model))
            model = used or model
            if not isinstance(fact, ModelChange):
                facts.append(fact)
        self._models.append(model)
        return facts

    def _parent_of(self, step: TranscriptStep) -> str:
        if step.parent == START or not self._lasts:
            return self._entries[0].id
        return self._lasts[_place(step)]

    def _add(self, id: str, parent: str | None, fact: Fact) -> None:
        self._entries.append(
            Entry(
                id=id,
                session_id=self._session_id,
                parent_id=parent,
                seq=len(self._entries) + 1,
                timestamp=self._time,
                fact=fact,
                # A change of models that belongs to no run is a request to the next one (bartack.session.run_state).
                run_id=self._session_id if isinstance(fact, ModelChange) else None,
            )
        )

    def _stamped(self, fact: Fact, id: str, step: TranscriptStep) -> Fact:
        match fact:
            case Message():
                is_stamped = fact.id is not None and fact.timestamp is not None
                return fact if is_stamped else stamped(fact, id=id, timestamp=self._time)
            case CompactionSummary():
                later_ids = [] if step.refers_to is None else self._firsts[step.refers_to :]
                return replace(fact, first_kept_entry_id=next(filter(None, later_ids), id))
            case BranchSummary():
                branch_end_id = None if step.refers_to is None else self._lasts[step.refers_to]
                return replace(fact, from_entry_id=branch_end_id or self._parent_of(step))
            case _:
                return fact

    def _are_storable(self, facts: Sequence[Fact], step: TranscriptStep) -> bool:
        """Whether a store will accept the facts."""
        try:
            for fact in facts:
                wire.dump(fact)
        except PartValidationError as error:
            for record in step.records[:1]:
                self._transcript.report.damaged(record, f"cannot be stored: {error}")
            return False
        return True


def _answering_model(fact: Fact) -> ModelRef | None:
    meta = fact.meta if isinstance(fact, Message) and fact.role == "assistant" else None
    return None if meta is None else meta.model


def _own_stem(name: str) -> str | None:
    """The name of the one file of a session, without its ending; None if this is one of the files in a folder."""
    is_alone = name.endswith(".jsonl") or "/" not in name
    return name.rpartition(".")[0] or None if is_alone else None


def _place(step: TranscriptStep) -> int:
    """The index of the step that this one follows."""
    return -1 if step.parent is None else step.parent


def _id(step: str, name: str) -> str:
    """The id of an entry of a step: a UUID of version 8 (RFC 9562)."""
    text = sha256(f"{step}\n{name}".encode("utf-8", "replace")).hexdigest()
    return f"{text[:8]}-{text[8:12]}-8{text[13:16]}-8{text[17:20]}-{text[20:32]}"


# -- blocks


class _Block(msgspec.Struct):
    """The data of a `SOURCE` fact. `bartack.session.redaction` reads its `entries`."""

    entries: list[str]  # what the records became
    steps: list[tuple[int, int]]  # of each step, how many of the entries and of the records are its own
    files: list[tuple[str, int, int, list[int]]]  # records of a file: its name and length, the first place, sizes
    zlib: str  # the bytes of all records, compressed, in base64


def _block_of(steps: Sequence[tuple[Sequence[str], Sequence[Record]]], lengths: Mapping[str, int]) -> dict[str, object]:
    """The data of a block. `lengths` is how many records each file has."""
    files: list[tuple[str, int, int, list[int]]] = []
    compressor = zlib.compressobj(_LEVEL)
    compressed: list[bytes] = []
    for record in chain.from_iterable(records for _, records in steps):
        last = files[-1] if files else None
        if last is None or last[0] != record.file or last[2] + len(last[3]) != record.place:
            last = (record.file, lengths[record.file], record.place, [])
            files.append(last)
        last[3].append(len(record.data))
        compressed.append(compressor.compress(record.data))
    compressed.append(compressor.flush())
    return {
        "entries": [id for ids, _ in steps for id in ids],
        "steps": [[len(ids), len(records)] for ids, records in steps],
        "files": [list(file) for file in files],
        "zlib": b64encode(b"".join(compressed)).decode(),
    }


def is_source(entry: Entry) -> bool:
    """Whether an entry keeps records of its source."""
    return isinstance(entry.fact, Custom) and entry.fact.name == SOURCE


def imported_ids(entries: Iterable[Entry]) -> set[str]:
    """The entries that records of the source became."""
    ids: set[str] = set()
    for entry in entries:
        listed = entry.fact.data.get("entries") if isinstance(entry.fact, Custom) and is_source(entry) else None
        ids.update(id for id in (listed if isinstance(listed, list) else ()) if isinstance(id, str))
    return ids


def stored_records(entry: Entry) -> list[tuple[SourceRecord, int]]:
    """The records that an entry keeps, each with the number of records that its file had then.

    None if it is not such an entry, was redacted, or does not fit together.
    """
    if not isinstance(entry.fact, Custom) or entry.fact.name != SOURCE:
        return []
    try:
        block = msgspec.convert(entry.fact.data, _Block)
        records = _records_in(block)
        placed: list[tuple[SourceRecord, int]] = []
        first = 0
        for entries, own_records in block.steps:
            ids = tuple(block.entries[first : first + entries])
            placed += ((SourceRecord(entry, record, ids), length) for record, length in islice(records, own_records))
            first += entries
    except (ValueError, OverflowError, zlib.error):
        return []
    return placed


def _records_in(block: _Block) -> Iterator[tuple[Record, int]]:
    decompressor = zlib.decompressobj()
    compressed = b64decode(block.zlib)
    for file, length, first_place, sizes in block.files:
        for place, size in enumerate(sizes, first_place):
            data = decompressor.decompress(compressed, size) if size > 0 else b""
            if len(data) != size:
                raise ValueError(f"A record should have {size} bytes.")
            compressed = decompressor.unconsumed_tail if size else compressed
            yield Record(file, place, data), length


def source_records(entries: Iterable[Entry]) -> list[SourceRecord]:
    """The records of a session's source as it was last imported, in order; `entries` are those of all branches.

    Of each place, the entry that was stored last counts. A file that was rewritten may have become shorter: how many
    records it has is in the entry that was stored last.
    """
    latest: dict[tuple[str, int], SourceRecord] = {}
    lengths: dict[str, int] = {}
    for entry in entries:
        for source, length in stored_records(entry):
            latest[source.record.file, source.record.place] = source
            lengths[source.record.file] = length
    return [latest[file, place] for file, place in sorted(latest) if place < lengths[file]]


def source_files(entries: Iterable[Entry]) -> dict[str, bytes]:
    """The files of a session's source as they were last imported, byte for byte."""
    return joined_records(source.record for source in source_records(entries))


def joined_records(records: Iterable[Record]) -> dict[str, bytes]:
    """The files that these records are, in the order of their places."""
    pieces: dict[str, list[bytes]] = {}
    for record in records:
        pieces.setdefault(record.file, []).append(record.data)
    return {file: b"".join(data) for file, data in pieces.items()}
