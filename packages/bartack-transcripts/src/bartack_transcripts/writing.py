"""`TranscriptWriter`: conversations in the format of a program, so that it can continue them.

A writer gets one branch and returns one file. If the file existed before, because the session was imported from the
same program and then continued, its records are written again byte for byte, and the writer adds only what is new.

What a program cannot use is left out, and listed: reasoning and signatures of other providers, context that the source
program injected, and records that only that program understands. Calls without a result stay without one; every program
closes them itself when it continues.
"""

import json
import re
from collections.abc import Callable, Container, Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec.structs import replace

from bartack.formats.losses import Loss
from bartack.nouns.entries import (
    BranchSummary,
    CompactionSummary,
    Custom,
    Entry,
    Redaction,
    RunEnded,
    SessionHeader,
    branch,
)
from bartack.nouns.ids import derived_id
from bartack.nouns.messages import Message, stamped
from bartack.nouns.parts import Part, ToolCall, ToolResult
from bartack.session.context.window import branch_message
from bartack.session.redaction import visible
from bartack.session.title import title_in, title_of
from bartack_transcripts.entries import (
    SourceRecord,
    imported_ids,
    is_source,
    joined_records,
    source_files,
    source_records,
)
from bartack_transcripts.values import Json, parse_object, text_in

__all__ = [
    "Exported",
    "Outgoing",
    "TranscriptWriter",
    "WrittenTranscript",
    "export_mark",
    "exported",
    "json_document",
    "json_line",
    "origin_id",
    "session_ids",
    "time_text",
    "with_bases",
    "with_call_ids",
    "with_children",
    "with_lines",
    "written_anew",
]


class Outgoing(NamedTuple):
    """A conversation to be written."""

    id: str  # the UUID of the session in the program
    entries: tuple[Entry, ...]  # one branch, in order, without redacted content
    started: datetime
    directory: str
    title: str | None = None  # None: it has none, or the file that is continued has it already
    git_branch: str | None = None
    last_record: Json | None = None  # the last one of the file to continue; None: the file is new

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages, without those that only instruct the source program."""
        return tuple(entry.fact for entry in self.entries if isinstance(entry.fact, Message))

    def kept_by(self, compaction: Entry) -> list[str]:
        """The ids of the entries that a compaction keeps. The first of them may be one that is not written."""
        assert isinstance(compaction.fact, CompactionSummary)
        ids = [entry.id for entry in self.entries]
        first = compaction.fact.first_kept_entry_id
        return ids[ids.index(first) : ids.index(compaction.id)] if first in ids else []


class WrittenTranscript(NamedTuple):
    """Records in the format of the program, and what was left out of them."""

    name: str  # the name of the main file
    data: bytes
    losses: tuple[Loss, ...] = ()
    id: str | None = None  # the session id, if it is not the one that was asked for
    other_files: Mapping[str, bytes] = MappingProxyType({})


def with_lines(name: str, data: bytes, added_lines: bytes) -> bytes | None:
    """A file of lines with new ones."""
    return data + (b"" if data.endswith(b"\n") or not data else b"\n") + added_lines  # the last line may be torn


def written_anew(name: str, data: bytes, added_data: bytes) -> None:
    """A file to which nothing can be added."""


class TranscriptWriter(NamedTuple):
    """How a program's transcripts are written, where it finds them, and how it continues one."""

    write: Callable[[Outgoing], WrittenTranscript]
    folder: Callable[[Outgoing], str]  # relative to the home of the program
    resume: str  # the command; {id} is the session
    is_tree: bool  # whether a file can hold several branches
    has_branch_summaries: bool = False  # if False, they are written as messages
    # Whether a sub-agent is a session like any other, whose file names the one that called it.
    has_agent_sessions: bool = False
    # A folder beside that of the sessions, with one for the sub-agents of each session; None: that one is beside it.
    agents: str | None = None
    # The file with this name and content, and these records added; None if it must be rewritten.
    joined: Callable[[str, bytes, bytes], bytes | None] = with_lines
    # What the program reads, made of its records, if these are not the files themselves.
    assembled: Callable[[dict[str, bytes]], dict[str, bytes]] | None = None


class Exported(NamedTuple):
    """The files of a session for one program."""

    id: str  # the session id in the program
    files: dict[str, bytes]
    folder: str  # relative to the home of the program
    is_exact: bool  # whether the files are unchanged since the import
    losses: tuple[Loss, ...]
    directory: str = "/"  # where it is continued, if that is known
    beside: frozenset[str] = frozenset()  # the files that are not in the folder, but in the one around it

    def folder_of(self, name: str) -> str:
        """The folder of a file in the home of the program."""
        return str(PurePosixPath(self.folder).parent) if name in self.beside else self.folder


