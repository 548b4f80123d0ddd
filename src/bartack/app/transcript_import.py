"""Storing the sessions of other programs.

An import adds what is not stored yet: a file that has grown adds to its session, and one that was rewritten adds a
branch to it. A title that the program gave to the session later becomes its title here, unless the user has given it
another one. Nothing in a transcript is executed, because its calls belong to no run.
"""

import gc
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from bartack.app.transcripts import Found
from bartack.interop import SOURCE, Transcript, entries_of, source_records
from bartack.nouns.entries import Custom, Entry, Redaction
from bartack.nouns.errors import Conflict, NotFound, PartValidationError, StoreError
from bartack.nouns.ids import derived_id
from bartack.nouns.messages import Message
from bartack.nouns.parts import Part, ToolCall, ToolResult
from bartack.session.outline import Outline, outlines_of
from bartack.session.title import TITLE, title_of
from bartack.store import Entries, SessionStore

__all__ = ["Imported", "SeenFiles", "fewer_collections", "import_transcript", "is_known_copy"]

_BATCH = 500  # entries
_ATTEMPTS = 10  # at a session that others append to


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

    async def sessions_of(self, found: Found, store: SessionStore) -> list[str] | None:
        """The sessions of a file that is as it was when they were stored, if they still are; None otherwise."""
        seen = self._seen.get(str(found.path))
        if seen is None or seen[:2] != (found.size, found.modified.isoformat()):
            return None
        try:
            for session_id in seen[2]:
                await store.tail_of(session_id)
        except NotFound:
            return None
        return seen[2]

    def add(self, found: Found, session_ids: Iterable[str]) -> None:
        """Remember a file whose sessions are stored."""
        key = str(found.path)
        if not key.isprintable():  # not UTF-8
            return
        self._seen[key] = (found.size, found.modified.isoformat(), list(session_ids))

    def save(self) -> None:
        """Write the cache; a failure is ignored."""
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary = self._path.with_suffix(f".{os.getpid()}")
            temporary.write_bytes(msgspec.json.encode(self._seen))
            temporary.replace(self._path)


# -- importing


class Imported(NamedTuple):
    """What an import did to a session."""

    session_id: str
    entries: int  # that are new
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


async def import_transcript(store: SessionStore, transcript: Transcript, modified: datetime) -> Imported:
    """Store what is new in a transcript. Entries whose source has no time get that of the file.

    Raises `StoreError`, and `SessionInUse` while a run works on the session.
    """
    entries = entries_of(transcript, modified, is_checked=False)
    for attempt in range(_ATTEMPTS):
        try:
            return await _import(store, transcript, entries)
        except StoreError as error:
            if isinstance(error.cause, PartValidationError):
                entries = entries_of(transcript, modified)  # without what cannot be stored
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


async def _import(store: SessionStore, transcript: Transcript, entries: Sequence[Entry]) -> Imported:
    session_id = transcript.session_id
    try:
        stored = await store.entries(session_id)
    except NotFound:
        return await _append(store, Entries(session_id, (), ()), entries, is_rewritten=False)
    outlines = outlines_of(stored.texts)
    known = {outline.id for outline in outlines}
    new = [entry for entry in entries if entry.id not in known]
    is_rewritten = bool(new) and _is_rewritten(transcript, stored, outlines, entries)
    new = _after_notes(_with_unused_calls(new, entries, outlines), stored)
    last = new[-1] if new else stored[-1]
    if _has_new_title(transcript, stored, outlines):
        title = Custom(TITLE, {"title": transcript.header.title, "origin": transcript.agent})
        new.append(
            replace(last, id=derived_id(last.id, "title"), parent_id=last.id, fact=title, run_id=None, extra=None)
        )
    return await _append(store, stored, new, is_rewritten=is_rewritten)


async def _append(store: SessionStore, stored: Entries, new: Sequence[Entry], *, is_rewritten: bool) -> Imported:
    tail, seq = (stored[-1].id, stored.seqs[-1]) if stored else (None, 0)
    numbered = [replace(entry, seq=number) for number, entry in enumerate(new, seq + 1)]
    for start in range(0, len(numbered), _BATCH):
        batch = numbered[start : start + _BATCH]
        tail = (await store.append(stored.session_id, batch, tail)).entry_id
    return Imported(stored.session_id, len(new), not stored, is_rewritten)


def _has_new_title(transcript: Transcript, stored: Entries, outlines: Sequence[Outline]) -> bool:
    """Whether the program has given the session another title, and the user has not: then that one stays."""
    title = transcript.header.title
    titles = (place for place, one in enumerate(outlines) if one.kind == Custom.kind and one.payload.name == TITLE)
    given = stored[max(titles, default=0)]
    is_redacted = any(one.kind == Redaction.kind and one.payload.entry_id == given.id for one in outlines)
    if title is None or is_redacted or title == title_of(given.fact):
        return False
    return not isinstance(given.fact, Custom) or given.fact.data.get("origin") == transcript.agent


def _after_notes(new: Sequence[Entry], stored: Entries) -> list[Entry]:
    """The new entries, attached after the notes that were added here to the last entry of the source.

    Titles and redactions apply to the whole session. Otherwise they would be the end of a separate branch.
    """
    last = len(stored) - 1
    while last and _is_note(stored[last]) and stored[last].parent_id == stored[last - 1].id:
        last -= 1
    end, head = stored[last].id, stored[-1].id
    return [replace(entry, parent_id=head) if entry.parent_id == end else entry for entry in new]


def _is_note(entry: Entry) -> bool:
    return isinstance(entry.fact, Redaction) or (isinstance(entry.fact, Custom) and entry.fact.name != SOURCE)


def _is_source(outline: Outline) -> bool:
    return outline.kind == Custom.kind and outline.payload.name == SOURCE


def _is_rewritten(
    transcript: Transcript, stored: Entries, outlines: Sequence[Outline], entries: Sequence[Entry]
) -> bool:
    """Whether a record of the conversation is not as it was when the source was last imported.

    An answer that has grown becomes another entry as well, but its records are the same.
    """
    last = next((outline.id for outline in reversed(outlines) if _is_source(outline)), None)
    if last is None or any(entry.id == last for entry in entries):
        return False
    current = {(record.file, record.place): record.data for step in transcript.steps for record in step.records}
    return any(
        current.get((record.file, record.place)) != record.data
        for entry, record in source_records(stored)
        if isinstance(entry.fact, Custom) and entry.fact.data.get("entries")
    )


def _with_unused_calls(new: Sequence[Entry], entries: Sequence[Entry], outlines: Sequence[Outline]) -> list[Entry]:
    """The new entries, with other ids for calls that have their result on another branch.

    A session has one result for each call id (D-5.4). A result that cannot be stored, because the call was closed here
    before it arrived, is kept in its record only.
    """
    ended = {call for outline in outlines for call in outline.results}
    results = {result.tool_call_id for entry in new for result in _results(entry)}
    if ended.isdisjoint(results):
        return list(new)
    used = ended | {call for outline in outlines for call in outline.calls}
    stored = {outline.id: outline.calls for outline in outlines if outline.calls}
    fresh = {entry.id for entry in new}
    names: dict[str, str] = {}
    numbers: dict[str, int] = {}  # of the last name for a call
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
    return [_renamed(entry, names, ended) for entry in new]


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
        return replace(entry, fact=Custom("bartack.late_result", {"entryId": entry.id}))
    return replace(entry, fact=replace(entry.fact, parts=tuple(parts)))
