"""The lines of a session file, where its last complete append ends, and the lines of a journal.

A line is the JSON of an entry after `extract_blobs`, with its checksum. An append of several entries is several lines,
all but the last of which end in a space: JSON readers ignore it, and it marks that the append continues. An append is
complete when its last line is, and every one of its lines has the checksum that follows from the line before.

The journal of a session (bartack.store.live) is a file of its own, which the first batch of each generation replaces.
Each of its lines has a checksum that does not depend on the others. A line that is damaged, or that a crash has cut
off, ends the journal.
"""

import os
from collections.abc import Callable, Iterable
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from bartack.nouns import wire
from bartack.nouns.entries import MessageDeltaBatch
from bartack.store.append import Row
from bartack.store.checksums import broken_at, seal, split_checksum, unseal, with_checksum
from bartack.store.entries import envelope_of
from bartack.store.files import write_file, write_synced
from bartack.store.live import read_batches

__all__ = [
    "StoredLines",
    "complete_size",
    "is_journal_damaged",
    "join",
    "read_journal",
    "read_texts",
    "split",
    "write_journal",
]

_KEY = b',"checksum":"'
_SUFFIX_LENGTH = len(_KEY) + 32 + len(b'"}')
_SPACE = ord(" ")


class StoredLines(NamedTuple):
    """Stored texts, and their checksums, which are None where they cannot be read."""

    texts: list[bytes]
    checksums: list[bytes | None]


def join(rows: Iterable[Row]) -> bytes:
    """The lines of an append."""
    return b" \n".join(with_checksum(row.text, row.checksum) for row in rows) + b"\n"


def read_texts(data: bytes) -> tuple[list[bytes], bytes]:
    """The texts of all lines, whatever is in them, and the last checksum, empty if it cannot be read.

    The last line need not end in a newline. It does not look at the other checksums, for speed: a session is opened
    far more often than it is checked.
    """
    last = split(data[data.rfind(b"\n", 0, -1) + 1 :])
    if not data.endswith(b"\n"):
        data += b"\n"
    texts: list[bytes] = []
    start = 0
    while start < len(data):
        newline = data.find(b"\n", start)
        end = newline - 1 if data[newline - 1] == _SPACE else newline
        suffix = end - _SUFFIX_LENGTH
        has_checksum = suffix > start and data.startswith(_KEY, suffix)
        texts.append(data[start:suffix] + b"}" if has_checksum else data[start:end])
        start = newline + 1
    return texts, last.checksums[0] or b""


def split(data: bytes) -> StoredLines:
    """All lines, whatever is in them. The last one need not end in a newline."""
    return _split(_raw_lines(data))


def _raw_lines(data: bytes) -> list[bytes]:
    """The lines without their newlines."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def _split(raw_lines: Iterable[bytes]) -> StoredLines:
    lines = StoredLines([], [])
    for raw in raw_lines:
        text, checksum = split_checksum(raw.removesuffix(b" "))
        lines.texts.append(text)
        lines.checksums.append(checksum)
    return lines


def complete_size(data: bytes, previous: bytes, restore_text: Callable[[bytes], bytes | None]) -> int:
    """The size of everything up to the end of the last complete append.

    `previous` is the checksum before the data; `whole` returns a stored text with its blobs in place, None if one is
    lost. What comes before a complete append was complete too when that was written, whatever it looks like now.
    """
    raw_lines = _raw_lines(data)
    texts, checksums = _split(raw_lines)
    broken = set(broken_at(map(restore_text, texts), checksums, previous))
    complete = end = 0
    is_intact = True
    for position, raw in enumerate(raw_lines):
        end += len(raw) + 1
        is_intact &= position not in broken and envelope_of(texts[position]) is not None
        if not raw.endswith(b" "):
            complete = end if is_intact else complete
            is_intact = True
    return min(complete, len(data))  # the last line may lack its newline


def write_journal(path: Path, batch: MessageDeltaBatch | None) -> None:
    """Add a batch, or remove the journal. The caller holds the folder's lock."""
    if batch is None:
        path.unlink(missing_ok=True)
        return
    line = seal(wire.encode(batch)) + b"\n"
    if batch.number == 0:
        write_file(path, line)
        return
    write_synced(path, line, os.O_APPEND)


def read_journal(path: Path, generation: int, after_number: int) -> list[MessageDeltaBatch]:
    """The batches of another generation, or after this one."""
    texts = [text for text in takewhile(lambda text: text is not None, _texts(path)) if text is not None]
    return [batch for batch in read_batches(texts) if batch.generation != generation or batch.number > after_number]


def is_journal_damaged(path: Path) -> bool:
    """Whether a complete line does not match its checksum, or one that must be complete is not."""
    return None in _texts(path)


def _texts(path: Path) -> list[bytes | None]:
    """The batches as JSON, None in place of those that are damaged. An incomplete last line does not count."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    texts = [unseal(line) for line in lines]
    if lines[-1] == b"" or _is_cut_off(lines[-1]):
        texts.pop()
    return texts


def _is_cut_off(line: bytes) -> bool:
    """Whether the line is the beginning of one, as after a crash: a whole one would end in its checksum."""
    return split_checksum(line.rstrip())[1] is None
