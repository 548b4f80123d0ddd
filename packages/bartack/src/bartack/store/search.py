"""Listing and searching sessions, the same in every store.

Text is split into words here, not by the database, so that all stores find the same entries. A word is a run of letters
and digits, compared case-insensitively; in scripts written without spaces every character is a word. An entry matches
if, for each term of the query, it contains the words of that term in a row: so `snake_case` and `src/main.py` are found
as they are written. Terms are separated by whitespace or enclosed in double quotes. A star at the end of a term stands
for the rest of its last word.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import NamedTuple

import msgspec

from bartack.nouns.json_values import json_text
from bartack.store.errors import invalid_value_error
from bartack.store.session_store import Page, SessionInfo

__all__ = [
    "Phrase",
    "contains",
    "cut_page",
    "newest_first",
    "page_of",
    "phrases",
    "read_cursor",
    "read_time",
    "relevance",
    "snippet",
    "sortable",
    "words",
]

# Kana, Han and Hangul are written without spaces, so a search for part of a sentence must find it.
_UNSPACED = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD = rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+"  # compiled at first use: this takes milliseconds
_TERM = re.compile(r'"([^"]*)"(\*?)|(\S+)')
_CONTEXT = 60  # characters on each side of a match

# Of BM25. The length of an average entry is fixed, because only SQLite knows that of its entries.
_SATURATION, _LENGTH_WEIGHT, _AVERAGE_LENGTH = 1.2, 0.75, 200


class Phrase(NamedTuple):
    """Words that occur in a row; if it is a prefix, the last one may go on."""

    words: tuple[str, ...]
    is_prefix: bool = False

    def padded(self) -> str:
        """What a text contains whose words are all between spaces."""
        return f" {' '.join(self.words)}{'' if self.is_prefix else ' '}"


def words(text: str) -> list[str]:
    """The words of a text, in order."""
    return re.findall(_WORD, text.casefold())


def phrases(query: str) -> list[Phrase]:
    """The terms of a query, each as the words that must occur in a row."""
    terms = [
        (words(quoted or plain), bool(star) or plain.endswith("*")) for quoted, star, plain in _TERM.findall(query)
    ]
    return [Phrase(tuple(term), is_prefix) for term, is_prefix in terms if term]


def contains(text: Sequence[str], query: Sequence[Phrase]) -> bool:
    """Whether the words of a text contain every phrase; an empty query matches nothing."""
    joined = f" {' '.join(text)} "
    return bool(query) and all(phrase.padded() in joined for phrase in query)


def relevance(text: Sequence[str], query: Sequence[Phrase]) -> float:
    """How well a text matches: better the more often it contains the phrases, and the shorter it is (BM25).

    A text that matches contains every phrase, so how rare each of them is does not matter.
    """
    joined = f" {' '.join(text)} "
    damping = _SATURATION * (1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * len(text) / _AVERAGE_LENGTH)
    counts = [joined.count(phrase.padded()) for phrase in query]
    return sum(count * (_SATURATION + 1) / (count + damping) for count in counts)


def snippet(text: str, query: Sequence[Phrase]) -> str:
    """The text around the first place of the query's first phrase, on one line."""
    position = _place(text, query[0]) if query else 0
    start, end = max(0, position - _CONTEXT), position + _CONTEXT
    line = " ".join(text[start:end].split())
    return f"{'…' if start else ''}{line}{'…' if end < len(text) else ''}"


def _place(text: str, phrase: Phrase) -> int:
    """Where the phrase is; 0 if it is nowhere."""
    latest: deque[re.Match[str]] = deque(maxlen=len(phrase.words))
    *before, last = phrase.words
    for match in re.finditer(_WORD, text):
        latest.append(match)
        word = match[0].casefold()
        ends_here = word.startswith(last) if phrase.is_prefix else word == last
        if ends_here and [earlier[0].casefold() for earlier in latest][:-1] == before:
            return latest[0].start()
    return 0


def sortable(time: datetime) -> str:
    """A time as fixed-width text that sorts chronologically, which the canonical text does not."""
    text: str = msgspec.to_builtins(time.astimezone(UTC))[:-1]  # many times as fast as `isoformat`, and ends in Z
    return f"{text}+00:00" if time.microsecond else f"{text}.000000+00:00"


def read_time(text: str | None) -> datetime:
    """The time that `sortable` wrote; 1970 if the text is damaged, so that it does not stop a list."""
    try:
        return datetime.fromisoformat(text or "").astimezone(UTC)
    except ValueError:
        return datetime(1970, 1, 1, tzinfo=UTC)


def read_cursor(cursor: str) -> tuple[str, str]:
    """The update time and id of the session before which the next page starts."""
    try:
        return msgspec.json.decode(cursor, type=tuple[str, str])
    except ValueError as error:
        raise invalid_value_error(
            f"Invalid cursor {cursor[:80]!r}: pass the cursor of the previous page.", error
        ) from None


def newest_first(infos: Iterable[SessionInfo]) -> list[SessionInfo]:
    """The sessions in the order of a list: most recently updated first, then by id."""
    return sorted(infos, key=_sort_key, reverse=True)


def page_of(
    infos: Iterable[SessionInfo], limit: int, cursor: str | None, matches: Callable[[SessionInfo], bool]
) -> Page:
    """The page after `cursor` of the sessions that match; no more are tried than the page needs."""
    ordered = newest_first(infos)
    if cursor is not None:
        place = read_cursor(cursor)
        ordered = [info for info in ordered if _sort_key(info) < place]
    return cut_page(list(islice(filter(matches, ordered), max(limit, 0) + 1)), limit)


def cut_page(infos: list[SessionInfo], limit: int) -> Page:
    """A page of `limit` sessions from up to `limit` + 1: the last one only shows that there are more."""
    if limit < 1:
        raise invalid_value_error(f"The limit of a page must be at least 1, got {limit}.")
    items = tuple(infos[:limit])
    return Page(items, json_text(_sort_key(items[-1])) if len(infos) > limit else None)


def _sort_key(info: SessionInfo) -> tuple[str, str]:
    return sortable(info.updated), info.id
