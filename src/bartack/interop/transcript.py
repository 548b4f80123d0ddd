"""`Transcript`: a session of another program, as its reader understands it.

A reader gets files and returns transcripts. A transcript is a list of steps. A step is one or more records of the
source and the facts that they became; a record that is not understood is a step without facts. Every record is in
exactly one step, so that nothing of the source is lost, whatever a reader makes of it:

    records of the file      r0    r1 r2 r3      r4        r5
    steps                    s0    s1            s2        s3
    facts                    -     an answer     a result  -

The facts of a step depend on its own records and on those of the steps before it, and on nothing else. What becomes of
a file is then the same whether it is imported once, or again and again while it grows.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Final, Literal, NamedTuple

from bartack.nouns.entries import Fact, SessionHeader

__all__ = ["START", "Files", "Outcome", "Problem", "Record", "Report", "Step", "Transcript", "line_records"]

Files = Mapping[str, bytes]  # the files of one session by their names, which use forward slashes

START: Final = -1  # the parent of a step that begins another conversation

_MAX_ID = 240  # bytes, URL-encoded (bartack.store.append)
_PLAIN = re.compile(rb"[A-Za-z0-9_.~-]")  # written as they are in a URL, all others as three characters

Outcome = Literal["read", "opaque", "damaged"]


class Record(NamedTuple):
    """One record of a file, byte for byte. All records of a file, joined, are the file."""

    file: str
    place: int  # in the file, from 0
    data: bytes  # a line with its end, or a whole file


class Step(NamedTuple):
    """Records, and the facts that they became."""

    facts: tuple[Fact, ...]
    records: tuple[Record, ...]
    time: datetime | None = None  # None: that of the step before it
    parent: int | None = None  # the step that this one follows, or START; None: the one before it
    # Of a compaction: the first step that stays in the context. Of the summary of a branch: the end of that branch.
    refers_to: int | None = None
    content: bytes = b""  # what the facts come from, if it is not a record of its own


class Problem(NamedTuple):
    """A record that is damaged, or whose facts could not be used."""

    file: str
    place: int
    what: str


@dataclass
class Report:
    """How many records of each type were understood, kept opaque, or damaged."""

    counts: Counter[tuple[str, Outcome]] = field(default_factory=Counter)
    problems: list[Problem] = field(default_factory=list)

    def add(self, kind: str, outcome: Outcome) -> None:
        """Count a record of this type."""
        self.counts[kind, outcome] += 1

    def damaged(self, record: Record, what: str) -> None:
        """Count a record that is not what its format promises."""
        self.add("damaged", "damaged")
        self.problems.append(Problem(record.file, record.place, what))

    def total(self, outcome: Outcome) -> int:
        """The number of records with this outcome."""
        return sum(count for (_, each), count in self.counts.items() if each == outcome)


@dataclass
class Transcript:
    """One session."""

    agent: str  # the name of the format
    id: str  # of the session, in its program
    header: SessionHeader
    steps: list[Step]
    report: Report
    # False for a sub-agent whose records are in the file of the session that called it, and stored there.
    has_own_records: bool = True

    @property
    def session_id(self) -> str:
        """The id of the session in Bartack. It is the same whenever the file is imported.

        It is part of file names, so an id that would be too long is replaced by its digest.
        """
        id = f"{self.agent}:{self.id}"
        data = id.encode("utf-8", "replace")
        is_short = len(data) + 2 * len(_PLAIN.sub(b"", data)) <= _MAX_ID
        return id if is_short else f"{self.agent}:{sha256(data).hexdigest()[:32]}"


def line_records(name: str, data: bytes) -> Iterator[Record]:
    """The lines of a file, each with its newline. A last line without one may be torn."""
    pieces = data.split(b"\n")
    for place, piece in enumerate(pieces[:-1]):
        yield Record(name, place, piece + b"\n")
    if pieces[-1]:
        yield Record(name, len(pieces) - 1, pieces[-1])
