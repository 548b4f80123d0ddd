"""Text in and out of PostgreSQL, whose TEXT takes no NUL and whose indexes take no more than 2,700 bytes."""

from collections.abc import Iterable
from hashlib import sha256

__all__ = ["escaped", "key", "lexemes", "query_of", "unescaped"]

_KEY_LIMIT = 1000  # bytes; two of them fit into an index row
_LEXEME_LIMIT = 200  # characters; PostgreSQL's own limit is 2,046 bytes


def escaped(text: str) -> str:
    """The text without NUL; `unescaped` gives it back."""
    return text.replace("\\", "\\\\").replace("\0", "\\0") if "\0" in text or "\\" in text else text


def unescaped(text: str) -> str:
    """The text that was escaped."""
    return "\\".join(piece.replace("\\0", "\0") for piece in text.split("\\\\")) if "\\" in text else text


def key(text: str) -> str:
    """What stands for an id in an index: itself, or where it cannot, its hash. No two ids have one key."""
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) > _KEY_LIMIT or "\0" in text or len(raw) != len(text.encode("utf-8", "replace")) or text[:1] == "\\":
        return "\\" + sha256(raw).hexdigest()
    return text


def lexemes(words: Iterable[str]) -> list[str]:
    """The words as an index holds them: each once, the long ones cut. They find too much, never too little."""
    return sorted({word[:_LEXEME_LIMIT] for word in words})


def query_of(asked: Iterable[Iterable[str]]) -> str:
    """The tsquery for entries that hold all these words; words are letters and digits and need no escape."""
    return " & ".join(f"'{word}'" for word in lexemes(word for phrase in asked for word in phrase))
