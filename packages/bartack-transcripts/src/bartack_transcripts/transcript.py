"""`Transcript`: a session of another program, as its reader understands it.

A reader gets files and returns transcripts. A transcript is a list of steps. A step is one or more records of the
source and the facts that they became; a record that is not understood is a step without facts. Every record is in
exactly one step, so that nothing of the source is lost, whatever a reader makes of it:

    records of the file      r0    r1 r2 r3      r4        r5
    steps                    s0    s1            s2        s3
    facts                    -     an answer     a result  -

The id of a session comes from its records, never from the names of its files: a file that was renamed, copied or moved
is the same session, and two files with the same name are two. A session to which its program gave no id is named after
its first record (`digest_id`); others may begin alike, so its import compares the records as well.

The facts of a step depend on its own records and on those of the steps before it, and on nothing else. What becomes of
a file is then the same whether it is imported once, or again and again while it grows.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from typing import Final, Literal, NamedTuple

from bartack.nouns.entries import BranchSummary, CompactionSummary, Fact, SessionHeader, StreamFailed
from bartack.nouns.messages import Message

__all__ = [
    "START",
    "Files",
    "Problem",
    "ReadReport",
    "Record",
    "RecordOutcome",
    "Rows",
    "Transcript",
    "TranscriptStep",
    "digest_id",
    "first_record_id",
    "line_records",
]

Files = Mapping[str, bytes]  # the files of one session by their names, which use forward slashes

START: Final = -1  # the parent of a step that begins another conversation

_MAX_ID = 240  # bytes, URL-encoded (bartack.store.append)
_PLAIN = re.compile(rb"[A-Za-z0-9_.~-]")  # written as they are in a URL, all others as three characters

RecordOutcome = Literal["read", "opaque", "damaged"]


class Record(NamedTuple):
    """One record of a file, byte for byte. All records of a file, joined, are the file."""

    file: str
    place: int  # its number in the file, from 0
    data: bytes  # a line with its end, or a whole file


class Rows(NamedTuple):
    """The rows of a table, each of which is a record. They have a column `id`; `t` is the table in all expressions."""

    table: str
    order: str = "id"
    columns: str = "t.*"
    join: str = ""

    def query(self, condition: str = "") -> str:
        """The statement that selects them, or those of them that fulfil a condition."""
        return f"SELECT {self.columns} FROM {self.table} t {self.join} {condition} ORDER BY {self.order}"


class TranscriptStep(NamedTuple):
    """Records, and the facts that they became."""

    facts: tuple[Fact, ...]
    records: tuple[Record, ...]
    time: datetime | None = None  # None: that of the step before it
    parent: int | None = None  # the step that this one follows, or START; None: the one before it
    # Of a compaction: the first step that stays in the context. Of the summary of a branch: the end of that branch.
    refers_to: int | None = None
    content: bytes = b""  # the source of the facts, if it is not a record of its own


class Problem(NamedTuple):
    """A record that is damaged, or that is understood only in part."""

    file: str
    place: int | None  # the record in the file; None: all of it
    what: str


@dataclass
class ReadReport:
    """How many records of each type were understood, kept opaque, or damaged."""

    counts: Counter[tuple[str, RecordOutcome]] = field(default_factory=Counter)
    problems: list[Problem] = field(default_factory=list)

    def add(self, kind: str, outcome: RecordOutcome) -> None:
        """Count a record of this type."""
        self.counts[kind, outcome] += 1

    def damaged(self, record: Record, problem: str) -> None:
        """Count a record that is not what its format promises."""
        self.add("damaged", "damaged")
        self.problems.append(Problem(record.file, record.place, problem))

    def lost(self, file: str, problem: str) -> None:
        """Count something that could not be read, so that there is no record of it."""
        self.add("damaged", "damaged")
        self.problems.append(Problem(file, None, problem))

    def left_out(self, record: Record, problem: str) -> None:
        """Count a piece of a record that is not understood; the rest of it is."""
        self.add("content", "opaque")
        self.problems.append(Problem(record.file, record.place, problem))

    def total(self, outcome: RecordOutcome) -> int:
        """The number of records with this outcome."""
        return sum(count for (_, record_outcome), count in self.counts.items() if record_outcome == outcome)


@dataclass
class Transcript:
    """One session."""

    agent: str  # the name of the format
    id: str  # the session id in its program
    header: SessionHeader
    steps: list[TranscriptStep]
    report: ReadReport
    # False for a sub-agent whose records are in the file of the session that called it, and stored there.
    has_own_records: bool = True
    copy_of: str | None = None  # the session here that it was exported from, if nothing was added to it since
    has_own_id: bool = True  # False if `id` is that of its first record

    def without_answer_since(self, time: datetime) -> "Transcript":
        """The same transcript without an answer at its end that is newer than `time`: the program may be adding to it.

        Imported now and again when it is longer, such an answer would be stored twice, the second time as a branch.
        """
        last = next((index for index in reversed(range(len(self.steps))) if self.steps[index].facts), None)
        if last is None:
            return self
        facts, made_at = self.steps[last].facts, self.steps[last].time
        is_answer = any(isinstance(fact, Message) and fact.role == "assistant" for fact in facts)
        is_new = made_at is not None and made_at >= time
        return replace(self, steps=self.steps[:last]) if is_answer and is_new else self

    @property
    def has_messages(self) -> bool:
        """Whether anything was said, or failed to be."""
        conversation = (Message, StreamFailed, CompactionSummary, BranchSummary)
        return any(isinstance(fact, conversation) for step in self.steps for fact in step.facts)

    @property
    def session_id(self) -> str:
        """The id of the session in Bartack. It is the same whenever the file is imported.

        It is part of file names, so an id that would be too long is replaced by its digest.
        """
        id = f"{self.agent}:{self.id}"
        data = id.encode("utf-8", "replace")
        is_short = len(data) + 2 * len(_PLAIN.sub(b"", data)) <= _MAX_ID
        return id if is_short else f"{self.agent}:{sha256(data).hexdigest()[:32]}"


def digest_id(data: bytes) -> str:
    """An id for what has none of its own."""
    return sha256(data.strip(b" \t\r\n,")).hexdigest()[:32]


def first_record_id(data: bytes) -> str:
    """The id of a file of lines that names no session: that of its first line."""
    return digest_id(data.lstrip().partition(b"\n")[0])


def line_records(name: str, data: bytes) -> Iterator[Record]:
    """The lines of a file, each with its newline. A last line without one may be torn. Blank lines are one record."""
    place = start = blank = 0  # `blank`: the length of the blank lines before this one
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        line = data[start:end]
        if line.isspace():
            blank += end - start
        else:
            if blank:
                yield Record(name, place, data[start - blank : start])
                place, blank = place + 1, 0
            yield Record(name, place, line)
            place += 1
        start = end
    if blank:
        yield Record(name, place, data[start - blank :])
