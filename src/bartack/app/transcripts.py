"""The sessions of other programs on this machine: finding, reading and importing them.

Files of other programs are only ever read. An import adds what is not stored yet: a file that has grown adds to its
session, and one that was rewritten adds a branch to it. Nothing in a transcript is executed, because its calls belong
to no run.
"""

import gc
import os
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from bartack.app.compressed import COMPRESSED, file_data
from bartack.app.errors import with_hint
from bartack.app.forks import origin_of
from bartack.app.safe_text import valid_text
from bartack.interop import FORMATS, SOURCE, Transcript, TranscriptFormat, entries_of, recognised_format
from bartack.nouns.entries import Custom, Entry
from bartack.nouns.errors import BartackError, Conflict, ErrorCode, NotFound, PartValidationError, StoreError
from bartack.nouns.messages import Message
from bartack.nouns.parts import Part, ToolCall, ToolResult
from bartack.session.outline import Outline, outlines_of
from bartack.store import SessionStore, Tail

__all__ = [
    "Found",
    "Imported",
    "SeenFiles",
    "fewer_collections",
    "find_transcripts",
    "found_at",
    "home_of",
    "import_transcript",
    "is_transcript",
    "read_transcripts",
]

_HEAD = 64 * 1024  # bytes by which a file is recognised
_BATCH = 500  # entries
_ATTEMPTS = 10  # at a session that others append to


class Found(NamedTuple):
    """A transcript on disk."""

    format: TranscriptFormat
    path: Path
    name: str  # in the folder of its program, with forward slashes
    size: int
    modified: datetime


# -- finding


def find_transcripts(agents: Collection[str] = ()) -> Iterator[Found]:
    """The transcripts of installed programs, or of these only, in the places where they keep them."""
    for row in FORMATS.values():
        home = home_of(row) if not agents or row.name in agents else None
        if home is None:
            continue
        for place in row.places:
            for folder in [home] if place.folder == "." else sorted(home.glob(place.folder)):
                for path in sorted(folder.glob(place.file)):
                    if path.is_file():
                        yield _found(row, path, path.relative_to(folder).as_posix())


def home_of(row: TranscriptFormat) -> Path | None:
    """The folder of a program; None if it is not installed, or has not been used."""
    for home in row.homes:
        variable, _, rest = home[1:].partition("/") if home.startswith("$") else ("", "", "")
        given = home if not variable else os.path.join(os.environ[variable], rest) if os.environ.get(variable) else ""  # noqa: PTH118 - keeps an empty rest
        if given:
            path = Path(given).expanduser()
            return path if path.is_dir() else None
    return None


def found_at(path: Path, agent: str | None = None) -> Found:
    """The transcript in a file, recognised by its content, or read as one of this program.

    Raises `BartackError` if it is not a transcript of a known program.
    """
    row = None if agent is None else FORMATS[agent]
    if row is None and path.is_dir():
        row = next((each for each in FORMATS.values() if each.marker and (path / each.marker).exists()), None)
    elif row is None:
        row = recognised_format(path.name.removesuffix(COMPRESSED), file_data(path, _HEAD))
    if row is None:
        known = ", ".join(sorted(each.title for each in FORMATS.values()))
        error = BartackError(f"{path} is not a transcript of a known program.", code=ErrorCode.INVALID_VALUE)
        hint = f"Known programs: {known}. 'bartack sessions import' reads Bartack's own JSONL."
        raise with_hint(error, hint)
    return _found(row, path, _name_of(row, path))


def is_transcript(path: Path) -> bool:
    """Whether this is a file, or a folder that is a transcript as a whole."""
    return path.is_file() or any(row.marker is not None and (path / row.marker).exists() for row in FORMATS.values())


def _name_of(row: TranscriptFormat, path: Path) -> str:
    """The name of a transcript, which may be more than that of its file: that of a sub-agent has its session's.

    The place is the one that most of the path matches. Files can be elsewhere, so the path may match only the end of a
    pattern; but a folder counts only if at least one is there by its name.
    """
    parts = path.absolute().parts
    best, size = path.name, 0
    for place in row.places:
        folders, file = place.folder.split("/"), place.file.split("/")
        for start in range(len(folders) + 1):
            pattern = [*folders[start:], *file]
            last = parts[-len(pattern) :]
            is_named = len(pattern) == 1 or any("*" not in folder for folder in pattern[:-1])
            if len(last) == len(pattern) > size and is_named and all(map(fnmatchcase, last, pattern)):
                best, size = "/".join(last[-len(file) :]), len(pattern)
    return best


def _found(row: TranscriptFormat, path: Path, name: str) -> Found:
    status = path.stat()
    return Found(
        row,
        path,
        valid_text(name.removesuffix(COMPRESSED)),
        status.st_size,
        datetime.fromtimestamp(status.st_mtime, UTC),
    )


