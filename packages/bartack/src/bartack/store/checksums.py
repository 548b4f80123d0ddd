"""Checksums of entries, each chained to the one before it.

The checksum of an entry covers its canonical JSON, with every blob in its place, and the checksum of the entry before
it in the session. A flipped bit, a lost or foreign entry, or a store that lost its latest entries therefore breaks the
chain, and the break shows where. The chain is the same in every store and in exports.

In a line of text the checksum is the last key: ``{"id":...,"checksum":"<32 hex digits>"}``.
"""

import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b

__all__ = ["broken_at", "chain", "checksums_of", "digest_of", "seal", "split_checksum", "unseal", "with_checksum"]

_SIZE = 16  # bytes
_SUFFIX = re.compile(rb',"checksum":"([0-9a-f]{32})"\}\Z')
_SUFFIX_LENGTH = len(b',"checksum":""}') + 2 * _SIZE


def digest_of(text: bytes) -> bytes:
    """What `chain` needs of an entry's canonical JSON."""
    return blake2b(text, digest_size=_SIZE).digest()


def chain(previous: bytes, digest: bytes) -> bytes:
    """The checksum of an entry with this digest. `previous` is that of the entry before it, empty for the first one."""
    return blake2b(previous + digest, digest_size=_SIZE).digest()


def checksums_of(texts: Iterable[bytes], previous: bytes = b"") -> list[bytes]:
    """The checksums of consecutive entries after one with the checksum `previous`."""
    checksums: list[bytes] = []
    for text in texts:
        previous = chain(previous, digest_of(text))
        checksums.append(previous)
    return checksums


def broken_at(texts: Iterable[bytes | None], checksums: Iterable[bytes | None], previous: bytes = b"") -> Iterator[int]:
    """The positions of the entries that do not match their checksum.

    The text of an entry is None if it is not known; its checksum is None if it cannot be read. One damaged entry is
    reported once: the next one follows either the checksum that is stored or the one that should be.
    """
    before: tuple[bytes, ...] = (previous,)
    for position, (text, stored) in enumerate(zip(texts, checksums, strict=True)):
        digest = None if text is None else digest_of(text)
        expected = () if digest is None else tuple(chain(checksum, digest) for checksum in before)
        if stored is None:
            yield position
            before = ()
        elif not expected or stored in expected:
            before = (stored,)
        else:
            yield position
            before = (stored, expected[0])


def with_checksum(text: bytes, checksum: bytes) -> bytes:
    """The JSON of an entry with its checksum."""
    return b'%b,"checksum":"%b"}' % (text[:-1], checksum.hex().encode())


def split_checksum(line: bytes) -> tuple[bytes, bytes | None]:
    """The JSON of an entry as it was before `with_checksum`, and the checksum; None if the line has none."""
    suffix = _SUFFIX.search(line, max(0, len(line) - _SUFFIX_LENGTH))
    if suffix is None:
        return line, None
    return line[: suffix.start()] + b"}", bytes.fromhex(suffix[1].decode())


def seal(text: bytes) -> bytes:
    """A JSON object other than an entry, with its own checksum."""
    return with_checksum(text, digest_of(text))


def unseal(line: bytes) -> bytes | None:
    """The JSON before `seal`; None if it is damaged."""
    text, checksum = split_checksum(line)
    return text if checksum == digest_of(text) else None
