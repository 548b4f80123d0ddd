"""Storing the sessions of other programs.

An import adds what is not stored yet: a file that has grown adds to its session, and one that was rewritten adds a
branch to it. A file that is the beginning of what is stored, such as a copy that was cut off, adds nothing, and one
that was renamed or moved is recognised by its records. A title that the program gave to the session later becomes its
title here, unless the user has given it another one. Nothing in a transcript is executed, because its calls belong to
no run, and nothing runs in the session before a person has adopted it (`bartack.store.foreign`). What an import adds is
stored in one step.
"""

import dataclasses
import gc
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from bartack.nouns.entries import Custom, Entry, Redaction
from bartack.nouns.errors import Conflict, NotFound, PartValidationError, StoreError
from bartack.nouns.ids import derived_id
from bartack.nouns.messages import Message
from bartack.nouns.parts import Part, ToolCall, ToolResult
from bartack.session.outline import SOURCE, Outline, outlines_of
from bartack.session.title import TITLE, title_of
from bartack.store import Entries, SessionStore
from bartack.store.foreign import check_foreign_id, marking_append
from bartack.store.session_store import SessionAppend
from bartack_transcripts.disk.files import FoundTranscript
from bartack_transcripts.entries import KnownRecords, entries_of, joined_records, source_files, source_records
from bartack_transcripts.transcript import Record, Transcript

__all__ = ["ImportedTranscript", "SeenFiles", "fewer_collections", "import_transcript", "is_known_copy"]

_BATCH = 500  # entries
_ENDS = b" \t\r\n]}"
_ATTEMPTS = 10  # while others append to the session


class SeenFiles:
    """Remembers which files were imported into a store, so that importing 10,000 sessions again reads only new ones.

    It is a cache: without it, every file is read, and nothing else changes.
    """

    def __init__(self, folder: Path, store: str) -> None:
        self._path = folder / "imports" / f"{sha256(store.encode()).hexdigest()[:16]}.json"
        try:
            self._seen: dict[str, tuple[int, str, list[str]]] = msgspec.json.decode(
                self._path.read_bytes(), type=dict[str, tuple[int, str, list[str]]]
            )
        except (OSError, ValueError):
            self._seen = {}

    async def sessions_of(self, source: FoundTranscript, store: SessionStore) -> list[str] | None:
        """The sessions of a file that is as it was when they were stored, if they still are; None otherwise."""
        record = self._seen.get(str(source.path))
        if record is None or record[:2] != (source.size, source.modified.isoformat()):
            return None
        try:
            for session_id in record[2]:
                await store.tail_of(session_id)
        except NotFound:
            return None
        return record[2]

    def add(self, source: FoundTranscript, session_ids: Iterable[str]) -> None:
        """Remember a file whose sessions are stored."""
        key = str(source.path)
        if not key.isprintable():  # not UTF-8
            return
        self._seen[key] = (source.size, source.modified.isoformat(), list(session_ids))

    def save(self) -> None:
        """Write the cache; a failure is ignored."""
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary = self._path.with_suffix(f".{os.getpid()}")
            temporary.write_bytes(msgspec.json.encode(self._seen))
            temporary.replace(self._path)


# -- importing


class ImportedTranscript(NamedTuple):
    """What an import did to a session."""

    session_id: str
    entries: int  # the number of new entries
    is_new: bool  # whether the session is
    is_rewritten: bool  # whether the source differs from what was imported before, so that a branch was added


async def is_known_copy(store: SessionStore, transcript: Transcript) -> bool:
    """Whether a transcript was exported from a session of this store, and is still as it was."""
    if transcript.copy_of is None:
        return False
    try:
        await store.tail_of(transcript.copy_of)
    except NotFound:
        return False
    return True


async def import_transcript(store: SessionStore, transcript: Transcript, modified: datetime) -> ImportedTranscript:
    """Store what is new in a transcript. Entries whose source has no time get that of the file.

    Raises `StoreError`, and `SessionInUse` while a run works on the session.
    """
    transcript = await _identified(store, transcript)
    is_checked = False
    for attempt in range(_ATTEMPTS):
        try:
            return await _import(store, transcript, modified, is_checked=is_checked)
        except StoreError as error:
            if isinstance(error.cause, PartValidationError):
                is_checked = True  # leaves out what cannot be stored
            elif not isinstance(error, Conflict) or error.tail is None or attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError  # the last attempt returns or raises


