"""Blobs: long strings of an entry's JSON are stored once, under the hash of their content.

In: canonical JSON text. Out: the text with each long string replaced by ``{"$blob":"<sha256>"}``, and the strings.
`restore_blobs` returns the original bytes.

Strings are moved as they are written, escapes included, so that nothing is encoded again. A key or string of the data
that reads ``$blob`` gets a second ``$`` (``$$blob`` a third, and so on), so that no data can pass for a reference.
"""

import re
from collections.abc import Callable
from hashlib import sha256

__all__ = [
    "BLOB_LIMIT",
    "ENTRY_LIMIT",
    "damage_to",
    "digest",
    "extract_blobs",
    "has_blob_word",
    "referenced",
    "restore_blobs",
]

BLOB_LIMIT = 64 * 1024  # longer strings are images and tool output, not messages
ENTRY_LIMIT = 1024 * 1024  # larger entries have shorter strings extracted as well
_LIMITS = (BLOB_LIMIT, 4 * 1024, 256)

_BACKSLASH, _QUOTE = b'\\"'
# To the closing quote of a string, or 1,000 escapes further: the count bounds the memory for backtracking. A possessive
# quantifier would need none, but `re` in the first 3.11 releases gets nested ones wrong.
_IN_STRING = re.compile(rb'[^"\\]*(?:\\.?[^"\\]*){0,1000}', re.DOTALL)
_WORD = re.compile(rb'(?<!\\)"(\$+blob)"')  # a whole string: inside one, a quote is escaped
_ESCAPED_WORD = re.compile(rb'(?<!\\)"\$(\$+blob)"')
_REFERENCE = re.compile(rb'\{"\$blob":"([0-9a-f]{64})"\}')


def digest(blob: bytes) -> str:
    """The name of a blob: its SHA-256 in hex."""
    return sha256(blob).hexdigest()


def has_blob_word(text: bytes) -> bool:
    """Whether the text may contain a reference, or a word that is escaped because it looks like one."""
    return text.rfind(b'$blob"') >= 0  # rfind skips from $ to $, and find from quote to quote


def extract_blobs(text: bytes) -> tuple[bytes, dict[str, bytes]]:
    """The text to store, and the blobs taken out of it by name."""
    blobs: dict[str, bytes] = {}
    if has_blob_word(text):
        text = _WORD.sub(rb'"$\1"', text)
    for limit in _LIMITS:
        if len(text) > (BLOB_LIMIT if limit == BLOB_LIMIT else ENTRY_LIMIT):
            text = _without_strings(text, limit, blobs)
    return text, blobs


def _without_strings(text: bytes, limit: int, blobs: dict[str, bytes]) -> bytes:
    """The JSON text with each string over the limit, except for keys, moved into `blobs`."""
    pieces: list[bytes] = []
    copied = 0  # everything before this is in `pieces`
    start = text.find(b'"') + 1
    while start:
        end = text.index(b'"', start)
        if text[end - 1] == _BACKSLASH:
            end = _closing_quote(text, start)
        if end - start > limit and text[end + 1 : end + 2] != b":":
            blob = text[start:end]
            name = digest(blob)
            blobs[name] = blob
            pieces += text[copied : start - 1], b'{"$blob":"%b"}' % name.encode()
            copied = end + 1
        start = text.find(b'"', end + 1) + 1
    return b"".join((*pieces, text[copied:]))


def _closing_quote(text: bytes, position: int) -> int:
    """The position of the quote that closes the string around `at`."""
    while text[position] != _QUOTE:
        run = _IN_STRING.match(text, position)
        assert run is not None  # the pattern matches the empty string too
        position = run.end()
    return position


def referenced(text: bytes) -> list[str]:
    """The names of the blobs that a stored text refers to."""
    return [match.decode() for match in _REFERENCE.findall(text)]


def restore_blobs(text: bytes, find_blob: Callable[[str], bytes | None]) -> bytes:
    """The text as it was before `extract_blobs`, except that the reference to a lost blob stays."""
    if not has_blob_word(text):
        return text
    # In one pass: the content of a blob is not searched again, and copied once.
    pieces: list[bytes] = []
    copied = 0
    for match in _REFERENCE_OR_ESCAPED.finditer(text):
        name, word = match.groups()
        content = word if name is None else find_blob(name.decode())
        if content is not None:
            pieces += text[copied : match.start()], b'"', content, b'"'
            copied = match.end()
    return b"".join((*pieces, text[copied:]))


_REFERENCE_OR_ESCAPED = re.compile(_REFERENCE.pattern + rb"|" + _ESCAPED_WORD.pattern)


def damage_to(name: str, blob: bytes | None) -> str | None:
    """What is wrong with a stored blob, for a finding; None if it is intact."""
    if blob is None:
        return f"blob {name} is missing"
    return None if digest(blob) == name else f"blob {name} was altered"