# -- exporting


def exported(
    entries: Sequence[Entry],
    agent: str,
    writer: TranscriptWriter,
    *,
    head: str | None = None,
    new_id: str,
    may_keep_id: bool = True,
    may_keep_records: bool = True,
    directory: str | None = None,
) -> Exported:
    """A session in the format of this program. `entries` are those of all branches; `head` is any entry of one of them.

    A session of the same program keeps its records (`may_keep_records`), and its id unless it must not (`may_keep_id`).
    `directory` is where it will be continued, if not where it was.
    """
    head = None if head is None else _end_of(entries, head)
    path = branch(entries, head or entries[-1].id)
    visible_entries = visible(entries)
    on_path = {entry.id for entry in path}
    on_branch = (entry for entry in visible_entries if entry.id in on_path)
    outgoing = _outgoing(tuple(on_branch if writer.has_branch_summaries else map(_as_message, on_branch)), new_id)
    if directory is not None:
        outgoing = outgoing._replace(directory=directory)
    header = path[0].fact
    is_own = isinstance(header, SessionHeader) and header.origin == agent
    if not is_own or not may_keep_records or any(isinstance(entry.fact, Redaction) for entry in entries):
        return _written(writer, outgoing)
    records = source_records(entries)
    # A file is read to its end, which decides about the branch. In a tree, that can be what was added to another one.
    imported = imported_ids(entries)
    is_imported = head is not None and all(entry.id in imported for entry in path if isinstance(entry.fact, Message))
    is_other = bool(records) and records[-1].entry.id not in on_path and (not writer.is_tree or is_imported)
    if not records or is_other:
        return _written(writer, outgoing)
    last = max((place for place, entry in enumerate(path) if is_source(entry)), default=0)
    imported.update(entry.id for entry in path[: last + 1])
    return _continued(writer, outgoing, imported, records, may_keep_id=may_keep_id)


def _end_of(entries: Sequence[Entry], head: str) -> str:
    """The last entry that belongs to the message at this head: its source records and notes follow it.

    After them, the conversation may continue in several ways, of which none is chosen.
    """
    children: dict[str | None, list[Entry]] = {}
    for entry in entries:
        children.setdefault(entry.parent_id, []).append(entry)
    while (following := children.get(head)) is not None:
        own = [entry for entry in following if isinstance(entry.fact, Custom) and head in _sources(entry)]
        is_note = len(following) == 1 and isinstance(following[0].fact, Custom | RunEnded | Redaction)
        if not own and not is_note:
            break
        head = (own or following)[-1].id
    return head


def _sources(record: Entry) -> Sequence[object]:
    """The entries that a record became."""
    assert isinstance(record.fact, Custom)
    ids = record.fact.data.get("entries")
    return ids if isinstance(ids, list) else []


def _as_message(entry: Entry) -> Entry:
    """The entry, with the summary of another branch as the message that a model gets."""
    if not isinstance(entry.fact, BranchSummary):
        return entry
    message = stamped(branch_message(entry.fact.summary), id=entry.id, timestamp=entry.timestamp)
    return replace(entry, fact=message)


def _outgoing(entries: tuple[Entry, ...], id: str) -> Outgoing:
    header = entries[0].fact
    metadata = (header.metadata if isinstance(header, SessionHeader) else None) or {}
    directory, git_branch = metadata.get("directory"), metadata.get("gitBranch")
    return Outgoing(
        id,
        entries,
        entries[0].timestamp,
        directory if isinstance(directory, str) else "/",
        title_in(entries),
        git_branch if isinstance(git_branch, str) else None,
    )


def _written(writer: TranscriptWriter, outgoing: Outgoing) -> Exported:
    document = writer.write(outgoing)
    data = {document.name: _marked(writer, document.name, document.data, outgoing.entries[0]), **document.other_files}
    return Exported(
        document.id or outgoing.id, data, writer.folder(outgoing), False, document.losses, outgoing.directory
    )


