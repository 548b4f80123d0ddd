"""Messages of libraries, which have no sessions: what their readers and writers share.

A file is a list of messages, and has the name that its owner gave it, under which it is exported again. The id of the
session is a digest of the first message.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from bartack.formats.losses import Losses
from bartack.formats.media import exact_data
from bartack.nouns.entries import CompactionSummary, Entry, Fact, SessionHeader
from bartack.nouns.errors import PartValidationError
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message, user
from bartack.nouns.parts import STRUCTURED, FileRef, Image, Text, ToolContent, ToolResult
from bartack_transcripts.json_lists import parse_list
from bartack_transcripts.transcript import Files, ReadReport, Record, Transcript, TranscriptStep, digest_id
from bartack_transcripts.values import Json, MessageFacts, short_line
from bartack_transcripts.writing import Outgoing, WrittenTranscript

__all__ = [
    "ListReader",
    "list_joined",
    "media_of",
    "no_folder",
    "one_or_parts",
    "outgoing_messages",
    "read_list",
    "read_list_in",
    "result_of",
    "write_list",
]

Convert = Callable[[Json, Record, ReadReport], Sequence[Message]]


class ListReader:
    """Makes one step of each record."""

    def __init__(self, agent: str, name: str) -> None:
        self.steps: list[TranscriptStep] = []
        self.report = ReadReport()
        self._agent = agent
        self._name = PurePosixPath(name).stem
        self._messages = MessageFacts()
        self._prompt: str | None = None
        self._id = digest_id(b"")

    def add(self, record: Record, kind: str, convert: Callable[[], Sequence[Message]]) -> None:
        """Add a record with the messages that it became."""
        if not self.steps:
            self._id = digest_id(record.data)
        facts: list[Fact] = []
        try:
            for message in convert():
                facts += self._messages.of(message)
                if message.role == "user":
                    self._prompt = self._prompt or message.text or None
        except PartValidationError as error:
            self.report.damaged(record, str(error))
        else:
            self.report.add(kind, "read" if facts else "opaque")
        time = next((fact.timestamp for fact in facts if isinstance(fact, Message)), None)
        self.steps.append(TranscriptStep(tuple(facts), (record,), time))

    def transcript(self, suffix: str = "", *, has_own_records: bool = True) -> Transcript:
        """The session that was read."""
        metadata = {"program": self._agent, "sourceId": self._name}
        header = SessionHeader(title=short_line(self._prompt), origin=self._agent, metadata=metadata)
        return Transcript(
            self._agent, self._id + suffix, header, self.steps, self.report, has_own_records, has_own_id=False
        )


def read_list(agent: str, files: Files, kind_of: Callable[[Json], str], convert: Convert) -> list[Transcript]:
    """The session in a file that is a list of messages."""
    return [transcript for transcript, _ in _read(agent, files, None, kind_of, convert)]


def read_list_in(
    agent: str, files: Files, key: str, kind_of: Callable[[Json], str], convert: Convert
) -> list[tuple[Transcript, Json]]:
    """The session in a file that is an object with a list of messages under this key, and the rest of the object."""
    return _read(agent, files, key, kind_of, convert)


def _read(
    agent: str, files: Files, key: str | None, kind_of: Callable[[Json], str], convert: Convert
) -> list[tuple[Transcript, Json]]:
    name = next(iter(files), None)
    if name is None:
        return []
    reader = ListReader(agent, name)
    parsed = parse_list(name, files[name], reader.report, key)
    for record, item in parsed.items:
        if item:
            reader.add(record, kind_of(item), partial(convert, item, record, reader.report))
        else:  # damaged, and reported already
            reader.steps.append(TranscriptStep((), (record,)))
    reader.steps += parsed.last_step()
    return [(reader.transcript(), parsed.around)]


# -- writing


def outgoing_messages(outgoing: Outgoing, losses: Losses) -> list[tuple[Entry, Message]]:
    """The messages of all entries. A compaction becomes a message: these formats have nothing else for it."""
    messages: list[tuple[Entry, Message]] = []
    for entry in outgoing.entries:
        match entry.fact:
            case Message() as message:
                messages.append((entry, message))
            case CompactionSummary() as compaction:
                why = "written as a message, after the messages that it replaces"
                losses.add(f"entry {entry.seq}", "compaction", why, action="moved")
                messages.append((entry, user(Text(compaction.summary, synthetic=True))))
    return messages


def write_list(outgoing: Outgoing, items: Iterable[Any], losses: Losses) -> WrittenTranscript:
    """A file that is a list of these items."""
    data = json.dumps(list(items), ensure_ascii=False, indent=1).encode()
    return WrittenTranscript(f"{outgoing.id}.json", data, tuple(losses.found))


def list_joined(name: str, data: bytes, added_list: bytes) -> bytes | None:
    """A file that is a list, with the items of another list; None if it is not complete."""
    end = data.rstrip()
    if not end.endswith(b"]") or not isinstance(_parsed(data), list):
        return None
    comma = b"," if _parsed(data) else b""
    return end[:-1].rstrip() + comma + b"\n" + added_list.lstrip()[1:]


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def no_folder(outgoing: Outgoing) -> str:
    """These files have no place of their own."""
    return ""


# -- content


def result_of(call: str, output: Any, *, is_error: bool = False) -> ToolResult:
    """A result with any JSON as its content."""
    if isinstance(output, str | dict):
        return ToolResult(call, output, is_error=is_error)
    if output is None:
        return ToolResult(call, "", is_error=is_error)
    return ToolResult(call, json_text(output), is_error=is_error, metadata={STRUCTURED: output})


def media_of(mime_type: str | None, *, base64: str | None = None, url: str | None = None) -> Image | FileRef | None:
    """An image or a file by its data or its URL; None if the data is not base64."""
    data = None
    if base64 is not None:
        decoded = exact_data(f"data:{mime_type or 'application/octet-stream'};base64,{base64}")
        if decoded is None:
            return None
        data, url = decoded[1], None
    elif url is None:
        return None
    is_image = (mime_type or "").startswith("image/")
    if is_image or (mime_type is None and url is not None):
        return Image(mime_type or "image/*", data=data, url=url)
    return FileRef((url or "file").rpartition("/")[2] or "file", data=data, url=url, mime_type=mime_type)


def one_or_parts(parts: Sequence[Text | Image | FileRef]) -> ToolContent:
    """The content of a result: text is short for a list with one."""
    if all(isinstance(part, Text) for part in parts) and len(parts) <= 1:
        return parts[0].text if parts and isinstance(parts[0], Text) else ""
    return tuple(parts)
