"""Files that are one JSON list of messages, as records: one for each message, and one for what is around them.

A message keeps what stands before it, so that all records of a file, joined, are the file. A list that grows at its end
gives the same records as before, and new ones after them.
"""

import json
from typing import NamedTuple

from bartack_transcripts.transcript import ReadReport, Record, TranscriptStep
from bartack_transcripts.values import Json, parse_object

__all__ = ["JsonList", "parse_list"]

_SPACE = " \t\n\r"
_DECODER = json.JSONDecoder(parse_int=lambda digits: None)  # only finds where a value ends


class JsonList(NamedTuple):
    """The messages in a file, each with its record."""

    items: list[tuple[Record, Json]]
    surroundings: tuple[Record, ...]  # the text before and after the messages
    around: Json  # the object that the list is part of, without the list

    def last_step(self) -> list[TranscriptStep]:
        """The step of everything that is not a message."""
        return [TranscriptStep((), self.surroundings)] if self.surroundings else []


def parse_list(name: str, data: bytes, report: ReadReport, key: str | None = None) -> JsonList:
    """The messages in a file that is a list, or an object with a list under this key."""
    if not data:
        return JsonList([], (), {})
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        return _damaged(name, data, report, f"not UTF-8: {error.reason}")
    start = _list_start(text, key)
    if start is None:
        return _damaged(name, data, report, "not a JSON list" if key is None else f"no list of {key}")
    scan = _Scan(text, name, report)
    end = scan.read_items(start)
    head, tail = text[:start], text[end:]
    around = {} if key is None else parse_object((head + (tail if scan.is_complete else "]}")).encode())
    surroundings = [Record(name, 0, head.encode())]
    if tail:
        surroundings.append(Record(name, len(scan.items) + 1, tail.encode()))
        if not scan.is_complete:
            report.damaged(surroundings[-1], "torn at the end of the file")
    return JsonList(scan.items, tuple(surroundings), around if isinstance(around, dict) else {})


def _damaged(name: str, data: bytes, report: ReadReport, problem: str) -> JsonList:
    record = Record(name, 0, data)
    report.damaged(record, problem)
    return JsonList([], (record,), {})


def _list_start(text: str, key: str | None) -> int | None:
    """The place after the bracket that opens the list."""
    place = _skip(text, 1 if text.startswith("\ufeff") else 0)
    if key is None:
        return place + 1 if text.startswith("[", place) else None
    if not text.startswith("{", place):
        return None
    place = _skip(text, place + 1)
    while text.startswith('"', place):
        name, place = _value(text, place)
        place = _skip(text, place)
        if not text.startswith(":", place):
            return None
        place = _skip(text, place + 1)
        if name == key:
            return place + 1 if text.startswith("[", place) else None
        _, place = _value(text, place)
        place = _skip(text, place)
        place = _skip(text, place + 1) if text.startswith(",", place) else len(text)
    return None


def _value(text: str, place: int) -> tuple[object, int]:
    """The value at this place, and where it ends; the end of the text if it is not JSON."""
    try:
        return _DECODER.raw_decode(text, place)
    except (ValueError, RecursionError):
        return None, len(text)


def _skip(text: str, place: int) -> int:
    while place < len(text) and text[place] in _SPACE:
        place += 1
    return place


class _Scan:
    def __init__(self, text: str, name: str, report: ReadReport) -> None:
        self.items: list[tuple[Record, Json]] = []
        self.is_complete = False
        self._text = text
        self._name = name
        self._report = report

    def read_items(self, start: int) -> int:
        """Read the items; return where the last one ends."""
        while True:
            place = _skip(self._text, start)
            if self._text.startswith("]", place):
                self.is_complete = True
                return start
            if self.items:
                if not self._text.startswith(",", place):
                    return start
                place = _skip(self._text, place + 1)
            try:
                _, end = _DECODER.raw_decode(self._text, place)
            except (ValueError, RecursionError):
                return start
            self._add(start, place, end)
            start = end

    def _add(self, start: int, place: int, end: int) -> None:
        record = Record(self._name, len(self.items) + 1, self._text[start:end].encode())
        item = parse_object(self._text[place:end].encode())
        if isinstance(item, str):
            self._report.damaged(record, item)
            item = {}
        self.items.append((record, item))
