"""Search, the same in every store: how text becomes words, and what a query asks for.

A text is cut into words here and not by the database, so that all stores find the same: letters and digits in one
case; a sign of a script that writes no spaces is a word of its own. An entry is found if it holds, for each word of
the query, its signs in a row.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from bartack.nouns.errors import ErrorCode, StoreError
from bartack.nouns.json_values import json_text
from bartack.store.session_store import Page, SessionInfo

__all__ = ["cursor_of", "cut_page", "holds", "page_of", "phrases", "read_cursor", "snippet", "sortable", "words"]

# Kana, Han and Hangul: no spaces between words, so a search for a part of a sentence must find it.
_UNSPACED = "぀-ヿ㐀-䶿一-鿿가-힯豈-﫿"
_TOKEN = re.compile(f"[{_UNSPACED}]|[^\\W_{_UNSPACED}]+")
_AROUND = 60  # characters on each side of a hit


def words(text: str) -> list[str]:
    """The words of a text, in order."""
    return _TOKEN.findall(text.casefold())


def phrases(query: str) -> list[list[str]]:
    """What each word of the query asks for: one or more words in a row."""
    return [found for piece in query.split() if (found := words(piece))]


def holds(text: Sequence[str], asked: Sequence[Sequence[str]]) -> bool:
    """Whether a text, as words, holds every phrase; a query without any word finds nothing."""
    joined = f" {' '.join(text)} "
    return bool(asked) and all(f" {' '.join(phrase)} " in joined for phrase in asked)


def snippet(text: str, asked: Sequence[Sequence[str]]) -> str:
    """The text around the first word that was asked for, on one line."""
    first = asked[0][0] if asked else ""
    place = next((match.start() for match in _TOKEN.finditer(text) if match[0].casefold() == first), 0)
    start, end = max(0, place - _AROUND), place + _AROUND
    cut = " ".join(text[start:end].split())
    return f"{'…' if start else ''}{cut}{'…' if end < len(text) else ''}"


def cursor_of(info: SessionInfo) -> str:
    """The cursor behind this session."""
    return json_text([sortable(info.updated), info.id])


def read_cursor(cursor: str) -> tuple[str, str]:
    """The time and id that a cursor stands behind."""
    try:
        return msgspec.json.decode(cursor, type=tuple[str, str])
    except ValueError as error:
        raise StoreError(
            f"{cursor[:80]!r} is not a cursor of a list of sessions", code=ErrorCode.INVALID_VALUE, cause=error
        ) from None


def page_of(infos: list[SessionInfo], limit: int, cursor: str | None) -> Page:
    """The page behind `cursor`: newest first, and by id among equals."""
    ordered = sorted(infos, key=_place, reverse=True)
    if cursor is not None:
        place = read_cursor(cursor)
        ordered = [info for info in ordered if _place(info) < place]
    return cut_page(ordered[: limit + 1], limit)


def cut_page(infos: list[SessionInfo], limit: int) -> Page:
    """A page of `limit` out of `limit` + 1 sessions: the last one only says that there are more."""
    if limit < 1:
        raise StoreError(f"a page has at least one session, not {limit}", code=ErrorCode.INVALID_VALUE)
    items = tuple(infos[:limit])
    return Page(items, cursor_of(items[-1]) if len(infos) > limit else None)


def _place(info: SessionInfo) -> tuple[str, str]:
    return sortable(info.updated), info.id


def sortable(time: datetime) -> str:
    """A time as text of one width: it sorts as the time does, and the canonical text does not."""
    return time.astimezone(UTC).isoformat(timespec="microseconds")
