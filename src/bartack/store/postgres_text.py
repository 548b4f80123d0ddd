"""Text in and out of PostgreSQL, whose TEXT takes no NUL and whose indexes take no more than 2,700 bytes."""

from collections.abc import Iterable
from hashlib import sha256

__all__ = ["escaped", "key", "lexemes", "query_of", "unescaped"]

_KEY_LIMIT = 1000  # bytes; two of them fit into an index row
_LEXEME_LIMIT = 200  # characters; PostgreSQL's own limit is 2,046 bytes


def escaped(text: str) -> str:
    """The text without NUL; `unescaped` gives it back. Half characters, which no entry holds, only stay apart."""
    if "\\" in text or "\0" in text:
        text = text.replace("\\", "\\\\").replace("\0", "\\0")
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def unescaped(text: str) -> str:
    """The text that was escaped."""
    return "\\".join(piece.replace("\\0", "\0") for piece in text.split("\\\\")) if "\\" in text else text


def key(text: str) -> str:
    """What stands for an id in an index: itself, escaped, or where it is too long its hash. No two have one key."""
    safe = escaped(text)
    if len(safe.encode()) <= _KEY_LIMIT:
        return safe
    return "\\#" + sha256(safe.encode()).hexdigest()  # no escaped text holds this pair


def lexemes(words: Iterable[str]) -> list[str]:
    """The words as an index holds them: each once, the long ones cut. They find too much, never too little."""
    return sorted({word[:_LEXEME_LIMIT] for word in words})


def query_of(asked: Iterable[Iterable[str]]) -> str:
    """The tsquery for entries that hold all these words; words are letters and digits and need no escape."""
    return " & ".join(f"'{word}'" for word in lexemes(word for phrase in asked for word in phrase))
