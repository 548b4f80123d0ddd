"""`TranscriptWriter`: conversations in the format of a program, so that it can continue them.

A writer gets one branch and returns one file. If the file existed before, because the session was imported from the
same program and then continued, its records are written again byte for byte, and the writer adds only what is new.

What a program cannot use is left out, and listed: reasoning and signatures of other providers, context that the source
program injected, and records that only that program understands. Calls without a result stay without one; every program
closes them itself when it continues.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec.structs import replace

from bartack.formats.losses import Loss
from bartack.interop.entries import record_of, source_records
from bartack.interop.transcript import Record
from bartack.interop.values import Json, parse_object
from bartack.nouns.entries import Entry, Redaction, SessionHeader, branch
from bartack.nouns.messages import Message
from bartack.nouns.parts import Part, ToolCall, ToolResult
from bartack.session.redaction import visible

__all__ = [
    "Exported",
    "Outgoing",
    "TranscriptWriter",
    "Written",
    "exported",
    "json_document",
    "json_line",
    "time_text",
    "with_call_ids",
    "with_lines",
    "written_anew",
]


class Outgoing(NamedTuple):
    """A conversation to be written."""

    id: str  # of the session in the program: a UUID
    entries: tuple[Entry, ...]  # one branch, in order, without redacted content
    started: datetime
    directory: str
    title: str | None = None
    git_branch: str | None = None
    after: Json | None = None  # the last record of the file that is continued; None: the file is new

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages, without those that only instruct the source program."""
        return tuple(entry.fact for entry in self.entries if isinstance(entry.fact, Message))


class Written(NamedTuple):
    """Records in the format of the program, and what was left out of them."""

    name: str  # of the file
    data: bytes
    losses: tuple[Loss, ...] = ()
    id: str | None = None  # of the session, if it is not the one that was asked for
    more: Mapping[str, bytes] = MappingProxyType({})  # other files


def with_lines(name: str, data: bytes, new: bytes) -> bytes | None:
    """A file of lines with new ones."""
    return data + (b"" if data.endswith(b"\n") or not data else b"\n") + new  # the last line may be torn


def written_anew(name: str, data: bytes, new: bytes) -> None:
    """A file to which nothing can be added."""


class TranscriptWriter(NamedTuple):
    """How a program's transcripts are written, where it finds them, and how it continues one."""

    write: Callable[[Outgoing], Written]
    folder: Callable[[Outgoing], str]  # in the home of the program
    resume: str  # the command; {id} is the session
    is_tree: bool  # whether a file can hold several branches
    # The file with this name and content, and these records added; None if it has to be written anew.
    joined: Callable[[str, bytes, bytes], bytes | None] = with_lines
    # What the program reads, made of its records, if these are not the files themselves.
    assembled: Callable[[dict[str, bytes]], dict[str, bytes]] | None = None


class Exported(NamedTuple):
    """The files of a session for one program."""

    id: str  # of the session there
    files: dict[str, bytes]
    folder: str  # in the home of the program
    is_exact: bool  # whether all of it is as it was imported
    losses: tuple[Loss, ...]
    directory: str = "/"  # where it is continued, if that is known


# -- exporting


def exported(
    entries: Sequence[Entry],
    agent: str,
    writer: TranscriptWriter,
    *,
    head: str | None = None,
    new_id: str,
    may_keep_id: bool = True,
    directory: str | None = None,
) -> Exported:
    """A session in the format of this program. `entries` are those of all branches; `head` is the end of one of them.

    A session of the same program keeps its records, and its id unless it must not (`may_keep_id`). `directory` is where
    it will be continued, if not where it was.
    """
    path = branch(entries, head or entries[-1].id)
    shown = visible(entries)
    on_path = {entry.id for entry in path}
    outgoing = _outgoing(tuple(entry for entry in shown if entry.id in on_path), new_id)
    if directory is not None:
        outgoing = outgoing._replace(directory=directory)
    header = path[0].fact
    is_own = isinstance(header, SessionHeader) and header.origin == agent
    if not is_own or any(isinstance(entry.fact, Redaction) for entry in entries):
        return _written(writer, outgoing, {})
    kept = source_records(entries)
    # A file is read to its end, which decides about the branch unless the file is a tree.
    if not kept or (not writer.is_tree and kept[-1][0].id not in on_path):
        return _written(writer, outgoing, {})
    return _continued(writer, outgoing, path, kept, may_keep_id=may_keep_id)


def _outgoing(entries: tuple[Entry, ...], id: str) -> Outgoing:
    header = entries[0].fact
    about = (header.metadata if isinstance(header, SessionHeader) else None) or {}
    title = header.title if isinstance(header, SessionHeader) else None
    directory, git_branch = about.get("directory"), about.get("gitBranch")
    return Outgoing(
        id,
        entries,
        entries[0].timestamp,
        directory if isinstance(directory, str) else "/",
        title,
        git_branch if isinstance(git_branch, str) else None,
    )


def _written(writer: TranscriptWriter, outgoing: Outgoing, files: Mapping[str, bytes]) -> Exported:
    written = writer.write(outgoing)
    data = {**files, written.name: written.data, **written.more}
    return Exported(written.id or outgoing.id, data, writer.folder(outgoing), False, written.losses, outgoing.directory)


def _continued(
    writer: TranscriptWriter,
    outgoing: Outgoing,
    path: Sequence[Entry],
    kept: Sequence[tuple[Entry, Record]],
    *,
    may_keep_id: bool,
) -> Exported:
    """The records of the source, followed by what was added here."""
    last = max((place for place, entry in enumerate(path) if record_of(entry) is not None), default=0)
    imported = {entry.id for entry in path[: last + 1]}
    new = tuple(entry for entry in outgoing.entries if entry.id not in imported)
    old_id = _source_id(outgoing.entries[0])
    files: dict[str, bytes] = {}
    for _, record in kept:
        files[record.file] = files.get(record.file, b"") + record.data
    id = old_id if may_keep_id else outgoing.id
    if not may_keep_id:
        files = {_renamed(name, old_id, id): data.replace(old_id.encode(), id.encode()) for name, data in files.items()}
    added = outgoing._replace(id=id, entries=new, after=_last_record(path[: last + 1]))
    if not added.messages:
        made = files if writer.assembled is None else writer.assembled(files)
        is_exact = may_keep_id and [*made.values()] == [*files.values()]
        return Exported(id, made, writer.folder(added), is_exact, (), added.directory)
    name = next(iter(files))
    written = writer.write(added)
    joined = writer.joined(name, files[name], written.data)
    if joined is None:
        return _written(writer, outgoing, {})
    files[name] = joined
    return Exported(id, files, writer.folder(added), False, written.losses, added.directory)


def _source_id(header: Entry) -> str:
    """The id of the session in its program, where it is not that of the session here."""
    about = header.fact.metadata if isinstance(header.fact, SessionHeader) else None
    found = (about or {}).get("sourceId")
    return found if isinstance(found, str) and found else header.session_id.partition(":")[2].rpartition("/")[2]


def _renamed(name: str, old_id: str, id: str) -> str:
    """The name with the new id; some programs use only the beginning of an id."""
    return name.replace(old_id, id).replace(old_id[:8], id[:8])


def _last_record(path: Sequence[Entry]) -> Json:
    """The last record on the branch that has an id; empty if there is none."""
    for entry in reversed(path):
        record = record_of(entry)
        found = None if record is None else parse_object(record.data)
        if isinstance(found, dict) and ("uuid" in found or "id" in found):
            return found
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
    numbers: dict[str, int] = {}  # of the last id with this name
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