def _continued(
    writer: TranscriptWriter,
    outgoing: Outgoing,
    imported: Container[str],
    records: Sequence[SourceRecord],
    *,
    may_keep_id: bool,
) -> Exported:
    """The records of the source, followed by what was added here.

    The whole file is rewritten if a compaction that was added keeps messages of the source, which are not new.
    """
    added_entries = tuple(entry for entry in outgoing.entries if entry.id not in imported)
    compactions = [entry.fact for entry in added_entries if isinstance(entry.fact, CompactionSummary)]
    if any(compaction.first_kept_entry_id in imported for compaction in compactions):
        return _written(writer, outgoing)
    old_id = _source_id(outgoing.entries[0])
    files = joined_records(source.record for source in records)
    id = old_id if may_keep_id else outgoing.id
    if not may_keep_id:  # messages of libraries have no id, and only the name of their file changes
        renamed_files = {_renamed(name, old_id, id): data for name, data in files.items()}
        files = _with_id(files, old_id, id) if writer.resume else renamed_files
    title = outgoing.title if _is_renamed_here(outgoing.entries) else None
    added = outgoing._replace(
        id=id, entries=added_entries, title=title, last_record=_last_record(outgoing.entries, records)
    )
    name = next(iter(files))
    if not added.messages:
        assembled_files = files if writer.assembled is None else writer.assembled(files)
        is_exact = may_keep_id and [*assembled_files.values()] == [*files.values()]
        if not may_keep_id and name in assembled_files:
            assembled_files[name] = _marked(writer, name, assembled_files[name], outgoing.entries[0])
        return Exported(id, assembled_files, writer.folder(added), is_exact, (), added.directory)
    document = writer.write(added)
    joined = writer.joined(name, files[name], document.data)
    if joined is None:
        return _written(writer, outgoing)
    files[name] = _marked(writer, name, joined, outgoing.entries[0])
    return Exported(id, files, writer.folder(added), False, document.losses, added.directory)


def _is_renamed_here(entries: Sequence[Entry]) -> bool:
    """Whether the session has a title that is not from its program."""
    titled = next((entry.fact for entry in reversed(entries) if title_of(entry.fact) is not None), None)
    return isinstance(titled, Custom) and "origin" not in titled.data


def _with_id(files: Mapping[str, bytes], old_id: str, id: str) -> dict[str, bytes]:
    """The files of a session under another id. An id that users choose may be a word, which texts contain as well."""
    is_unique = len(old_id) >= _UNIQUE_LENGTH
    old, new = (old_id, id) if is_unique else (f'"{old_id}"', f'"{id}"')
    return {_renamed(name, old_id, id): data.replace(old.encode(), new.encode()) for name, data in files.items()}


_UNIQUE_LENGTH = 20  # characters of an id that no text contains by chance


def with_children(
    export: Exported,
    agent: str,
    writer: TranscriptWriter,
    entries: Sequence[Entry],
    children: Sequence[Sequence[Entry]],
    *,
    may_keep_id: bool = True,
) -> Exported:
    """The export of a session with those of its sub-agents, if they are of the same program.

    Sub-agents of other programs are listed: they are sessions, and can be exported like any other.
    """
    old_id = _source_id(entries[0])
    files, losses = dict(export.files), list(export.losses)
    ids = {old_id: export.id}
    own_ids = dict.fromkeys(files, old_id)
    folder = f"{old_id}/" if writer.agents is None else f"{writer.agents}/{old_id}/"
    beside: set[str] = set()
    for child in children:
        header = child[0].fact
        is_own = isinstance(header, SessionHeader) and header.origin == agent
        is_redacted = any(isinstance(entry.fact, Redaction) for entry in child)
        records = source_records(child) if is_own else []
        if is_own and not records:  # they are among those of the session
            continue
        if records and not is_redacted and all(source.record.file.startswith(folder) for source in records):
            part_files = _with_id(source_files(child), old_id, export.id)
            if export.id != old_id:
                part_files = {name: _marked(writer, name, data, child[0]) for name, data in part_files.items()}
            files |= part_files
            beside.update(part_files if writer.agents is not None else ())
        elif records and not is_redacted and writer.has_agent_sessions:
            own_id = derived_id(export.id, child[0].session_id)
            part = exported(child, agent, writer, new_id=own_id, may_keep_id=may_keep_id)
            files |= part.files
            losses += part.losses
            ids[_source_id(child[0])] = part.id
            own_ids |= dict.fromkeys(part.files, _source_id(child[0]))
        else:
            why = f"it is a session of its own; export {child[0].session_id} as well"
            losses.append(Loss(where="", what="session of a sub-agent", why=why))
    if len(ids) > 1:
        for name, own_id in own_ids.items():
            for source_id, export_id in ids.items():
                if source_id != own_id:  # the session's own file has it only in the mark of the export
                    files[name] = files[name].replace(source_id.encode(), export_id.encode())
    return export._replace(files=files, losses=tuple(losses), beside=frozenset(beside))


def with_bases(
    export: Exported,
    base_of: Callable[[bytes], str | None],
    origins: Sequence[Sequence[Entry]],
    installed_names: Sequence[str],
) -> Exported | None:
    """The export with the files that it continues, which are those of its origins; None if one is missing.

    `known` are the names of files that the program has already.
    """
    files = dict(export.files)
    origin_files = {name: data for entries in origins for name, data in source_files(entries).items()}
    waiting = list(files.values())
    for data in waiting:
        pattern = base_of(data)
        if pattern is None or any(fnmatchcase(name, pattern) for name in (*files, *installed_names)):
            continue
        name = next((name for name in origin_files if fnmatchcase(name, pattern)), None)
        if name is None:
            return None
        files[name] = origin_files[name]
        waiting.append(origin_files[name])
    return export._replace(files=files)


