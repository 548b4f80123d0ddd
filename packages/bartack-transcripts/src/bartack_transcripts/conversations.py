"""Conversations that are trees of messages: data exports of chat services, and databases of editors.

A conversation is a session. The record of a message is its JSON as it is in the source, without the lists of what
follows it, which change when the conversation goes on. So a later export adds what is new, and an earlier one adds
nothing. What belongs to no message, such as the account and settings, is not kept.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from bartack.nouns.entries import Fact, SessionHeader
from bartack.nouns.errors import PartValidationError
from bartack.nouns.messages import Message
from bartack_transcripts.transcript import START, Files, ReadReport, Record, Transcript, TranscriptStep, digest_id
from bartack_transcripts.values import Json, MessageFacts, parse_object, short_line

__all__ = [
    "ChatMessage",
    "ChatTree",
    "Convert",
    "Raw",
    "RowsByKind",
    "raw_members",
    "read_conversations",
    "read_trees",
    "tree_order",
    "without",
]

Raw = Mapping[str, msgspec.Raw]
RowsByKind = dict[str, dict[str, Json]]  # kind -> id -> the columns


class ChatMessage(NamedTuple):
    """A message of a conversation; `parent` is the id of the one before it, `START` that it is a first one."""

    id: str
    data: bytes
    time: datetime | None
    parent: str | int | None  # None: the one before it in the list


class ChatTree(NamedTuple):
    """A conversation: parents come before their children, and the latest branch is the last one."""

    id: str | None
    title: str | None
    time: datetime | None
    messages: Sequence[ChatMessage]
    metadata: Mapping[str, str | None] = MappingProxyType({})  # of the session, as far as it is known


Convert = Callable[[str, Json], tuple[str, Sequence[Message]]]  # id and JSON -> the kind of the message, and messages


def read_conversations(
    agent: str,
    files: Files,
    conversation_in: Callable[[Json, Raw], ChatTree | None],
    converter: Callable[[], Convert],
) -> list[Transcript]:
    """The sessions in a file that is a list of conversations, or one of them."""
    name = next(iter(files), None)
    if name is None:
        return []
    report = ReadReport()
    transcripts: dict[str, Transcript] = {}
    for place, (data, raw) in enumerate(_objects(files[name])):
        json = parse_object(data)
        conversation = None if isinstance(json, str) else conversation_in(json, raw)
        if conversation is None:
            report.damaged(Record(name, place, data), json if isinstance(json, str) else "not a conversation")
            continue
        transcript = _transcript(agent, data, conversation, converter())
        transcripts.setdefault(transcript.session_id, transcript)
    if not transcripts and not report.problems:
        report.damaged(Record(name, 0, files[name]), "not a JSON list of conversations")
    return _reported(agent, digest_id(files[name]), list(transcripts.values()), report)


def read_trees(
    agent: str, files: Files, trees_in: Callable[[RowsByKind], Iterable[ChatTree]], converter: Callable[[], Convert]
) -> list[Transcript]:
    """The sessions in the rows of a database, by their kind (`disk.rows`)."""
    report = ReadReport()
    rows: RowsByKind = {}
    for name, data in files.items():
        json = parse_object(data)
        if isinstance(json, str):
            report.damaged(Record(name, 0, data), json)
        else:
            kind, _, id = name.partition("/")
            rows.setdefault(kind, {})[id] = json
    transcripts = [_transcript(agent, (tree.id or "").encode(), tree, converter()) for tree in trees_in(rows)]
    return _reported(agent, "unknown", [transcript for transcript in transcripts if transcript.steps], report)


def _reported(agent: str, id: str, transcripts: list[Transcript], report: ReadReport) -> list[Transcript]:
    """The sessions, of which the first one has the problems; if there is none, one without messages has them."""
    if not transcripts:
        return [Transcript(agent, id, SessionHeader(origin=agent), [], report)]
    transcripts[0].report.counts += report.counts
    transcripts[0].report.problems += report.problems
    return transcripts


def tree_order(parents: Mapping[str, str | None], last: str | None) -> list[str]:
    """The messages, each after its parent, and those on the branch that ends with `last` after their siblings."""
    on_branch: set[str] = set()
    while last is not None and last in parents and last not in on_branch:
        on_branch.add(last)
        last = parents[last]
    children: dict[str | None, list[str]] = {}
    for id, parent in parents.items():
        children.setdefault(parent if parent in parents else None, []).append(id)
    ordered: list[str] = []
    waiting = _last_first(children.get(None, []), on_branch)
    while waiting:
        ordered.append(waiting.pop())
        waiting += _last_first(children.get(ordered[-1], []), on_branch)
    return ordered


def _last_first(siblings: Sequence[str], on_branch: set[str]) -> list[str]:
    """Siblings as the end of a stack of messages to visit: the one that is shown comes last."""
    return [*(id for id in siblings if id in on_branch), *(id for id in siblings[::-1] if id not in on_branch)]


def _objects(data: bytes) -> Iterator[tuple[bytes, Raw]]:
    """The objects in a list, or the one that is all of the file, each as it is and with its members as they are."""
    try:
        items = msgspec.json.decode(data, type=list[msgspec.Raw] | dict[str, msgspec.Raw])
        if isinstance(items, dict):
            yield data, items
            return
        for item in items:
            yield bytes(item), msgspec.json.decode(item, type=dict[str, msgspec.Raw])
    except (ValueError, RecursionError):  # what was read before is used
        return


def _transcript(agent: str, data: bytes, conversation: ChatTree, convert: Convert) -> Transcript:
    reader = _Reader(convert)
    for message in conversation.messages:
        reader.add(message)
    metadata = {"program": agent, "sourceId": conversation.id, **conversation.metadata}
    metadata = {key: value for key, value in metadata.items() if value is not None}
    title = conversation.title or short_line(reader.prompt)
    header = SessionHeader(title=title, origin=agent, metadata=metadata)
    return Transcript(agent, conversation.id or digest_id(data), header, reader.steps, reader.report)


class _Reader:
    def __init__(self, convert: Convert) -> None:
        self.steps: list[TranscriptStep] = []
        self.report = ReadReport()
        self.prompt: str | None = None
        self._convert = convert
        self._facts = MessageFacts()
        self._places: dict[str | int | None, int] = {START: START}

    def add(self, message: ChatMessage) -> None:
        if message.id in self._places:  # a message that is repeated would be another branch
            return
        record = Record(f"messages/{message.id}", 0, message.data)
        parent = self._places.get(message.parent) if self.steps else START
        facts: list[Fact] = []
        json = parse_object(message.data)
        if isinstance(json, str):
            self.report.damaged(record, json)
        else:
            facts = self._facts_of(message.id, json, record)
        self._places[message.id] = len(self.steps)
        self.steps.append(TranscriptStep(tuple(facts), (record,), message.time, parent))

    def _facts_of(self, id: str, json: Json, record: Record) -> list[Fact]:
        facts: list[Fact] = []
        try:
            kind, messages = self._convert(id, json)
            for message in messages:
                facts += self._facts.of(message)
                if message.role == "user":
                    self.prompt = self.prompt or message.text or None
        except PartValidationError as error:
            self.report.damaged(record, str(error))
            return []
        self.report.add(kind, "read" if facts else "opaque")
        return facts


def raw_members(raw: Raw, key: str) -> Any:
    """The members of an object, or the items of a list, as they are in the file; empty if there are none."""
    value = raw.get(key)
    if value is None:
        return {}
    try:
        return msgspec.json.decode(value, type=dict[str, msgspec.Raw] | list[msgspec.Raw])
    except ValueError:
        return {}


def without(data: bytes | msgspec.Raw, *keys: str) -> bytes:
    """The JSON of an object without these members, the others as they are."""
    members = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({key: member for key, member in members.items() if key not in keys})
