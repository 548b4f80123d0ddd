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

_STRING = re.compile(rb'"((?:[^"\\]++|\\.)*+)"(:?)')  # with what follows a key, which is never cut out
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
            text = _STRING.sub(_cutter(limit, bodies), text)
    return text, bodies


def _cutter(limit: int, bodies: dict[str, bytes]) -> Callable[[re.Match[bytes]], bytes]:
    def replace(match: re.Match[bytes]) -> bytes:
        body, colon = match.groups()
        if colon or len(body) <= limit:
            return match[0]
        name = digest(body)
        bodies[name] = body
        return b'{"$blob":"%b"}' % name.encode()

    return replace


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