def origin_id(entries: Sequence[Entry]) -> str | None:
    """The session that this one continues."""
    header = entries[0].fact
    return text_in(header.metadata, "forkedFrom") if isinstance(header, SessionHeader) else None


def session_ids(entries: Sequence[Entry]) -> list[str]:
    """The sessions of the sub-agents that a session called."""
    results = (result for entry in entries if isinstance(entry.fact, Message) for result in entry.fact.tool_results)
    child_ids = (text_in(result.metadata, "sessionId") for result in results)
    return list(dict.fromkeys(id for id in child_ids if id is not None and id != entries[0].session_id))


# -- recognising exports

_MARK = "bartackExport"  # a field of the last line that was written: the session that it is from


def _marked(writer: TranscriptWriter, name: str, data: bytes, header: Entry) -> bytes:
    """Lines that an import recognises as an export of a session. No program minds one more field."""
    lines, _, last = data.rstrip().rpartition(b"\n")
    if not writer.resume or not name.endswith(".jsonl") or not isinstance(parse_object(last), dict):
        return data
    mark = json.dumps({_MARK: header.session_id}, separators=(",", ":"))[1:].encode()
    return b"".join((lines, b"\n" if lines else b"", last[:-1], b"," if last[1:-1].strip() else b"", mark, b"\n"))


def export_mark(data: bytes) -> tuple[str, bool] | None:
    """The session that a file was exported from, and whether nothing was added since; None for any other file."""
    place = data.rfind(f'"{_MARK}":"'.encode())
    if place < 0:
        return None
    line, _, following = data[data.rfind(b"\n", 0, place) + 1 :].partition(b"\n")
    id = text_in(parse_object(line), _MARK)
    return None if id is None else (id, not following.strip())


def _source_id(header: Entry) -> str:
    """The id of the session in its program, where it is not that of the session here."""
    metadata = header.fact.metadata if isinstance(header.fact, SessionHeader) else None
    id = (metadata or {}).get("sourceId")
    return id if isinstance(id, str) and id else header.session_id.partition(":")[2].rpartition("/")[2]


def _renamed(name: str, old_id: str, id: str) -> str:
    """The name with the new id; some programs use only the beginning of an id."""
    return name.replace(old_id, id).replace(old_id[:8], id[:8])


def _last_record(path: Sequence[Entry], records: Sequence[SourceRecord]) -> Json:
    """The last record on the branch that has an id; empty if there is none."""
    on_path = {entry.id for entry in path}
    for source in reversed(records):
        if source.entry.id in on_path or not on_path.isdisjoint(source.entry_ids):
            parsed = parse_object(source.record.data)
            if isinstance(parsed, dict) and ("uuid" in parsed or "id" in parsed):
                return parsed
    return {}


# -- what writers share


def json_line(record: Mapping[str, Any]) -> bytes:
    """One line of JSON, as JavaScript writes it."""
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def json_document(document: Json) -> bytes:
    """A file with one object, for people to read as well."""
    return json.dumps(document, ensure_ascii=False, indent=2).encode()


def time_text(time: datetime) -> str:
    """The time in UTC with milliseconds."""
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def with_call_ids(messages: Sequence[Message], pattern: str) -> list[Message]:
    """The messages, with other ids for calls whose id does not match the pattern, and for their results."""
    ids = dict.fromkeys(call.tool_call_id for message in messages for call in message.tool_calls)
    used = {id for id in ids if re.fullmatch(pattern, id) is not None}
    names: dict[str, str] = {}
    numbers: dict[str, int] = {}
    for id in ids:
        if id not in used:
            name = plain = re.sub(r"[^a-zA-Z0-9_-]", "_", id)[:50] or "call"
            while name in used:
                number = numbers[plain] = numbers.get(plain, 0) + 1
                name = f"{plain}_{number}"
            names[id] = name
            used.add(name)
    return [replace(message, parts=tuple(_named(part, names) for part in message.parts)) for message in messages]


def _named(part: Part, names: Mapping[str, str]) -> Part:
    if isinstance(part, ToolCall | ToolResult) and part.tool_call_id in names:
        name = names[part.tool_call_id]
        if isinstance(part, ToolCall) and part.result is not None:
            return replace(part, tool_call_id=name, result=replace(part.result, tool_call_id=name))
        return replace(part, tool_call_id=name)
    return part