@contextmanager
def fewer_collections() -> Iterator[None]:
    """Let Python look for garbage less often: a transcript is millions of objects, and few of them become garbage."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, 50, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)


async def _import(
    store: SessionStore, transcript: Transcript, modified: datetime, *, is_checked: bool
) -> ImportedTranscript:
    session_id = transcript.session_id
    try:
        stored = await store.entries(session_id)
    except NotFound:
        entries = entries_of(transcript, modified, is_checked=is_checked)
        return await _append(store, Entries(session_id, (), ()), entries, is_rewritten=False)
    outlines = outlines_of(stored.texts)
    sources = [stored[place] for place, outline in enumerate(outlines) if _is_source(outline)]
    stored_records = {(source.record.file, source.record.place): source for source in source_records(sources)}
    transcript = _under_stored_names(transcript, stored_records)
    entries = entries_of(transcript, modified, stored=stored_records, is_checked=is_checked)
    stored_ids = {outline.id for outline in outlines}
    added = [entry for entry in entries if entry.id not in stored_ids]
    if added and transcript.has_own_records and _is_earlier_state(transcript, stored_records):
        return ImportedTranscript(session_id, 0, False, False)
    is_rewritten = bool(added) and _is_rewritten(transcript, stored_records)
    added = _after_notes(_with_unused_calls(added, entries, outlines), stored)
    last = added[-1] if added else stored[-1]
    if _has_new_title(transcript, stored, outlines):
        title = Custom(name=TITLE, data={"title": transcript.header.title, "origin": transcript.agent})
        added.append(
            replace(last, id=derived_id(last.id, "title"), parent_id=last.id, fact=title, run_id=None, extra=None)
        )
    return await _append(store, stored, added, is_rewritten=is_rewritten)


async def _append(
    store: SessionStore, stored: Entries, added: Sequence[Entry], *, is_rewritten: bool
) -> ImportedTranscript:
    tail, seq = (stored[-1].id, stored.seqs[-1]) if stored else (None, 0)
    numbered = [replace(entry, seq=number) for number, entry in enumerate(added, seq + 1)]
    if numbered:
        check_foreign_id(stored.session_id)
        mark = marking_append(stored.session_id)

        def appends() -> Iterator[SessionAppend]:
            yield mark
            expected_tail = tail
            for start in range(0, len(numbered), _BATCH):
                batch = numbered[start : start + _BATCH]
                yield SessionAppend(stored.session_id, batch, expected_tail)
                expected_tail = batch[-1].id

        await store.append_all([mark.session_id, stored.session_id], appends)
    return ImportedTranscript(stored.session_id, len(added), not stored, is_rewritten)


def _has_new_title(transcript: Transcript, stored: Entries, outlines: Sequence[Outline]) -> bool:
    """Whether the program has given the session another title, and the user has not: then that one stays."""
    title = transcript.header.title
    titles = (
        place for place, outline in enumerate(outlines) if outline.kind == Custom.kind and outline.payload.name == TITLE
    )
    title_entry = stored[max(titles, default=0)]
    is_redacted = any(
        outline.kind == Redaction.kind and outline.payload.entry_id == title_entry.id for outline in outlines
    )
    if title is None or is_redacted or title == title_of(title_entry.fact):
        return False
    return not isinstance(title_entry.fact, Custom) or title_entry.fact.data.get("origin") == transcript.agent


def _after_notes(added: Sequence[Entry], stored: Entries) -> list[Entry]:
    """The new entries, attached after what follows the last message of the source: its records, and notes added here.

    Records, titles and redactions concern the whole session. Otherwise they would be the end of a separate branch.
    """
    last = len(stored) - 1
    while last and _is_note(stored[last]) and stored[last].parent_id == stored[last - 1].id:
        last -= 1
    end, head = stored[last].id, stored[-1].id
    return [replace(entry, parent_id=head) if entry.parent_id == end else entry for entry in added]


def _is_note(entry: Entry) -> bool:
    return isinstance(entry.fact, Redaction | Custom)


def _is_source(outline: Outline) -> bool:
    return outline.kind == Custom.kind and outline.payload.name == SOURCE


# -- recognising what is stored


async def _identified(store: SessionStore, transcript: Transcript) -> Transcript:
    """The transcript with the id of its session. Of those without an id, several can begin with the same record."""
    candidate, number = transcript, 1
    while not transcript.has_own_id and transcript.has_own_records:
        try:
            stored = await store.entries(candidate.session_id)
        except NotFound:
            break
        if _continues(candidate, stored):
            break
        number += 1
        candidate = dataclasses.replace(transcript, id=f"{transcript.id}-{number}")
    return candidate


def _continues(transcript: Transcript, stored: Entries) -> bool:
    """Whether one of two sources is the beginning of the other, by its bytes or by its messages.

    A list of messages ends with brackets, which move when it grows. An answer at the end may be incomplete.
    """
    files = joined_records(_records_of(transcript).values()), source_files(stored)
    data, stored_data = (b"".join(several.values()).rstrip(_ENDS) for several in files)
    if data.startswith(stored_data) or stored_data.startswith(data):
        return True
    read = _messages(entries_of(transcript, is_checked=False))
    imported = [entry for entry in _messages(stored) if entry.run_id is None]
    stored_ids = {entry.id for entry in imported}
    common = next((place for place, entry in enumerate(read) if entry.id not in stored_ids), len(read))
    return any(len(_without_last_answer(messages)) <= common for messages in (read, imported))


def _messages(entries: Sequence[Entry]) -> list[Entry]:
    return [entry for entry in entries if isinstance(entry.fact, Message)]


def _without_last_answer(messages: Sequence[Entry]) -> Sequence[Entry]:
    is_answered = len(messages) > 1 and isinstance(fact := messages[-1].fact, Message) and fact.role == "assistant"
    return messages[:-1] if is_answered else messages


def _records_of(transcript: Transcript) -> dict[tuple[str, int], Record]:
    """The records by file and place, in order."""
    records = {(record.file, record.place): record for step in transcript.steps for record in step.records}
    return dict(sorted(records.items()))


def _under_stored_names(transcript: Transcript, stored_records: KnownRecords) -> Transcript:
    """The transcript, with the names that its files had when the session was imported first."""
    first = next((record for step in transcript.steps for record in step.records), None)
    stored_first = next(iter(stored_records.values()), None)
    if first is None or stored_first is None or not first.file.endswith((".jsonl", ".json")):
        return transcript
    stored_name, ending = stored_first.record.file, PurePosixPath(first.file).suffix
    stored_names = {file for file, _ in stored_records}
    names = {record.file for step in transcript.steps for record in step.records}
    is_renamed = first.file not in stored_names and stored_name not in names
    if not is_renamed or first.place != stored_first.record.place or not stored_name.endswith(ending):
        return transcript
    name, stored_name = first.file.removesuffix(ending), stored_name.removesuffix(ending)

    def named(record: Record) -> Record:
        is_named = record.file.startswith(name)
        return record._replace(file=stored_name + record.file.removeprefix(name)) if is_named else record

    steps = [step._replace(records=tuple(map(named, step.records))) for step in transcript.steps]
    return dataclasses.replace(transcript, steps=steps)


def _is_earlier_state(transcript: Transcript, stored_records: KnownRecords) -> bool:
    """Whether the files are as they were earlier, or were cut off: each is the beginning of the one that is stored."""
    if _has_stored_records(transcript, stored_records):
        return False
    stored_files = joined_records(source.record for source in stored_records.values())
    files = joined_records(_records_of(transcript).values())
    return all(stored_files.get(name, b"").startswith(data) for name, data in files.items())


def _has_stored_records(transcript: Transcript, stored_records: KnownRecords) -> bool:
    """Whether the source still has all records that are stored, so that it can only have grown."""
    records = _records_of(transcript)
    return all(records.get(place) == source.record for place, source in stored_records.items())


def _is_rewritten(transcript: Transcript, stored_records: KnownRecords) -> bool:
    """Whether a record of the conversation is not as it was when the source was last imported.

    An answer that has grown becomes another entry as well, but its records are the same.
    """
    records = _records_of(transcript)
    return any(records.get(place) != source.record for place, source in stored_records.items() if source.entry_ids)


def _with_unused_calls(added: Sequence[Entry], entries: Sequence[Entry], outlines: Sequence[Outline]) -> list[Entry]:
    """The new entries, with other ids for calls that have their result on another branch.

    A session has one result for each call id (D-5.4). A result that cannot be stored, because the call was closed here
    before it arrived, is kept in its record only.
    """
    ended = {call for outline in outlines for call in outline.results}
    results = {result.tool_call_id for entry in added for result in _results(entry)}
    if ended.isdisjoint(results):
        return list(added)
    used = ended | {call for outline in outlines for call in outline.calls}
    stored = {outline.id: outline.calls for outline in outlines if outline.calls}
    fresh = {entry.id for entry in added}
    names: dict[str, str] = {}
    numbers: dict[str, int] = {}
    for entry in entries:
        for place, call in enumerate(_calls(entry)):
            if entry.id in stored:
                names[call] = stored[entry.id][place]
            elif entry.id in fresh:
                name = call
                while name in used:
                    number = numbers[call] = numbers.get(call, 1) + 1
                    name = f"{call}~{number}"
                names[call] = name
                used.add(name)
    return [_renamed(entry, names, ended) for entry in added]


def _calls(entry: Entry) -> list[str]:
    return [call.tool_call_id for call in entry.fact.tool_calls] if isinstance(entry.fact, Message) else []


def _results(entry: Entry) -> tuple[ToolResult, ...]:
    return entry.fact.tool_results if isinstance(entry.fact, Message) else ()


def _renamed(entry: Entry, names: dict[str, str], ended: Collection[str]) -> Entry:
    if not isinstance(entry.fact, Message):
        return entry
    parts: list[Part] = []
    for part in entry.fact.parts:
        if isinstance(part, ToolCall | ToolResult):
            name = names.get(part.tool_call_id, part.tool_call_id)
            if isinstance(part, ToolResult) and name in ended:
                continue
            inner = part.result if isinstance(part, ToolCall) else None
            part = replace(part, tool_call_id=name)
            if isinstance(part, ToolCall) and inner is not None:
                part = replace(part, result=replace(inner, tool_call_id=name))
        parts.append(part)
    if entry.fact.role == "tool" and not parts:
        return replace(entry, fact=Custom(name="bartack.late_result", data={"entryId": entry.id}))
    return replace(entry, fact=replace(entry.fact, parts=tuple(parts)))
