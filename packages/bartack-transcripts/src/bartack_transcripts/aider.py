"""The chat history of aider: `.aider.chat.history.md` in a repository, with all of its chats.

A chat begins with a heading of the first level. Lines that begin with `####` were typed, those that begin with `>` are
from the program, and all others are the answer; so a heading of the fourth level in an answer is taken for a prompt,
and a quotation for a message of the program. There are no ids, calls, times or usage.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from bartack.nouns.entries import Fact, SessionHeader
from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.nouns.parts import Text
from bartack_transcripts.transcript import (
    Files,
    ReadReport,
    Record,
    Transcript,
    TranscriptStep,
    digest_id,
    line_records,
)
from bartack_transcripts.values import MessageFacts, short_line

__all__ = ["looks_like_aider", "read_aider"]

_AGENT = "aider"
_START = b"# aider chat started at "
_MODEL = re.compile(r"> (?:Main m|M)odel: (\S+)")


def looks_like_aider(name: str, head: bytes) -> bool:
    """Whether a file is a history, by the heading of its first chat."""
    return name.endswith(".md") and (head.lstrip().startswith(_START) or b"\n" + _START in head)


def read_aider(files: Files) -> list[Transcript]:
    """The sessions in a file: one for each chat."""
    name = next(iter(files), None)
    if name is None:
        return []
    chats: list[list[Record]] = [[]]
    for record in line_records(name, files[name]):
        if record.data.startswith(_START) and any(line.data.strip() for line in chats[-1]):
            chats.append([])
        chats[-1].append(record._replace(place=len(chats[-1])))
    transcripts: dict[str, Transcript] = {}
    for lines in chats:
        transcript = _chat(lines)
        if transcript.has_messages or len(chats) == 1:
            transcripts.setdefault(transcript.id, transcript)
    return list(transcripts.values())


def _chat(lines: list[Record]) -> Transcript:
    report, facts = ReadReport(), MessageFacts()
    steps: list[TranscriptStep] = []
    time, model, title = None, None, None
    turns = list(_turns(lines))
    for kind, records in turns:
        text = b"".join(record.data for record in records).decode("utf-8", "replace")
        time = time or _time(text)
        if kind == "program" and (named := _MODEL.search(text)) is not None:
            model = ModelRef(_AGENT, named[1])
        message = _message(kind, text, model)
        read: list[Fact] = [] if message is None else facts.of(message)
        title = title or (message.text if message is not None and message.role == "user" else None)
        report.add(kind, "read" if read else "opaque")
        steps.append(TranscriptStep(tuple(read), tuple(records), time))
    # Without the prompt, chats that began in the same second, in two repositories, would have one id.
    began = b"".join(record.data.strip() for kind, records in turns if kind == "heading" for record in records)
    own_id = digest_id(began + (title or "").encode("utf-8", "replace"))
    header = SessionHeader(title=short_line(title), origin=_AGENT, metadata={"program": _AGENT})
    return Transcript(_AGENT, own_id, header, steps, report, has_own_id=False)


def _turns(lines: list[Record]) -> Iterator[tuple[str, list[Record]]]:
    """The lines of each who spoke. Blank lines belong to the turn before them."""
    kind, turn = "heading", list[Record]()
    for record in lines:
        line_kind = _kind(record.data) if record.data.strip() else kind
        if line_kind != kind and turn:
            yield kind, turn
            turn = []
        kind = line_kind
        turn.append(record)
    if turn:
        yield kind, turn


def _kind(line: bytes) -> str:
    if line.startswith(_START):
        return "heading"
    if line.startswith(b"#### ") or line.strip() == b"####":
        return "prompt"
    return "program" if line.startswith(b">") else "answer"


def _message(kind: str, text: str, model: ModelRef | None) -> Message | None:
    if kind == "prompt":
        typed = "\n".join(line.removeprefix("####").strip() for line in text.splitlines()).strip()
        return Message("user", (Text(typed),)) if typed else None
    if kind == "answer" and text.strip():
        return Message("assistant", (Text(text.strip()),), meta=None if model is None else Meta(model=model))
    return None


def _time(heading: str) -> datetime | None:
    """The time in a heading, without a zone; UTC is assumed."""
    try:
        return datetime.fromisoformat(heading.strip().removeprefix(_START.decode())).replace(tzinfo=UTC)
    except ValueError:
        return None
