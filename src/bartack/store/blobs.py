"""Large bodies: long strings of an entry's JSON are kept once, by the hash of their content.

In: canonical JSON text. Out: the text with each long string replaced by ``{"$blob":"<sha256>"}``, and the strings that
were cut out. `restore` gives back the very bytes.

It works on the text and not on values, so that nothing is written anew: a string is cut out as it stands, escapes
included. A key or string of the data itself that reads ``$blob`` gets a second ``$`` (``$$blob`` a third, and so on),
so no data can pass for a marker.
"""

import re
from collections.abc import Callable
from hashlib import sha256

__all__ = ["BLOB_LIMIT", "ENTRY_LIMIT", "cut", "digest", "referenced", "restore"]

BLOB_LIMIT = 64 * 1024  # a string longer than this is a body, not a message
ENTRY_LIMIT = 1024 * 1024  # an entry stays below this where strings can be cut out of it
_SHORTER_LIMITS = (BLOB_LIMIT, 4 * 1024, 256)

_BACKSLASH, _QUOTE = b'\\"'
# To the closing quote of a string, or 1,000 escapes further: the count limits the trail for backtracking. A possessive
# quantifier would leave none, but `re` of the first 3.11 releases gets nested ones wrong.
_IN_STRING = re.compile(rb'[^"\\]*(?:\\.?[^"\\]*){0,1000}', re.DOTALL)
_WORD = re.compile(rb'(?<!\\)"(\$+blob)"')  # a whole string: inside one, a quote has a backslash before it
_ESCAPED_WORD = re.compile(rb'(?<!\\)"\$(\$+blob)"')
_MARKER = re.compile(rb'\{"\$blob":"([0-9a-f]{64})"\}')


def digest(body: bytes) -> str:
    """The name of a body: its SHA-256 in hex."""
    return sha256(body).hexdigest()


def cut(text: bytes) -> tuple[bytes, dict[str, bytes]]:
    """The text as it is stored, and what was cut out of it by its hash."""
    bodies: dict[str, bytes] = {}
    if b'$blob"' in text:
        text = _WORD.sub(rb'"$\1"', text)
    for limit in _SHORTER_LIMITS:
        if len(text) > (BLOB_LIMIT if limit == BLOB_LIMIT else ENTRY_LIMIT):
            text = _without_strings(text, limit, bodies)
    return text, bodies


def _without_strings(text: bytes, limit: int, bodies: dict[str, bytes]) -> bytes:
    """The JSON text with each string over the limit moved into `bodies`, except for keys."""
    pieces: list[bytes] = []
    kept = 0  # everything before this is in `pieces`
    start = text.find(b'"') + 1
    while start:
        end = text.index(b'"', start)
        if text[end - 1] == _BACKSLASH:
            end = _closing_quote(text, start)
        if end - start > limit and text[end + 1 : end + 2] != b":":
            body = text[start:end]
            name = digest(body)
            bodies[name] = body
            pieces += text[kept : start - 1], b'{"$blob":"%b"}' % name.encode()
            kept = end + 1
        start = text.find(b'"', end + 1) + 1
    return b"".join((*pieces, text[kept:]))


def _closing_quote(text: bytes, at: int) -> int:
    """Where the string that `at` is inside of ends."""
    while text[at] != _QUOTE:
        found = _IN_STRING.match(text, at)
        assert found is not None  # the pattern also matches nothing
        at = found.end()
    return at


def referenced(text: bytes) -> list[str]:
    """The hashes of the bodies that a stored text needs."""
    return [match.decode() for match in _MARKER.findall(text)]


def restore(text: bytes, body_of: Callable[[str], bytes]) -> bytes:
    """The text as it was before `cut`."""
    if b'$blob"' not in text:
        return text
    # In one pass: what a body holds is not looked at again.
    return _ANY.sub(lambda match: _restored(match, body_of), text)


_ANY = re.compile(_MARKER.pattern + rb"|" + _ESCAPED_WORD.pattern)


def _restored(match: re.Match[bytes], body_of: Callable[[str], bytes]) -> bytes:
    name, word = match.groups()
    if name is not None:
        return b'"%b"' % body_of(name.decode())
    return b'"%b"' % word
