"""Search, the same in every store: how text becomes words, and what a query asks for.

A text is cut into words here and not by the database, so that all stores find the same: letters and digits in one
case; a sign of a script that writes no spaces is a word of its own. An entry is found if it holds, for each word of
the query, its signs in a row.
"""

import re
from collections.abc import Sequence

__all__ = ["holds", "phrases", "snippet", "words"]

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
