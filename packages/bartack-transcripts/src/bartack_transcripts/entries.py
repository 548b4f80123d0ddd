"""Transcripts as entries, and the records of the source back from them.

Each step becomes its facts, followed by one `Custom` fact named `SOURCE` for each of its records, with the bytes of the
record, its place, and the ids of the entries that it became. An export of a session that was not changed writes these
bytes again (`source_files`), so it is exact by construction.

The id of an entry is derived from the records of its step and from the entry before it, like that of a commit, and not
from the names of files, which people change. A file that has grown gives the same entries as before, and new ones after
them; so an import adds what is not stored yet, and nothing else. Where a file was rewritten, ids differ from there on,
and the new entries become a branch.
"""

from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256

from msgspec.structs import replace

from bartack.nouns import wire
from bartack.nouns.entries import BranchSummary, CompactionSummary, Custom, Entry, Fact, ModelChange
from bartack.nouns.errors import PartValidationError
from bartack.nouns.ids import derived_id
from bartack.nouns.messages import Message, ModelRef, stamped
from bartack.session.outline import SOURCE
from bartack_transcripts.transcript import START, Record, Transcript, TranscriptStep

__all__ = ["SOURCE", "entries_of", "record_of", "source_files", "source_records"]

_NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)


def entries_of(transcript: Transcript, default_time: datetime = _NO_TIME, *, is_checked: bool = True) -> list[Entry]:
    """The entries of the session made from a transcript. `now` is the time of entries whose source has none.

    Facts that cannot be stored are left out, unless `is_checked` is False: the store will refuse them. Readers should
    not produce any. The check takes a third of the time, so an import runs it only if the store refuses something.
    """
    return _Builder(transcript, default_time, is_checked=is_checked).build()


class _Builder:
    def __init__(self, transcript: Transcript, default_time: datetime, *, is_checked: bool) -> None:
        self._transcript = transcript
        self._is_checked = is_checked
        self._session_id = transcript.session_id
        self._time = next((step.time for step in transcript.steps if step.time is not None), default_time)
        self._counts = Counter(record.file for step in transcript.steps for record in step.records)
        self._id = transcript.id
        self._stem = _own_stem(next(iter(self._counts), ""))
        self._entries: list[Entry] = []
        self._firsts: list[str] = []  # the first entry of each step
        self._lasts: list[str] = []  # the last entry of each step, or of its parent if it has none
        self._models: list[ModelRef | None] = []  # the model after each step

    def build(self) -> list[Entry]:
        self._add(derived_id(self._session_id, "header"), None, self._transcript.header)
        for step in self._transcript.steps:
            self._add_step(step)
        return self._entries

    def _add_step(self, step: TranscriptStep) -> None:
        self._time = step.time or self._time
        parent = self._parent_of(step)
        base = self._digest(parent, step)
        facts = [self._stamped(fact, _id(base, f"{number}"), step) for number, fact in enumerate(self._facts_of(step))]
        if self._is_checked and not self._are_storable(facts, step):
            facts = []
        ids: list[str] = []
        for number, fact in enumerate(facts):
            ids.append(_id(base, f"{number}"))
            self._add(ids[-1], parent, fact)
            parent = ids[-1]
        first = ids[0] if ids else ""
        for record in step.records if self._transcript.has_own_records else ():
            id = _id(base, f"{self._name_of(record)}/{record.place}")
            self._add(id, parent, Custom(name=SOURCE, data=_record_data(record, ids, self._counts[record.file])))
            parent, first = id, first or id
        self._firsts.append(first or parent)
        self._lasts.append(parent)

    def _digest(self, parent: str, step: TranscriptStep) -> str:
        """What identifies a step: what it follows, and what it is from."""
        digest = sha256(parent.encode("utf-8", "replace"))
        digest.update(step.content)
        for record in step.records:
            digest.update(f"{self._name_of(record)}\n{record.place}\n{len(record.data)}\n".encode("utf-8", "replace"))
            digest.update(record.data)
        return digest.hexdigest()

    def _name_of(self, record: Record) -> str:
        """The name of a record's file for its id: a session that is one file could have any name."""
        name = record.file
        return name if self._stem is None or not name.startswith(self._stem) else self._id + name[len(self._stem) :]

    def _facts_of(self, step: TranscriptStep) -> list[Fact]:
        """The facts of a step, with a change of models wherever another one answers than before on the same branch.

        Readers may tell changes from the order of the records, in which the last answer can be on another branch.
        """
        is_first = step.parent == START or not self._models
        model = None if is_first else self._models[-1 if step.parent is None else step.parent]
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
        return self._lasts[-1 if step.parent is None else step.parent]

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
                first_kept_id = None if step.refers_to is None else self._firsts[step.refers_to]
                return replace(fact, first_kept_entry_id=first_kept_id or id)
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


def _id(step: str, name: str) -> str:
    """The id of an entry of a step: a UUID of version 8 (RFC 9562)."""
    text = sha256(f"{step}\n{name}".encode("utf-8", "replace")).hexdigest()
    return f"{text[:8]}-{text[8:12]}-8{text[13:16]}-8{text[17:20]}-{text[20:32]}"


def _record_data(record: Record, entry_ids: Sequence[str], count: int) -> dict[str, object]:
    data: dict[str, object] = {"file": record.file, "place": record.place, "of": count}
    try:
        data["text"] = record.data.decode()
    except UnicodeDecodeError:
        data["base64"] = b64encode(record.data).decode()
    if entry_ids:
        data["entries"] = list(entry_ids)
    return data


# -- back


def record_of(entry: Entry) -> Record | None:
    """The record that an entry keeps; None if it is not such an entry, or was redacted."""
    if not isinstance(entry.fact, Custom) or entry.fact.name != SOURCE:
        return None
    match entry.fact.data:
        case {"file": str(file), "place": int(place), "text": str(text)}:
            return Record(file, place, text.encode())
        case {"file": str(file), "place": int(place), "base64": str(text)}:
            return Record(file, place, b64decode(text))
    return None


def source_records(entries: Sequence[Entry]) -> list[tuple[Entry, Record]]:
    """The records of a session's source as it was last imported, in order; `entries` are those of all branches.

    Of each place, the entry that was stored last counts. A file that was rewritten may have become shorter: how many
    records it has is in the entry that was stored last.
    """
    latest: dict[tuple[str, int], tuple[Entry, Record]] = {}
    ends: dict[str, object] = {}
    for entry in entries:
        record = record_of(entry)
        if record is not None and isinstance(entry.fact, Custom):
            latest[record.file, record.place] = entry, record
            ends[record.file] = entry.fact.data.get("of")
    return [latest[key] for key in sorted(latest) if _is_before(key[1], ends[key[0]])]


def _is_before(place: int, end: object) -> bool:
    return not isinstance(end, int) or place < end


def source_files(entries: Sequence[Entry]) -> dict[str, bytes]:
    """The files of a session's source as they were last imported, byte for byte."""
    pieces: dict[str, list[bytes]] = {}
    for _, record in source_records(entries):
        pieces.setdefault(record.file, []).append(record.data)
    return {file: b"".join(data) for file, data in pieces.items()}