def read_transcripts(found: Found) -> list[Transcript]:
    """The sessions in a transcript: the one that it is about first, then those of its sub-agents.

    Raises `BartackError` if nothing in it is a record of the program.
    """
    transcripts = found.format.read(files_of(found))
    if not any(one.report.total("read") + one.report.total("opaque") for one in transcripts):
        error = f"{found.path} has no records of {found.format.title}."
        raise BartackError(error, code=ErrorCode.INVALID_VALUE)
    if found.format.copies_forks and "parentSession" not in (transcripts[0].header.metadata or {}):
        _name_origin(transcripts[0], found)
    return transcripts


def _name_origin(transcript: Transcript, found: Found) -> None:
    """Name the session that this one is a fork of, if it does not do that itself."""
    about = transcript.header.metadata or {}
    origin = None if "forkedFrom" in about else origin_of(found.path)
    if origin is not None:
        named = {**about, "forkedFrom": f"{transcript.agent}:{valid_text(origin)}"}
        transcript.header = replace(transcript.header, metadata=named)


def files_of(found: Found) -> dict[str, bytes]:
    """The files of a transcript, or the rows of a database as if they were files."""
    if found.path.is_dir():
        paths = sorted(path for path in found.path.rglob("*") if path.is_file())
        return {valid_text(path.relative_to(found.path).as_posix()): path.read_bytes() for path in paths}
    if found.format.queries and _is_database(found.path):
        return dict(_rows(found.path, found.format.queries))
    files = {found.name: file_data(found.path)}
    for ending in found.format.companions:
        other = found.path.with_name(found.path.stem + ending)
        if other.is_file():
            files[found.name.removesuffix(found.path.suffix) + ending] = other.read_bytes()
    base = found.format.base_of(files[found.name])
    if base is not None:
        folders = (found.path.parent, *found.path.absolute().parents[1:4])
        path = next((path for folder in folders for path in sorted(folder.rglob(base))), None)
        if path is not None:
            files[path.name.removesuffix(COMPRESSED)] = file_data(path)
    return files


def _is_database(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def _rows(path: Path, queries: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    """The rows of a database as JSON, by kind and id. Nothing is written, not even beside the file."""
    log = path.with_name(f"{path.name}-wal")
    mode = (
        "mode=ro" if log.exists() and log.stat().st_size else "immutable=1"
    )  # a log needs the shared memory beside it
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True)) as database:
            database.row_factory = sqlite3.Row
            for kind, query in queries.items():
                for row in _selected(database, query):
                    columns = dict(row)
                    yield f"{kind}/{valid_text(str(columns.get('id')))}", msgspec.json.encode(columns)
    except sqlite3.Error as error:
        raise BartackError(f"{path} cannot be read: {error}", code=ErrorCode.STORAGE_FAILED, cause=error) from error


def _selected(database: sqlite3.Connection, query: str) -> Iterable[sqlite3.Row]:
    """The rows of a query; none if an earlier version of the program had no such table."""
    try:
        return database.execute(query)
    except sqlite3.OperationalError as error:
        if not str(error).startswith("no such table"):
            raise
        return ()


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
        """Write the cache; failing to is no error."""
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


async def import_transcript(store: SessionStore, transcript: Transcript, modified: datetime) -> Imported:
    """Store what is new in a transcript. Entries whose source has no time get that of the file.

    Raises `StoreError`, and `SessionInUse` while a run works on the session.
    """
    entries = entries_of(transcript, modified, is_checked=False)
    for attempt in range(_ATTEMPTS):
        try:
            return await _import(store, transcript.session_id, entries)
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


async def _import(store: SessionStore, session_id: str, entries: Sequence[Entry]) -> Imported:
    try:
        outlines = outlines_of((await store.entries(session_id)).texts)
        tail: Tail | None = await store.tail_of(session_id)
    except NotFound:
        outlines, tail = [], None
    stored = {outline.id for outline in outlines}
    new = [entry for entry in entries if entry.id not in stored]
    if not new:
        return Imported(session_id, 0, False, False)
    is_rewritten = tail is not None and any(_is_source(outline) for outline in _after(outlines, entries))
    new = _with_unused_calls(new, entries, outlines)
    seq = 1 if tail is None else tail.seq + 1
    numbered = [replace(entry, seq=number) for number, entry in enumerate(new, seq)]
    for start in range(0, len(numbered), _BATCH):
        batch = numbered[start : start + _BATCH]
        tail = await store.append(session_id, batch, None if tail is None else tail.entry_id)
    return Imported(session_id, len(new), not outlines, is_rewritten)


def _is_source(outline: Outline) -> bool:
    return outline.kind == Custom.kind and outline.payload.name == SOURCE


def _after(outlines: Iterable[Outline], entries: Iterable[Entry]) -> Iterator[Outline]:
    """What is stored and no longer part of the source."""
    current = {entry.id for entry in entries}
    return (outline for outline in outlines if outline.id not in current)


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
